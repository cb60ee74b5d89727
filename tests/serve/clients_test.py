#!/usr/bin/env python3
"""Requests of published clients through OpenAI's and llama.cpp's interfaces are answered.

    tests/serve/clients_test.py MOEFLUX

openai_requests.json has headers and bodies as the code of Continue, Cline, opencode, Open WebUI,
Jan, VS Code, aider and LiteLLM makes them. The model says what is asked for: answers are known.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import calling_parrot
from server import Server

PROGRAM = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))
CITIES = [{"city": "Paris"}, {"city": "Oslo"}]


def joined(calls):
    """Calls of a stream, put together as clients do: by index, a name once, arguments in pieces."""
    whole = {}
    for call in calls:
        one = whole.setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
        one["id"] = call.get("id") or one["id"]
        one["name"] = call["function"].get("name") or one["name"]
        one["arguments"] += call["function"].get("arguments") or ""
    return [whole[index] for index in sorted(whole)]


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        calling_parrot.write(cls.folder.name)
        cls.server = Server(PROGRAM, "--model-name", "parrot", template=None,
                            model=cls.folder.name, context=2048)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.server.__exit__()
        cls.folder.cleanup()

    def send(self, one):
        """The answer, its headers looked at and its text read."""
        connection = self.server.connect()
        body = None if one["body"] is None else json.dumps(one["body"])
        headers = dict(one["headers"])
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request("POST" if body else "GET", one["path"], body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        self.assertEqual(answer.status, 200, text)
        if "Origin" in headers:
            self.assertEqual(answer.headers["Access-Control-Allow-Origin"], headers["Origin"])
        kind = "text/event-stream" if (one["body"] or {}).get("stream") else "application/json"
        self.assertTrue(answer.headers["Content-Type"].startswith(kind))
        connection.close()
        return text

    def frames(self, one, end="[DONE]"):
        """The data of a stream's frames, without the mark of its end."""
        data = [line[6:] for line in self.send(one).splitlines() if line.startswith("data: ")]
        if end:
            self.assertEqual(data.pop(), end)
        return [json.loads(text) for text in data]

    def chunks(self, one):
        """The deltas of a stream of chat, and how it ended."""
        frames = self.frames(one)
        usage = [frame["usage"] for frame in frames if frame.get("usage")]
        wants = one["body"].get("stream_options", {}).get("include_usage", False)
        self.assertEqual([bool(usage), frames[-1]["choices"]][:1 + wants], [wants, []][:1 + wants])
        choices = [choice for frame in frames for choice in frame["choices"]]
        self.assertEqual(choices[0]["delta"]["role"], "assistant")
        reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
        self.assertEqual(len(reasons), 1)
        return [choice["delta"] for choice in choices], reasons[0]

    def test_what_clients_send_is_answered(self):
        with open(os.path.join(HERE, "openai_requests.json"), encoding="utf-8") as file:
            requests = json.load(file)
        for one in requests:
            with self.subTest(one["client"]):
                getattr(self, "expect_" + one["expect"])(one)

    def expect_models(self, one):
        self.assertEqual([model["id"] for model in json.loads(self.send(one))["data"]], ["parrot"])

    def expect_chunks(self, one):
        deltas, reason = self.chunks(one)
        self.assertEqual("".join(delta.get("content") or "" for delta in deltas), one["text"])
        self.assertEqual(reason, "stop")

    def expect_calls(self, one):
        deltas, reason = self.chunks(one)
        calls = joined([call for delta in deltas for call in delta.get("tool_calls", [])])
        self.check_calls(one, calls, reason)

    def expect_calls_whole(self, one):
        (choice,) = json.loads(self.send(one))["choices"]
        calls = [{"id": call["id"], **call["function"]} for call in choice["message"]["tool_calls"]]
        self.check_calls(one, calls, choice["finish_reason"])

    def check_calls(self, one, calls, reason):
        count = one["calls"]
        self.assertEqual([call["name"] for call in calls], ["look", "rain"][:count])
        self.assertEqual([json.loads(call["arguments"]) for call in calls], CITIES[:count])
        self.assertEqual(len({call["id"] for call in calls if call["id"]}), count)
        self.assertEqual(reason, "tool_calls")

    def expect_whole(self, one):
        answer = json.loads(self.send(one))
        (choice,) = answer["choices"]
        self.assertEqual(choice["message"]["content"], one["text"])
        self.assertGreater(answer["usage"]["completion_tokens"], 0)

    def expect_texts(self, one):
        frames = self.frames(one)
        said = "".join(choice["text"] for frame in frames for choice in frame["choices"])
        self.assertEqual(said, one["text"])

    def expect_native(self, one):
        frames = self.frames(one, end=None)
        self.assertEqual("".join(frame["content"] for frame in frames), one["text"])
        self.assertEqual([frame["stop"] for frame in frames],
                         [False] * (len(frames) - 1) + [True])

    def expect_events(self, one):
        frames = self.frames(one, end=None)
        self.assertEqual("".join(frame["delta"] for frame in frames
                                 if frame["type"] == "response.output_text.delta"), one["text"])
        self.assertEqual(frames[-1]["type"], "response.completed")


class Paths(unittest.TestCase):
    """A base URL with a slash too many, or a name of a model with slashes, is no other request."""

    def test_slashes_make_no_difference(self):
        with Server(PROGRAM, "--model-name", "org/story", "--api-key", "key") as server:
            def ask(method, path, body=None, key="key"):
                connection = server.connect()
                headers = {"Content-Type": "application/json"}
                if key:
                    headers["Authorization"] = f"Bearer {key}"
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                text = answer.read()
                connection.close()
                return answer.status, json.loads(text)

            for path in ("/v1/models/", "//v1/models", "/v1//models///", "/models", "/models/"):
                status, body = ask("GET", path)
                self.assertEqual((status, body["data"][0]["id"]), (200, "org/story"), path)
            for path in ("/v1/models/org/story", "/v1/models/org%2Fstory", "/v1/models/org/story/",
                         "/models/org/story", "//v1//models/org/story"):
                status, body = ask("GET", path)
                self.assertEqual((status, body["id"]), (200, "org/story"), path)
            for path in ("/v1/v1/models", "/v1/model", "/v2/models", "/v1models", "/MODELS"):
                self.assertEqual(ask("GET", path)[0], 404, path)
            chat = json.dumps({"model": "org/story", "max_tokens": 1,
                               "messages": [{"role": "user", "content": "Hi"}]})
            for path in ("/v1/chat/completions/", "//chat/completions", "/v1/v1//chat"):
                wanted = 404 if path.endswith("chat") else 200
                self.assertEqual(ask("POST", path, chat)[0], wanted, path)
            for path in ("/health", "/health/", "//health", "/v1/health"):
                self.assertEqual(ask("GET", path, key=None)[0], 200, path)
            for path in ("/v1/models", "//v1/models/", "/props/"):
                self.assertEqual(ask("GET", path, key=None)[0], 401, path)
            self.assertEqual(server.stop(), 0)


class Retrieval(unittest.TestCase):
    def test_open_webui_embeds_and_asks_to_rerank(self):
        client = os.path.join(HERE, "..", "clients", "open_webui_client.py")
        with Server(PROGRAM, "--api-key", "key", "--strict-model") as server:
            subprocess.run([sys.executable, client], check=True, stdout=subprocess.DEVNULL, env={
                **os.environ, "MOEFLUX_TEST_KEY": "key",
                "MOEFLUX_TEST_URL": f"http://127.0.0.1:{server.port}/v1"})
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
