"""Sources: when tuples are due, and that reading in two parts is reading once."""

import itertools
import json
import math
import socket
import statistics
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn import sources
from sojourn.errors import InputError
from sojourn.sources import Arrivals, Pace, Source

MANY = 20_000


def first(count: int, pace: Pace, skip: int = 0, expected: float = 0.0) -> list[float]:
    return [time_s for time_s, _ in itertools.islice(pace.times(skip, expected), count)]


def gaps(pace: Pace) -> list[float]:
    return [b - a for a, b in itertools.pairwise([0.0, *first(MANY, pace)])]


def scv(values: list[float]) -> float:
    return statistics.pvariance(values) / statistics.fmean(values) ** 2


# when


def test_constant_times_are_exact() -> None:
    assert first(5, Pace(8)) == [0.125, 0.25, 0.375, 0.5, 0.625]
    assert first(1, Pace(3), 2_999_999, 2_999_999.0) == [1_000_000.0]
    assert next(Pace(3).times(41, 41.0)) == (14.0, 42.0)


def test_poisson_gaps_have_the_rate_and_the_variance_of_exponential_ones() -> None:
    found = gaps(Pace(40, "poisson", seed=1))
    assert statistics.fmean(found) == pytest.approx(1 / 40, rel=0.03)
    assert scv(found) == pytest.approx(1.0, rel=0.05)
    longer = sum(gap > 2 / 40 for gap in found) / MANY
    assert longer == pytest.approx(math.exp(-2), rel=0.05)


def test_uniform_gaps_lie_between_zero_and_twice_the_mean() -> None:
    found = gaps(Pace(40, "uniform", seed=1))
    assert min(found) >= 0
    assert max(found) <= 2 / 40 + 1e-9
    assert statistics.fmean(found) == pytest.approx(1 / 40, rel=0.02)
    assert scv(found) == pytest.approx(1 / 3, rel=0.05)


@pytest.mark.parametrize("arrivals", ["poisson", "uniform"])
def test_a_seed_says_which_times(arrivals: Arrivals) -> None:
    assert first(50, Pace(5, arrivals, seed=3)) == first(50, Pace(5, arrivals, seed=3))
    assert first(50, Pace(5, arrivals, seed=3)) != first(50, Pace(5, arrivals, seed=4))


def test_a_change_of_rate_takes_effect_at_its_instant() -> None:
    # The third tuple is half due when the rate changes at 1 s; the other half comes faster.
    assert first(5, Pace([(1, 2.5), (1, 10)])) == pytest.approx([0.4, 0.8, 1.05, 1.15, 1.25])


def test_the_last_rate_goes_on() -> None:
    assert first(4, Pace([(1, 1.5), (2, 1)]), 100, 100.0) == pytest.approx(
        [100.5, 101.5, 102.5, 103.5]
    )


def test_nothing_is_due_while_the_rate_is_zero() -> None:
    # What is half due when the pause begins at 1 s is half due when it ends at 11 s.
    times = first(6, Pace([(1, 2.5), (10, 0), (5, 2.5)]))
    assert times == pytest.approx([0.4, 0.8, 11.2, 11.6, 12.0, 12.4])


def test_a_schedule_may_begin_with_nothing_and_pause_twice() -> None:
    assert first(2, Pace([(2, 0), (3, 0), (1, 4)])) == [5.25, 5.5]


def test_a_poisson_schedule_keeps_each_step_s_rate() -> None:
    pace = Pace([(100, 50), (100, 0), (100, 10), (1, 1)], "poisson", seed=5)
    times = list(itertools.takewhile(lambda t: t < 300, (t for t, _ in pace.times())))
    per_step = [sum(low <= t < low + 100 for t in times) for low in (0, 100, 200)]
    assert per_step[1] == 0
    assert per_step[0] == pytest.approx(5000, abs=4 * math.sqrt(5000))
    assert per_step[2] == pytest.approx(1000, abs=4 * math.sqrt(1000))


RATES = st.one_of(
    st.floats(0.1, 1000),
    st.lists(st.tuples(st.floats(0.1, 10), st.just(0.0) | st.floats(0.1, 100)), max_size=4).map(
        lambda steps: [*steps, (1.0, 7.0)]
    ),
)


@given(RATES, st.sampled_from(["constant", "poisson", "uniform"]), st.integers(1, 2100))
def test_to_go_on_is_not_to_have_stopped(rate: Any, arrivals: Arrivals, skip: int) -> None:
    pace = Pace(rate, arrivals, seed=9)
    whole = list(itertools.islice(pace.times(), skip + 20))
    _, expected = whole[skip - 1]
    assert list(itertools.islice(pace.times(skip, expected), 20)) == whole[skip:]


@pytest.mark.parametrize("arrivals", ["constant", "poisson", "uniform"])
def test_to_go_on_does_not_draw_all_that_came_before(arrivals: Arrivals) -> None:
    long_ago = 10**15  # at a rate of 1000 a second, after 30 000 years
    assert first(1, Pace(1000, arrivals), long_ago, 1e15)[0] >= 1e12


