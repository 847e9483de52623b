"""One thread's loop over sockets: calls back for what is readable, and sends what waits."""

import selectors
from collections.abc import Callable
from typing import Any

from sojourn.engine.wire.bundle import Link


class Loop:
    """Watched descriptors, and what to call when one is readable. A link can be paused: it is then
    not read, so that back-pressure builds up, but is still written."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.callbacks: dict[Any, Callable[[], None]] = {}
        self.paused: set[Any] = set()
        self.links: dict[Link, int] = {}  # what each is watched for

    def add(self, fileobj: Any, callback: Callable[[], None]) -> None:
        """Watch a descriptor."""
        self.callbacks[fileobj] = callback
        self.selector.register(fileobj, selectors.EVENT_READ)
        if isinstance(fileobj, Link):
            self.links[fileobj] = selectors.EVENT_READ

    def remove(self, fileobj: Any) -> None:
        """Watch it no longer."""
        if self.callbacks.pop(fileobj, None) is not None and self.links.pop(fileobj, 1):
            self.selector.unregister(fileobj)
        self.paused.discard(fileobj)

    def pause(self, link: Link, paused: bool) -> None:
        """Stop reading a link, or read it again."""
        if paused:
            self.paused.add(link)
        else:
            self.paused.discard(link)

    def turn(self, timeout_s: float | None) -> None:
        """Wait for something to do, and do it."""
        for link, watched in self.links.items():
            wanted = 0 if link in self.paused else selectors.EVENT_READ
            if link.unsent:
                wanted |= selectors.EVENT_WRITE
            if wanted != watched:
                self._watch(link, watched, wanted)
        for key, events in self.selector.select(timeout_s):
            if events & selectors.EVENT_WRITE and isinstance(key.fileobj, Link):
                key.fileobj.flush()
            if events & selectors.EVENT_READ and key.fileobj in self.callbacks:
                self.callbacks[key.fileobj]()

    def _watch(self, link: Link, watched: int, wanted: int) -> None:
        if not wanted:
            self.selector.unregister(link)
        elif watched:
            self.selector.modify(link, wanted)
        else:
            self.selector.register(link, wanted)
        self.links[link] = wanted
