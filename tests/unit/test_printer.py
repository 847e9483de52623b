"""Printed lines never hold up who has them printed, whatever becomes of standard output."""

import io
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TextIO

import pytest

from sojourn.engine.driver.printer import Printer


@dataclass
class Pipe:
    """Standard output as a real pipe; nobody reads it unless told to."""

    reader: IO[bytes]
    writer: TextIO

    def printer(self, max_bytes: int = 1 << 20) -> Printer:
        return Printer(max_bytes, lambda: self.writer)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader:
        made = Pipe(reader, os.fdopen(writing, "w", encoding="utf-8"))
        yield made
        if not made.writer.closed:
            made.writer.close()


def missing(caplog: pytest.LogCaptureFixture) -> list[int]:
    """The numbers of lines that were said to be missing."""
    return [
        int(found[1])
        for record in caplog.records
        if (found := re.match(r"(\d+) lines are not shown", record.message))
        and record.levelno == logging.WARNING
    ]


def test_lines_are_written_in_order(pipe: Pipe) -> None:
    printer = pipe.printer()
    lines = [f"line {i}" for i in range(3000)]
    for start in range(0, len(lines), 100):
        printer.show(lines[start : start + 100])
    printer.close(60)
    pipe.writer.close()
    assert pipe.reader.read().decode().splitlines() == lines


def test_a_blocked_reader_costs_the_oldest_lines_and_hears_how_many(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    printer = pipe.printer(max_bytes=100_000)
    lines = [f"{i:06d}" + "." * 94 for i in range(10_000)]
    printer.show(lines[:1])
    found = [pipe.reader.readline().decode().strip()]
    for line in lines[1:]:  # a megabyte, of which the pipe takes 64 KiB: writing never returned
        printer.show([line])
    assert printer.bytes <= 100_000
    reading = threading.Thread(target=lambda: found.extend(pipe.reader.read().decode().split()))
    reading.start()
    printer.close(60)
    pipe.writer.close()
    reading.join()
    assert found[0] == lines[0]
    assert found[-1] == lines[-1]
    assert found == sorted(found)
    assert sum(missing(caplog)) == len(lines) - len(found) > 0


def test_a_printer_can_be_closed_in_front_of_a_blocked_reader(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    printer = pipe.printer()
    lines = ["x" * 99] * 5000
    printer.show(lines)
    printer.close(0.2)
    assert printer.thread is not None
    printer.thread.join()
    pipe.writer.close()
    found = pipe.reader.read().decode().splitlines()
    assert found[0] == "x" * 99
    assert sum(missing(caplog)) == len(lines) - len(found) > 0
    printer.show(["late"])  # is no error
    printer.close(0.2)


def test_the_process_can_end_in_front_of_a_blocked_reader() -> None:
    code = """if True:
        from sojourn.engine.driver.printer import Printer
        printer = Printer()
        printer.show(["x" * 99] * 5000 + ["y" * 100_000])
        printer.close(0.2)
        """
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=buffered,
    ) as process:
        assert process.wait(60) == 0  # before anything is read
        assert process.stderr is not None
        assert "lines are not shown" in process.stderr.read()


def test_lines_longer_than_a_pipe_are_written_whole(pipe: Pipe) -> None:
    printer = pipe.printer()
    lines = ["ä" * 50_000, "short", "𝄞" * 30_000]
    found: list[str] = []
    reading = threading.Thread(
        target=lambda: found.extend(pipe.reader.read().decode().splitlines())
    )
    reading.start()
    printer.show(lines)
    printer.close(60)
    pipe.writer.close()
    reading.join()
    assert found == lines


def test_what_the_encoding_lacks_is_escaped() -> None:
    data = io.BytesIO()
    stream = io.TextIOWrapper(data, encoding="ascii")
    printer = Printer(stream=lambda: stream)
    printer.show(["plain", "Grüße 𝄞", "plain again"])
    printer.close(60)
    assert data.getvalue() == b"plain\nGr\\xfc\\xdfe \\U0001d11e\nplain again\n"


def test_standard_output_is_looked_up_when_it_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = Printer()
    printer.show(["shown"])
    printer.close(60)
    assert capsys.readouterr().out == "shown\n"


def test_no_standard_output_is_no_error(pipe: Pipe, caplog: pytest.LogCaptureFixture) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        printer = Printer(stream=lambda stream=stream: stream)  # type: ignore[misc]
        printer.show(["a", "b"])
        printer.close(60)
    printer = pipe.printer()
    pipe.reader.close()
    printer.show(["a"] * 10_000)
    printer.show(["b"])
    printer.close(60)
    assert not missing(caplog)
    with pytest.raises(BrokenPipeError):
        pipe.writer.close()


def test_a_full_disk_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    stream = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115
    printer = Printer(stream=lambda: stream)
    printer.show(["a", "b"])
    printer.close(60)
    assert missing(caplog) == [2]
    with pytest.raises(OSError, match="No space left"):
        stream.close()


def test_a_line_that_is_too_much_alone_is_not_shown(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    printer = pipe.printer(max_bytes=1000)
    printer.show(["x" * 2000])
    printer.show(["short"])
    printer.close(60)
    pipe.writer.close()
    assert pipe.reader.read() == b"short\n"
    assert missing(caplog) == [1]


def test_nothing_printed_needs_no_thread() -> None:
    printer = Printer()
    printer.close(60)
    assert printer.thread is None
