"""The examples on Spark, as a user runs them, and the papers' applications with their answers
checked."""

import functools
import importlib
import itertools
import json
import os
import secrets
import shlex
import sys
from collections import Counter
from pathlib import Path

import chain
import fpd
import lab
import pytest
import shapes
import sse
import stocks
import vld
from conftest import await_exit, processes, results
from pyspark.sql import SparkSession
from test_fpd import mined
from test_sse import by_symbol, plain_book, written
from test_vld import filmed
from transcripts import EXAMPLES, ROOT, play, shell

import sojourn as sj
from sojourn.engine.spark.java import find_java
from sojourn.settings import ControlSettings
from sojourn.testing import Bench

OWN = ("orders", "wordcount", "fpd")  # play in drivers of their own


@pytest.mark.parametrize("name", OWN)
def test_an_example_shows_what_is_expected_in_a_driver_of_its_own(
    name: str, tmp_path: Path
) -> None:
    mark = secrets.token_hex(8)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    there = functools.partial(shell, folder=tmp_path, mark=mark)
    play(name, there, there)
    for pid in processes(mark):
        await_exit(pid)


@pytest.mark.parametrize("name", sorted({*EXAMPLES} - {*OWN}))
def test_an_example_shows_what_is_expected(
    name: str,
    spark: SparkSession,  # noqa: ARG001  # it takes the session that there is
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The same, on the session of the tests."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)

    def example(command: str) -> str:
        program, *arguments = shlex.split(command)
        assert program == "python"
        monkeypatch.setattr(sys, "argv", arguments)
        capfd.readouterr()
        importlib.import_module(Path(arguments[0]).stem).main()
        return capfd.readouterr().out

    play(name, example)


def test_trades_are_those_of_a_plain_book_while_shards_move(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Orders that cannot be understood are counted and left out."""
    market = sse.Market(stocks=40, seed=1)
    rows = [market.order(number) for number in range(2000)]
    broken = [("1", str(number), "600001", "buy", "free", "1", "new") for number in range(3)]
    file = written(tmp_path / "orders.csv", [*rows[:1000], *broken, *rows[1000:]])
    settings = sse.Settings(str(file), out=str(tmp_path / "out"), shards=64, on_error="skip")
    refused = 0
    with sj.start(sse.topology(settings), spark=spark, settings={"commit": 1}) as running:
        for count in itertools.chain((4, 1, 3, 2) * 3, itertools.repeat(2)):
            running.resize({"transact": count})
            done = running.await_idle(0.3)
            refused += running.samples().vertices["transact"].dropped
            if done:
                break
    assert refused == len(broken)
    trades = results(tmp_path / "out")
    assert len(trades) > 500
    assert by_symbol(trades) == by_symbol(plain_book(rows))


def test_frequent_patterns_equal_those_of_an_independent_miner(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of a file with lines that are no messages, which are counted and left out."""
    zipf = fpd.Zipf(vocabulary=80, seed=0)
    lines = [json.dumps(zipf.message(number)) for number in range(1000)]
    broken = (3, 250, 599, 600, 998)
    for number in broken:
        lines[number] = lines[number][:-3]
    file = tmp_path / "messages.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = fpd.Settings(
        window=400,
        rate=250.0,
        support=0.02,
        cap=4,
        out=str(tmp_path),
        file=str(file),
        on_error="skip",
    )
    topology = fpd.topology(settings)
    with sj.start(topology, spark=spark, settings={"commit": 1}) as running:
        running.resize({"generate": 2, "detect": 3})
        assert running.await_idle(120)
        # Those that leave the window were not read when they entered it either.
        assert running.samples().vertices["generate"].dropped == len(broken) + 3
    fine = [number for number in range(1000) if number not in broken]
    window = [zipf.message(number) for number in fine if number >= 600]
    expected = mined([words[:4] for words in window], settings.threshold)
    assert fpd.maximal_patterns(settings) == expected
    assert max(map(len, expected)) >= 2
    capped = sum(len(zipf.message(number)) > 4 for number in fine)
    assert sum(1 for _ in fpd.lines_of(f"{tmp_path}/capped")) == capped


def test_logos_are_detected(spark: SparkSession, tmp_path: Path) -> None:
    settings = vld.Settings(count=40, rate=10.0, out=str(tmp_path))
    with sj.start(vld.topology(settings), spark=spark) as running:
        running.resize({"extract": 2})
        assert running.await_idle(120)
    found = vld.results(settings.out)
    assert sorted(frame["frame"] for frame in found) == list(range(40))
    precision, recall = vld.scores(found, settings.seed)
    assert precision > 0.9
    assert recall > 0.9


def test_what_a_video_that_is_cut_off_lacks_becomes_dead_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = filmed(tmp_path / "cut.avi", 20)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.7)])
    settings = vld.Settings(
        rate=20.0, out=str(tmp_path / "out"), video=str(path), on_error="dead-letter"
    )
    topology, checkpoint = vld.topology(settings), tmp_path / "checkpoint"
    bench = Bench(topology)
    bench.read("frames")
    bench.run()
    assert bench.failed
    with sj.start(topology, spark=spark, checkpoint=checkpoint) as running:
        assert running.await_idle(120)
        assert running.samples().vertices["extract"].dropped == len(bench.failed)
    found = sorted(vld.results(settings.out), key=lambda one: int(one["frame"]))
    assert found == bench.outputs["logos"]
    letters = results(checkpoint / "sojourn" / "dead-letters" / "extract")
    assert len(letters) == len(bench.failed)


