#!/usr/bin/env python3
"""How much slower another client's text is beside a grammar whose masks take long.

    benchmarks/serve/slow_grammar.py --moeflux build/release/bin/moeflux --model models/fable-20m

Starts a server, and for each grammar keeps a request that is held to it running while another
client asks for 100 tokens. Prints the median of the other's times, its ratio to that beside a plain
text, and what the grammar's own request ended with. Exits 1 if a ratio exceeds --most, or if the
other's text differs from that beside a plain text. Needs only Python's library.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import threading
import time

GRAMMARS = {
    "ambiguous": {"grammar": 'start: e\ne: e e | "a" | e e e |\n'},
    "twenty of one": {"grammar": "start: e\ne: " + "e " * 20 + '| "a" |\n'},
    "nested repetition": {
        "grammar": 'start: e+\ne: (a|b|c)*\na: "x"*\nb: ("x" "x"?)*\nc: (a b)* "x"\n'},
    "large repetitions": {"grammar": "start: " + "(" * 12 + '"x"' + "){0,1000}" * 12 + "\n"},
    "many alternatives": {
        "grammar": "start: e\ne: " + " | ".join(f'e "a{i}"' for i in range(900)) + ' | "a"\n'},
    "completions at once": {"grammar": 'start: (X z?)*\nX: "x"\nz: '
                            + " | ".join(f'y "{i}"' for i in range(600)) + '\ny: X* "!"\n'},
    "complements": {"grammar": "start: A\nA: ~/(?s:.*)a(?s:.){100}/ & ~/(?s:.*)b(?s:.){100}/\n"},
    "expression": {"regex": "(?s:.*)(a|b)(?s:.){700}(c|d)(?s:.){700}"},
    "schema": {"json_schema": {"type": "array", "items": {"anyOf": [
        {"type": "object", "properties": {f"p{j}_{i}": {"type": "string"} for i in range(100)}}
        for j in range(3)]}}},
}
JSON = {"Content-Type": "application/json"}
OTHER = {"prompt": "Once upon a time", "max_tokens": 100, "temperature": 0, "ignore_eos": True}


def post(port, body, timeout=300):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), JSON)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


class Beside:
    """Keeps a request running, begun again whenever it ends."""

    def __init__(self, port, body):
        self.port, self.body = port, body
        self.outcome = "still running"
        self.begun = threading.Event()
        self.is_over = False
        self.connection = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.is_over:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
            try:
                self.connection.request("POST", "/v1/completions", json.dumps(self.body), JSON)
                self.begun.set()
                response = self.connection.getresponse()
                told = json.loads(response.read())
                self.outcome = f"{response.status}"
                if response.status != 200:
                    self.outcome += " " + told.get("error", {}).get("message", "")[:70]
                    time.sleep(0.05)
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.05)

    def __enter__(self):
        self.thread.start()
        self.begun.wait()
        time.sleep(0.3)
        return self

    def __exit__(self, *_):
        self.is_over = True
        if self.connection is not None and self.connection.sock is not None:
            self.connection.sock.close()


def measure(port, runs, body):
    times, texts = [], set()
    with Beside(port, body) as beside:
        for _ in range(runs):
            begin = time.monotonic()
            status, told = post(port, OTHER)
            times.append(time.monotonic() - begin)
            if status != 200:
                sys.exit(f"the other client got {status}: {told}")
            texts.add(told["choices"][0]["text"])
        outcome = beside.outcome
    return statistics.median(times), texts, outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--moeflux", default="build/release/bin/moeflux")
    parser.add_argument("--model", default="models/fable-20m")
    parser.add_argument("--port", type=int, default=8093)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--most", type=float, default=1.5)
    args = parser.parse_args()
    command = [args.moeflux, "serve", "-m", args.model, "--port", str(args.port)]
    server = subprocess.Popen(command + ["--share", "steps"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                if post(args.port, {**OTHER, "max_tokens": 1})[0] == 200:
                    break
            except OSError:
                time.sleep(0.1)
        beside = {**OTHER, "max_tokens": 400, "prompt": "The fox"}
        plain, expected, _ = measure(args.port, args.runs, beside)
        print(f"{'beside':22} {'median s':>9} {'ratio':>6}  its own request")
        print(f"{'a plain text':22} {plain:9.3f} {1.0:6.2f}")
        is_bad = len(expected) != 1
        for name, grammar in GRAMMARS.items():
            body = {"prompt": "a", "max_tokens": 400, "temperature": 1, "seed": 1, **grammar}
            taken, texts, outcome = measure(args.port, args.runs, body)
            is_bad = is_bad or taken > args.most * plain or texts != expected
            note = "" if texts == expected else "  ANOTHER TEXT"
            print(f"{name:22} {taken:9.3f} {taken / plain:6.2f}  {outcome}{note}", flush=True)
        return 1 if is_bad else 0
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
