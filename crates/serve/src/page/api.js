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

/** The events of a stream, with their names. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let name = "message";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") name = "message";
      else if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) yield { name, data: line.slice(5).trim() };
    }
  }
}

function post(path, body, key, signal) {
  return request(path, key, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
}

/** The chunks of a streamed answer. Aborting the signal ends the request on the server too. */
export async function* streamChat(body, key, signal) {
  for await (const { data } of events(await post("/v1/chat/completions", body, key, signal))) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(500, chunk.error.message ?? "The answer failed.");
    yield chunk;
  }
  throw new ApiError(0, "The connection ended before the answer was complete.");
}

/** The events of a job. Aborting the signal ends the job on the server too. */
export async function* streamJob(body, key, signal) {
  const { job_id } = await (await post("/v1/jobs", body, key, signal)).json();
  const response = await request(`/v1/jobs/${encodeURIComponent(job_id)}/stream`, key, { signal });
  for await (const { name, data } of events(response)) {
    const event = JSON.parse(data);
    if (name === "error") throw new ApiError(500, event.message ?? "The job failed.");
    yield { name, data: event };
  }
}
