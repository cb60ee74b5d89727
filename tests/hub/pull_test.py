#!/usr/bin/env python3
"""moeflux pull against a hub that means harm: it ends with verified files, or with an error and
nothing to be seen.

    tests/hub/pull_test.py MOEFLUX [SEEDS [FIRST]]

Each seed draws files and faults. Answers are dropped, cut, stalled, too long, of another range or
wrong; they redirect to other hosts, to http and file, or are 429 and 5xx. Names and lists are such
as no hub has. Some processes are killed with -9, some run two at once. MOEFLUX_TEST_PULL_SEEDS says
how many seeds there are (default 40).
"""

import concurrent.futures
import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time

from hub_server import CERTIFICATE, COMMIT, File, Hub

PROGRAM = os.path.abspath(sys.argv[1])
SEEDS = int(sys.argv[2] if len(sys.argv) > 2 else os.environ.get("MOEFLUX_TEST_PULL_SEEDS", "40"))
FIRST = int(sys.argv[3]) if len(sys.argv) > 3 else 0
TOKEN = "hf_secret"
PATIENCE = 120
HEADER = 1 << 20  # bytes that a plan reads first
ABROAD = ("http://example.invalid/x", "file:///etc/passwd", "ftp://127.0.0.1/x",
          "http://10.0.0.1/x", "https://user@127.0.0.1/x", "gopher://127.0.0.1/", "http://[::")
NAMES = ("../evil", "/etc/evil", "a/../../evil", "a\nb", "a//b", "./a", "a\\..\\b", "", "x" * 300,
         "a/./b", "a\x00b", "..")


def environment(root, hub, seconds=1):
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith(("HF_", "HUGGING", "SSL_CERT_"))
                 and not name.lower().endswith(("_proxy", "_ca_bundle"))}
    return dict(variables, HOME=root, HF_HOME=os.path.join(root, "hf"), HF_ENDPOINT=hub.endpoint,
                HF_TOKEN=TOKEN, HF_HUB_DOWNLOAD_TIMEOUT=str(seconds))


def start(root, hub, *arguments, seconds=1):
    return subprocess.Popen([PROGRAM, "pull", *arguments], env=environment(root, hub, seconds),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pull(root, hub, *arguments):
    """With time for a machine that does other things."""
    process = start(root, hub, *arguments, seconds=60)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def model_folder(root):
    return os.path.join(root, "hf", "hub", "models--org--model")


def seen(root):
    """The files of all snapshots, by name, with their contents."""
    found = {}
    top = os.path.join(model_folder(root), "snapshots")
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, os.path.join(top, COMMIT))] = file.read()
    return found


def check_inside(root):
    """Nothing but the layout's folders, files and relative links into blobs."""
    for folder, folders, names in os.walk(os.path.join(root, "hf")):
        for name in folders + names:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                target = os.readlink(path)
                assert not os.path.isabs(target), path
                real = os.path.realpath(path)
                assert os.path.dirname(real) == os.path.realpath(
                    os.path.join(model_folder(root), "blobs")), path
            else:
                assert stat.S_ISREG(mode) or stat.S_ISDIR(mode), path
    assert sorted(os.listdir(root)) in ([], ["hf"]), os.listdir(root)


def check_blobs(root, files):
    """A blob without ".incomplete" has the bytes that its name says."""
    by_hash = {file.hash: file.data for file in files.values()}
    folder = os.path.join(model_folder(root), "blobs")
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if not name.endswith(".incomplete"):
            with open(os.path.join(folder, name), "rb") as blob:
                assert blob.read() == by_hash[name], name


