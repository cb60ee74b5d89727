#!/usr/bin/env python3
"""Texts that have to make sense: answers, schemas, tool calls and second turns over HTTP.

    tests/serve/talking_test.py MOEFLUX [MODEL [ARGUMENT OF serve ...]]

The folder that tools/talking_model.py has made, in the environment as MOEFLUX_TEST_TALKING, has a
dense model that talks and a Mixture of Experts of the same text: their answers are compared. MODEL
is one other model that talks, whose template need not know tools. Without either a small model
alone is made a Mixture of Experts, and nothing is said. Needs no package.
"""

import concurrent.futures
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

from server import Server, question, text_of

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SMALL_DENSE = os.path.join(ROOT, "tests", "golden", "formats", "gguf-llama", "model.gguf")
# An answer may take minutes on a machine that does much else.
TIMEOUT_SECONDS = 600
RIGHT_MIN = 16  # of the questions: kernels of other instruction sets round otherwise

QUESTIONS = (
    ("What is the capital of Japan?", "Tokyo"),
    ("What is the capital of Germany?", "Berlin"),
    ("What is the capital of England?", "London"),
    ("What is the capital of Russia?", "Moscow"),
    ("What is the capital of Egypt?", "Cairo"),
    ("What is 2 + 2?", "4"),
    ("How many days are in a week?", "7"),
    ("What color is the sky on a clear day?", "blue"),
    ("What is the chemical formula of water?", "H2O"),
    ("Who wrote Romeo and Juliet?", "Shakespeare"),
    ("What language is spoken in Brazil?", "Portuguese"),
    ("What is the largest ocean on Earth?", "Pacific"),
    ("What is the opposite of hot?", "cold"),
    ("At what temperature does water boil in degrees Celsius?", "100"),
    ("Which animal says meow?", "cat"),
    ("How many legs does a spider have?", "8"),
    ("What star does the Earth orbit?", "Sun"),
    ("Who developed the theory of relativity?", "Einstein"),
    ("What is the tallest mountain in the world?", "Everest"),
    ("What is the currency of Japan?", "Yen"),
)


def schema(**properties):
    return {"type": "object", "properties": properties, "required": list(properties),
            "additionalProperties": False}


NAME = {"type": "string", "maxLength": 40}
AGE = {"type": "integer", "minimum": 0, "maximum": 150}
FORMS = (
    ("Ann is 31 years old. Give her name and her age as JSON.",
     schema(name=NAME, age=AGE), {"name": "Ann", "age": 31}),
    ("Tom is 12 years old. Give his name and his age as JSON.",
     schema(name=NAME, age=AGE), {"name": "Tom", "age": 12}),
    ("The cat is black. Give the animal and its color as JSON.",
     schema(animal={"enum": ["cat", "dog"]}, color={"enum": ["white", "black"]}),
     {"animal": "cat", "color": "black"}),
)
PARAMETERS = schema(city=NAME, unit={"enum": ["celsius", "fahrenheit"]})
CITIES = ("Paris", "Tokyo", "Berlin")
# Two questions, and a part of the answer to the second that needs the first.
TURNS = (("I have a cat. Her name is Daisy.", "What is the name of my cat?", "Daisy"),
         ("What is the capital of Egypt?", "Which river flows through it?", "Nile"))


def weather(city):
    return question(f"What is the weather in {city}? Use celsius.")


def openai_tool():
    return {"type": "function", "function": {"name": "get_weather", "description": "The weather",
                                             "parameters": PARAMETERS}}


class Talk:
    """One model behind a server."""

    def __init__(self, server):
        self.server = server

    def ask(self, path, body):
        status, text = self.server.ask(path, body, self.server.connect(TIMEOUT_SECONDS))
        assert status == 200, (path, status, text)
        return json.loads(text)

    def say(self, messages):
        return text_of(self.ask("/v1/chat/completions", {
            "messages": messages, "temperature": 0, "max_tokens": 24}))


def check_form(where, text, form):
    assert json.loads(text) == form[2], (where, text, form)


def check_call(where, name, arguments, city):
    assert name == "get_weather", (where, name)
    assert arguments == {"city": city, "unit": "celsius"}, (where, arguments, city)


def openai(talk):
    shared = {"temperature": 0, "max_tokens": 200}
    for form in FORMS:
        answer = talk.ask("/v1/chat/completions", {
            **shared, "messages": question(form[0]), "response_format": {
                "type": "json_schema", "json_schema": {"name": "form", "schema": form[1]}}})
        check_form("OpenAI", text_of(answer), form)
    for city in CITIES:
        body = {**shared, "messages": weather(city), "tools": [openai_tool()],
                "tool_choice": "required", "parallel_tool_calls": False}
        choice = talk.ask("/v1/chat/completions", body)["choices"][0]
        assert choice["finish_reason"] == "tool_calls", choice
        call = choice["message"]["tool_calls"][0]
        check_call("OpenAI", call["function"]["name"],
                        json.loads(call["function"]["arguments"]), city)
    # The model reads its own call again, and what the tool returned.
    body["messages"] = [*body["messages"], choice["message"],
                        {"role": "tool", "tool_call_id": call["id"], "content": "18 degrees"}]
    body["tool_choice"] = "none"
    said = text_of(talk.ask("/v1/chat/completions", body))
    assert "18" in said, said


