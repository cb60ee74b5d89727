#!/usr/bin/env python3
"""Writes tests/golden/templates/golden.json: what transformers (PyPI) makes of the templates there
with the conversations of chat_conversations.py, on a fixed day.

Usage: chat_template_golden.py
"""

import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as utils

from chat_conversations import CONVERSATIONS

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "templates"
NUMBERS = {"whole": 3, "big": 12345678901, "half": 0.5, "one": 1.0, "small": 1e-05, "large": 1e+16,
           "third": 0.3333333333333333, "minus": -0.25}


class FixedDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2027, 1, 3, 4, 5, 6)


def main():
    utils.datetime = FixedDay
    cases = []
    for path in sorted(FOLDER.glob("*.jinja")):
        for name, conversation in CONVERSATIONS.items():
            variables = {"bos_token": "<s>", "eos_token": "</s>", "numbers": NUMBERS,
                         **conversation.get("chat_template_kwargs", {})}
            messages = utils._alias_reasoning_fields(conversation["messages"])
            context = {"messages": messages, "tools": conversation.get("tools"),
                       "add_generation_prompt": conversation["add_generation_prompt"], **variables}
            case = {"template": path.stem, "conversation": name}
            try:
                rendered, _ = utils.render_jinja_template(
                    [conversation["messages"]], tools=conversation.get("tools"),
                    chat_template=path.read_text(encoding="utf-8"),
                    add_generation_prompt=conversation["add_generation_prompt"], **variables)
                case["rendered"] = rendered[0]
            except Exception as error:  # whatever a template can cause
                case["error"] = type(error).__name__
                case["message"] = str(error)
            case["context"] = context
            cases.append(case)
    # Contexts are the same for all templates: once is enough.
    contexts = {case["conversation"]: case.pop("context") for case in cases}
    golden = {"contexts": contexts, "cases": cases}
    text = json.dumps(golden, ensure_ascii=False, indent=1) + "\n"
    (FOLDER / "golden.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
