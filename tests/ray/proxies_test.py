#!/usr/bin/env python3
"""The examples for nginx and LiteLLM as they stand, with ports that are free here: streams pass,
conversations stay where they were, a server that is gone is passed over.

    PYTHON_WITH_LITELLM tests/ray/proxies_test.py MOEFLUX     (nginx is found on the PATH)
"""

import concurrent.futures
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
from fleet import free_port, until  # noqa: E402
from server import Server, question  # noqa: E402

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples",
                        "replicas")

KEY = "sk-0123456789abcdef0123456789abcdef"


def request(port, path, body=None, headers=None):
    """Status and body, read as it comes; the times of its pieces."""
    one = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        one.request("GET" if body is None else "POST", path,
                    None if body is None else json.dumps(body),
                    {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}",
                     **(headers or {})})
        answer = one.getresponse()
        text, times = b"", []
        while piece := answer.read1():
            text += piece
            times.append(time.monotonic())
        return answer.status, text.decode(), times
    finally:
        one.close()


def answers(port, path):
    try:
        return request(port, path)[0] == 200
    except OSError:
        return False


class Proxy:
    """A proxy's process with an example as its configuration."""

    def __init__(self, folder, example, command, ports, ready):
        with open(os.path.join(EXAMPLES, example), encoding="utf-8") as file:
            text = file.read()
        for old, new in ports.items():
            assert f":{old}" in text, (example, old)
            text = text.replace(f":{old}", f":{new}")
        config = os.path.join(folder, example)
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        self.log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen([word.format(config=config, folder=folder)
                                         for word in command], stdout=self.log, stderr=self.log,
                                        env={**os.environ, "LITELLM_MASTER_KEY": KEY})
        until(lambda: self.process.poll() is not None or ready(), 180)
        if self.process.poll() is not None:
            self.log.seek(0)
            raise AssertionError(f"{example}: {self.log.read()[-3000:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.log.close()


class NginxTest(unittest.TestCase):
    def test_conversations_stay_streams_pass_and_a_dead_server_is_passed_over(self):
        with tempfile.TemporaryDirectory() as folder, Server(PROGRAM, "-t", "1") as one, \
                Server(PROGRAM, "-t", "1") as two:
            port = free_port()
            with Proxy(folder, "nginx.conf", ["nginx", "-p", folder, "-c", "{config}"],
                       {8000: port, 8081: one.port, 8082: two.port},
                       lambda: answers(port, "/health")):
                def talk(number):
                    messages = question(f"Tell of fox {number}")
                    for _ in range(2):
                        status, text, _ = request(
                            port, "/v1/chat/completions",
                            {"messages": messages, "max_tokens": 16, "seed": 7},
                            {"X-Conversation-Id": f"talk {number}"})
                        self.assertEqual(status, 200, text)
                        answer = json.loads(text)
                        messages += [answer["choices"][0]["message"], *question("And then?")]
                    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    cached = list(pool.map(talk, range(16)))
                print(f"nginx: {sum(map(bool, cached))} of 16 second turns found cached tokens")
                self.assertTrue(all(cached), cached)
                finished = [float(s.ask("/metrics")[1].split("moeflux_requests_finished_total ")
                                  [-1].split()[0]) for s in (one, two)]
                self.assertTrue(all(finished), finished)
                _, text, times = request(port, "/v1/completions", {
                    "prompt": "Once", "max_tokens": 400, "seed": 7, "stream": True})
                self.assertTrue(text.endswith("data: [DONE]\n\n"))
                self.assertGreater(len(times), 20)
                one.kill()
                for number in range(16):
                    status, _, _ = request(port, "/v1/completions", {"prompt": "Once",
                                                                     "max_tokens": 4},
                                           {"X-Conversation-Id": f"talk {number}"})
                    self.assertEqual(status, 200)


class LiteLlmTest(unittest.TestCase):
    def test_answers_and_streams_pass(self):
        with tempfile.TemporaryDirectory() as folder, Server(PROGRAM, "-t", "1") as server:
            port = free_port()
            litellm = os.path.join(os.path.dirname(sys.executable), "litellm")
            with Proxy(folder, "litellm.yaml", [litellm, "--config", "{config}", "--host",
                                                "127.0.0.1", "--port", str(port),
                                                "--telemetry", "False"],
                       {8000: server.port}, lambda: answers(port, "/health/liveliness")):
                body = {"model": "moeflux", "messages": question("Once"), "max_tokens": 16,
                        "seed": 7}
                status, text, _ = request(port, "/v1/chat/completions", body)
                self.assertEqual(status, 200, text)
                direct = server.chat(question("Once"), max_tokens=16, seed=7)
                whole = json.loads(text)["choices"][0]["message"]["content"]
                self.assertEqual(whole, direct["choices"][0]["message"]["content"])
                status, text, _ = request(port, "/v1/chat/completions",
                                          {**body, "stream": True},
                                          {"X-Conversation-Id": "a-talk"})
                events = [json.loads(line[6:]) for line in text.splitlines()
                          if line.startswith("data: {")]
                self.assertEqual("".join(choice["delta"].get("content") or "" for event in events
                                         for choice in event["choices"]), whole)
                # The header has come through: the stream can be asked for again.
                status, _, _ = request(server.port, "/v1/stream?conv_id=a-talk&from=0")
                self.assertEqual(status, 200)
                print("litellm: the same text, whole and as a stream")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
