#!/usr/bin/env python3
"""Stored responses are there, and clients are told if not: after kills, with damaged files, on full
drives, in removed folders, with two servers on one folder, after clocks that went back, after
deletions. Each is there for the key that stored it alone.

    tests/serve/kept_test.py MOEFLUX

MOEFLUX_TEST_KEPT_ROUNDS says how often (3): from 50 on every bit of a kept file is turned.
"""

import http.client
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

from server import Server, question, text_of

ROUNDS = int(os.environ.get("MOEFLUX_TEST_KEPT_ROUNDS", "3"))
CONVERSATIONS = "/v1/moeflux/conversations/"


def ask(server, method, path, body=None, key=None):
    """Status and JSON of one answer."""
    connection = server.connect()
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if key:
        headers["x-api-key"] = key
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, json.loads(text)


def turn(server, name, text="Go on", **fields):
    """An answer in a saved conversation."""
    body = {"messages": question(text), "conversation": name, "max_tokens": 3, **fields}
    return ask(server, "POST", "/v1/chat/completions", body)


def respond(server, **fields):
    """A response that is to be kept."""
    return ask(server, "POST", "/v1/responses", {"input": "Once", "max_output_tokens": 3, **fields})


def save(server, name, messages=()):
    """Saves a conversation."""
    status, body = ask(server, "POST", CONVERSATIONS + name, {"messages": list(messages)})
    assert status == 200, (status, body)


def messages_of(server, name):
    """The messages of a saved conversation; nothing where there is none."""
    status, body = ask(server, "GET", CONVERSATIONS + name)
    assert status in (200, 404), (status, body)
    return body["messages"] if status == 200 else None


def work(server, rng, told):
    """Keeps and deletes until the server is gone. `told` is what was acknowledged."""
    try:
        while True:
            name = f"talk{rng.randrange(3)}"
            what = rng.randrange(6)
            if what == 0:
                told["responses"].append(respond(server)[1])
            elif (what == 1 and told["talks"].get(name)) or len(told["talks"].get(name) or []) > 40:
                told["open"] = name
                if ask(server, "DELETE", CONVERSATIONS + name)[0] == 200:
                    told["talks"][name] = None
            elif told["talks"].get(name) is None:
                told["open"] = name
                save(server, name)
                told["talks"][name] = []
            else:
                told["open"] = name
                status, body = turn(server, name)
                assert status == 200, (status, body)
                answer = body["choices"][0]["message"]["content"]
                told["talks"][name] += question("Go on") + [
                    {"role": "assistant", "content": answer}]
            told["open"] = None
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        pass
    except AssertionError as error:
        told["wrong"] = error


def kills(program, rng):
    """A change that was acknowledged outlives a kill; one under way has happened or not."""
    with tempfile.TemporaryDirectory() as folder:
        told = {"talks": {}, "responses": [], "open": None}
        for _ in range(ROUNDS):
            with Server(program, "--states", os.path.join(folder, "states")) as server:
                worker = threading.Thread(target=work, args=(server, rng, told))
                worker.start()
                time.sleep(rng.uniform(0.2, 1.5))
                server.kill()
                worker.join()
                assert "wrong" not in told, told["wrong"]
            with Server(program, "--states", os.path.join(folder, "states")) as server:
                for name, expected in told["talks"].items():
                    found = messages_of(server, name)
                    if name == told["open"]:
                        is_next = found is None or found[:len(expected or [])] == (expected or [])
                        assert is_next, (name, found, expected)
                        told["talks"][name] = found
                    else:
                        assert found == expected, (name, found, expected)
                if told["open"] and told["open"] not in told["talks"]:
                    told["talks"][told["open"]] = messages_of(server, told["open"])
                for response in told["responses"]:
                    status, found = ask(server, "GET", f"/v1/responses/{response['id']}")
                    assert (status, found) == (200, response), (status, found, response)
                told["open"] = None
        kept = sum(len(talk or []) for talk in told["talks"].values())
        print(f"{ROUNDS} kills: {len(told['responses'])} responses and {kept} messages are there")


