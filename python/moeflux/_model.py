"""Models: opened, described, and asked for tokens, sequences and chats."""

from __future__ import annotations

import logging
import os
import threading
from typing import (Any, Callable, Dict, List, Literal, Optional, Sequence as Seq, Tuple, Union,
                    overload)

import numpy as np

from . import _arguments as take, _chat, _core, _program
from ._chat import Messages, Reply
from ._errors import BusyError, Error, FailedPreconditionError
from ._exit import cancelled_at_exit
from ._sequence import Logits, Progress, Sequence, Tokens

_ADD_SPECIAL, _INERT, _SKIP_SPECIAL = 1, 2, 1
#: For expert_cache_bytes: the least that can work.
EXPERT_CACHE_MINIMUM = -1


class Model:
    """Weights, a device and the cache of experts. Usable as a context manager.

    Memory is freed when the model and all its sequences are closed or gone.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"], *, device: str = "",
                 cpu_isa: str = "", precision: str = "", context_length: int = 0,
                 expert_cache_bytes: int = 0, threads: int = 0, prefix_cache_bytes: int = 0,
                 prefix_cache_directory: Union[str, "os.PathLike[str]"] = "",
                 turn_timeout: Optional[float] = None, cache_type_k: str = "",
                 cache_type_v: str = "", tuning: str = "",
                 on_progress: Optional[Progress] = None,
                 on_log: Optional[Callable[[str], object]] = None) -> None:
        """Opens a folder or a GGUF file. Zeros and empty strings mean the defaults of
        mf_model_options, which are the program's: device "auto", precision "auto". `device` may be
        "cpu", "cuda:0" or another number, "metal", "reference" or "emulator"; `precision`, of the
        CPU, "f32", "int8", "q16" or "auto". `cache_type_k` and `cache_type_v`, "f32", "f16" or
        "q8_0", are the types of keys and values in memory.
        `turn_timeout` is how many seconds calls wait for their turn: None: without end; 0: not at
        all. `on_progress` receives bytes of the resident weights read and in all; `on_log`, while
        the model is opened, lines such as one that names unknown keys of config.json: None gives
        them to the logger "moeflux" as warnings. `tuning`, "prefill-chunk=512,expert-io=direct",
        is what the program's --tune takes, for those who measure; its keys are not stable."""
        self._name = take.path("path", path)
        options = _core.ModelOptions()
        options.device = take.text("device", device)
        options.cpu_isa = take.text("cpu_isa", cpu_isa)
        options.precision = take.text("precision", precision)
        options.context_length = take.integer("context_length", context_length)
        options.expert_cache_bytes = take.integer("expert_cache_bytes", expert_cache_bytes)
        options.threads = take.int32("threads", threads)
        options.prefix_cache_bytes = take.unsigned("prefix_cache_bytes", prefix_cache_bytes)
        options.prefix_cache_directory = take.path("prefix_cache_directory",
                                                   prefix_cache_directory)
        options.turn_timeout_ms = take.milliseconds("turn_timeout", turn_timeout)
        options.cache_type_k = take.text("cache_type_k", cache_type_k)
        options.cache_type_v = take.text("cache_type_v", cache_type_v)
        options.tuning = take.text("tuning", tuning)
        log = take.callback("on_log", on_log) or logging.getLogger(__package__).warning
        self._open: Optional[_core.Model] = _core.Model(
            self._name, options, take.callback("on_progress", on_progress), log)
        self._in_streams: List[int] = []  # threads whose turn it is to ask a stream for more
        self._chats: Dict[Optional[str], _core.Service] = {}  # by template
        self._chats_lock = threading.Lock()  # guards these

    @classmethod
    def from_pretrained(cls, name: str, **options: Any) -> Model:
        """Opens a model of the hub, "ORG/NAME", "ORG/NAME:QUANT" or "ORG/NAME:FILE".

        It is downloaded unless it is here, as `moeflux pull` does: into the cache of
        huggingface_hub, by the variables HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and
        others, with progress where standard error is a terminal. Without a quantisation the one
        that suits this machine is chosen. `options` are those of Model. Raises NotFoundError,
        which says why, where it cannot be had."""
        return cls(_program.pull(take.text("name", name)), **options)

    @property
    def _handle(self) -> _core.Model:
        if self._open is None:
            raise FailedPreconditionError("the model is closed")
        return self._open

    def _check_turn(self) -> None:
        """For calls that may wait: not for a turn that a stream keeps until this thread goes on."""
        if threading.get_ident() in self._in_streams:
            raise BusyError("this thread is in a loop over stream(), which keeps the model busy")

    def close(self) -> None:
        """Ends its chats. Sequences keep what they need."""
        with self._chats_lock:
            self._open = None
            self._chats.clear()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._open is None else self._open.info()["device"]
        return f"<moeflux.Model {self._name!r}, {state}>"

    @property
    def info(self) -> Dict[str, Union[int, str]]:
        """vocab_size, context_length, num_layers, model_type, device, ... of mf_model_info."""
        return self._handle.info()

    @property
    def metrics(self) -> Dict[str, int]:
        """The counters of mf_metrics. Any thread, while others compute."""
        return self._handle.metrics()

    @property
    def stop_tokens(self) -> List[int]:
        """The tokens that end a text."""
        return self._handle.stop_tokens()

    def tokenize(self, text: str, *, add_special: bool = False, inert: bool = False) -> List[int]:
        """Tokens of a text. `add_special`: with what the tokenizer puts around it; `inert`: text
        that spells a special token stays text."""
        flags = (_ADD_SPECIAL * take.flag("add_special", add_special)
                 | _INERT * take.flag("inert", inert))
        return self._handle.tokenize(take.text("text", text, whole=False), flags)

    def detokenize(self, tokens: Tokens, *, skip_special: bool = False) -> str:
        """The text of the tokens; broken characters become U+FFFD."""
        return self._handle.detokenize(take.tokens("tokens", tokens),
                                       _SKIP_SPECIAL * take.flag("skip_special", skip_special))

    def sequence(self) -> Sequence:
        """An empty sequence with the model's default sampler."""
        self._check_turn()
        return Sequence(self, self._handle.create_sequence())

    @overload
    def eval_batch(self, items: Seq[Tuple[Sequence, Tokens]], *, decode: Optional[bool] = None,
                   return_errors: Literal[False] = False) -> List[Logits]: ...

    @overload
    def eval_batch(self, items: Seq[Tuple[Sequence, Tokens]], *, decode: Optional[bool] = None,
                   return_errors: Literal[True]) -> List[Union[Logits, Error]]: ...

    @overload
    def eval_batch(self, items: Seq[Tuple[Sequence, Tokens]], *, decode: Optional[bool] = None,
                   return_errors: bool) -> Union[List[Logits], List[Union[Logits, Error]]]: ...

    def eval_batch(self, items: Seq[Tuple[Sequence, Tokens]], *, decode: Optional[bool] = None,
                   return_errors: bool = False
                   ) -> Union[List[Logits], List[Union[Logits, Error]]]:
        """Appends tokens to several sequences of this model, each once, in common steps: faster
        than one call for each, with the same logits. Returns those of each item's last token as
        float32 [vocab_size], in order.

        An item that cannot be evaluated fails alone, as one does whose sequence is cancelled. When
        the others are done the first error is raised or, with `return_errors`, stands in its item's
        place. `decode` says whether the tokens are decoded or a prompt, which only decides what
        the cache keeps: None takes a single token for decode and several for a prompt."""
        self._check_turn()
        returned = take.flag("return_errors", return_errors)
        phase = 0 if decode is None else 1 + take.flag("decode", decode)
        batch = [_batch_item(f"items[{i}]", item) for i, item in enumerate(take.items(
            "items", items, "pairs of a sequence and its tokens"))]
        with cancelled_at_exit(_core.end_calls):
            outcomes = self._handle.eval_batch(batch, phase)
        if returned:
            return [logits if error is None else error
                    for (_, _, logits), error in zip(batch, outcomes)]
        for error in outcomes:
            if error is not None:
                raise error
        return [logits for _, _, logits in batch]

    def embed(self, texts: Union[str, Seq[str]], *, dimensions: int = 0, prompt_name: str = "",
              pooling: str = "") -> Logits:
        """Embeddings as float32 [texts, dimensions]; of a single str [dimensions].

        The bits of a vector depend on its text alone, though steps are common. `dimensions` keeps
        the first numbers of each and normalises them again; 0: all. `prompt_name` is one of the
        prompts that the model's files put before texts ("query"), "" their default. `pooling`,
        "last", "mean" or "cls", says which hidden states count, "" as the model's files say,
        otherwise the last."""
        self._check_turn()
        is_one = isinstance(texts, str)
        given = ([take.text("texts", texts, whole=False)] if is_one
                 else take.texts("texts", texts))
        with cancelled_at_exit(_core.end_calls):
            width, numbers = self._handle.embed(given, take.integer("dimensions", dimensions),
                                                take.text("prompt_name", prompt_name),
                                                take.text("pooling", pooling))
        rows = np.frombuffer(numbers, np.float32).copy()
        return rows if is_one else rows.reshape(len(given), width)

    def chat(self, messages: Messages, *, stream: bool = True, max_tokens: Optional[int] = None,
             temperature: Optional[float] = None, seed: Optional[int] = None,
             stop: Optional[Seq[str]] = None, tools: Optional[Seq[Dict[str, Any]]] = None,
             schema: Optional[Dict[str, Any]] = None, chat_template: Optional[str] = None,
             **fields: Any) -> Reply:
        """Answers a text of the user, or messages with "role" and "content", in the model's chat
        template: an iterator of pieces of text.

            for piece in (reply := model.chat("Who are you?")):
                print(piece, end="", flush=True)
            messages.append(reply.message)

        Without `stream` the call waits for the end, and the reply is whole. `tools` are
        dictionaries as OpenAI's clients send, `schema` is a JSON schema that the text follows.
        `fields` are others of POST /v1/chat/completions in docs/server.md, which says what each
        means. `chat_template` is Jinja text in place of the model's own. The answer is made on a
        thread of its own, in turns with other calls of the model, up to a mebibyte ahead of the
        loop. Until the model is closed, a chat in which a message is added evaluates the new
        messages only, where `prefix_cache_bytes` allows it."""
        self._check_turn()
        waits = not take.flag("stream", stream)
        if schema is not None:
            fields["response_format"] = {"type": "json_schema",
                                         "json_schema": {"name": "answer", "schema": schema}}
        body = _chat.request(messages, {**fields, "max_tokens": max_tokens,
                                        "temperature": temperature, "seed": seed, "stop": stop,
                                        "tools": tools})
        with self._chats_lock:
            if chat_template not in self._chats:
                self._chats[chat_template] = _chat.open_service(self._handle, chat_template)
            service = self._chats[chat_template]
        reply = Reply(_chat.submit(service, body), self._check_turn)
        if waits:
            reply.read()
        return reply


def _batch_item(name: str, item: Any) -> Tuple[_core.Sequence, List[int], Logits]:
    if not isinstance(item, (tuple, list)) or len(item) != 2 or not isinstance(item[0], Sequence):
        raise take.wrong_type(name, item, "a pair of a sequence and its tokens")
    handle = item[0]._handle
    return (handle, take.tokens(f"the tokens of {name}", item[1]),
            np.empty(handle.vocab_size(), np.float32))
