#!/usr/bin/env python3
"""Tokens a second of many answers at once through the server, beside the engine's own steps.

    benchmarks/serve/streams.py MOEFLUX MODEL [--streams 1,4,16,64] [--tokens 128] [--rounds 2]
        [--share steps] [--out FILE] [-- options of serve and bench alike, as --device cuda:0]

For each number of streams, by turns (A B B A, over and over): A is `serve --parallel N`, asked by N
clients at once; the sum over them of tokens a second from first to last. B is `bench --parallel N`,
which evaluates as many sequences in common steps and draws nothing. The model needs a tokenizer.
"""

import argparse
import json
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time

from serving import new_frames, server, split_options, stream_request

PROMPTS = ["Once upon a time", "The little dog", "One day a girl", "In the big green forest"]


class Client:
    """One streamed completion; keeps when each frame came."""

    def __init__(self, port, number, tokens):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.request = stream_request(f"{PROMPTS[number % len(PROMPTS)]} {number}", tokens)
        self.data = b""
        self.times = []

    def read(self):
        """False at the end."""
        piece = self.socket.recv(1 << 16)
        frames = new_frames(self.data, piece)
        self.data += piece
        self.times += [time.perf_counter()] * frames
        return bool(piece)

    def tokens_per_second(self, tokens):
        if b" 200 " not in self.data[:20] or len(self.times) < 2:
            raise SystemExit(f"the server said {self.data[:300]}")
        return (tokens - 1) / (self.times[-1] - self.times[0])


def ask_all(port, streams, tokens):
    clients = [Client(port, i, tokens) for i in range(streams)]
    waiting = selectors.DefaultSelector()
    for client in clients:
        waiting.register(client.socket, selectors.EVENT_READ, client)
        client.socket.sendall(client.request)
    running = streams
    while running > 0:
        for key, _ in waiting.select():
            if not key.data.read():
                waiting.unregister(key.fileobj)
                key.fileobj.close()
                running -= 1
    return sum(client.tokens_per_second(tokens) for client in clients)


def metric(port, name):
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = b""
        while piece := one.recv(1 << 16):
            text += piece
    return float(re.search(rf"^{name} (\S+)", text.decode(), re.MULTILINE)[1])


def served(options, streams):
    """Tokens a second, and tokens in a step."""
    with server(options.program, options.model, "--parallel", str(streams), "--share",
                options.share, *options.more) as port:
        ask_all(port, streams, 8)
        names = ("moeflux_step_tokens_total", "moeflux_steps_total")
        before = [metric(port, name) for name in names]
        speed = ask_all(port, streams, options.tokens)
        tokens, steps = (metric(port, name) - old for name, old in zip(names, before))
        return speed, tokens / steps


def benched(options, streams):
    done = subprocess.run(
        [options.program, "bench", "-m", options.model, "-p", "0", "-n", str(options.tokens),
         "--parallel", str(streams), "-r", "1", "-o", "json", *options.more],
        capture_output=True, text=True, check=True)
    return json.loads(done.stdout)[0]["avg_ts"]


def main():
    own, more = split_options(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--streams", default="1,4,16,64")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2, help="of A B B A")
    parser.add_argument("--share", default="auto")
    parser.add_argument("--out", help="a file for all that was measured, as JSON")
    options = parser.parse_args(own)
    options.more = more
    results = []
    print("| streams | served, tokens/s | bench, tokens/s | ratio | tokens in a step |")
    print("|---|---|---|---|---|")
    for streams in map(int, options.streams.split(",")):
        through, engine, step = [], [], []
        for _ in range(options.rounds):
            for is_served in (True, False, False, True):
                if is_served:
                    speed, tokens = served(options, streams)
                    through.append(speed)
                    step.append(tokens)
                else:
                    engine.append(benched(options, streams))
        ratio = statistics.median(through) / statistics.median(engine)
        print(f"| {streams} | {statistics.median(through):.1f} | {statistics.median(engine):.1f} "
              f"| {ratio:.3f} | {statistics.median(step):.1f} |", flush=True)
        results.append({"streams": streams, "tokens": options.tokens, "share": options.share,
                        "served_ts": through, "bench_ts": engine, "step_tokens": step})
    if options.out:
        with open(options.out, "w", encoding="ascii") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
