"""A fleet under test: `moeflux-ray serve` with a model that is here, and clients of it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MODEL = os.path.join(ROOT, "models", "fable-20m")
TEMPLATE = ("{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")
REPLICA = "x-moeflux-replica"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Fleet:
    """From the line that says all replicas are there, until its end."""

    def __init__(self, program, folder, replicas=2, parallel=4, context=2048, **keys):
        self.port = free_port()
        self.folder = folder
        template = os.path.join(folder, "template.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write(TEMPLATE)
        config = os.path.join(folder, "fleet.yaml")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"port": self.port, "replicas": replicas, "program": program,
                       "server": {"model": MODEL, "threads": 1, "ctx-size": context,
                                  "parallel": parallel, "states": os.path.join(folder, "states"),
                                  "chat-template-file": template}, **keys}, file)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moeflux.serve.ray", "serve", config], stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL, text=True, cwd=folder,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"})
        self.lines = []
        self.heard = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()
        self.wait_for("replicas", 1)

    def _listen(self):
        for line in self.process.stderr:
            with self.heard:
                self.lines.append(line)
                self.heard.notify_all()
        with self.heard:
            self.lines.append("moeflux-ray: the end")
            self.heard.notify_all()

    def said(self, word):
        return sum("moeflux-ray: " in line and word in line for line in self.lines)

    def wait_for(self, word, times, seconds=300):
        with self.heard:
            self.heard.wait_for(lambda: self.said(word) >= times or self.said("the end"), seconds)
            if self.said(word) < times:
                raise AssertionError("the fleet says\n" + "".join(self.lines[-60:]))

    def restart(self):
        """Replaces all replicas; returns when they are replaced."""
        times = self.said("replicas")
        self.process.send_signal(signal.SIGHUP)
        self.wait_for("replicas", times + 1)

    def processes(self, title):
        """Processes below this one with these words in their command line."""
        return [pid for pid in descendants(self.process.pid) if title in command_line(pid)]

    def ask(self, path, body=None, headers=None, timeout=300):
        """Status, headers and text."""
        one = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            one.request("GET" if body is None else "POST", path,
                        None if body is None else json.dumps(body),
                        {"Content-Type": "application/json", **(headers or {})})
            answer = one.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            one.close()

    def chat(self, messages, headers=None, **fields):
        """The answer as a dictionary, and the replica that gave it."""
        status, told, text = self.ask("/v1/chat/completions",
                                      {"messages": messages, "seed": 7, **fields}, headers)
        assert status == 200, (status, text)
        return json.loads(text), told[REPLICA]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=120)
            except subprocess.TimeoutExpired:
                for pid in [*descendants(self.process.pid), self.process.pid]:
                    os.kill(pid, signal.SIGKILL)
                raise


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def descendants(pid):
    """Processes below `pid`."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            pass
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


class Stream(threading.Thread):
    """A streamed chat completion; `text`, `replica`, and whether it came `whole`."""

    def __init__(self, fleet, messages, tokens, **fields):
        super().__init__()
        self.fleet, self.text, self.replica, self.whole = fleet, "", None, False
        self.status, self.failure = None, None
        self.body = {"messages": messages, "seed": 7, "stream": True, "max_tokens": tokens,
                     **fields}
        self.begun = threading.Event()
        self.start()

    def run(self):
        one = http.client.HTTPConnection("127.0.0.1", self.fleet.port, timeout=300)
        try:
            one.request("POST", "/v1/chat/completions", json.dumps(self.body),
                        {"Content-Type": "application/json"})
            answer = one.getresponse()
            self.status, self.replica = answer.status, answer.headers[REPLICA]
            for line in answer:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        self.text += choice["delta"].get("content") or ""
                    self.begun.set()
                self.whole = self.whole or line.startswith(b"data: [DONE]")
        except (OSError, http.client.HTTPException) as error:
            self.failure = error
        finally:
            self.begun.set()
            one.close()
