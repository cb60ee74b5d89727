"""Requests and bodies that are none, or not quite. Each has to be answered by a status that says
whose fault it is, and everybody else as before.
"""

import json
import random
import socket

PATIENCE = 60  # who takes longer has found a hang
POST = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = '{"prompt": "Once", "max_tokens": 1}'
NEXT = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


def with_length(length, body=BODY, more=""):
    return f"{POST}Content-Length: {length}\r\n{more}\r\n{body}"


def chunked(text, more=""):
    return f"{POST}Transfer-Encoding: chunked\r\n{more}\r\n{text}"


CHUNK = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"
# Requests that two readers could divide in two ways: refused, and what follows is never read as a
# request.
SMUGGLING = [
    with_length(len(BODY), more=f"Content-Length: {len(BODY) - 1}\r\n"),
    with_length(f"{len(BODY)}, {len(BODY) + 1}"),
    with_length(5, body=CHUNK, more="Transfer-Encoding: chunked\r\n"),
    chunked(CHUNK, more="Content-Length: 5\r\n"),
    chunked(CHUNK, more="Transfer-Encoding: identity\r\n"),
    f"{POST}Transfer-Encoding: gzip\r\n\r\n{CHUNK}",
    f"{POST}Transfer-Encoding: xchunked\r\n\r\n{CHUNK}",
    f"{POST}Transfer-Encoding: chunked, identity\r\n\r\n{CHUNK}",
    f"{POST}Transfer-Encoding : chunked\r\n\r\n{CHUNK}",
    f"{POST}Content-Length : {len(BODY)}\r\n\r\n{BODY}",
    f"{POST} Content-Length: {len(BODY)}\r\n\r\n{BODY}",
    with_length(f"+{len(BODY)}"), with_length("-1"), with_length("0x23"), with_length("1e1"),
    with_length("18446744073709551616"), with_length(str(10**40)), with_length(""),
    with_length("3 5"), with_length("\u0663".encode().decode("latin-1")),
    chunked("ffffffffffffffff\r\n"), chunked("fffffffffffffffff\r\n" + BODY),
    chunked("-1\r\n" + BODY), chunked("0x23\r\n" + BODY + "\r\n0\r\n\r\n"),
    chunked(f"{len(BODY):x}\r\n{BODY}0\r\n\r\n"), chunked(f" {len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"),
    chunked(f"{len(BODY):x}\n{BODY}\n0\n\n"), chunked("zz\r\n"), chunked("\r\n"),
    f"{POST}X: a\r\n\tContent-Length: 3\r\n\r\n",
    f"{POST}X\x00: a\r\n\r\n", f"{POST}X: a\x00b\r\n\r\n", f"{POST}X: a\rb\r\n\r\n",
    f"{POST}X\r\n\r\n",
    f"{POST}: a\r\n\r\n", f"{POST}X y: a\r\n\r\n",
]
NONSENSE = [
    "\r\n\r\n", "\x00" * 100, "\x16\x03\x01\x02\x00" * 20, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "GET\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1.1\r\n\r\n",
    "GET  / HTTP/1.1\r\n\r\n",
    "G\x01T / HTTP/1.1\r\n\r\n", "GET /\x7f HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "get /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET /health HTTP/1.1\r\n\r\n",
    "GET /health HTTP/1.1\r\nHost: \r\n\r\n", "GET /" + "a" * 200_000 + " HTTP/1.1\r\n\r\n",
    "GET /health HTTP/1.1\r\nA: " + "b" * 200_000 + "\r\n\r\n",
    "GET /health HTTP/1.1\r\n" + "A: b\r\n" * 50_000 + "\r\n", "A" * 200_000,
    "GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", "DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    with_length(2, body="{}", more="Expect: 200-maybe\r\n"),
    with_length(len(BODY) + 1), with_length(str(33 << 20)), chunked("ffffff\r\n" + BODY),
]


def bytes_of(text):
    return text.encode("latin-1", "replace")


def say(port, data):
    """The server's answer to these bytes until it closes; nothing where it resets."""
    said = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
            one.sendall(data)
            one.shutdown(socket.SHUT_WR)
            while piece := one.recv(65536):
                said += piece
    except (ConnectionResetError, BrokenPipeError):
        pass
    return said


def statuses(said):
    """The statuses of the answers in it; a body of ours never has a line that looks like a head."""
    return [int(line.split(b" ")[1]) for line in said.split(b"\r\n") if line.startswith(b"HTTP/1.")
            and line[5:8] in (b"1.1", b"1.0")]


def mutated(draw, data):
    """The same with some bytes changed, left out, doubled or put in."""
    data = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(5)
        if kind == 0 and at < len(data):
            data[at] = draw.randrange(256)
        elif kind == 1:
            del data[at:at + draw.randint(1, 20)]
        elif kind == 2:
            data[at:at] = data[at:at + draw.randint(1, 40)]
        elif kind == 3:
            data[at:at] = draw.choice([b"\r\n", b"\n", b"\0", b":", b" ", b"\r\n\r\n", b"\xff"])
        elif at < len(data):
            data[at] ^= 1 << draw.randrange(8)
    return bytes(data) or b"\0"


def requests(port, count, seed=1):
    """How many statuses of each kind came."""
    seen = {}
    draw = random.Random(seed)
    valid = [bytes_of(with_length(len(BODY))), bytes_of(chunked(CHUNK)), bytes_of(NEXT)]
    for text in SMUGGLING:
        said = statuses(say(port, bytes_of(text + NEXT)))
        assert len(said) <= 1 and all(400 <= one < 500 or one == 501 for one in said), (text, said)
    cases = [bytes_of(text) for text in NONSENSE]
    cases += [mutated(draw, draw.choice(valid)) for _ in range(count)]
    for data in cases:
        said = say(port, data)
        for status in statuses(said):
            # 501: a method or coding that there is not; 505: another HTTP.
            assert status < 500 or status in (501, 505), (data[:300], said[:300])
            seen[status] = seen.get(status, 0) + 1
        assert said == b"" or said.startswith(b"HTTP/1."), (data[:300], said[:300])
    return seen


