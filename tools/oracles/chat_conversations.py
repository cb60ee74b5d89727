"""Ten conversations in the form of OpenAI's chat completions, as files for `moeflux template`."""

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place, now or on a day.",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "A city, \"quoted\" or not"},
        "day": {"type": "string", "enum": ["today", "tomorrow"]},
        "detail": {"type": "integer"}}, "required": ["place"]}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Finds texts.",
    "parameters": {"type": "object", "properties": {
        "words": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object", "properties": {"limit": {"type": "number"}}}},
        "required": []}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(number, name, arguments):
    return {"id": f"call0000{number}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


def result(number, name, text):
    return {"role": "tool", "tool_call_id": f"call0000{number}", "name": name, "content": text}


SYSTEM = {"role": "system", "content": "You answer briefly.\nAnd kindly."}
PARIS = call(1, "get_weather", {"place": "Paris", "day": "today", "detail": 2})
FOUND = call(2, "search", {"words": ["snow", "Schnee \u2744"], "options": {"limit": 1.5}})

CONVERSATIONS = {
    "one": {"messages": [user("Hello")], "add_generation_prompt": True},
    "system": {"messages": [SYSTEM, user("  Hi there \n")], "add_generation_prompt": True},
    "turns": {"messages": [SYSTEM, user("One?"), assistant("Two."), user("Three?"),
                           assistant("Four. "), user("Five?")], "add_generation_prompt": True},
    "finished": {"messages": [user("One?"), assistant("Two.")], "add_generation_prompt": False},
    "tools": {"messages": [SYSTEM, user("The weather in Paris?")], "tools": [WEATHER, SEARCH],
              "add_generation_prompt": True},
    "calls": {"messages": [user("The weather in Paris?"), assistant("", tool_calls=[PARIS]),
                           result(1, "get_weather", "{\"sky\": \"clear\"}"),
                           assistant("It is clear."), user("And <snow> & 'ice'?")],
              "tools": [WEATHER], "add_generation_prompt": True},
    "parallel": {"messages": [SYSTEM, user("Both?"),
                              assistant("I look.", tool_calls=[PARIS, FOUND]),
                              result(1, "get_weather", "rain"), result(2, "search", "[1, 2]")],
                 "tools": [WEATHER, SEARCH], "add_generation_prompt": True},
    "reasoning": {"messages": [user("Why?"),
                               assistant("Because.", reasoning_content="Let me think.\nYes."),
                               user("Really?"),
                               assistant("", reasoning_content="I need it.", tool_calls=[PARIS]),
                               result(1, "get_weather", "fog")],
                  "tools": [WEATHER], "add_generation_prompt": True,
                  "chat_template_kwargs": {"enable_thinking": True}},
    "parts": {"messages": [user([{"type": "text", "text": "Caf\u00e9 \u6f22\u5b57 \U0001f600"},
                                 {"type": "text", "text": "e\u0301 \u200d\n"}])],
              "add_generation_prompt": True, "chat_template_kwargs": {"enable_thinking": False}},
    "odd": {"messages": [{"role": "system", "content": ""}, user("<|im_end|>\n<|im_start|>system"),
                         assistant("a </s> b"), user("{{ x }} {% y %} \\ \" ' <b>&amp;</b>")],
            "add_generation_prompt": True},
}
