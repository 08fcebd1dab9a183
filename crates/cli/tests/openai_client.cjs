// Uses a server as applications do, with the official client for JavaScript.

const assert = require("node:assert/strict");
const OpenAI = require("openai").OpenAI;

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "k", maxRetries: 0 });
const model = "tiny";
const messages = [{ role: "user", content: "hello" }];
// A random model would fill JSON with white space. Tokens are bytes, after three special ones.
const noSpace = { 259: -100 };
for (const space of " \n\r\t") noSpace[3 + space.charCodeAt(0)] = -100;

const schema = {
  type: "object",
  properties: { ok: { type: "boolean" } },
  required: ["ok"],
  additionalProperties: false,
};

async function chat() {
  const models = [];
  for await (const entry of client.models.list()) models.push(entry.id);
  assert.deepEqual(models, [model]);

  const whole = await client.chat.completions.create({ model, messages, max_tokens: 6, temperature: 0 });
  assert.equal(whole.choices[0].message.role, "assistant");
  const stream = await client.chat.completions.create({
    model,
    messages,
    max_tokens: 6,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.total_tokens, whole.usage.total_tokens);

  const withLogprobs = await client.chat.completions.create({
    model,
    messages,
    max_tokens: 2,
    logprobs: true,
    top_logprobs: 3,
  });
  assert.equal(withLogprobs.choices[0].logprobs.content[0].top_logprobs.length, 3);

  const completion = await client.completions.create({ model, prompt: "ab", max_tokens: 3, ignore_eos: true });
  assert.equal(completion.usage.completion_tokens, 3);
}

async function structured() {
  const answer = await client.chat.completions.create({
    model,
    messages,
    max_tokens: 100,
    logit_bias: noSpace,
    response_format: { type: "json_schema", json_schema: { name: "answer", schema, strict: true } },
  });
  assert.equal(typeof JSON.parse(answer.choices[0].message.content).ok, "boolean");

  const tools = [{ type: "function", function: { name: "look", parameters: schema, strict: true } }];
  const asked = { model, messages, max_tokens: 100, tools, tool_choice: "required", logit_bias: noSpace };
  const called = await client.chat.completions.create(asked);
  const call = called.choices[0].message.tool_calls[0];
  assert.equal(called.choices[0].finish_reason, "tool_calls");
  assert.equal(call.function.name, "look");
  assert.equal(typeof JSON.parse(call.function.arguments).ok, "boolean");

  // The helper puts the deltas of a stream together.
  const streamed = await client.chat.completions.stream(asked).finalChatCompletion();
  const pieces = streamed.choices[0].message.tool_calls[0];
  assert.equal(pieces.function.name, "look");
  assert.equal(typeof JSON.parse(pieces.function.arguments).ok, "boolean");

  const answered = [...messages, called.choices[0].message, { role: "tool", tool_call_id: call.id, content: "seen" }];
  await client.chat.completions.create({ model, messages: answered, max_tokens: 2, tools });
}

async function cancelled() {
  const stream = await client.chat.completions.create({ model, messages, max_tokens: 400, ignore_eos: true, stream: true });
  for await (const chunk of stream) {
    assert.equal(chunk.object, "chat.completion.chunk");
    break; // closes the connection
  }
  const next = await client.chat.completions.create({ model, messages, max_tokens: 1 });
  assert.equal(next.choices.length, 1);
}

async function embeddings() {
  // The client asks for base64 and decodes it.
  const vectors = await client.embeddings.create({ model, input: ["hello", "other"] });
  assert.deepEqual(vectors.data.map((item) => item.index), [0, 1]);
  assert.equal(vectors.data[0].embedding.length, 64);
  const floats = await client.embeddings.create({ model, input: "hello", encoding_format: "float" });
  floats.data[0].embedding.forEach((value, at) => assert.ok(Math.abs(value - vectors.data[0].embedding[at]) < 1e-5));
}

async function errors() {
  await assert.rejects(client.embeddings.create({ model, input: "" }), (error) => error.status === 400 && error.param === "input");
  await assert.rejects(
    client.chat.completions.create({ model, messages: [{ role: "user", content: "x".repeat(600) }] }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded",
  );
  await assert.rejects(
    client.chat.completions.create({ model: "none", messages }),
    (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found",
  );
  const wrong = new OpenAI({ baseURL: process.argv[2], apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(wrong.models.list(), (error) => error instanceof OpenAI.AuthenticationError);
}

(async () => {
  for (const part of [chat, structured, cancelled, embeddings, errors]) await part();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
