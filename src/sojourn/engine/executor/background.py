"""A thread for what would hold up the loop: writing, syncing and merging files. Used by commits; a
descriptor tells the loop when something is done."""

import os
import queue
import threading
from collections.abc import Callable
from typing import Any


class Background:
    """One thread that does one thing after the other. Each result is handed to its callback in the
    loop's own thread; each error is raised there."""

    def __init__(self) -> None:
        self.wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.asked: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]]]
        self.asked = queue.SimpleQueue()
        self.done: queue.SimpleQueue[tuple[Callable[[Any], None], Any, Exception | None]]
        self.done = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, daemon=True, name="sojourn-background")
        self.thread.start()

    def do(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Have something done."""
        self.asked.put((work, then))

    def fileno(self) -> int:
        """For selectors."""
        return self.wake

    def hand_back(self) -> None:
        """Call back for all that is done."""
        os.eventfd_read(self.wake)
        while not self.done.empty():
            then, result, error = self.done.get()
            if error is not None:
                raise error
            then(result)

    def _run(self) -> None:
        while True:
            work, then = self.asked.get()
            try:
                result, error = work(), None
            except Exception as raised:  # noqa: BLE001  # raised again in the loop
                result, error = None, raised
            self.done.put((then, result, error))
            os.eventfd_write(self.wake, 1)
