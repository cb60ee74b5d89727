"""litellm: whole answers and streams, by OpenAI's interface and both of its ways to Ollama's."""

import json
import os

import litellm

ASK = {"model": "openai/fable-20m", "api_base": os.environ["MOEFLUX_TEST_URL"],
       "api_key": os.environ["MOEFLUX_TEST_KEY"], "max_tokens": 16, "seed": 3,
       "messages": [{"role": "user", "content": "Once upon a time"}]}
OLLAMA = os.environ["MOEFLUX_TEST_PARROT"]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
          "additionalProperties": False}
TOOLS = [{"type": "function",
          "function": {"name": name, "description": "d", "parameters": SCHEMA}}
         for name in ("look", "rain")]


def said(pieces):
    return "".join(piece.choices[0].delta.content or "" for piece in pieces)


def ask(provider, text, **fields):
    messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
    return litellm.completion(model=f"{provider}/parrot", api_base=OLLAMA, messages=messages,
                              **fields)


whole = litellm.completion(**ASK)
text = whole.choices[0].message.content
assert text and whole.usage.completion_tokens == 16
assert said(litellm.completion(**ASK, stream=True)) == text

for provider in ("ollama", "ollama_chat"):
    answer = ask(provider, "hello", max_tokens=64, num_ctx=1 << 20, temperature=0)
    assert answer.choices[0].message.content == "Hello there", answer
    assert answer.choices[0].finish_reason == "stop" and answer.usage.completion_tokens == 2
    assert said(ask(provider, "hello", stream=True)) == "Hello there"
    info = litellm.get_model_info(f"{provider}/parrot", api_base=OLLAMA)
    assert info["supports_function_calling"] and info["max_tokens"] > 0, info

schema = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
answer = ask("ollama_chat", "city", response_format=schema)
assert json.loads(answer.choices[0].message.content) == {"city": "Oslo"}, answer

calls = ask("ollama_chat", "both", tools=TOOLS).choices[0]
assert calls.finish_reason == "tool_calls"
assert [json.loads(call.function.arguments)["city"] for call in calls.message.tool_calls] == [
    "Paris", "Oslo"], calls
assert len({call.id for call in calls.message.tool_calls}) == 2
told = [call for piece in ask("ollama_chat", "both", tools=TOOLS, stream=True)
        for call in piece.choices[0].delta.tool_calls or []]
assert [call.function.name for call in told] == ["look", "rain"], told
assert [call.index for call in told] == [0, 1], told

asked = [{"role": "user", "content": "both"}, calls.message.model_dump(exclude_none=True)]
first, second = (call.id for call in calls.message.tool_calls)
results = [{"role": "tool", "tool_call_id": second, "content": "It rains in Oslo"},
           {"role": "tool", "tool_call_id": first, "content": "Paris is sunny"}]
answer = ask("ollama_chat", asked + results, tools=TOOLS)
assert answer.choices[0].message.content == "matched", answer
print("litellm:", text)
