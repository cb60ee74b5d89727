#!/usr/bin/env python3
"""Requests a second, time to first token and prefix hits of replicas: measured, and simulated.

    capacity.py measure HOST:PORT --replicas N [--out FILE]      the constants of one replica
    capacity.py compare HOST:PORT --replicas N [--rounds R] [--out FILE]   a fleet and its forecast
    capacity.py table [--constants FILE]                         replicas and limits of routing
    capacity.py cost MOEFLUX [--prices FILE]                     a million tokens on three fleets

It needs the Python package on PYTHONPATH, as the simulation routes by moeflux.serve.routing itself;
docs/replicas.md has what it prints. A simulated replica runs up to `parallel` requests in common
steps: a token of each answer, and beside them a piece of one prompt. Its constants are tokens of a
prompt a second, seconds of a step by answers in it, and seconds that each request takes beside
both.
"""

import argparse
import bisect
import concurrent.futures
import dataclasses
import heapq
import http.client
import itertools
import json
import random
import statistics
import subprocess
import time
from collections import OrderedDict, deque

from moeflux.serve.routing import Hints, Limits, Routes

CHUNK = 128  # tokens of a prompt in a step
STEPS_MAX = 8  # steps without news that are simulated as one
# The replica of the design study: 3,000 tokens of prompts and 120 of one answer a second.
STUDY = {"prefill_tokens_s": 3000.0, "step_s": {"1": 1 / 120}, "request_s": 0.0, "parallel": 1,
         "kept_tokens": 2_000_000}

# Tokens a second of 4 and 16 answers together over those of one, measured on an H100 with a
# model of 35B-A3B (benchmarks/results/2026-11-25-h100.md); another GPU that holds its model is
# assumed to do alike. Where experts come from a drive, answers take turns.
GROWTH = {"1": 1.0, "4": 739.1 / 542.1, "16": 1091.3 / 542.1}

# The prices of machines, and their descriptions for `moeflux plan`. Dollars, watts and years are
# assumptions of November 2026; --prices takes a file with other ones.
PRICES = {
    "dollars_per_kwh": 0.30,
    "machines": [
        {"name": "laptop, 8 GB", "dollars": 700, "years": 4, "watts": 35, "dollars_per_hour": 0,
         "parallel": 1, "first_token_s": 300,
         "plan": "--device cpu -t 8 --ram 6G --drive 3 --memory-bandwidth 60 --arithmetic 300"},
        {"name": "box, one GPU of 24 GB", "dollars": 2500, "years": 4, "watts": 450,
         "dollars_per_hour": 0, "parallel": 16, "first_token_s": 8,
         "plan": "--ram 32G --drive 3.5 --memory-bandwidth 70 --vram 24G --vram-bandwidth 900"},
        {"name": "H100, rented", "dollars": 0, "years": 4, "watts": 0, "dollars_per_hour": 2.5,
         "parallel": 16, "first_token_s": 8,
         "plan": "--ram 128G --drive 5 --memory-bandwidth 200 --vram 80G --vram-bandwidth 3000 "
                 "--pcie 50"},
    ],
}


@dataclasses.dataclass
class Talks:
    """Conversations: tokens of their parts, and seconds between an answer and the next turn."""

    turns: int = 8
    systems: int = 10
    system_tokens: int = 4000
    input_tokens: int = 1500
    output_tokens: int = 300
    think_s: float = 5.0


@dataclasses.dataclass
class Job:
    """A request on its way through a replica."""

    talk: int
    turn: int
    system: int
    system_tokens: int
    prompt: int
    output: int
    arrived: float
    prefill: int = 0
    decode: int = 0
    cached: int = 0
    first: float = 0.0


