#!/usr/bin/env python3
"""Asks a talking model, through the server, what it was never taught word for word.

    tools/talker/evaluate.py build/release/bin/moeflux -m models/fable-20m-chat [-o report.json]
        [--stories text.txt --before models/fable-20m]

200 questions, 50 prompts with tools, greedy. A question is right if the answer has every word that
it must have and none that it must not have. A call is valid if it names a tool of the prompt and
its arguments fit the schema. With --stories, also the loss on a text against another model's.
"""

import argparse
import collections
import http.client
import json
import re
import subprocess

import dialogues
import toolbox


class Server:
    def __init__(self, program, model, options):
        self.process = subprocess.Popen([program, "serve", "-m", model, "--port", "0", *options],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", line)
            if found:
                self.connection = http.client.HTTPConnection("127.0.0.1", int(found[1]),
                                                             timeout=300)
                return
        raise RuntimeError(f"{program} serve ended before it answered")

    def message(self, messages, tools=None):
        body = {"messages": messages, "temperature": 0, "max_tokens": 120}
        if tools:
            body["tools"] = tools
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body),
                                {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise RuntimeError(f"the server answered {answer.status}: {text}")
        return json.loads(text)["choices"][0]["message"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)


def has(text, words):
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text, re.IGNORECASE) is not None


def is_right(case, text):
    if case["most_words"] and len(text.split()) > case["most_words"]:
        return False
    return (all(has(text, words) for words in case["expect"])
            and not any(has(text, words) for words in case["reject"]))


def ask_questions(server, count):
    results = []
    for case in dialogues.held_out_questions(count):
        text = server.message(case["messages"]).get("content") or ""
        results.append({"kind": case["kind"], "right": is_right(case, text), "answer": text,
                        "expected": case["answer"], "messages": case["messages"]})
    return results


def ask_for_calls(server, count):
    results = []
    for case in dialogues.held_out_tool_prompts(count):
        message = server.message(case["messages"], case["tools"])
        calls = [call["function"] for call in message.get("tool_calls") or []]
        valid = len(calls) > 0 and all(
            toolbox.is_valid_call(case["tools"], call["name"], call["arguments"]) for call in calls)
        same = valid and len(calls) == 1 and calls[0]["name"] == case["call"]["name"]
        results.append({"valid": valid, "right tool": same,
                        "right": same
                        and json.loads(calls[0]["arguments"]) == case["call"]["arguments"],
                        "calls": calls, "content": message.get("content"), "expected": case["call"],
                        "asked": case["messages"][0]["content"]})
    return results


def story_loss(program, model, text):
    """Nats a token, as `perplexity` prints them."""
    printed = subprocess.run([program, "perplexity", "-m", model, "-f", text], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    return float(re.search(r"\(([\d.]+) nats", printed)[1])


def share(results, key="right"):
    return f"{sum(r[key] for r in results)} of {len(results)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-o", "--report")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--stories")
    parser.add_argument("--before")
    parser.add_argument("options", nargs="*", help="more options of `moeflux serve`, behind --")
    arguments = parser.parse_args()
    with Server(arguments.program, arguments.model, arguments.options) as server:
        questions = ask_questions(server, arguments.questions)
        prompts = ask_for_calls(server, arguments.prompts)
    kinds = collections.defaultdict(list)
    for result in questions:
        kinds[result["kind"]].append(result)
    for kind, results in sorted(kinds.items()):
        print(f"{kind:20} {share(results)}")
    print(f"questions: {share(questions)} right")
    print(f"tools: {share(prompts, 'valid')} valid, {share(prompts, 'right tool')} of the right "
          f"tool, "
          f"{share(prompts)} with the right arguments")
    report = {"questions": questions, "prompts": prompts}
    if arguments.stories:
        report["nats_per_token"] = {model: story_loss(arguments.program, model, arguments.stories)
                                for model in (arguments.before, arguments.model) if model}
        print(f"nats per token of {arguments.stories}: {report['nats_per_token']}")
    if arguments.report:
        with open(arguments.report, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
