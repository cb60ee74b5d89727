"""moeflux in Python: open a model, evaluate tokens, take logits or text, save and rewind.

    with moeflux.Model("models/fable-20m") as model, model.sequence() as sequence:
        for piece in sequence.stream("Once upon a time", max_tokens=40):
            print(piece, end="", flush=True)

Of one model and its sequences together, one call may compute at a time: others wait for their turn
as long as the model's `turn_timeout` says, in the order they came, and then raise BusyError.
Sequence.cancel() may be called from any thread, and so may `position` and `metrics`, which never
wait. The interpreter's lock is released while computing and waiting. Errors are subclasses of
Error.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from dataclasses import dataclass
from typing import (Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence as Seq, Tuple,
                    Union)

import numpy as np

from . import _core
from ._errors import (BufferTooSmallError, BusyError, CancelledError, CorruptionError, Error,
                      FailedPreconditionError, InvalidArgumentError, IoError, NotFoundError,
                      ResourceExhaustedError, UnsupportedError)

__version__: str = _core.__version__
__all__ = ["BufferTooSmallError", "BusyError", "CancelledError", "CorruptionError", "Error",
           "FailedPreconditionError", "Generated", "InvalidArgumentError", "IoError", "Model",
           "NotFoundError", "ResourceExhaustedError", "Sequence", "UnsupportedError"]

#: How much is done of how much; False stops the call.
Progress = Callable[[int, int], Optional[bool]]
Tokens = Seq[int]
Prompt = Union[str, Tokens]

_ADD_SPECIAL, _INERT, _SKIP_SPECIAL = 1, 2, 1
_REASONS = ("length", "stop token", "stop string", "context full", "cancelled")
#: For expert_cache_bytes: the least that can work.
EXPERT_CACHE_MINIMUM = -1
_WAIT_FOREVER = -1


def _milliseconds(seconds: float) -> int:
    return _WAIT_FOREVER if seconds < 0 or seconds > 1e9 else math.ceil(seconds * 1000)


def _sampler_options(values: Mapping[str, Any]) -> _core.SamplerOptions:
    """Options by the names of Sequence.set_sampler()'s arguments; None is the default."""
    options = _core.SamplerOptions()
    for name, value in values.items():
        if name == "logit_bias":
            for token, bias in (value or {}).items():
                options.add_bias(token, bias)
            continue
        if name == "samplers" and value is not None and not isinstance(value, str):
            value = ";".join(value)
        if name == "dry_sequence_breakers" and value is not None:
            value = list(value)
        if not hasattr(options, name):
            raise TypeError(f"a sampler has no option {name!r}")
        setattr(options, name, value)
    return options


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