def hints_of(job):
    """The chain that moeflux.serve.routing makes of such a prompt, a link for each part."""
    chain = [(hash((0, job.system)), job.system_tokens)]
    own = job.prompt - job.system_tokens
    parts = 2 * job.turn + 1
    chain += [(hash((1, job.talk, part)), job.system_tokens + own * (part + 1) // parts)
              for part in range(parts)]
    return Hints(None, tuple(chain))


class Replica:
    """An engine: its queue, what it runs, and the beginnings of prompts that it has cached."""

    def __init__(self, constants):
        self.rate = constants["prefill_tokens_s"]
        self.steps = sorted((int(count), seconds) for count, seconds in constants["step_s"].items())
        self.request_s = constants["request_s"]
        self.parallel = constants["parallel"]
        self.kept_tokens = constants["kept_tokens"]
        self.kept = OrderedDict()  # (system, its tokens, all tokens) of ended texts by talk
        self.waiting, self.running = deque(), []
        self.is_busy = False

    def step_s(self, answers):
        """Seconds of a step, between measured counts by a line."""
        if answers == 0:
            return 0.0
        at = bisect.bisect_left(self.steps, (answers, 0.0))
        if at == 0 or self.steps[at - 1][0] == answers or at == len(self.steps):
            return self.steps[min(at, len(self.steps) - 1)][1]
        (low, before), (high, after) = self.steps[at - 1:at + 1]
        return before + (after - before) * (answers - low) / (high - low)

    def begin(self, job):
        """Goes on from what was kept, as schedule/kept_states.h does: the conversation's own state
        moves to the job, another one with the same system prompt is branched."""
        if job.talk in self.kept:
            job.cached = min(self.kept.pop(job.talk)[2], job.prompt - 1)
        else:
            like = next((talk for talk, one in self.kept.items() if one[0] == job.system), None)
            if like is not None:
                job.cached = self.kept[like][1]
                self.kept.move_to_end(like)
        job.prefill, job.decode = job.prompt - job.cached, job.output

    def end(self, job):
        tokens = job.prompt + job.output
        if tokens <= self.kept_tokens:
            self.kept[job.talk] = (job.system, job.system_tokens, tokens)
        while sum(one[2] for one in self.kept.values()) > self.kept_tokens:
            self.kept.popitem(last=False)

    def take(self):
        """Begins what may begin; how many that are."""
        before = len(self.running)
        while self.waiting and len(self.running) < self.parallel:
            job = self.waiting.popleft()
            self.begin(job)
            self.running.append(job)
        return len(self.running) - before

    def step(self, now):
        """Runs the next steps; when they end and which jobs end with them."""
        now += self.take() * self.request_s
        reading = next((job for job in self.running if job.prefill > 0), None)
        answers = [job for job in self.running if job.prefill == 0]
        steps = 1 if reading else min(STEPS_MAX, min(job.decode for job in answers))
        piece = min(CHUNK, reading.prefill) if reading else 0
        end = now + piece / self.rate + steps * self.step_s(len(answers))
        if reading:
            reading.prefill -= piece
            if reading.prefill == 0:
                reading.first = end
                reading.decode -= 1
        for job in answers:
            job.decode -= steps
        ended = [job for job in self.running if job.prefill == 0 and job.decode <= 0]
        for job in ended:
            self.running.remove(job)
            self.end(job)
        return end, ended


class Fleet:
    """Replicas, their router, and what was seen of each request."""

    def __init__(self, constants, replicas, limits, seed=7):
        self.replicas = {f"replica-{i}": Replica(constants) for i in range(replicas)}
        self.parallel = constants["parallel"]
        self.routes = Routes(limits) if limits else None
        self.random = random.Random(seed)
        self.events, self.order = [], itertools.count()
        self.done = []

    def at(self, when, *what):
        heapq.heappush(self.events, (when, next(self.order), what))

    def choose(self, job):
        if self.routes is None:
            return self.random.choice(list(self.replicas))
        rounds = {name: (len(one.waiting) + len(one.running)) / self.parallel
                  for name, one in self.replicas.items()}
        told = hints_of(job)
        name = self.routes.rank(told, rounds)[0]
        self.routes.learn(told, name)
        return name

    def run(self, next_turn, until=float("inf")):
        """Serves events; `next_turn(job, now)` gives (time, job) of a conversation's next turn."""
        while self.events and self.events[0][0] <= until:
            now, _, (kind, what) = heapq.heappop(self.events)
            if kind == "job":
                name = self.choose(what)
                self.replicas[name].waiting.append(what)
            else:
                name, ended = what
                self.replicas[name].is_busy = False
                for job in ended:
                    self.done.append((job, now))
                    following = next_turn(job, now)
                    if following:
                        self.at(following[0], "job", following[1])
            one = self.replicas[name]
            if not one.is_busy and (one.waiting or one.running):
                one.is_busy = True
                end, ended = one.step(now)
                self.at(end, "step", (name, ended))

    def seen(self):
        """The figures of all requests as clients see them."""
        first = sorted(job.first - job.arrived for job, _ in self.done)
        begin = min(job.arrived for job, _ in self.done)
        end = max(when for _, when in self.done)
        return {"requests_s": len(first) / (end - begin),
                "prompt_tokens": statistics.mean(job.prompt for job, _ in self.done),
                "ttft_median_s": statistics.median(first),
                "ttft_p95_s": first[int(0.95 * (len(first) - 1))],
                "hits": sum(job.cached for job, _ in self.done)
                / sum(job.prompt for job, _ in self.done)}


def open_talks(constants, replicas, limits, talks, rate, conversations=400, seed=7):
    """A fleet to which conversations come at random, so that there are `rate` requests a second."""
    draw = random.Random(seed)
    fleet = Fleet(constants, replicas, limits)

    def job_of(talk, turn, system, now):
        prompt = talks.system_tokens + talks.input_tokens + turn * (
            talks.input_tokens + talks.output_tokens)
        return Job(talk, turn, system, talks.system_tokens, prompt, talks.output_tokens, now)

    def next_turn(job, now):
        if job.turn + 1 == talks.turns:
            return None
        when = now + draw.expovariate(1 / talks.think_s)
        return when, job_of(job.talk, job.turn + 1, job.system, when)

    now = 0.0
    for talk in range(conversations):
        now += draw.expovariate(rate / talks.turns)
        fleet.at(now, "job", job_of(talk, 0, draw.randrange(talks.systems), now))
    fleet.run(next_turn)
    return fleet.seen()


def capacity(constants, replicas, limits, talks, ttft_s):
    """The greatest rate whose 95th percentile of the time to first token is within `ttft_s`, and
    what is seen at it; (0, None) where a tenth of what replicas can compute is too much."""
    most = max(constants["step_s"], key=int)
    busy_s = (constants["request_s"] + talks.input_tokens / constants["prefill_tokens_s"]
              + talks.output_tokens * constants["step_s"][most] / int(most))
    low, high, best = 0.1 * replicas / busy_s, replicas / busy_s, None
    conversations = 150 + 50 * replicas
    for turn in range(9):
        rate = low if turn == 0 else (low * high) ** 0.5
        seen = open_talks(constants, replicas, limits, talks, rate, conversations)
        if seen["ttft_p95_s"] <= ttft_s:
            low, best = rate, seen
        elif turn == 0:
            return 0.0, None
        else:
            high = rate
    return low, best


# A real fleet.

class Client:
    """One streamed chat completion: its times, and the usage that the server counted."""

    def __init__(self, address, messages, tokens):
        host, port = address.rsplit(":", 1)
        self.began = time.monotonic()
        one = http.client.HTTPConnection(host, int(port), timeout=600)
        one.request("POST", "/v1/chat/completions", json.dumps(
            {"messages": messages, "max_tokens": tokens, "stream": True, "temperature": 0,
             "ignore_eos": True, "stream_options": {"include_usage": True}}),
            {"Content-Type": "application/json"})
        answer = one.getresponse()
        self.replica = answer.headers["x-moeflux-replica"]
        self.text, self.times, self.usage = "", [], None
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            self.usage = event.get("usage") or self.usage
            for choice in event.get("choices", ()):
                if choice["delta"].get("content"):
                    self.times.append(time.monotonic())
                    self.text += choice["delta"]["content"]
        self.ended = time.monotonic()
        one.close()
        if answer.status != 200 or not self.usage:
            raise SystemExit(f"{address} said {answer.status}")


WORDS = ("fox forest river king old little boy girl house tree night day water bread song road "
         "mountain bird winter summer friend mother father story").split()


def words(seed, count):
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(count))


