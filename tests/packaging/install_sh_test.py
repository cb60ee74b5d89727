#!/usr/bin/env python3
"""install.sh against a server on this machine: it installs a release and replaces an older one.

It ends with an error and nothing installed where a file is missing, cut, changed or not a release.

    tests/packaging/install_sh_test.py

The archive is a small one, whose program is a shell script.
"""

import hashlib
import http.server
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/release/install.sh")
NAME = f"moeflux-9.8.7-linux-{platform.machine()}.tar.gz"


def archive(version, program=None):
    program = program or f"#!/bin/sh\necho 'moeflux {version}'\n"
    files = {
        "bin/moeflux": program,
        "share/man/man1/moeflux.1": "page",
        "share/moeflux/models/m": "model",
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"moeflux-{version}/{name}")
            member.size = len(text)
            member.mode = 0o755 if name.startswith("bin/") else 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def sums(data):
    other = hashlib.sha256(b"other").hexdigest()
    return f"{other}  other.deb\n{hashlib.sha256(data).hexdigest()}  {NAME}\n".encode()


class Handler(http.server.BaseHTTPRequestHandler):
    files = {}  # path -> bytes, or (bytes, the length that is promised)

    def do_GET(self):
        answer = self.files.get(self.path.lstrip("/"))
        if answer is None:
            self.send_error(404)
            return
        data, length = answer if isinstance(answer, tuple) else (answer, len(answer))
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def install(address, prefix, path=None, folder=None):
    variables = {
        "PATH": path or os.environ["PATH"],
        "HOME": "/nonexistent",
        "MOEFLUX_ADDRESS": address,
        "PREFIX": prefix,
        "no_proxy": "*",
    }
    done = subprocess.run(
        ["sh", SCRIPT],
        env=variables,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def tree(prefix):
    return sorted(
        os.path.join(os.path.relpath(folder, prefix), name)
        for folder, _, names in os.walk(prefix)
        for name in names
    )


def check(condition, *words):
    if not condition:
        sys.exit(f"install_sh_test: {words}")


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    good, newer = archive("9.8.7"), archive("9.9.0")
    stranger = archive("9.8.7", "#!/bin/sh\nexit 3\n")
    flipped = good[:-20] + bytes([good[-20] ^ 1]) + good[-19:]
    faults = {
        "no SHA256SUMS": ({NAME: good}, "cannot download"),
        "no archive": ({"SHA256SUMS": sums(good)}, "cannot download"),
        "none for this machine": (
            {"SHA256SUMS": b"0" * 64 + b"  moeflux-1-linux-vax.tar.gz\n"},
            "lists no archive",
        ),
        "not a list": ({"SHA256SUMS": b"<html>", NAME: good}, "lists no archive"),
        "wrong checksum": ({"SHA256SUMS": sums(good), NAME: flipped}, "expected"),
        "cut": ({"SHA256SUMS": sums(good), NAME: good[:100]}, "expected"),
        "cut connection": (
            {"SHA256SUMS": sums(good), NAME: (good[:100], len(good))},
            "cannot download",
        ),
        "not an archive": ({"SHA256SUMS": sums(b"x"), NAME: b"x"}, "cannot unpack"),
        "does not start": ({"SHA256SUMS": sums(stranger), NAME: stranger}, "does not start here"),
    }
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "a prefix")
        for name, (files, words) in faults.items():
            Handler.files = files
            code, output = install(address, prefix)
            check(code == 1 and words in output, name, code, output)
            check(tree(prefix) == [], name, tree(prefix))
        for refused in ("", "http://example.invalid", "file:///tmp"):
            code, output = install(refused, prefix)
            check(code == 1 and "expected" in output and tree(prefix) == [], refused, output)

        Handler.files = {"SHA256SUMS": sums(good), NAME: good}
        code, output = install(address, prefix)
        check(code == 0 and "installed moeflux 9.8.7" in output and "not in PATH" in output, output)
        installed = tree(prefix)
        check("bin/moeflux" in installed and "share/man/man1/moeflux.1" in installed, installed)
        # An update that fails leaves what was there; one that succeeds replaces it.
        for name, (files, words) in faults.items():
            Handler.files = files
            code, output = install(address, prefix)
            check(code == 1 and tree(prefix) == installed, name, output, tree(prefix))
        program = os.path.join(prefix, "bin/moeflux")
        version = subprocess.run([program], text=True, stdout=subprocess.PIPE, check=True).stdout
        check(version == "moeflux 9.8.7\n", version)
        Handler.files = {"SHA256SUMS": sums(newer), NAME: newer}
        check(install(address, prefix)[0] == 0, "update")
        version = subprocess.run([program], text=True, stdout=subprocess.PIPE, check=True).stdout
        check(version == "moeflux 9.9.0\n" and tree(prefix) == installed, version, tree(prefix))

        # A prefix below the working folder gives the same links as its whole path.
        code, output = install(address + "/", "below", folder=folder)
        below = os.path.join(folder, "below")
        check(code == 0 and tree(below) == installed, "below", output, tree(below))
        link = os.readlink(os.path.join(below, "bin/moeflux"))
        check(link == os.path.join(below, "lib/moeflux/bin/moeflux"), "below", link)

        # A folder of another's with that name stays; a system without curl has wget, or neither.
        other = os.path.join(folder, "other")
        os.makedirs(os.path.join(other, "lib/moeflux"))
        code, output = install(address, other)
        check(code == 1 and "is not an installation" in output and tree(other) == [], output)
        tools = os.path.join(folder, "tools")
        os.mkdir(tools)
        for tool in "sh uname mkdir mktemp rm grep wc sha256sum tar gzip mv ln head".split():
            os.symlink(shutil.which(tool), os.path.join(tools, tool))
        code, output = install(address, os.path.join(folder, "third"), tools)
        check(code == 1 and "neither curl nor wget" in output, output)
        if shutil.which("wget"):
            os.symlink(shutil.which("wget"), os.path.join(tools, "wget"))
            check(install(address, os.path.join(folder, "fourth"), tools)[0] == 0, "wget")
    print(f"install_sh_test: {2 * len(faults)} failures, an installation and an update")


if __name__ == "__main__":
    main()
