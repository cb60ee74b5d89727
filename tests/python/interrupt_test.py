"""Ctrl-C ends calls on the main thread soon, and the model stays usable."""

import pathlib
import signal
import threading
import time
import unittest

import moeflux

FABLE = pathlib.Path(__file__).resolve().parents[2] / "models" / "fable-20m"
# The whole calls take several times as long.
SECONDS_MAX = 3.0


class InterruptTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = moeflux.Model(FABLE, context_length=1024, threads=1,
                                  tuning="prefill-chunk=32")

    def interrupted(self, call):
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        timer.start()
        begun = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            call()
        self.assertLess(time.monotonic() - begun, SECONDS_MAX)
        self.assertEqual(self.model.embed("A fox").shape, (256,))
        timer.join()

    def test_embeddings(self):
        texts = ["Once upon a time there was a fox"] * 100000
        self.interrupted(lambda: self.model.embed(texts))

    def test_generated_text(self):
        def generate():
            while True:
                self.model.sequence().generate("Once", max_tokens=1000, ignore_stop_tokens=True)
        self.interrupted(generate)

    def test_a_handler_that_raises_nothing_ends_nothing(self):
        caught = []
        before = signal.signal(signal.SIGINT, lambda *args: caught.append(args))
        try:
            threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
            while not caught:
                self.assertEqual(self.model.embed(["A fox"] * 64).shape, (64, 256))
        finally:
            signal.signal(signal.SIGINT, before)

    def test_a_call_that_waits_for_its_turn(self):
        begun, over = threading.Event(), threading.Event()

        def hold(*_):
            begun.set()
            over.wait()

        sequence = self.model.sequence()
        thread = threading.Thread(target=lambda: sequence.generate("Once", max_tokens=2,
                                                                   on_text=hold))
        thread.start()
        begun.wait()
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        timer.start()
        try:
            with self.assertRaises(KeyboardInterrupt):
                self.model.sequence()
        finally:
            over.set()
            thread.join()
        self.assertEqual(self.model.embed([]).shape, (0, 256))


if __name__ == "__main__":
    unittest.main()
