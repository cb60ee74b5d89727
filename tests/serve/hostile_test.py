#!/usr/bin/env python3
"""Clients that mean harm change nobody's answer, and none of them ends the server.

    tests/serve/hostile_test.py MOEFLUX

benchmarks/serve/hostile.py in short: it measures times and memory, which nothing here asserts. Then
requests and bodies that are none; MOEFLUX_TEST_SERVE_REQUESTS says how many are drawn of each
(default 150).
"""

import json
import os
import sys

import malformed
from server import MODEL, Server

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "benchmarks", "serve"))

import hostile  # noqa: E402

DRAWN = int(os.environ.get("MOEFLUX_TEST_SERVE_REQUESTS", "150"))


def nonsense(program):
    """Whatever is asked, the answer says whose fault it is, and the next one is as before."""
    with Server(program, "--model-name", "story", "--alias", "*", context=128) as server:
        plain = ("/v1/completions", {"prompt": "Once upon", "max_tokens": 8, "seed": 2})

        def choices():
            return json.loads(server.ask(*plain)[1])["choices"]

        before = choices()
        heads = malformed.requests(server.port, DRAWN)
        bodies = malformed.bodies(server, DRAWN)
        assert choices() == before
        assert server.ask("/health")[0] == 200
        assert server.stop() == 0
    print(f"malformed requests: {heads}; malformed bodies: {bodies}")


def main():
    result = hostile.measure(sys.argv[1], MODEL, ["-c", "1024"], seconds=15, requests=6, short=True)
    assert result["plain"]["asked"] >= 6 and not result["plain"]["wrong"], result["plain"]
    assert result["end"]["status"] == 0, result["end"]
    others = result["others"]
    assert set(others["health"]) == {200}, others["health"]
    for name in ("keys", "keys again", "lists"):
        assert set(others[name]) <= {"200"}, (name, others[name])
    for name in ("template sum", "template doubling"):
        assert not any("exit -11" in one for one in others[name]), (name, others[name])
    for name, answers in others.items():
        assert not any(str(one).startswith(("500", "ConnectionRefused")) for one in answers), (
            name, answers)
    nonsense(sys.argv[1])
    print(f"{result['plain']['asked']} plain answers as they are alone, beside {len(others)} kinds")


if __name__ == "__main__":
    main()
