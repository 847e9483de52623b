"""Faults, caused for real under load with keyed state: afterwards counts equal the truth, files
hold each result once, and per-key order was kept."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from conftest import await_exit, await_results, executors, once, results
from pyspark.sql import SparkSession
from test_topologies import LINES, WORDS, check_counts, wordcount
from victims import executor, nursery, spark_python_worker, worker

import sojourn as sj
from sojourn.engine.driver import commit
from sojourn.engine.driver.engine import SparkEngine
from sojourn.engine.spark.task import sockets
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import encode, send_frame
from sojourn.engine.wire.spec import Attach
from sojourn.errors import TopologyFailed
from sojourn.settings import EngineSettings
from sojourn.sinks import publish
from sojourn.wiring import Running


class Forever:
    """The lines, over and over."""

    def __iter__(self) -> Iterator[str]:
        return itertools.cycle(LINES)


def test_kills_lose_and_repeat_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Of each kind of process, one after the other, while tuples flow."""
    topology = wordcount(tmp_path, Forever(), 50, processors=2)
    victims: list[tuple[Callable[[Running, str], int], str, int]] = [
        (worker, "count", 1),
        (worker, "split", 0),
        (executor, "count", 1),
        (executor, "lines", 1),
        (executor, "out", 1),
        (spark_python_worker, "split", 1),
    ]
    restarts = 0
    with sj.start(topology, spark=spark, settings={"commit": 0.5}) as running:

        def more(restarts: int, what: str) -> None:
            """More results come, after so many restarts."""
            while running.restarts < restarts:
                assert not running.await_idle(0.1)
            await_results(running, tmp_path, len(results(tmp_path)) + 100)
            assert running.restarts == restarts, what

        more(0, "before any is killed")
        for victim, vertex, one in victims:
            pid = victim(running, vertex)
            os.kill(pid, signal.SIGKILL)
            await_exit(pid)
            restarts += one
            more(restarts, f"{victim.__name__} of {vertex}")
        dead = nursery(running, "count")
        os.kill(dead, signal.SIGKILL)
        await_exit(dead)
        more(restarts, "nursery")
        os.kill(executor(running, "count"), signal.SIGKILL)
        more(restarts + 1, "executor whose nursery is dead")
        assert nursery(running, "count") not in (dead, executor(running, "count"))
    found = results(tmp_path)
    lines, rest = divmod(len(found), len(LINES[0].split()))
    assert rest == 0
    words = [word for line in itertools.islice(Forever(), lines) for word in line.split()]
    check_counts(found, words)


class Poisoned(sj.Operator):
    def process(self, n: int) -> list[int]:
        if n == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return [n]


@pytest.mark.parametrize("key", [None, lambda n: n % 4], ids=["without key", "with key"])
@pytest.mark.parametrize("on_error", ["fail", "dead-letter"])
def test_a_tuple_that_kills_its_workers_meets_on_error(
    spark: SparkSession, tmp_path: Path, key: Any, on_error: Any
) -> None:
    up = tmp_path / "up"
    t = sj.Topology("poison")
    numbers = t.source("numbers", sj.sources.iterable(lambda: once(up, range(40)), rate=100))
    checked = t.operator("check", Poisoned, numbers, key=key, processors=2, on_error=on_error)
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), checked)
    running = sj.start(t, spark=spark, checkpoint=tmp_path / "checkpoint")
    up.touch()
    if on_error == "fail":
        with pytest.raises(TopologyFailed, match="processing 13 killed its worker twice"):
            running.await_idle(90)
        with pytest.raises(TopologyFailed):
            running.stop()
        return
    assert running.await_idle(90)
    running.stop()
    assert sorted(results(tmp_path / "out")) == [n for n in range(40) if n != 13]
    letters = results(tmp_path / "checkpoint" / "sojourn" / "dead-letters" / "check")
    assert [(row["value"], row["error"]) for row in letters] == [
        ("13", "it killed its worker twice")
    ]


def test_a_tuple_that_kills_threads_meets_on_error(spark: SparkSession, tmp_path: Path) -> None:
    """They die together, so the culprit is found with one of them."""
    t = sj.Topology("poison")
    numbers = t.source("numbers", sj.sources.iterable(lambda: range(40), rate=100))
    checked = t.operator(
        "check", Poisoned, numbers, processors=3, concurrency="thread", on_error="skip"
    )
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), checked)
    with sj.start(t, spark=spark) as running:
        assert running.await_idle(90)
        assert running.restarts == 2  # all together, and alone; then it is left out
    assert sorted(results(tmp_path / "out")) == [n for n in range(40) if n != 13]


def test_a_tuple_that_kills_a_sink_is_named(spark: SparkSession, tmp_path: Path) -> None:
    up = tmp_path / "up"

    def kill(n: int) -> None:
        if n == 13:
            os.kill(os.getpid(), signal.SIGKILL)

    t = sj.Topology("poison")
    numbers = t.source("numbers", sj.sources.iterable(lambda: once(up, range(40)), rate=100))
    t.sink("out", sj.sinks.call(kill), numbers)
    running = sj.start(t, spark=spark)
    up.touch()
    with pytest.raises(TopologyFailed, match="sink 'out': processing 13 killed its worker twice"):
        running.await_idle(90)
    with pytest.raises(TopologyFailed):
        running.stop()