def asked_at_once(address, count, prompt_words, tokens, salt):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda i: Client(address, [
            {"role": "user", "content": words(f"{salt} {i}", prompt_words)}], tokens),
            range(count)))


def measure(address, replicas, parallel, kept_tokens):
    """The constants of one replica while all others do the same."""
    salt = time.time()
    asked_at_once(address, replicas, 20, 8, f"warm {salt}")
    # Seconds that a replica takes for a request of a token, by the length of its prompt.
    seconds, tokens = [], []
    for count in (40, 300):
        clients = asked_at_once(address, 8 * replicas, count, 1, f"{count} {salt}")
        seconds.append((max(c.ended for c in clients) - min(c.began for c in clients)) / 8)
        tokens.append(statistics.mean(c.usage["prompt_tokens"] for c in clients))
    rate = (tokens[1] - tokens[0]) / max(seconds[1] - seconds[0], 1e-9)
    steps = {}
    for count in sorted({1, 2, parallel}):
        clients = asked_at_once(address, replicas * count, 20, 96, f"steps {count} {salt}")
        begin, end = max(c.times[0] for c in clients), min(c.ended for c in clients)
        generated = sum(sum(begin < t <= end for t in c.times) * c.usage["completion_tokens"]
                        / len(c.times) for c in clients)
        steps[str(count)] = (end - begin) * count * replicas / generated
    return {"prefill_tokens_s": rate, "step_s": steps, "parallel": parallel,
            "kept_tokens": kept_tokens,
            "request_s": max(seconds[0] - tokens[0] / rate, 0.0)}


