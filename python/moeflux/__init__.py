"""moeflux in Python: open a model, evaluate tokens, take logits or text, save and rewind, chat.

    with moeflux.Model("models/fable-20m") as model, model.sequence() as sequence:
        for piece in sequence.stream("Once upon a time", max_tokens=40):
            print(piece, end="", flush=True)

A model and its sequences together have one call that computes at a time. Others wait for their
turn, in the order they came, as long as the model's `turn_timeout` says: without end, unless it is
set. Then they raise BusyError. Sequence.cancel() may be called from any thread, and so may
`position` and `metrics`, which never wait. The interpreter's lock is released while computing and
waiting. Errors are subclasses of Error.
"""

from typing import List as _List

from ._chat import Reply
from ._core import __version__
from ._errors import (BufferTooSmallError, BusyError, CancelledError, CorruptionError, Error,
                      FailedPreconditionError, InvalidArgumentError, IoError, NotFoundError,
                      ResourceExhaustedError, UnsupportedError, WrongTypeError)
from ._model import EXPERT_CACHE_MINIMUM, Model
from ._sequence import Generated, Sequence

__all__ = ["BufferTooSmallError", "BusyError", "CancelledError", "CorruptionError",
           "EXPERT_CACHE_MINIMUM", "Error", "FailedPreconditionError", "Generated",
           "InvalidArgumentError", "IoError", "Model", "NotFoundError", "Reply",
           "ResourceExhaustedError", "Sequence", "UnsupportedError", "WrongTypeError",
           "__version__"]

# Tracebacks and documents name the package that the classes are taken from.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
del _name


def __dir__() -> _List[str]:
    return __all__
