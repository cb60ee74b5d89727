#!/usr/bin/env python3
"""huggingface_hub opens what moeflux pulled, offline, and moeflux takes what huggingface_hub got.

    tests/hub/huggingface_hub_test.py MOEFLUX WHEELS

WHEELS is the folder that tools/install_python.sh fills.
"""

import glob
import json
import os
import random
import subprocess
import sys
import tempfile

from hub_server import COMMIT, File, Hub

PROGRAM, WHEELS = (os.path.abspath(path) for path in sys.argv[1:3])
FILES = {"config.json": File(b'{"a": 1}\n'), "empty.txt": File(b""),
         "m-Q4_K_M.gguf": File(random.Random(1).randbytes(300_000)),
         "deep/folder/m-Q8_0.gguf": File(random.Random(2).randbytes(200_000))}

OFFLINE = """
import sys
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download
path = hf_hub_download("org/model", "m-Q4_K_M.gguf", local_files_only=True)
assert open(path, "rb").read() == open(sys.argv[1], "rb").read()
path = hf_hub_download("org/model", "deep/folder/m-Q8_0.gguf", revision=sys.argv[2])
assert len(open(path, "rb").read()) == 200000
assert snapshot_download("org/model", local_files_only=True).endswith(sys.argv[2])
report = scan_cache_dir()
assert not report.warnings, report.warnings
assert [one.repo_id for one in report.repos] == ["org/model"], report
"""

ONLINE = """
from huggingface_hub import snapshot_download
print(snapshot_download("org/model"))
"""


def main():
    if not glob.glob(os.path.join(WHEELS, "huggingface_hub-*.whl")):
        print("skipped: no huggingface_hub (tools/install_python.sh)")
        return
    with tempfile.TemporaryDirectory() as top:
        python = os.path.join(top, "venv", "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", os.path.join(top, "venv")], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index",
                        "--disable-pip-version-check", "--find-links", WHEELS, "huggingface_hub"],
                       check=True)

        def variables(name, hub, **more):
            kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
            return dict(kept, HOME=top, HF_HOME=os.path.join(top, name), HF_ENDPOINT=hub.endpoint,
                        HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1", **more)

        def moeflux(environment, *arguments):
            done = subprocess.run([PROGRAM, *arguments], env=environment, text=True,
                                  capture_output=True)
            assert done.returncode == 0, done.stderr
            return done.stdout

        with Hub(FILES) as hub:
            # Ours, opened by theirs.
            ours = variables("ours", hub)
            path = moeflux(ours, "pull", "org/model:Q4_K_M").strip()
            moeflux(ours, "pull", "org/model:deep/folder/m-Q8_0.gguf")
            before = hub.requests
            subprocess.run([python, "-c", OFFLINE, path, COMMIT], check=True,
                           env=dict(ours, HF_HUB_OFFLINE="1"))
            assert hub.requests == before
            # Theirs, taken by ours: nothing comes again, and offline nothing is asked.
            theirs = variables("theirs", hub)
            subprocess.run([python, "-c", ONLINE], check=True, env=theirs, capture_output=True)
            hub.tokens.clear()
            path = moeflux(theirs, "pull", "org/model:Q4_K_M").strip()
            assert "store" not in hub.tokens, "bytes came again"
            with open(path, "rb") as file:
                assert file.read() == FILES["m-Q4_K_M.gguf"].data
            before = hub.requests
            offline = dict(theirs, HF_HUB_OFFLINE="1")
            assert moeflux(offline, "pull", "org/model:Q8_0").strip().endswith("m-Q8_0.gguf")
            assert hub.requests == before
            names = [one["name"] for one in json.loads(moeflux(theirs, "list", "--json"))]
            assert names == ["org/model:Q8_0", "org/model:Q4_K_M"], names
            # Removing one of two models leaves the other whole for both programs.
            moeflux(theirs, "rm", "org/model:Q4_K_M")
            subprocess.run([python, "-c", "from huggingface_hub import scan_cache_dir as scan; "
                            "assert not scan().warnings"], check=True, env=offline)
            moeflux(theirs, "rm", "org/model")
            assert not os.path.exists(os.path.join(top, "theirs", "hub", "models--org--model"))
    print("huggingface_hub and moeflux share a cache")


if __name__ == "__main__":
    main()
