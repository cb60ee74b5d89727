#!/usr/bin/env python3
"""Tokens a second of many answers at once through the server, beside the engine's own steps.

    benchmarks/serve/streams.py MOEFLUX MODEL [--streams 1,4,16,64] [--tokens 128] [--rounds 2]
        [--share steps] [--out FILE] [-- options of serve and bench alike, as --device cuda:0]

By turns (A B B A, over and over), each for every number of streams. A is one `serve --parallel` of
the most, asked by as many clients at once as there are to be streams. Tokens a second are counted
from when the last of them begins to when the first ends, so that no prompt is counted. B is
`bench --parallel`, which evaluates as many sequences in common steps and samples nothing. The model
needs a tokenizer.
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

    def check(self):
        if b" 200 " not in self.data[:20] or len(self.times) < 2:
            raise SystemExit(f"the server said {self.data[:300]}")


def ask_all(port, streams, tokens):
    """The clients, which have their answers."""
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
    for client in clients:
        client.check()
    return clients


def tokens_per_second(clients, tokens):
    """Tokens a second of the time in which all of them ran. A frame may have several tokens, as
    where bytes are no character yet."""
    begin = max(client.times[0] for client in clients)
    end = min(client.times[-1] for client in clients)
    if begin >= end:
        raise SystemExit("the answers never ran all at once: more --tokens are needed")
    shares = (sum(begin < time <= end for time in client.times) / len(client.times)
              for client in clients)
    return tokens * sum(shares) / (end - begin)


def metric(port, name):
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = b""
        while piece := one.recv(1 << 16):
            text += piece
    return float(re.search(rf"^{name} (\S+)", text.decode(), re.MULTILINE)[1])


def served(options):
    """Tokens a second and tokens in a step, for each number of streams."""
    measured = []
    with server(options.program, options.model, "--parallel", str(max(options.streams)), "--share",
                options.share, *options.more) as port:
        for streams in options.streams:
            ask_all(port, streams, 8)
            names = ("moeflux_step_tokens_total", "moeflux_steps_total")
            before = [metric(port, name) for name in names]
            clients = ask_all(port, streams, options.tokens)
            tokens, steps = (metric(port, name) - old for name, old in zip(names, before))
            measured.append((tokens_per_second(clients, options.tokens), tokens / steps))
    return measured


def benched(options):
    """Tokens a second, for each number of streams."""
    done = subprocess.run(
        [options.program, "bench", "-m", options.model, "-p", "0", "-n", str(options.tokens),
         "--parallel", ",".join(map(str, options.streams)), "-r", "1", "-o", "json", *options.more],
        capture_output=True, text=True, check=True)
    speeds = {row["n_parallel"]: row["avg_ts"] for row in json.loads(done.stdout)}
    return [speeds[streams] for streams in options.streams]


def main():
    own, more = split_options(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--streams", default="1,4,16,64",
                        type=lambda text: [int(number) for number in text.split(",")])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2, help="of A B B A")
    parser.add_argument("--share", default="auto")
    parser.add_argument("--out", help="a file for all that was measured, as JSON")
    options = parser.parse_args(own)
    options.more = more
    through, engine = [], []
    for turn in range(4 * options.rounds):
        if turn % 4 in (0, 3):
            through.append(served(options))
        else:
            engine.append(benched(options))
    results = []
    print("| streams | served, tokens/s | bench, tokens/s | ratio | tokens in a step |")
    print("|---|---|---|---|---|")
    for i, streams in enumerate(options.streams):
        speeds, steps = zip(*(row[i] for row in through))
        bench_speeds = [row[i] for row in engine]
        through_server, alone = statistics.median(speeds), statistics.median(bench_speeds)
        print(f"| {streams} | {through_server:.1f} | {alone:.1f} | {through_server / alone:.3f} "
              f"| {statistics.median(steps):.1f} |")
        results.append({"streams": streams, "tokens": options.tokens, "share": options.share,
                        "served_ts": speeds, "bench_ts": bench_speeds, "step_tokens": steps})
    if options.out:
        with open(options.out, "w", encoding="ascii") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