class Model:
    """Weights, a device and the cache of experts. Usable as a context manager.

    Memory is freed when the model and all its sequences are closed or gone.
    """

    def __init__(self, directory: Union[str, "os.PathLike[str]"], *, device: str = "",
                 cpu_isa: str = "", precision: str = "", expert_io: str = "",
                 context_length: int = 0, expert_cache_bytes: int = 0, threads: int = 0,
                 reader_threads: int = 0, prefill_chunk: int = 0, trust_experts: bool = False,
                 prefix_cache_bytes: int = 0, prefix_cache_directory: str = "",
                 turn_timeout: float = 0, cache_type_k: str = "", cache_type_v: str = "",
                 near_cache_bytes: int = 0, plan: str = "",
                 on_progress: Optional[Progress] = None,
                 on_log: Optional[Callable[[str], object]] = None) -> None:
        """Opens a folder. Zeros and empty strings mean the defaults of mf_model_options, which are
        the program's: device "auto", precision "auto". `device` may be "cpu", "cuda:0" or another
        number, "metal", "reference" or "emulator"; `precision`, of the CPU, "f32", "int8",
        "q16" or "auto". `cache_type_k` and `cache_type_v`, "f32", "f16" or "q8_0", are what keys
        and values are kept in; `near_cache_bytes`, of a GPU's own memory, is for experts where it
        does not hold them all; below 0: none; `plan` says who computes experts there: "resident",
        "near", "helper", "shared" or "auto".
        `turn_timeout` is how many seconds calls wait for their turn; below 0: without end.
        `on_progress` receives bytes of the resident weights read and in all; `on_log`, while the
        folder is opened, lines such as one that names unknown keys of config.json: None gives them
        to the logger "moeflux" as warnings."""
        options = _core.ModelOptions()
        options.device = device
        options.cpu_isa = cpu_isa
        options.precision = precision
        options.expert_io = expert_io
        options.context_length = context_length
        options.expert_cache_bytes = expert_cache_bytes
        options.threads = threads
        options.reader_threads = reader_threads
        options.prefill_chunk = prefill_chunk
        options.trust_experts = trust_experts
        options.prefix_cache_bytes = prefix_cache_bytes
        options.prefix_cache_directory = prefix_cache_directory
        options.turn_timeout_ms = _milliseconds(turn_timeout)
        options.cache_type_k = cache_type_k
        options.cache_type_v = cache_type_v
        options.near_cache_bytes = near_cache_bytes
        options.plan = plan
        if on_log is None:
            on_log = logging.getLogger(__name__).warning
        self._open: Optional[_core.Model] = _core.Model(os.fspath(directory), options, on_progress,
                                                        on_log)
        self._in_streams: List[int] = []  # threads whose turn it is to ask a stream for more

    @property
    def _core(self) -> _core.Model:
        if self._open is None:
            raise FailedPreconditionError("the model is closed")
        return self._open

    def _check_turn(self) -> None:
        """For calls that may wait: not for a turn that a stream keeps until this thread goes on."""
        if threading.get_ident() in self._in_streams:
            raise BusyError("this thread is in a loop over stream(), which keeps the model busy")

    def close(self) -> None:
        self._open = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def info(self) -> Dict[str, Union[int, str]]:
        """vocab_size, context_length, num_layers, model_type, device, ... of mf_model_info."""
        return self._core.info()

    @property
    def metrics(self) -> Dict[str, int]:
        """The counters of mf_metrics. Any thread, while others compute."""
        return self._core.metrics()

    @property
    def stop_tokens(self) -> List[int]:
        """The tokens that end a text."""
        return self._core.stop_tokens()

    def tokenize(self, text: str, *, add_special: bool = False, inert: bool = False) -> List[int]:
        """Tokens of a text. `add_special`: with what the tokenizer puts around it; `inert`: text
        that spells a special token stays text."""
        return self._core.tokenize(text, _ADD_SPECIAL * add_special | _INERT * inert)

    def detokenize(self, tokens: Tokens, *, skip_special: bool = False) -> str:
        """The text of the tokens; broken characters become U+FFFD."""
        return self._core.detokenize(tokens, _SKIP_SPECIAL * skip_special)

    def sequence(self) -> Sequence:
        """An empty sequence with the model's default sampler."""
        self._check_turn()
        return Sequence(self, self._core.create_sequence())


    def eval_batch(self, items: Seq[Tuple[Sequence, Tokens]], *, decode: Optional[bool] = None,
                   return_errors: bool = False) -> List[Union[np.ndarray, Error]]:
        """Appends tokens to several sequences of this model, each once, in common steps: faster
        than one call for each, with the same logits. Returns those of each item's last token as
        float32 [vocab_size], in order.

        An item that cannot be evaluated fails alone, as one does whose sequence is cancelled. When
        the others are done the first error is raised or, with `return_errors`, stands in its item's
        place. `decode` says what the tokens are, which only decides what the cache keeps: None
        takes a single token for decode and several for a prompt."""
        self._check_turn()
        logits = [np.empty(sequence._core.vocab_size(), np.float32) for sequence, _ in items]
        phase = 0 if decode is None else 1 + bool(decode)
        outcomes = self._core.eval_batch(
            [(sequence._core, list(tokens), out) for (sequence, tokens), out in zip(items, logits)],
            phase)
        if not return_errors:
            for error in outcomes:
                if error is not None:
                    raise error
        return [out if error is None else error for out, error in zip(logits, outcomes)]


