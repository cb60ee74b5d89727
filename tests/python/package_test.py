"""The Python package against the embedded model: what the C++ tests show, from here."""

import ast
import json
import pathlib
import tempfile
import threading
import unittest

import numpy as np

import moeflux
from moeflux import _core

ROOT = pathlib.Path(__file__).resolve().parents[2]
FABLE = ROOT / "models" / "fable-20m"
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

    def test_calls_of_several_threads_wait_for_their_turns(self):
        model = moeflux.Model(FABLE, context_length=256, threads=1, turn_timeout=-1)
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

    def test_a_loop_over_a_stream_does_not_wait_for_itself(self):
        model = moeflux.Model(FABLE, context_length=256, threads=1, turn_timeout=-1)
        sequence, other = model.sequence(), model.sequence()
        for _ in sequence.stream(PROMPT, max_tokens=2):
            for call in (lambda: other.eval(self.tokens), lambda: next(other.stream(PROMPT)),
                         model.sequence, sequence.checkpoint):
                with self.assertRaisesRegex(moeflux.BusyError, "stream"):
                    call()
        other.eval(self.tokens)

    def test_a_stream_that_waits_can_be_left_and_cancelled(self):
        model = moeflux.Model(FABLE, context_length=256, threads=1, turn_timeout=-1)
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
        with self.assertRaisesRegex(ValueError, "quantum"):
            moeflux.Model(FABLE, device="quantum")
        with self.assertRaises(moeflux.CorruptionError):
            self.model.sequence().load(b"no snapshot")
        with self.assertRaises(moeflux.FailedPreconditionError):
            self.model.sequence().sample()
        for name in moeflux.__all__:
            if name.endswith("Error"):
                self.assertTrue(issubclass(getattr(moeflux, name), moeflux.Error), name)

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
