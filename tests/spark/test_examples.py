"""The papers' applications on Spark, with their answers checked."""

from pathlib import Path

import fpd
import vld
from pyspark.sql import SparkSession
from test_fpd import mined

import sojourn as sj


def test_frequent_patterns_equal_those_of_an_independent_miner(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = fpd.Settings(
        window=400, count=1000, rate=250.0, support=0.02, vocabulary=80, cap=4, out=str(tmp_path)
    )
    topology = fpd.topology(settings)
    with sj.start(topology, spark=spark, batch_s=3) as running:
        running.resize({"generate": 2, "detect": 3})
        assert running.await_idle(120)
    zipf = fpd.Zipf(settings.vocabulary, settings.seed)
    window = [zipf.message(number) for number in range(600, 1000)]
    expected = mined([words[:4] for words in window], settings.threshold)
    assert fpd.maximal_patterns(settings) == expected
    assert max(map(len, expected)) >= 2
    capped = sum(len(zipf.message(number)) > 4 for number in range(1000))
    assert sum(1 for _ in fpd.lines_of(f"{tmp_path}/capped")) == capped


def test_logos_are_detected(spark: SparkSession, tmp_path: Path) -> None:
    settings = vld.Settings(count=50, rate=10.0, out=str(tmp_path))
    topology = vld.topology(settings)
    with sj.start(topology, spark=spark, batch_s=30) as running:
        running.resize({"extract": 2})
        assert running.await_idle(120)
    found = vld.results(str(tmp_path))
    assert sorted(frame["frame"] for frame in found) == list(range(50))
    precision, recall = vld.scores(found, settings.seed)
    assert precision > 0.9
    assert recall > 0.9