def test_no_block_of_gaps_is_like_another() -> None:
    found = {round(gap, 9) for gap in gaps(Pace(1, "poisson", seed=1))}
    assert len(found) == pytest.approx(MANY, rel=0.01)


@given(RATES, st.sampled_from(["constant", "poisson", "uniform"]))
def test_times_never_go_back(rate: Any, arrivals: Arrivals) -> None:
    times = first(100, Pace(rate, arrivals))
    assert all(a <= b for a, b in itertools.pairwise([0.0, *times]))


@pytest.mark.parametrize("rate", [0, -1, math.nan, [], [(1, 5), (1, 0)], [(0, 5)], [(1, -5)]])
def test_a_rate_that_cannot_be_is_refused(rate: Any) -> None:
    with pytest.raises(InputError, match=r"rate must be above zero.*got"):
        sources.paced(str, rate=rate)


def test_unknown_arrivals_are_refused() -> None:
    arrivals: Any = "bursty"
    with pytest.raises(
        InputError, match="arrivals must be 'constant', 'poisson' or 'uniform'; got 'bursty'"
    ):
        sources.paced(str, rate=1, arrivals=arrivals)


# what


def both(source: Source, split: int) -> tuple[list[Any], list[Any]]:
    """All at once, and the first `split` followed by a new reading from where they ended."""
    whole = list(source.read(None))
    head = list(itertools.islice(source.read(None), split))
    position = head[-1][1] if head else None
    return whole, [*head, *source.read(position)]


