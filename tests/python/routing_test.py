"""moeflux.serve.routing: where conversations, shared prefixes and strangers go. No replica runs."""

import json
import random
import unittest

from moeflux.serve.routing import Hints, Limits, Routes, hints


def chat(*texts, path="/v1/chat/completions", headers=None, **fields):
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return hints(path, headers or {}, json.dumps({"messages": messages, **fields}).encode())


def idle(count=3):
    return {f"replica-{i}": 0.0 for i in range(count)}


def sent(routes, request, rounds):
    """Chooses as a router does, and remembers it."""
    name = routes.rank(request, rounds)[0]
    routes.learn(request, name)
    return name


class HintsTest(unittest.TestCase):
    def test_a_later_turn_has_the_prefixes_of_the_earlier_one(self):
        first, second = chat("Hello"), chat("Hello", "Hi.", "And then?")
        self.assertEqual(second.prefixes[:len(first.prefixes)], first.prefixes)

    def test_a_long_text_has_prefixes_within(self):
        text = "x" * 3000
        same = set(chat(text + "a").prefixes) & set(chat(text + "b").prefixes)
        self.assertGreaterEqual(max(length for _, length in same), 2700)

    def test_every_interface_names_its_conversation(self):
        body = json.dumps({"conversation": "in the body"}).encode()
        for path, headers, sent_body, expected in [
                ("/v1/chat/completions", {"x-conversation-id": "a header"}, b"{}", "a header"),
                ("/v1/stream?conv_id=in+a+query", {}, b"", "in a query"),
                ("/v1/moeflux/conversations/in%20a%20path", {}, b"", "in a path"),
                ("/v1/responses/resp_1/input_items", {}, b"", "resp_1"),
                ("/v1/responses", {}, b'{"previous_response_id": "resp_2"}', "resp_2"),
                ("/v1/chat/completions", {}, body, "in the body"),
                ("/v1/chat/completions", {}, b'{"prompt_cache_key": "a key"}', "a key"),
                ("/v1/responses", {}, b"{}", None)]:
            self.assertEqual(hints(path, headers, sent_body).conversation, expected, path)

    def test_interfaces_have_prefixes(self):
        for fields in [{"prompt": "Once"}, {"input": "Once"}, {"prompt": [1, 2]},
                       {"input": [{"role": "user", "content": "Once"}]},
                       {"system": "Be brief", "messages": [
                           {"role": "user", "content": [{"type": "text", "text": "Once"}]}]}]:
            self.assertTrue(hints("/", {}, json.dumps(fields).encode()).prefixes, fields)

    def test_parts_and_a_string_are_one_text(self):
        parts = json.dumps({"messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}).encode()
        self.assertEqual(hints("/", {}, parts), chat("Hello"))

    def test_calls_count(self):
        one, other = (hints("/", {}, json.dumps({"messages": [
            {"role": "assistant", "content": "", "tool_calls": [name]}]}).encode())
            for name in ("read", "write"))
        self.assertNotEqual(one.prefixes, other.prefixes)

    def test_keys_share_no_prefix(self):
        mine = chat("Hello", headers={"authorization": "Bearer a"})
        yours = chat("Hello", headers={"authorization": "Bearer b"})
        self.assertFalse(set(mine.prefixes) & set(yours.prefixes))

    def test_any_body_has_hints(self):
        for body in (b"", b"\xff", b"[]", b"7", b"[" * 100_000, b'{"messages": 7}',
                     b'{"messages": [7, null, {"content": {"a": []}}]}', b'{"input": "\\ud800"}',
                     b'{"conversation": 7, "prompt": {"a": 1}}'):
            self.assertIsInstance(hints("/v1/completions?x=%ff", {}, body), Hints, body[:20])

    def test_a_prompt_of_any_length_has_a_bounded_chain(self):
        self.assertLessEqual(len(chat("x" * 8_000_000).prefixes), 4096)


class RoutesTest(unittest.TestCase):
    def test_a_conversation_returns_to_its_replica(self):
        routes, rounds = Routes(), idle()
        places = {}
        for name in range(50):
            places[name] = sent(routes, chat(f"Hello {name}"), rounds)
        for name in range(50):
            self.assertEqual(sent(routes, chat(f"Hello {name}", "Hi.", "More"), rounds),
                             places[name])
        self.assertEqual(set(places.values()), set(rounds))

    def test_a_name_is_enough(self):
        routes, rounds = Routes(), idle()
        place = sent(routes, Hints("talk"), rounds)
        self.assertEqual(routes.rank(Hints("talk", chat("new").prefixes), rounds)[0], place)

    def test_a_conversation_waits_longer_than_a_shared_prefix(self):
        routes = Routes(Limits(conversation=4, prefix=1))
        system = "s" * 2048
        place = sent(routes, chat(system, "Yes", "One"), idle())
        busy = {**idle(), place: 3.0}
        self.assertEqual(routes.rank(chat(system, "Yes", "One", "1", "Go on"), busy)[0], place)
        self.assertNotEqual(routes.rank(chat(system, "Yes", "Two"), busy)[0], place)
        self.assertEqual(routes.rank(chat(system, "Yes", "Two"), {**idle(), place: 1.0})[0], place)
        very_busy = {**idle(), place: 5.0}
        self.assertNotEqual(routes.rank(chat(system, "Yes", "One", "1", "Go on"), very_busy)[0],
                            place)

    def test_a_small_common_beginning_does_not_count(self):
        routes = Routes(Limits(share=0.1))
        place = sent(routes, chat("Hi", "Yes", "a" * 500), idle())
        self.assertNotEqual(routes.rank(chat("Hi", "No", "b" * 500), {**idle(), place: 1.0})[0],
                            place)

    def test_strangers_go_to_the_least_busy(self):
        order = Routes().rank(chat("Hello"), {"a": 2.0, "b": 0.5, "c": 1.0})
        self.assertEqual(order, ["b", "c", "a"])

    def test_a_prefix_may_be_at_several_replicas(self):
        routes, request = Routes(), chat("Hello", "Hi.", "More")
        routes.learn(request, "a")
        routes.learn(request, "b")
        self.assertEqual(routes.rank(request, {"a": 1.0, "b": 0.5, "c": 0.0})[0], "b")

    def test_ties_are_broken_alike_by_routers_that_do_not_know_each_other(self):
        request = chat("Hello")
        self.assertEqual(Routes().rank(request, idle()), Routes().rank(request, idle()))

    def test_a_replica_that_ended_is_forgotten(self):
        routes, rounds = Routes(), idle(2)
        place = sent(routes, Hints("talk", chat("Hello").prefixes), rounds)
        other = next(name for name in rounds if name != place)
        routes.keep_only([other])
        self.assertEqual(routes.rank(Hints("talk"), {other: 9.0}), [other])
        self.assertEqual(routes.rank(Hints("talk"), {}), [])

    def test_what_is_remembered_is_bounded(self):
        routes = Routes(links_max=100, conversations_max=10)
        for i in range(1000):
            routes.learn(Hints(f"talk {i}", chat("x" * 2000 + str(i)).prefixes), "a")
        self.assertLessEqual(len(routes._links), 100)
        self.assertLessEqual(len(routes._conversations), 10)
        # Beginnings outlive what followed them.
        self.assertTrue(routes._longest(chat("x" * 2000 + "999"), {"a": 0.0})[0])

    def test_every_rank_has_every_replica_once(self):
        draw = random.Random(7)
        routes = Routes()
        for _ in range(2000):
            names = draw.sample("abcdef", draw.randint(1, 6))
            rounds = {name: draw.randint(0, 20) / 4 for name in names}
            request = chat(*(f"text {draw.randint(0, 3)}" for _ in range(draw.randint(1, 5))))
            order = routes.rank(request, rounds)
            self.assertEqual(sorted(order), sorted(names))
            self.assertLessEqual(rounds[order[0]] - min(rounds.values()), 4)
            routes.learn(request, order[0])
            if draw.random() < 0.05:
                routes.keep_only(draw.sample("abcdef", 4))


if __name__ == "__main__":
    unittest.main()
