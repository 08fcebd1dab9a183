"""Uses a server as applications do, with the official client: chat, streams, tools, schemas, log probabilities, embeddings, errors."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="k", max_retries=0)
messages = [{"role": "user", "content": "hello"}]
# A random model would fill JSON with white space. Tokens are bytes, after three special ones.
no_space = {str(token): -100 for token in [259, *(3 + ord(space) for space in " \n\r\t")]}

assert [model.id for model in client.models.list()] == ["tiny"]

whole = client.chat.completions.create(model="tiny", messages=messages, max_tokens=6, temperature=0)
assert whole.choices[0].message.role == "assistant" and whole.usage.completion_tokens <= 6

stream = client.chat.completions.create(
    model="tiny", messages=messages, max_tokens=6, temperature=0, stream=True, stream_options={"include_usage": True}
)
chunks = list(stream)
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == whole.choices[0].message.content, (text, whole)
assert chunks[-1].usage.total_tokens == whole.usage.total_tokens

logprobs = client.chat.completions.create(model="tiny", messages=messages, max_tokens=2, logprobs=True, top_logprobs=3)
assert len(logprobs.choices[0].logprobs.content[0].top_logprobs) == 3

completion = client.completions.create(model="tiny", prompt="ab", max_tokens=3, extra_body={"top_k": 5, "ignore_eos": True})
assert completion.usage.completion_tokens == 3

schema = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
answer = client.chat.completions.create(
    model="tiny",
    messages=messages,
    max_tokens=100,
    logit_bias=no_space,
    response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}},
)
assert isinstance(json.loads(answer.choices[0].message.content)["ok"], bool)

tool = {"type": "function", "function": {"name": "look", "parameters": schema}}
called = client.chat.completions.create(
    model="tiny", messages=messages, max_tokens=100, tools=[tool], tool_choice="required", logit_bias=no_space
)
call = called.choices[0].message.tool_calls[0]
assert called.choices[0].finish_reason == "tool_calls" and call.function.name == "look"
assert "ok" in json.loads(call.function.arguments)
again = messages + [
    called.choices[0].message.model_dump(exclude_none=True),
    {"role": "tool", "tool_call_id": call.id, "content": "seen"},
]
client.chat.completions.create(model="tiny", messages=again, max_tokens=2, tools=[tool])

strict = {"type": "function", "function": {"name": "look", "parameters": schema, "strict": True}}
# Streams: each delta is complete JSON of the client's types; the helper puts them together.
with client.chat.completions.stream(
    model="tiny",
    messages=messages,
    max_tokens=100,
    tools=[strict],
    tool_choice="required",
    logit_bias=no_space,
    logprobs=True,
    top_logprobs=2,
) as events:
    kinds = {event.type for event in events}
    final = events.get_final_completion()
assert "chunk" in kinds, kinds
streamed = final.choices[0].message.tool_calls[0]
assert streamed.function.name == "look" and "ok" in json.loads(streamed.function.arguments)
parts = client.completions.create(model="tiny", prompt=["a", "b"], max_tokens=4, stream=True, seed=3, n=2)
assert {part.choices[0].index for part in parts} == {0, 1, 2, 3}
seeded = [
    client.chat.completions.create(model="tiny", messages=messages, max_tokens=8, seed=7).choices[0].message.content
    for _ in range(2)
]
assert seeded[0] == seeded[1]
stopped = client.chat.completions.create(
    model="tiny", messages=messages, max_tokens=50, temperature=0, stop=[whole.choices[0].message.content[:1] or "x"]
)
assert stopped.choices[0].finish_reason in ("stop", "length")

# The client asks for base64 and decodes it.
vectors = client.embeddings.create(model="tiny", input=["hello", "other"])
assert [item.index for item in vectors.data] == [0, 1] and len(vectors.data[0].embedding) == 64
floats = client.embeddings.create(model="tiny", input="hello", encoding_format="float", dimensions=8)
assert len(floats.data[0].embedding) == 8 and floats.usage.prompt_tokens == 5
ids = client.embeddings.create(model="tiny", input=[[107, 104, 111, 111, 114]])
assert all(abs(a - b) < 1e-5 for a, b in zip(ids.data[0].embedding, vectors.data[0].embedding))

assert client.models.retrieve("tiny").id == "tiny"
try:
    client.embeddings.create(model="tiny", input="")
    raise AssertionError("no error")
except openai.BadRequestError as error:
    assert error.param == "input", error
try:
    client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x" * 600}])
    raise AssertionError("no error")
except openai.BadRequestError as error:
    assert error.code == "context_length_exceeded", error
try:
    client.chat.completions.create(model="tiny", messages=messages, temperature=-1)
    raise AssertionError("no error")
except openai.BadRequestError as error:
    assert error.param == "temperature" and error.type == "invalid_request_error", error
try:
    client.chat.completions.create(model="none", messages=messages)
    raise AssertionError("no error")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error
try:
    openai.OpenAI(base_url=sys.argv[1], api_key="wrong", max_retries=0).models.list()
    raise AssertionError("no error")
except openai.AuthenticationError as error:
    assert error.code == "invalid_api_key", error
