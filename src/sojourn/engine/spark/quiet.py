"""Keeps what Java says while it starts off the terminal. What it says later goes on to standard
error: that is what code in workers prints. Used by the session."""

import codecs
import contextlib
import logging
import os
import select
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark import SparkConf, SparkContext, java_gateway

_log = logging.getLogger("sojourn")
_MOST_BYTES = 1 << 16


@contextlib.contextmanager
def hushed(options: Mapping[str, str]) -> Iterator[None]:
    """Start Spark's Java with these options, unless it runs already. What it says within this block
    is held back, and shown only if the block fails. Where Sojourn logs at level DEBUG, nothing is
    held back."""
    there = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    if there or _log.isEnabledFor(logging.DEBUG):
        yield
        return
    conf = SparkConf()
    for key, value in options.items():
        conf.set(key, value)
    read, write = os.pipe()
    voice = Voice(read)
    voice.start()
    try:
        try:
            launch: Any = java_gateway.launch_gateway
            gateway = launch(conf, {"stderr": write})
        finally:
            os.close(write)
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)
        yield
    except BaseException:
        voice.release(show=True)
        raise
    voice.release(show=False)


class Voice(threading.Thread):
    """Reads a pipe. Holds back what comes until it is released, and passes on what comes after. It
    reads under its lock, so nothing is on its way between the pipe and what is held."""

    def __init__(self, pipe: int) -> None:
        super().__init__(name="sojourn-voice", daemon=True)
        self.pipe = pipe
        os.set_blocking(pipe, False)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.held: str | None = ""
        self.ended = False
        self.lock = threading.Lock()

    def run(self) -> None:
        """Until the other end is closed."""
        there = select.poll()
        there.register(self.pipe, select.POLLIN)
        while not self.ended:
            there.poll()
            with self.lock:
                self._read()
        os.close(self.pipe)

    def release(self, show: bool) -> None:
        """Hold nothing back any more, and show what was said until now, or drop it."""
        with self.lock:
            while not self.ended and self._read():
                continue
            if show and self.held:
                say(self.held)
            self.held = None

    def _read(self) -> bool:
        """What is in the pipe, or a piece of it. Returns whether there was any."""
        try:
            data = os.read(self.pipe, _MOST_BYTES)
        except BlockingIOError:
            return False
        self.ended = not data
        text = self.decoder.decode(data, final=self.ended)
        if self.held is None:
            say(text)
        else:
            self.held = (self.held + text)[-_MOST_BYTES:]
        return bool(data)


def say(text: str) -> None:
    """To standard error, or to what stands in for it, such as a notebook's cell or a live view. A
    program may end at any moment in this, so it must not hold the lock of the real one."""
    try:
        if sys.stderr is not None and sys.stderr is not sys.__stderr__:
            sys.stderr.write(text)
            sys.stderr.flush()
            return
    except (OSError, ValueError):
        pass  # it was closed
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
