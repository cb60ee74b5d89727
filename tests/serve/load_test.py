#!/usr/bin/env python3
"""Clients that come in crowds, leave, read slowly and talk nonsense: nobody else's answer changes.

    tests/serve/load_test.py MOEFLUX

MOEFLUX_TEST_SERVE_REQUESTS says over how many requests memory has to stay level (default 600).
"""

import concurrent.futures
import http.client
import json
import os
import socket
import sys
import time

from server import Server, question, text_of

REQUESTS = int(os.environ.get("MOEFLUX_TEST_SERVE_REQUESTS", "600"))
TOKENS = 12


def stream(server, text, leave_after=None, pause=0.0):
    """The text of a streamed answer; None for a client that leaves after so many bytes."""
    connection = server.connect()
    body = {"messages": question(text), "max_tokens": TOKENS, "seed": 5, "stream": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise AssertionError(f"{answer.status}: {answer.read()}")
    if leave_after is not None:
        answer.read(leave_after)
        connection.sock.close() if connection.sock else None
        answer.close()
        connection.close()
        return None
    data = b""
    while piece := answer.read1(200):
        data += piece
        time.sleep(pause)
    connection.close()
    frames = data.decode().split("\n\n")
    if frames[-2:] != ["data: [DONE]", ""]:
        raise AssertionError(f"the stream ends with {frames[-2:]}")
    parts = [json.loads(frame[6:]) for frame in frames[:-2] if frame.startswith("data: ")]
    return "".join(part["choices"][0]["delta"].get("content") or "" for part in parts)


def kinds():
    """Requests that are told, held and ended in different ways."""
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}},
              "required": ["name"], "additionalProperties": False}
    for i, fields in enumerate((
            {}, {"n": 3}, {"stop": ["e", "a "]}, {"temperature": 0},
            {"logprobs": True, "top_logprobs": 3}, {"repeat_penalty": 1.3, "top_k": 20},
            {"response_format": {"type": "json_schema",
                                 "json_schema": {"name": "n", "schema": schema, "strict": True}}},
            {"regex": "[a-c]{3,9}!"})):
        yield "/v1/chat/completions", {"messages": question(f"Tell me {i}"), "max_tokens": 24,
                                       "seed": 3, **fields}
    yield "/v1/completions", {"prompt": "Once upon a time there was a", "echo": True,
                              "logprobs": 2, "max_tokens": 5, "seed": 4}
    yield "/v1/messages", {"model": "x", "messages": question("Tell me"), "max_tokens": 20,
                           "stop_sequences": ["e"], "seed": 3}
    yield "/v1/responses", {"input": "Tell me", "max_output_tokens": 20, "seed": 3}
    yield "/api/chat", {"messages": question("Tell me"), "stream": False,
                        "options": {"num_predict": 20, "seed": 3}}
    yield "/api/generate", {"prompt": "Tell me", "stream": False, "format": "json",
                            "options": {"num_predict": 20, "seed": 3}}


def said(text):
    """The text of an answer of any interface, without ids and times."""
    answer = json.loads(text)
    if "output" in answer:
        return [part["text"] for item in answer["output"] for part in item["content"]]
    return [answer.get(name) for name in ("choices", "content", "message", "response", "error")]


def answers(server, requests):
    """The answers to each, asked at once."""
    def ask(request):
        status, text = server.ask(*request)
        return status, said(text)

    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(ask, requests))


def company(program):
    """Each has the bytes that it has alone, whoever shares its steps, leaves or gives way."""
    requests = list(kinds())
    with Server(program, "--alias", "*") as server:
        alone = [answers(server, [request])[0] for request in requests]
    assert [status for status, _ in alone if status not in (200, 400)] == []
    for share in ("steps", "slices"):
        with Server(program, "--alias", "*", "--parallel", "16", "--share", share) as server:
            with concurrent.futures.ThreadPoolExecutor(8) as leaving:
                gone = [leaving.submit(stream, server, f"Leave {i}", 400) for i in range(8)]
                assert answers(server, requests * 2) == alone * 2, share
                for job in gone:
                    job.result()
    print(f"{len(requests)} kinds of answers, twice at once and as they are alone")


