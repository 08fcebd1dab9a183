"""Uses a server through LangChain's OpenAI classes: chat, streams, tools, schemas, log probabilities, embeddings, errors."""

import asyncio
import sys

import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel

shared = {"base_url": sys.argv[1], "api_key": "k", "model": "tiny", "max_retries": 0}
# A random model would fill JSON with white space. Tokens are bytes, after three special ones.
no_space = {str(token): -100 for token in [259, *(3 + ord(space) for space in " \n\r\t")]}
chat = ChatOpenAI(**shared, temperature=0, max_tokens=6)

whole = chat.invoke([SystemMessage("Be short."), HumanMessage("hello")])
assert isinstance(whole, AIMessage) and whole.usage_metadata["output_tokens"] <= 6, whole
parts = list(chat.stream([SystemMessage("Be short."), HumanMessage("hello")]))
assert "".join(part.content for part in parts) == whole.content, (parts, whole)

chain = ChatPromptTemplate.from_messages([("human", "{word}")]) | chat
answers = chain.batch([{"word": "one"}, {"word": "two"}, {"word": "three"}])
alone = [chain.invoke({"word": word}).content for word in ("one", "two", "three")]
assert [answer.content for answer in answers] == alone, (answers, alone)
assert asyncio.run(chain.ainvoke({"word": "one"})).content == alone[0]

scored = chat.bind(logprobs=True, top_logprobs=2).invoke("hello")
assert len(scored.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 2


class Answer(BaseModel):
    """An answer."""

    ok: bool


@tool
def look(ok: bool) -> str:
    """Looks."""
    return "seen"


long = ChatOpenAI(**shared, max_tokens=100, logit_bias=no_space)
for method in ("json_schema", "function_calling"):
    answer = long.with_structured_output(Answer, method=method, strict=True).invoke("hello")
    assert isinstance(answer, Answer), (method, answer)

with_tools = long.bind_tools([look], tool_choice="any", strict=True)
called = with_tools.invoke("hello")
assert called.tool_calls[0]["name"] == "look" and isinstance(called.tool_calls[0]["args"]["ok"], bool), called
streamed = None
for part in with_tools.stream("hello"):
    streamed = part if streamed is None else streamed + part
assert streamed.tool_calls[0]["name"] == "look", streamed
chat.invoke([HumanMessage("hello"), called, ToolMessage("seen", tool_call_id=called.tool_calls[0]["id"])])

assert isinstance(OpenAI(**shared, max_tokens=3).invoke("ab"), str)

texts = OpenAIEmbeddings(**shared, check_embedding_ctx_length=False)
vectors = texts.embed_documents(["hello", "other"])
assert len(vectors) == 2 and len(vectors[0]) == 64
assert all(abs(a - b) < 1e-5 for a, b in zip(texts.embed_query("hello"), vectors[0]))

for broken, kind in (
    (ChatOpenAI(**{**shared, "model": "none"}), openai.NotFoundError),
    (ChatOpenAI(**{**shared, "api_key": "wrong"}), openai.AuthenticationError),
    (ChatOpenAI(**shared, temperature=-1), openai.BadRequestError),
):
    try:
        broken.invoke("hello")
    except kind:
        continue
    raise AssertionError(f"no {kind.__name__}")
