#!/usr/bin/env python3
"""Text that one types into moeflux chat is what the model is told: letters of all languages, pasted
texts, a history over programs, a window that changes its size, paths.

    tests/serve/chat_typing_test.py MOEFLUX

Each check types at a pseudo-terminal and reads the conversation that /save wrote.
"""

import fcntl
import json
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

SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z@]|\x1b[()][A-Z0-9]|\x1b[=>]")
PASTE = "\x1b[200~{}\x1b[201~"
UP, LEFT, BACKSPACE, CTRL_C, CTRL_D = "\x1b[A", "\x1b[D", "\x7f", "\x03", "\x04"


def template_in(folder):
    path = os.path.join(folder, "template.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write(TEMPLATE)
    return path


class Typing:
    """A conversation at a terminal of its own; the model answers with a token, or with some."""

    def __init__(self, program, folder, *arguments, environment=None, columns=80, tokens=1):
        self.folder = folder
        variables = {"PATH": os.environ.get("PATH", ""), "HOME": folder, "LANG": "C",
                     "TERM": "xterm", **(environment or {})}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH"):
            if name in os.environ:
                variables[name] = os.environ[name]
        command = [program, "chat", "-m", MODEL, "--chat-template-file", template_in(folder),
                   "-c", "4096", "-n", str(tokens), "--ignore-eos", "--seed", "4", *arguments]
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execve(program, command, variables)
        self.raw = b""
        self.prompt()

    def shown(self):
        """The output since the last prompt, without what steers a terminal."""
        text = self.raw.decode("utf-8", "replace").replace("\r\x1b[K", "\n")  # a bar is gone
        return SEQUENCE.sub("", text).replace("\r", "")

    def wait_for(self, done, seconds=60):
        deadline = time.monotonic() + seconds
        while not done(self):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"nothing more after {self.raw!r}")
            try:
                piece = os.read(self.fd, 65536)
            except OSError:
                piece = b""
            if not piece:
                raise AssertionError(f"it ended after {self.raw!r}")
            self.raw += piece

    def prompt(self):
        self.wait_for(lambda self: re.search(r"(^|\n)> $", self.shown()))
        said, self.raw = self.shown(), b""
        return said

    def send(self, data):
        """The terminal takes some thousand bytes at a time."""
        data = data.encode() if isinstance(data, str) else data
        while data:
            readable, writable, _ = select.select([self.fd], [self.fd], [], 60)
            assert readable or writable, "the program reads no more"
            if readable:
                self.raw += os.read(self.fd, 65536)
            if writable:
                data = data[os.write(self.fd, data[:512]):]

    def enter(self, data):
        """Types a line and waits for the next prompt, which is not the line's own."""
        self.send(data)
        self.settle()
        self.raw = b""
        self.send("\r")
        return self.prompt()

    def settle(self):
        """Until nothing has come for a moment: the line has been drawn."""
        while select.select([self.fd], [], [], 0.2)[0]:
            self.raw += os.read(self.fd, 65536)

    def told(self):
        """The user's messages so far."""
        path = os.path.join(self.folder, "talk.json")
        self.enter("/save " + path)
        with open(path, encoding="utf-8") as file:
            messages = json.load(file)["messages"]
        self.enter("/clear")
        return [message["content"] for message in messages if message["role"] == "user"]

    def told_ahead(self):
        """The same, typed before the program asks for it."""
        path = os.path.join(self.folder, "ahead.json")
        self.send(f"/save {path}\r")
        deadline = time.monotonic() + 60
        while not os.path.exists(path):
            assert time.monotonic() < deadline, self.raw
            if select.select([self.fd], [], [], 0.1)[0]:
                self.raw += os.read(self.fd, 65536)
        with open(path, encoding="utf-8") as file:
            messages = json.load(file)["messages"]
        os.remove(path)
        self.settle()
        said = self.raw
        self.enter("/clear")
        self.raw = said
        return [message["content"] for message in messages if message["role"] == "user"]

    def resize(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def end(self):
        self.send("/bye\r")
        return self.wait()

    def wait(self):
        """The exit status; what it still says is read, as a terminal would."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                os.close(self.fd)
                return status
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 65536)
                except OSError:
                    pass
        raise AssertionError("it does not end")


def check(expected, found):
    assert expected == found, f"\nexpected {expected!r}\n   found {found!r}"


def letters(program, folder):
    for environment in ({"LANG": "C"}, {"LANG": "C.UTF-8"}, {"LC_ALL": "xx_YY.ISO-8859-1"},
                        {"TERM": "dumb"}, {"TERM": "vt100", "LANG": "C"}):
        typing = Typing(program, folder, environment=environment)
        lines = ["Grüße, naïve Ærø", "日本語を話す", "Привет 👋🏽 γειά", "e\u0301 a\u200db \u00a0."]
        for line in lines:
            typing.enter(line)
        # A wide letter is one letter to the keys that move and delete.
        typing.enter("日本" + BACKSPACE + "語")
        typing.enter("日語" + "\x02" + "本")
        check(lines + ["日語", "日本語"], typing.told())
        # A letter may come in pieces; what is no letter is left out.
        typing.send(b"a\xe6")
        typing.settle()
        typing.send(b"\x97")
        typing.settle()
        typing.enter(b"\xa5b")
        typing.enter(b"c\xffd\xc3e\xf0\x9f!")
        check(["a日b", "cde!"], typing.told())
        check(0, typing.end())
    print("letters of all languages arrive, whatever the locale")


def pastes(program, folder):
    typing = Typing(program, folder)
    typing.enter(PASTE.format("first\rsecond\r\rfourth"))
    typing.enter(PASTE.format("of Windows\r\nlines\r\nand of files\nall\n\n"))
    typing.enter(PASTE.format("one line\r"))
    typing.enter("typed " + PASTE.format("日本\r語\t") + " typed")
    typing.enter(PASTE.format("\"\"\"Of a module.\r\"\"\"\rimport os"))
    typing.enter(PASTE.format("cc \\\r  a.c \\"))
    typing.enter(PASTE.format("/usr/lib\r/opt"))
    check(["first\nsecond\n\nfourth", "of Windows\nlines\nand of files\nall", "one line",
           "typed 日本\n語\t typed", "\"\"\"Of a module.\n\"\"\"\nimport os", "cc \\\n  a.c \\",
           "/usr/lib\n/opt"], typing.told())
    # Between quotes that were typed it is a part.
    typing.enter("\"\"\"" + PASTE.format("a\rb") + "\"\"\"")
    check(["a\nb"], typing.told())
    # Ctrl-C forgets it like a line; nothing of it is asked.
    typing.send(PASTE.format("not\rthis"))
    typing.settle()
    typing.send(CTRL_C)
    typing.settle()
    typing.enter("but this")
    long_text = "\r".join(f"line {i} of a long text, ünd so on" for i in range(80))
    typing.enter(PASTE.format(long_text))
    check(["but this", long_text.replace("\r", "\n")], typing.told())
    check(0, typing.end())
    print("a pasted text is one message")


def meanwhile(program, folder):
    """Text that is typed or pasted beside an answer waits for the next prompt, as it came."""
    typing = Typing(program, folder, tokens=400)
    for ahead, told in ((PASTE.format("a\rb\r\r日本") + "\r", ["a\nb\n\n日本"]),
                        ("typed\r", ["typed"]),
                        ("one" + LEFT + "n\rtwo\r", ["onne", "two"]),
                        ("\"\"\"" + PASTE.format("x\r\ny") + "\"\"\"\r", ["x\ny"])):
        typing.send("Tell me.\r")
        typing.wait_for(lambda self: len(self.shown()) > 20)  # an answer, not yet its end
        typing.raw = b""
        typing.send(ahead)
        check(["Tell me.", *told], typing.told_ahead())
        assert "200~" not in typing.shown(), typing.shown()
        typing.raw = b""
    check(0, typing.end())
    print("what is typed while an answer is written waits for its end")


def histories(program, folder):
    path = os.path.join(folder, ".local/state/moeflux/chat_history")
    if os.path.exists(path):
        os.remove(path)
    typing = Typing(program, folder)
    typing.enter("übrigens")
    typing.enter(PASTE.format("two\rlines \\ here"))
    check(0, typing.end())
    check(0o600, os.stat(path).st_mode & 0o777)
    check(0o700, os.stat(os.path.dirname(path)).st_mode & 0o777)
    typing = Typing(program, folder)
    typing.enter(UP * 2)  # /bye, then the text before it
    typing.enter(UP * 4)  # itself, /bye, itself, the first one
    check(["two\nlines \\ here", "übrigens"], typing.told())
    # Another program meanwhile damages nothing.
    other = Typing(program, folder)
    for i in range(5):
        typing.enter(f"one {i}")
        other.enter(f"other {i}")
    check(0, typing.end())
    check(0, other.end())
    with open(path, encoding="utf-8") as file:
        kept = file.read().split("\n")
    for i in range(5):
        assert f"one {i}" in kept and f"other {i}" in kept, kept
    # Not read and not written where that is asked for.
    before = os.stat(path).st_size
    typing = Typing(program, folder, "--no-history")
    typing.enter("unseen" + UP)
    typing.enter("secret")
    check(["unseen", "secret"], typing.told())
    check(0, typing.end())
    check(before, os.stat(path).st_size)
    # A folder that cannot be made is no failure; XDG_STATE_HOME is another place.
    with open(os.path.join(folder, "file"), "w", encoding="utf-8") as file:
        file.write("x")
    typing = Typing(program, folder, environment={"XDG_STATE_HOME": folder + "/file/state"})
    typing.enter("still")
    check(["still"], typing.told())
    check(0, typing.end())
    typing = Typing(program, folder, environment={"XDG_STATE_HOME": folder + "/state"})
    typing.enter("elsewhere")
    check(0, typing.end())
    check(0o700, os.stat(folder + "/state/moeflux").st_mode & 0o777)
    with open(folder + "/state/moeflux/chat_history", encoding="utf-8") as file:
        assert file.read().startswith("elsewhere\n")
    check(before, os.stat(path).st_size)
    print("the history outlives the program")


def windows(program, folder):
    typing = Typing(program, folder, columns=80)
    words = "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn"
    for columns in (30, 120, 11, 80):
        typing.send(words)
        typing.settle()
        typing.raw = b""
        typing.resize(columns)
        typing.settle()
        # It is drawn anew, folded where the new window ends.
        drawn = typing.shown().replace("\n", "")
        assert words.replace(" ", "") in drawn.replace(" ", ""), (columns, drawn)
        typing.enter(", " + "vierzehn " * 10)
        check([words + ", " + "vierzehn " * 10], typing.told())
    # Also while an answer is written.
    typing.resize(25)
    typing.enter(words)
    check([words], typing.told())
    check(0, typing.end())
    print("a window may change its size")


def paths(program, folder):
    typing = Typing(program, folder)
    texts = ["/srv/me/letter.txt: what does it say?", "/etc", "/tmp is full", "// a comment",
             "/24 of a net", "/", "/über", " /undo with a space"]
    for text in texts:
        typing.enter(text)
    check(texts, typing.told())
    for text in ("/undoo", "/sytem be brief", "/nothing"):
        assert "no command " + text.split()[0] in typing.enter(text)
    assert "/system TEXT" in typing.enter("/help")
    assert "nothing to undo" in typing.enter("/undo")
    check([], typing.told())
    check(0, typing.end())
    print("a path is a text, a mistyped command is not")


def keys(program, folder):
    typing = Typing(program, folder)
    typing.send("日本" + CTRL_C)
    typing.settle()
    typing.enter("ab" + LEFT + LEFT + CTRL_D)  # deletes a letter
    typing.enter("語" * 700)
    check(["b", "語" * 700], typing.told())
    typing.send(CTRL_D)
    check(0, typing.wait())
    # An interrupt leaves a terminal that works.
    typing = Typing(program, folder)
    typing.send("half a line")
    typing.settle()
    assert termios.tcgetattr(typing.fd)[3] & termios.ICANON == 0
    os.kill(typing.pid, signal.SIGTERM)
    typing.wait_for(lambda self: b"\x1b[?2004l" in self.raw)
    deadline = time.monotonic() + 10
    while termios.tcgetattr(typing.fd)[3] & termios.ICANON == 0:
        assert time.monotonic() < deadline, "the terminal is still raw"
    typing.wait()
    # A terminal that knows no sequences gets none.
    typing = Typing(program, folder, environment={"TERM": "dumb"})
    typing.send("text")
    typing.settle()
    typing.resize(40)
    typing.settle()
    assert b"\x1b[?" not in typing.raw and b"\x1b[J" not in typing.raw, typing.raw
    typing.enter(" and more")
    check(["text and more"], typing.told())
    check(0, typing.end())
    print("keys do what they say")


def without_terminal(program, folder):
    path = os.path.join(folder, "piped.json")
    home = os.path.join(folder, "piped")
    os.mkdir(home)
    done = subprocess.run(
        [program, "chat", "-m", MODEL, "--chat-template-file", template_in(folder), "-n", "1"],
        input=f"日本語 ü\n/etc/passwd\n/save {path}\n".encode(), capture_output=True,
        env={"LANG": "C", "HOME": home}, timeout=120, check=True)
    with open(path, encoding="utf-8") as file:
        messages = json.load(file)["messages"]
    check(["日本語 ü", "/etc/passwd"], [m["content"] for m in messages if m["role"] == "user"])
    assert b"\x1b" not in done.stdout, done.stdout
    check([], os.listdir(home))
    print("without a terminal lines are read as they come, and kept nowhere")


def before_weights(program, folder):
    """A model without a template is refused before its weights are read."""
    model = os.path.join(folder, "model")
    os.mkdir(model)
    for name in os.listdir(MODEL):
        if name.endswith((".json", ".model")) and "chat_template" not in name:
            with open(os.path.join(MODEL, name), "rb") as source:
                text = source.read()
            with open(os.path.join(model, name), "wb") as target:
                target.write(text)
    # Its only file of weights cannot be read.
    with open(os.path.join(model, "model.safetensors"), "wb") as file:
        file.write(b"nothing")
    done = subprocess.run([program, "chat", "-m", model], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "template" in done.stderr, done.stderr
    assert "safetensors" not in done.stderr, done.stderr
    print("a template is missed before weights are read")


def main():
    program = os.path.abspath(sys.argv[1])
    checks = (letters, pastes, meanwhile, histories, windows, paths, keys, without_terminal,
              before_weights)
    wanted = sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        for one in checks:
            if not wanted or one.__name__ in wanted:
                one(program, folder)


if __name__ == "__main__":
    main()
