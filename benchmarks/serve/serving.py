"""Parts that the measurements of the server share: a server, a request for a stream, its frames."""

import contextlib
import json
import re
import subprocess

FRAME = b"data: {"


@contextlib.contextmanager
def server(program, model, *arguments):
    """The port of a server that runs meanwhile."""
    process = subprocess.Popen([program, "serve", "-m", model, "--port", "0", *arguments],
                               stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if found := re.search(r":(\d+)/v1", line):
                yield int(found[1])
                return
        raise SystemExit("the server ended")
    finally:
        process.terminate()
        process.communicate()


def stream_body(prompt, tokens, **more):
    """The body of a completion that is streamed, greedy, and goes on to its last token."""
    return json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
                       "ignore_eos": True, **more})


def stream_request(prompt, tokens, **more):
    """All of its bytes, for a socket; the server closes at the end."""
    body = stream_body(prompt, tokens, **more)
    return ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def new_frames(before, piece):
    """How many frames begin in a piece, or end their mark there, behind what was read before."""
    return (before[1 - len(FRAME):] + piece).count(FRAME)


def split_options(arguments):
    """Our own, and those behind "--", which are the program's."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1:]
