// The server's API: requests with the key, and streams of events.

/** An error that the server reported, or that kept it from answering. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, key, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.authorization = "Bearer " + key;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (!response.ok) {
    let message = `The server answered ${response.status}.`;
    try {
      const body = await response.json();
      message = body.error?.message ?? body.status ?? message;
    } catch {
      // The status says enough.
    }
    throw new ApiError(response.status, message);
  }
  return response;
}

export async function getJson(path, key) {
  return (await request(path, key)).json();
}

/** The chunks of a streamed answer. Aborting the signal ends the request on the server too. */
export async function* streamChat(body, key, signal) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal };
  const response = await request("/v1/chat/completions", key, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new ApiError(0, "The connection ended before the answer was complete.");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(500, chunk.error.message ?? "The answer failed.");
      yield chunk;
    }
  }
}