class Faults:
    """Faults in some of a hub's answers, as a seed says."""

    def __init__(self, random_, files):
        self.random = random_
        self.files = files
        self.kinds = random_.sample(
            ["drop", "cut", "stall", "long", "range", "whole", "wrong", "status", "wait", "abroad",
             "loop", "api"], random_.randint(1, 3))
        # Some hubs get well after a few faults, others never do.
        self.left = random_.choice([1, 2, 5, 10**9])
        self.share = random_.choice([0.2, 0.5, 1.0])

    def __call__(self, kind, request):
        if self.left <= 0 or self.random.random() > self.share:
            return False
        fault = self.random.choice(self.kinds)
        if fault == "api" and not request.path.startswith("/api/"):
            return False
        self.left -= 1
        return getattr(self, fault)(kind, request)

    def body(self, request):
        name = request.path.split("/")[-1]
        file = next((f for n, f in self.files.items() if n.endswith(name)), None)
        return file.data if file else b"{}"

    def head(self, request, status, headers):
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, str(value))
        request.end_headers()

    def drop(self, _, request):
        Hub.drop(request)
        return True

    def cut(self, _, request):
        data = self.body(request)
        begin, status, headers = 0, 200, {}
        if (wanted := request.headers.get("Range", "")).startswith("bytes="):
            begin, end = (int(one) for one in wanted[6:].split("-"))
            data, status = data[begin:end + 1], 206
            headers["Content-Range"] = f"bytes {begin}-{end}/{len(self.body(request))}"
        self.head(request, status, dict(headers, **{"Content-Length": len(data)}))
        request.wfile.write(data[:self.random.randint(0, max(0, len(data) - 1))])
        Hub.drop(request)
        return True

    def stall(self, _, request):
        self.head(request, 200, {"Content-Length": 100000})
        time.sleep(2.5)
        Hub.drop(request)
        return True

    def long(self, _, request):
        """More bytes than there are, and no end that a length would tell."""
        self.head(request, 200, {"Connection": "close"})
        request.wfile.write(self.body(request) + self.random.randbytes(200000))
        Hub.drop(request)
        return True

    def range(self, _, request):
        self.head(request, 206, {"Content-Range": "bytes 7-16/17", "Content-Length": 10})
        request.wfile.write(b"0123456789")
        return True

    def whole(self, _, request):
        data = self.body(request)
        self.head(request, 200, {"Content-Length": len(data)})
        request.wfile.write(data)
        return True

    def wrong(self, _, request):
        size = len(self.body(request))
        if (wanted := request.headers.get("Range", "")).startswith("bytes="):
            begin, end = (int(one) for one in wanted[6:].split("-"))
            self.head(request, 206, {"Content-Range": f"bytes {begin}-{end}/{size}",
                                     "Content-Length": end + 1 - begin})
            request.wfile.write(self.random.randbytes(end + 1 - begin))
        else:
            self.head(request, 200, {"Content-Length": size})
            request.wfile.write(self.random.randbytes(size))
        return True

    def status(self, _, request):
        status = self.random.choice([400, 401, 403, 404, 410, 416, 500, 502, 503])
        self.head(request, status, {"Content-Length": 0})
        return True

    def wait(self, _, request):
        after = self.random.choice(["0", "1", "86400", "-1", "x", "99999999999999999999"])
        self.head(request, self.random.choice([429, 503]),
                  {"Content-Length": 0, "Retry-After": after})
        return True

    def abroad(self, _, request):
        self.head(request, 302, {"Content-Length": 0, "Location": self.random.choice(ABROAD)})
        return True

    def loop(self, _, request):
        self.head(request, 302, {"Content-Length": 0, "Location": request.path})
        return True

    def api(self, _, request):
        kind = self.random.choice(["name", "size", "hash", "commit", "syntax", "million", "deep",
                                   "huge"])
        entries = [file.entry(name) for name, file in self.files.items()]
        answer = {"sha": COMMIT, "siblings": entries}
        body = None
        if kind == "name":
            entries.append(dict(entries[0], rfilename=self.random.choice(NAMES)))
        elif kind == "size":
            for entry in entries:
                entry["size"] = self.random.choice([entry["size"] + 1, 0, -1, 2**60, "1", None,
                                                    1e300])
        elif kind == "hash":
            for entry in entries:
                entry["blobId"] = self.random.choice(["../../x", "f" * 40, 7])
                entry.pop("lfs", None)
        elif kind == "commit":
            answer["sha"] = self.random.choice(["../../..", "main", 5, "A" * 40])
        elif kind == "syntax":
            body = json.dumps(answer).encode()[:self.random.randint(0, 200)]
        elif kind == "million":
            body = (b'{"sha":"' + COMMIT.encode() + b'","siblings":[' +
                    b",".join([json.dumps(entries[0]).encode()] * 1000000) + b"]}")
        elif kind == "deep":
            body = b"[" * 100000
        elif kind == "huge":
            body = b'{"sha":"' + b"0" * (80 << 20)
        body = body or json.dumps(answer).encode()
        self.head(request, 200, {"Content-Length": len(body)})
        request.wfile.write(body)
        return True


