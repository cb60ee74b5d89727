#!/usr/bin/env python3
"""The facts that llama.cpp's own tests assert of its server, for interfaces that are here too.

    tests/serve/llamacpp_test.py MOEFLUX

tests/clients/llamacpp_suite.py runs those tests themselves from a checkout. These are their facts
in our words, so that the suite holds them without one.
"""

import concurrent.futures
import json
import math
import os
import shutil
import socket
import sys
import tempfile
import time
import unittest

from server import MODEL, Server

PROGRAM = os.path.abspath(sys.argv.pop(1))
KEY = "sk-this-is-the-secret-key"
BOOK = [{"role": "system", "content": "Book"},
        {"role": "user", "content": "What is the best book"}]
WORDS = ("i I the The to a an be is was but But and And so So you You he He she She we We "
         "they They it It his His her Her book Book").split()
MEANING = "I believe the meaning of life is"
# As Qwen 3's.
THINKING = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
            "{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n"
            "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}")


class LlamaCpp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, "--model-name", "tiny", "--alias", "*", "--parallel", "2",
                            "--seed", "42", context=256)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.server.__exit__()

    def get(self, path):
        status, text = self.server.ask(path)
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def post(self, path, status=200, **body):
        got, text = self.server.ask(path, body)
        self.assertEqual(got, status, text)
        answer = json.loads(text)
        self.assertEqual("error" in answer, status != 200, text)
        return answer

    def stream(self, path, **body):
        status, text = self.server.ask(path, {**body, "stream": True})
        self.assertEqual(status, 200, text)
        data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        return [json.loads(one) for one in data if one != "[DONE]"]

    def request(self, method, path, headers, body=None):
        """Status, headers and text of the answer."""
        connection = self.server.connect()
        connection.request(method, path, body and json.dumps(body),
                           {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def test_says_what_it_is(self):
        props = self.get("/props")
        self.assertEqual(props["total_slots"], 2)
        settings = props["default_generation_settings"]
        self.assertEqual((settings["n_ctx"], settings["params"]["seed"]), (256, 42))
        for path in ("/models", "/v1/models"):
            self.assertEqual([one["id"] for one in self.get(path)["data"]], ["tiny"])
        self.assertEqual(self.get("/health")["status"], "ok")
        self.assertEqual([slot["n_ctx"] for slot in self.get("/slots")], [256, 256])

    def test_says_how_many_requests_fit(self):
        memory = 1024  # MiB, of which the model takes a twentieth
        for device, least, most in (("cpu", 4, 4), (f"emulator,memory={memory}", 5, 256)):
            with Server(PROGRAM, "--device", device) as server:
                slots = json.loads(server.ask("/props")[1])["total_slots"]
                self.assertTrue(least <= slots <= most, (device, slots))
                self.assertEqual(len(json.loads(server.ask("/slots")[1])), slots)
                self.assertIn(f"up to {slots} requests run at the same time (--parallel)\n",
                              "".join(server.lines))

    def test_tokens_become_their_text_again(self):
        for text in ("What is the capital of France ?", "unicode \u5abd and emoji \U0001f917"):
            tokens = self.post("/tokenize", content=text)["tokens"]
            self.assertGreater(len(tokens), 5)
            self.assertEqual(self.post("/detokenize", tokens=tokens)["content"].strip(), text)
            pieces = self.post("/tokenize", content=text, with_pieces=True)["tokens"]
            self.assertEqual([one["id"] for one in pieces], tokens)
            self.assertTrue(all(one["piece"] for one in pieces))

    def test_a_chat_is_answered_whole_and_in_pieces(self):
        whole = self.post("/chat/completions", max_tokens=8, messages=BOOK, seed=42)
        self.assertIn("cmpl", whole["id"])
        self.assertTrue(whole["system_fingerprint"])
        (choice,) = whole["choices"]
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertEqual((whole["usage"]["completion_tokens"], choice["finish_reason"]),
                         (8, "length"))
        parts = [*BOOK[:1], {"role": "user", "content": [
            {"type": "text", "text": "What is "}, {"type": "text", "text": "the best book"}]}]
        self.post("/chat/completions", max_tokens=8, messages=parts)
        frames = self.stream("/chat/completions", max_tokens=8, messages=BOOK, seed=42,
                             stream_options={"include_usage": True})
        first = frames[0]["choices"][0]["delta"]
        self.assertEqual((first["role"], first["content"] or ""), ("assistant", ""))
        self.assertEqual(len({frame["id"] for frame in frames}), 1)
        self.assertEqual({frame["model"] for frame in frames}, {"tiny"})
        content = ""
        for frame in frames[1:-1]:
            (part,) = frame["choices"]
            self.assertNotIn("role", part["delta"])
            if part["finish_reason"]:
                self.assertEqual(part["finish_reason"], "length")
                self.assertNotIn("content", part["delta"])
            else:
                content += part["delta"]["content"]
        self.assertEqual(content, choice["message"]["content"])
        self.assertEqual(frames[-1]["choices"], [])
        self.assertEqual(frames[-1]["usage"]["completion_tokens"], 8)
        for frame in frames[-2:]:
            self.assertEqual(frame["timings"]["predicted_n"], 8)
        self.assertNotIn("timings", frames[0])

    def test_log_probabilities_spell_the_answer(self):
        for fields in ({}, {"temperature": 0.0}):
            (choice,) = self.post("/v1/chat/completions", messages=BOOK, max_tokens=5,
                                  logprobs=True, top_logprobs=10, **fields)["choices"]
            tokens = choice["logprobs"]["content"]
            self.assertEqual("".join(one["token"] for one in tokens), choice["message"]["content"])
            for one in tokens:
                self.assertLessEqual(one["logprob"], 0)
                self.assertEqual(len(one["top_logprobs"]), 10)
                self.assertIsNotNone(one["bytes"])

    def test_biases_keep_words_out(self):
        tokens = self.post("/tokenize", content=" " + " ".join(WORDS) + " ")["tokens"]
        (choice,) = self.post("/v1/chat/completions", messages=BOOK, temperature=0, max_tokens=64,
                              logit_bias={str(token): -100 for token in tokens})["choices"]
        self.assertFalse([word for word in WORDS if f" {word} " in choice["message"]["content"]])

    def test_choices_are_as_many_as_asked_for(self):
        for _ in range(2):
            answer = self.post("/chat/completions", max_tokens=8, n=2, messages=BOOK, id_slot=0)
            self.assertEqual([choice["finish_reason"] for choice in answer["choices"]],
                             ["length"] * 2)
            count = self.post("/chat/completions/input_tokens", messages=BOOK)["input_tokens"]
            self.assertEqual(count, answer["usage"]["prompt_tokens"])

    def test_what_is_no_conversation_is_refused(self):
        answered = {"role": "assistant", "content": "test"}
        for messages in (None, "string", [123], [{}], [{"role": 123}],
                         [{"role": "system", "content": 123}],
                         [{"role": "system", "content": "test"}, {}]):
            self.post("/chat/completions", 400, messages=messages)
        self.post("/chat/completions", 400, add_generation_prompt=True,
                  continue_final_message=True, messages=[*BOOK, answered])

    def test_formats_hold_or_are_refused(self):
        ask = [{"role": "user", "content": "Write an example"}]
        for form, tokens, wanted in (
                ({"type": "json_object", "schema": {"const": "42"}}, 8, '"42"'),
                ({"type": "json_schema", "json_schema": {"schema": {"const": "fooo"}}}, 9,
                 '"fooo"')):
            (choice,) = self.post("/chat/completions", max_tokens=tokens, messages=ask,
                                  response_format=form)["choices"]
            self.assertEqual(choice["message"]["content"], wanted)
        (choice,) = self.post("/chat/completions", max_tokens=8, messages=ask,
                              json_schema={"const": "42"})["choices"]
        self.assertEqual(choice["message"]["content"], '"42"')
        for form in ({"type": "sound"}, {"type": "json_object", "schema": 123},
                     {"type": "json_object", "schema": {"type": 123}},
                     {"type": "json_object", "schema": {"type": "hiccup"}}):
            self.post("/chat/completions", 400, max_tokens=2, messages=ask, response_format=form)
        self.post("/chat/completions", 400, messages=ask, grammar="root ::= this is (not valid")

    def test_a_prompt_that_is_too_long_says_how_long(self):
        for stream in (False, True):
            error = self.post("/chat/completions", 400, messages=BOOK * 100, stream=stream)["error"]
            self.assertEqual(error["type"], "exceed_context_size_error")
            self.assertEqual(error["n_ctx"], 256)
            self.assertGreater(error["n_prompt_tokens"], 256)

    def test_progress_begins_with_what_is_there(self):
        frames = self.stream("/chat/completions", max_tokens=4, return_progress=True,
                             messages=[{"role": "user", "content": "This is a test" * 10}])
        told = [frame["prompt_progress"] for frame in frames if "prompt_progress" in frame]
        self.assertEqual(told[0]["processed"], told[0]["cache"])
        self.assertEqual(told[-1]["processed"], told[-1]["total"])
        for before, after in zip(told, told[1:]):
            self.assertGreater(after["processed"], before["processed"])
            self.assertEqual((after["total"], after["cache"]), (before["total"], before["cache"]))

    def test_the_prompt_is_told_where_it_is_asked_for(self):
        for verbose in (True, False):
            answer = self.post("/chat/completions", max_tokens=2, messages=BOOK, verbose=verbose)
            self.assertEqual("__verbose" in answer, verbose)
        template = self.post("/apply-template", messages=BOOK)["prompt"]
        frames = self.stream("/chat/completions", max_tokens=2, messages=BOOK, verbose=True)
        self.assertEqual(frames[-1]["__verbose"]["prompt"], template)
        begun = [*BOOK, {"role": "assistant", "content": "Whill"}]
        answer = self.post("/chat/completions", max_tokens=2, messages=begun, verbose=True,
                           add_generation_prompt=False, continue_final_message=True)
        self.assertTrue(answer["__verbose"]["prompt"].endswith("assistant:Whill"), answer)

    def test_a_cached_prompt_is_counted_apart(self):
        talk = [{"role": "system", "content": "Test"}, {"role": "user", "content": "1 2 3 4 5 6"}]
        for least in (0, 1):
            usage = self.post("/chat/completions", max_tokens=4, messages=talk)["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            self.assertGreaterEqual(cached, least)
            self.assertLess(cached, usage["prompt_tokens"])
        for times in (9, 10, 9, 11):
            prompt = " Hello 1" * times
            count = len(self.post("/tokenize", content=prompt, add_special=True)["tokens"])
            timings = self.post("/completion", prompt=prompt, n_predict=3)["timings"]
            self.assertEqual(timings["prompt_n"] + timings["cache_n"], count)
            self.assertEqual(timings["predicted_n"], 3)

    def test_requests_at_once_are_all_answered_whole(self):
        lengths = [80, 40, 80, 75]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = [pool.submit(self.post, "/completion", prompt="A", n_predict=length,
                                 ignore_eos=True) for length in lengths]
        self.assertEqual([one.result()["timings"]["predicted_n"] for one in asked], lengths)

    def test_a_stream_is_come_back_to_and_ended(self):
        name = "conv-stream-test::ggml-org/tinygemma3-GGUF:Q8_0"
        query = "conv_id=conv-stream-test%3A%3Aggml-org%2Ftinygemma3-GGUF%3AQ8_0"
        body = {"messages": BOOK, "max_tokens": 8, "stream": True}
        status, _, text = self.request("POST", "/chat/completions", {"X-Conversation-Id": name},
                                       body)
        self.assertEqual(status, 200)
        self.assertEqual(self.request("GET", f"/v1/stream?{query}&from=0", {})[::2], (200, text))
        self.assertEqual(self.request("DELETE", f"/v1/stream?{query}", {})[::2], (204, ""))
        for method in ("GET", "DELETE"):
            self.assertEqual(self.request(method, f"/v1/stream?{query}", {})[0], 404)

    def test_pages_of_this_machine_are_let_in_and_no_others(self):
        asks = {"Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "Authorization"}
        for origin in ("http://localhost", "http://localhost:8080", "http://127.0.0.1",
                       "http://127.0.0.1:3000", "http://[::1]", "http://[::1]:3000"):
            status, headers, _ = self.request("OPTIONS", "/completions", {"Origin": origin, **asks})
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (204, origin))
        for origin in ("http://web.mydomain.fr", "http://evil.com", "http://notlocalhost",
                       "http://localhost.evil.com"):
            status, headers, _ = self.request("OPTIONS", "/completions", {"Origin": origin, **asks})
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (403, None))

    def test_the_native_form_tells_tokens_and_times(self):
        whole = self.post("/completion", prompt=MEANING, n_predict=8, return_tokens=True)
        self.assertEqual((whole["truncated"], whole["stop_type"]), (False, "limit"))
        self.assertIs(type(whole["has_new_line"]), bool)
        self.assertEqual(whole["timings"]["predicted_n"], 8)
        self.assertEqual(len(whole["tokens"]), 8)
        self.assertEqual(self.post("/completion", prompt=MEANING, n_predict=8)["tokens"], [])
        frames = self.stream("/completion", prompt=MEANING, n_predict=8)
        self.assertEqual([frame["stop"] for frame in frames], [False] * (len(frames) - 1) + [True])
        self.assertEqual("".join(frame["content"] for frame in frames), whole["content"])
        settings = frames[-1]["generation_settings"]
        self.assertEqual((settings["n_predict"], settings["seed"]), (8, 42))
        self.assertEqual((settings["adaptive_target"], settings["logit_bias"]), (-1, []))
        self.assertIn("adaptive_decay", settings)
        settings = self.post("/completion", prompt=MEANING, n_predict=2,
                             ignore_eos=True)["generation_settings"]
        self.assertEqual({one["bias"] for one in settings["logit_bias"]}, {None})
        self.assertEqual(self.post("/completions", prompt=MEANING, n_predict=8)["content"],
                         whole["content"])
        some = self.post("/completion", prompt=MEANING, n_predict=8,
                         response_fields=["content", "generation_settings/n_predict"])
        self.assertEqual(some, {"content": whole["content"], "generation_settings/n_predict": 8})
        error = self.post("/completion", 400, prompt=MEANING * 64)["error"]
        self.assertIn("exceeds the available context size", error["message"])

    def test_the_native_form_tells_progress(self):
        frames = self.stream("/completion", prompt="the quick brown fox jumps over the dog " * 8,
                             n_predict=4, timings_per_token=True, return_progress=True)
        told = [frame for frame in frames if "prompt_progress" in frame]
        self.assertGreater(len(told), 1)
        for name in ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms"):
            self.assertEqual(told[0]["timings"][name], 0, name)
        times = [frame["timings"]["prompt_ms"] for frame in told]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[-1], 0)
        self.assertTrue(all("timings" in frame for frame in frames))

    def test_the_native_form_takes_tokens_for_texts(self):
        tokens = self.post("/tokenize", content=MEANING, add_special=True)["tokens"]
        alone = self.post("/completion", prompt=tokens, n_predict=4)["content"]
        for prompts in ([tokens, tokens], [tokens, MEANING]):
            status, text = self.server.ask("/completion", {"prompt": prompts, "n_predict": 4})
            self.assertEqual(status, 200, text)
            self.assertEqual([one["content"] for one in json.loads(text)][0], alone)
        self.post("/completion", prompt=[1, 2, 3, MEANING, 7, 8], n_predict=2)

    def test_the_native_form_tells_probabilities(self):
        answer = self.post("/completion", prompt=MEANING, n_probs=10, temperature=0, n_predict=5)
        told = answer["completion_probabilities"]
        self.assertEqual(len(told), 5)
        for one in told:
            self.assertLessEqual(one["logprob"], 0)
            self.assertIs(type(one["bytes"]), list)
            self.assertEqual(len(one["top_logprobs"]), 10)
        told = [self.post("/completion", prompt=MEANING, n_probs=10, n_predict=8, seed=4242,
                          post_sampling_probs=True, backend_sampling=backend)
                ["completion_probabilities"] for backend in (True, False)]
        self.assertEqual(*told)
        self.assertTrue(all(0 < top["prob"] <= 1 for one in told[0] for top in one["top_probs"]))
        for words in ([[" " + word + " ", -100] for word in WORDS],
                      {" " + word + " ": -100 for word in WORDS}):
            text = self.post("/completion", prompt="What is the best book", n_predict=64,
                             temperature=0, logit_bias=words)["content"]
            self.assertFalse([word for word in WORDS if f" {word} " in text])

    def test_metrics_are_prometheus_text(self):
        self.post("/v1/completions", prompt="I believe", max_tokens=8)
        _, headers, text = self.request("GET", "/metrics", {})
        self.assertLessEqual(int(headers["Process-Start-Time-Unix"]), time.time())
        kinds = dict(line.split(" ")[2:4] for line in text.splitlines()
                     if line.startswith("# TYPE "))
        values = dict(line.split(" ") for line in text.splitlines()
                      if line.startswith("llamacpp:") and "{" not in line)
        for name, kind in (("prompt_tokens_total", "counter"),
                           ("prompt_tokens_cached_total", "counter"),
                           ("tokens_predicted_total", "counter"),
                           ("prompt_seconds_total", "counter"), ("n_decode_total", "counter"),
                           ("tokens_predicted_seconds_total", "counter"),
                           ("n_tokens_max", "counter"),
                           ("spec_decode_num_draft_tokens_total", "counter"),
                           ("spec_decode_num_accepted_tokens_total", "counter"),
                           ("spec_decode_num_drafts_total", "counter"),
                           ("n_busy_slots_per_decode", "gauge"),
                           ("predicted_tokens_seconds", "gauge"), ("requests_deferred", "gauge"),
                           ("requests_processing", "gauge"), ("prompt_tokens_seconds", "gauge")):
            self.assertEqual(kinds[f"llamacpp:{name}"], kind, name)
            self.assertIn(f"# HELP llamacpp:{name} ", text)
        self.assertGreater(float(values["llamacpp:n_decode_total"]), 0)
        self.assertEqual(float(values["llamacpp:requests_processing"]), 0)
        self.assertGreater(float(values["llamacpp:n_tokens_max"]), 8)
        self.assertGreaterEqual(float(values["llamacpp:n_busy_slots_per_decode"]), 1)

    def test_times_are_numbers(self):
        for tokens in (1, 8):
            timings = self.post("/v1/completions", prompt="I believe",
                                max_tokens=tokens)["timings"]
            for name, value in timings.items():
                self.assertTrue(math.isfinite(value) and value >= 0, name)
            self.assertEqual(timings["predicted_n"], tokens)
            # The first comes of the prompt's last step.
            rate = (tokens - 1) * 1e3 / timings["predicted_ms"] if tokens > 1 else 0
            self.assertAlmostEqual(timings["predicted_per_second"], rate, places=6)
            self.assertGreater(timings["prompt_per_token_ms"], 0)

    def test_the_servers_seed_is_that_of_requests_without_one(self):
        body = {"prompt": MEANING, "max_tokens": 8}
        texts = [self.post("/v1/completions", **body, **seed)["choices"][0]["text"]
                 for seed in ({}, {}, {"seed": 42}, {"seed": 7})]
        self.assertEqual(texts[:2], [texts[2]] * 2)
        self.assertNotEqual(texts[3], texts[2])

    def test_who_leaves_frees_its_place(self):
        body = json.dumps({"prompt": MEANING, "max_tokens": 240, "ignore_eos": True})
        with socket.create_connection(("127.0.0.1", self.server.port)) as one:
            one.sendall(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                         f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                         f"{body}").encode())
        deadline = time.monotonic() + 30
        while any(slot["is_processing"] for slot in self.get("/slots")):
            self.assertLess(time.monotonic(), deadline, "who has left still computes")
            time.sleep(0.05)

    def test_a_key_is_asked_for(self):
        with Server(PROGRAM, "--api-key", KEY) as server:
            def ask(path, headers, body=None):
                connection = server.connect()
                connection.request("POST" if body else "GET", path, body,
                                   {"Content-Type": "application/json", **headers})
                answer = connection.getresponse()
                text = json.loads(answer.read())
                connection.close()
                return answer.status, text

            body = json.dumps({"prompt": MEANING, "max_tokens": 1})
            self.assertEqual(ask("/health", {})[0], 200)
            for headers in ({}, {"Authorization": "Bearer invalid-key"}, {"X-Api-Key": "none"}):
                status, text = ask("/v1/completions", headers, body)
                self.assertEqual((status, text["error"]["type"]), (401, "authentication_error"))
            for headers in ({"Authorization": f"Bearer {KEY}"}, {"X-Api-Key": KEY}):
                self.assertEqual(ask("/v1/completions", headers, body)[0], 200)
                self.assertIn("content", ask("/completions", headers, body)[1])
            self.assertEqual(server.stop(), 0)

    def test_gaps_are_filled_and_reasoning_turned_off(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copytree(MODEL, os.path.join(folder, "infill"))
            for name in ("tokenizer.json", "tokenizer_config.json"):
                with open(os.path.join(model, name), "r+", encoding="utf-8") as file:
                    text = file.read()
                    for token, part in (("<think>", "prefix"), ("<tool_call>", "suffix"),
                                        ("</tool_call>", "middle")):
                        text = text.replace(f'"{token}"', f'"<|fim_{part}|>"')
                    file.seek(0)
                    file.write(text)
                    file.truncate()
            with Server(PROGRAM, model=model, template=THINKING) as server:
                gap = {"input_prefix": "int main() {\n", "prompt": "    int n = llama_",
                       "input_suffix": "}\n", "n_predict": 4}
                file = {"filename": "llama.h", "text": "int32_t llama_n_threads();\n"}
                for extra in ([], [file]):
                    status, text = server.ask("/infill", {**gap, "input_extra": extra})
                    self.assertEqual((status, "content" in json.loads(text)), (200, True))
                for extra in ({}, {"filename": "ok"}, {**file, "text": 4}, {**file, "filename": 1}):
                    status, text = server.ask("/infill", {**gap, "input_extra": [extra]})
                    self.assertEqual((status, "error" in json.loads(text)), (400, True))
                for fields, end in (({}, "<|im_start|>assistant\n"),
                                    ({"chat_template_kwargs": {"enable_thinking": False}},
                                     "assistant\n<think>\n\n</think>\n\n"),
                                    ({"add_generation_prompt": False}, "best book<|im_end|>\n")):
                    text = server.ask("/apply-template", {"messages": BOOK, **fields})[1]
                    self.assertTrue(json.loads(text)["prompt"].endswith(end), text)
                self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