def test_a_stranger_cannot_feed_an_executor_nor_join_the_channel(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Not even one who knows all that is no secret, which only the engine itself can tell."""
    topology = wordcount(tmp_path, LINES, 150, processors=2)
    engine = SparkEngine(topology, None, None, spark, EngineSettings())
    with contextlib.ExitStack() as after:
        after.callback(engine.stop)
        directory = sockets(f"{engine.plan.run}-{engine.hub.epoch}")
        assert directory.stat().st_mode & 0o077 == 0
        for path in directory.iterdir():
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(10)
                sock.connect(str(path))
                send_frame(sock, encode(Attach(b"wrong", 0)))
                assert sock.recv(1) == b""  # shown the door
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(path))
                send_frame(sock, b"\xc1 no message at all")
        members = set(engine.hub.members)
        keys = engine.hub.channel.keys
        context = zmq.Context()
        for with_keys in (False, True):
            stranger = context.socket(zmq.DEALER)
            stranger.linger = 0
            if with_keys:  # the right server, but a client key of one's own
                stranger.curve_serverkey = keys.server_public
                stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
            monitor = stranger.get_monitor_socket(
                zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
                | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
                | zmq.EVENT_HANDSHAKE_FAILED_AUTH
                | zmq.EVENT_DISCONNECTED
            )
            stranger.connect(keys.address)
            stranger.send(m.encode(m.Hello("count", 0, "here", 1, "boot", 0.0)))
            assert monitor.poll(10_000)
            stranger.disable_monitor()
            monitor.close()
            stranger.close()
        context.term()
        assert set(engine.hub.members) == members
        assert engine.await_idle(60)
        assert engine.restarts == 0
    check_counts(results(tmp_path), WORDS)


def test_messages_that_are_none_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        m.decode_to_driver(msgspec.msgpack.encode(["hello", 1, 2, 3, 4]))
    with pytest.raises(msgspec.ValidationError):
        m.decode_to_executor(msgspec.msgpack.encode(["obey", 1]))


DRIVER = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
import sojourn as sj
from test_topologies import LINES, wordcount

if __name__ == "__main__":
    topology = wordcount(Path({out!r}), LINES, {rate}, processors=2)
    with sj.start(topology, checkpoint={checkpoint!r}, settings={{"commit": 1}}) as running:
        print("up", flush=True)
        while running.committed < {commits}:
            assert running.await_commit()
        print("saved", flush=True)
        assert running.await_idle(90)
"""


def driver(directory: Path, rate: float, commits: int) -> subprocess.Popen[str]:
    """A driver of its own, in a process group of its own."""
    script = directory / "driver.py"
    script.write_text(
        DRIVER.format(
            path=[str(Path(__file__).parent)],
            out=str(directory / "out"),
            rate=rate,
            checkpoint=str(directory / "checkpoint"),
            commits=commits,
        ),
        encoding="utf-8",
    )
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_killed_driver_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """In another driver."""
    with driver(tmp_path, 50, 1) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "up\n"
        assert first.stdout.readline() == "saved\n"
        left = executors()
        first.kill()
    assert left
    for pid in left:
        await_exit(pid)
    topology = wordcount(tmp_path / "out", LINES, 200, processors=2)
    with sj.start(topology, spark=spark, checkpoint=tmp_path / "checkpoint") as running:
        assert running.await_idle(90)
    check_counts(results(tmp_path / "out"), WORDS)


@pytest.mark.parametrize("when", ["starting", "running"])
def test_ctrl_c_ends_cleanly(when: str, tmp_path: Path) -> None:
    """The terminal signals the whole group: the driver, Java, and Spark's Python workers."""
    with driver(tmp_path, 50, 1) as interrupted:
        assert interrupted.stdout is not None
        if when == "running":
            assert interrupted.stdout.readline() == "up\n"
            assert interrupted.stdout.readline() == "saved\n"
        else:
            while not executors():
                assert interrupted.poll() is None
                time.sleep(0.05)  # each look is a process
        os.killpg(interrupted.pid, signal.SIGINT)
        said = interrupted.communicate(timeout=60)[1]
        assert said.rstrip().endswith("KeyboardInterrupt"), said
    group = subprocess.run(
        ["pgrep", "-g", str(interrupted.pid)], check=False, capture_output=True, text=True
    )
    for pid in group.stdout.split():  # Java ends right after Python
        await_exit(int(pid))
    found = results(tmp_path / "out")
    assert found or when == "starting"
    check_counts(found, [word for word, _ in found])


def test_what_is_committed_but_not_published_is_published_by_the_next_start(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver fails after a commit is durable, before its results come into view."""
    topology = wordcount(tmp_path, LINES, 75, processors=2)
    published: list[int] = []

    def once_not(staged: Any, again: bool = False) -> None:
        published.append(len(list(staged)))
        if len(published) == 3:
            raise OSError("pulled the plug")
        publish(staged, again)

    monkeypatch.setattr(commit, "publish", once_not)
    checkpoint = tmp_path / "checkpoint"
    running = sj.start(topology, spark=spark, checkpoint=checkpoint, settings={"commit": 1})
    with pytest.raises(TopologyFailed, match="pulled the plug"):
        running.await_idle(90)
    with pytest.raises(TopologyFailed):
        running.stop()
    before = len(results(tmp_path))
    monkeypatch.undo()
    with sj.start(topology, spark=spark, checkpoint=checkpoint, settings={"commit": 60}) as again:
        assert len(results(tmp_path)) > before
        assert again.await_idle(90)
    check_counts(results(tmp_path), WORDS)
