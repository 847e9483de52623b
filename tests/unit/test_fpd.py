"""The frequent patterns of examples/fpd.py, without Spark: in whatever order changes reach the
detector, the end is that of an independent miner."""

import itertools
import math
import random
from pathlib import Path
from typing import Any

import fpd
import pytest
from efficient_apriori import apriori

import sojourn as sj


def mined(messages: list[fpd.Words], threshold: int) -> set[fpd.Words]:
    """The maximal frequent sets, by efficient-apriori."""
    sizes, _ = apriori(
        messages, min_support=(threshold - 0.5) / len(messages), min_confidence=1.0, max_length=99
    )
    frequent = [set(found) for of_size in sizes.values() for found in of_size]
    return {
        tuple(sorted(found)) for found in frequent if not any(found < larger for larger in frequent)
    }


def detected(stream: list[tuple[int, Any]], settings: fpd.Settings, draw: random.Random) -> Any:
    """What the detector says in the end, with its inputs and its own changes in random order."""
    generate, detector = fpd.Generate(settings.cap), fpd.Detect(settings.threshold)
    if settings.instances:
        detector = fpd.DetectForAll(settings.threshold, settings.instances)
    detector.state = {}
    last: dict[fpd.Words, bool] = {}
    capped, pending = 0, []
    for message in stream:
        for made in generate.process(message):
            if isinstance(made, sj.Output):
                capped += 1
            else:
                pending.append(made)
        while len(pending) > 50 or (pending and message is stream[-1]):
            for made in detector.process(pending.pop(draw.randrange(len(pending)))):
                if isinstance(made, sj.Output):
                    pending.append(made.value)
                else:
                    last[tuple(made["words"])] = made["maximal"]
    return {words for words, maximal in last.items() if maximal}, capped, detector.state


@pytest.mark.parametrize("instances", [0, 1, 13])
@pytest.mark.parametrize("seed", range(5))
def test_the_patterns_of_the_last_window_are_exact(seed: int, instances: int) -> None:
    settings = fpd.Settings(
        window=200, count=500, support=0.03, vocabulary=40, cap=5, seed=seed, instances=instances
    )
    zipf, draw = fpd.Zipf(settings.vocabulary, seed), random.Random(seed)
    stream = [(1, zipf.message(i)) for i in range(500)] + [
        (-1, zipf.message(i)) for i in range(300)
    ]
    draw.shuffle(stream)
    found, capped, _ = detected(stream, settings, draw)
    assert found == mined([zipf.message(i)[:5] for i in range(300, 500)], settings.threshold)
    assert max(map(len, found)) >= 2
    assert capped == sum(len(zipf.message(i)) > 5 for i in range(500))


def test_an_empty_window_keeps_no_state() -> None:
    settings = fpd.Settings(window=10, support=0.2, cap=4)
    zipf = fpd.Zipf(20, 1)
    stream = [(1, zipf.message(i)) for i in range(50)] + [(-1, zipf.message(i)) for i in range(50)]
    found, _, state = detected(stream, settings, random.Random(0))
    assert (found, state) == (set(), {})


def test_all_instances_are_told_and_each_looks_at_its_own_sets() -> None:
    detector = fpd.DetectForAll(2, 4)
    states: list[dict[Any, Any]] = [{} for _ in range(4)]
    notices = []
    for _ in range(2):
        change = (1, ("a", "b"), 0)
        detector.state = states[fpd.instance_of(4, change)]
        notices += [made.value for made in detector.process(change) if isinstance(made, sj.Output)]
    assert [notice.instance for notice in notices] == [0, 1, 2, 3]
    for notice in notices:
        detector.state = states[fpd.instance_of(4, notice)]
        assert list(detector.process(notice)) == []  # neither set is frequent by itself
    for words in (("a",), ("b",)):
        instance = fpd.instance_of(4, (0, words, 0))
        assert states[instance][words] == (0, 1)
        assert all(words not in state for n, state in enumerate(states) if n != instance)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("To be or not to be\n", ("be", "not", "or", "to")),
        (fpd.Json('["b", "a", "b"]\n'), ("a", "b")),
        ("[RT] so\n", ("[rt]", "so")),
        ("\n", ()),
    ],
)
def test_messages_are_text_or_lists_of_words(line: Any, words: fpd.Words) -> None:
    assert fpd.words_of(line) == words


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (fpd.Json('["a", 1]\n'), "must be text, or a list of words"),
        (fpd.Json('{"text": "a"}\n'), "must be text, or a list of words"),
        (fpd.Json("[\n"), "Expecting value"),
        ("\udcff\n", "surrogates not allowed"),
        (fpd.Json('["caf\udce9", "b"]\n'), "surrogates not allowed"),
        (fpd.Json('["\\ud800"]\n'), "surrogates not allowed"),
    ],
)
def test_other_lines_are_errors(line: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fpd.words_of(line)


@pytest.mark.parametrize(
    "wrong",
    [
        {"support": math.nan},
        {"cap": 0},
        {"window": 0},
        {"count": -3},
        {"rate": 0.0},
        {"instances": -1},
        {"instances": 257},
    ],
)
def test_settings_must_make_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(sj.InputError, match=f"{next(iter(wrong))} must be .*; got"):
        fpd.topology(fpd.Settings(**wrong))


def test_the_window_keeps_its_size() -> None:
    settings = fpd.Settings(window=1000, rate=100.0)
    topology = fpd.topology(settings)
    paces = [topology.sources[name].source.pace for name in ("entering", "leaving")]
    assert all(paces)
    entering, leaving = (list(itertools.islice(p.times(), 30_000)) for p in paces if p)
    shifts = [late - soon for (soon, _), (late, _) in zip(entering, leaving, strict=True)]
    assert min(shifts) == pytest.approx(10.0)
    assert max(shifts) == pytest.approx(10.0)


def test_a_file_must_have_messages(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "picture").write_bytes(b"PNG\0\0\n\1\n")
    for name, message in (
        ("none", "cannot be read"),
        ("empty", "is empty"),
        ("picture", "is not text"),
    ):
        with pytest.raises(sj.InputError, match=message):
            fpd.topology(fpd.Settings(file=str(tmp_path / name)))
    (tmp_path / "messages").write_text("a b\nb c\n", encoding="utf-8")
    fpd.topology(fpd.Settings(file=str(tmp_path / "messages"))).check()
