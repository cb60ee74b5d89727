#!/usr/bin/env python3
"""The time that the server adds to a text, against `run` and `bench` on the same model.

    benchmarks/serve/overhead.py MOEFLUX MODEL [ROUNDS]

Decode: seconds a token between first and last frame of one stream beside those of `run`, in turn.
Follow-up: the first token of a turn with 64 new tokens behind 8,000 kept ones, beside the time in
which `bench` evaluates as many at that depth. The model needs a tokenizer.
"""

import http.client
import json
import statistics
import subprocess
import sys
import time

from serving import FRAME, server, stream_body

PROGRAM, MODEL = sys.argv[1:3]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 4
TOKENS = 128
CONTEXT = ["-c", "16384"]


def stream(port, prompt, tokens):
    """Seconds to the first frame, seconds a token after it, and the last frame's timings."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    begin = time.perf_counter()
    connection.request("POST", "/v1/completions", stream_body(prompt, tokens),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    first = last = None
    while line := answer.readline():
        if line.startswith(FRAME):
            last = time.perf_counter()
            first = first or last
    connection.close()
    return first - begin, (last - first) / max(tokens - 1, 1)


def run_seconds(prompt):
    """Seconds a token of `run`."""
    done = subprocess.run([PROGRAM, "run", "-m", MODEL, *CONTEXT, "--temp", "0", "--ignore-eos",
                           "-n", str(TOKENS), "--quiet", "--json", prompt],
                          capture_output=True, text=True, check=True)
    return 1 / json.loads(done.stderr.splitlines()[-1])["decode"]["tokens_per_second"]


def main():
    prompt = "Once upon a time"
    served, run = [], []
    for i in range(ROUNDS):
        def serve():
            with server(PROGRAM, MODEL, *CONTEXT) as port:
                stream(port, prompt, 8)
                served.append(stream(port, prompt + " there", TOKENS)[1])

        def alone():
            run.append(run_seconds(prompt + " there"))
        for one in ((serve, alone), (alone, serve))[i % 2]:
            one()
    print(f"decode, ms a token: served {[round(s * 1e3, 2) for s in served]}, "
          f"run {[round(s * 1e3, 2) for s in run]}; medians' ratio "
          f"{statistics.median(served) / statistics.median(run):.3f}")

    ids = [i * 7 % 8000 + 10 for i in range(8000)]
    with server(PROGRAM, MODEL, *CONTEXT) as port:
        stream(port, ids, 1)
        firsts = [stream(port, ids + [20 + i] * 64, 1)[0] for i in range(ROUNDS)]
    bench = json.loads(subprocess.run(
        [PROGRAM, "bench", "-m", MODEL, *CONTEXT, "-p", "64", "-n", "0", "-d", "8000", "-r",
         str(ROUNDS), "-o", "json"], capture_output=True, text=True, check=True).stdout)
    rates = bench[0]["samples_ts"]
    alone = [64 / rate for rate in rates]
    print(f"64 new tokens behind 8,000, s: first token served {[round(s, 3) for s in firsts]}, "
          f"evaluated by bench {[round(s, 3) for s in alone]}; medians' ratio "
          f"{statistics.median(firsts) / statistics.median(alone):.2f}")


if __name__ == "__main__":
    main()
