"""Answers of Model.chat(): events of a streamed chat completion as pieces of text."""

from __future__ import annotations

import json
from typing import (Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence as Seq, Tuple,
                    Union)

from . import _arguments as take, _core
from ._errors import (CancelledError, Error, FailedPreconditionError, InvalidArgumentError,
                      NotFoundError, ResourceExhaustedError, WrongTypeError)
from ._exit import cancelled_at_exit

#: A text of the user, or messages with "role" and "content".
Messages = Union[str, Seq[Mapping[str, Any]]]

# So often Ctrl-C is looked at.
_WAIT_MS = 100
_PREFIX = b"data: "
_BY_TYPE = {"invalid_request_error": InvalidArgumentError, "not_found_error": NotFoundError,
            "rate_limit_error": ResourceExhaustedError,
            "exceed_context_size_error": ResourceExhaustedError,
            "unavailable_error": CancelledError}


def request(messages: Messages, fields: Dict[str, Any]) -> str:
    """The body of the request; fields of the value None are left out."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": take.text("messages", messages, whole=False)}]
    elif isinstance(messages, (bytes, Mapping)) or not hasattr(messages, "__iter__"):
        raise take.wrong_type("messages", messages, "str or a list of dictionaries")
    said = {name: value for name, value in fields.items() if value is not None}
    try:
        return json.dumps({**said, "messages": list(messages), "stream": True,
                           "stream_options": {"include_usage": True}})
    except (TypeError, ValueError) as error:
        raise WrongTypeError(f"a message or field of chat() cannot become JSON: {error}") from None


def _error_of(error: Mapping[str, Any]) -> Error:
    """The error that the object "error" in a body or an event means."""
    return _BY_TYPE.get(str(error.get("type")), Error)(str(error.get("message")))


def _error_in(body: bytes) -> Error:
    try:
        return _error_of(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return Error(body.decode(errors="replace"))


class Reply:
    """The answer of Model.chat(), as it is made: an iterator of pieces of its text. The other
    attributes are whole when it has ended. Usable as a context manager, whose end cancels it."""

    def __init__(self, answer: _core.Answer, check: Callable[[], None]) -> None:
        self._answer = answer
        self._check = check
        self._bytes = b""
        self._pieces: List[str] = []
        self._ended = False
        #: The text so far.
        self.text = ""
        #: Reasoning that came before it, so far.
        self.reasoning = ""
        #: Calls of tools: dictionaries as in messages.
        self.tool_calls: List[Dict[str, Any]] = []
        #: "stop", "length" or "tool_calls"; None before the end.
        self.finish_reason: Optional[str] = None
        #: prompt_tokens, completion_tokens and others, at the end.
        self.usage: Dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._pieces:
            if self._ended:
                raise StopIteration
            self._take()
        return self._pieces.pop(0)

    def read(self) -> str:
        """Waits for the end; the whole text."""
        for _ in self:
            pass
        return self.text

    @property
    def message(self) -> Dict[str, Any]:
        """The answer as the message that goes before the user's next one."""
        message: Dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message

    def close(self) -> None:
        """Cancels what is not made yet. Any thread."""
        self._answer.abort()

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self.finish_reason or ("ended" if self._ended else "not ended")
        return f"<moeflux.Reply {self.text!r}, {state}>"

    def _take(self) -> None:
        self._check()
        try:
            with cancelled_at_exit(self._answer.abort):
                status, ended, _, _, data, _, _ = self._answer.next(_WAIT_MS)
        except (CancelledError, FailedPreconditionError):
            self._ended = True
            raise
        self._bytes += data
        if status in (0, 200):
            *events, self._bytes = self._bytes.split(b"\n\n")
            for event in events:
                if event.startswith(_PREFIX) and event != _PREFIX + b"[DONE]":
                    self._event(json.loads(event[len(_PREFIX):]))
        if ended:
            self._ended = True
            self._answer.free()
            if status != 200:
                raise _error_in(self._bytes)

    def _event(self, event: Dict[str, Any]) -> None:
        if "error" in event:
            self._ended = True
            raise _error_of(event["error"])
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices", ()):
            delta = choice.get("delta", {})
            self.reasoning += delta.get("reasoning_content") or ""
            if delta.get("content"):
                self.text += delta["content"]
                self._pieces.append(delta["content"])
            for part in delta.get("tool_calls") or ():
                _add_call(self.tool_calls, part)
            self.finish_reason = choice.get("finish_reason") or self.finish_reason


def _add_call(calls: List[Dict[str, Any]], part: Dict[str, Any]) -> None:
    """A part of a call: the first has its name, others more of its arguments."""
    while len(calls) <= part["index"]:
        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call = calls[part["index"]]
    call["id"] = part.get("id") or call["id"]
    function = part.get("function", {})
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def open_service(model: _core.Model, chat_template: Optional[str]) -> _core.Service:
    options = _core.ServiceOptions()
    if chat_template is not None:
        options.chat_template = take.text("chat_template", chat_template)
    options.model_aliases = ["*"]
    return _core.Service(model, options)


def submit(service: _core.Service, body: str) -> _core.Answer:
    headers: List[Tuple[str, str]] = []
    return service.submit("POST", "/v1/chat/completions", body, headers)
