"""The openai package: chat, streams, tools, log-probabilities, completions and errors."""

import os

import openai

client = openai.OpenAI(base_url=os.environ["MOEFLUX_TEST_URL"],
                       api_key=os.environ["MOEFLUX_TEST_KEY"],
                       max_retries=0)
ASK = {"model": "fable-20m", "messages": [{"role": "user", "content": "Once upon a time"}],
       "max_completion_tokens": 16, "seed": 3}

assert [model.id for model in client.models.list()] == ["fable-20m"]

whole = client.chat.completions.create(**ASK)
text = whole.choices[0].message.content
assert text and whole.usage.completion_tokens == 16
assert whole.choices[0].finish_reason == "length"
stream = client.chat.completions.create(**ASK, stream=True,
                                        stream_options={"include_usage": True})
chunks = list(stream)
assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
with client.chat.completions.stream(**ASK) as events:
    assert "".join(e.delta for e in events if e.type == "content.delta") == text

scored = client.chat.completions.create(**ASK, logprobs=True, top_logprobs=3)
entries = scored.choices[0].logprobs.content
assert "".join(entry.token for entry in entries) == text
assert all(len(entry.top_logprobs) == 3 for entry in entries)
three = client.chat.completions.create(**ASK, n=3)
assert [choice.index for choice in three.choices] == [0, 1, 2]
assert three.choices[0].message.content == text
stopped = client.chat.completions.create(**ASK, stop=text[4:7])
assert stopped.choices[0].message.content == text[:text.index(text[4:7])]

tool = {"type": "function", "function": {"name": "look", "description": "Looks",
                                         "parameters": {"type": "object", "properties": {}}}}
with_tool = client.chat.completions.create(**ASK, tools=[tool])
assert with_tool.choices[0].message is not None

done = client.completions.create(model="fable-20m", prompt="Once upon a time", max_tokens=8,
                                 logprobs=2, echo=True, seed=1)
assert done.choices[0].text.startswith("Once upon a time")
assert len(done.choices[0].logprobs.tokens) == 12
pieces = client.completions.create(model="fable-20m", prompt="Once upon a time", max_tokens=8,
                                   seed=1, stream=True)
streamed = "".join(piece.choices[0].text for piece in pieces)
assert done.choices[0].text == "Once upon a time" + streamed


def expect(kind, call):
    """The exception that the package makes of an error's status."""
    try:
        call()
    except kind as error:
        assert error.body["message"]
        return
    raise AssertionError(f"no {kind.__name__}")


expect(openai.NotFoundError, lambda: client.chat.completions.create(**{**ASK, "model": "none"}))
expect(openai.BadRequestError, lambda: client.chat.completions.create(**ASK, temperature=-1))
expect(openai.BadRequestError,
       lambda: client.completions.create(model="fable-20m", prompt="a b " * 2000))
# The package asks for base64 unless told otherwise, and decodes it.
embedded = client.embeddings.create(model="fable-20m", input=["Once upon a time", "A fox"])
as_floats = client.embeddings.create(model="fable-20m", input=["Once upon a time", "A fox"],
                                     encoding_format="float")
assert [one.index for one in embedded.data] == [0, 1] and embedded.usage.total_tokens > 4
for packed, plain in zip(embedded.data, as_floats.data):
    assert len(packed.embedding) == 256, len(packed.embedding)
    assert max(abs(a - b) for a, b in zip(packed.embedding, plain.embedding)) < 1e-7
    assert abs(sum(number * number for number in plain.embedding) - 1) < 1e-5
alone = client.embeddings.create(model="fable-20m", input="A fox")
assert alone.data[0].embedding == embedded.data[1].embedding
short = client.embeddings.create(model="fable-20m", input="A fox", dimensions=16)
assert len(short.data[0].embedding) == 16
expect(openai.BadRequestError,
       lambda: client.embeddings.create(model="fable-20m", input="a", dimensions=1 << 20))
expect(openai.NotFoundError, lambda: client.embeddings.create(model="none", input="a"))
stranger = openai.OpenAI(base_url=os.environ["MOEFLUX_TEST_URL"], api_key="wrong", max_retries=0)
expect(openai.AuthenticationError, stranger.models.list)
print("openai:", text)
