#!/usr/bin/env python3
"""The cost for a client with plain requests of others who mean harm.

    benchmarks/serve/hostile.py MOEFLUX MODEL [--seconds 600] [--requests 60] [--out FILE]
        [-- options of serve]

The client asks its requests alone, then beside the others. Each of those begins again when it has
ended. They are chains of $ref, rules and terminals, an ambiguous grammar, one that explodes,
objects of many keys, 30 MB of `[],`, 200,000 messages, a reader of a byte a second, and clients
that leave at once. Two further processes render chat templates that never end. Prints JSON: whether
every answer is the one that it is alone, times, resident memory at 10 Hz, and how long /health
took. The exit status is 1 where a bound is missed: three times the slowest request alone, 1.5 GB,
0.2 s for /health.
"""

import argparse
import collections
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SLOWER_MAX = 3.0
RESIDENT_MAX = 1.5e9
HEALTH_MAX = 0.2
TEMPLATE = ("{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")


def ref_chain(links=24000):
    places = {f"p{i}": {"$ref": f"#/p{i + 1}"} for i in range(links)}
    return {"json_schema": {"$ref": "#/p0", **places, f"p{links}": {"type": "boolean"}}}


def rule_chain(rules=26000):
    lines = [f'n{i}: "b" n{i + 1}' for i in range(rules)]
    return {"grammar": "\n".join(["start: n0", *lines, f'n{rules}: "b"']) + "\n"}


def terminal_chain(terminals=26000):
    lines = [f'T{i}: "c" T{i + 1}' for i in range(terminals)]
    return {"grammar": "\n".join(["start: T0", *lines, f'T{terminals}: "c"']) + "\n"}


def exploding(parts=36):
    """Each part holds at many places of a text: all of them together at exponentially many."""
    return {"grammar": "start: W\nW: " + " & ".join(f"/.*[0-9a-f]{{{i}}}.*/"
                                                   for i in range(2, parts)) + "\n"}


def ambiguous():
    return {"grammar": 'start: s\ns: s s | s s s | "o" |\n', "max_tokens": 300,
            "temperature": 1.4}


def completion(**fields):
    return "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 1, **fields})


def many_keys(keys):
    inner = ",".join(f'"key{i}":0' for i in range(keys))
    return "/v1/completions", f'{{"prompt":"a","max_tokens":1,"extra":{{{inner}}}}}'


