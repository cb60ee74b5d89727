#!/usr/bin/env python3
"""Compares `moeflux template` with transformers (PyPI) over a folder of public chat templates.

Usage: chat_template_compare.py MOEFLUX MODEL_FOLDER TEMPLATES [-v]

For each *.jinja of TEMPLATES and each conversation of chat_conversations.py both get the same
messages. Prints what differs, and how many of transformers' renders are equal. Templates
that expect text print Python's list or nothing of content in parts in transformers; moeflux joins
the parts for these. Such renders are compared once more with the parts joined for both, and counted
apart.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from transformers.utils.chat_template_utils import render_jinja_template

from chat_conversations import CONVERSATIONS

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def theirs(template, conversation):
    """transformers' text, or None and the reason."""
    try:
        rendered, _ = render_jinja_template(
            [conversation["messages"]], tools=conversation.get("tools"), chat_template=template,
            add_generation_prompt=conversation["add_generation_prompt"],
            **{**TOKENS, **conversation.get("chat_template_kwargs", {})})
        return rendered[0], ""
    except Exception as error:  # whatever a template can cause
        return None, f"{type(error).__name__}: {error}"


def ours(moeflux, model, template, conversation):
    """moeflux's text, or None and the reason."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump({**conversation, **TOKENS}, file)
        file.flush()
        done = subprocess.run([moeflux, "template", "-m", model, "--template", template,
                               "--messages", file.name], capture_output=True, check=False)
    if done.returncode != 0:
        return None, done.stderr.decode().strip()
    return done.stdout.decode(), ""


def joined(conversation):
    """The conversation with each list of parts as one text."""
    def text_of(content):
        if isinstance(content, str):
            return content
        return "\n".join(part["text"] for part in content)
    messages = [{**message, "content": text_of(message["content"])}
                for message in conversation["messages"]]
    return {**conversation, "messages": messages}


def difference(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"at {at}: theirs {a[max(0, at - 30):at + 50]!r}, ours {b[max(0, at - 30):at + 50]!r}"


def main():
    moeflux, model, folder = sys.argv[1:4]
    counts = dict.fromkeys(
        ("equal", "equal with parts joined", "differ", "only theirs", "only ours", "neither"), 0)
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        for name, conversation in CONVERSATIONS.items():
            a, why_a = theirs(template, conversation)
            b, why_b = ours(moeflux, model, str(path), conversation)
            kind = ("neither" if a is None and b is None else "only ours" if a is None
                    else "only theirs" if b is None else "equal" if a == b else "differ")
            if kind == "differ" and theirs(template, joined(conversation))[0] == b:
                kind = "equal with parts joined"
            counts[kind] += 1
            detail = {"differ": lambda: difference(a, b), "only theirs": lambda: why_b,
                      "only ours": lambda: why_a}.get(kind, lambda: "")
            if kind in ("differ", "only theirs") or (kind == "only ours" and "-v" in sys.argv):
                print(f"{kind}: {path.name} {name}: {detail()}", flush=True)
    rendered = sum(counts[kind] for kind in
                   ("equal", "equal with parts joined", "differ", "only theirs"))
    both = counts["equal"] + counts["equal with parts joined"]
    print(counts)
    print(f"{counts['equal']} of {rendered} renders of transformers are equal, "
          f"{100 * counts['equal'] / rendered:.2f} %; with parts joined for both {both}, "
          f"{100 * both / rendered:.2f} %")


if __name__ == "__main__":
    main()
