#!/usr/bin/env python3
"""The server's start: a chat template that does not compile is named before the weights are read,
requests that no handler sees are in the log, and a system out of threads is an error.

    tests/serve/start_test.py MOEFLUX
"""

import http.client
import os
import resource
import shutil
import subprocess
import sys
import tempfile

from server import MODEL, Server, question

BROKEN = "one\n{% for m in %}"


def names_a_template_that_was_given(program, folder):
    """A template of --chat-template-file that cannot be used ends the program."""
    path = os.path.join(folder, "mine.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write(BROKEN)
    for command in (["serve", "--port", "0"], ["chat", "hello"]):
        done = subprocess.run([program, *command, "-m", MODEL, "--chat-template-file", path],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              check=False, timeout=60)
        assert done.returncode == 1, done
        assert f"error: {path}, line 2: " in done.stderr, done.stderr
        assert "context" not in done.stderr, done.stderr  # of a model that has been loaded


def warns_of_the_models_own_template(program, folder):
    """A model continues texts without its template; `chat` has nothing to do without one."""
    model = os.path.join(folder, "model")
    shutil.copytree(MODEL, model)
    path = os.path.join(model, "chat_template.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write(BROKEN)
    with Server(program, model=model, template=None) as server:
        warnings = [line for line in server.lines if line.startswith(f"warning: {path}, line 2: ")]
        assert len(warnings) == 1, server.lines
        assert "completions work" in warnings[0], warnings
        assert server.ask("/v1/completions", {"prompt": "Once", "max_tokens": 2})[0] == 200
        status, text = server.ask("/v1/chat/completions", {"messages": question("hello")})
        assert status >= 400 and "chat_template.jinja, line 2" in text, (status, text)
        assert folder not in text, text
    done = subprocess.run([program, "chat", "-m", model, "hello"], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False, timeout=60)
    assert done.returncode == 1 and f"error: {path}, line 2: " in done.stderr, done


def warns_of_a_question_that_cannot_be_shown(program, folder):
    """A filter is looked for when a template runs, not when it is compiled."""
    path = os.path.join(folder, "filter.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write("one\n{{ messages | no_such_filter }}")
    with Server(program, "--chat-template-file", path, template=None) as server:
        warnings = [line for line in server.lines if line.startswith(f"warning: {path}, line 2: ")]
        assert len(warnings) == 1 and "question" in warnings[0], server.lines


def logs_what_it_refuses(program, _):
    """Status and reason of requests that never reach a handler; neither keys nor texts."""
    with Server(program, "--api-key", "sec-ret") as server:
        def ask(method, path, headers, body=None):
            connection = server.connect()
            connection.request(method, path, body, headers)
            status = connection.getresponse().status
            connection.close()
            return status

        key = {"Authorization": "Bearer sec-ret"}
        assert ask("GET", "/v1/models?key=sec-ret", {}) == 401
        assert ask("GET", "/v1/models", {"Host": "evil.example", **key}) == 403
        assert ask("POST", "/v1/completions", {"Content-Length": "99999999999", **key}) == 413
        assert ask("POST", "/v1/completions", {"Content-Type": "text/x", **key}, "sec-ret") == 415
        assert ask("GET", "/v1/models", {"x-api-key": "sec-wrong"}) == 401
        with_nothing = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        with_nothing.connect()
        with_nothing.sock.sendall(b"sec-ret\r\n\r\n")
        assert with_nothing.sock.recv(12) == b"HTTP/1.1 400"
        with_nothing.close()
        assert server.stop() == 0
        log = server.process.stderr.read()
    for line in ("GET /v1/models 401 refused: no valid API key",
                 "GET /v1/models 403 refused: Host 'evil.example'",
                 "POST /v1/completions 413 refused: the body has more than",
                 "POST /v1/completions 415 refused: Content-Type 'text/x'",
                 "unread request 400 refused: not a well-formed HTTP request"):
        assert line in log, (line, log)
    assert log.count(" 401 refused") == 2, log
    assert "sec-" not in log, log


def starts_with_few_threads_or_says_so(program, folder):
    """A user who may have N threads. The last N serves what needs threads of its own too."""
    if os.getuid() != 0:
        print("skipped: only root can become a user without processes")
        return
    own = os.path.join(folder, "moeflux")
    shutil.copy(program, own)
    model = shutil.copytree(MODEL, os.path.join(folder, "model"))
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    enough = 1000
    for most in (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, enough):
        def limit(user=70_000 + most, most=most):
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
            os.setuid(user)

        run = subprocess.run([own, "run", "-m", model, "-q", "-n", "2", "Once"], text=True,
                             capture_output=True, preexec_fn=limit, check=False, timeout=60)
        assert run.returncode == 0 or "error: cannot start a thread" in run.stderr, (most, run)
        try:
            server = Server(own, model=model, preexec_fn=limit, template=None)
        except AssertionError as ended:
            assert most < enough and "cannot start" in str(ended), (most, ended)
            continue
        with server:
            for fields in ({}, {"regex": "[a-z]+"}):
                status, text = server.ask("/v1/completions",
                                          {"prompt": "x", "max_tokens": 3, **fields})
                is_short = most < enough and "no thread" in text  # an expression asks for one
                assert status == 200 or is_short, (most, status, text)
            assert server.stop() == 0, most


def main():
    for check in (names_a_template_that_was_given, warns_of_the_models_own_template,
                  warns_of_a_question_that_cannot_be_shown,
                  logs_what_it_refuses, starts_with_few_threads_or_says_so):
        with tempfile.TemporaryDirectory() as folder:
            check(sys.argv[1], folder)
        print(f"{check.__name__}: as expected")


if __name__ == "__main__":
    main()
