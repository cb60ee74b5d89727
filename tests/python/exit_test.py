"""Programs that end while other threads compute: nothing aborts the process."""

import pathlib
import subprocess
import sys
import textwrap
import unittest

FABLE = pathlib.Path(__file__).resolve().parents[2] / "models" / "fable-20m"
BEGIN = f"""
import os, sys, threading
import moeflux
model = moeflux.Model({str(FABLE)!r}, context_length=256, threads=1)
begun = threading.Event()
def work(call):
    threading.Thread(target=call, daemon=True).start()
    begun.wait()
"""


class ExitTest(unittest.TestCase):
    def ends(self, program, status=0):
        run = subprocess.run([sys.executable, "-c", BEGIN + textwrap.dedent(program)],
                             capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, status, run.stderr)

    def test_in_the_middle_of_a_stream(self):
        self.ends("""
            stream = model.sequence().stream("Once", max_tokens=200)
            next(stream)
        """)

    def test_with_an_exception_in_the_middle_of_a_stream(self):
        self.ends("""
            stream = model.sequence().stream("Once", max_tokens=200)
            next(stream)
            sys.exit(7)
        """, status=7)

    def test_while_a_thread_generates(self):
        self.ends("""
            def generate():
                while True:
                    model.sequence().generate("Once", max_tokens=200, ignore_stop_tokens=True,
                                              on_text=lambda text: begun.set())
            work(generate)
        """)

    def test_while_a_thread_loops_over_a_stream(self):
        self.ends("""
            def loop():
                for _ in model.sequence().stream("Once", max_tokens=200, ignore_stop_tokens=True):
                    begun.set()
            work(loop)
        """)

    def test_while_a_thread_chats(self):
        self.ends("""
            def chat():
                for _ in model.chat("Once", max_tokens=200, ignore_eos=True):
                    begun.set()
            work(chat)
        """)

    def test_while_a_thread_embeds(self):
        self.ends("""
            texts = ["Once upon a time"] * 20000
            def embed():
                begun.set()
                model.embed(texts)
            work(embed)
        """)

    def test_while_a_thread_makes_short_calls(self):
        # Nothing cancels these: the thread asks for the lock while the interpreter ends.
        self.ends("""
            def calls():
                while True:
                    model.sequence().set_sampler(temperature=1)
                    model.tokenize("Once")
                    begun.set()
            for _ in range(3):
                work(calls)
        """)

    def test_while_a_thread_makes_an_exception(self):
        # Longer than it lasts, so that the interpreter ends in the middle.
        self.ends("""
            import moeflux._errors
            def forever(code, message):
                begun.set()
                while True:
                    pass
            moeflux._errors.error_for = forever
            work(lambda: moeflux.Model("/no/such/model"))
            sys.exit(7)
        """, status=7)

    def test_while_a_callback_never_returns(self):
        # Longer than calls are waited for at the end.
        self.ends("""
            import moeflux._exit
            moeflux._exit._SECONDS_MAX = 0.1
            def forever(text):
                begun.set()
                while True:
                    pass
            work(lambda: model.sequence().generate("Once", on_text=forever))
        """)

    def test_while_an_answer_of_a_callback_is_freed(self):
        self.ends("""
            import moeflux._exit
            moeflux._exit._SECONDS_MAX = 0.1
            class Answer:
                def __del__(self):
                    begun.set()
                    while True:
                        pass
            work(lambda: model.sequence().generate("Once", on_progress=lambda *_: Answer()))
        """)

    def test_a_child_that_was_forked_meanwhile_ends_too(self):
        self.ends("""
            stream = model.sequence().stream("Once", max_tokens=200)
            next(stream)
            if os.fork() == 0:
                os._exit(0)
            os.wait()
        """)


if __name__ == "__main__":
    unittest.main()
