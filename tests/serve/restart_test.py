#!/usr/bin/env python3
"""Conversations go on from the disk after a server was killed, and with the same text.

    tests/serve/restart_test.py MOEFLUX
"""

import os
import stat
import sys
import tempfile
import time

from server import Server, question, text_of


def talk(server, messages, turns):
    """Goes on with a conversation; answers and, of the last turn, the usage."""
    usage = None
    for text in turns:
        messages.append({"role": "user", "content": text})
        answer = server.chat(messages, max_tokens=16, seed=9)
        messages.append({"role": "assistant", "content": text_of(answer)})
        usage = answer["usage"]
    return usage


def main():
    first = ["Once upon a time there was a fox who lived in the forest and was very hungry."] * 3
    second = ["And then?"]
    with Server(sys.argv[1]) as server:
        expected = []
        talk(server, expected, first + second)
    for kill in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            states = os.path.join(folder, "states")
            messages = []
            with Server(sys.argv[1], "--states", states) as server:
                before = talk(server, messages, first)["prompt_tokens"]
                if kill:
                    # States are written when nothing else is to be done.
                    deadline = time.monotonic() + 30
                    while not any(files for _, _, files in os.walk(states)):
                        assert time.monotonic() < deadline, "no state was written"
                        time.sleep(0.05)
                    time.sleep(0.5)
                    server.kill()
                else:
                    assert server.stop() == 0
            for root, _, files in os.walk(states):
                for name in files:
                    mode = os.stat(os.path.join(root, name)).st_mode
                    assert stat.S_IMODE(mode) & 0o077 == 0, (name, oct(mode))
            with Server(sys.argv[1], "--states", states) as server:
                usage = talk(server, messages, second)
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                assert cached > before // 2, (cached, before)
                assert messages == expected, (messages, expected)
                print(f"{'killed' if kill else 'stopped'}: {cached} of {usage['prompt_tokens']} "
                      "tokens of the prompt from the disk")


if __name__ == "__main__":
    main()
