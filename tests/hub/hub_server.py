"""A model hub on this machine for tests: the API, files with hashes, redirects to a second host,
and faults that a plan says.
"""

import hashlib
import http.server
import json
import os
import re
import socket
import ssl
import threading
import time
import urllib.parse

# A certificate of this machine's addresses and hub.invalid, with its key: for tests alone.
CERTIFICATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "test_hub.pem")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class File:
    def __init__(self, data, large=None):
        self.data = data
        self.large = len(data) > 4096 if large is None else large
        self.hash = hashlib.sha256(data).hexdigest() if self.large else git_hash(data)

    def entry(self, name):
        entry = {"rfilename": name, "size": len(self.data),
                 "blobId": self.hash if not self.large else "0" * 40}
        if self.large:
            entry["lfs"] = {"sha256": self.hash, "size": len(self.data), "pointerSize": 134}
        return entry


class Hub:
    """Serves `files` (name -> File) as the repository `name`. `fault(kind, request)` may answer
    in its own way: it returns True when it has."""

    def __init__(self, files, name="org/model", fault=None, latency=0, tls=False):
        self.files, self.name, self.fault, self.latency = files, name, fault, latency
        self.scheme = "https" if tls else "http"
        self.lock = threading.Lock()
        self.tokens = {}       # host and kind -> tokens that came
        self.bytes_sent = 0
        self.requests = 0
        self.api = None        # an answer in place of the API's
        self.main = self.listen("127.0.0.1", "hub")
        self.store = self.listen("127.0.0.2", "store")

    def listen(self, host, kind):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                with hub.lock:
                    hub.requests += 1
                    hub.tokens.setdefault(kind, []).append(self.headers.get("Authorization"))
                try:
                    hub.answer(self, kind)
                except (BrokenPipeError, ConnectionResetError, OSError):
                    self.close_connection = True

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        server = Server((host, 0), Handler)
        if self.scheme == "https":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            server.socket = context.wrap_socket(server.socket, server_side=True,
                                                do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    @property
    def endpoint(self):
        return f"{self.scheme}://127.0.0.1:{self.main.server_port}"

    @property
    def store_endpoint(self):
        return f"{self.scheme}://127.0.0.2:{self.store.server_port}"

    def close(self):
        for server in (self.main, self.store):
            server.shutdown()
            server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def info(self):
        return {"id": self.name, "sha": COMMIT, "tags": [], "private": False, "downloads": 0,
                "siblings": [file.entry(name) for name, file in self.files.items()]}

    def answer(self, request, kind):
        path = urllib.parse.unquote(request.path.split("?")[0])
        if self.fault is not None and self.fault(kind, request):
            return
        if kind == "hub" and path.startswith("/api/models/" + self.name + "/tree/"):
            tree = [{"type": "file", "path": name, "size": len(file.data), "oid": file.hash,
                     **({"lfs": {"oid": file.hash, "size": len(file.data), "pointerSize": 134}}
                        if file.large else {})} for name, file in self.files.items()]
            self.send(request, 200, json.dumps(tree).encode())
        elif kind == "hub" and path.startswith("/api/models/" + self.name):
            self.send(request, 200, self.api or json.dumps(self.info()).encode())
        elif kind == "hub" and (found := re.match(f"/{self.name}/resolve/[^/]+/(.*)", path)):
            self.send_file(request, found.group(1), redirect=True)
        elif kind == "store":
            self.send_file(request, path[1:], redirect=False)
        else:
            self.send(request, 404, b"")

    def send_file(self, request, name, redirect):
        file = self.files.get(name)
        if file is None:
            self.send(request, 404, b"")
            return
        about = {"X-Repo-Commit": COMMIT, "ETag": f'"{file.hash}"'}
        if redirect and file.large:
            about.update({"X-Linked-Etag": f'"{file.hash}"', "X-Linked-Size": str(len(file.data)),
                          "Location": f"{self.store_endpoint}/{urllib.parse.quote(name)}"})
            self.send(request, 302, b"", about)
            return
        if self.latency:
            time.sleep(self.latency)
        begin, end, status = 0, len(file.data), 200
        wanted = re.match(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
        if wanted:
            begin = int(wanted.group(1))
            end = min(end, int(wanted.group(2) or end - 1) + 1)
            status = 206
            about["Content-Range"] = f"bytes {begin}-{end - 1}/{len(file.data)}"
        self.send(request, status, file.data[begin:end], about)

    def send(self, request, status, body, headers=None):
        request.send_response(status)
        headers = dict(headers or {})
        headers.setdefault("Content-Length", str(len(body)))
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
            with self.lock:
                self.bytes_sent += len(body)

    def proxy(self):
        """A proxy that leads every CONNECT to the hub: its address and the heads that came."""
        heads = []
        listener = socket.create_server(("127.0.0.1", 0))

        def pass_on(source, target):
            try:
                while data := source.recv(65536):
                    target.sendall(data)
            except OSError:
                pass
            for one in (source, target):
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        def serve():
            while True:
                client, _ = listener.accept()
                head = b""
                while b"\r\n\r\n" not in head and (data := client.recv(65536)):
                    head += data
                heads.append(head.decode())
                port = int(head.split(b" ")[1].rsplit(b":", 1)[1])
                host = "127.0.0.2" if port == self.store.server_port else "127.0.0.1"
                target = socket.create_connection((host, port))
                client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                for pair in ((client, target), (target, client)):
                    threading.Thread(target=pass_on, args=pair, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}", heads

    @staticmethod
    def drop(request):
        request.close_connection = True
        try:
            request.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
