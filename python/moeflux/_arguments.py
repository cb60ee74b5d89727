"""Arguments as the extension takes them. A wrong one is an error that names it, what was given and
what was expected."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

import numpy as np

from . import _core
from ._errors import InvalidArgumentError, WrongTypeError

_SHOWN_BELOW = 1 << 80
_WAIT_FOREVER, _WAIT_NONE = -1, -2


def wrong_type(name: str, value: object, expected: str) -> WrongTypeError:
    return WrongTypeError(f"{name} is {type(value).__name__}, expected {expected}")


def text(name: str, value: object, *, whole: bool = True) -> str:
    """A str that is UTF-8; where it ends at its first zero in C, it may have none (`whole`)."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "str")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{name} has a lone surrogate at {error.start}, expected text") from None
    if whole and "\0" in value:
        raise InvalidArgumentError(f"{name} has a zero character at {value.index(chr(0))}")
    return value


def texts(name: str, value: object) -> List[str]:
    if isinstance(value, (str, bytes)):
        raise wrong_type(name, value, "a list of str")
    return [text(f"{name}[{i}]", one) for i, one in enumerate(items(name, value, "str"))]


def path(name: str, value: object) -> str:
    try:
        given = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        raise wrong_type(name, value, "str or a path") from None
    return text(name, os.fsdecode(given))


def _range(name: str, value: int, least: int, most: int) -> int:
    if least <= value <= most:
        return value
    shown = str(value) if abs(value) < _SHOWN_BELOW else "too large"
    raise InvalidArgumentError(f"{name} is {shown}, expected {least} to {most}")


def integer(name: str, value: Any, bits: int = 64, *, signed: bool = True) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong_type(name, value, "int") from None
    half = 1 << (bits - 1)
    return _range(name, number, -half if signed else 0, half - 1 if signed else 2 * half - 1)


def int32(name: str, value: Any) -> int:
    return integer(name, value, 32)


def unsigned(name: str, value: Any) -> int:
    return integer(name, value, signed=False)


def real(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise wrong_type(name, value, "a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise wrong_type(name, value, "a number") from None
    except OverflowError:
        raise InvalidArgumentError(f"{name} is too large, expected a number") from None


def flag(name: str, value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise wrong_type(name, value, "True or False")
    return bool(value)


def callback(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise wrong_type(name, value, "a function or None")
    return value


def snapshot(name: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise wrong_type(name, value, "bytes")


def items(name: str, value: Any, what: str) -> List[Any]:
    """The items of a list or of anything else that can be iterated over."""
    try:
        return list(value)
    except TypeError:
        raise wrong_type(name, value, f"a list of {what}") from None


def tokens(name: str, value: Any) -> List[int]:
    """A list, an array or anything else that can be iterated over."""
    if isinstance(value, (str, bytes)):
        raise wrong_type(name, value, "a list of int: tokenize() makes one of a text")
    return [int32(f"{name}[{i}]", one) for i, one in enumerate(items(name, value, "int"))]


def milliseconds(name: str, seconds: Optional[float]) -> int:
    """None, a number below 0 and one without end: MF_WAIT_FOREVER."""
    if seconds is None:
        return _WAIT_FOREVER
    number = real(name, seconds)
    if math.isnan(number):
        raise InvalidArgumentError(f"{name} is not a number, expected seconds or None")
    if number == 0:
        return _WAIT_NONE
    return _WAIT_FOREVER if number < 0 or number > 1e9 else math.ceil(number * 1000)


def _sampler_steps(name: str, value: Any) -> str:
    return text(name, value) if isinstance(value, str) else ";".join(texts(name, value))


_SAMPLER: Dict[str, Callable[[str, Any], Any]] = {
    "temperature": real, "top_k": int32, "top_p": real, "min_p": real, "repeat_penalty": real,
    "repeat_last_n": int32, "presence_penalty": real, "frequency_penalty": real, "seed": unsigned,
    "typical_p": real, "top_n_sigma": real, "xtc_probability": real, "xtc_threshold": real,
    "dynatemp_range": real, "dynatemp_exponent": real, "mirostat": int32, "mirostat_tau": real,
    "mirostat_eta": real, "dry_multiplier": real, "dry_base": real, "dry_allowed_length": int32,
    "dry_penalty_last_n": int32, "dry_sequence_breakers": texts, "samplers": _sampler_steps}


def sampler(values: Mapping[str, Any]) -> _core.SamplerOptions:
    """Options by the names of Sequence.set_sampler()'s arguments; None is the default."""
    options = _core.SamplerOptions()
    for name, value in values.items():
        if name == "logit_bias":
            for token, bias in _pairs(name, value):
                options.add_bias(int32("a token of logit_bias", token),
                                 real(f"logit_bias[{token}]", bias))
        elif name not in _SAMPLER:
            raise WrongTypeError(f"a sampler has no option {name!r}")
        elif value is not None:
            setattr(options, name, _SAMPLER[name](name, value))
    return options


def _pairs(name: str, value: Any) -> List[Tuple[Any, Any]]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise wrong_type(name, value, "a dictionary")
    return list(value.items())


def headers(name: str, value: Any) -> List[Tuple[str, str]]:
    return [(text(f"a name of {name}", key), text(f"{name}[{key!r}]", content))
            for key, content in _pairs(name, value)]
