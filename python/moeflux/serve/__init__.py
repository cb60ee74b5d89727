"""The requests of `moeflux serve` without its sockets: for a server of your own.

    async with moeflux.serve.Service("models/fable-20m") as service:
        async for piece in service.handle("POST", "/v1/chat/completions", body):
            await send(piece.status, piece.content_type, piece.body)

docs/server.md says which requests there are and what they are answered. The bytes are those of the
HTTP server; keys, hosts and the sizes of bodies are the caller's to check. Texts are evaluated on a
thread of the service, which needs no lock of the interpreter; event loops are woken through a file
descriptor. An answer's text ends when its generator is closed or its task is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import os
import weakref
from typing import (Any, AsyncGenerator, List, Mapping, NamedTuple, Optional, Sequence as Seq,
                    Tuple, Union)

from .. import _arguments as take, _core
from .._errors import FailedPreconditionError, WrongTypeError
from .._model import Model

__all__ = ["Piece", "Service"]


def __dir__() -> List[str]:
    return __all__


#: Text, bytes, or what json.dumps() takes.
Body = Union[None, str, bytes, Mapping[str, Any]]


class Piece(NamedTuple):
    """A part of an answer: `status` of HTTP, its `content_type` and all `headers`, the same in
    each piece, and the next bytes of its `body`, maybe none; whole events of a stream."""

    status: int
    content_type: str
    headers: List[Tuple[str, str]]
    body: bytes


def _bytes_of(body: Body) -> bytes:
    if body is None or isinstance(body, bytes):
        return body or b""
    if isinstance(body, str):
        return take.text("body", body, whole=False).encode()
    try:
        return json.dumps(body).encode()
    except (TypeError, ValueError) as error:
        raise WrongTypeError(f"body cannot become JSON: {error}") from None


class Service:
    """Answers requests for one model. Usable as a context manager, with or without `async`."""

    def __init__(self, model: Union[str, "os.PathLike[str]", Model], *, model_name: str = "",
                 aliases: Seq[str] = (), chat_template: Optional[str] = None,
                 sampler: Optional[Mapping[str, Any]] = None, reasoning_budget: int = -1,
                 parallel: int = 0, queue: int = 64, **model_options: Any) -> None:
        """Over an open Model, or over a folder that is opened with `model_options`, those of
        Model(): `context_length`, `prefix_cache_directory` and its bytes, where conversations
        outlive the process, and others.

        The rest are options of `moeflux serve`. `model_name` is what requests call the model (its
        folder's name), `aliases` are further names, "*" is any. `chat_template` replaces the
        model's own. `sampler` has arguments of Sequence.set_sampler() for requests that say
        nothing. `reasoning_budget` are tokens of an answer's reasoning, below 0: no limit.
        `parallel` requests share the engine (0: as many as fit where a GPU holds all of the model,
        else 4), and `queue` may wait beside them."""
        if not isinstance(model, Model):
            model = Model(model, **model_options)
        elif model_options:
            raise WrongTypeError(f"an open model takes no options: {', '.join(model_options)}")
        model._check_turn()
        options = _core.ServiceOptions()
        options.model_name = take.text("model_name", model_name)
        options.model_aliases = take.texts("aliases", aliases)
        if chat_template is not None:
            options.chat_template = take.text("chat_template", chat_template)
        if not isinstance(sampler, (Mapping, type(None))):
            raise take.wrong_type("sampler", sampler, "a dictionary")
        options.sampler = take.sampler(sampler or {})
        options.reasoning_tokens_max = take.integer("reasoning_budget", reasoning_budget)
        options.active_max = take.int32("parallel", parallel)
        options.queue_max = take.int32("queue", queue)
        #: The model, which others may use too: calls take turns with the service's texts.
        self.model = model
        self._open: Optional[_core.Service] = _core.Service(model._handle, options)
        self._answers: "weakref.WeakSet[_core.Answer]" = weakref.WeakSet()

    @property
    def _handle(self) -> _core.Service:
        if self._open is None:
            raise FailedPreconditionError("the service is closed")
        return self._open

    async def handle(self, method: str, path: str, body: Body = None,
                     headers: Optional[Mapping[str, str]] = None) -> AsyncGenerator[Piece, None]:
        """The answer to a request, as it is made. `path` may have a query behind '?'. A fault
        of a request is an answer with a status of 4xx, not an exception. Pieces of keep-alives come
        where a stream is silent for seconds. close() ends it with CancelledError of moeflux."""
        text = _bytes_of(body)
        # Templates and tokens take a while for long texts.
        answer = await asyncio.to_thread(self._submit, take.text("method", method),
                                         take.text("path", path), text,
                                         take.headers("headers", headers))
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        def hear() -> None:
            answer.hear()
            ready.set()

        loop.add_reader(answer.fileno(), hear)
        try:
            told = False
            while True:
                ready.clear()
                status, ended, content_type, fields, data, keep_alive, keep_alive_ms = \
                    answer.next(0)
                if data or ended or (status and not told):
                    told = True
                    yield Piece(status, content_type, fields, data)
                if ended:
                    return
                try:
                    await asyncio.wait_for(ready.wait(), keep_alive_ms / 1000 or None)
                except asyncio.TimeoutError:
                    yield Piece(status, content_type, fields, keep_alive)
        finally:
            loop.remove_reader(answer.fileno())
            answer.free()

    def _submit(self, method: str, path: str, body: bytes,
                headers: List[Tuple[str, str]]) -> _core.Answer:
        answer = self._handle.submit(method, path, body, headers)
        self._answers.add(answer)
        return answer

    async def answer(self, method: str, path: str, body: Body = None,
                     headers: Optional[Mapping[str, str]] = None) -> Piece:
        """The same, whole."""
        pieces = [piece async for piece in self.handle(method, path, body, headers)]
        return pieces[-1]._replace(body=b"".join(piece.body for piece in pieces))

    def health(self) -> Mapping[str, Union[int, str]]:
        """`state`, "ready" or "draining", `model`, its name, texts `waiting`, `running` and
        `parked` at this moment, and how many `finished`, were `cancelled` and `failed`."""
        return self._handle.health()

    def metrics(self) -> str:
        """The text of GET /metrics, for Prometheus."""
        return self._handle.metrics()

    async def drain(self) -> None:
        """Answers further texts with 503, and returns when all others have ended and states that
        are to outlive the process are written."""
        await asyncio.to_thread(self._handle.drain)

    def close(self) -> None:
        """Ends answers that have not ended. The model stays open."""
        self._open = None
        for answer in list(self._answers):
            answer.abort()

    def __repr__(self) -> str:
        if self._open is None:
            return "<moeflux.serve.Service, closed>"
        health = self._open.health()
        return (f"<moeflux.serve.Service {health['model']!r}, {health['state']}, "
                f"{health['running']} running>")

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Service:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
