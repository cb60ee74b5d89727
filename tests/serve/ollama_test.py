#!/usr/bin/env python3
"""Ollama's interface on a real server, by a model that says what is asked for: calls and their
results, what clients are shown of a model, and what published clients send.

    tests/serve/ollama_test.py MOEFLUX

ollama_requests.json has bodies as the code of Continue, Cline, Open WebUI, VS Code, LiteLLM, aider
and Ollama's own command line makes them.
"""

import json
import os
import sys
import tempfile
import unittest

import calling_parrot
from calling_parrot import TEMPLATE
from server import Server

PROGRAM = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))
CONTEXT = 2048
LOOK, RAIN = ({"type": "function",
               "function": {"name": name, "description": "d",
                            "parameters": {"type": "object", "properties": {
                                "city": {"type": "string"}}}}} for name in ("look", "rain"))


def user(text):
    return {"role": "user", "content": text}


def asked(*ids):
    """A question and the calls that followed it."""
    calls = [{**({"id": given} if given else {}),
              "function": {"index": i, "name": "look", "arguments": {"city": city}}}
             for i, (given, city) in enumerate(zip(ids, ("Paris", "Oslo")))]
    return [user("both"), {"role": "assistant", "content": "", "tool_calls": calls}]


def result(text, **fields):
    return {"role": "tool", "content": text, **fields}


SUN, RAINS = "Paris is sunny", "It rains in Oslo"


