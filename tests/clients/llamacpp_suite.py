#!/usr/bin/env python3
"""llama.cpp's own tests of its server, run against `moeflux serve`.

    tests/clients/llamacpp_suite.py MOEFLUX CHECKOUT [--model MODEL] [--cases FILTER] [--out FILE]

CHECKOUT is llama.cpp's repository: tools/server/tests and models/templates are read. Prints
how many cases passed, which failed, and what was left out with its reason. The exit status is 1
where a case failed. Needs what their requirements.txt names, or makes build/llamacpp with it.

This file is three things. The script is one. A plugin of their pytest takes out what their tests
know of their models (texts, counts of tokens), so that all else is asserted. The program that
they start as `llama-server` turns its options into ours.
"""

import argparse
import collections
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..", "..", "models", "fable-20m")
CONTEXT = 32768
PACKAGES = ("aiohttp", "filelock", "numpy", "openai~=2.14.0", "prometheus-client", "pytest~=8.3.3",
            "pytest-timeout", "requests", "wget")

# --- Tests that are left out ---

FILES = {
    "test_embedding.py": "its model is BERT",
    "test_kv_keep_only_active.py": "reads llama.cpp's log of its slots",
    "test_lora.py": "LoRA is not offered",
    "test_mcp_servers.py": "tools that the server runs are not offered",
    "test_proxy.py": "forwarding of requests is not offered",
    "test_rerank.py": "its model is BERT",
    "test_router.py": "serving several models is not offered",
    "test_sleep.py": "unloading an idle model is not offered",
    "test_slot_save.py": "saving slots by number is not offered; conversations are kept by name",
    "test_speculative.py": "its draft model is downloaded",
    "test_tools_builtin.py": "tools that the server runs are not offered",
    "test_vision_api.py": "images are not offered",
}
# By the name of a test or the beginning of a case's. The first that fits counts.
CASES = {
    "test_metrics_disabled": "wants /metrics to be off without an option; here it is always there",
    "test_no_ui": "a page to look at is not offered",
    "test_access_static_assets_without_api_key": "a page to look at is not offered",
    "test_local_media_file": "images are not offered",
    "test_anthropic_tool_result_with_image": "wants 500 for an image that the model cannot see",
    "test_anthropic_vision_format_accepted": "wants 500 for an image that the model cannot see",
    "test_anthropic_empty_messages": "the embedded model's template writes nothing for no message",
    "test_date_inside_prompt": "wants variables of templates that transformers does not give",
    "test_gcp_predict_": "Google's /predict is not offered",
    "test_stream_stop_during_model_load": "a model is loaded before the server answers",
    "test_stream_resumes_after_reload_during_model_load":
        "a model is loaded before the server answers",
    "test_completion_with_grammar": "a grammar is written in Lark, not in GBNF",
    "test_tokenize_with_bos": "wants a token before texts, which the embedded model has not",
    "test_cors_options": "wants any web page to be let in, whatever its origin: refused by design",
    "test_ctx_shift_enabled": "dropping the oldest tokens of a full context is not offered",
    "test_chat_completion_cached_tokens": "counts the tokens of llama.cpp's small model",
    "test_chat_template_assistant_prefill[prefill1":
        "wants an empty line between the parts of a message; here it is one line end",
    "test_completion_stream_with_openai_library_stops": "needs a model that is downloaded",
}
# Their tests know their program's build alone, by its sources: ours has another name. A response
# that max_output_tokens cuts is completed there; OpenAI's are incomplete, as ours are.
REWRITTEN = {'system_fingerprint.startswith("b")': "system_fingerprint",
             '"<s> " + prompt': "prompt",
             '== "<s> <|start_header_id|>': '== "<|start_header_id|>',
             # Counts of their model's tokens.
             'timings["cache_n"] == n_prompt': 'timings["cache_n"] > 40',
             'life is"*32': 'life is"*64',
             '"prompt": LONG_TEXT': '"prompt": LONG_TEXT * 4',
             # Browsers take any status of success, and all others as a refusal.
             'assert res.status_code == 200\n    assert res.headers["Access-Control-Allow-Origin"]'
             ' == origin': 'assert res.status_code == 204\n    assert res.headers['
             '"Access-Control-Allow-Origin"] == origin',
             'assert res.status_code == 200\n    assert "Access-Control-Allow-Origin" not in':
             'assert res.status_code == 403\n    assert "Access-Control-Allow-Origin" not in',
             # An option that hides what is always there.
             'assert res.status_code == 501 # ERROR_TYPE_NOT_SUPPORTED\n    assert "error" in '
             'res.body\n    server.stop()': "server.stop()",
             'system_fingerprint"].startswith("b")': 'system_fingerprint"]',
             'data["type"] == "response.completed"':
             'data["type"] in ("response.completed", "response.incomplete")'}