def mean_constants(one, other):
    return {"parallel": one["parallel"], "kept_tokens": one["kept_tokens"],
            "step_s": {key: (one["step_s"][key] + other["step_s"][key]) / 2
                       for key in one["step_s"]},
            **{key: (one[key] + other[key]) / 2 for key in ("prefill_tokens_s", "request_s")}}


CONVERSATIONS, TURNS, SYSTEMS, THINK_S, OUTPUT = 16, 4, 4, 0.5, 64


def talk(address, number, salt):
    """A conversation with a real fleet; its requests."""
    messages = [{"role": "system", "content": words(f"{salt} {number % SYSTEMS}", 150)}]
    clients = []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": words(f"{salt} {number} {turn}", 40)})
        clients.append(Client(address, messages, OUTPUT))
        messages.append({"role": "assistant", "content": clients[-1].text})
        time.sleep(THINK_S)
    return clients


def talked(address):
    """Requests of 16 conversations at once, and their figures."""
    salt = time.time()
    with concurrent.futures.ThreadPoolExecutor(CONVERSATIONS) as pool:
        told = list(pool.map(lambda number: talk(address, number, salt), range(CONVERSATIONS)))
    clients = [client for one in told for client in one]
    first = sorted(client.times[0] - client.began for client in clients)
    begin, end = min(c.began for c in clients), max(c.ended for c in clients)
    later = [(one[0].replica, c.replica) for one in told for c in one[1:]]
    usages = [c.usage for c in clients]
    return told, {
        "requests_s": len(clients) / (end - begin), "ttft_median_s": statistics.median(first),
        "ttft_p95_s": first[int(0.95 * (len(first) - 1))],
        "hits": sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages)
        / sum(u["prompt_tokens"] for u in usages),
        "returned": sum(a == b for a, b in later) / len(later)}


def forecast(constants, replicas, told, limits=Limits()):
    """The same conversations, with the server's counts of tokens, simulated."""
    fleet = Fleet(constants, replicas, limits)
    system_tokens = int(0.75 * told[0][0].usage["prompt_tokens"])

    def job_of(number, turn, now):
        usage = told[number][turn].usage
        return Job(number, turn, number % SYSTEMS, system_tokens, usage["prompt_tokens"],
                   usage["completion_tokens"], now)

    def next_turn(job, now):
        if job.turn + 1 == TURNS:
            return None
        return now + THINK_S, job_of(job.talk, job.turn + 1, now + THINK_S)

    for number in range(len(told)):
        fleet.at(0.0, "job", job_of(number, 0, 0.0))
    fleet.run(next_turn)
    return fleet.seen()


def compare(options):
    """Rounds of constants, conversations, constants: the machine may change meanwhile."""
    rows = []
    for _ in range(options.rounds):
        before = measure(options.address, options.replicas, options.parallel,
                         options.context)
        told, measured = talked(options.address)
        constants = mean_constants(before, measure(options.address, options.replicas,
                                                   options.parallel, options.context))
        simulated = forecast(constants, options.replicas, told)
        rows.append({"constants": constants, "measured": measured, "simulated": simulated})
        print(f"requests/s {measured['requests_s']:.3f}, simulated {simulated['requests_s']:.3f}; "
              f"hits {measured['hits']:.0%}, {simulated['hits']:.0%}; first token "
              f"{measured['ttft_median_s']:.2f} s, {simulated['ttft_median_s']:.2f} s; "
              f"{measured['returned']:.0%} of later turns returned", flush=True)
    print("| | measured | simulated | ratio |\n|---|---|---|---|")
    for key, name in (("requests_s", "requests/s"), ("ttft_median_s", "first token, median, s"),
                      ("ttft_p95_s", "first token, 95 %, s"), ("hits", "tokens from the cache")):
        real, ours = (statistics.median(row[kind][key] for row in rows)
                      for kind in ("measured", "simulated"))
        print(f"| {name} | {real:.3f} | {ours:.3f} | {ours / real:.2f} |")
    return rows


