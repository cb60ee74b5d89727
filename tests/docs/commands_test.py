#!/usr/bin/env python3
"""The commands of README and docs/, run from the text itself, and the outputs below them.

    tests/docs/commands_test.py MOEFLUX [PYTHON PACKAGE_FOLDER]

The blocks of a document run in order, in a folder with the source tree's models, examples and
benchmarks. Files of models to download are small ones there. A block that serves goes on while
later ones run. Python is read but not run where there is no package. A line "..." of an output
stands for any lines.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import check_docs  # noqa: E402

SECONDS_MAX = 120  # of a block
PORT = "8080"  # of the documents
DOWNLOADED = ("Qwen3-30B-A3B-Instruct-2507-Q4_K_M.gguf",)
LINKED = ("models", "examples", "benchmarks")

# Blocks that are parsed and not run: (document, a part of the block) and why. Ten at most.
PARSED = {
    ("README.md", "git clone"): "fetches and builds; CI does so with a clean clone",
    ("README.md", "-hf unsloth"): "fetches 18 GB",
    ("docs/install.md", "git clone"): "fetches, installs packages and builds",
    ("docs/install.md", "make install"): "the tests install, install_library and python_pip do it",
    ("docs/install.md", "install_cuda.sh"): "fetches nvcc and builds for a GPU",
    ("docs/models.md", "moeflux pull"): "fetches tens of GB",
    ("docs/replicas.md", "moeflux-ray"): "tests/ray/replicas_test.py runs it, with Ray from PyPI",
    ("docs/server.md", "import openai"): "tests/clients/run.py runs this client",
    ("docs/server.md", "claude"): "tests/clients/coding_agents.py runs this client",
    ("docs/library.md", "pkg-config"): "the test install_library builds it so",
}
PARSED_MAX = 10

KERNELS = re.compile(r"Output of the ([\w-]+) kernels")
DEPENDS = re.compile(r"depends on the (?:processor|machine)")


def documents():
    folder = os.path.join(ROOT, "docs")
    names = ["docs/" + name for name in sorted(os.listdir(folder)) if name.endswith(".md")]
    return ["README.md"] + [name for name in names if not check_docs.FOR_DEVELOPERS.match(name)]


class Block:
    """A fenced block, and what the paragraph below the output says of it."""

    def __init__(self, line, word, text):
        self.line, self.word, self.text = line, word, text
        self.output = None
        self.said = ""


def blocks_of(text):
    """Blocks of commands, each with the output that stands below it."""
    lines = text.split("\n")
    found = []
    for line, word, inside in check_docs.fences(text):
        end = line + len(inside) + 1  # lines up to the closing fence
        if word == "text":
            between = lines[found[-1].end:line - 1] if found else ["none"]
            if not "".join(between).strip():
                found[-1].output = "\n".join(inside)
                found[-1].said = paragraph_at(lines, end)
            continue
        block = Block(line, word, "\n".join(inside) + "\n")
        block.end = end
        found.append(block)
    return found


def paragraph_at(lines, index):
    while index < len(lines) and not lines[index].strip():
        index += 1
    end = index
    while end < len(lines) and lines[end].strip():
        end += 1
    return " ".join(lines[index:end])


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


class Runner:
    def __init__(self, program, python=None, package=None):
        self.program = os.path.abspath(program)
        self.python, self.package = python, package and os.path.abspath(package)
        self.kernels = self.kernels_here()
        self.wrong = []
        self.parsed = set()
        self.ran = 0

    def kernels_here(self):
        listed = subprocess.run([self.program, "devices"], check=True, capture_output=True,
                                text=True).stdout
        return re.search(r"cpu \(([\w-]+)", listed).group(1)

    def report(self, path, block, message):
        self.wrong.append(f"{path}:{block.line}: {message}")

    def run(self, path):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            blocks = blocks_of(file.read())
        with tempfile.TemporaryDirectory() as folder:
            self.furnish(folder)
            server = None
            try:
                for block in blocks:
                    if self.is_parsed(path, block):
                        self.parse(path, block)
                    elif block.word == "sh" and block.text.startswith("moeflux serve"):
                        end(server)
                        server = self.serve(path, block)
                    elif block.word == "sh":
                        self.run_shell(path, block)
                    elif block.word == "python":
                        self.run_python(path, block)
                    elif block.word == "json":
                        json.loads(block.text)
            finally:
                end(server)

    def furnish(self, folder):
        """A folder as a reader's, with the program on the path and a port that is free."""
        self.folder, self.port = folder, free_port()
        for name in LINKED:
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
        for name in DOWNLOADED:
            os.symlink(os.path.join(ROOT, "models", "fable-20m"), os.path.join(folder, name))
        programs = os.path.join(folder, ".programs")
        os.mkdir(programs)
        os.symlink(self.program, os.path.join(programs, "moeflux"))
        self.environment = {"PATH": programs + os.pathsep + os.environ["PATH"], "HOME": folder,
                            "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        for name in ("LD_LIBRARY_PATH", "ASAN_OPTIONS"):
            if name in os.environ:
                self.environment[name] = os.environ[name]

    def is_parsed(self, path, block):
        for key in PARSED:
            if key[0] == path and key[1] in block.text:
                self.parsed.add(key)
                return True
        return False

    def parse(self, path, block):
        if block.word == "python":
            compile(block.text, path, "exec")
            return
        done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            self.report(path, block, done.stderr)

    def shell(self, block):
        text = block.text.replace(f":{PORT}", f":{self.port}")
        return ["bash", "-euo", "pipefail", "-c", text]

    def run_shell(self, path, block):
        self.judge(path, block, self.shell(block), self.environment)

    def run_python(self, path, block):
        compile(block.text, path, "exec")
        if self.python:
            self.judge(path, block, [self.python, "-c", block.text],
                       {**self.environment, "PYTHONPATH": self.package})

    def judge(self, path, block, command, environment):
        self.ran += 1
        try:
            done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True,
                                  stdin=subprocess.DEVNULL, timeout=SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired:
            self.report(path, block, f"not done in {SECONDS_MAX} s")
            return
        if done.returncode:
            self.report(path, block, f"exited with {done.returncode}: "
                                     + done.stderr.decode(errors="replace")[-1000:])
        elif block.output is not None:
            self.compare(path, block, done.stdout.decode(errors="replace"))

    def compare(self, path, block, found):
        """Outputs are equal; where they depend on the machine, the first words of lines are."""
        expected, lines = block.output.strip().splitlines(), found.strip().splitlines()
        kernels = KERNELS.search(block.said)
        if kernels and kernels.group(1) != self.kernels:
            same = bool(lines)
        elif DEPENDS.search(block.said) and not kernels:
            same = matches(first_words(expected), first_words(lines))
        else:
            same = matches(expected, lines)
        if not same:
            self.report(path, block, f"its output is\n{found}\nexpected\n{block.output}")

    def serve(self, path, block):
        self.ran += 1
        text = block.text.rstrip("\n") + f" --port {self.port}"
        server = subprocess.Popen(["bash", "-c", "exec " + text], cwd=self.folder,
                                  env=self.environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline and server.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return server
            except OSError:
                time.sleep(0.05)
        server.kill()
        self.report(path, block, "did not serve: " + server.communicate()[1].decode())
        return None


def first_words(lines):
    return [" ".join(line.split()[:1]) for line in lines]


def matches(expected, lines):
    """Whether lines are what is expected, of which "..." is any number of them."""
    if not expected:
        return not lines
    if expected[0] == "...":
        return any(matches(expected[1:], lines[skipped:]) for skipped in range(len(lines) + 1))
    return bool(lines) and expected[0] == lines[0] and matches(expected[1:], lines[1:])


def end(server):
    if server is None or server.poll() is not None:
        return
    server.send_signal(signal.SIGTERM)
    try:
        server.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        server.kill()
        server.communicate()


def main(arguments):
    for tool in ("bash", "curl", "jq"):
        if shutil.which(tool) is None:
            sys.exit(f"commands_test: no {tool} (tools/install_deps.sh test)")
    runner = Runner(*arguments)
    for path in documents():
        runner.run(path)
    for key in sorted(set(PARSED) - runner.parsed):
        runner.wrong.append(f"{key[0]}: no block has '{key[1]}', which PARSED lists")
    if len(PARSED) > PARSED_MAX:
        runner.wrong.append(f"{len(PARSED)} blocks are parsed only, allowed {PARSED_MAX}")
    print("\n".join(runner.wrong + [f"{runner.ran} blocks ran, {len(runner.parsed)} were parsed"]))
    return 1 if runner.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
