"""The anthropic package: messages, streams, thinking, tools, counts and errors."""

import os

import anthropic

ROOT = os.environ["MOEFLUX_TEST_URL"].removesuffix("/v1")
client = anthropic.Anthropic(base_url=ROOT, api_key=os.environ["MOEFLUX_TEST_KEY"], max_retries=0)
ASK = {"model": "fable-20m", "max_tokens": 16, "extra_body": {"seed": 3},
       "messages": [{"role": "user", "content": "Once upon a time"}]}

assert [model.id for model in client.models.list()] == ["fable-20m"]
assert client.models.retrieve("fable-20m").display_name == "fable-20m"

whole = client.messages.create(**ASK)
text = whole.content[0].text
assert text and whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 16
with client.messages.stream(**ASK) as stream:
    assert "".join(stream.text_stream) == text
    final = stream.get_final_message()
assert final.content[0].text == text and final.stop_reason == "max_tokens"
kinds = [event.type for event in client.messages.create(**ASK, stream=True)]
assert kinds[:2] == ["message_start", "content_block_start"], kinds
assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds

again = client.messages.create(**ASK)
counted = client.messages.count_tokens(model="fable-20m", messages=ASK["messages"])
assert again.usage.cache_read_input_tokens + again.usage.input_tokens == counted.input_tokens
assert again.usage.cache_read_input_tokens == counted.input_tokens - 1

stopped = client.messages.create(**ASK, stop_sequences=[text[4:7]])
assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == text[4:7]
assert stopped.content[0].text == text[:text.index(text[4:7])]

# A turn with thinking, a call and its result, as a client sends it back.
tool = {"name": "look", "description": "Looks", "input_schema": {"type": "object"}}
turn = [{"role": "user", "content": "Where is the fox?"},
        {"role": "assistant",
         "content": [{"type": "thinking", "thinking": "Hm.", "signature": "moeflux"},
                     {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1",
                                      "content": [{"type": "text", "text": "in the wood"}]}]}]
went_on = client.messages.create(**{**ASK, "messages": turn}, tools=[tool],
                                 system=[{"type": "text", "text": "You tell stories."}],
                                 thinking={"type": "enabled", "budget_tokens": 1024})
assert went_on.content

# A picture of an earlier turn and of a result is left out with a line that says so.
picture = {"type": "image",
           "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
seen = [{"role": "user", "content": [picture, {"type": "text", "text": "Where?"}]}, turn[1],
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1",
                                      "content": [picture]}]}]
assert client.messages.create(**{**ASK, "messages": seen}, tools=[tool]).content


def expect(kind, **changes):
    """The exception that the package makes of an error's status."""
    try:
        client.messages.create(**{**ASK, **changes})
    except kind as error:
        assert error.body["error"]["message"] and error.request_id
        return
    raise AssertionError(f"no {kind.__name__}")


expect(anthropic.NotFoundError, model="none")
expect(anthropic.BadRequestError, stop_sequences=["x"] * 17)
expect(anthropic.BadRequestError, messages=[{"role": "user", "content": "a b " * 2000}])
expect(anthropic.BadRequestError, messages=seen[:1])
expect(anthropic.BadRequestError, tool_choice={"type": "any"})
stranger = anthropic.Anthropic(base_url=ROOT, api_key="wrong", max_retries=0)
try:
    stranger.models.list()
    raise AssertionError("a wrong key is taken")
except anthropic.AuthenticationError:
    pass
print("anthropic:", text)