def empty_lists(megabytes):
    lists = "[]," * (megabytes * 1_000_000 // 3)
    return "/v1/completions", f'{{"prompt":"a","max_tokens":1,"extra":[{lists}[]]}}'


def many_messages(count):
    one = '{"role":"user","content":"m"},'
    return "/v1/chat/completions", ('{"max_tokens":1,"messages":[' + one * count + one[:-1] + "]}")


def attacks(short):
    """The requests that are sent again and again, by name."""
    scale = 0.1 if short else 1.0
    return {"refs": completion(**ref_chain(int(24000 * scale))),
            "rules": completion(**rule_chain(int(26000 * scale))),
            "terminals": completion(**terminal_chain(int(26000 * scale))),
            "exploding": completion(**exploding()), "ambiguous": completion(**ambiguous()),
            "keys": many_keys(int(600_000 * scale)), "keys again": many_keys(int(599_999 * scale)),
            "lists": empty_lists(int(30 * scale)),
            "messages": many_messages(int(200_000 * scale))}


def endless_templates():
    sums = "{{ " + "+".join(["1"] * 24000) + " }}"
    doubling = ("{% set a = namespace(v=[0]) %}{% set b = namespace(v=[0]) %}"
                "{% for i in range(56) %}{% set a.v = [a.v, a.v] %}{% set b.v = [b.v, b.v] %}"
                "{% endfor %}{{ a.v == b.v }}")
    return {"sum": sums, "doubling": doubling}


def plain(number):
    return {"prompt": f"Once upon a time there was a little dog, number {number}, who",
            "max_tokens": 40, "seed": number, "temperature": 0.9}


class Server:
    """A server, its memory, and what is asked of it."""

    def __init__(self, program, model, more):
        self.template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        self.template.write(TEMPLATE)
        self.template.flush()
        self.process = subprocess.Popen(
            [program, "serve", "-m", model, "--port", "0", "--chat-template-file",
             self.template.name, *more], stderr=subprocess.PIPE, text=True)
        self.port = None
        for line in self.process.stderr:
            if found := re.search(r":(\d+)/v1", line):
                self.port = int(found[1])
                break
        if self.port is None:
            raise SystemExit("the server ended")
        # Nobody else reads it, and a full pipe would stop the server.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def ask(self, path, body=None, timeout=120):
        one = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            if body is None:
                one.request("GET", path)
            else:
                one.request("POST", path, body, {"Content-Type": "application/json"})
            answer = one.getresponse()
            return answer.status, answer.read()
        finally:
            one.close()

    def resident(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) * 1024

    def end(self):
        """The seconds that it takes, and the exit status."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.template.close()
        return time.monotonic() - begin, status


class Crowd:
    """Threads that do harm until they are told to stop."""

    def __init__(self, server, program, model, short):
        self.server = server
        self.stop = threading.Event()
        self.answers = collections.defaultdict(collections.Counter)
        self.health = []
        self.resident = []
        jobs = [(self.send, name, *asked) for name, asked in attacks(short).items()]
        jobs += [(self.read_slowly,), (self.leave,), (self.watch_health,), (self.watch_memory,)]
        jobs += [(self.render, program, model, name, text)
                 for name, text in endless_templates().items()]
        self.threads = [threading.Thread(target=job, args=arguments) for job, *arguments in jobs]
        for thread in self.threads:
            thread.start()

    def send(self, name, path, body):
        while not self.stop.is_set():
            try:
                status, text = self.server.ask(path, body)
                code = json.loads(text).get("error", {}).get("message", "")[:60]
                self.answers[name][f"{status} {code}".strip()] += 1
                self.stop.wait(0.05 if status in (429, 503) else 0)
            except (OSError, http.client.HTTPException) as problem:
                self.answers[name][type(problem).__name__] += 1
                self.stop.wait(0.2)

    def raw(self, **fields):
        body = json.dumps({"prompt": "Once upon", "stream": True, "ignore_eos": True, **fields})
        one = socket.create_connection(("127.0.0.1", self.server.port), timeout=120)
        one.sendall(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                     "Content-Type: application/json\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
        return one

    def read_slowly(self):
        while not self.stop.is_set():
            with self.raw(max_tokens=200) as one:
                one.settimeout(10)
                while not self.stop.wait(1):
                    try:
                        if not one.recv(1):
                            break
                    except OSError:
                        break
            self.answers["slow reader"]["readers"] += 1

    def leave(self):
        while not self.stop.wait(0.02):
            try:
                self.raw(max_tokens=100).close()
                self.answers["leaving"]["left"] += 1
            except OSError:
                self.answers["leaving"]["refused"] += 1

    def render(self, program, model, name, text):
        with tempfile.TemporaryDirectory() as folder:
            template, messages = os.path.join(folder, "t.jinja"), os.path.join(folder, "m.json")
            with open(template, "w", encoding="ascii") as file:
                file.write(text)
            with open(messages, "w", encoding="ascii") as file:
                json.dump([{"role": "user", "content": "hi"}], file)
            while not self.stop.is_set():
                # A program of its own: it shares the processor, not the server.
                one = subprocess.Popen(
                    ["nice", "-n", "19", program, "template", "-m", model, "--template", template,
                     "--messages", messages], stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL)
                while one.poll() is None and not self.stop.wait(0.1):
                    pass
                if one.poll() is None:
                    one.kill()
                self.answers[f"template {name}"][f"exit {one.wait()}"] += 1

    def watch_health(self):
        while not self.stop.wait(0.1):
            begin = time.monotonic()
            status, _ = self.server.ask("/health", timeout=60)
            self.health.append(time.monotonic() - begin)
            self.answers["health"][status] += 1

    def watch_memory(self):
        while not self.stop.wait(0.1):
            self.resident.append(self.server.resident())

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def ask_plain(server, number):
    """The text of an answer, and its seconds."""
    begin = time.monotonic()
    status, text = server.ask("/v1/completions", json.dumps(plain(number)))
    seconds = time.monotonic() - begin
    return (status, json.loads(text).get("choices", text.decode())), seconds


def measure(program, model, more, seconds, requests, short=False):
    server = Server(program, model, more)
    ask_plain(server, 0)
    alone = [ask_plain(server, i) for i in range(requests)]
    before = server.resident()
    crowd = Crowd(server, program, model, short)
    end = time.monotonic() + seconds
    wrong = []
    times = []
    time.sleep(min(2, seconds / 10))
    while len(times) < requests or time.monotonic() < end:
        number = len(times) % requests
        said, took = ask_plain(server, number)
        times.append(took)
        if said != alone[number][0]:
            wrong.append({"number": number, "alone": alone[number][0], "said": said})
        if not short:
            time.sleep(1)
    crowd.end()
    time.sleep(1 if short else 10)
    after = [server.resident()]
    time.sleep(1 if short else 20)
    after.append(server.resident())
    drained, status = server.end()
    slowest_alone = max(took for _, took in alone)
    return {"plain": {"asked": len(times), "wrong": wrong, "slowest_alone_s": slowest_alone,
                      "slowest_s": max(times), "times_slower": max(times) / slowest_alone,
                      "median_alone_s": sorted(took for _, took in alone)[requests // 2],
                      "median_s": sorted(times)[len(times) // 2]},
            "resident_bytes": {"before": before, "most": max(crowd.resident), "after": after},
            "health_s": {"asked": len(crowd.health), "slowest": max(crowd.health),
                         "median": sorted(crowd.health)[len(crowd.health) // 2]},
            "end": {"seconds": drained, "status": status},
            "others": {name: dict(counts) for name, counts in sorted(crowd.answers.items())}}


def misses(result):
    """Bounds that were not kept."""
    checks = {"an answer is not the one that it is alone": not result["plain"]["wrong"],
              "a plain request was over three times as slow":
                  result["plain"]["times_slower"] <= SLOWER_MAX,
              "over 1.5 GB of memory": result["resident_bytes"]["most"] < RESIDENT_MAX,
              "memory grows afterwards":
                  result["resident_bytes"]["after"][1]
                  <= result["resident_bytes"]["after"][0] * 1.02 + (1 << 20),
              "/health took over 0.2 s": result["health_s"]["slowest"] <= HEALTH_MAX,
              "the server did not end well": result["end"]["status"] == 0}
    return [what for what, is_kept in checks.items() if not is_kept]


def main():
    arguments, more = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, more = arguments[:at], arguments[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    result = measure(options.program, options.model, more, options.seconds, options.requests)
    result["missed"] = misses(result)
    print(json.dumps(result, indent=1))
    if options.out:
        with open(options.out, "w", encoding="ascii") as file:
            json.dump(result, file, indent=1)
    return 1 if result["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
