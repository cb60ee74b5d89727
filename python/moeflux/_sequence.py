"""Sequences: texts that are being evaluated, and how they ended."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence as Seq,
                    Tuple, Union)

import numpy as np
import numpy.typing as npt

from . import _arguments as take, _core
from ._errors import FailedPreconditionError, InvalidArgumentError, WrongTypeError
from ._exit import cancelled_at_exit

if TYPE_CHECKING:
    from ._model import Model

#: How much is done of how much; False stops the call.
Progress = Callable[[int, int], Optional[bool]]
#: A list or an array.
Tokens = Union[Seq[int], "npt.NDArray[np.integer[Any]]"]
Prompt = Union[str, Tokens]
Logits = npt.NDArray[np.float32]

_REASONS = ("length", "stop token", "stop string", "context full", "cancelled")


@dataclass(frozen=True)
class Generated:
    """A finished text: `finish_reason` is "length", "stop token", "stop string", "context full" or
    "cancelled"; times are in seconds."""

    text: str
    finish_reason: str
    prompt_tokens: int
    generated_tokens: int
    prefill_seconds: float
    decode_seconds: float


def _schema_text(schema: Union[str, bool, Dict[str, Any]]) -> str:
    if isinstance(schema, str):
        return take.text("json_schema", schema, whole=False)
    if not isinstance(schema, (bool, dict)):
        raise take.wrong_type("json_schema", schema, "a dictionary or its JSON")
    try:
        return json.dumps(schema)
    except (TypeError, ValueError) as error:
        raise WrongTypeError(f"json_schema cannot become JSON: {error}") from None


class Sequence:
    """One text being evaluated. Made by Model.sequence(); usable as a context manager."""

    def __init__(self, model: Model, core: _core.Sequence) -> None:
        self._model = model
        self._open: Optional[_core.Sequence] = core

    @property
    def _handle(self) -> _core.Sequence:
        if self._open is None:
            raise FailedPreconditionError("the sequence is closed")
        return self._open

    @property
    def _turn(self) -> _core.Sequence:
        """For calls that take a turn of the model."""
        self._model._check_turn()
        return self._handle

    def close(self) -> None:
        """Cancels what runs or waits on other threads; they keep what they need."""
        if self._open is not None:
            self._open.cancel()
        self._open = None

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._open is None else f"{self._open.position()} tokens"
        return f"<moeflux.Sequence, {state}>"

    def __len__(self) -> int:
        return self._handle.position()

    @property
    def position(self) -> int:
        """How many tokens have been evaluated; of a running call, at its last whole chunk or token.
        Any thread, while others compute."""
        return self._handle.position()

    def cancel(self) -> None:
        """Stops this sequence's calls that run or wait, from any thread, and does not wait for
        them. generate() and stream() end with the text they have, others raise CancelledError; the
        sequence stays usable. Without such a call it does nothing."""
        self._handle.cancel()

    def set_turn_timeout(self, seconds: Optional[float]) -> None:
        """How long later calls of this sequence wait for their turn: None: without end; 0: not at
        all."""
        self._handle.set_turn_timeout(take.milliseconds("seconds", seconds))

    @property
    def tokens(self) -> List[int]:
        """These tokens."""
        return self._turn.tokens()

    def eval(self, tokens: Tokens, *, out: Optional[Logits] = None,
             on_progress: Optional[Progress] = None) -> Logits:
        """Appends tokens; the logits of the last one as float32 [vocab_size], written by the
        library into `out` or a new array."""
        given = take.tokens("tokens", tokens)
        logits = self._array(out, ())
        self._eval(given, False, logits, on_progress)
        return logits

    def eval_all(self, tokens: Tokens, *, out: Optional[Logits] = None,
                 on_progress: Optional[Progress] = None) -> Logits:
        """Appends tokens; the logits of each as float32 [tokens, vocab_size]."""
        given = take.tokens("tokens", tokens)
        logits = self._array(out, (len(given),))
        self._eval(given, True, logits, on_progress)
        return logits

    def _eval(self, tokens: List[int], all_logits: bool, logits: Logits,
              on_progress: Optional[Progress]) -> None:
        core = self._turn
        with cancelled_at_exit(core.cancel):
            core.eval(tokens, all_logits, logits, take.callback("on_progress", on_progress))

    def logits(self, *, out: Optional[Logits] = None) -> Logits:
        """The logits of the last token, float32 [vocab_size]."""
        logits = self._array(out, ())
        self._turn.logits(logits)
        return logits

    def _array(self, out: Optional[Logits], leading: Tuple[int, ...]) -> Logits:
        shape = (*leading, self._handle.vocab_size())
        if out is None:
            return np.empty(shape, np.float32)
        if not isinstance(out, np.ndarray):
            raise take.wrong_type("out", out, "a NumPy array")
        if out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous \
                or not out.flags.writeable:
            raise InvalidArgumentError(
                f"out is {out.dtype} {out.shape}, expected writable, contiguous float32 {shape}")
        return out

    def set_sampler(self, *, temperature: Optional[float] = None, top_k: Optional[int] = None,
                    top_p: Optional[float] = None, min_p: Optional[float] = None,
                    repeat_penalty: Optional[float] = None, repeat_last_n: Optional[int] = None,
                    presence_penalty: Optional[float] = None,
                    frequency_penalty: Optional[float] = None, seed: int = 0,
                    logit_bias: Optional[Dict[int, float]] = None,
                    typical_p: Optional[float] = None,
                    top_n_sigma: Optional[float] = None,
                    xtc_probability: Optional[float] = None,
                    xtc_threshold: Optional[float] = None,
                    dynatemp_range: Optional[float] = None,
                    dynatemp_exponent: Optional[float] = None,
                    mirostat: Optional[int] = None,
                    mirostat_tau: Optional[float] = None,
                    mirostat_eta: Optional[float] = None,
                    dry_multiplier: Optional[float] = None,
                    dry_base: Optional[float] = None,
                    dry_allowed_length: Optional[int] = None,
                    dry_penalty_last_n: Optional[int] = None,
                    dry_sequence_breakers: Optional[Seq[str]] = None,
                    samplers: Union[None, str, Seq[str]] = None) -> None:
        """Replaces the sampler; what is None is the model's default. Starts its generator anew.

        samplers is the order of the steps: their names, in a list or with semicolons between."""
        values = {name: value for name, value in locals().items() if name != "self"}
        self._turn.set_sampler(take.sampler(values))

    def set_constraint(self, *, json_schema: Union[None, str, bool, Dict[str, Any]] = None,
                       regex: Optional[str] = None, grammar: Optional[str] = None,
                       json_object: bool = False) -> None:
        """Constrains what is sampled from here on, or after generate()'s prompt, by one of these,
        by nothing if none is given. A schema is a dictionary or its JSON; a grammar is llguidance's
        Lark."""
        given = [(2, _schema_text(json_schema)) if json_schema is not None else None,
                 (3, take.text("regex", regex, whole=False)) if regex is not None else None,
                 (4, take.text("grammar", grammar, whole=False)) if grammar is not None else None,
                 (1, "") if take.flag("json_object", json_object) else None]
        chosen = [one for one in given if one is not None]
        if len(chosen) > 1:
            raise InvalidArgumentError(
                "give one of json_schema, regex, grammar and json_object, not several")
        self._turn.set_constraint(*(chosen or [(0, "")])[0])

    def sample(self) -> int:
        """Samples the token after the last; does not append it."""
        return self._turn.sample()

    def generate(self, prompt: Prompt = (), *, max_tokens: int = 128, stop: Seq[str] = (),
                 stop_tokens: Tokens = (), ignore_stop_tokens: bool = False,
                 on_text: Optional[Callable[[str], Optional[bool]]] = None,
                 on_progress: Optional[Progress] = None) -> Generated:
        """Appends the prompt and continues it; without one, goes on after the last token.

        `max_tokens` below 0: until the text or the context ends. `on_text` receives complete
        characters; False ends the text. A prompt of text is tokenized with its special tokens.
        """
        options = _core.GenerateOptions()
        options.tokens_max = take.integer("max_tokens", max_tokens)
        options.stop_strings = take.texts("stop", stop)
        options.stop_tokens = take.tokens("stop_tokens", stop_tokens)
        options.ignore_stop_tokens = take.flag("ignore_stop_tokens", ignore_stop_tokens)
        take.callback("on_text", on_text)
        if isinstance(prompt, str):
            given = self._model.tokenize(prompt, add_special=True)
        else:
            given = take.tokens("prompt", prompt)
        pieces: List[str] = []

        def receive(text: str) -> Optional[bool]:
            pieces.append(text)
            return on_text(text) if on_text is not None and text else None

        core = self._turn
        with cancelled_at_exit(core.cancel):
            reason, prompt_tokens, tokens, prefill_us, decode_us = core.generate(
                given, options, receive, take.callback("on_progress", on_progress))
        return Generated("".join(pieces), _REASONS[reason], prompt_tokens, tokens,
                         prefill_us / 1e6, decode_us / 1e6)

    def stream(self, prompt: Prompt = (), *, max_tokens: int = 128, stop: Seq[str] = (),
               stop_tokens: Tokens = (), ignore_stop_tokens: bool = False) -> Iterator[str]:
        """generate() as an iterator of pieces of text.

        The next token is sampled when the next piece is asked for; leaving the loop ends the text,
        and so does cancel(). Inside the loop the model is busy: there, calls that take a turn
        raise BusyError at once.
        """
        self._model._check_turn()
        core, streams = self._handle, self._model._in_streams
        turn, ready = threading.Semaphore(0), threading.Semaphore(0)
        piece: List[str] = []
        failure: List[BaseException] = []
        wanted = True

        def on_text(text: str) -> bool:
            piece.append(text)
            ready.release()
            turn.acquire()
            return wanted

        def leave() -> None:
            nonlocal wanted
            wanted = False
            turn.release()
            core.cancel()

        def run() -> None:
            turn.acquire()
            try:
                if wanted:
                    with cancelled_at_exit(leave):
                        self.generate(prompt, max_tokens=max_tokens, stop=stop,
                                      stop_tokens=stop_tokens,
                                      ignore_stop_tokens=ignore_stop_tokens, on_text=on_text,
                                      on_progress=lambda done, total: wanted)
            except BaseException as error:  # comes out of the iterator
                failure.append(error)
            ready.release()

        worker = threading.Thread(target=run, name="moeflux stream", daemon=True)
        worker.start()
        try:
            while True:
                turn.release()
                ready.acquire()
                if not piece:
                    worker.join()
                    break
                thread = threading.get_ident()
                streams.append(thread)
                try:
                    yield piece.pop()
                finally:
                    streams.remove(thread)
        finally:
            while worker.is_alive():  # once its call has begun, it can be cancelled
                leave()
                worker.join(0.02)
        if failure:
            raise failure[0]

    def checkpoint(self) -> int:
        """Keeps the sequence as it is now, sampler included; its id for restore() and drop()."""
        return self._turn.checkpoint()

    def restore(self, checkpoint: int) -> None:
        """Back to a checkpoint, which stays."""
        self._turn.restore(take.unsigned("checkpoint", checkpoint))

    def drop(self, checkpoint: int) -> None:
        """Forgets a checkpoint."""
        self._turn.drop(take.unsigned("checkpoint", checkpoint))

    def truncate(self, position: int) -> None:
        """Forgets the tokens from `position` on, exactly."""
        self._turn.truncate(take.integer("position", position))

    def fork(self) -> Sequence:
        """A sequence of its own that begins as a copy of this one, without its checkpoints."""
        return Sequence(self._model, self._turn.fork())

    def save(self) -> bytes:
        """The sequence with its sampler as bytes."""
        return self._turn.save()

    def load(self, snapshot: bytes) -> None:
        """Replaces the sequence by a saved one of the same model; what is refused changes
        nothing."""
        self._turn.load(take.snapshot("snapshot", snapshot))

    def save_file(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """save() to a file, which is replaced whole or not at all."""
        self._turn.save_file(take.path("path", path))

    def load_file(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """load() from a file."""
        self._turn.load_file(take.path("path", path))

    def reuse_prefix(self, tokens: Tokens) -> int:
        """Starts an empty sequence from the longest cached prefix; how many tokens need no
        evaluation."""
        return self._turn.reuse_prefix(take.tokens("tokens", tokens))

    def keep_prefix(self) -> None:
        """Offers the sequence's tokens to later ones."""
        self._turn.keep_prefix()