def damage(program, rng):
    """No turned bit is told of as what was kept."""
    with tempfile.TemporaryDirectory() as folder, \
            Server(program, "--states", os.path.join(folder, "states")) as server:
        # Each damaged file is named there, and nobody may wait for a pipe that is full.
        threading.Thread(target=server.process.stderr.read, daemon=True).start()
        said = question("I owe you 100 apples")
        save(server, "talk", said)
        response = respond(server)[1]
        paths = {"conversations/talk.json": CONVERSATIONS + "talk",
                 f"responses/{response['id']}.json": f"/v1/responses/{response['id']}"}
        turned = refused = 0
        for file, path in paths.items():
            file = os.path.join(folder, "states", file)
            with open(file, "rb") as kept:
                good = kept.read()
            right = ask(server, "GET", path)
            assert right[0] == 200, right
            bits = range(8 * len(good))
            for bit in bits if ROUNDS >= 50 else rng.sample(bits, 100):
                bad = bytearray(good)
                bad[bit // 8] ^= 1 << bit % 8
                with open(file, "wb") as kept:
                    kept.write(bad)
                got = ask(server, "GET", path)
                assert got[0] == 404 or got == right, (bit, got)
                turned += 1
                refused += got[0] == 404
            with open(file, "wb") as kept:
                kept.write(good)
            assert ask(server, "GET", path) == right
        assert refused > turned * 0.8, (refused, turned)
        print(f"damage: {refused} of {turned} turned bits refused, the others are the true text")


def states(program, rng):
    """A state with a turned bit is not used: the text is the one without it."""
    asked = question("Once upon a time there was a fox who lived in the forest. " * 3)
    with tempfile.TemporaryDirectory() as folder:
        arguments = ("--states", os.path.join(folder, "states"))

        def answer():
            with Server(program, *arguments) as server:
                body = server.chat(asked, max_tokens=8, seed=9)
                assert server.stop() == 0
            return text_of(body), body["usage"]["prompt_tokens_details"]["cached_tokens"]

        right, _ = answer()
        again, cached = answer()
        assert again == right and cached > 0, (again, right, cached)
        files = [os.path.join(root, name) for root, _, names in os.walk(folder)
                 for name in names if name.endswith(".snapshot")]
        good = {}
        for path in files:
            with open(path, "rb") as file:
                good[path] = file.read()
        for _ in range(ROUNDS):
            for path, content in good.items():
                bad = bytearray(content)
                bit = rng.randrange(8 * len(bad))
                bad[bit // 8] ^= 1 << bit % 8
                with open(path, "wb") as file:
                    file.write(bad)
            again, cached = answer()
            assert again == right and cached == 0, (again, right, cached)
        print(f"states: {ROUNDS} times {len(files)} with a turned bit, and none was used")


def expect_told(server, name, before):
    """Neither a turn nor a response can be kept, and both say so."""
    status, body = turn(server, name, "x" * 300)
    assert status >= 400 and "error" in body, (status, body)
    assert "/states" not in json.dumps(body), body
    _, stream = server.ask("/v1/chat/completions", {
        "messages": question("x" * 300), "conversation": name, "max_tokens": 3, "stream": True})
    assert '"error"' in stream, stream
    assert messages_of(server, name) in (before, None)
    status, body = respond(server, input="x" * 300)
    if status == 200:
        assert body["store"] is False and body["output"][0]["content"][0]["text"], body
        assert ask(server, "GET", f"/v1/responses/{body['id']}")[0] == 404


def small_files():
    """A drive that takes no more of a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (250, 250))


def full(program):
    """A drive that takes nothing, and a folder that is gone."""
    with tempfile.TemporaryDirectory() as folder:
        states = os.path.join(folder, "states")
        with Server(program, "--states", states, preexec_fn=small_files) as server:
            save(server, "talk")
            expect_told(server, "talk", [])
        with Server(program, "--states", states) as server:
            assert turn(server, "talk")[0] == 200
            os.rename(states, states + ".gone")
            expect_told(server, "talk", None)
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder]
        if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
            print("a limit of files and a removed folder are told of; no tmpfs may be mounted here")
            return
        try:
            with Server(program, "--states", os.path.join(folder, "states")) as server:
                save(server, "talk")
                filler = os.open(os.path.join(folder, "filler"), os.O_WRONLY | os.O_CREAT)
                try:
                    while os.write(filler, bytes(512)):
                        pass
                except OSError:
                    os.close(filler)
                expect_told(server, "talk", [])
        finally:
            subprocess.run(["umount", "-l", folder], check=False)
    print("a full drive and a removed folder are told of")


def two_servers(program):
    """Every turn that was answered is there, whichever server answered it."""
    with tempfile.TemporaryDirectory() as folder:
        states = os.path.join(folder, "states")
        with Server(program, "--states", states) as one, Server(program, "--states", states) as two:
            answered = 0
            for number in range(ROUNDS):
                name = f"talk{number}"
                save(one, name)
                statuses = []

                def ask_often(server, name=name, statuses=statuses):
                    for _ in range(10):
                        statuses.append(turn(server, name)[0])

                askers = [threading.Thread(target=ask_often, args=(server,))
                          for server in (one, two)]
                for asker in askers:
                    asker.start()
                for asker in askers:
                    asker.join()
                assert set(statuses) <= {200, 409}, statuses
                count = statuses.count(200)
                assert len(messages_of(one, name)) == 2 * count, (statuses, count)
                answered += count
            print(f"two servers: {answered} turns of {20 * ROUNDS} answered, and all there")


def clocks(program):
    """Responses are there although those before them are from a later time."""
    for ahead in (1800, 3 * 86400):
        with tempfile.TemporaryDirectory() as folder:
            responses = os.path.join(folder, "states", "responses")
            os.makedirs(responses)
            for i in range(4096):
                path = os.path.join(responses, f"resp_{i}.json")
                with open(path, "w", encoding="ascii") as file:
                    file.write('{"version":1,"earlier":[],"input":[],'
                               f'"response":{{"id":"resp_{i}","output":[]}}}}\n')
                os.utime(path, (time.time() + ahead, time.time() + ahead))
            with Server(program, "--states", os.path.join(folder, "states")) as server:
                for _ in range(ROUNDS):
                    status, body = respond(server)
                    assert status == 200, body
                    got = ask(server, "GET", f"/v1/responses/{body['id']}")
                    assert got[0] == 200, (ahead, got)
            assert len(os.listdir(responses)) == 4096
    print("clocks that go back lose no new response")


def deletions(program):
    """A conversation that is deleted while it is answered stays away."""
    with tempfile.TemporaryDirectory() as folder:
        states = os.path.join(folder, "states")
        for _ in range(ROUNDS):
            with Server(program, "--states", states) as server:
                save(server, "talk")
                answers = []
                asker = threading.Thread(
                    target=lambda: answers.append(turn(server, "talk", max_tokens=400,
                                                       ignore_eos=True)))
                asker.start()
                time.sleep(0.3)
                status, body = ask(server, "DELETE", CONVERSATIONS + "talk")
                assert status == 200, (status, body)
                assert messages_of(server, "talk") is None
                asker.join()
                assert answers[0][0] in (200, 409), answers  # it may have ended before
                assert messages_of(server, "talk") is None
                server.kill()
            with Server(program, "--states", states) as server:
                assert messages_of(server, "talk") is None
    print("what was deleted stays away")


def keys(program):
    """The responses of a key are unknown to others."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ("--states", os.path.join(folder, "states"))
        with_keys = (*arguments, "--api-key", "one", "--api-key", "two")
        with Server(program, *with_keys) as server:
            path = CONVERSATIONS + "talk"
            assert ask(server, "POST", path, {"messages": question("mine")}, "one")[0] == 200
            body = ask(server, "POST", "/v1/responses",
                       {"input": "Once", "max_output_tokens": 2}, "one")[1]
            response = f"/v1/responses/{body['id']}"
            for method in ("GET", "DELETE"):
                assert ask(server, method, path, key="two")[0] == 404
                assert ask(server, method, response, key="two")[0] == 404
        with Server(program, *with_keys) as server:
            assert ask(server, "GET", path, key="one")[0] == 200
            assert ask(server, "GET", response, key="one")[0] == 200
        with Server(program, *arguments) as server:
            assert ask(server, "GET", path)[0] == 404
            assert ask(server, "GET", response)[0] == 404
    print("each key has its own")


def main():
    rng = random.Random(38)
    program = sys.argv[1]
    kills(program, rng)
    damage(program, rng)
    states(program, rng)
    full(program)
    two_servers(program)
    clocks(program)
    deletions(program)
    keys(program)


if __name__ == "__main__":
    main()
