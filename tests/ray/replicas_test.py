#!/usr/bin/env python3
"""Two replicas on Ray Serve: second turns find their prefix, a killed replica takes only its
streams along, a rolling restart loses no conversation, every interface answers, a client that
leaves is heard.

    PYTHONPATH=build/release/python PYTHON_WITH_RAY tests/ray/replicas_test.py MOEFLUX [CASE...]
"""

import concurrent.futures
import http.client
import json
import os
import signal
import sys
import tempfile
import threading
import time
import unittest

import fleet as fleets
from fleet import REPLICA, Fleet, Stream, until

SYSTEM = {"role": "system", "content": "You tell short stories of the forest and its animals. " * 6}
CONVERSATIONS = 16


def first_turn(number):
    return [SYSTEM, {"role": "user", "content": f"Tell of fox number {number}, who was hungry."}]


def next_turn(messages, answer, text="And then?"):
    return messages + [answer["choices"][0]["message"], {"role": "user", "content": text}]


class ReplicasTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.fleet = cls.enterClassContext(Fleet(PROGRAM, folder))

    def all_conversations(self, talk):
        with concurrent.futures.ThreadPoolExecutor(CONVERSATIONS) as pool:
            return list(pool.map(talk, range(CONVERSATIONS)))

    def texts_of_one_server(self, number, tokens):
        """The text that a conversation's first turn has, by one replica when nothing else runs."""
        answer, _ = self.fleet.chat(first_turn(number), max_tokens=tokens)
        return answer["choices"][0]["message"]["content"]

    def test_second_turns_go_where_their_prefix_is(self):
        def talk(number):
            messages, places, cached = first_turn(number), [], []
            for _ in range(3):
                answer, place = self.fleet.chat(messages, max_tokens=24)
                places.append(place)
                usage = answer["usage"]
                cached.append(usage["prompt_tokens_details"]["cached_tokens"])
                messages = next_turn(messages, answer)
            return places, cached

        told = self.all_conversations(talk)
        self.assertEqual(len({places[0] for places, _ in told}), 2)
        later = [(places[0] == place, cached) for places, all_cached in told
                 for place, cached in zip(places[1:], all_cached[1:])]
        same = sum(one for one, _ in later)
        hits = sum(cached > 0 for _, cached in later)
        print(f"{same} of {len(later)} later turns at the replica of the first; "
              f"{hits} found cached tokens")
        self.assertGreaterEqual(same, 0.95 * len(later))
        self.assertGreaterEqual(hits, 0.95 * len(later))

    def test_a_killed_replica_takes_only_its_streams_along(self):
        expected = [self.texts_of_one_server(number, 400) for number in range(8)]
        streams = [Stream(self.fleet, first_turn(number), 400) for number in range(8)]
        for stream in streams:
            stream.begun.wait()
        victim = self.fleet.processes("ServeReplica:moeflux:Replica")[0]
        servers = fleets.descendants(victim)
        self.assertEqual(len(servers), 1)
        os.kill(victim, signal.SIGKILL)
        self.assertTrue(until(lambda: not fleets.command_line(servers[0])), "an orphan runs on")
        for stream in streams:
            stream.join()
        failed = {stream.replica for stream in streams if not stream.whole}
        self.assertEqual(len(failed), 1, [(s.replica, s.whole, s.failure) for s in streams])
        self.assertFalse([s for s in streams if s.whole and s.replica in failed])
        for number, stream in enumerate(streams):
            self.assertTrue(expected[number].startswith(stream.text), (number, stream.text))
            if not stream.whole:
                self.assertEqual(self.texts_of_one_server(number, 400), expected[number])
        lost = sum(not stream.whole for stream in streams)
        print(f"{lost} of 8 streams ended with their replica; retries gave the same texts")
        self.assertTrue(until(lambda: len(self.fleet.processes("serve --model")) == 2, 120))

    def test_a_rolling_restart_loses_no_conversation(self):
        before = set(self.fleet.processes("ServeReplica:moeflux:Replica"))
        said, _ = self.fleet.chat([{"role": "user", "content": "Hello"}], max_tokens=8,
                                  conversation="talk") if self.save("talk") else (None, None)
        _, _, text = self.fleet.ask("/v1/responses", {"input": "Once upon a time", "seed": 9,
                                                      "max_output_tokens": 8})
        response = json.loads(text)["id"]
        stop = threading.Event()

        def talk(number):
            """Turns until the restart is over; each has the text that a replica alone gives."""
            turns, messages = [], first_turn(number)
            while not stop.is_set() or len(turns) < 2:
                answer, place = self.fleet.chat(messages, max_tokens=16)
                turns.append((messages, answer["choices"][0]["message"]["content"], place))
                messages = next_turn(messages, answer) if len(messages) < 12 else first_turn(number)
                time.sleep(0.2)
            return turns

        with concurrent.futures.ThreadPoolExecutor(CONVERSATIONS) as pool:
            running = [pool.submit(talk, number) for number in range(CONVERSATIONS)]
            time.sleep(2)
            self.fleet.restart()
            stop.set()
            told = [one.result() for one in running]
        self.assertFalse(before & set(self.fleet.processes("ServeReplica:moeflux:Replica")))
        places = {place for turns in told for _, _, place in turns}
        self.assertGreaterEqual(len(places), 3)
        for messages, text, _ in (turns[-1] for turns in told):
            answer, _ = self.fleet.chat(messages, max_tokens=16)
            self.assertEqual(answer["choices"][0]["message"]["content"], text)
        saved = json.loads(self.fleet.ask("/v1/moeflux/conversations/talk")[2])["messages"]
        self.assertEqual(saved[-1]["content"], said["choices"][0]["message"]["content"])
        status, _, text = self.fleet.ask("/v1/responses", {
            "input": "And then?", "previous_response_id": response, "max_output_tokens": 8})
        self.assertEqual(status, 200, text)
        print(f"{sum(map(len, told))} turns of {CONVERSATIONS} conversations over a rolling "
              f"restart, at {len(places)} replicas, none lost")

    def test_wrong_settings_change_nothing(self):
        path = os.path.join(self.fleet.folder, "fleet.yaml")
        with open(path, encoding="utf-8") as file:
            right = file.read()
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write("replica: 2")
            self.fleet.process.send_signal(signal.SIGHUP)
            self.fleet.wait_for("unknown key 'replica'", 1)
        finally:
            with open(path, "w", encoding="utf-8") as file:
                file.write(right)
        self.assertEqual(self.fleet.ask("/health")[0], 200)

    def save(self, name):
        return self.fleet.ask(f"/v1/moeflux/conversations/{name}", {"messages": []})[0] == 200

    def test_responses_return_to_their_replica(self):
        for _ in range(6):
            ids, places = None, set()
            for text in ("Once upon a time", "And then?", "Why?"):
                _, headers, body = self.fleet.ask("/v1/responses", {
                    "input": text, "max_output_tokens": 8, **ids} if ids else {
                        "input": text, "max_output_tokens": 8})
                ids = {"previous_response_id": json.loads(body)["id"]}
                places.add(headers[REPLICA])
            self.assertEqual(len(places), 1)

    def test_every_interface_answers(self):
        question = [{"role": "user", "content": "Once"}]
        for path, body, ends in [
                ("/v1/completions", {"prompt": "Once", "max_tokens": 4, "stream": True}, "[DONE]"),
                ("/v1/chat/completions", {"messages": question, "max_tokens": 4, "stream": True},
                 "[DONE]"),
                ("/v1/messages", {"messages": question, "max_tokens": 4, "stream": True},
                 '"message_stop"'),
                ("/v1/responses", {"input": "Once", "max_output_tokens": 4, "stream": True},
                 '"response.'),
                ("/api/chat", {"messages": question, "options": {"num_predict": 4}},
                 '"done":true'),
                ("/api/generate", {"prompt": "Once", "options": {"num_predict": 4}}, '"done":true'),
                ("/v1/messages/count_tokens", {"messages": question}, '"input_tokens"'),
                ("/v1/embeddings", {"input": "Once"}, '"embedding"'),
                ("/tokenize", {"content": "Once"}, '"tokens"'),
                ("/v1/models", None, "fable-20m"), ("/api/tags", None, "fable-20m"),
                ("/health", None, "ok"), ("/props", None, "{"), ("/openapi.json", None, "openapi")]:
            status, _, text = self.fleet.ask(path, body)
            self.assertEqual(status, 200, (path, text))
            self.assertIn(ends, text.rstrip().splitlines()[-1] if body and ends != '"response.'
                          else text, path)
        for path, error in [("/v1/messages", '"type":"error"'), ("/api/chat", '{"error":"'),
                            ("/v1/chat/completions", '{"error":{"')]:
            status, _, text = self.fleet.ask(path, {"messages": 7})
            self.assertEqual(status, 400, path)
            self.assertIn(error, text)
        self.assertEqual(self.fleet.ask("/v1/nothing?a=%2F")[0], 404)

    def test_a_client_that_leaves_is_heard(self):
        self.assertTrue(until(lambda: self.engine("vllm:num_requests_running") == 0))
        before = self.engine("moeflux_requests_cancelled_total")
        one = http.client.HTTPConnection("127.0.0.1", self.fleet.port, timeout=60)
        one.request("POST", "/v1/completions", json.dumps(
            {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True, "stream": True}),
            {"Content-Type": "application/json"})
        answer = one.getresponse()
        answer.readline()
        answer.close()
        one.close()
        self.assertTrue(until(lambda: self.engine("moeflux_requests_cancelled_total") == before + 1,
                              20), "the answer was computed to its end")

    def engine(self, name):
        """The sum of a metric over replicas."""
        _, _, text = self.fleet.ask("/metrics")
        lines = [line for line in text.splitlines() if line.startswith(name + "{replica=")]
        self.assertEqual(len(lines), 2, text[:500])
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def test_a_page_of_another_site_is_refused(self):
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            self.assertEqual(self.fleet.ask("/v1/models", headers=headers)[0], 403, headers)


class AutoscalingTest(unittest.TestCase):
    def test_replicas_follow_the_engines_queue(self):
        with tempfile.TemporaryDirectory() as folder, Fleet(
                PROGRAM, folder, replicas={"min": 1, "max": 2}, parallel=1,
                autoscale={"requests": 2, "up-after": 1, "down-after": 5}) as one:
            self.assertEqual(len(one.processes("serve --model")), 1)
            streams = [Stream(one, first_turn(number), 1200) for number in range(12)]
            self.assertTrue(until(lambda: len(one.processes("serve --model")) == 2, 120))
            for stream in streams:
                stream.join()
                self.assertTrue(stream.whole, (stream.status, stream.failure))
            self.assertTrue(until(lambda: len(one.processes("serve --model")) == 1, 120))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
