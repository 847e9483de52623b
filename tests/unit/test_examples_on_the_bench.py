"""The examples without Spark, on the bench: each does what the transcript beside it says, and what
it keeps is right."""

import importlib
import math
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chain
import fpd
import orders
import patterns
import pytest
import split_join_loop
import transcripts
import tsa
import vld
import wc
import wordcount
from transcripts import EXAMPLES, KAFKA, ROOT, matches, play, shell

import sojourn as sj
from sojourn.testing import Bench


class OnBench:
    """What `sj.start` returns, as far as examples use it: all sources are read to their ends."""

    def __init__(self, topology: sj.Topology, **_options: Any) -> None:
        self.bench = Bench(topology)

    def __enter__(self) -> "OnBench":
        return self

    def __exit__(self, *_: object) -> None:
        self.bench.close()

    def await_idle(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002
        for source in self.bench.topology.sources:
            self.bench.read(source)
        steps = [*self.bench.run(), *self.bench.advance("1min")]  # it waits for timers, too
        self.served = Counter(step.vertex for step in steps if step.error is None)
        self.dropped = Counter(step.vertex for step in self.bench.failed)
        self.bench.publish()
        return True

    def samples(self) -> Any:
        names = self.bench.topology.vertices
        vertices = {
            name: SimpleNamespace(
                served=self.served[name], dropped=self.dropped[name], service_s=0.0
            )
            for name in names
        }
        return SimpleNamespace(vertices=vertices, sojourn=SimpleNamespace(mean_s=0.0))


@pytest.fixture
def example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """Runs the command that starts an example, on the bench."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sj, "start", OnBench)
    monkeypatch.setattr(orders, "ask_elsewhere", lambda mean_s: None)  # noqa: ARG005

    def run(command: str) -> str:
        program, *arguments = shlex.split(command)
        if program == "sojourn":  # simulates, without Spark
            return shell(command)
        monkeypatch.setattr(sys, "argv", arguments)
        importlib.import_module(Path(arguments[0]).stem).main()
        return capsys.readouterr().out

    return run


def test_every_example_has_its_expected_output_beside_it() -> None:
    expected = sorted(path.stem for path in (ROOT / "examples").glob("*.expected"))
    assert expected == sorted([*EXAMPLES, *KAFKA])


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_bench_shows_what_is_expected(name: str, example: Callable[[str], str]) -> None:
    play(name, example)


@pytest.mark.parametrize(
    ("shown", "expected", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\n", False),
        ("a 1.5 ms\n", "a … ms\n", True),
        ("a 1.5\nb ms\n", "a … ms\n", False),
        ("a\nb\nc\nd\n", "a\n…\nd\n", True),
        ("a\nd\n", "a\n…\nd\n", True),
        ("a\nb\n", "a\n…\nd\n", False),
        ("a*\n", "a.\n", False),
        ("", "…\n", True),
        ("a\n", "", False),
    ],
)
def test_transcripts_are_compared(shown: str, expected: str, same: bool) -> None:
    assert matches(shown, expected) == same


def test_a_transcript_has_commands() -> None:
    assert [command for command, _ in transcripts.commands("chain")] == [
        "python examples/chain.py --sleep 2 6 0 --count 60"
    ]


def test_words_are_counted_over_a_restart() -> None:
    bench = Bench(wordcount.topology(None, 300, "out"))
    bench.send("lines", "To be or not", "to BE")
    bench.run()
    bench.restart()
    bench.send("lines", "to")
    bench.run()
    assert bench.state("count") == {"to": 3, "be": 2, "or": 1, "not": 1}
    assert bench.outputs["out"][-1] == ("to", 3)


def test_the_sentences_are_the_same_every_time() -> None:
    bench = Bench(wordcount.topology(None, 300, "out"))
    assert bench.read("lines", 20) == 20
    bench.run()
    words = Counter(word for line in wordcount.sentences()[:20] for word in line.lower().split())
    assert bench.state("count") == words


@pytest.mark.parametrize("number", [1, 2, 3, 1024, 1001, 7919, 2 * 3 * 5 * 7 * 11 * 13])
def test_factors_are_gathered_and_then_forgotten(number: int) -> None:
    bench = Bench(split_join_loop.topology(1, 100, "out"))
    bench.send("numbers", number)
    bench.run()
    found = bench.outputs["out"]
    if number == 1:
        assert found == [], "it has no factor"
    else:
        ((told, factors),) = [(row["number"], row["factors"]) for row in found]
        assert (told, math.prod(factors)) == (number, number)
        assert factors == sorted(factors)
    assert bench.state("collect") == {}


def test_a_number_goes_round_until_nothing_is_left() -> None:
    bench = Bench(split_join_loop.topology(1, 100, "out"))
    bench.send("numbers", 84)
    taken = [(step.vertex, step.value) for step in bench.run()]
    assert [value for vertex, value in taken if vertex == "halve"] == [(84, 84, 1)]
    rounds = [value for vertex, value in taken if vertex == "divide"]
    assert rounds == [(84, 21, 4), (84, 7, 3), (84, 1, 7)]


def test_orders_are_booked_once_for_each_customer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(orders, "ask_elsewhere", asked.append)
    bench = Bench(orders.topology())
    assert bench.read("orders", 200) == 200
    bench.run()
    truth: Counter[int] = Counter()
    for number in range(200):
        order = orders.order(number)
        truth[order["customer"]] += 3 * order["amount"]
    assert bench.state("book") == truth
    assert len(bench.outputs["totals"]) == 200
    assert Counter(asked) == {0.025: 200, 0.040: 200}


def test_a_chain_takes_its_times_and_hands_numbers_on(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    bench = Bench(chain.topology(chain.Settings(sleep=(20.0, 0.0, 10.0))))
    assert bench.read("numbers", 3) == 3
    bench.run()
    assert bench.outputs["nothing"] == [0, 1, 2]
    assert Counter(slept) == {0.020: 3, 0.010: 3}


def test_a_set_tells_the_sets_that_it_contains() -> None:
    settings = fpd.Settings(window=10, support=0.2, cap=2, count=1)
    assert settings.threshold == 2
    bench = Bench(fpd.topology(settings))
    bench.send("entering", (1, "a b"), (1, "b a c"))
    bench.run()
    assert bench.state("detect") == {("a",): (2, 1), ("b",): (2, 1), ("a", "b"): (2, 0)}
    assert bench.outputs["capped"] == [{"words": 3, "used": 2}]
    last = {tuple(row["words"]): row["maximal"] for row in bench.outputs["patterns"]}
    assert [words for words, maximal in last.items() if maximal] == [("a", "b")]
    bench.send("leaving", (-1, "a b"), (-1, "b a c"))
    bench.run()
    assert bench.state("detect") == {}
    assert len(bench.outputs["capped"]) == 1, "counted when it enters"


def test_a_frame_waits_for_all_of_its_parts() -> None:
    bench = Bench(vld.topology(vld.Settings(count=1, seed=1)))
    assert bench.read("frames") == 1
    came = 0
    while not bench.outputs["logos"]:
        step = bench.step()
        assert step is not None
        if step.vertex == "aggregate":
            came += 1
            _, parts, _ = step.value
            assert bool(step.emitted) == (came == parts)
            kept = bench.state("aggregate")
            assert {frame: seen for frame, (seen, _) in kept.items()} == (
                {} if came == parts else {0: came}
            )
    assert came > 1


def test_smaller_frames_have_fewer_features_and_their_logos_are_found() -> None:
    found = []
    for width in (640, 320):
        settings = vld.Settings(count=30, seed=1, width=width)
        bench = Bench(vld.topology(settings))
        bench.read("frames")
        parts = 0
        while step := bench.step():
            parts += step.vertex == "match"
        found.append((parts, *vld.scores(bench.outputs["logos"], settings.seed)))
    (parts, *_), (fewer, precision, recall) = found
    assert fewer < parts
    assert precision > 0.9
    assert recall > 0.5


def test_what_tweets_feel_and_rank_is_that_of_a_plain_computation() -> None:
    """Each minute's last average and last ranking are those of all its tweets."""
    lines = [tsa.tweet(number) for number in range(900)]
    bench = Bench(tsa.topology())
    bench.send("tweets", *lines)
    bench.run()
    bench.advance(5.0)
    bench.run()
    scores: dict[int, list[int]] = {}
    tags: dict[int, Counter[str]] = {}
    for minute, text in (found for line in lines for found in tsa.language(line)):
        words = tsa.WORD.findall(text.lower())
        scores.setdefault(minute, []).append(sum(tsa.valences().get(word, 0) for word in words))
        tags.setdefault(minute, Counter()).update(tsa.TAG.findall(text))
    averages = {minute: (count, mean) for minute, count, mean in bench.outputs["feelings"]}
    assert averages == {m: (len(s), sum(s) / len(s)) for m, s in scores.items()}
    assert len(scores) == 3
    rankings = dict(bench.outputs["rankings"])
    assert rankings == {m: tsa.ranked(counts.items()) for m, counts in tags.items()}
    assert bench.outputs["archive"] == lines
    assert 0.6 < sum(map(len, scores.values())) / len(lines) < 0.9


def test_both_designs_of_word_count_count_the_same() -> None:
    lines = [wc.tweet(number) for number in range(50)]
    counts = []
    for made in (wc.designed("wc"), wc.designed("swc")):
        bench = Bench(made)
        bench.send("tweets", *lines)
        bench.run()
        counts.append(bench.state("count"))
    words = Counter(word for line in lines for word in wc.split(wc.parse(line)))
    assert counts == [words, words]
    assert 10 < sum(words.values()) / len(lines) < 14


@pytest.mark.parametrize(("selectivity", "passed"), [(1.0, 20), (2.0, 160), (0.0, 0)])
def test_patterns_pass_on_as_many_as_their_selectivity_says(
    selectivity: float, passed: int
) -> None:
    bench = Bench(patterns.linear(patterns.Settings(selectivity=selectivity), kinds=("json",)))
    bench.send("messages", *(patterns.message(number) for number in range(20)))
    bench.run()
    assert len(bench.outputs["nothing"]) == passed


def test_patterns_have_the_shapes_they_are_named_for() -> None:
    assert list(patterns.linear(patterns.Settings(depth=5)).operators) == [
        f"op{number}" for number in range(1, 6)
    ]
    diamond = patterns.diamond()
    assert list(diamond.operators) == ["cpu1", "json2", "sleep3", "sleep4", "join"]
    assert sum(edge.receiver == "join" for edge in diamond.edges) == 4
    star = patterns.star()
    assert list(star.sources) == ["left", "right"]
    assert list(star.operators) == ["hub", "up", "down"]
