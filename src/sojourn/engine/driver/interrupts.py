"""Ctrl-C at moments when it does no harm. Raised inside a wait for a condition, it can leave the
condition's lock in disorder, and the graceful stop that follows needs that lock."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred() -> Iterator[Callable[[], bool]]:
    """Within this block, Ctrl-C is only noted; the yielded function tells whether it was pressed.
    At the end of the block it is raised."""
    found = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or found is not signal.default_int_handler:
        yield lambda: False
        return
    came: list[int] = []

    def note(number: int, _frame: Any) -> None:
        came.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, found)
    if came:
        raise KeyboardInterrupt
