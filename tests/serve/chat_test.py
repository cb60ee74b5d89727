#!/usr/bin/env python3
"""moeflux chat at a terminal: what it evaluates, Ctrl-C, and commands that change the past.

    tests/serve/chat_test.py MOEFLUX
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

from server import MODEL, TEMPLATE

PROMPT = "> "


def read_piece(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # the program has ended
        return b""


class Terminal:
    """The program at a terminal of its own."""

    def __init__(self, program, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "dumb"
            os.execv(program, [program, "chat", "-m", MODEL, "--no-history", *arguments])
        self.text = ""

    def read_until(self, done, seconds=60):
        """The text that comes until done(text); then it is forgotten."""
        deadline = time.monotonic() + seconds
        while not done(self.text):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"nothing more after {self.text!r}")
            piece = read_piece(self.fd)
            if not piece:
                raise AssertionError(f"it ended after {self.text!r}")
            self.text += piece.decode("utf-8", "replace").replace("\r\n", "\n")
        found, self.text = self.text, ""
        return found

    def prompt(self):
        return self.read_until(lambda text: text.endswith(PROMPT))

    def send(self, data):
        os.write(self.fd, data.encode())

    def drain(self):
        """Forgets what still comes within a moment."""
        while select.select([self.fd], [], [], 0.3)[0]:
            os.read(self.fd, 4096)
        self.text = ""

    def say(self, line):
        """The program's answer to a line, without the line's own echo."""
        self.send(line + "\n")
        said = self.prompt()[:-len(PROMPT)]
        return self.without_echo(said, line)

    @staticmethod
    def without_echo(said, line):
        """The line editor shows a line again that came before its prompt."""
        while said.startswith(line + "\n"):
            said = said[len(line) + 1:]
        return said.lstrip("\n")

    def end(self):
        self.send("/bye\n")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return status


def error_at_a_terminal(program, **variables):
    """How the program begins when it refuses an option."""
    terminal, end = pty.openpty()
    subprocess.run([program, "run", "--no-such-option"], stderr=end, check=False,
                   env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **variables})
    os.close(end)
    said = os.read(terminal, 4096)
    os.close(terminal)
    return said


def help_at_a_terminal(program, columns):
    """Lines of a command's help where a terminal is so wide."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", 1000, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen([program, "run", "--help"], stdout=end, env=variables) as process:
        os.close(end)
        said = b""
        while piece := read_piece(terminal):
            said += piece
        assert process.wait() == 0
    os.close(terminal)
    return said.decode().splitlines()


def statistics(said):
    """Tokens of the prompt, new ones of these, tokens of the answer."""
    found = re.search(r"prompt (\d+) tokens, (\d+) of them new.*answer (\d+) tokens", said)
    assert found, said
    return tuple(int(number) for number in found.groups())


def main():
    coloured = b"\x1b[31merror:\x1b[0m "
    assert error_at_a_terminal(sys.argv[1]).startswith(coloured)
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert error_at_a_terminal(sys.argv[1], **variables).startswith(b"error: "), variables
    for columns in (40, 72):
        lines = help_at_a_terminal(sys.argv[1], columns)
        widest = max(len(line) for line in lines)
        assert columns - 12 < widest <= columns, (columns, widest)
    template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
    template.write(TEMPLATE)
    template.flush()
    flags = ["--chat-template-file", template.name, "-c", "2048", "--seed", "4"]

    def start(*arguments):
        terminal = Terminal(sys.argv[1], *flags, *arguments)
        terminal.prompt()
        return terminal

    questions = ["Once there was a fox.", "Where did it live?", "Was it alone?", "And then?",
                 "How does it end?"]
    terminal = start("-n", "24")
    answers = []
    evaluated = 0
    for i, text in enumerate(questions):
        answers.append(terminal.say(text))
        prompt, new, answer = statistics(terminal.say("/stats"))
        if i > 0:
            # All but the answer's last token, which nothing followed, is there.
            assert new <= prompt - evaluated + 1, (i, prompt, new, evaluated)
            assert new < prompt / 2 or i < 2, (i, prompt, new)
        evaluated = prompt + answer
    print(f"turn 5 evaluated {new} of {prompt} tokens")

    # Another answer to the last question is the one of the next seed.
    retried = terminal.say("/retry")
    assert retried != answers[-1]
    terminal.say("/undo")
    assert terminal.say(questions[-1]) == answers[-1]
    # And is what a conversation without the rest would have had.
    terminal.say("/undo")
    terminal.say("/undo")
    assert terminal.say(questions[3]) == answers[3]
    terminal.say("/clear")
    assert terminal.say(questions[0]) == answers[0]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "talk.json")
        terminal.say(f"/save {path}")
        assert os.stat(path).st_mode & 0o077 == 0
        assert terminal.end() == 0
        terminal = start("-n", "24")
        terminal.say(f"/load {path}")
        assert terminal.say(questions[1]) == answers[1]
    assert terminal.end() == 0
    print("retry, undo, clear, save and load give the bytes they should")

    # Ctrl-C ends an answer and nothing else; what was said of it stays.
    terminal = start("-n", "-1", "--ignore-eos")
    terminal.send(questions[0] + "\n")
    terminal.read_until(lambda text: len(text) > 120)
    terminal.send("\x03")
    stopped = terminal.prompt()
    assert "stopped" in stopped, stopped
    terminal.say("/undo")
    terminal.send(questions[0] + "\n")
    said = terminal.read_until(lambda text: len(text) > 120)
    said = terminal.without_echo(said, questions[0])
    assert said.startswith(answers[0].rstrip("\n")[:60]), (said, answers[0])
    terminal.send("\x03")
    terminal.prompt()
    # At the prompt it empties the line, and right before it nothing happens.
    terminal.send("this is never asked\x03")
    terminal.drain()
    terminal.send("\x03\x03\x03")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.drain()
    assert "no command /nothing" in terminal.say("/nothing")
    terminal.say("/undo")
    assert "nothing to undo" in terminal.say("/undo")
    assert terminal.end() == 0
    print("Ctrl-C ends an answer and not the program")


if __name__ == "__main__":
    main()
