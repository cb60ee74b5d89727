#!/usr/bin/env python3
"""Claude Code and Codex, as published, edit a file by a script; what they asked is then asked of a
real server, which has to stream valid events and find its first prompt again in the second.

    tests/clients/coding_agents.py MOEFLUX [FOLDER]

Installs what agents/package.json pins into FOLDER (default build/agents). Needs the network once.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

from scripted_service import Script, ScriptedService

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "serve"))
import server  # noqa: E402

CONTEXT = 65536  # their prompts are long
ASK = "Write the file note.txt."
TEXT = "the fox sleeps\n"


def edit(tools):
    """A call of whichever of the client's tools writes a file."""
    path = os.path.join(os.getcwd(), "note.txt")
    if "Write" in tools:
        return "Write", {"file_path": path, "content": TEXT}
    command = f"printf '%s' '{TEXT}' > note.txt"
    if "exec_command" in tools:
        return "exec_command", {"cmd": command}
    name = next(name for name in ("shell_command", "shell") if name in tools)
    return name, {"command": command if name == "shell_command" else ["sh", "-c", command]}


def run_agent(name, folder, service):
    """The client at work in an empty folder and with an empty home; the requests it made."""
    home = tempfile.mkdtemp()
    environment = {"PATH": os.environ["PATH"], "HOME": home, "TERM": "dumb"}
    program = os.path.join(folder, "node_modules", ".bin", name)
    if name == "claude":
        environment |= {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{service.port}",
                        "ANTHROPIC_API_KEY": "none", "IS_SANDBOX": "1",
                        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        command = [program, "-p", ASK, "--dangerously-skip-permissions"]
    else:
        provider = (f'{{name="local", base_url="http://127.0.0.1:{service.port}/v1", '
                    'wire_api="responses"}')
        command = [program, "exec", "--skip-git-repo-check",
                   "--dangerously-bypass-approvals-and-sandbox", "-c", "model=scripted",
                   "-c", "model_provider=local", "-c", f"model_providers.local={provider}", ASK]
        environment["CODEX_HOME"] = home
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=300,
                          capture_output=True, text=True)
    shutil.rmtree(home)
    with open("note.txt", encoding="utf-8") as file:
        assert file.read() == TEXT, done
    assert "It is written." in done.stdout, done
    os.remove("note.txt")


def long_model(folder):
    """The embedded model, said to have a longer context. Its text means even less then."""
    shutil.copytree(os.path.join(HERE, "..", "..", "models", "fable-20m"), folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["text_config"]["max_position_embeddings"] = CONTEXT
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)


def events_of(text):
    """The data of a stream's events, each of the type that it is named after."""
    events = []
    for frame in text.split("\n\n"):
        lines = [line for line in frame.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        assert lines[0].startswith("event: ") and lines[1].startswith("data: "), frame
        events.append(json.loads(lines[1][6:]))
        assert events[-1]["type"] == lines[0][7:], frame
    return events


def replay(real, path, body):
    """Prompt tokens and those that were there, of one request to the real server."""
    body = {**body, "model": server_name(real), "stream": True}
    body["max_output_tokens" if path.endswith("responses") else "max_tokens"] = 8
    status, text = real.ask(path, body, real.connect(timeout=1200))
    assert status == 200, (status, text[:500])
    events = events_of(text)
    if path.endswith("responses"):
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        usage = events[-1]["response"]["usage"]
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
    kinds = [event["type"] for event in events if event["type"] != "ping"]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds
    usage = events[-2]["usage"]
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached, cached


def server_name(real):
    return json.loads(real.ask("/v1/models")[1])["data"][0]["id"]


def main():
    program = os.path.abspath(sys.argv[1])
    folder = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else "build/agents")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(HERE, "agents", "package.json"), folder)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder,
                   check=True)
    asked = {}
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        for name in ("claude", "codex"):
            script = Script(edit)
            with ScriptedService(script) as service:
                run_agent(name, folder, service)
            # The two turns of the conversation: those with tools.
            asked[name] = [(path, body) for path, body in script.requests if body.get("tools")]
            assert len(asked[name]) >= 2, [path for path, _ in script.requests]
            print(f"{name} wrote the file in {len(script.requests)} requests")
        model = os.path.join(work, "model")
        long_model(model)
        server.MODEL = model
        with server.Server(program, context=CONTEXT) as real:
            for name, requests in asked.items():
                counts = [replay(real, *request) for request in requests[:2]]
                prompt, cached = counts[1]
                print(f"{name}: prompts of {counts[0][0]} and {prompt} tokens, {cached} of the "
                      f"second ({cached / prompt:.1%}) were there")
                assert cached / prompt >= 0.95
            assert real.stop() == 0


if __name__ == "__main__":
    main()
