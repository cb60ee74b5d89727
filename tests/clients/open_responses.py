#!/usr/bin/env python3
"""Open Responses' own compliance tests, run against `moeflux serve`.

    tests/clients/open_responses.py MOEFLUX CHECKOUT [--model MODEL] [--folder FOLDER]

CHECKOUT is a clone of openresponses/openresponses. Prints what passed, what failed and what was
left out, with the reason; the exit status is 1 where a test failed. Installs what runs their code
into FOLDER (default build/open-responses), unless it is there: needs node and npm, and the network
once.
"""

import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "serve"))
from server import MODEL, Server  # noqa: E402

KEY = "a key that nobody guesses"
TEMPLATE = os.path.join(HERE, "tools_template.jinja")
PACKAGES = ("tsx@4.23.15", "zod@3.25.76")


def run_suite(folder, checkout, port):
    """The report of their code on the server at `port`."""
    modules = os.path.join(folder, "node_modules")
    done = subprocess.run(
        ["node", "--import", os.path.join(modules, "tsx", "dist", "loader.mjs"),
         os.path.join(HERE, "open_responses.mjs"), checkout, f"http://127.0.0.1:{port}/v1", KEY],
        env={**os.environ, "NODE_PATH": modules}, stdout=subprocess.PIPE, text=True,
        check=True)
    return json.loads(done.stdout)


def show(results):
    for one in results["ran"]:
        print(f"{one['status']:8} {one['id']}")
        for error in one["errors"]:
            print(f"         {error}")
    for one in results["left_out"]:
        print(f"left out {one['id']}: {one['reason']}")
    failed = sum(one["status"] != "passed" for one in results["ran"])
    print(f"{len(results['ran']) - failed} passed, {failed} failed, "
          f"{len(results['left_out'])} left out")
    return failed


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("checkout")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--folder", default="build/open-responses")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.folder)
    os.makedirs(folder, exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES],
                   cwd=folder, check=True)
    with open(TEMPLATE, encoding="utf-8") as file:
        template = file.read()
    with Server(os.path.abspath(arguments.program), "--api-key", KEY, "--model-alias", "*",
                model=arguments.model, template=template) as server:
        results = run_suite(folder, os.path.abspath(arguments.checkout), server.port)
        assert server.stop() == 0
    sys.exit(1 if show(results) else 0)


if __name__ == "__main__":
    main()
