"""Bugs that were found once, each with the smallest case that showed it."""

import multiprocessing
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from test_emitter import SEAL, Way
from test_workers import rigged

import sojourn as sj
from sojourn.engine.driver.build import pickled
from sojourn.engine.executor.emitter import Emitter
from sojourn.engine.executor.meter import Meter
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker.keys import key_hash
from sojourn.errors import InputError
from sojourn.sources import Pace


def test_a_script_that_imports_multiprocessing_can_be_started(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        "import multiprocessing, sojourn as sj\n"
        "from sojourn.engine.driver.build import pickled\n"
        "t = sj.Topology('t')\n"
        "t.operator('o', lambda v: [v], t.source('s', sj.sources.iterable(lambda: [1])))\n"
        "print(sorted(pickled(t)))\n",
        encoding="utf-8",
    )
    shown = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "['o', 's']\n"


@pytest.mark.parametrize(("shards", "before", "after"), [(5, 3, 4), (256, 29, 30), (256, 17, 18)])
def test_shards_are_spread_evenly_over_new_workers(shards: int, before: int, after: int) -> None:
    with rigged(keyed=True, shards=shards) as rig:
        for size in (before, after):
            rig.workers.resize(size)
            rig.ready(*[w for w in rig.workers.all if w.pid is None])
        counts = [worker.shards for worker in rig.workers.all]
    assert sum(counts) == shards
    assert max(counts) - min(counts) <= 1


def test_a_worker_retired_before_it_is_ready_is_closed() -> None:
    with rigged() as rig:
        rig.workers.resize(2)
        first, second = rig.workers.all
        rig.ready(first)
        rig.workers.resize(1)
        rig.ready(second)
        assert rig.workers.all == [first]


def test_every_route_takes_its_own_turns() -> None:
    routes = tuple(
        Route(name, None, False, 1, first, 2, None, 0) for name, first in (("a", 0), ("b", 2))
    )
    emitter = Emitter(5, routes, 0, (-1, -1), 1, Meter(0.0), SEAL, lambda _row: None)
    way = Way()
    for _ in range(10):
        emitter.add([m.Group(0, -1, [b"x"], [], []), m.Group(1, -1, [b"y"], [], [])])
    emitter.window = 100
    emitter.flush(way)
    assert Counter(partition for partition, _ in way.sent) == {0: 5, 1: 5, 2: 5, 3: 5}


def test_feedback_is_not_held_back_by_a_blocked_way() -> None:
    routes = (
        Route("next", None, False, 1, 0, 1, None, 0),
        Route("again", None, True, 1, 0, 1, None, 0),
    )
    handed: list[bytes] = []
    emitter = Emitter(5, routes, 0, (-1, -1), 10, Meter(0.0), SEAL, handed.append)
    emitter.add([m.Group(0, -1, [b"x"], [], []), m.Group(1, -1, [b"y"], [], [])])
    emitter.flush(Way())
    assert len(handed) == 1
    assert emitter.count == 1


@dataclass(frozen=True)
class Point:
    x: str
    y: str


def test_equal_keys_have_equal_hashes() -> None:
    distinct = "".join(["ab", "c"])
    for one, other in (
        (frozenset([0, 8]), frozenset([8, 0])),
        (Point("abc", "abc"), Point("abc", distinct)),
        (Decimal(1), 1),
    ):
        assert one == other
        assert key_hash(one) == key_hash(other)
    assert key_hash(float("nan")) == key_hash(-float("nan"))


def test_parquet_keeps_columns_that_the_first_row_lacks(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    sink = sj.sinks.parquet(tmp_path)
    sink.open(0, 0)
    sink.write({"a": 1})
    sink.write({"a": 2, "b": 3})
    sj.sinks.publish(sink.cut(last=True)().publish)
    sink.close()
    assert pq.read_table(tmp_path).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": 3}]


def test_two_sinks_in_one_directory_are_refused(tmp_path: Path) -> None:
    t = sj.Topology("t")
    source = t.source("s", sj.sources.iterable(lambda: [1]))
    t.sink("one", sj.sinks.jsonl(tmp_path), source)
    t.sink("two", sj.sinks.jsonl(tmp_path), source)
    with pytest.raises(InputError, match=r"sink 'two': writes to .*, as does 'one'"):
        t.check()


def test_code_and_keys_that_cannot_be_sent_are_named() -> None:
    lock = multiprocessing.Lock()
    for code, key in ((lambda v: [lock, v], None), (lambda v: [v], lambda v: (lock, v))):
        t = sj.Topology("t")
        t.operator("o", code, t.source("s", sj.sources.iterable(lambda: [1])), key=key)
        with pytest.raises(InputError, match="'o' cannot be sent to another process"):
            pickled(t)


def test_a_class_without_process_is_refused_and_other_states_are_not() -> None:
    class Idle(sj.Operator):
        pass

    class Reads(sj.Operator):
        def process(self, value: Any) -> list[object]:
            return [value.state]

    class Nested(sj.Operator):
        def process(self, value: int) -> list[int]:
            def add() -> int:
                return int(self.state[value])

            return [add()]

    t = sj.Topology("t")
    source = t.source("s", sj.sources.iterable(lambda: [1]))
    with pytest.raises(InputError, match=r"'idle': the class Idle must define process"):
        t.operator("idle", Idle, source)
    with pytest.raises(InputError, match=r"'nested': Nested uses self\.state, which needs a key"):
        t.operator("nested", Nested, source)
    t.operator("reads", Reads, source)


def test_mistaken_paces_are_told_and_a_pause_delays_only_what_comes_in_it() -> None:
    for rate in ("fast", [(1,)], float("inf"), [(float("inf"), 1)]):
        with pytest.raises(InputError, match="rate must be above zero, or steps"):
            Pace(rate)  # type: ignore[arg-type]
    times = Pace([(1, 5), (10, 0), (1, 5)]).times()
    assert [round(next(times)[0], 6) for _ in range(6)] == [0.2, 0.4, 0.6, 0.8, 1.0, 11.2]


def test_a_line_in_another_encoding_is_told_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "latin1.txt"
    file.write_bytes(b"fine\n\xff\xfe\n")
    with pytest.raises(
        InputError, match=r"latin1\.txt: the line that ends at byte 8 cannot be read"
    ):
        list(sj.sources.lines(file).read(None))