# Parameters that say what llama.cpp's model answers. Elsewhere re_content is what a grammar forces.
MODEL_TEXT = ("test_completion", "test_completion_stream", "test_chat_completion",
              "test_chat_completion_stream")
MODEL_NUMBERS = ("n_prompt", "n_token_output", "batch_count")
# Tests whose model must not end its text.
ENDLESS = (*MODEL_TEXT, "test_chat_completions_multiple_choices",
           "test_ctx_shift_disabled_short_prompt", "test_completion_with_openai_library",
           "test_chat_completion_with_openai_library",
           "test_metrics_predicted_total_matches_requests",
           "test_metrics_generation_rate_excludes_first_token", "test_n_probs",
           "test_n_probs_post_backend_sampling", "test_completion_unified",
           "test_completion_prompt_cache")
# Tests that look for words of their model in the text.
LOOSE_TEXT = ("test_completion_with_openai_library", "test_completion_stream_with_openai_library",
              "test_chat_completion_with_openai_library", "test_responses_with_openai_library",
              "test_responses_stream_with_openai_library", "test_load_split_model",
              "test_infill_without_input_extra", "test_infill_with_input_extra",
              "test_anthropic_messages_basic")

# --- llama-server ---

# Options that say how llama.cpp computes, or ask for what is always so here.
NO_VALUE = {"--offline", "--cont-batching", "--no-slots", "--slots", "--metrics", "--no-jinja",
            "--jinja", "--swa-full", "--kv-unified", "--verbose", "--no-ui", "--backend_sampling"}
# --reasoning is told in requests, see more_of_request().
WITH_VALUE = {"--n-predict", "--batch-size", "--ubatch-size", "--n-gpu-layers", "-fa", "--hf-file",
              "--reasoning-format", "--reasoning", "--cors-origins"}
PASSED = {"--port": "--port", "--temp": "--temp", "--seed": "--seed", "--api-key": "--api-key",
          "--threads": "--threads", "--parallel": "--parallel", "-ctk": "--cache-type-k",
          "-ctv": "--cache-type-v",
          "--chat-template-file": "--chat-template-file"}
MODELS = ("stories260K", "stories15M_MOE", "ggml-org/models")
TEMPLATES = {
    "chatml": ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
               "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"),
    "llama3": ("{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
               "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
               "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"),
    "command-r": ("{% for m in messages %}<|START_OF_TURN_TOKEN|><|"
                  "{{ 'CHATBOT' if m.role == 'assistant' else m.role | upper }}_TOKEN|>"
                  "{{ m.content | trim }}<|END_OF_TURN_TOKEN|>{% endfor %}"
                  "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
                  "{% endif %}"),
}


class NotOffered(Exception):
    pass


def parse_options(arguments):
    """Names and values of llama-server's options, in order."""
    parsed, rest = [], list(arguments)
    while rest:
        name = rest.pop(0)
        has_value = bool(rest) and name not in NO_VALUE and not rest[0].startswith("--")
        parsed.append((name, rest.pop(0) if has_value else None))
    return parsed