class Sequence:
    """One text being evaluated. Made by Model.sequence(); usable as a context manager."""

    def __init__(self, model: Model, core: _core.Sequence) -> None:
        self._model = model
        self._open: Optional[_core.Sequence] = core

    @property
    def _core(self) -> _core.Sequence:
        if self._open is None:
            raise FailedPreconditionError("the sequence is closed")
        return self._open

    @property
    def _turn(self) -> _core.Sequence:
        """For calls that take a turn of the model."""
        self._model._check_turn()
        return self._core

    def close(self) -> None:
        """Cancels what runs or waits on other threads; they keep what they need."""
        if self._open is not None:
            self._open.cancel()
        self._open = None

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._core.position()

    @property
    def position(self) -> int:
        """How many tokens have been evaluated; of a running call, at its last whole chunk or token.
        Any thread, while others compute."""
        return self._core.position()

    def cancel(self) -> None:
        """Stops this sequence's calls that run or wait, from any thread, and does not wait for
        them. generate() and stream() end with the text they have, others raise CancelledError; the
        sequence stays usable. Without such a call it does nothing."""
        self._core.cancel()

    def set_turn_timeout(self, seconds: float) -> None:
        """How long later calls of this sequence wait for their turn; below 0: without end."""
        self._core.set_turn_timeout(_milliseconds(seconds))

    @property
    def tokens(self) -> List[int]:
        """These tokens."""
        return self._turn.tokens()

    def eval(self, tokens: Tokens, *, out: Optional[np.ndarray] = None,
             on_progress: Optional[Progress] = None) -> np.ndarray:
        """Appends tokens; the logits of the last one as float32 [vocab_size], written by the
        library into `out` or a new array."""
        logits = self._array(out, ())
        self._turn.eval(tokens, False, logits, on_progress)
        return logits

    def eval_all(self, tokens: Tokens, *, out: Optional[np.ndarray] = None,
                 on_progress: Optional[Progress] = None) -> np.ndarray:
        """Appends tokens; the logits of each as float32 [tokens, vocab_size]."""
        logits = self._array(out, (len(tokens),))
        self._turn.eval(tokens, True, logits, on_progress)
        return logits

    def logits(self, *, out: Optional[np.ndarray] = None) -> np.ndarray:
        """The logits of the last token, float32 [vocab_size]."""
        logits = self._array(out, ())
        self._turn.logits(logits)
        return logits

    def _array(self, out: Optional[np.ndarray], leading: tuple) -> np.ndarray:
        shape = (*leading, self._core.vocab_size())
        if out is None:
            return np.empty(shape, np.float32)
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
        self._turn.set_sampler(_sampler_options(values))

    def set_constraint(self, *, json_schema: Union[None, str, bool, Dict[str, Any]] = None,
                       regex: Optional[str] = None, grammar: Optional[str] = None,
                       json_object: bool = False) -> None:
        """Holds what is drawn from here on, or from behind generate()'s prompt, to one of these; to
        nothing if none is given. A schema is a dictionary or its JSON; a grammar is llguidance's
        Lark."""
        given = [(2, json_schema if isinstance(json_schema, str) else json.dumps(json_schema))
                 if json_schema is not None else None,
                 (3, regex) if regex is not None else None,
                 (4, grammar) if grammar is not None else None,
                 (1, "") if json_object else None]
        chosen = [one for one in given if one is not None]
        if len(chosen) > 1:
            raise InvalidArgumentError(
                "give one of json_schema, regex, grammar and json_object, not several")
        self._turn.set_constraint(*(chosen or [(0, "")])[0])

    def sample(self) -> int:
        """Draws the token after the last; does not append it."""
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
        options.tokens_max = max_tokens
        options.stop_strings = list(stop)
        options.stop_tokens = list(stop_tokens)
        options.ignore_stop_tokens = ignore_stop_tokens
        if isinstance(prompt, str):
            prompt = self._model.tokenize(prompt, add_special=True)
        pieces: List[str] = []

        def receive(text: str) -> Optional[bool]:
            pieces.append(text)
            return on_text(text) if on_text is not None and text else None

        reason, prompt_tokens, tokens, prefill_us, decode_us = self._turn.generate(
            prompt, options, receive, on_progress)
        return Generated("".join(pieces), _REASONS[reason], prompt_tokens, tokens,
                         prefill_us / 1e6, decode_us / 1e6)

    def stream(self, prompt: Prompt = (), *, max_tokens: int = 128, stop: Seq[str] = (),
               stop_tokens: Tokens = (), ignore_stop_tokens: bool = False) -> Iterator[str]:
        """generate() as an iterator of pieces of text.

        The next token is drawn when the next piece is asked for; leaving the loop ends the text,
        and so does cancel(). Inside the loop the model is busy: there, calls that take a turn
        raise BusyError at once.
        """
        self._model._check_turn()
        core, streams = self._core, self._model._in_streams
        turn, ready = threading.Semaphore(0), threading.Semaphore(0)
        piece: List[str] = []
        failure: List[BaseException] = []
        wanted = True

        def on_text(text: str) -> bool:
            piece.append(text)
            ready.release()
            turn.acquire()
            return wanted

        def run() -> None:
            turn.acquire()
            try:
                if wanted:
                    self.generate(prompt, max_tokens=max_tokens, stop=stop,
                                  stop_tokens=stop_tokens, ignore_stop_tokens=ignore_stop_tokens,
                                  on_text=on_text, on_progress=lambda done, total: wanted)
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
            wanted = False
            turn.release()
            while worker.is_alive():  # once its call has begun, it can be cancelled
                core.cancel()
                worker.join(0.02)
        if failure:
            raise failure[0]

    def checkpoint(self) -> int:
        """Keeps the sequence as it is now, sampler included; its id for restore() and drop()."""
        return self._turn.checkpoint()

    def restore(self, checkpoint: int) -> None:
        """Back to a checkpoint, which stays."""
        self._turn.restore(checkpoint)

    def drop(self, checkpoint: int) -> None:
        """Forgets a checkpoint."""
        self._turn.drop(checkpoint)

    def truncate(self, position: int) -> None:
        """Forgets the tokens from `position` on, exactly."""
        self._turn.truncate(position)

    def fork(self) -> Sequence:
        """A sequence of its own that begins as a copy of this one, without its checkpoints."""
        return Sequence(self._model, self._turn.fork())

    def save(self) -> bytes:
        """The sequence with its sampler as bytes."""
        return self._turn.save()

    def load(self, snapshot: bytes) -> None:
        """Replaces the sequence by a saved one of the same model; what is refused changes
        nothing."""
        self._turn.load(snapshot)

    def save_file(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """save() to a file, which is replaced whole or not at all."""
        self._turn.save_file(os.fspath(path))

    def load_file(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """load() from a file."""
        self._turn.load_file(os.fspath(path))

    def reuse_prefix(self, tokens: Tokens) -> int:
        """Starts an empty sequence from the longest kept prefix; how many tokens need no
        evaluation."""
        return self._turn.reuse_prefix(tokens)

    def keep_prefix(self) -> None:
        """Offers the sequence's tokens to later ones."""
        self._turn.keep_prefix()
