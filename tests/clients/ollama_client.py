"""The ollama package: chat, generate, show, list and errors."""

import json
import os

import ollama

client = ollama.Client(host=os.environ["MOEFLUX_TEST_URL"].removesuffix("/v1"),
                       headers={"Authorization": f"Bearer {os.environ['MOEFLUX_TEST_KEY']}"})
OPTIONS = {"num_predict": 16, "seed": 3}
ASK = {"model": "fable-20m", "messages": [{"role": "user", "content": "Once upon a time"}],
       "options": OPTIONS}

assert [model.model for model in client.list().models] == ["fable-20m:latest"]
assert client.list().models[0].details.parameter_size.endswith("M")
assert client.ps().models[0].context_length == 1024
shown = client.show("fable-20m:latest")
assert "completion" in shown.capabilities and shown.modelinfo["general.architecture"]
assert shown.modelinfo["general.basename"] == "fable-20m" and "num_ctx" in shown.parameters

whole = client.chat(**ASK)
text = whole.message.content
assert text and whole.done_reason == "length" and whole.eval_count == 16
pieces = list(client.chat(**ASK, stream=True))
assert "".join(piece.message.content for piece in pieces) == text
assert pieces[-1].done and pieces[-1].prompt_eval_count > 0
assert client.chat(**ASK, think=False).message.content == text

generated = client.generate(model="fable-20m", prompt="Once upon a time", options=OPTIONS)
assert generated.response == text
raw = client.generate(model="fable-20m", prompt="Once upon a time", raw=True, stream=True,
                      options=OPTIONS)
assert "".join(piece.response for piece in raw)
assert client.generate(model="fable-20m").done_reason == "load"
onward = client.generate(model="fable-20m", prompt="And then?", context=generated.context,
                         options=OPTIONS)
assert onward.prompt_eval_count > len(generated.context)
scored = client.chat(**ASK, logprobs=True, top_logprobs=2)
assert "".join(one.token for one in scored.logprobs) == text, scored.logprobs
assert client.chat(**{**ASK, "options": {**OPTIONS, "num_ctx": 1 << 20}}).message.content == text


def look(place: str) -> str:
    """Looks at a place."""
    return place


turn = [{"role": "user", "content": "Where is the fox?"},
        {"role": "assistant", "content": "", "thinking": "Hm.",
         "tool_calls": [{"function": {"name": "look", "arguments": {"place": "wood"}}}]},
        {"role": "tool", "tool_name": "look", "content": "in the wood"}]
assert client.chat(**{**ASK, "messages": turn}, tools=[look]).message is not None


embedded = client.embed(model="fable-20m", input=["Once upon a time", "A fox"])
assert len(embedded.embeddings) == 2 and embedded.prompt_eval_count > 4
assert len(embedded.embeddings[0]) == 256
older = client.embeddings(model="fable-20m", prompt="A fox")
assert list(older.embedding) == list(embedded.embeddings[1])
assert len(client.embed(model="fable-20m", input="A fox", dimensions=8).embeddings[0]) == 8


def expect(status, call):
    """The exception that the package makes of an error's status."""
    try:
        call()
    except ollama.ResponseError as error:
        assert error.status_code == status and isinstance(error.error, str), error
        return
    raise AssertionError(f"no {status}")


expect(404, lambda: client.chat(**{**ASK, "model": "none"}))
expect(400, lambda: client.chat(**{**ASK, "options": {"num_ctx": "large"}}))
expect(400, lambda: client.generate(model="fable-20m", prompt="a", suffix="b"))
expect(403, lambda: client.pull("llama"))
parrot = ollama.Client(host=os.environ["MOEFLUX_TEST_PARROT"])
both = parrot.chat("parrot", [{"role": "user", "content": "both"}], tools=[look]).message
assert [call.function.arguments["city"] for call in both.tool_calls] == ["Paris", "Oslo"]
results = [{"role": "tool", "tool_name": "look", "content": place}
           for place in ("Paris is sunny", "It rains in Oslo")]
answer = parrot.chat("parrot", [{"role": "user", "content": "both"}, both, *results])
assert answer.message.content == "matched", answer
schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
answer = parrot.chat("parrot", [{"role": "user", "content": "city"}], format=schema)
assert json.loads(answer.message.content) == {"city": "Oslo"}
assert parrot.generate("parrot", prompt="def add(a, b):", suffix="\n").response == "return a + b"
print("ollama:", text)