TEXT = "one\ntwo\r\n\nzwölf ☃\n\u2028 tail\nlast without an end"
LINES = ["one", "two", "", "zwölf ☃", "\u2028 tail", "last without an end"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_bytes(TEXT.encode())
    return path


@pytest.mark.parametrize("split", range(6))
def test_an_iterable_goes_on_where_it_was(split: int) -> None:
    whole, parts = both(sources.iterable(lambda: iter("abcde")), split)
    assert [value for value, _ in whole] == list("abcde")
    assert parts == whole


@pytest.mark.parametrize("split", range(5))
def test_a_paced_source_goes_on_where_it_was(split: int) -> None:
    whole, parts = both(sources.paced(lambda n: n * n, rate=5, count=4), split)
    assert [value for value, _ in whole] == [0, 1, 4, 9]
    assert parts == whole


def test_a_paced_source_without_a_count_goes_on_for_ever() -> None:
    source = sources.paced(str, rate=5)
    assert [v for v, _ in itertools.islice(source.read(70_000), 2)] == ["70000", "70001"]


@pytest.mark.parametrize("split", range(7))
def test_lines_go_on_where_they_were(text: Path, split: int) -> None:
    whole, parts = both(sources.lines(text), split)
    assert [value for value, _ in whole] == LINES
    assert parts == whole


def test_a_file_that_has_grown_is_read_on(text: Path) -> None:
    text.write_text("a\nb\n")
    source = sources.lines(text)
    position = list(source.read(None))[-1][1]
    with text.open("a") as file:
        file.write("c\n")
    assert [value for value, _ in source.read(position)] == ["c"]


@pytest.mark.parametrize("split", range(5))
def test_jsonl_goes_on_where_it_was(tmp_path: Path, split: int) -> None:
    values = [{"a": [1, "ö"]}, 2.5, None, "x\ny"]
    path = tmp_path / "values.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    whole, parts = both(sources.jsonl(path), split)
    assert [value for value, _ in whole] == values
    assert parts == whole


def test_a_line_that_is_not_json_is_shown_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    path.write_text('{"a": 1}\n{"a": \n')
    reading = sources.jsonl(path).read(None)
    assert next(reading)[0] == {"a": 1}
    with pytest.raises(
        InputError, match=r"values\.jsonl: the line that ends at byte 16 .*'\{\"a\": '"
    ):
        next(reading)


@pytest.mark.parametrize("make", [sources.lines, sources.jsonl])
def test_a_file_that_is_not_there_is_refused(tmp_path: Path, make: Callable[..., Source]) -> None:
    with pytest.raises(InputError, match="nowhere: no such file"):
        make(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no such file"):
        make(tmp_path)
    with pytest.raises(InputError, match="the file of a source: must be a path"):
        make(3)


def test_a_relative_path_is_kept_whole(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(text.parent)
    source = sources.lines(text.name)
    monkeypatch.chdir("/")
    assert len(list(source.read(None))) == 6


def test_an_iterable_must_be_given_as_a_function() -> None:
    values: Any = [1, 2]
    with pytest.raises(InputError, match=r"as in lambda: \[1, 2\]; a restart calls it again"):
        sources.iterable(values)


@pytest.mark.parametrize("shed_after", [0, -1.0, math.nan])
def test_shedding_needs_a_time_above_zero(text: Path, shed_after: float) -> None:
    makers: list[Callable[[], Source]] = [
        lambda: sources.iterable(list, shed_after=shed_after),
        lambda: sources.paced(str, rate=1, shed_after=shed_after),
        lambda: sources.lines(text, shed_after=shed_after),
        lambda: sources.jsonl(text, shed_after=shed_after),
        lambda: sources.socket("localhost", 1, shed_after=shed_after),
    ]
    for make in makers:
        with pytest.raises(InputError, match="shed_after must be above zero seconds; got"):
            make()


def test_a_source_keeps_its_pace_and_its_bound(text: Path) -> None:
    for source in (
        sources.iterable(list, rate=5, arrivals="uniform", seed=2, shed_after=1.5),
        sources.lines(text, rate=5, arrivals="uniform", seed=2, shed_after=1.5),
        sources.jsonl(text, rate=5, arrivals="uniform", seed=2, shed_after=1.5),
        sources.paced(str, rate=5, arrivals="uniform", seed=2, shed_after=1.5),
    ):
        assert source.pace == Pace(5, "uniform", 2)
        assert source.shed_after == 1.5
    assert sources.iterable(list).pace is None
    default = sources.paced(str, rate=5).pace
    assert default is not None
    assert default.arrivals == "poisson"


def test_a_source_without_read_says_so() -> None:
    class Mine(Source):
        pass

    with pytest.raises(TypeError, match=r"Mine must define read\(self, position\)"):
        Mine().read(None)


def test_a_socket_yields_lines_until_the_server_closes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                for part in (b"one\ntw", b"o\r\nzw\xc3", b"\xb6lf\nlast"):
                    connection.sendall(part)

        thread = threading.Thread(target=serve)
        thread.start()
        source = sources.socket("127.0.0.1", server.getsockname()[1])
        pairs = list(source.read(None))
        thread.join()
    assert pairs == [("one", None), ("two", None), ("zwölf", None), ("last", None)]
    assert source.pace is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b", "a"):
        (tmp_path / f"{name}.txt").write_text(f"{name}1\n{name}2\n", encoding="utf-8")
    return tmp_path


def pieces(source: Source, **positions: Any) -> list[Any]:
    """What a reader yields until it has nothing for now."""
    found: list[Any] = []
    for piece in source.read_splits(positions):
        if piece is None:
            break
        found.append(piece)
    return found


def test_each_file_is_a_split(folder: Path) -> None:
    source = sources.files(folder / "*.txt")
    one, other = str(folder / "a.txt"), str(folder / "b.txt")
    (folder / "sub.txt").mkdir()
    assert sorted(source.splits() or ()) == [one, other]
    assert pieces(source, **{other: None, one: 3}) == [
        ("a2", one, 6),
        ("b1", other, 3),
        ("b2", other, 6),
    ]
    assert pieces(source, **{one: 6, str(folder / "gone"): 4}) == []


def test_splits_can_be_read_together(folder: Path) -> None:
    source = sources.files(folder / "*.txt")
    found = list(source.read(None))
    assert [value for value, _ in found] == ["a1", "a2", "b1", "b2"]
    assert [value for value, _ in source.read(found[1][1])] == ["b1", "b2"]


def test_files_that_are_followed_are_read_on_as_whole_lines_come(folder: Path) -> None:
    source = sources.files(folder / "*.txt", follow=True)
    path = folder / "a.txt"
    reader = source.read_splits({str(path): 3})
    assert next(reader) == ("a2", str(path), 6)
    with path.open("a", encoding="utf-8") as file:
        file.write("a3\na4")
        file.flush()
        found = [piece for piece in itertools.islice(reader, 3) if piece is not None]
        assert found == [("a3", str(path), 9)]
        file.write(" and more\n")
    rest = next(piece for piece in reader if piece is not None)
    assert rest == ("a4 and more", str(path), 21)


def test_there_must_be_a_file_unless_they_are_followed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\*: there is no such file; with follow=True, files"):
        sources.files(tmp_path / "x*").splits()
    assert not sources.files(tmp_path / "x*", follow=True).splits()


def test_a_line_that_cannot_be_parsed_is_told_and_the_next_one_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\nno\n2\n', encoding="utf-8")
    source = sources.files(path, parse=json.loads)
    good, bad, last = pieces(source, **{str(path): None})
    assert [good[0], last[0]] == [{"a": 1}, 2]
    assert bad[0].shown == f"{path}: the line that ends at byte 12: 'no'"
    assert bad[0].error.startswith("JSONDecodeError: Expecting value")
    with pytest.raises(InputError, match="the line that ends at byte 12: 'no' cannot be read"):
        list(source.read(None))
    lacks = sources.files(path, parse=lambda line: json.loads(line)["b"] if line != "2" else 2)
    good, bad, last = pieces(lacks, **{str(path): None})
    assert (good[0].error, last[0]) == ("KeyError: 'b'", 2)