def raw(server, data, timeout=5):
    """The server's answer to bytes that are not a request, until it closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as one:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        said = b""
        while piece := one.recv(4096):
            said += piece
        return said


def crowd(server, alone):
    """200 connections at once, half of which leave in mid-stream, some reading slowly."""
    names = list(alone)
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        jobs = []
        for i in range(200):
            name = names[i % len(names)]
            leave = 300 if i % 2 else None
            pause = 0.02 if i % 20 == 0 else 0.0
            jobs.append((name, leave, pool.submit(stream, server, name, leave, pause)))
        kept = 0
        for name, leave, job in jobs:
            text = job.result(timeout=120)
            if leave is None:
                kept += 1
                assert text == alone[name], (name, text, alone[name])
    assert kept == 100
    print("200 connections: 100 answers as without load")


def nonsense(server):
    cases = [b"\x00\xff\x16\x03\x01" * 50, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
             b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
             b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
             b"Content-Type: application/json\r\n\r\nzz\r\n",
             b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 100000,
             b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"]
    for case in cases:
        try:
            said = raw(server, case)
        except (ConnectionResetError, BrokenPipeError):
            continue
        assert said == b"" or said.startswith(b"HTTP/1.1 4"), said[:100]
    assert server.ask("/health")[0] == 200
    print(f"{len(cases)} kinds of nonsense")


def large(server):
    """Bodies up to 32 MiB are read, larger ones refused by their announced length."""
    filler = "x" * (31 << 20)
    status, text = server.ask("/v1/completions",
                              {"prompt": "Once", "max_tokens": 1, "user": filler})
    assert status == 200, (status, text[:200])
    connection = server.connect()
    connection.putrequest("POST", "/v1/completions")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str((32 << 20) + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    print("bodies of 31 MiB and of too much")


def waiting(server):
    """64 wait beside those that run, and the next is told to come again."""
    with concurrent.futures.ThreadPoolExecutor(120) as pool:
        body = {"prompt": "Once", "max_tokens": 600, "ignore_eos": True, "stream": True}

        def hold():
            connection = server.connect()
            connection.request("POST", "/v1/completions", json.dumps(body),
                               {"Content-Type": "application/json"})
            return connection, connection.getresponse()

        held = [job.result() for job in [pool.submit(hold) for _ in range(100)]]
    codes = [answer.status for _, answer in held]
    assert set(codes) == {200, 429} and codes.count(200) >= 68, codes
    refused = next(answer for _, answer in held if answer.status == 429)
    assert refused.getheader("Retry-After") == "1"
    for connection, answer in held:
        answer.close()
        connection.close()
    deadline = time.monotonic() + 60
    while any(slot["is_processing"] for slot in json.loads(server.ask("/slots")[1])):
        assert time.monotonic() < deadline, "clients that left still compute"
        time.sleep(0.05)
    print(f"a queue of {codes.count(200)}, {codes.count(429)} told to come again")


def level(server):
    """Memory and threads stay where they are."""

    def ask(i):
        try:
            return server.ask("/v1/completions",
                              {"prompt": f"Once {i % 50}", "max_tokens": 1 + i % 3})[0]
        except http.client.HTTPException:
            return None

    def run(count):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert set(pool.map(ask, range(count))) == {200}

    run(max(REQUESTS // 3, 200))
    before, threads = server.resident_bytes(), server.threads()
    run(REQUESTS)
    after = server.resident_bytes()
    assert after < before * 1.05 + (8 << 20), (before, after)
    assert server.threads() == threads
    print(f"{REQUESTS} requests: {before >> 10} KiB before, {after >> 10} KiB after")


def main():
    with Server(sys.argv[1]) as server:
        alone = {}
        for i in range(10):
            name = f"Tell me story {i}"
            alone[name] = text_of(server.chat(question(name), max_tokens=TOKENS, seed=5))
    company(sys.argv[1])
    with Server(sys.argv[1], "--parallel", "4", "--queue", "256") as server:
        crowd(server, alone)
        nonsense(server)
        large(server)
        level(server)
        again = {name: text_of(server.chat(question(name), max_tokens=TOKENS, seed=5))
                 for name in alone}
        assert again == alone
        assert server.stop() == 0
    with Server(sys.argv[1]) as server:
        waiting(server)
        assert server.stop() == 0


if __name__ == "__main__":
    main()
