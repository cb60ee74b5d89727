"""Calls of other threads are cancelled when the interpreter ends, so that none computes while the
process is taken apart. A thread that asks for the interpreter's lock later waits for that."""

import atexit
import os
import threading
import time
from contextlib import contextmanager
from typing import Callable, Iterator, Set

# A callback may never return.
_SECONDS_MAX = 5.0
_running: Set[Callable[[], None]] = set()
_over = threading.Event()


@contextmanager
def cancelled_at_exit(cancel: Callable[[], None]) -> Iterator[None]:
    """Around a call that `cancel` ends soon. After the end no thread but the main one begins."""
    if _over.is_set() and threading.current_thread() is not threading.main_thread():
        threading.Event().wait()  # the process ends meanwhile

    def entry() -> None:
        cancel()

    _running.add(entry)
    try:
        yield
    finally:
        _running.discard(entry)


def _end() -> None:
    _over.set()
    latest = time.monotonic() + _SECONDS_MAX
    while _running and time.monotonic() < latest:
        for cancel in list(_running):
            cancel()
        time.sleep(0.005)


atexit.register(_end)
os.register_at_fork(after_in_child=_running.clear)
