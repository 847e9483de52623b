"""Elasticity while a keyed operator with state is busy: the parts machine and shuffles of
`elasticity.py`, whose documentation has their rules."""

import contextlib
import importlib
import itertools
import json
import math
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kills import completed
from machine import Steal, Watch
from pyspark.sql import SparkSession
from victims import executor, host, nursery, worker

import sojourn as sj
from sojourn import configuration
from sojourn.asked import settings_for
from sojourn.control.controller import Record
from sojourn.engine.worker.keys import key_hash
from sojourn.wiring import Running

SHARDS, STATE = 256, 100 << 20
HERE, THERE = 5, 3  # processors of one machine, and further ones
SLEEP_S, BUSY = 0.020, 0.8
WAIT_S, SERVED_S = 0.5, 10.0
AFTER_S = 5.0  # for which a machine that has come or gone may be to blame


def keys() -> tuple[int, ...]:
    """One for each of 256 shards."""
    found: dict[int, int] = {}
    for key in itertools.count():
        found.setdefault(key_hash(key) % SHARDS, key)
        if len(found) == SHARDS:
            return tuple(found.values())
    raise AssertionError


KEYS = keys()


def number(n: int) -> int:
    """A value."""
    return n


def one_each(n: int) -> int:
    """Its key."""
    return KEYS[n % SHARDS]


def forget(_value: Any) -> None:
    """Nobody wants it."""


class Keeper(sj.Operator):
    """Sleeps, counts and keeps bytes. With a folder, each process leaves a file there that says
    when it had its first tuple."""

    def __init__(self, sleep_s: float, size: int, folder: str = "") -> None:
        self.sleep_s, self.size, self.folder = sleep_s, size, folder
        self.told = 0  # the process that has left its file

    def process(self, n: int) -> int:
        time.sleep(self.sleep_s)
        key = one_each(n)
        count: int = self.state.get(key, 0) + 1
        if count == 1 and self.size:
            self.state["kept", key] = random.randbytes(self.size)
        self.state[key] = count
        if self.folder and self.told != os.getpid():
            self.told = os.getpid()
            Path(self.folder, str(self.told)).write_text(str(time.monotonic()), encoding="ascii")
        return count


# machine


