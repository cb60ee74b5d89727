#!/usr/bin/env python3
"""Latencies of a server under a load of chats: requests of random lengths, at random times.

    benchmarks/serve/load.py MOEFLUX MODEL [--rates 1,4,16,64] [--seconds 10] [--requests 200]
        [--parallel 64] [--seed 1] [--prompt 40] [--answer 40] [--longest 160] [--alone 20]
        [--out FILE] [-- options of serve, as --device cuda:0]

Each rate is requests a second, for --seconds or until there were --requests. Arrivals are a
Poisson process; lengths of prompts and answers are log-normal around the medians --prompt and
--answer, as chats have them. Everything comes from the seed. The same load runs a second time with
prompts of one word: the time between tokens that prompts add is the difference. --alone answers of
each rate are asked again one by one when nobody else is there, and must be equal. The model needs a
tokenizer.

Time to the first token counts from the time at which a request was due, so that a server that is
late cannot hide it. All clients are one thread of this program: give it a core of its own.
"""

import argparse
import asyncio
import json
import math
import random
import re
import statistics
import sys
import time

from serving import FRAME, server, split_options, stream_body

WORDS = ("the little dog ran up a green hill and saw one big red bird near an old tree while two "
         "girls sat in her house with some warm bread").split()


def length(chance, median, longest):
    return max(1, min(longest, round(median * math.exp(chance.gauss(0.0, 1.0)))))


def make_load(options, rate, with_prompts):
    """(due, body) of each request. Arrivals and answers are the same with and without prompts."""
    chance = random.Random(f"{options.seed} {rate}")
    load, due = [], 0.0
    while len(load) < options.requests:
        due += chance.expovariate(rate)
        if due > options.seconds:
            break
        words = length(chance, options.prompt, options.longest)
        answer = length(chance, options.answer, options.longest)
        prompt = " ".join(chance.choice(WORDS) for _ in range(words))
        if not with_prompts:
            prompt = prompt.split()[0]
        load.append((due, stream_body(prompt, answer, seed=len(load), temperature=1)))
    return load


async def ask(port, body, due=None):
    """The answer's text, when it was due, and when each of its frames came."""
    if due is not None:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    begin = due if due is not None else time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                  "Content-Type: application/json\r\nConnection: close\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
    data, times = b"", []
    while piece := await reader.read(1 << 16):
        before = data.count(FRAME)
        data += piece
        times += [time.perf_counter()] * (data.count(FRAME) - before)
    writer.close()
    if b" 200 " not in data[:20] or not times:
        raise SystemExit(f"the server said {data[:300]}")
    frames = re.findall(rb"data: (\{.*\})\r?\n", data)
    text = "".join(json.loads(frame)["choices"][0]["text"] for frame in frames
                   if json.loads(frame).get("choices"))
    return text, begin, times


async def run_load(port, load):
    start = time.perf_counter() + 0.1
    answers = await asyncio.gather(*(ask(port, body, start + due) for due, body in load))
    return answers, max(times[-1] for _, _, times in answers) - start


async def metrics(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    lines = re.findall(r"^(\w\S*) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in lines}


def at_share(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def gaps_of(answers):
    return [b - a for _, _, times in answers for a, b in zip(times, times[1:])]


async def measure(port, options, rate):
    load = make_load(options, rate, with_prompts=True)
    if not load:
        raise SystemExit(f"no request comes in {options.seconds} s at {rate} a second")
    before = await metrics(port)
    answers, seconds = await run_load(port, load)
    after = await metrics(port)
    short, _ = await run_load(port, make_load(options, rate, with_prompts=False))
    again = [await ask(port, body) for _, body in load[:options.alone]]
    equal = sum(a[0] == b[0] for a, b in zip(answers, again))
    added = {name: after[name] - before.get(name, 0.0) for name in after}
    first = [times[0] - begin for _, begin, times in answers]
    gaps = gaps_of(answers)
    return {"rate": rate, "requests": len(load), "seconds": seconds,
            "tokens_per_second": added["llamacpp:tokens_predicted_total"] / seconds,
            "first_p50": statistics.median(first), "first_p99": at_share(first, 0.99),
            "between_p50": at_share(gaps, 0.5), "between_p99": at_share(gaps, 0.99),
            "between_p99_one_word": at_share(gaps_of(short), 0.99),
            "texts_per_step": added["moeflux_step_texts_sum"] / added["moeflux_step_texts_count"],
            "preemptions": added["vllm:num_preemptions_total"],
            "decode_bytes": added["moeflux_decode_bytes_total"],
            "decode_step_seconds": added["moeflux_decode_step_seconds_total"],
            "asked_alone": len(again), "equal_alone": equal}


def row(result):
    ms = {name: f"{1e3 * result[name]:.1f}" for name in
          ("first_p50", "first_p99", "between_p50", "between_p99", "between_p99_one_word")}
    return (f"| {result['rate']:g} | {result['requests']} | {result['tokens_per_second']:.1f} "
            f"| {ms['first_p50']} | {ms['first_p99']} | {ms['between_p50']} | {ms['between_p99']} "
            f"| {ms['between_p99_one_word']} | {result['texts_per_step']:.2f} "
            f"| {result['equal_alone']} of {result['asked_alone']} |")


def main():
    own, more = split_options(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--rates", default="1,4,16,64",
                        type=lambda text: [float(number) for number in text.split(",")])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--requests", type=int, default=200, help="of a rate, at most")
    parser.add_argument("--parallel", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=40, help="words of a prompt, the median")
    parser.add_argument("--answer", type=int, default=40, help="tokens of an answer, the median")
    parser.add_argument("--longest", type=int, default=160, help="of both, at most")
    parser.add_argument("--alone", type=int, default=20, help="answers of a rate, asked again")
    parser.add_argument("--out", help="a file for all that was measured, as JSON")
    options = parser.parse_args(own)
    results = []
    print("| requests/s | requests | tokens/s | first token p50, ms | p99 | between tokens p50, ms "
          "| p99 | p99, prompts of one word | texts a step | equal alone |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with server(options.program, options.model, "--parallel", str(options.parallel), "--queue",
                str(options.requests), *more) as port:
        asyncio.run(ask(port, stream_body("Once", 8)))
        for rate in options.rates:
            results.append(asyncio.run(measure(port, options, rate)))
            print(row(results[-1]), flush=True)
    if options.out:
        with open(options.out, "w", encoding="ascii") as file:
            json.dump(results, file, indent=1)
    if any(result["equal_alone"] < result["asked_alone"] for result in results):
        raise SystemExit("answers differ from those alone")


if __name__ == "__main__":
    main()
