#!/usr/bin/env python3
"""A model that talks fills a schema and makes a call that it has to make, through each interface.

    tests/clients/talking.py MOEFLUX MODEL [ARGUMENT OF serve ...]

Needs no package. MODEL is any model with a chat template, also one that knows no tools.
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
from server import Server  # noqa: E402

SCHEMA = {"type": "object",
          "properties": {"name": {"type": "string", "maxLength": 40},
                         "age": {"type": "integer", "minimum": 0, "maximum": 150}},
          "required": ["name", "age"], "additionalProperties": False}
PARAMETERS = {"type": "object",
              "properties": {"city": {"type": "string", "maxLength": 40},
                             "unit": {"enum": ["celsius", "fahrenheit"]}},
              "required": ["city", "unit"], "additionalProperties": False}
WHO = "Ann is 31 years old. Give her name and her age as JSON."
WEATHER = "What is the weather in Paris? Use celsius."


def openai_tool():
    return {"type": "function", "function": {"name": "get_weather", "description": "The weather",
                                             "parameters": PARAMETERS}}


def user(text):
    return [{"role": "user", "content": text}]


def ask(server, path, body):
    status, text = server.ask(path, body)
    assert status == 200, (path, status, text)
    return json.loads(text)


def check_person(where, text):
    person = json.loads(text)
    assert set(person) == {"name", "age"} and isinstance(person["age"], int), (where, text)
    print(f"{where}: {json.dumps(person)}")


def check_call(where, name, arguments):
    assert name == "get_weather", (where, name)
    assert set(arguments) == {"city", "unit"}, (where, arguments)
    assert arguments["unit"] in ("celsius", "fahrenheit"), (where, arguments)
    print(f"{where}: {name}({json.dumps(arguments)})")


def openai(server):
    shared = {"temperature": 0, "max_tokens": 200}
    answer = ask(server, "/v1/chat/completions", {
        **shared, "messages": user(WHO), "response_format": {
            "type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}})
    check_person("OpenAI, schema", answer["choices"][0]["message"]["content"])
    body = {**shared, "messages": user(WEATHER), "tools": [openai_tool()],
            "tool_choice": "required", "parallel_tool_calls": False}
    answer = ask(server, "/v1/chat/completions", body)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls", choice
    call = choice["message"]["tool_calls"][0]
    check_call("OpenAI, call", call["function"]["name"],
               json.loads(call["function"]["arguments"]))
    # The model reads its own answer again, and the tool's.
    body["messages"] = [*body["messages"], choice["message"],
                        {"role": "tool", "tool_call_id": call["id"], "content": "18 degrees"}]
    body["tool_choice"] = "auto"
    message = ask(server, "/v1/chat/completions", body)["choices"][0]["message"]
    print(f"OpenAI, result: {json.dumps(message['content'])}")


def anthropic(server):
    shared = {"model": "claude", "temperature": 0, "max_tokens": 200}
    answer = ask(server, "/v1/messages", {
        **shared, "messages": user(WHO),
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
    check_person("Anthropic, schema", answer["content"][0]["text"])
    answer = ask(server, "/v1/messages", {
        **shared, "messages": user(WEATHER), "tool_choice": {"type": "any"},
        "tools": [{"name": "get_weather", "input_schema": PARAMETERS}]})
    call = next(block for block in answer["content"] if block["type"] == "tool_use")
    assert answer["stop_reason"] == "tool_use", answer
    check_call("Anthropic, call", call["name"], call["input"])


def ollama(server):
    shared = {"model": "any", "stream": False, "options": {"temperature": 0, "num_predict": 200}}
    answer = ask(server, "/api/chat", {**shared, "messages": user(WHO), "format": SCHEMA})
    check_person("Ollama, schema", answer["message"]["content"])
    # Ollama's interface has no field that asks for a call.
    answer = ask(server, "/api/chat", {**shared, "messages": user(WEATHER),
                                       "tools": [openai_tool()], "tool_choice": "required"})
    calls = answer["message"].get("tool_calls", [])
    if not calls:
        print(f"Ollama, no call: {json.dumps(answer['message']['content'])}")
        return
    check_call("Ollama, call", calls[0]["function"]["name"], calls[0]["function"]["arguments"])


def main():
    program, model, *arguments = sys.argv[1:]
    with Server(os.path.abspath(program), "--model-alias", "*", *arguments, context=2048,
                model=os.path.abspath(model), template=None) as server:
        for interface in (openai, anthropic, ollama):
            interface(server)
        assert server.stop() == 0


if __name__ == "__main__":
    main()