def test_a_chain_sleeps_for_its_times(spark: SparkSession) -> None:
    with sj.start(chain.topology(chain.Settings(sleep=(2.0, 6.0, 0.0))), spark=spark) as running:
        found: dict[str, float] = {}
        while not found.keys() >= set(chain.NAMES):
            assert not running.await_idle(0.5)  # its source has no end
            samples = running.samples().vertices.values()
            found |= {s.name: s.service_s for s in samples if s.service_s is not None}
    for name, least_s in zip(chain.NAMES, (0.002, 0.006, 0.0), strict=True):
        assert found[name] >= least_s


def test_experiments_control_shapes_and_see_how_long_a_change_takes(spark: SparkSession) -> None:
    bench = lab.Lab("spark", quick=True, spark=spark)
    shape = shapes.vld(rate=4.0, scale=10.0)
    settings = ControlSettings(max_processors=9, interval_s=2.0, window_s=4.0, gain=0.01, doubt=0.0)
    start = {"extract": 2, "match": 6, "aggregate": 1}
    found = bench.controlled(shape, start, settings, 12.0, act_from_s=5.0)
    records, resized_s = found.records, found.resized_s
    applied = [record for record in records if record.applied]
    assert applied
    assert len(resized_s) == len(applied)
    assert applied[0].time_s - records[0].time_s > 3.0
    wanted = applied[-1].decision.allocation or {}
    assert sum(wanted.values()) == 9
    if applied[-1] is not records[-1]:
        ends = records[-1].samples.vertices
        assert {name: ends[name].processors for name in wanted} == wanted


def test_the_highest_prices_are_those_of_the_trades_that_were_not_shed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In between, trades come far faster than they can be read, so those that are late are shed."""
    count, out, kept = 84_000, tmp_path / "out", tmp_path / "kept"
    rates = [(1.0, 1e3), (0.04, 2e6), (1.0, 1e3)]
    topology = stocks.topology(count, rates, str(out), shed_after=0.1, kept=str(kept), executors=2)
    shed, shares = 0, Counter[int]()
    with sj.start(topology, spark=spark, settings={"commit": 1}) as running:
        done = False
        while not done:
            done = running.await_idle(0.3)
            samples = running.samples().vertices
            shed += samples["trades"].shed
            for part in samples["maxima"].parts:
                shares[part.executor] += part.arrivals
    assert min(shares[0], shares[1]) > 0.3 * sum(shares.values()), "each has its share of all"
    trades = [tuple(trade) for trade in stocks.written(kept)]
    assert trades
    assert shed == count - len(trades) > 0
    assert len(set(trades)) == len(trades)
    assert set(trades) <= set(map(stocks.trade, range(count)))
    assert stocks.highest(out) == stocks.sequentially(trades)


def test_the_highest_prices_of_a_plain_query_are_those_of_a_sequential_computation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a driver of its own, which compares them. The transcript has no such command, as it is
    played without Spark, too."""
    java = find_java(os.environ, Path.home() / ".cache" / "sojourn")
    monkeypatch.setenv("JAVA_HOME", str(java.home))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    said = shell("python examples/stocks.py --plain --count 12000", tmp_path)
    count = len(stocks.sequentially(map(stocks.trade, range(12_000))))
    assert said == f"{count} maxima of 3 seconds, all right\n"
