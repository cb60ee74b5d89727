#!/usr/bin/env python3
"""Published clients, unpatched, against a server that runs the embedded model.

    tests/clients/run.py MOEFLUX [FOLDER]

Installs what requirements.txt and package.json pin into FOLDER (default build/clients), unless it
is there. Needs the network once, and npm for the clients of Node.
"""

import os
import shutil
import subprocess
import sys
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "serve"))
from server import MODEL, Server  # noqa: E402

KEY = "a key that nobody guesses"
PYTHON = ("openai_client.py", "responses_client.py", "structured_client.py", "anthropic_client.py",
          "ollama_client.py", "litellm_client.py", "langchain_client.py")
NODE = ("openai_client.mjs", "anthropic_client.mjs", "vercel_client.mjs")


def prepare(folder):
    """The interpreter that has the packages."""
    python = os.path.join(folder, "venv", "bin", "python")
    if not os.path.exists(python):
        venv.create(os.path.join(folder, "venv"), with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r",
                    os.path.join(HERE, "requirements.txt")], check=True)
    for name in ("package.json", *NODE):
        shutil.copy(os.path.join(HERE, name), folder)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder,
                   check=True)
    return python


def main():
    program = os.path.abspath(sys.argv[1])
    folder = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else "build/clients")
    os.makedirs(folder, exist_ok=True)
    python = prepare(folder)
    with Server(program, "--api-key", KEY, "--strict-model") as server:
        environment = {**os.environ, "MOEFLUX_URL": f"http://127.0.0.1:{server.port}/v1",
                       "MOEFLUX_KEY": KEY, "PYTHONDONTWRITEBYTECODE": "1"}
        clients = [[python, os.path.join(HERE, name)] for name in PYTHON]
        clients += [["node", os.path.join(folder, name)] for name in NODE]
        clients.append([python, os.path.join(HERE, "lm_eval_client.py"), program,
                        os.path.abspath(MODEL)])
        for client in clients:
            subprocess.run(client, env=environment, check=True)
        assert server.stop() == 0


if __name__ == "__main__":
    main()
