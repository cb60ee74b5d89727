#!/usr/bin/env python3
"""The answers that a page needs beside texts, over HTTP with keys: telemetry, routes, traces with
their replay, forecasts, options, the log, and chats that survive a restart.

    tests/serve/watch_test.py MOEFLUX
"""

import json
import sys
import tempfile

from server import Server, question

KEYS = ("--api-key", "anna", "--api-key", "bert", "--admin-key", "root")


class Client:
    """Requests with one key."""

    def __init__(self, server, key):
        self.server = server
        self.key = key

    def send(self, method, path, body=None):
        connection = self.server.connect()
        headers = {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection, connection.getresponse()

    def ask(self, method, path, body=None):
        connection, answer = self.send(method, "/v1/moeflux" + path, body)
        text = answer.read().decode()
        connection.close()
        return answer.status, json.loads(text) if text.startswith("{") else text

    def json(self, path):
        status, answer = self.ask("GET", path)
        assert status == 200, (path, status, answer)
        return answer

    def chat(self, **fields):
        connection, answer = self.send("POST", "/v1/chat/completions", {
            "messages": question("Once upon a time"), "max_tokens": 12, "seed": 7, **fields})
        text = json.loads(answer.read())
        connection.close()
        assert answer.status == 200, text
        return text

    def frames(self, path, count):
        connection, answer = self.send("GET", "/v1/moeflux" + path)
        frames = []
        while len(frames) < count:
            line = answer.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                frames.append(json.loads(line[6:]))
        connection.close()
        return frames


def telemetry_is_for_all_and_places_for_few(anna, root):
    frames = root.frames("/telemetry", 3)
    tiers = frames[0]["tiers"]
    whole = frames[0]["residency"]
    assert whole["whole"] and tiers["memory"] + tiers["drive"] + tiers["gpu"] > 0, frames
    assert len(whole["layers"]) == len(root.json("/experts")["layers"]), whole
    assert all("residency" not in frame for frame in frames[1:]), "nothing computes"
    for frame in anna.frames("/telemetry", 2):
        assert frame["tiers"] == tiers and "residency" not in frame and "used" not in frame, frame
    assert anna.ask("GET", "/experts")[0] == 403
    assert anna.json("/features")["admin"] is False
    assert root.json("/features") == {"admin": True, "residency": True, "chats": True, "mcp": False,
                                      "planner": True, "version": root.json("/features")["version"]}


def places_come_of_a_model_that_loads_later(program, folder):
    with Server(program, context=256, model=None, template=None, home=folder) as server:
        connection = server.connect()
        connection.request("GET", "/v1/moeflux/telemetry")
        answer = connection.getresponse()
        frames = (json.loads(line[6:]) for line in answer if line.startswith(b"data: "))
        first = next(frames)
        assert first["tiers"] is None, first
        # It ends within a frame's time, and the model is idle then.
        status, text = server.ask("/v1/completions", {"prompt": "Once", "max_tokens": 1})
        assert status == 200, text
        later = [next(frames) for _ in range(8)]
        assert any(frame["tiers"] and "residency" in frame for frame in later), later
        connection.close()
        assert server.stop() == 0


def admin_paths_are_for_admins(anna, root):
    for path in ("/plan", "/options", "/log", "/trace", "/trace/csv", "/trace/replay"):
        status, answer = anna.ask("GET", path)
        assert status == 403 and "--admin-key" in answer["error"]["message"], (path, answer)
    options = {one["name"]: one for one in root.json("/options")["options"]}
    assert options["--ctx-size"] == {"name": "--ctx-size", "value": "256", "given": True}, options
    assert "--api-key" not in options and "--admin-key" not in options
    assert "anna" not in json.dumps(options) and "root" not in json.dumps(options)
    assert root.json("/plan")["experts_bytes"] > 0
    lines = [frame["line"] for frame in root.frames("/log", 5)]
    assert any("GET /v1/moeflux/features 200" in line for line in lines), lines


def routes_are_their_owners(anna, bert, root):
    plain = anna.chat()
    answer = anna.chat(return_routes=True)
    assert answer["choices"][0]["message"] == plain["choices"][0]["message"]
    path = "/routes/" + answer["moeflux"]["routes"]
    routes = anna.json(path)
    assert len(routes["tokens"]) >= answer["usage"]["completion_tokens"] - 1, routes
    token = anna.json(path + "?token=0")
    assert [one["layer"] for one in token["layers"]] == routes["layers"], token
    assert bert.ask("GET", path)[0] == 404 and root.ask("GET", path)[0] == 404


def traces_are_replayed(bert, root):
    assert root.ask("POST", "/trace", {})[1]["recording"]
    bert.chat()
    assert root.ask("DELETE", "/trace")[1]["available"]
    status, text = root.ask("GET", "/trace/csv")
    assert status == 200 and text.startswith("# route_trace v1\n"), text[:100]
    plot = root.json("/trace/replay?points=4")
    rates = [point["hit_rate"] for point in plot["points"]]
    assert len(rates) == 4 and rates == sorted(rates), plot
    assert plot["points"][3]["bytes"] == plot["slot_bytes"] * plot["points"][3]["slots"]
    assert root.ask("GET", "/trace/replay?points=1000")[0] == 400


def forecasts_measure_nothing(anna):
    names = anna.json("/forecast")["like"]
    assert "qwen3-30b-a3b" in names, names
    machine = {"like": "qwen3-30b-a3b", "ram_bytes": 16 << 30, "drive_gb_s": 3}
    status, plan = anna.ask("POST", "/forecast", machine)
    assert status == 200 and plan["decode"]["natural_low"]["tokens_per_second"] > 0, plan
    assert "measured" not in json.dumps(plan), plan
    status, plan = anna.ask("POST", "/forecast", {**machine, "vram_bytes": 12 << 30})
    assert status == 200 and "measured" not in json.dumps(plan), plan
    status, plan = anna.ask("POST", "/forecast", {"ram_bytes": 1 << 30})
    assert status == 200 and plan["memory"]["fits"], plan
    for wrong in ({}, {"ram_bytes": "8G"}, {**machine, "like": "nothing"},
                  {**machine, "like": "../../etc/passwd"}, {**machine, "drive_gb_s": 0}):
        status, answer = anna.ask("POST", "/forecast", wrong)
        assert status in (400, 404), (wrong, status, answer)
    assert anna.json("/model")["experts"] > 0


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        arguments = (*KEYS, "--states", folder, "--keep-chats")
        chat = {"title": "mine", "messages": [{"role": "user", "content": "\u00e9"}]}
        with Server(program, *arguments, context=256) as server:
            anna, bert, root = (Client(server, key) for key in ("anna", "bert", "root"))
            telemetry_is_for_all_and_places_for_few(anna, root)
            routes_are_their_owners(anna, bert, root)
            admin_paths_are_for_admins(anna, root)
            traces_are_replayed(bert, root)
            forecasts_measure_nothing(anna)
            assert anna.ask("POST", "/chats/one", chat)[0] == 200
            assert bert.ask("POST", "/chats/two", {})[0] == 200
            assert server.ask("/v1/moeflux/features")[0] == 401
            assert server.stop() == 0
        with Server(program, *arguments, context=256) as server:
            anna, bert = Client(server, "anna"), Client(server, "bert")
            assert anna.json("/chats/one") == chat, anna.json("/chats/one")
            assert [one["id"] for one in anna.json("/chats")["chats"]] == ["one"]
            assert bert.ask("GET", "/chats/one")[0] == 404
            assert bert.json("/chats/two") == {}
            assert anna.ask("DELETE", "/chats/one")[0] == 200
            assert anna.ask("GET", "/chats/one")[0] == 404
            assert server.stop() == 0
        places_come_of_a_model_that_loads_later(program, folder)
    print("watch: ok")


if __name__ == "__main__":
    main()