def table(options):
    """Capacity by replicas and limits of routing."""
    constants = json.load(open(options.constants, encoding="utf-8")) if options.constants else STUDY
    talks = Talks()
    policies = [("random", None), ("least busy", Limits(-1, -1))]
    policies += [(f"conversation {c:g}, prefix {p:g}", Limits(c, p))
                 for c, p in ((0, 0), (1, 1), (4, 1), (4, 4), (10, 10))]
    print(f"| routing | {' | '.join(f'{count} replicas' for count in options.counts)} |")
    print("|---|" + "---|" * len(options.counts))
    with concurrent.futures.ProcessPoolExecutor() as pool:
        rows = [(name, [pool.submit(capacity, constants, count, limits, talks, options.ttft)
                        for count in options.counts]) for name, limits in policies]
        for name, cells in rows:
            seen = [cell.result() for cell in cells]
            print(f"| {name} | " + " | ".join(
                f"{rate:.2f} ({one['hits']:.0%})" if one else "fails" for rate, one in seen) + " |",
                flush=True)


def planned(program, model, machine):
    """The constants that `moeflux plan` forecasts for a machine."""
    done = subprocess.run([program, "plan", "--like", model, "--json", "-c", "16384",
                           *machine["plan"].split()], check=True, capture_output=True, text=True)
    plan = json.loads(done.stdout)
    one = plan["decode"]["natural_low"]["tokens_per_second"]
    prompt = plan["prompts"][-1] if "prompts" in plan else plan["prompt"]["warm"]
    steps = {count: int(count) / (one * gain) for count, gain in GROWTH.items()
             if int(count) <= machine["parallel"]}
    return {"prefill_tokens_s": prompt["tokens_per_second"], "step_s": steps, "request_s": 0.0,
            "parallel": machine["parallel"], "kept_tokens": 2_000_000}


def cost(options):
    """Dollars for a million tokens, of fleets as busy as the time to first token allows."""
    prices = json.load(open(options.prices, encoding="utf-8")) if options.prices else PRICES
    talks = Talks()
    print(f"| {options.replicas} replicas of | $/hour each | tokens/s: prompt, one answer | first "
          "token within | requests/s | $ a million generated | $ a million, prompts too |")
    print("|---|---|---|---|---|---|---|")
    machines = prices["machines"]
    planned_all = [planned(options.program, options.model, machine) for machine in machines]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        cells = [pool.submit(capacity, constants, options.replicas, Limits(), talks,
                             machine["first_token_s"])
                 for machine, constants in zip(machines, planned_all)]
    for machine, constants, cell in zip(machines, planned_all, cells):
        hour = (machine["dollars_per_hour"] + machine["dollars"] / (machine["years"] * 8766)
                + machine["watts"] / 1000 * prices["dollars_per_kwh"])
        patience = machine["first_token_s"]
        rate, seen = cell.result()
        row = f"| {machine['name']} | {hour:.3f} | {constants['prefill_tokens_s']:.0f}, " \
              f"{1 / constants['step_s']['1']:.1f} | {patience:g} s | "
        if seen is None:
            print(row + "none | | |", flush=True)
            continue
        millions = rate * 3600 / 1e6 / options.replicas
        tokens = talks.output_tokens + seen["prompt_tokens"]
        print(row + f"{rate:.3f} | {hour / (millions * talks.output_tokens):.2f} | "
              f"{hour / (millions * tokens):.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("measure", "compare"):
        command = commands.add_parser(name)
        command.add_argument("address")
        command.add_argument("--replicas", type=int, default=2)
        command.add_argument("--parallel", type=int, default=4, help="that of the server")
        command.add_argument("--context", type=int, default=2048,
                             help="that of the server, which keeps as many tokens of ended texts")
        command.add_argument("--rounds", type=int, default=3)
        command.add_argument("--out")
    command = commands.add_parser("table")
    command.add_argument("--constants")
    command.add_argument("--counts", default="1,4,16",
                         type=lambda text: [int(count) for count in text.split(",")])
    command.add_argument("--ttft", type=float, default=8.0, help="seconds, 95th percentile")
    command = commands.add_parser("cost")
    command.add_argument("program")
    command.add_argument("--model", default="qwen3-30b-a3b", help="a name of moeflux plan --like")
    command.add_argument("--replicas", type=int, default=4)
    command.add_argument("--prices", help="a JSON file like PRICES")
    options = parser.parse_args()
    if options.command in ("table", "cost"):
        (table if options.command == "table" else cost)(options)
        return
    result = (compare(options) if options.command == "compare" else
              measure(options.address, options.replicas, options.parallel, options.context))
    if options.command == "measure":
        print(json.dumps(result))
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
