"""A server under test, and clients of it that need no package."""

import http.client
import json
import os
import re
import signal
import subprocess
import tempfile

MODEL = os.path.join(os.path.dirname(__file__), "..", "..", "models", "fable-20m")
TEMPLATE = ("{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")


class Server:
    """`moeflux serve` on a free port, from the first answer of /health on."""

    def __init__(self, program, *arguments, context=1024, model=MODEL, template=TEMPLATE,
                 preexec_fn=None, home=None):
        """`template` None: the model's own. `model` None: all below `home`."""
        self.template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        if template is not None:
            self.template.write(template)
            self.template.flush()
            arguments = ("--chat-template-file", self.template.name, *arguments)
        self.process = subprocess.Popen(
            [program, "serve", *(["-m", model] if model else []), "--port", "0", "-c", str(context),
             *arguments],
            stderr=subprocess.PIPE, text=True, preexec_fn=preexec_fn,
            env=os.environ if home is None else {**os.environ, "HOME": home, "HF_HOME": home})
        self.lines = []
        self.port = None
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", line)
            if found:
                self.port = int(found[1])
                break
        if self.port is None:
            raise AssertionError(f"the server ended: {''.join(self.lines)}")

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, path, body=None, connection=None):
        """Status and text of one answer."""
        one = connection or self.connect()
        if body is None:
            one.request("GET", path)
        else:
            one.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = one.getresponse()
        text = answer.read().decode()
        if connection is None:
            one.close()
        return answer.status, text

    def chat(self, messages, **fields):
        """The answer to a conversation, as a dictionary."""
        status, text = self.ask("/v1/chat/completions", {"messages": messages, **fields})
        assert status == 200, (status, text)
        return json.loads(text)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) * 1024

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ends it as Ctrl-C does; its exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        self.process.stderr.close()
        self.template.close()


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def question(text):
    return [{"role": "user", "content": text}]