def draw_files(random_):
    files = {"config.json": File(b'{"model_type": "none"}\n'), "README.md": File(b"read me\n")}
    parts = random_.choice([1, 1, 2, 3])
    for i in range(parts):
        name = "m-Q4_K_M" + ("" if parts == 1 else f"-{i + 1:05}-of-{parts:05}") + ".gguf"
        files[name] = File(random_.randbytes(random_.choice([1, 5000, 65536, 150000, 400001])))
    files["sub/m-Q8_0.gguf"] = File(random_.randbytes(20000))
    return files


def run_seed(seed):
    random_ = random.Random(seed)
    files = draw_files(random_)
    faults = Faults(random_, files)
    wanted = {name: file.data for name, file in files.items() if "Q4_K_M" in name}
    arguments = ["org/model:Q4_K_M", "--piece", random_.choice(["1K", "16K", "70000B", "1M"])]
    kills = random_.random() < 0.3
    twice = random_.random() < 0.3
    with tempfile.TemporaryDirectory() as root, Hub(files, fault=faults) as hub:
        ends = []
        if kills:
            process = start(root, hub, *arguments)
            time.sleep(random_.random() * 0.3)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            check_blobs(root, files)
            visible = seen(root)
            assert all(wanted[name] == data for name, data in visible.items()), visible.keys()
        both = [start(root, hub, *arguments) for _ in range(2 if twice else 1)]
        for process in both:
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode in (0, 1), (process.returncode, err)
            assert (process.returncode == 0) == bool(out), (out, err)
            assert (process.returncode == 0) or "error: " in err, err
            ends.append(process.returncode)
        check_inside(root)
        check_blobs(root, files)
        assert TOKEN not in str(hub.tokens.get("store", [])), "the token left the hub"
        if 0 in ends:
            assert seen(root) == wanted, (seen(root).keys(), wanted.keys())
        elif not kills:
            assert not seen(root), seen(root).keys()
        # The hub is well again: what has come is kept, and the rest comes.
        hub.fault = None
        status, out, err = pull(root, hub, *arguments)
        assert status == 0, err
        assert seen(root) == wanted
        check_inside(root)
        assert not [name for name in os.listdir(os.path.join(model_folder(root), "blobs"))
                    if name.endswith(".incomplete")]
    return 0 in ends


def seeds():
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        futures = {pool.submit(run_seed, seed): seed for seed in range(FIRST, FIRST + SEEDS)}
        whole, failed = 0, []
        for future in concurrent.futures.as_completed(futures):
            try:
                whole += future.result()
            except Exception as error:  # pylint: disable=broad-except
                failed.append(futures[future])
                print(f"seed {futures[future]}: {type(error).__name__}: {error}", file=sys.stderr)
    assert not failed, f"seeds {sorted(failed)}"
    print(f"{SEEDS} seeds, {whole} whole at once, {time.monotonic() - begin:.0f} s")


def kill_resumes():
    """A kill loses the pieces under way alone: the others are not asked for again."""
    data = random.Random(5).randbytes(4_000_000)
    files = {"m-Q4_K_M.gguf": File(data)}
    with tempfile.TemporaryDirectory() as root, Hub(files, latency=0.02) as hub:
        arguments = ["org/model", "--piece", "50K", "--connections", "4"]
        process = start(root, hub, *arguments)
        end = time.monotonic() + PATIENCE
        while hub.bytes_sent < HEADER + 2_000_000:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not seen(root)
        hub.bytes_sent = 0
        status, _, err = pull(root, hub, *arguments)
        assert status == 0, err
        assert seen(root) == {"m-Q4_K_M.gguf": data}
        assert hub.bytes_sent < HEADER + 2_400_000, hub.bytes_sent


