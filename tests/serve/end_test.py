#!/usr/bin/env python3
"""The server's end: it says that it drains, lets answers end, and waits for nobody's grammar.

    tests/serve/end_test.py MOEFLUX
"""

import http.client
import json
import resource
import signal
import socket
import sys
import tempfile
import threading
import time

from server import Server, question

PATIENCE = 60  # who takes longer has found a hang
GRACE = 29     # seconds that answers have to end


class Stream:
    """An answer that goes on for a while, read by a thread."""

    def __init__(self, server, tokens=400):
        self.data = b""
        self.begun = threading.Event()
        self.connection = server.connect()
        body = {"messages": question("Go on"), "max_tokens": tokens, "stream": True,
                "ignore_eos": True, "seed": 3}
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body),
                                {"Content-Type": "application/json"})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        self.thread = threading.Thread(target=self.read)
        self.thread.start()
        assert self.begun.wait(PATIENCE)

    def read(self):
        try:
            while piece := self.answer.read1(4096):
                self.data += piece
                self.begun.set()
        except http.client.IncompleteRead:
            pass  # is_whole() tells

    def is_whole(self):
        self.thread.join(PATIENCE)
        self.connection.close()
        return self.data.endswith(b"data: [DONE]\n\n")


def drains(program, number, tokens=400):
    """Until its answers have ended it says so to whoever asks, and takes nothing new."""
    with Server(program, "--parallel", "8") as server:
        streams = [Stream(server, tokens) for _ in range(4)]
        server.process.send_signal(number)
        begin = time.monotonic()
        end = begin + PATIENCE
        said = None
        try:
            while said is None or said[0] == 200:
                assert time.monotonic() < end, said
                said = server.ask("/health")
        except OSError:
            said = None  # all answers had ended before anybody could ask
        if said is not None:
            assert said[0] == 503 and json.loads(said[1])["status"] == "draining", said
            try:
                assert server.ask("/v1/completions", {"prompt": "a"})[0] == 503
            except OSError:
                pass  # the last answer has ended
        whole = [stream.is_whole() for stream in streams]
        # A machine that is too slow for that cuts them, and not before their time.
        assert all(whole) or time.monotonic() - begin >= GRACE, whole
        assert server.process.wait(timeout=PATIENCE) == 0
    if said is None:
        assert tokens < 2000, "longer answers ended before the server could be asked"
        return drains(program, number, 3 * tokens)
    print(f"signal {number}: draining, {sum(whole)} whole answers")


def send(server, path, body):
    one = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    one.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
    return one


def waits_for_no_preparation(program):
    """A request that is being read or compiled at the end is not waited for."""
    parts = " & ".join(f"/.*[a-z]{{{i}}}.*/" for i in range(1, 40))
    grammar = json.dumps({"prompt": "a", "max_tokens": 1, "grammar": f"start: A\nA: {parts}\n"})
    keys = ",".join(f'"k{i}":1' for i in range(900_000))
    with Server(program) as server:
        held = [send(server, "/v1/completions", grammar) for _ in range(4)]
        held += [send(server, "/v1/completions", f'{{"prompt":"a","x":{{{keys}}}}}')
                 for _ in range(3)]
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=PATIENCE) == 0
        for one in held:
            one.close()
    print("grammars and long bodies: ended beside them")


def outlives_a_limit_of_files(program):
    """A write beyond RLIMIT_FSIZE is an error of that write, not the end."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    with tempfile.TemporaryDirectory() as folder:
        with Server(program, "--states", folder, preexec_fn=limit) as server:
            for i in range(3):
                server.chat(question("Tell me " * 20 + str(i)), max_tokens=8)
            status, said = server.ask("/v1/responses", {"input": "Hello " * 200, "store": True,
                                                        "max_output_tokens": 16})
            assert status in (200, 500, 507), said
            assert server.ask("/health")[0] == 200
            assert server.stop() == 0
    print("a limit of files: answered on")


def keeps_what_nohup_ignores(program):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with Server(program, preexec_fn=ignore) as server:
        server.process.send_signal(signal.SIGHUP)
        stream = Stream(server, tokens=300)
        assert stream.is_whole()
        assert server.ask("/health")[0] == 200
        assert server.stop() == 0
    print("an ignored SIGHUP: answered on")


def main():
    program = sys.argv[1]
    for number in (signal.SIGTERM, signal.SIGHUP):
        drains(program, number)
    waits_for_no_preparation(program)
    outlives_a_limit_of_files(program)
    keeps_what_nohup_ignores(program)


if __name__ == "__main__":
    main()
