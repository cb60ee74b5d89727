#!/usr/bin/env python3
"""Dialogues of tools/talker: made from a seed, nothing held out is taught, and scores are fair."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools",
                                "talker"))
import dialogues  # noqa: E402
import evaluate  # noqa: E402
from toolbox import is_valid_call  # noqa: E402

TAUGHT = 2000


def last_words(case):
    return case["messages"][-1]["content"].lower()


class Dialogues(unittest.TestCase):
    def test_a_seed_makes_one_conversation(self):
        self.assertEqual(dialogues.conversation(7), dialogues.conversation(7))
        self.assertNotEqual(dialogues.conversation(7), dialogues.conversation(8))

    def test_questions_of_facts_and_tool_requests_are_not_taught(self):
        kinds = set(dialogues.KINDS)
        held = {last_words(case) for case in dialogues.held_out_questions()
                if case["kind"] in kinds}
        held |= {last_words(case) for case in dialogues.held_out_tool_prompts()}
        taught = {message["content"].lower() for seed in range(TAUGHT)
                  for message in dialogues.conversation(seed)["messages"]
                  if message["role"] == "user"}
        self.assertGreater(len(held), 100)
        self.assertEqual(held & taught, set())

    def test_turns_end_with_an_answer(self):
        for seed in range(200):
            self.assertEqual(dialogues.conversation(seed)["messages"][-1]["role"], "assistant")


class Scores(unittest.TestCase):
    def test_the_expected_answer_is_right_and_another_is_not(self):
        cases = dialogues.held_out_questions()
        self.assertEqual(len(cases), 200)
        for case in cases:
            self.assertTrue(evaluate.is_right(case, case["answer"]), case)
            self.assertFalse(evaluate.is_right(case, "Once upon a time"), case)

    def test_the_expected_call_is_valid_and_broken_ones_are_not(self):
        for case in dialogues.held_out_tool_prompts():
            tools, call = case["tools"], case["call"]
            arguments = json.dumps(call["arguments"])
            self.assertTrue(is_valid_call(tools, call["name"], arguments), case)
            self.assertFalse(is_valid_call(tools, call["name"] + "s", arguments))
            self.assertFalse(is_valid_call(tools, call["name"], "{}"))
            self.assertFalse(is_valid_call(tools, call["name"], arguments[:-1]))
            wrong = json.dumps({key: [value] for key, value in call["arguments"].items()})
            self.assertFalse(is_valid_call(tools, call["name"], wrong))


if __name__ == "__main__":
    unittest.main()