class Ollama(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        calling_parrot.write(cls.folder.name)
        with open(os.path.join(cls.folder.name, "LICENSE"), "w", encoding="utf-8") as file:
            file.write("Anybody may.")
        cls.server = Server(PROGRAM, "--model-name", "parrot", "--strict-model", template=None,
                            model=cls.folder.name, context=CONTEXT)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.server.__exit__()
        cls.folder.cleanup()

    def post(self, path, body, status=200):
        got, text = self.server.ask(path, body)
        self.assertEqual(got, status, text)
        return text

    def chat(self, messages, **fields):
        return json.loads(self.post("/api/chat", {"model": "parrot", "stream": False,
                                                  "messages": messages, **fields}))

    def generate(self, prompt, **fields):
        return json.loads(self.post("/api/generate", {"model": "parrot", "stream": False,
                                                      "prompt": prompt, **fields}))

    def lines(self, path, body):
        lines = [json.loads(line) for line in self.post(path, body).splitlines()]
        self.assertEqual([line["done"] for line in lines], [False] * (len(lines) - 1) + [True])
        return lines

    def test_calls_have_ids_and_indexes(self):
        whole = self.chat([user("both")], tools=[LOOK, RAIN])["message"]["tool_calls"]
        lines = self.lines("/api/chat", {"model": "parrot", "messages": [user("both")],
                                         "tools": [LOOK, RAIN]})
        told = [call for line in lines for call in line["message"].get("tool_calls", [])]
        for calls in (whole, told):
            self.assertEqual([call["function"] for call in calls],
                             [{"index": 0, "name": "look", "arguments": {"city": "Paris"}},
                              {"index": 1, "name": "rain", "arguments": {"city": "Oslo"}}])
            self.assertEqual(len({call["id"] for call in calls if call["id"]}), 2)

    def test_results_find_their_calls(self):
        for results in ([result(RAINS, tool_call_id="B"), result(SUN, tool_call_id="A")],
                        [result(SUN, tool_call_id="A"), result(RAINS, tool_call_id="B")],
                        [result(SUN), result(RAINS)],
                        [result(SUN, tool_name="look"), result(RAINS, tool_name="look")],
                        [result(RAINS, tool_name="look", tool_call_id="B"),
                         result(SUN, tool_name="look")]):
            for ids in (("A", "B"), (None, None)):
                if ids[0] is None and any("tool_call_id" in one for one in results):
                    continue
                said = self.chat([*asked(*ids), *results], tools=[LOOK])["message"]["content"]
                self.assertEqual(said, "matched", (ids, results))
        swapped = [result(RAINS, tool_call_id="A"), result(SUN, tool_call_id="B")]
        said = self.chat([*asked("A", "B"), *swapped], tools=[LOOK])["message"]["content"]
        self.assertEqual(said, "mixed up")

    def test_a_larger_context_than_there_is_is_no_error(self):
        for size in (32768, 1 << 40):
            answer = self.chat([user("hello")], options={"num_ctx": size})
            self.assertEqual(answer["message"]["content"], "Hello there")
        text = self.post("/api/chat", {"messages": [user("fox " * 4 * CONTEXT)]}, 400)
        self.assertIn(str(CONTEXT), json.loads(text)["error"])

    def test_bodies_may_have_any_type(self):
        body = json.dumps({"model": "parrot", "prompt": "hello", "stream": False})
        for kind in (None, "application/x-www-form-urlencoded", "text/plain;charset=UTF-8"):
            for origin, status in ((None, 200), ("http://evil.example", 403)):
                headers = {"Content-Type": kind} if kind else {}
                if origin:
                    headers["Origin"] = origin
                connection = self.server.connect()
                connection.putrequest("POST", "/api/generate")
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    connection.putheader(name, value)
                connection.endheaders(body.encode())
                answer = connection.getresponse()
                text = answer.read().decode()
                self.assertEqual(answer.status, status, (kind, origin, text))
                if status == 200:
                    self.assertEqual(json.loads(text)["response"], "Hello there")
                connection.close()

    def test_the_model_is_described(self):
        for path in ("/api/tags", "/api/ps"):
            (model,) = json.loads(self.server.ask(path)[1])["models"]
            # Open WebUI looks for the tagged name that it asks for among these.
            self.assertEqual((model["name"], model["model"]), ("parrot:latest", "parrot:latest"))
            self.assertEqual(model["details"]["quantization_level"], "F16")
            self.assertRegex(model["details"]["parameter_size"], r"^[0-9]+K$")
            self.assertEqual(model["details"]["format"], "safetensors")
            self.assertGreater(model["size"], 100_000)
        for body in ({"name": "parrot"}, {"model": "Parrot:latest"}):
            shown = json.loads(self.post("/api/show", body))
            info = shown["model_info"]
            family = info["general.architecture"]
            self.assertEqual(info["general.basename"], "parrot")
            self.assertEqual(info[family + ".context_length"], CONTEXT)
            self.assertGreater(info["general.parameter_count"], 100_000)
            self.assertEqual(shown["template"], TEMPLATE)
            self.assertEqual(shown["license"], "Anybody may.")
            self.assertEqual(shown["capabilities"], ["completion", "tools", "insert"])
            self.assertIn("PARAMETER num_ctx", shown["modelfile"])
            self.assertTrue(shown["modelfile"].startswith("FROM parrot\n"))
            self.assertNotIn(self.folder.name, json.dumps(shown))
            # As Continue and Ollama's command line split them.
            parameters = dict(line.split() for line in shown["parameters"].splitlines())
            self.assertEqual(parameters["num_ctx"], str(CONTEXT))
            self.assertEqual(parameters["top_k"], "40")

    def test_times_are_no_zeros(self):
        answer = self.chat([user("hello")])
        for name in ("load_duration", "prompt_eval_duration", "eval_duration"):
            self.assertGreater(answer[name], 0, name)
        self.assertEqual(answer["total_duration"], answer["load_duration"] +
                         answer["prompt_eval_duration"] + answer["eval_duration"])

    def test_a_prompt_goes_on_from_a_context(self):
        first = self.generate("hello")
        self.assertEqual(len(first["context"]), first["prompt_eval_count"] + 3)  # with the end
        second = self.generate("hello", context=first["context"])
        self.assertEqual(second["response"], "Hello there")
        self.assertEqual(second["prompt_eval_count"],
                         len(first["context"]) + first["prompt_eval_count"])
        self.assertEqual(second["context"][:len(first["context"])], first["context"])
        shown = self.generate("hello", context=first["context"], _debug_render_only=True)
        self.assertEqual(shown["_debug_info"]["rendered_template"].count("Hello there"), 1)
        lines = self.lines("/api/generate", {"model": "parrot", "prompt": "hello"})
        self.assertEqual(lines[-1]["context"], first["context"])
        text = self.post("/api/generate", {"prompt": "hello", "context": [1 << 20]}, 400)
        self.assertIn("context[0]", text)
        self.assertNotIn("context", self.generate("hello", raw=True))

    def test_tokens_are_scored(self):
        for answer in (self.chat([user("hello")], logprobs=True, top_logprobs=2),
                       self.generate("hello", logprobs=True, top_logprobs=2),
                       self.generate("<|hello|>", raw=True, logprobs=True, top_logprobs=2)):
            self.assertEqual([one["token"] for one in answer["logprobs"]], ["Hello", " there"])
            for one in answer["logprobs"]:
                self.assertLessEqual(one["logprob"], 0)
                self.assertEqual(bytes(one["bytes"]).decode(), one["token"])
                self.assertEqual(len(one["top_logprobs"]), 2)
                self.assertEqual(one["top_logprobs"][0]["token"], one["token"])
        lines = self.lines("/api/chat", {"messages": [user("hello")], "logprobs": True})
        scored = [one["token"] for line in lines for one in line.get("logprobs", [])]
        self.assertEqual(scored, ["Hello", " there"])
        self.assertNotIn("logprobs", self.chat([user("hello")], top_logprobs=2))

    def test_a_gap_is_filled(self):
        answer = self.generate("def add(a, b):\n", suffix="\nprint(add(1, 2))")
        self.assertEqual(answer["response"], "return a + b")
        shown = self.generate("a", suffix="b", _debug_render_only=True)
        self.assertEqual(shown["_debug_info"]["rendered_template"],
                         "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>")

    def test_a_format_holds_the_answer(self):
        schema = {"type": "object", "properties": {"city": {"type": "string"}},
                  "required": ["city"], "additionalProperties": False}
        for kind in ("json", schema):
            said = self.chat([user("city")], format=kind)["message"]["content"]
            self.assertEqual(json.loads(said), {"city": "Oslo"})
        text = self.post("/api/chat", {"messages": [user("city")], "format": "xml"}, 400)
        self.assertIn("format", text)

    def test_a_template_is_the_models_own(self):
        self.assertEqual(self.generate("hello", template=TEMPLATE)["response"], "Hello there")
        text = self.post("/api/generate", {"prompt": "hello", "template": "{{ .Prompt }}"}, 400)
        self.assertIn("--chat-template-file", text)

    def test_system_stands_before_the_prompt(self):
        shown = self.generate("hello", system="Be brief.", _debug_render_only=True)
        self.assertTrue(shown["_debug_info"]["rendered_template"].startswith(
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"))

    def test_what_clients_send_is_answered(self):
        with open(os.path.join(HERE, "ollama_requests.json"), encoding="utf-8") as file:
            requests = json.load(file)
        for one in requests:
            with self.subTest(one["client"]):
                getattr(self, "expect_" + one["expect"])(one)

    def expect_lines(self, one):
        lines = self.lines(one["path"], one["body"])
        said = "".join(line["message"]["content"] if "message" in line else line["response"]
                       for line in lines)
        self.assertEqual(said, one["text"])
        self.assertEqual(lines[-1]["done_reason"], "stop")

    def expect_whole(self, one):
        answer = json.loads(self.post(one["path"], one["body"]))
        said = answer["message"]["content"] if "message" in answer else answer["response"]
        self.assertEqual((said, answer["done"]), (one["text"], True))

    def expect_calls(self, one):
        calls = [call for line in self.lines(one["path"], one["body"])
                 for call in line["message"].get("tool_calls", [])]
        self.assertEqual([call["function"]["arguments"] for call in calls],
                         [{"city": "Paris"}, {"city": "Oslo"}])

    def expect_show(self, one):
        shown = json.loads(self.post(one["path"], one["body"]))
        self.assertIn("tools", shown["capabilities"])
        self.assertIn("general.basename", shown["model_info"])

    def expect_load(self, one):
        self.assertEqual(json.loads(self.post(one["path"], one["body"]))["done_reason"], "load")

    def expect_error(self, one):
        self.assertIn(one["error"], json.loads(self.post(one["path"], one["body"], 400))["error"])


if __name__ == "__main__":
    unittest.main()