def two_download_once():
    data = random.Random(6).randbytes(2_000_000)
    with tempfile.TemporaryDirectory() as root, Hub({"m-Q4_K_M.gguf": File(data)},
                                                    latency=0.02) as hub:
        both = [start(root, hub, "org/model:Q4_K_M", "--piece", "100K") for _ in range(2)]
        for process in both:
            _, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err
        assert seen(root) == {"m-Q4_K_M.gguf": data}
        assert hub.bytes_sent < 2 * HEADER + 1.5 * len(data), hub.bytes_sent


def cut_redirects():
    """One that ends before it says where to is asked for again."""
    data = random.Random(9).randbytes(100_000)
    left = 3

    def cut(_, request):
        nonlocal left
        if left == 0 or "/resolve/" not in request.path:
            return False
        left -= 1
        request.wfile.write(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n")
        Hub.drop(request)
        return True

    with tempfile.TemporaryDirectory() as root, Hub({"m-Q4_K_M.gguf": File(data)},
                                                    fault=cut) as hub:
        status, _, err = pull(root, hub, "org/model")
        assert status == 0 and left == 0, err
        assert seen(root) == {"m-Q4_K_M.gguf": data}


def tokens_stay():
    """The token is seen by the hub alone; an http hub of another machine is not asked at all."""
    files = {"m-Q4_K_M.gguf": File(random.Random(7).randbytes(100_000))}
    with tempfile.TemporaryDirectory() as root, Hub(files) as hub:
        status, _, err = pull(root, hub, "org/model")
        assert status == 0, err
        assert set(hub.tokens["hub"]) == {f"Bearer {TOKEN}"}
        assert set(hub.tokens["store"]) == {None}
        bad = subprocess.run([PROGRAM, "pull", "org/model"], text=True, capture_output=True,
                             env=dict(environment(root, hub), HF_ENDPOINT="http://10.1.2.3"))
        assert bad.returncode == 1 and "expected https" in bad.stderr, bad.stderr


def tls():
    """Certificates are those that a variable names, and none is taken unseen. A proxy sees neither
    the token nor the names of files."""
    files = {"m-Q4_K_M.gguf": File(random.Random(8).randbytes(100_000))}
    with Hub(files, tls=True) as hub:
        def ends(**more):
            with tempfile.TemporaryDirectory() as root:
                done = subprocess.run([PROGRAM, "pull", "org/model"], text=True,
                                      capture_output=True, check=False,
                                      env=dict(environment(root, hub), **more))
                return done.returncode, done.stderr, seen(root)

        status, err, visible = ends()
        assert status == 1 and "certificate" in err and not visible, err
        for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
            status, err, visible = ends(**{name: CERTIFICATE})
            assert status == 0 and visible, (name, err)
        port = hub.main.server_port
        proxy, heads = hub.proxy()
        far = {"SSL_CERT_FILE": CERTIFICATE, "HTTPS_PROXY": proxy,
               "HF_ENDPOINT": f"https://hub.invalid:{port}"}
        status, err, visible = ends(**far)
        assert status == 0 and visible, err
        assert any(head.startswith(f"CONNECT hub.invalid:{port} ") for head in heads), heads
        assert not any(TOKEN in head or "gguf" in head for head in heads), heads
        before = len(heads)
        status, err, visible = ends(NO_PROXY="127.0.0.1,127.0.0.2",
                                    **dict(far, HF_ENDPOINT=hub.endpoint))
        assert status == 0 and len(heads) == before, (err, heads)

        def to_http(kind, request):
            if "/resolve/" not in request.path:
                return False
            hub.send(request, 302, b"", {"Location": f"http://127.0.0.2:{hub.store.server_port}/"})
            return True

        hub.fault = to_http
        status, err, visible = ends(SSL_CERT_FILE=CERTIFICATE)
        assert status == 1 and "expected https" in err and not visible, err


def main():
    tls()
    kill_resumes()
    two_download_once()
    cut_redirects()
    tokens_stay()
    seeds()


if __name__ == "__main__":
    main()
