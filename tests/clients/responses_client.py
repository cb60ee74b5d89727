"""The openai package's responses: whole, in events, going on, kept and deleted."""

import os

import openai

client = openai.OpenAI(base_url=os.environ["MOEFLUX_TEST_URL"],
                       api_key=os.environ["MOEFLUX_TEST_KEY"],
                       max_retries=0)
ASK = {"model": "fable-20m", "input": "Once upon a time", "max_output_tokens": 16,
       "extra_body": {"seed": 3}}

whole = client.responses.create(**ASK)
text = whole.output_text
assert text and whole.status == "incomplete", whole
assert whole.incomplete_details.reason == "max_output_tokens"
assert whole.usage.output_tokens == 16 and whole.usage.input_tokens_details.cached_tokens >= 0

events = list(client.responses.create(**ASK, stream=True))
assert [event.sequence_number for event in events] == list(range(len(events)))
assert events[0].type == "response.created" and events[-1].type == "response.incomplete"
assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == text
with client.responses.stream(**ASK) as stream:
    kinds = [event.type for event in stream]
assert "response.output_text.done" in kinds and "response.output_item.done" in kinds

assert client.responses.retrieve(whole.id).output_text == text
items = client.responses.input_items.list(whole.id)
assert items.data[0].content == "Once upon a time" or items.data[0].content[0].text
more = client.responses.create(**{**ASK, "input": "And then?"}, previous_response_id=whole.id)
assert more.previous_response_id == whole.id
assert more.usage.input_tokens_details.cached_tokens > 0
client.responses.delete(whole.id)
try:
    client.responses.retrieve(whole.id)
    raise AssertionError("a deleted response is there")
except openai.NotFoundError:
    pass

scored = client.responses.create(**ASK, include=["message.output_text.logprobs"], top_logprobs=2)
tokens = scored.output[0].content[0].logprobs
assert "".join(token.token for token in tokens) == text
assert all(len(token.top_logprobs) == 2 for token in tokens)

# The items that a client sends back after a turn with a call, and tools that nobody here can run.
turn = [{"role": "user", "content": "Where is the fox?"},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "in the wood"}]
tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False},
         {"type": "web_search"}]
went_on = client.responses.create(**{**ASK, "input": turn}, tools=tools,
                                  instructions="You tell stories.")
assert went_on.output and [tool.type for tool in went_on.tools] == ["function"]
# Every field of Open Responses, with the value in force.
values = went_on.model_dump()
for name, value in {"temperature": 0.8, "top_p": 0.95, "presence_penalty": 0,
                    "frequency_penalty": 0, "top_logprobs": 0, "max_output_tokens": 16,
                    "max_tool_calls": None, "service_tier": "default", "safety_identifier": None,
                    "truncation": "disabled", "prompt_cache_key": None, "completed_at": None,
                    "background": False}.items():
    assert values[name] == value, (name, values[name])
assert went_on.tools[0].strict is False
ended = client.responses.create(**{**ASK, "extra_body": {"seed": 3, "stop": [text[4:7]]}})
assert ended.status == "completed" and ended.completed_at >= ended.created_at

# An image of an earlier turn and of a tool's result is left out with a line that says so.
picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
seen = [{"role": "user", "content": [picture]}, *turn[1:],
        {"role": "user", "content": "And then?"}]
seen[2] = {**seen[2], "output": [picture]}
assert client.responses.create(**{**ASK, "input": seen}).output


def expect_refusal(param, **changes):
    try:
        client.responses.create(**{**ASK, **changes})
    except openai.BadRequestError as error:
        assert error.param == param, error
        return
    raise AssertionError(f"{param} is taken")


expect_refusal("background", background=True)
expect_refusal("input[0].content[0]", input=seen[:1])
expect_refusal("tool_choice", tools=tools[1:], tool_choice="required")
expect_refusal("text.format.schema",
               text={"format": {"type": "json_schema", "name": "x", "schema": 3}})
try:
    client.post("/responses/compact", body={"model": "x", "input": "x"}, cast_to=object)
    raise AssertionError("compaction is offered")
except openai.NotFoundError as error:
    assert "not offered" in error.message, error
print("responses:", text)
