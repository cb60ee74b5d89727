#!/usr/bin/env python3
"""Decode with and without a client that reads the server's telemetry, in interleaved pairs.

    benchmarks/serve/telemetry.py MOEFLUX [-m MODEL] [--pairs 20] [--tokens 896] [-- SERVE OPTIONS]

Prints the median of the ratios (with a watcher / without), the bytes of a frame, and JSON with
--json. Exits 1 where the median is below --least. The load of the machine counts in both halves of
a pair, and their order alternates.
"""

import argparse
import json
import os
import statistics
import sys
import threading

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


def decode(server, tokens, seed):
    """Tokens per second of decode, as the server counts them."""
    status, text = server.ask("/completion", {"prompt": "Once upon a time", "n_predict": tokens,
                                              "ignore_eos": True, "seed": seed,
                                              "cache_prompt": False})
    assert status == 200, text
    return json.loads(text)["timings"]["predicted_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("-m", "--model", default=MODEL)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=896)
    parser.add_argument("--least", type=float, default=0.99)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("options", nargs="*", help="of moeflux serve, behind --")
    arguments = parser.parse_args()
    ratios = []
    frames = []
    with Server(arguments.program, *arguments.options, model=arguments.model, template=None,
                context=arguments.tokens + 64) as server:
        threading.Thread(target=server.process.stderr.read, daemon=True).start()
        decode(server, arguments.tokens, 1)  # caches fill
        for pair in range(arguments.pairs):
            speeds = {}
            for watched in (pair % 2 == 0, pair % 2 == 1):
                watcher = Watcher(server) if watched else None
                speeds[watched] = decode(server, arguments.tokens, pair + 1)
                if watcher:
                    frames += watcher.stop()
            ratios.append(speeds[True] / speeds[False])
    median = statistics.median(ratios)
    result = {"pairs": len(ratios), "median_ratio": median, "least_ratio": min(ratios),
              "most_ratio": max(ratios), "frames": len(frames), "largest_frame_bytes": max(frames),
              "median_frame_bytes": statistics.median(frames)}
    print(json.dumps(result) if arguments.json else
          f"{len(ratios)} pairs: median {median:.4f} ({min(ratios):.4f} to {max(ratios):.4f}); "
          f"{len(frames)} frames, the largest of {max(frames)} bytes")
    sys.exit(0 if median >= arguments.least else 1)


if __name__ == "__main__":
    main()
