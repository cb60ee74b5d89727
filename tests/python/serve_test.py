"""moeflux.serve against the embedded model: streams at once, cancellation, the bytes of the HTTP
server (given its program), errors.

    serve_test.py [PROGRAM]"""

import asyncio
import json
import pathlib
import re
import sys
import tempfile
import unittest

import moeflux
import moeflux.serve

ROOT = pathlib.Path(__file__).resolve().parents[2]
FABLE = ROOT / "models" / "fable-20m"
PROGRAM = None


def completion(prompt, tokens, **fields):
    return {"prompt": prompt, "max_tokens": tokens, "seed": 7, **fields}


def events(body):
    frames = body.decode().split("\n\n")
    assert frames[-1] == "" and frames[-2] == "data: [DONE]", frames
    return [json.loads(frame[len("data: "):]) for frame in frames[:-2]]


def streamed_text(body):
    return "".join(choice["text"] for event in events(body) for choice in event["choices"])


def without_identity(body):
    """Ids and times are of the moment, speeds of the machine."""
    return re.sub(rb'"(id|created|\w+_(ms|second))":("[^"]*"|[-0-9.e+]+)', rb'"\1":0', body)


class ServeTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = moeflux.Model(FABLE, context_length=4096, threads=1, turn_timeout=None)

    def setUp(self):
        self.service = moeflux.serve.Service(self.model)
        self.addCleanup(self.service.close)

    async def until_cancelled(self, count):
        """The service's own thread counts; a text that went on would be counted as finished."""
        while self.service.health()["cancelled"] < count:
            self.assertEqual(self.service.health()["finished"], 0)
            await asyncio.sleep(0.001)

    async def test_an_answer_comes_whole_and_in_pieces(self):
        body = completion("Once upon a time", 16)
        whole = await self.service.answer("POST", "/v1/completions", body)
        self.assertEqual((whole.status, whole.content_type), (200, "application/json"))
        text = json.loads(whole.body)["choices"][0]["text"]
        pieces = [piece async for piece in self.service.handle(
            "POST", "/v1/completions", json.dumps({**body, "stream": True}))]
        self.assertEqual({piece.status for piece in pieces}, {200})
        self.assertIn("text/event-stream", pieces[0].content_type)
        for piece in pieces:
            self.assertTrue(not piece.body or piece.body.endswith(b"\n\n"))
        self.assertEqual(streamed_text(b"".join(piece.body for piece in pieces)), text)

    async def test_streams_at_once_say_what_they_say_alone(self):
        bodies = [completion(f"Story {i}. There was a", 24, stream=True) for i in range(3)]
        alone = [streamed_text((await self.service.answer("POST", "/v1/completions", body)).body)
                 for body in bodies]
        answers = await asyncio.gather(
            *(self.service.answer("POST", "/v1/completions", body) for body in bodies))
        self.assertEqual([streamed_text(answer.body) for answer in answers], alone)

    async def test_a_closed_generator_and_a_cancelled_task_end_their_texts(self):
        body = completion("There was a", 4000, stream=True, ignore_eos=True)
        answer = self.service.handle("POST", "/v1/completions", body)
        self.assertEqual((await answer.__anext__()).status, 200)
        await answer.aclose()
        await self.until_cancelled(1)

        begun = asyncio.Event()

        async def listen():
            async for _ in self.service.handle("POST", "/v1/completions", body):
                begun.set()

        task = asyncio.create_task(listen())
        await begun.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.until_cancelled(2)

    async def test_a_text_that_nobody_takes_keeps_nobody_waiting(self):
        answer = self.service.handle("POST", "/v1/completions",
                                     completion("There was a", 4000, stream=True, ignore_eos=True))
        await answer.__anext__()
        other = await self.service.answer("POST", "/v1/completions", completion("A king", 4))
        self.assertEqual(other.status, 200)
        await answer.aclose()

    async def test_the_model_serves_others_in_turns(self):
        def story():
            sequence = self.model.sequence()
            sequence.set_sampler(seed=3)
            return sequence.generate("There was a", max_tokens=12).text

        alone = story()
        answer, text = await asyncio.gather(
            self.service.answer("POST", "/v1/completions", completion("A king", 24)),
            asyncio.to_thread(story))
        self.assertEqual((answer.status, text), (200, alone))

    async def test_errors_are_answers(self):
        for method, path, body, status, piece in (
                ("GET", "/nowhere", None, 404, "/nowhere"),
                ("GET", "/v1/completions", None, 405, "POST"),
                ("POST", "/v1/completions", "{", 400, "the body"),
                ("POST", "/v1/completions", {"prompt": "a", "n": -1}, 400, "n"),
                ("POST", "/v1/completions", {"prompt": "a", "model": "other"}, 404, "other"),
                ("POST", "/v1/audio/speech", {"input": "a"}, 404, "not offered")):
            answer = await self.service.answer(method, path, body)
            self.assertEqual(answer.status, status, answer)
            self.assertIn(piece, json.loads(answer.body)["error"]["message"])
        with self.assertRaises(moeflux.InvalidArgumentError):
            await self.service.answer("GET", "no path")
        with self.assertRaises(TypeError):
            moeflux.serve.Service(self.model, threads=2)
        with self.assertRaisesRegex(TypeError, "warmth"):
            moeflux.serve.Service(self.model, sampler={"warmth": 1})

    async def test_closing_ends_answers_and_draining_waits_for_them(self):
        service = moeflux.serve.Service(self.model, parallel=1, queue=1)
        body = completion("There was a", 12)
        running = asyncio.create_task(service.answer("POST", "/v1/completions", body))
        while not (service.health()["running"] or service.health()["finished"]):
            await asyncio.sleep(0.001)
        await service.drain()
        self.assertEqual(service.health()["state"], "draining")
        self.assertEqual((await running).status, 200)
        self.assertEqual((await service.answer("POST", "/v1/completions", body)).status, 503)
        service.close()
        with self.assertRaisesRegex(moeflux.FailedPreconditionError, "closed"):
            service.health()

        service = moeflux.serve.Service(self.model)
        body = completion("There was a", 4000, stream=True, ignore_eos=True)
        answer = service.handle("POST", "/v1/completions", body)
        await answer.__anext__()
        service.close()
        with self.assertRaises(moeflux.CancelledError):
            async for _ in answer:
                pass

    async def test_metrics_and_defaults_are_those_of_the_server(self):
        with moeflux.serve.Service(FABLE, context_length=256, threads=1, model_name="teller",
                                   aliases=["*"], sampler={"temperature": 0}) as service:
            texts = set()
            for seed in (1, 2):
                answer = await service.answer("POST", "/v1/completions", {
                    "model": "whatever", "prompt": "There was a", "max_tokens": 8, "seed": seed})
                texts.add(json.loads(answer.body)["choices"][0]["text"])
            self.assertEqual(len(texts), 1)
            self.assertIn("moeflux", service.metrics())
            self.assertEqual(service.health()["model"], "teller")
            self.assertEqual(service.model.info["context_length"], 256)

    async def test_the_bytes_are_those_of_the_http_server(self):
        if PROGRAM is None:
            self.skipTest("no program was given")
        sys.path.insert(0, str(ROOT / "tests" / "serve"))
        from server import TEMPLATE, Server  # pylint: disable=import-outside-toplevel
        service = moeflux.serve.Service(FABLE, context_length=1024, chat_template=TEMPLATE)
        requests = [("/v1/completions", completion("A king", 12)),
                    ("/v1/completions", completion("A king", 12, stream=True)),
                    ("/v1/completions", {"prompt": 1}),
                    ("/tokenize", {"content": "A king"}),
                    ("/health", None), ("/v1/nowhere", None)]
        for stream in (False, True):
            requests.append(("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Tell me"}], "max_tokens": 12, "seed": 3,
                "stream": stream}))
        with Server(PROGRAM) as server:
            for path, body in requests:
                status, text = server.ask(path, body)
                answer = await service.answer("GET" if body is None else "POST", path, body)
                self.assertEqual(answer.status, status, path)
                self.assertEqual(without_identity(answer.body), without_identity(text.encode()))
        service.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PROGRAM = sys.argv.pop(1)
    unittest.main()