def template_file(name):
    path = os.path.join(os.environ["MOEFLUX_TEST_SUITE"], "template.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write(TEMPLATES.get(name, name))
    return path


def our_options(arguments, model):
    """`moeflux serve` and its options for those of llama-server."""
    options = dict(parse_options(arguments))
    if "infill" in (options.get("--hf-repo") or ""):
        model = os.environ["MOEFLUX_TEST_INFILL_MODEL"]
    ours = ["serve", "-m", model]
    if "MOEFLUX_TEST_SUITE_ENDLESS" in os.environ:
        ours += ["--logit-bias", "0-100"]
    names = (options.pop("--alias", None) or "llama").split(",")
    ours += ["--model-name", names[0]]
    for alias in names[1:] + ["*"]:
        ours += ["--alias", alias]
    slots = 1 if "--kv-unified" in options else int(options.get("--parallel") or 1)
    if context := options.pop("--ctx-size", None):
        ours += ["--ctx-size", str(int(context) // slots)]
    for name, value in options.items():
        if name == "--host" and "," in value:
            raise NotOffered("listening at several addresses is not offered")
        if name in ("--hf-repo", "--model") and not any(known in value for known in MODELS):
            raise NotOffered(f"needs {value}, which is not here")
        if name == "--chat-template":
            ours += ["--chat-template-file", template_file(value)]
        elif PASSED.get(name):
            ours += [PASSED[name], value]
        elif name not in NO_VALUE | WITH_VALUE | {"--host", "--hf-repo", "--model"}:
            raise NotOffered(f"llama-server's option {name} is not offered")
    if "--cors-origins" in options and options["--cors-origins"] != "localhost":
        raise NotOffered("llama-server's option --cors-origins is not offered")
    return ours


def serve(arguments):
    """In the place of llama-server."""
    try:
        ours = our_options(arguments, os.environ["MOEFLUX_TEST_MODEL"])
    except NotOffered as reason:
        with open(os.path.join(os.environ["MOEFLUX_TEST_SUITE"], "reason"), "w",
                  encoding="utf-8") as file:
            file.write(str(reason))
        sys.exit(64)
    program = os.environ["MOEFLUX_TEST_PROGRAM"]
    os.execv(program, [program, *ours])


# --- The plugin ---


class Anything:
    """Equals all there is: a number that only their model has."""

    def __eq__(self, _):
        return True

    __hash__ = None


def more_of_request(server, data):
    """Options of llama-server that `moeflux serve` has as fields of a request."""
    if not isinstance(data, dict):
        return data
    more = {"verbose": True} if server.debug else {}
    if server.reasoning:
        more["chat_template_kwargs"] = {"enable_thinking": server.reasoning != "off"}
    return {**more, **data}


def pytest_configure():
    if "MOEFLUX_TEST_SUITE" not in os.environ:
        return
    sys.path.insert(0, os.getcwd())
    import utils  # theirs
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    plain = utils.ServerProcess.make_request
    utils.ServerProcess.make_request = lambda self, method, path, data=None, *rest, **named: plain(
        self, method, path, more_of_request(self, data), *rest, **named)


def reason_to_leave_out(item):
    if reason := FILES.get(item.path.name):
        return reason
    return next((reason for name, reason in CASES.items()
                 if item.originalname == name or item.name.startswith(name)
                 and ("[" in name or name.endswith("_"))), None)


def pytest_collection_modifyitems(items):
    import pytest
    for item in items:
        if reason := reason_to_leave_out(item):
            item.add_marker(pytest.mark.skip(reason=reason))
            continue
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        for name in MODEL_NUMBERS:
            if name in parameters:
                parameters[name] = Anything()
        if item.originalname in MODEL_TEXT:
            for name in ("re_content", "n_prompt"):
                if parameters.get(name):
                    parameters[name] = "" if name == "re_content" else Anything()


def pytest_runtest_setup(item):
    reason = os.path.join(os.environ["MOEFLUX_TEST_SUITE"], "reason")
    if os.path.exists(reason):
        os.remove(reason)
    import utils
    strict = getattr(utils, "strict_match", utils.match_regex)
    utils.strict_match = strict
    # Their model does not end within a test; ours does.
    os.environ.pop("MOEFLUX_TEST_SUITE_ENDLESS", None)
    if item.originalname in ENDLESS:
        os.environ["MOEFLUX_TEST_SUITE_ENDLESS"] = "1"
    loose = item.originalname in LOOSE_TEXT
    item.module.match_regex = (lambda *_: True) if loose else strict


def pytest_runtest_makereport(item, call):
    import pytest
    from _pytest.runner import pytest_runtest_makereport as plain
    report = plain(item, call)
    path = os.path.join(os.environ["MOEFLUX_TEST_SUITE"], "reason")
    if report.failed and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            reason = file.read()
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: {reason}")
    if report.when == "call" or not report.passed:
        record = {"name": f"{item.path.name}::{item.name}", "outcome": report.outcome}
        if report.skipped:
            record["reason"] = report.longrepr[2].removeprefix("Skipped: ")
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            record["reason"] = (crash.message.split("\n")[0] if crash
                                else str(report.longrepr)[-200:])
        if not (report.when == "teardown" and report.skipped):
            with open(os.path.join(os.environ["MOEFLUX_TEST_SUITE"], "results"), "a",
                      encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    return report


# --- The script ---


def interpreter(folder):
    """A Python that has what their tests import."""
    probe = "import aiohttp, filelock, numpy, openai, pytest, pytest_timeout, requests, wget"
    python = os.path.join(folder, "bin", "python")
    for each in (sys.executable, python):
        if os.path.exists(each) and subprocess.run([each, "-c", probe], check=False,
                                                   stderr=subprocess.DEVNULL).returncode == 0:
            return each
    venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    *PACKAGES], check=True)
    return python


def long_model(folder):
    """The embedded model, said to have a longer context, as some tests ask for 8,192 tokens."""
    shutil.copytree(MODEL, folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["text_config"]["max_position_embeddings"] = CONTEXT
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    # Some templates want to write a token that begins texts.
    path = os.path.join(folder, "tokenizer_config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["bos_token"] = "<|im_start|>"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return folder


def infill_model(model, folder):
    """The same with tokens for the text before, behind and in a gap."""
    shutil.copytree(model, folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for token, part in (("<think>", "prefix"), ("<tool_call>", "suffix"),
                            ("</tool_call>", "middle")):
            text = text.replace(f'"{token}"', f'"<|fim_{part}|>"')
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return folder


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def copy_of_tests(checkout, folder):
    """Their tests beside their templates, with REWRITTEN done."""
    tests = os.path.join(folder, "checkout", "tools", "server", "tests")
    shutil.copytree(os.path.join(checkout, "tools", "server", "tests"), tests)
    os.symlink(os.path.abspath(os.path.join(checkout, "models")),
               os.path.join(folder, "checkout", "models"))
    unit = os.path.join(tests, "unit")
    for name in os.listdir(unit):
        if not name.endswith(".py"):
            continue
        with open(os.path.join(unit, name), encoding="utf-8") as file:
            text = file.read()
        for theirs, ours in REWRITTEN.items():
            text = text.replace(theirs, ours)
        with open(os.path.join(unit, name), "w", encoding="utf-8") as file:
            file.write(text)
    return tests


def run_suite(program, checkout, model, cases, folder, python):
    """The outcome of every case, as the plugin wrote it down."""
    tests = copy_of_tests(checkout, folder)
    shim = os.path.join(folder, "llama-server")
    with open(shim, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec "{sys.executable}" "{os.path.abspath(__file__)}" '
                   '--as-llama-server "$@"\n')
    os.chmod(shim, 0o700)
    infill = infill_model(MODEL, os.path.join(folder, "infill.gguf"))
    environment = {**os.environ, "MOEFLUX_TEST_SUITE": folder,
                   "MOEFLUX_TEST_MODEL": os.path.abspath(model),
                   "MOEFLUX_TEST_INFILL_MODEL": infill,
                   "MOEFLUX_TEST_PROGRAM": os.path.abspath(program), "LLAMA_SERVER_BIN_PATH": shim,
                   "PORT": str(free_port()), "PYTHONPATH": HERE, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-m", "pytest", "-q", "-p", "llamacpp_suite", "-p", "no:cacheprovider",
               "--timeout", "300", "--tb", "short", "-W", "ignore", "unit"]
    if cases:
        command += ["-k", cases]
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
        subprocess.run(command, cwd=tests, env=environment, stdout=log, stderr=subprocess.STDOUT,
                       check=False)
    path = os.path.join(folder, "results")
    if not os.path.exists(path):
        with open(os.path.join(folder, "log"), encoding="utf-8") as log:
            raise SystemExit("their tests did not run:\n" + log.read()[-3000:])
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def print_results(results):
    by_outcome = collections.defaultdict(list)
    for result in results:
        by_outcome[result["outcome"]].append(result)
    reasons = collections.Counter(one["reason"] for one in by_outcome["skipped"])
    for reason, count in sorted(reasons.items()):
        print(f"left out {count:4}: {reason}")
    for one in by_outcome["failed"]:
        print(f"failed: {one['name']}: {' '.join(one['reason'].split())[:300]}")
    print(f"{len(by_outcome['passed'])} passed, {len(by_outcome['failed'])} failed, "
          f"{len(by_outcome['skipped'])} left out")
    return by_outcome["failed"]


def main():
    if sys.argv[1:2] == ["--as-llama-server"]:
        serve(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("checkout")
    parser.add_argument("--model", help="default: the embedded one")
    parser.add_argument("--cases", help="an expression of pytest's -k")
    parser.add_argument("--out", help="a file for their log")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or long_model(os.path.join(folder, "model.gguf"))
        results = run_suite(options.program, options.checkout, model, options.cases, folder,
                            interpreter(os.path.join(HERE, "..", "..", "build", "llamacpp")))
        if options.out:
            os.replace(os.path.join(folder, "log"), options.out)
    return 1 if print_results(results) else 0


if __name__ == "__main__":
    sys.exit(main())
