#!/usr/bin/env python3
"""Conversations, responses and saved conversations go on from the disk after a server was killed,
and with the same text.

    tests/serve/restart_test.py MOEFLUX
"""

import json
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


def respond(server, text, **fields):
    """A response of OpenAI's; its id and what it said."""
    status, body = server.ask("/v1/responses", {"input": text, "max_output_tokens": 8, "seed": 9,
                                                **fields})
    assert status == 200, (status, body)
    response = json.loads(body)
    return response["id"], response["output"][0]["content"][0]["text"]


def go_on(program, states):
    """Both kinds of what is kept, over a kill right behind their answers."""
    path = "/v1/moeflux/conversations/talk"
    with Server(program, "--states", states) as server:
        first, _ = respond(server, "Once upon a time")
        _, expected = respond(server, "And then?", previous_response_id=first)
        assert server.ask(path, {"messages": []})[0] == 200
        said = text_of(server.chat(question("Hello"), max_tokens=8, seed=9, conversation="talk"))
        server.kill()
    with Server(program, "--states", states) as server:
        _, text = respond(server, "And then?", previous_response_id=first)
        assert text == expected, (text, expected)
        messages = json.loads(server.ask(path)[1])["messages"]
        assert messages == question("Hello") + [{"role": "assistant", "content": said}], messages
        print("killed: a response and a saved conversation went on")


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
            if kill:
                go_on(sys.argv[1], states)
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
