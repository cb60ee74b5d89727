"""aider in Ollama mode: writes the file that it is asked for, and asks for the model's context."""

import os
import subprocess
import tempfile

for model in ("ollama_chat/parrot", "ollama/parrot"):
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "TERM": "dumb",
                       "OLLAMA_API_BASE": os.environ["MOEFLUX_TEST_PARROT"]}
        done = subprocess.run(
            [os.environ["AIDER"], "--model", model, "--edit-format", "whole", "--no-git",
             "--yes-always", "--no-check-update", "--no-show-model-warnings", "--no-pretty",
             "--analytics-disable", "--no-show-release-notes", "--no-detect-urls",
             "--map-tokens", "0", "--message", "Write note.txt.", "note.txt"],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=300)
        with open(os.path.join(folder, "note.txt"), encoding="utf-8") as file:
            assert file.read() == "the fox sleeps\n", done
print("aider: note.txt")
