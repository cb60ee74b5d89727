"""The Python package against the embedded model: what the C++ tests show, from here."""

import ast
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np

import moeflux
import moeflux.serve
from moeflux import _core

ROOT = pathlib.Path(__file__).resolve().parents[2]
FABLE = ROOT / "models" / "fable-20m"
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
PROMPT = "Once upon a time there was a"


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = moeflux.Model(FABLE, context_length=256, threads=1)
        cls.tokens = cls.model.tokenize(PROMPT)

    def begun(self):
        sequence = self.model.sequence()
        sequence.set_sampler(seed=11, repeat_penalty=1.1)
        sequence.generate(self.tokens, max_tokens=8)
        return sequence

    def test_tokens_are_text_and_back(self):
        self.assertEqual(self.model.detokenize(self.tokens), PROMPT)
        self.assertTrue(self.model.stop_tokens)
        self.assertEqual(self.model.info["context_length"], 256)

    def test_logits_are_written_into_the_callers_array(self):
        sequence = self.model.sequence()
        out = np.zeros(self.model.info["vocab_size"], np.float32)
        self.assertIs(sequence.eval(self.tokens, out=out), out)
        self.assertGreater(np.ptp(out), 0)
        rows = self.model.sequence().eval_all(self.tokens)
        self.assertEqual(rows.shape, (len(self.tokens), len(out)))
        np.testing.assert_array_equal(rows[-1], out)
        np.testing.assert_array_equal(sequence.logits(), out)
        self.assertEqual(len(sequence), len(self.tokens))
        for wrong in (out[:-1], out.astype(np.float64), np.zeros(2 * len(out), np.float32)[::2]):
            with self.assertRaises(moeflux.InvalidArgumentError):
                sequence.logits(out=wrong)

    def test_keys_and_values_are_kept_in_the_types_that_were_asked_for(self):
        def logits(**types):
            model = moeflux.Model(FABLE, context_length=256, threads=1, precision="f32", **types)
            row = model.sequence().eval(self.tokens)
            return row, model.metrics["sequence_bytes"]

        wide, wide_bytes = logits(cache_type_k="f32", cache_type_v="f32")
        narrow, narrow_bytes = logits(cache_type_k="f16", cache_type_v="f16")
        self.assertLess(narrow_bytes, wide_bytes)
        self.assertFalse(np.array_equal(wide, narrow))
        np.testing.assert_allclose(wide, narrow, atol=0.02)
        codes, codes_bytes = logits(cache_type_k="q8_0", cache_type_v="q8_0")
        self.assertLess(codes_bytes, narrow_bytes)
        self.assertFalse(np.array_equal(narrow, codes))
        np.testing.assert_allclose(wide, codes, atol=0.3)
        with self.assertRaises(moeflux.InvalidArgumentError):
            moeflux.Model(FABLE, cache_type_k="q4_0")

    def test_sequences_in_common_steps_have_the_logits_they_have_alone(self):
        texts = [self.tokens, self.tokens[:3], self.tokens[2:]]
        sequences = [self.model.sequence() for _ in texts]
        alone = [self.model.sequence().eval(text) for text in texts]
        together = self.model.eval_batch(list(zip(sequences, texts)))
        for got, expected in zip(together, alone):
            np.testing.assert_array_equal(got, expected)
        following = [[int(np.argmax(row))] for row in together]
        together = self.model.eval_batch(list(zip(sequences, following)), decode=True)
        for sequence, text, more, got in zip(sequences, texts, following, together):
            np.testing.assert_array_equal(got, self.model.sequence().eval(list(text) + more))
            self.assertEqual(len(sequence), len(text) + 1)

    def test_embeddings_are_rows_of_length_one_whose_bits_are_their_texts(self):
        rows = self.model.embed(["A fox", "Once upon a time"])
        self.assertEqual((rows.dtype, rows.shape), (np.float32, (2, 256)))
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
        np.testing.assert_array_equal(self.model.embed("A fox"), rows[0])
        cut = self.model.embed("A fox", dimensions=16)
        self.assertEqual(cut.shape, (16,))
        np.testing.assert_allclose(cut * np.linalg.norm(rows[0][:16]), rows[0][:16], rtol=1e-4,
                                   atol=1e-7)
        self.assertFalse(np.array_equal(self.model.embed("A fox", pooling="mean"), rows[0]))
        self.assertEqual(self.model.embed([]).size, 0)
        with self.assertRaisesRegex(moeflux.InvalidArgumentError, "dimensions is 257"):
            self.model.embed("A fox", dimensions=257)
        with self.assertRaisesRegex(moeflux.WrongTypeError, r"texts\[1\] is int"):
            self.model.embed(["a", 1])

    def test_an_item_of_a_batch_fails_alone(self):
        good, bad = self.model.sequence(), self.model.sequence()
        items = [(bad, [-1]), (good, self.tokens)]
        error, row = self.model.eval_batch(items, return_errors=True)
        self.assertIsInstance(error, moeflux.InvalidArgumentError)
        np.testing.assert_array_equal(row, good.logits())
        with self.assertRaises(moeflux.InvalidArgumentError):
            self.model.eval_batch(items)
        self.assertEqual(len(good), 2 * len(self.tokens))

    def test_a_stream_is_the_text_of_generate(self):
        whole = self.model.sequence()
        whole.set_sampler(seed=7)
        done = whole.generate(PROMPT, max_tokens=20)
        self.assertEqual(done.finish_reason, "length")
        self.assertEqual(done.generated_tokens, 20)
        streamed = self.model.sequence()
        streamed.set_sampler(seed=7)
        self.assertEqual("".join(streamed.stream(PROMPT, max_tokens=20)), done.text)
        self.assertEqual(streamed.tokens, whole.tokens)

    def test_leaving_the_loop_ends_the_text(self):
        sequence = self.model.sequence()
        seen = []
        for piece in sequence.stream(PROMPT, max_tokens=-1):
            seen.append(piece)
            with self.assertRaises(moeflux.BusyError):
                self.model.sequence()
            self.assertEqual(len(sequence), len(self.tokens) + len(seen) - 1)
            if len(seen) == 3:
                break
        self.assertLess(len(sequence), len(self.tokens) + 8)
        self.assertTrue(sequence.generate(max_tokens=2).text)

    def test_another_thread_cancels_a_stream(self):
        sequence = self.model.sequence()
        pieces = sequence.stream(PROMPT, max_tokens=-1, ignore_stop_tokens=True)
        begin = [next(pieces) for _ in range(3)]
        canceller = threading.Thread(target=sequence.cancel)
        canceller.start()
        canceller.join()
        begin += pieces
        self.assertLess(len(sequence), len(self.tokens) + 8)
        whole = self.model.sequence().generate(PROMPT, max_tokens=20, ignore_stop_tokens=True)
        self.assertTrue(whole.text.startswith("".join(begin)))

    def test_calls_of_several_threads_wait_for_their_turns_unless_told_otherwise(self):
        model = moeflux.Model(FABLE, context_length=256, threads=1)
        expected = self.model.sequence().generate(PROMPT, max_tokens=12).text
        texts = []

        def write():
            with model.sequence() as sequence:
                texts.append(sequence.generate(PROMPT, max_tokens=12).text)

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            self.assertLessEqual(model.metrics["waiting_calls"], 4)
        self.assertEqual(texts, [expected] * 4)
        with self.assertRaises(moeflux.BusyError):  # no number of seconds: another call does wait
            self.ask_while_busy(model, 0)
        with self.assertRaises(moeflux.BusyError):
            self.ask_while_busy(model, 0.001)

    def ask_while_busy(self, model, timeout):
        """The words of a call that may wait `seconds` for one that does not end before it."""
        holder, waiter = model.sequence(), model.sequence()
        waiter.set_turn_timeout(timeout)
        outcome = []

        def ask():
            try:
                waiter.eval(self.tokens)
            except moeflux.Error as error:
                outcome.append(error)

        def on_text(_):
            if not outcome:
                asker = threading.Thread(target=ask)
                asker.start()
                asker.join()
            return False

        holder.generate(PROMPT, on_text=on_text)
        if outcome:
            raise outcome[0]

    def test_a_loop_over_a_stream_does_not_wait_for_itself(self):
        model = moeflux.Model(FABLE, context_length=256, threads=1, turn_timeout=None)
        sequence, other = model.sequence(), model.sequence()
        for _ in sequence.stream(PROMPT, max_tokens=2):
            for call in (lambda: other.eval(self.tokens), lambda: next(other.stream(PROMPT)),
                         model.sequence, sequence.checkpoint):
                with self.assertRaisesRegex(moeflux.BusyError, "stream"):
                    call()
        other.eval(self.tokens)

    def test_a_stream_that_waits_can_be_left_and_cancelled(self):
        model = moeflux.Model(FABLE, context_length=256, threads=1, turn_timeout=None)
        holder, waiter = model.sequence(), model.sequence()
        held = holder.stream(PROMPT)
        next(held)
        texts = []
        reader = threading.Thread(target=lambda: texts.append(list(waiter.stream(PROMPT))))
        reader.start()
        while model.metrics["waiting_calls"] == 0:
            pass
        waiter.close()  # cancels
        reader.join()
        self.assertEqual(texts, [[]])
        held.close()
        self.assertEqual(model.metrics["waiting_calls"], 0)
        holder.set_turn_timeout(float("inf"))

    def test_unknown_keys_of_a_config_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in FABLE.iterdir():
                target = pathlib.Path(folder) / file.name
                if file.name == "config.json":
                    config = json.loads(file.read_text())
                    config["text_config"]["frobnication_rate"] = 0.5
                    target.write_text(json.dumps(config))
                else:
                    target.symlink_to(file)
            lines = []
            moeflux.Model(folder, context_length=64, on_log=lines.append).close()
            self.assertEqual(len(lines), 1)
            self.assertIn("frobnication_rate", lines[0])
            with self.assertLogs("moeflux", "WARNING") as logged:
                moeflux.Model(folder, context_length=64).close()
            self.assertEqual([record.getMessage() for record in logged.records], lines)

    def test_a_callback_cancels_and_its_exception_comes_out(self):
        sequence = self.model.sequence()
        done = sequence.generate(PROMPT, on_text=lambda text: False)
        self.assertEqual(done.finish_reason, "cancelled")

        def fail(_):
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            self.model.sequence().generate(PROMPT, on_text=fail)
        with self.assertRaises(moeflux.InvalidArgumentError):
            list(self.model.sequence().stream([1 << 29]))

    def test_states_come_back(self):
        sequence = self.begun()
        logits = sequence.logits()
        mark = sequence.checkpoint()
        snapshot = sequence.save()
        ending = sequence.generate(max_tokens=10).text
        sequence.restore(mark)
        np.testing.assert_array_equal(sequence.logits(), logits)
        self.assertEqual(sequence.fork().generate(max_tokens=10).text, ending)
        loaded = self.model.sequence()
        loaded.load(snapshot)
        self.assertEqual(loaded.generate(max_tokens=10).text, ending)
        with tempfile.TemporaryDirectory() as folder:
            sequence.save_file(pathlib.Path(folder) / "state")
            loaded.load_file(pathlib.Path(folder) / "state")
        np.testing.assert_array_equal(loaded.logits(), logits)
        sequence.truncate(len(self.tokens))
        np.testing.assert_array_equal(sequence.logits(), self.model.sequence().eval(self.tokens))
        sequence.drop(mark)
        with self.assertRaises(moeflux.NotFoundError):
            sequence.restore(mark)

    def test_computing_leaves_the_interpreter_free(self):
        ticks = []
        done = threading.Event()

        def tick():
            while not done.is_set():
                ticks.append(1)

        worker = threading.Thread(target=tick)
        sequence = self.model.sequence()
        worker.start()
        try:
            sequence.eval(self.tokens * 30)
            during = len(ticks)
        finally:
            done.set()
            worker.join()
        self.assertGreater(during, 0)

    def test_errors_have_one_base_and_say_what_is_wrong(self):
        with self.assertRaisesRegex(moeflux.NotFoundError, "no such folder") as caught:
            moeflux.Model("/nonexistent")
        self.assertIsInstance(caught.exception, moeflux.Error)
        with self.assertRaisesRegex(ValueError, "did you mean prefill-chunk"):
            moeflux.Model(FABLE, tuning="prefil-chunk=4")
        with self.assertRaisesRegex(ValueError, "quantum"):
            moeflux.Model(FABLE, device="quantum")
        with self.assertRaises(moeflux.CorruptionError):
            self.model.sequence().load(b"no snapshot")
        with self.assertRaises(moeflux.FailedPreconditionError):
            self.model.sequence().sample()
        for name in moeflux.__all__:
            if name.endswith("Error"):
                self.assertTrue(issubclass(getattr(moeflux, name), moeflux.Error), name)

    def test_arguments_of_a_wrong_type_are_named_in_our_own_words(self):
        model, sequence = self.model, self.model.sequence()
        for name, expected, call in (
                ("path", "a path", lambda: moeflux.Model(7)),
                ("threads", "int", lambda: moeflux.Model(FABLE, threads="two")),
                ("threads", "2147483647", lambda: moeflux.Model(FABLE, threads=1 << 40)),
                ("device", "str", lambda: moeflux.Model(FABLE, device=None)),
                ("device", "zero", lambda: moeflux.Model(FABLE, device="cpu\0")),
                ("context_length", "int", lambda: moeflux.Model(FABLE, context_length=1.5)),
                ("prefix_cache_bytes", "0 to", lambda: moeflux.Model(FABLE, prefix_cache_bytes=-1)),
                ("turn_timeout", "number", lambda: moeflux.Model(FABLE, turn_timeout="1")),
                ("turn_timeout", "seconds",
                 lambda: moeflux.Model(FABLE, turn_timeout=float("nan"))),
                ("on_progress", "function", lambda: moeflux.Model(FABLE, on_progress=1)),
                ("on_log", "function", lambda: moeflux.Model(FABLE, on_log="print")),
                ("text", "str", lambda: model.tokenize(b"bytes")),
                ("text", "surrogate", lambda: model.tokenize("a\ud800")),
                ("inert", "True or False", lambda: model.tokenize("a", inert="yes")),
                ("tokens", "tokenize", lambda: model.detokenize("text")),
                ("tokens", "list of int", lambda: model.detokenize(3)),
                ("items", "pairs", lambda: model.eval_batch(3)),
                ("items[0]", "a pair", lambda: model.eval_batch([3])),
                ("items[0]", "a pair", lambda: model.eval_batch([(3, [1])])),
                ("items[0]", "tokenize", lambda: model.eval_batch([(sequence, "text")])),
                ("decode", "True or False", lambda: model.eval_batch([], decode="yes")),
                ("tokens[1]", "int", lambda: sequence.eval([1, "2"])),
                ("tokens[0]", "2147483647", lambda: sequence.eval([1 << 31])),
                ("tokens[0]", "int", lambda: sequence.eval_all(np.zeros(2))),
                ("out", "array", lambda: sequence.eval([1], out=[0.0])),
                ("temperature", "a number", lambda: sequence.set_sampler(temperature="hot")),
                ("top_k", "int", lambda: sequence.set_sampler(top_k=0.5)),
                ("seed", "0 to", lambda: sequence.set_sampler(seed=-1)),
                ("logit_bias", "a dictionary", lambda: sequence.set_sampler(logit_bias=[1])),
                ("logit_bias[1]", "number", lambda: sequence.set_sampler(logit_bias={1: "a"})),
                ("samplers[0]", "str", lambda: sequence.set_sampler(samplers=[1])),
                ("dry_sequence_breakers", "list of str",
                 lambda: sequence.set_sampler(dry_sequence_breakers="\n")),
                ("json_schema", "dictionary", lambda: sequence.set_constraint(json_schema=[1])),
                ("json_schema", "JSON", lambda: sequence.set_constraint(json_schema={"a": {1}})),
                ("regex", "str", lambda: sequence.set_constraint(regex=1)),
                ("max_tokens", "int", lambda: sequence.generate("a", max_tokens="all")),
                ("stop", "list of str", lambda: sequence.generate("a", stop="end")),
                ("prompt", "list of int", lambda: sequence.generate(5)),
                ("on_text", "function", lambda: sequence.generate("a", on_text=1)),
                ("checkpoint", "int", lambda: sequence.restore("first")),
                ("checkpoint", "0 to", lambda: sequence.drop(-1)),
                ("position", "int", lambda: sequence.truncate(None)),
                ("seconds", "number", lambda: sequence.set_turn_timeout([])),
                ("snapshot", "bytes", lambda: sequence.load("text")),
                ("path", "a path", lambda: sequence.save_file(1)),
                ("tokens", "list of int", lambda: sequence.reuse_prefix(1)),
                ("messages", "dictionaries", lambda: model.chat(5)),
                ("chat", "JSON", lambda: model.chat([{"role": {1}}])),
                ("chat_template", "str", lambda: model.chat("a", chat_template=1))):
            with self.subTest(name, expected=expected):
                with self.assertRaises(moeflux.InvalidArgumentError) as caught:
                    call()
                self.assertIn(name, str(caught.exception))
                self.assertIn(expected, str(caught.exception))
                self.assertNotIn("incompatible", str(caught.exception))
        with self.assertRaises(TypeError):
            sequence.eval("text")
        self.assertEqual(len(sequence), 0)
        row = sequence.eval(np.array(self.tokens, np.int64))
        np.testing.assert_array_equal(row, self.model.sequence().eval(tuple(self.tokens)))

    def test_answers_of_callbacks_are_true_or_false_as_python_sees_them(self):
        for answer, reason in ((1, "length"), ("on", "length"), (None, "length"),
                               (np.bool_(False), "cancelled"), ("", "cancelled")):
            done = self.model.sequence().generate(PROMPT, max_tokens=3,
                                                  on_text=lambda _, says=answer: says)
            self.assertEqual(done.finish_reason, reason)

    def test_a_chat_is_an_iterator_of_text(self):
        fields = {"chat_template": TEMPLATE, "max_tokens": 12, "seed": 3}
        reply = self.model.chat("Tell me", **fields)
        pieces = list(reply)
        self.assertGreater(len(pieces), 1)
        self.assertEqual("".join(pieces), reply.text)
        self.assertEqual(reply.finish_reason, "length")
        self.assertEqual(reply.usage["completion_tokens"], 12)
        self.assertEqual(reply.message, {"role": "assistant", "content": reply.text})
        messages = [{"role": "user", "content": "Tell me"}]
        self.assertEqual(self.model.chat(messages, **fields).read(), reply.text)
        messages += [reply.message, {"role": "user", "content": "And then?"}]
        longer = self.model.chat(messages, **fields)
        self.assertTrue(longer.read())
        self.assertGreater(longer.usage["prompt_tokens"], reply.usage["prompt_tokens"])

    def test_a_chat_writes_documents_of_a_schema(self):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
                  "additionalProperties": False}
        reply = self.model.chat("Tell me", chat_template=TEMPLATE, schema=schema,
                                max_tokens=60, temperature=0)
        self.assertIn("ok", json.loads(reply.read()))

    def test_a_chat_waits_where_it_does_not_stream(self):
        fields = {"chat_template": TEMPLATE, "max_tokens": 12, "seed": 3}
        reply = self.model.chat("Tell me", stream=False, **fields)
        self.assertEqual(reply.finish_reason, "length")
        self.assertEqual(reply.text, self.model.chat("Tell me", **fields).read())

    def test_a_chat_calls_tools(self):
        parameters = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}},
                      "required": ["city"], "additionalProperties": False}
        tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
        shared = {"stream": False, "chat_template": TEMPLATE, "tools": [tool], "temperature": 0}
        messages = [{"role": "user", "content": "Rome?"}]
        with moeflux.Model(FABLE, context_length=1024, threads=1) as model:
            reply = model.chat(messages, tool_choice="required", parallel_tool_calls=False,
                               **shared)
            self.assertEqual(reply.finish_reason, "tool_calls")
            (call,) = reply.tool_calls
            self.assertEqual(call["function"]["name"], "weather")
            self.assertIn(json.loads(call["function"]["arguments"])["city"], ("Rome", "Oslo"))
            messages += [reply.message,
                         {"role": "tool", "tool_call_id": call["id"], "content": "Sun"}]
            longer = model.chat(messages, max_tokens=1, **shared)
            self.assertGreater(longer.usage["prompt_tokens"], reply.usage["prompt_tokens"])

    def test_models_of_the_hub_open_by_their_names(self):
        commit = "0123456789" * 4
        with tempfile.TemporaryDirectory() as cache:
            folder = pathlib.Path(cache) / "models--org--fable"
            snapshot = folder / "snapshots" / commit
            snapshot.mkdir(parents=True)
            (folder / "blobs").mkdir()
            for file in FABLE.iterdir():
                blob = folder / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
                shutil.copy(file, blob)
                (snapshot / file.name).symlink_to(blob)
            (folder / "refs").mkdir()
            (folder / "refs" / "main").write_text(commit)
            variables = {"HF_HUB_CACHE": cache, "HF_HUB_OFFLINE": "1"}
            with unittest.mock.patch.dict(os.environ, variables):
                with moeflux.Model.from_pretrained("org/fable", threads=1,
                                                   context_length=256) as model:
                    self.assertEqual(model.sequence().generate(PROMPT, max_tokens=4).text,
                                     self.model.sequence().generate(PROMPT, max_tokens=4).text)
                for name, reason in (("org/none", "org/none is not in"), ("none", "ORG/NAME"),
                                     ("--help", "ORG/NAME")):
                    with self.assertRaisesRegex(moeflux.NotFoundError, reason):
                        moeflux.Model.from_pretrained(name)
            with self.assertRaisesRegex(moeflux.WrongTypeError, "name"):
                moeflux.Model.from_pretrained(5)

    def test_a_chat_that_cannot_be_answered_says_why(self):
        with self.assertRaisesRegex(moeflux.InvalidArgumentError, "template"):
            self.model.chat("Tell me", chat_template="{% unclosed").read()
        with self.assertRaisesRegex(moeflux.InvalidArgumentError, "temperature"):
            self.model.chat("Tell me", chat_template=TEMPLATE, temperature="hot").read()
        with self.assertRaisesRegex(moeflux.InvalidArgumentError, "role"):
            self.model.chat([{"content": "?"}], chat_template=TEMPLATE).read()

    def test_a_chat_is_cancelled_and_takes_turns_with_other_calls(self):
        with moeflux.Model(FABLE, context_length=256, threads=1) as model:
            with model.chat("Tell me", chat_template=TEMPLATE, max_tokens=200,
                            ignore_eos=True) as reply:
                next(reply)
                model.sequence().eval(self.tokens)
            with self.assertRaises(moeflux.CancelledError):
                reply.read()
            for _ in model.sequence().stream(PROMPT, max_tokens=2):
                with self.assertRaisesRegex(moeflux.BusyError, "stream"):
                    model.chat("Tell me", chat_template=TEMPLATE)
            left = model.chat("Tell me", chat_template=TEMPLATE, max_tokens=200, ignore_eos=True)
        with self.assertRaises(moeflux.CancelledError):
            left.read()
        with self.assertRaises(moeflux.FailedPreconditionError):
            model.chat("Tell me", chat_template=TEMPLATE)

    def test_objects_say_what_they_are(self):
        with moeflux.Model(FABLE, context_length=64, threads=1) as model, \
                model.sequence() as sequence, moeflux.serve.Service(model) as service:
            self.assertRegex(repr(model), r"^<moeflux.Model '.*fable-20m', cpu .*>$")
            sequence.eval(self.tokens)
            self.assertEqual(repr(sequence), f"<moeflux.Sequence, {len(self.tokens)} tokens>")
            self.assertEqual(repr(service), "<moeflux.serve.Service 'fable-20m', ready, 0 running>")
            reply = model.chat("a", chat_template=TEMPLATE, max_tokens=1)
            self.assertEqual(repr(reply), "<moeflux.Reply '', not ended>")
            reply.read()
            self.assertRegex(repr(reply), "^<moeflux.Reply '.+', length>$")
            self.assertRegex(repr(sequence.generate(max_tokens=1)), "^Generated\\(text='")
        for one in (model, sequence, service):
            self.assertIn("closed>", repr(one))
        self.assertEqual(repr(moeflux.BusyError("x")), "BusyError('x')")
        self.assertEqual(moeflux.BusyError.__module__, "moeflux")

    def test_names_of_the_package_are_its_own(self):
        self.assertEqual(set(dir(moeflux)), set(moeflux.__all__))
        self.assertEqual(set(dir(moeflux.serve)), set(moeflux.serve.__all__))
        public = {name for name in vars(moeflux) if not name.startswith("_")}
        self.assertEqual(public - set(moeflux.__all__), {"serve"})

    def test_the_device_is_the_callers(self):
        with moeflux.Model(FABLE, device="reference", context_length=64) as model:
            self.assertIn("reference", model.info["device"])
        try:  # where there is none, the error names what was asked for
            with moeflux.Model(FABLE, device="cuda:0", context_length=64) as model:
                self.assertIn("cuda", model.info["device"])
        except (moeflux.UnsupportedError, moeflux.NotFoundError) as error:
            self.assertRegex(str(error), "cuda:0")

    def test_closed_objects_say_so(self):
        with moeflux.Model(FABLE, context_length=64, threads=1) as model, \
                model.sequence() as sequence:
            kept = model.sequence()
        for call in (lambda: model.info, lambda: sequence.tokens):
            with self.assertRaisesRegex(moeflux.FailedPreconditionError, "closed"):
                call()
        kept.eval(self.tokens)  # a sequence keeps what it needs of its model

    def test_stubs_name_what_the_extension_has(self):
        stub = ast.parse((ROOT / "python" / "moeflux" / "_core.pyi").read_text())
        classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
        found = {name for name in dir(_core) if isinstance(getattr(_core, name), type)}
        self.assertEqual(set(classes), found)
        for name, node in classes.items():
            listed = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            listed |= {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
            public = {m for m in vars(getattr(_core, name)) if not m.startswith("_")}
            self.assertEqual(listed - {"__init__"}, public, name)


if __name__ == "__main__":
    unittest.main()