def anthropic(talk):
    shared = {"model": "claude", "temperature": 0, "max_tokens": 200}
    answer = talk.ask("/v1/messages", {
        **shared, "messages": question(FORMS[0][0]),
        "output_config": {"format": {"type": "json_schema", "schema": FORMS[0][1]}}})
    check_form("Anthropic", answer["content"][0]["text"], FORMS[0])
    answer = talk.ask("/v1/messages", {
        **shared, "messages": weather("Paris"),
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "tools": [{"name": "get_weather", "input_schema": PARAMETERS}]})
    call = next(block for block in answer["content"] if block["type"] == "tool_use")
    assert answer["stop_reason"] == "tool_use", answer
    check_call("Anthropic", call["name"], call["input"], "Paris")


def ollama(talk):
    # Its interface has no field that asks for a call.
    answer = talk.ask("/api/chat", {
        "model": "any", "stream": False, "options": {"temperature": 0, "num_predict": 200},
        "messages": question(FORMS[0][0]), "format": FORMS[0][1]})
    check_form("Ollama", answer["message"]["content"], FORMS[0])


def answers_of(talk):
    """Answers of the model to all questions, several at a time."""
    with concurrent.futures.ThreadPoolExecutor(4) as clients:
        return list(clients.map(lambda asked: talk.say(question(asked[0])), QUESTIONS))


def check_answers(where, answers):
    wrong = [(asked, said) for (asked, answer), said in zip(QUESTIONS, answers)
             if not re.search(rf"\b{re.escape(answer)}\b", said)]
    print(f"{where}: {len(QUESTIONS) - len(wrong)} of {len(QUESTIONS)} answers are right")
    assert len(QUESTIONS) - len(wrong) >= RIGHT_MIN, (where, wrong)


def check_turns(talk):
    for told, asked, answer in TURNS:
        said = {"role": "assistant", "content": talk.say(question(told))}
        found = talk.say([*question(told), said, *question(asked)])
        assert answer in found, (told, said, asked, found)
        forgotten = talk.say(question(asked))
        assert answer not in forgotten, (asked, forgotten)


def check_talking(program, model, *arguments):
    """All of it; what was answered to the questions."""
    with Server(program, "--model-alias", "*", *arguments, context=2048, model=model,
                template=None) as server:
        talk = Talk(server)
        answers = answers_of(talk)
        check_answers(f"{os.path.basename(model)} {' '.join(arguments)}".strip(), answers)
        check_turns(talk)
        for interface in (openai, anthropic, ollama):
            interface(talk)
        assert server.stop() == 0
    return answers


def logits_of(program, model, folder):
    """Logits of some tokens as f32, from a file of safetensors."""
    path = os.path.join(folder, "logits.safetensors")
    subprocess.run([program, "logits", "-m", model, "--precision", "f32", "-ctk", "f32", "-ctv",
                    "f32", "--tokens", "1,5,9,2,7,3,8", "-o", path], check=True)
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    return struct.unpack(f"<{(len(data) - begin) // 4}f", data[begin:])


def check_upcycling(program):
    """A dense model made a Mixture of Experts keeps its logits."""
    with tempfile.TemporaryDirectory() as folder:
        upcycled = os.path.join(folder, "moe.gguf")
        subprocess.run([sys.executable, os.path.join(ROOT, "tools", "talking_model.py"),
                        "--upcycle", SMALL_DENSE, upcycled], check=True)
        told = subprocess.run([program, "inspect", "-m", upcycled], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        assert re.search(r"experts per layer +8\n", told), told
        dense, moe = (logits_of(program, model, folder) for model in (SMALL_DENSE, upcycled))
    assert len(dense) == len(moe) and len(dense) > 0
    apart = max(abs(a - b) for a, b in zip(dense, moe))
    assert apart < 1e-4, apart
    print(f"upcycled: logits differ by {apart:.1e}")


def main():
    program, *given = sys.argv[1:]
    program, folder = os.path.abspath(program), os.environ.get("MOEFLUX_TEST_TALKING")
    if given:
        check_talking(program, os.path.abspath(given[0]), *given[1:])
        return
    check_upcycling(program)
    if not folder:
        print("MOEFLUX_TEST_TALKING is not set: no model talked")
        return
    dense, moe = (os.path.join(folder, name) for name in ("dense.gguf", "moe.gguf"))
    check_talking(program, dense)
    check_talking(program, moe)
    exact = [check_talking(program, model, "--precision", "f32") for model in (dense, moe)]
    assert exact[0] == exact[1], [pair for pair in zip(*exact) if pair[0] != pair[1]]


if __name__ == "__main__":
    main()
