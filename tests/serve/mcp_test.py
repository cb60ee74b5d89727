#!/usr/bin/env python3
"""Tools of MCP servers through `moeflux serve --mcp`: against one that behaves, and against ones
that are huge, slow, redirect, or do not speak the protocol.

    tests/serve/mcp_test.py MOEFLUX
"""

import http.server
import json
import sys
import threading
import time

from server import Server

TOOLS = [{"name": "add", "description": "Adds", "inputSchema": {"type": "object"}},
         {"name": ""}, {"name": "x" * 200}, 7]


class Tools(http.server.BaseHTTPRequestHandler):
    """A server of tools; the path says how it misbehaves."""

    protocol_version = "HTTP/1.1"
    seen = []  # headers of all requests, by path
    over = threading.Event()  # of the test, which ends held streams

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def do_GET(self):
        Tools.seen.append(("GET", self.path, dict(self.headers)))
        self.answer(200, b"{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Tools.seen.append(("POST", self.path, dict(self.headers)))
        kind = self.path.strip("/")
        if kind == "redirects":
            port = self.server.server_port
            return self.answer(307, b"", Location=f"http://127.0.0.1:{port}/good")
        if kind == "huge":
            return self.answer(200, b"[" + b" " * (8 << 20))
        if kind == "silent":
            time.sleep(3)
            return self.answer(500, b"")
        if kind == "bad":
            return self.answer(200, b'{"jsonrpc": "2.0", "id": 1, "result": {')
        if kind == "deep":
            return self.answer(200, b"[" * 10000)
        if "id" not in body:
            return self.answer(202, b"")
        if kind == "ids":
            return self.reply(body["id"] + 1, {"tools": TOOLS})
        if kind == "error":
            return self.answer(200, json.dumps({"jsonrpc": "2.0", "id": body["id"], "error": {
                "code": -1, "message": "<script>no</script>"}}).encode())
        method = body["method"]
        if method == "initialize":
            return self.reply(body["id"], {"protocolVersion": "2025-03-26"},
                              Mcp_Session_Id="session-1")
        if self.headers["Mcp-Session-Id"] != "session-1":
            return self.answer(404, b"")
        if method == "tools/list":
            return self.reply(body["id"], {"tools": TOOLS})
        name = body["params"]["name"]
        if name == "add":
            total = body["params"]["arguments"]["a"] + body["params"]["arguments"]["b"]
            return self.reply(body["id"], {"content": [{"type": "text", "text": str(total)}]})
        if name == "image":
            return self.reply(body["id"], {"content": [
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                {"type": "text", "text": "seen"}], "structuredContent": {"x": 1}})
        if name == "long":
            return self.reply(body["id"], {"content": [
                {"type": "text", "text": "\u00e9" * (150 << 10)}]})
        return self.reply(body["id"], {"isError": True,
                                       "content": [{"type": "text", "text": "no such tool"}]})

    def reply(self, number, result, **headers):
        message = json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
        if self.path == "/events":
            note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
            text = f"event: message\ndata: {note}\n\ndata: {message}\n\n"
            return self.answer(200, text.encode(), "text/event-stream", **headers)
        if self.path == "/held":
            return self.hold(f"data: {message}\r\n\r\n".encode(), **headers)
        return self.answer(200, message.encode(), **headers)


    def hold(self, event, **headers):
        """A stream without an end, whose event comes in two pieces."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.close_connection = True
        self.wfile.write(b": waits\n\n" + event[:20])
        time.sleep(0.05)
        self.wfile.write(event[20:])
        Tools.over.wait(60)


def call(server, name, tool, arguments=None, key="secret"):
    connection = server.connect()
    connection.request("POST", "/v1/moeflux/mcp", json.dumps(
        {"server": name, "tool": tool, "arguments": arguments or {}}),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    text = json.loads(answer.read())
    connection.close()
    return answer.status, text


def listed(server):
    connection = server.connect()
    connection.request("GET", "/v1/moeflux/mcp", headers={"Authorization": "Bearer secret"})
    servers = json.loads(connection.getresponse().read())["servers"]
    connection.close()
    return {one["name"]: one for one in servers}


def main():
    program = sys.argv[1]
    kinds = ["good", "events", "held", "redirects", "huge", "bad", "deep", "ids", "error"]
    fake = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tools)
    threading.Thread(target=fake.serve_forever, daemon=True).start()
    base = f"127.0.0.1:{fake.server_port}"
    arguments = [part for kind in kinds for part in ("--mcp", f"http://{base}/{kind}")]
    with Server(program, "--api-key", "secret", *arguments, context=256) as server:
        begin = time.monotonic()
        servers = listed(server)
        assert list(servers) == [f"{base}/{kind}" for kind in kinds], servers
        for kind in ("good", "events", "held"):
            name = f"{base}/{kind}"
            one = servers[name]
            assert one["state"] == "ready", one
            assert [tool["name"] for tool in one["tools"]] == ["add"], one
            assert call(server, name, "add", {"a": 2, "b": 3}) == (
                200, {"content": "5", "is_error": False, "truncated": False})
            status, result = call(server, name, "image")
            assert status == 200 and result["content"].endswith("\nseen"), result
            assert "AAAA" not in result["content"], result
            status, result = call(server, name, "long")
            assert result["truncated"] and len(result["content"].encode()) <= 256 << 10, status
            assert call(server, name, "other")[1]["is_error"]
        assert time.monotonic() - begin < 45  # no stream was waited for
        for kind, says in (("redirects", "redirects"), ("huge", "more than"), ("bad", "JSON"),
                           ("deep", "the answer of"), ("ids", "request's id"),
                           ("error", "refuses")):
            one = servers[f"{base}/{kind}"]
            assert one["state"] == "failed" and says in one["error"], (kind, one)
            status, text = call(server, f"{base}/{kind}", "add", {"a": 1, "b": 1})
            assert status == 502 and text["error"]["code"] == "mcp_error", (kind, text)
        assert call(server, "elsewhere", "add")[0] == 404
        assert call(server, f"{base}/good", "add", key="wrong")[0] == 401
        assert server.stop() == 0
    Tools.over.set()
    for method, path, headers in Tools.seen:
        assert method == "POST", (method, path)
        assert "Authorization" not in headers and "secret" not in str(headers), headers
    # A server that says nothing holds up neither others nor the end.
    with Server(program, "--mcp", f"http://{base}/silent", context=256) as server:
        threading.Thread(target=call, args=(server, f"{base}/silent", "add"), daemon=True).start()
        time.sleep(0.5)
        assert server.ask("/health")[0] == 200
        assert server.stop() == 0
    print("mcp: ok")


if __name__ == "__main__":
    main()
