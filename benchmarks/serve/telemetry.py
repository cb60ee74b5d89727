#!/usr/bin/env python3
"""Decode with and without a client that reads the server's telemetry, in interleaved pairs.

    benchmarks/serve/telemetry.py MOEFLUX [-m MODEL] [--pairs 20] [--tokens 256] [-- SERVE OPTIONS]

Prints the median of the ratios (with a watcher / without) by the wall and by the server's processor
time, the bytes of a frame, and JSON with --json. Exits 1 where the median by the wall is below
--least: on a machine with other work only the other one says something. Orders alternate.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "serve"))
from server import MODEL, Server  # noqa: E402


class Watcher:
    """Reads all frames, as a page does that draws nothing."""

    def __init__(self, server):
        self.connection = server.connect()
        self.connection.request("GET", "/v1/moeflux/telemetry")
        self.answer = self.connection.getresponse()
        self.frames = []
        self.first = threading.Event()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        self.first.wait(10)

    def read(self):
        try:
            for line in self.answer:
                if line.startswith(b"data: "):
                    self.frames.append(len(line))
                    self.first.set()
        except (OSError, ValueError, AttributeError):
            pass  # stop() has closed it

    def stop(self):
        self.connection.sock.shutdown(2)
        self.thread.join(10)
        self.connection.close()
        return self.frames


def processor_seconds(server):
    """The time that processors have spent on the server."""
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def decode(server, arguments, seed):
    """Tokens per second of decode as the server counts them, and per second of a processor, in
    requests for some seconds."""
    tokens = milliseconds = 0.0
    before = processor_seconds(server)
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end or not tokens:
        status, text = server.ask("/completion", {
            "prompt": "Once upon a time", "n_predict": arguments.tokens, "ignore_eos": True,
            "seed": seed, "cache_prompt": False})
        assert status == 200, text
        timings = json.loads(text)["timings"]
        tokens += timings["predicted_n"]
        milliseconds += timings["predicted_ms"]
    return 1e3 * tokens / milliseconds, tokens / (processor_seconds(server) - before)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("-m", "--model", default=MODEL)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=2, help="of each half of a pair")
    parser.add_argument("--least", type=float, default=0.99)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("options", nargs="*", help="of moeflux serve, behind --")
    arguments = parser.parse_args()
    ratios = []
    processor_ratios = []
    frames = []
    with Server(arguments.program, *arguments.options, model=arguments.model, template=None,
                context=arguments.tokens + 64) as server:
        threading.Thread(target=server.process.stderr.read, daemon=True).start()
        decode(server, arguments, 1)  # caches fill
        for pair in range(arguments.pairs):
            speeds = {}
            for watched in (pair % 2 == 0, pair % 2 == 1):
                watcher = Watcher(server) if watched else None
                speeds[watched] = decode(server, arguments, pair + 1)
                if watcher:
                    frames += watcher.stop()
            ratios.append(speeds[True][0] / speeds[False][0])
            processor_ratios.append(speeds[True][1] / speeds[False][1])
    median = statistics.median(ratios)
    by_processor = statistics.median(processor_ratios)
    result = {"pairs": len(ratios), "median_ratio": median,
              "median_processor_ratio": by_processor, "least_ratio": min(ratios),
              "most_ratio": max(ratios), "frames": len(frames), "largest_frame_bytes": max(frames),
              "median_frame_bytes": statistics.median(frames)}
    print(json.dumps(result) if arguments.json else
          f"{len(ratios)} pairs: median {median:.4f} ({min(ratios):.4f} to {max(ratios):.4f}), "
          f"by the processor's time {by_processor:.4f}; "
          f"{len(frames)} frames, the largest of {max(frames)} bytes")
    sys.exit(0 if median >= arguments.least else 1)


if __name__ == "__main__":
    main()