# --- Bodies ---

TOOL = {"type": "function", "function": {
    "name": "look", "description": "Looks", "parameters": {
        "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
ROUTES = {
    "/v1/chat/completions": {
        "model": "*", "messages": MESSAGES, "max_tokens": 2, "n": 1, "stop": ["."], "seed": 3,
        "temperature": 0.5, "top_p": 0.9, "stream": False, "logprobs": True, "top_logprobs": 2,
        "logit_bias": {"5": -1}, "response_format": {"type": "text"}, "tools": [TOOL],
        "tool_choice": "none", "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"a": 1}, "reasoning_effort": "low"},
    "/v1/chat/completions/input_tokens": {"messages": MESSAGES},
    "/v1/completions": {"prompt": ["Once", [1, 2]], "max_tokens": 2, "echo": True, "logprobs": 1,
                        "stop": "x", "grammar": 'start: "a" | "b"', "stream": True},
    "/v1/messages": {"model": "*", "max_tokens": 2, "system": [{"type": "text", "text": "Be."}],
                     "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
                     "stop_sequences": ["x"], "thinking": {"type": "disabled"}, "top_k": 5,
                     "metadata": {"user_id": "a"}},
    "/v1/messages/count_tokens": {"model": "*", "messages": MESSAGES[1:]},
    "/v1/responses": {"model": "*", "input": [{"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "Hi"}]}], "max_output_tokens": 16, "store": True,
        "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}, "include": [],
        "metadata": {"a": "b"}, "truncation": "disabled"},
    "/v1/responses/input_tokens": {"input": "Hi"},
    "/tokenize": {"content": "Hi there", "add_special": True, "with_pieces": True},
    "/detokenize": {"tokens": [1, 2, 300]},
    "/apply-template": {"messages": MESSAGES, "tools": [TOOL]},
    "/api/show": {"model": "*", "verbose": True},
    "/api/chat": {"model": "*", "messages": MESSAGES, "stream": False, "format": "json",
                  "options": {"num_predict": 2, "num_ctx": 64, "seed": 1, "stop": ["x"]},
                  "keep_alive": "5m"},
    "/api/generate": {"model": "*", "prompt": "Once", "options": {"num_predict": 2}, "raw": True},
    "/completion": {"prompt": "Once", "n_predict": 2, "n_probs": 2, "stream": True,
                    "response_fields": ["content"]},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "n_predict": 1,
                "input_extra": [{"filename": "f", "text": "t"}]},
}


def junk(draw):
    deep = None
    for _ in range(draw.choice([3, 120])):
        deep = [deep] if draw.random() < 0.5 else {"a": deep}
    return draw.choice([
        None, True, False, 0, -1, 1, 2, 0.5, -0.5, 10**9, -10**9, 2**63, 2**64, -2**63, 10**30,
        1e308, 5e-324, "", "x", "\0", "\ud800", "a" * 5000, "日本語", "-1", "1", "none", "required",
        "auto", [], {}, [None], [[]], [{}], {"": None}, {"type": "text"}, {"type": 5},
        {"type": "image_url", "image_url": "x"},
        [0] * 2000, ["x"] * 300, {str(i): i for i in range(300)}, deep])


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from places(value[index], (*path, index))


def altered(draw, value):
    """A copy in which some value is another, is missing, or is there under another name."""
    value = json.loads(json.dumps(value))
    for _ in range(draw.randint(1, 3)):
        path = draw.choice(list(places(value)))
        if not path:
            continue
        parent = value
        for key in path[:-1]:
            parent = parent[key]
        kind = draw.randrange(4)
        if kind == 0:
            del parent[path[-1]]
        elif kind == 1 and isinstance(parent, dict):
            parent[draw.choice(["", "x", "type", "role", path[-1] + "s", "\u00fc"])] = junk(draw)
        else:
            parent[path[-1]] = junk(draw)
    return value if draw.random() < 0.97 else junk(draw)


def body_of(draw, value):
    """Its bytes, and sometimes not quite."""
    text = json.dumps(altered(draw, value), ensure_ascii=draw.random() < 0.5)
    data = text.encode("utf-8", "surrogatepass")
    kind = draw.randrange(12)
    if kind == 0:
        return data[:draw.randrange(len(data) + 1)]
    if kind == 1:
        return mutated(draw, data)
    if kind == 2:
        return data + draw.choice([b" ", b"x", b"{}", b"\0", b"\xff"])
    if kind == 3 and data.startswith(b"{") and len(data) > 2:
        return data[:-1] + b', "max_tokens": 1, "max_tokens": 2}'  # a name twice
    return data


def bodies(server, count, seed=1, routes=None):
    """How many statuses of each kind came. Only what nobody can serve at all is 501."""
    seen = {}
    draw = random.Random(seed)
    names = sorted(routes or ROUTES)
    for number in range(count):
        path = names[number % len(names)]
        data = body_of(draw, ROUTES[path])
        connection = server.connect(timeout=PATIENCE)
        try:
            connection.request("POST", path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        status = answer.status
        assert status < 500 or status == 501, (path, data[:2000], status, text[:500])
        if status >= 400:
            said = json.loads(text)
            error = said["error"]
            message = error if isinstance(error, str) else error["message"]
            assert message, (path, data[:2000], text)
        seen[status] = seen.get(status, 0) + 1
    return seen