class Seen:
    """What a control loop tells, to be waited for."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.capacity: int | None = None
        self.state = 0  # bytes of it, at most
        self.changes: list[str] = []

    def listen(self, record: Record) -> None:
        """Take a record."""
        with self.changed:
            self.capacity = record.capacity
            if record.applied:
                self.changes.append(record.decision.reason)
            keep = record.samples.vertices.get("keep")
            if keep is not None:
                self.state = max([self.state, *(part.state for part in keep.parts)])
            self.changed.notify_all()

    def until(self, there: Callable[[int], bool], timeout_s: float) -> float | None:
        """When there was room for that many processors; None if that was never so."""
        with self.changed:
            found = self.changed.wait_for(lambda: there(self.capacity or 0), timeout_s)
            return time.monotonic() if found else None


def machine(_spark: SparkSession | None, quick: bool) -> dict[str, Any]:
    """A second machine comes and goes."""
    with tempfile.TemporaryDirectory() as folder, Steal() as steal:
        t = sj.Topology("machine")
        rate = BUSY * HERE / SLEEP_S
        numbers = t.source("numbers", sj.sources.paced(number, rate=rate, arrivals="poisson"))
        keeper = Keeper(SLEEP_S, STATE // SHARDS, folder)
        kept = t.map("keep", keeper, numbers, key=one_each, shards=SHARDS, processors=HERE)
        t.sink("out", sj.sinks.call(forget), kept)
        given = configuration.from_mapping(
            {
                "machines.pool": "standalone",
                "machines.processors": HERE,
                "machines.cores": 4,
                "machines.most": 2,
                "change.quiet": "10s",
                "commit": "10s",
            }
        )
        seen = Seen()
        turns: list[tuple[float, float | None, float, float | None]] = []
        with Running(
            t,
            *settings_for({"max_processors": HERE}, over=[given], spark=None),
            listeners=[seen.listen],
        ) as running:
            watch = Watch(running)
            running.wait(15.0)
            for _ in range(1 if quick else 3):
                asked = time.monotonic()
                running.change(max_processors=HERE + THERE)
                came = seen.until(lambda room: room > HERE, 60.0)
                running.wait(10.0)
                back = time.monotonic()
                running.change(max_processors=HERE)
                went = seen.until(lambda room: room <= HERE, 90.0)
                running.wait(10.0)
                turns.append((asked, came, back, went))
            restarts = running.restarts
        first = sorted(float(path.read_text(encoding="ascii")) for path in Path(folder).iterdir())
    runs, missed, serving = [], list[str](), list[float]()
    for asked, came, back, went in turns:
        served = next((at - asked for at in first if at > asked), math.inf)
        serving.append(served)
        adding = _slowest(watch, steal, asked, (came or back) + AFTER_S)
        going = _slowest(watch, steal, back, (went or back) + AFTER_S)
        before = _slowest(watch, steal, asked - 10.0, asked)
        runs.append(
            {
                "in_use_after_s": None if came is None else came - asked,
                "served_after_s": served,
                "slowest_before_s": before,
                "slowest_while_added_s": adding,
                "slowest_while_given_back_s": going,
                "gone_after_s": None if went is None else went - back,
            }
        )
        if came is None or went is None:
            missed.append("no machine came" if came is None else "the machine did not go")
        for what, slowest in (("added", adding), ("given back", going)):
            if not slowest - before <= WAIT_S:
                missed.append(f"{what}: a tuple takes {slowest:.2f} s, and {before:.2f} before")
    served = statistics.median(serving)
    if served > SERVED_S:
        missed.append(f"the machine serves tuples after {served:.1f} s, at most {SERVED_S:g}")
    if restarts:
        missed.append(f"{restarts} restarts, at most 0")
    if seen.state < STATE:
        missed.append(f"only {seen.state} bytes of state")
    return {
        "runs": runs,
        "state_bytes": seen.state,
        "changes": seen.changes,
        "restarts": restarts,
        "steal": steal.told(),
        "missed": missed,
    }


def _slowest(watch: Watch, steal: Steal, since_s: float, until_s: float) -> float:
    """The longest that a tuple took of those that were done in the clean seconds of a time;
    infinite if less than half of them are clean."""
    seconds = range(math.ceil(until_s - since_s))
    clean = [s for s in seconds if steal.was_clean(since_s + s, since_s + s + 1)]
    if len(clean) < len(seconds) / 2:
        return math.inf
    kept = set(clean)
    return max(
        (
            done - due
            for due, done in watch.done
            if since_s <= done < until_s and int(done - since_s) in kept
        ),
        default=math.inf,
    )


# shuffles

RATE, COST_MS, OMEGA = 200.0, 10.0, 16.0
VICTIMS: dict[str, Callable[[Running], int]] = {
    "worker": lambda running: worker(running, "calculator"),
    "executor": lambda running: executor(running, "calculator"),
    "nursery": lambda running: nursery(running, "calculator"),
    "host": lambda running: host(running, "calculator"),
    "source": lambda running: executor(running, "generator"),
    "sink": lambda running: executor(running, "counts"),
}


def shuffles(spark: SparkSession, quick: bool) -> dict[str, Any]:
    """The micro-benchmark, with kills."""
    sys.path.append(str(Path(__file__).parents[1] / "examples"))
    micro: Any = importlib.import_module("micro")
    draw, moves, killed, resizes = random.Random(1), 0, list[str](), 0
    with tempfile.TemporaryDirectory() as folder, Steal() as steal:
        out = Path(folder, "out")
        asked = micro.Settings(
            rate=RATE,
            seconds=60.0 if quick else 600.0,
            shuffles=OMEGA,
            cost_ms=COST_MS,
            wait=True,
            executors=2,
            shards=512,
            processors=4,
            state=4096,
            out=str(out),
        )
        with sj.start(
            micro.topology(asked),
            spark=spark,
            checkpoint=Path(folder, "checkpoint"),
            settings={"commit": 1.0},
        ) as running:
            completed(running)
            while not running.await_idle(draw.uniform(1.0, 5.0)):
                running.resize({"calculator": draw.randint(3, 7)})
                resizes += 1
                sample = running.samples().vertices.get("calculator")  # none while it restarts
                moves += sum(part.moves for part in sample.parts) if sample else 0
                if resizes % 3 == 0:
                    name = draw.choice(list(VICTIMS))
                    with contextlib.suppress(ProcessLookupError, StopIteration, IndexError):
                        os.kill(VICTIMS[name](running), signal.SIGKILL)
                        killed.append(name)
            restarts = running.restarts
        total = round(asked.rate * asked.seconds)
        generator = micro.Generator(asked)
        truth = Counter(generator.tuple(n)[0] for n in range(total))
        last: Counter[int] = Counter()
        wrong = []
        for path in sorted(out.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                key, count = json.loads(line)
                if count != last[key] + 1:
                    wrong.append(f"{key}: {count} after {last[key]}")
                last[key] = count
        wrong += [f"{k}: {last[k]} of {truth[k]}" for k in {*last, *truth} if last[k] != truth[k]]
    missed = wrong[:20]
    if len(killed) < asked.seconds / 30:
        missed.append(f"only {len(killed)} kills")
    if moves < asked.seconds:
        missed.append(f"only {moves} moves")
    return {
        "tuples": total,
        "kills": Counter(killed),
        "restarts": restarts,
        "resizes": resizes,
        "moves": moves,
        "wrong": len(wrong),
        "steal": steal.told(),
        "missed": missed,
    }
