#!/usr/bin/env python3
"""Published clients, unpatched, against a server that runs the embedded model.

    tests/clients/run.py MOEFLUX [FOLDER]

Installs what requirements.txt and package.json pin into FOLDER (default build/clients), unless it
is there. Needs the network once, and npm for the clients of Node. With MOEFLUX_TEST_TALKING, the
folder of tools/talking_model.py, texts of agents have to make sense, too.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "serve"))
import calling_parrot  # noqa: E402
from server import MODEL, Server  # noqa: E402

KEY = "a key that nobody guesses"
PYTHON = ("openai_client.py", "responses_client.py", "structured_client.py", "anthropic_client.py",
          "ollama_client.py", "open_webui_client.py", "litellm_client.py", "aider_client.py",
          "langchain_client.py")
NODE = ("openai_client.mjs", "anthropic_client.mjs", "vercel_client.mjs", "ollama_client.mjs")
PARROT_CONTEXT = 65536  # a byte is a token to it


def make_environment(folder, requirements):
    """Its interpreter."""
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r",
                    os.path.join(HERE, requirements)], check=True)
    return python


def prepare(folder):
    """The interpreter that has the packages, and aider, which pins its own."""
    python = make_environment(os.path.join(folder, "venv"), "requirements.txt")
    aider = make_environment(os.path.join(folder, "aider"), "aider_requirements.txt")
    for name in ("package.json", *NODE):
        shutil.copy(os.path.join(HERE, name), folder)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder,
                   check=True)
    return python, os.path.join(os.path.dirname(aider), "aider")


def run_clients(program, folder, python, environment):
    clients = [[python, os.path.join(HERE, name)] for name in PYTHON]
    clients += [["node", os.path.join(folder, name)] for name in NODE]
    clients.append([python, os.path.join(HERE, "lm_eval_client.py"), program,
                    os.path.abspath(MODEL)])
    for client in clients:
        subprocess.run(client, env=environment, check=True)


def run_talking(program, python, folder):
    """Agents with a Mixture of Experts that talks."""
    model = os.path.join(os.path.abspath(folder), "moe.gguf")
    with Server(program, "--model-alias", "*", context=2048, model=model,
                template=None) as server:
        subprocess.run([python, os.path.join(HERE, "talking_client.py")], check=True, env={
            **os.environ, "MOEFLUX_TEST_TALKER": f"http://127.0.0.1:{server.port}",
            "PYTHONDONTWRITEBYTECODE": "1"})
        assert server.stop() == 0


def main():
    program = os.path.abspath(sys.argv[1])
    folder = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else "build/clients")
    os.makedirs(folder, exist_ok=True)
    python, aider = prepare(folder)
    with tempfile.TemporaryDirectory() as parrot:
        calling_parrot.write(parrot, PARROT_CONTEXT)
        with Server(program, "--api-key", KEY, "--strict-model") as server, \
                Server(program, "--model-name", "parrot", model=parrot, template=None,
                       context=PARROT_CONTEXT) as speaker:
            run_clients(program, folder, python, {
                **os.environ, "MOEFLUX_TEST_URL": f"http://127.0.0.1:{server.port}/v1",
                "MOEFLUX_TEST_PARROT": f"http://127.0.0.1:{speaker.port}", "AIDER": aider,
                "MOEFLUX_TEST_KEY": KEY, "PYTHONDONTWRITEBYTECODE": "1"})
            assert server.stop() == 0 and speaker.stop() == 0
    if os.environ.get("MOEFLUX_TEST_TALKING"):
        run_talking(program, python, os.environ["MOEFLUX_TEST_TALKING"])


if __name__ == "__main__":
    main()
