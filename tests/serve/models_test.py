#!/usr/bin/env python3
"""Several models in one server: each answers as a server of it alone does, within one bound of
memory, and no request is lost while another model loads.

    tests/serve/models_test.py MOEFLUX
"""

import concurrent.futures
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading

from server import MODEL, Server

PROMPTS = ["Once upon a time", "The king had", "In the forest", "A wolf came", "She said"]
REQUESTS = 200
CLIENTS = 8
# Pages that allocators and the system's libraries keep beside what the bound counts.
SLACK = 48 << 20


def make_models(program, home):
    """Two models where LM Studio has its own, of the embedded one in other formats."""
    folder = os.path.join(home, ".lmstudio", "models", "tests")
    os.makedirs(folder)
    for name, kind in (("eight", "affine-8"), ("mx", "mxfp4")):
        subprocess.run([program, "quantize", "-m", MODEL, "-o", os.path.join(folder, name),
                        "--type", kind, "-q"], check=True, timeout=300)
    return {"fable-20m": MODEL, "tests/eight": os.path.join(folder, "eight"),
            "tests/mx": os.path.join(folder, "mx")}


def body_of(prompt):
    return {"prompt": prompt, "max_tokens": 8, "seed": 7}


def alone(program, models):
    """The answers of servers of one model."""
    expected = {}
    for name, folder in models.items():
        with Server(program, model=folder, context=256, template=None) as server:
            for prompt in PROMPTS:
                status, text = server.ask("/v1/completions", body_of(prompt))
                assert status == 200, text
                expected[name, prompt] = json.loads(text)["choices"][0]["text"]
    assert len({expected[name, PROMPTS[0]] for name in models}) > 1, expected
    return expected


def loaded_bytes(server):
    """The bytes that the server says its first load takes."""
    for line in server.process.stderr:
        found = re.search(r" is loaded: ([\d.]+) MiB", line)
        if found:
            return float(found[1]) * (1 << 20)
    raise AssertionError("the server ended")


def answers_like_servers_of_one_model(program, home, models):
    """200 requests in a random order, of which two models at most have room."""
    expected = alone(program, models)
    with Server(program, "--memory", "64M", model=None, context=256, template=None,
                home=home) as server:
        assert server.ask("/v1/completions", {"model": "tests/mx", **body_of("a")})[0] == 200
        bound = int(2.4 * loaded_bytes(server))
    order = [(random.Random(i).choice(list(models)), PROMPTS[i % len(PROMPTS)])
             for i in range(REQUESTS)]
    with Server(program, "--memory", str(bound), model=None, context=256, template=None,
                home=home) as server:
        drain = threading.Thread(target=server.process.stderr.read)
        drain.start()
        before = server.resident_bytes()
        most = before

        def ask(job):
            name, prompt = job
            status, text = server.ask("/v1/completions", {"model": name, **body_of(prompt)})
            return status, text, server.resident_bytes()

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            for job, (status, text, resident) in zip(order, clients.map(ask, order)):
                assert status == 200, (job, text)
                assert json.loads(text)["choices"][0]["text"] == expected[job], (job, text)
                most = max(most, resident)
        assert most - before <= bound + SLACK, (most - before, bound)
        listed = json.loads(server.ask("/v1/models")[1])["data"]
        states = {one["id"]: one["status"]["value"] for one in listed}
        assert set(models) <= set(states), states
        assert list(states.values()).count("loaded") < len(models), states
        assert server.stop() == 0
        drain.join()


def refuses_what_is_no_model(program, home, _):
    """Names are never places of files, whatever protocol they come by."""
    with Server(program, model=None, template=None, home=home) as server:
        for name in ("..", "../../etc", MODEL, "/etc/passwd", "a\nb", "\x01", "nobody/nothing"):
            for path in ("/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/responses"):
                status, text = server.ask(path, {"model": name, "messages": [], "input": "x"})
                assert status == 404, (path, name, text)
                assert "error" in json.loads(text), text
        assert server.ask("/api/pull", {"model": "org/name"})[0] == 403
        assert server.ask("/api/ps")[1] == '{"models":[]}', server.ask("/api/ps")


def serves_presets(program, home, models):
    """A section [model.NAME] is a model with options of its own."""
    path = os.path.join(home, "config.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'[model.calm]\nmodel = "{models["tests/mx"]}"\ntemp = 0\nctx-size = 128\n'
                   '[model."gone: away"]\nmodel = "/nowhere/at/all"\n')
    with Server(program, "--config", path, model=None, template=None, home=home) as server:
        texts = {server.ask("/v1/completions", {"model": "calm", "prompt": "Once", "max_tokens": 6,
                                                "seed": seed})[1] for seed in (1, 2)}
        assert len({json.loads(text)["choices"][0]["text"] for text in texts}) == 1, texts
        calm = json.loads(server.ask("/v1/models/calm")[1])
        assert calm["meta"]["n_ctx"] == 128, calm
        status, text = server.ask("/v1/completions", {"model": "gone: away", "prompt": "x"})
        assert status >= 500 and "cannot be loaded" in text, text
        assert server.ask("/v1/completions", {"model": "calm", "prompt": "x"})[0] == 200
    with open(path, "w", encoding="utf-8") as file:
        file.write('[model.bad]\nmodel = "x"\nport = 1\n')
    done = subprocess.run([program, "serve", "--config", path, "--port", "0"], capture_output=True,
                          text=True, check=False, timeout=60)
    assert done.returncode != 0 and f"{path}:3: port" in done.stderr, done


def main():
    with tempfile.TemporaryDirectory() as home:
        models = make_models(sys.argv[1], home)
        for check in (answers_like_servers_of_one_model, refuses_what_is_no_model, serves_presets):
            check(sys.argv[1], home, models)
            print(f"{check.__name__}: as expected")


if __name__ == "__main__":
    main()
