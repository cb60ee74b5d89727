#!/usr/bin/env python3
"""How long running answers stand still: beside a long prompt, and while they take turns.

    benchmarks/serve/fairness.py MOEFLUX MODEL [--prompt-tokens 16000] [--turn-cache 691KiB]
        [--turn-seconds 30] [--out FILE] [-- options of serve, as --device cuda:0]

Prompt: four answers run when a prompt of 16,000 tokens comes; the longest time between two frames
of one answer while that prompt is evaluated. Turns: four answers with `--share slices` and an
expert cache that holds few; the longest time between two frames of each, and how many tokens each
got in the time that all were running. Prints JSON. The model must take 65,536 positions.
"""

import argparse
import json
import socket
import sys
import threading
import time

from serving import new_frames, server, split_options, stream_request

CONTEXT = ["-c", "65536"]


def ask(port, request, times, stop):
    """Adds the time of each frame; the end of what came, when it ends or is to stop."""
    data = b""
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(request)
        while not stop.is_set() and (piece := one.recv(1 << 16)):
            times += [time.perf_counter()] * new_frames(data, piece)
            data = (data + piece)[-4096:]
    return data


class Answer:
    """An answer that runs until it is told to stop."""

    def __init__(self, port, number, stop):
        self.times = []
        request = stream_request(f"Once upon a time {number}", 1 << 20)
        self.thread = threading.Thread(target=ask, args=(port, request, self.times, stop))
        self.thread.start()

    def within(self, begin, end):
        return [t for t in self.times if begin <= t <= end]

    def longest_wait(self, begin, end):
        marks = [begin, *self.within(begin, end), end]
        return max(b - a for a, b in zip(marks, marks[1:]))


def start_answers(port, stop, count=4):
    answers = [Answer(port, i, stop) for i in range(count)]
    while any(len(answer.times) < 8 for answer in answers):
        time.sleep(0.05)
        if not all(answer.thread.is_alive() for answer in answers):
            raise SystemExit("an answer ended")
    return answers


def stop_answers(answers, stop):
    stop.set()
    for answer in answers:
        answer.thread.join()


def beside_a_prompt(options):
    words = "the little dog ran to the big green wood and "
    with server(options.program, options.model, "--parallel", "5", *CONTEXT,
                *options.more) as port:
        stop = threading.Event()
        answers = start_answers(port, stop)
        usual = time.perf_counter()
        time.sleep(2)
        begin = time.perf_counter()
        first = []
        request = stream_request(words * (options.prompt_tokens // 10), 1,
                                 stream_options={"include_usage": True})
        end_text = ask(port, request, first, threading.Event())
        stop_answers(answers, stop)
        tokens = int(end_text.split(b'"prompt_tokens":')[1].split(b",")[0].split(b"}")[0])
        return {"prompt_tokens": tokens, "seconds_to_first_token": first[0] - begin,
                "longest_wait_s": [a.longest_wait(begin, first[0]) for a in answers],
                "longest_wait_before_s": [a.longest_wait(usual, begin) for a in answers]}


def in_turns(options):
    with server(options.program, options.model, "--parallel", "4", *CONTEXT, "--share", "slices",
                "--expert-cache", options.turn_cache, *options.more) as port:
        stop = threading.Event()
        answers = start_answers(port, stop)
        begin = time.perf_counter()
        time.sleep(options.turn_seconds)
        end = time.perf_counter()
        stop_answers(answers, stop)
        return {"longest_wait_s": [a.longest_wait(begin, end) for a in answers],
                "tokens": [len(a.within(begin, end)) for a in answers]}


def main():
    own, more = split_options(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--prompt-tokens", type=int, default=16000, help="about as many")
    parser.add_argument("--turn-cache", default="691KiB", help="a tenth of the experts")
    parser.add_argument("--turn-seconds", type=float, default=30)
    parser.add_argument("--out")
    options = parser.parse_args(own)
    options.more = more
    result = {"prompt": beside_a_prompt(options), "turns": in_turns(options)}
    print(json.dumps(result, indent=1))
    if options.out:
        with open(options.out, "w", encoding="ascii") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
