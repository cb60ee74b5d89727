#!/usr/bin/env python3
"""Clients that mean harm change nobody's answer, and none of them ends the server.

    tests/serve/hostile_test.py MOEFLUX

benchmarks/serve/hostile.py in short: it measures times and memory, which nothing here asserts.
"""

import os
import sys

from server import MODEL

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "benchmarks", "serve"))

import hostile  # noqa: E402


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
    print(f"{result['plain']['asked']} plain answers as they are alone, beside {len(others)} kinds")


if __name__ == "__main__":
    main()
