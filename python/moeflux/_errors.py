"""The exceptions of the package: one class for each code of moeflux.h, below one base."""

from __future__ import annotations


class Error(Exception):
    """Whatever the library refuses or fails to do."""


class InvalidArgumentError(Error, ValueError):
    """An argument, option or token that cannot be right."""


class WrongTypeError(InvalidArgumentError, TypeError):
    """An argument of a type that cannot be right."""


class NotFoundError(Error, LookupError):
    """A file, tensor, device or checkpoint that is not there."""


class CorruptionError(Error):
    """Bytes that contradict their own format."""


class UnsupportedError(Error):
    """Well-formed, but this build or device cannot do it."""


class ResourceExhaustedError(Error):
    """Memory, context or cache too small."""


class IoError(Error):
    """The operating system failed a read or a write."""


class CancelledError(Error):
    """A callback or cancel() said so."""


class FailedPreconditionError(Error):
    """The object is in a state that forbids the call."""


class BufferTooSmallError(InvalidArgumentError):
    """An array that cannot hold what was asked for."""


class BusyError(Error):
    """Other calls of the same model kept their turns for too long."""


_BY_CODE = (Error, InvalidArgumentError, NotFoundError, CorruptionError, UnsupportedError,
            ResourceExhaustedError, IoError, CancelledError, FailedPreconditionError,
            BufferTooSmallError, BusyError)


def error_for(code: int, message: str) -> Error:
    """The exception of an mf_code."""
    return (_BY_CODE[code] if 0 < code < len(_BY_CODE) else Error)(message)
