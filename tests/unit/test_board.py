"""What the dashboard remembers, and where it draws vertices."""

import itertools
import re
from collections import Counter
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed
from shown import EDGES, KINDS, added, board, tick

from sojourn.dashboard import report, shown
from sojourn.dashboard.board import BUCKETS_S, DECISIONS, MARKS
from sojourn.dashboard.history import History, Row, row_of
from sojourn.dashboard.layout import HIGH, WIDE, laid_out, levels
from sojourn.dashboard.metrics import exposed
from sojourn.dashboard.tick import Edge


def rows(count: int, history: History) -> list[Row]:
    for number in range(1, count + 1):
        row = row_of(tick(number, mean_s=0.001 * (number % 7)), ["check", "price"])
        history.add(replace(row, p99_s=9.0) if number == 5 else row)
    return history.rows()


def test_the_last_ticks_are_kept_one_by_one() -> None:
    found = rows(50, History(recent=20, older=100))
    assert [row.time_s for row in found] == [float(n) for n in range(1, 51)]
    assert {row.ticks for row in found} == {1}


@pytest.mark.parametrize("count", [1_000, 10_007])
def test_any_number_of_ticks_takes_bounded_memory(count: int) -> None:
    history = History(recent=20, older=30)
    found = rows(count, history)
    assert len(found) <= 20 + 30 + 1
    assert sum(row.ticks for row in found) == count
    assert found[-1].time_s == count
    times = [row.time_s for row in found]
    assert times == sorted(times)


def test_a_peak_outlasts_thinning_and_means_stay_means() -> None:
    found = rows(10_000, History(recent=20, older=30))
    assert max(row.p99_s or 0.0 for row in found) == 9.0
    trees = sum(row.trees for row in found)
    mean_s = sum((row.mean_s or 0.0) * row.trees for row in found) / trees
    assert mean_s == pytest.approx(0.003, rel=0.01)


def test_an_interval_without_sojourns_is_a_gap() -> None:
    one = row_of(tick(1, sojourn=None), ["check"])
    assert one.mean_s is None
    assert one.processors == (3,)


def test_changes_commits_restarts_and_targets_are_marked() -> None:
    b = board()
    b.add(tick(4))
    b.add(tick(5, decision=added()))
    b.add(tick(6, restarts=1))
    b.add(tick(7, restarts=1, target_s=0.3))
    kinds = [(mark.kind, mark.number) for mark in b.marks]
    assert kinds == [("change", 5), ("commit", 5), ("restart", 6), ("target", 7)]
    assert b.totals.changes == 1


def test_only_failures_are_restarts() -> None:
    b = board()
    b.add(tick(1))
    b.add(tick(2, relocations=1))  # on another machine
    b.add(tick(3, restarts=1, relocations=1))
    b.add(tick(6, restarts=1, relocations=2, commits=0))
    marks = [(mark.kind, mark.number) for mark in b.marks]
    assert marks == [("relocation", 2), ("restart", 3), ("relocation", 6)]
    status = shown.status(b)
    assert (status["restarts"], status["relocations"]) == (1, 2)
    text = exposed(b, "")[0].decode()
    assert 'sojourn_restarts_total{topology="orders"} 1.0' in text
    assert 'sojourn_relocations_total{topology="orders"} 2.0' in text
    assert "restarts: 1; relocations: 2;" in " ".join(report.summary(b))


def test_commits_do_not_push_other_marks_out() -> None:
    b = board()
    b.add(tick(0))
    b.add(tick(1, decision=added(), restarts=1))
    for number in range(2, 2 * MARKS):
        b.add(tick(number, restarts=1, commits=number))
    kinds = Counter(mark.kind for mark in b.marks)
    assert kinds == {"change": 1, "restart": 1, "commit": MARKS}
    numbers = [mark.number for mark in b.marks]
    assert numbers == sorted(numbers)


def test_what_changes_nothing_is_listed_once() -> None:
    b = board()
    for number in range(1, 9):
        b.add(tick(number, decision=added()) if number == 5 else tick(number))
    listed = [(one.tick.number, one.times, one.since_s) for one in b.decisions]
    assert listed == [(4, 4, 1.0), (5, 1, 5.0), (8, 3, 6.0)]


def test_the_same_advice_is_listed_once() -> None:
    made = board()
    advice = replace(added(), applied=False)
    more = replace(advice, allocation={"check": 5, "price": 2}, reason="more came")
    for number, decision in enumerate([advice, advice, more, more, more, added(5), added(6)]):
        made.add(tick(number, decision=decision))
    assert [entry.times for entry in made.decisions] == [2, 3, 1, 1]


def test_time_goes_on_where_a_clock_is_set_back() -> None:
    made = board(began_s=1000.0)
    for number, time_s in enumerate((1.0, 2.0, -298.0, -297.0, -296.0)):
        made.add(tick(number, time_s=time_s))
    assert [row.time_s for row in made.history.rows()] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert made.last is not None
    assert made.about.began_s is not None
    assert made.about.began_s + made.last.time_s == 1000.0 - 296.0  # what the clock shows now


def test_decisions_and_marks_are_bounded() -> None:
    b = board()
    for number in range(1, 2 * DECISIONS):
        b.add(tick(number, decision=added(number)))
    assert len(b.decisions) == DECISIONS
    assert b.decisions[-1].tick.number == 2 * DECISIONS - 1


def test_an_urgent_tick_ends_no_interval() -> None:
    b = board()
    b.add(tick(1))
    b.add(tick(2, urgent=True, sojourn=None, decision=added()))
    assert b.totals.intervals == 1
    assert b.tick is not None
    assert b.tick.number == 1
    assert len(b.history.rows()) == 1
    assert b.marks[0].kind == "change"


def test_buckets_count_trees_by_their_sojourn() -> None:
    b = board()
    b.add(tick(1, mean_s=0.08))
    by_bound = dict(zip(BUCKETS_S, b.totals.buckets, strict=True))
    assert by_bound[0.05] == 0
    assert by_bound[0.1] == 99  # of 100: the last one took longer
    assert by_bound[0.5] == 100
    counts = b.totals.buckets
    assert counts == sorted(counts)


def test_what_is_scraped_counts_whole_trees() -> None:
    b = board()
    b.add(tick(1, mean_s=0.08))
    b.totals.buckets = [0.4 + 0.7 * place for place in range(len(BUCKETS_S))]
    text = exposed(b, "application/openmetrics-text; version=1.0.0")[0].decode()
    families = parsed(text)  # type: ignore[no-untyped-call]
    (family,) = (found for found in families if found.type == "histogram")
    counts = [one.value for one in family.samples if one.name.endswith("_bucket")]
    assert len(counts) == len(BUCKETS_S) + 1
    assert counts == sorted(counts)
    assert all(count.is_integer() for count in counts)


def test_news_are_what_has_come_since() -> None:
    b = board()
    for number in range(1, 11):
        b.add(tick(number))
    seen = shown.told(b, None).seen
    b.add(tick(11, decision=added()))
    b.add(tick(12, urgent=True))
    b.add(tick(13))
    news = shown.told(b, seen)
    assert news.kind == "news"
    assert news.data["history"]["time"] == [11.0, 13.0]
    assert [mark["kind"] for mark in news.data["marks"]] == ["change"]
    assert [one["number"] for one in news.data["decisions"]] == [13, 11]
    b.begin(1e9)
    anew = shown.told(b, news.seen)
    assert anew.kind == "begin", "times were elapsed ones before"
    for number in range(14, 14 + shown.MOST_NEWS + 1):
        b.add(tick(number))
    assert shown.told(b, anew.seen).kind == "begin", "whoever is far behind begins anew"


def test_the_last_news_tell_the_end() -> None:
    b = board()
    b.add(tick(1))
    seen = shown.told(b, None)
    assert not seen.last
    b.end("'check' divided by zero")
    b.end()
    b.close()
    last = shown.told(b, seen.seen)
    assert last.last
    assert last.data["status"]["finished"] is True
    assert last.data["status"]["problem"] == "'check' divided by zero", "what is told first counts"


def overlaps(kinds: dict[str, str], edges: tuple[Edge, ...]) -> list[tuple[str, str]]:
    places = laid_out(kinds, edges).places
    return [
        (a, b)
        for (a, (ax, ay)), (b, (bx, by)) in itertools.combinations(places.items(), 2)
        if abs(ax - bx) < WIDE and abs(ay - by) < HIGH
    ]


SPLIT = {
    **{"web": "source", "shops": "source", "parse": "operator", "enrich": "operator"},
    **{"score": "operator", "match": "operator", "alert": "operator", "store": "sink"},
}
SPLIT_EDGES = (
    *(Edge("web", "parse", "parse"), Edge("shops", "parse", "parse")),
    *(Edge("parse", "enrich", "enrich"), Edge("parse", "score", "score[risky]")),
    *(Edge("enrich", "match", "match"), Edge("score", "match", "match")),
    *(Edge("match", "store", "store"), Edge("match", "alert", "alert")),
    *(Edge("parse", "store", "store"), Edge("alert", "store", "store")),
    Edge("match", "enrich", "enrich[again]", feedback=True),
)


@pytest.mark.parametrize(("kinds", "edges"), [(KINDS, EDGES), (SPLIT, SPLIT_EDGES)])
def test_vertices_stand_from_left_to_right_and_apart(
    kinds: dict[str, str], edges: tuple[Edge, ...]
) -> None:
    layout = laid_out(kinds, edges)
    assert layout.places.keys() == kinds.keys()
    assert len(layout.edges) == len(edges)
    for edge in edges:
        forward = layout.places[edge.sender][0] < layout.places[edge.receiver][0]
        assert forward != edge.feedback
    assert not overlaps(kinds, edges)
    for x, y in layout.places.values():
        assert 0 <= x <= layout.width - WIDE
        assert 0 <= y <= layout.height - HIGH


def test_an_edge_past_a_column_goes_around_its_vertices() -> None:
    layout = laid_out(SPLIT, SPLIT_EDGES)
    (long,) = [
        one for one in layout.edges if (one.edge.sender, one.edge.receiver) == ("parse", "store")
    ]
    stops = [(float(x), float(y)) for x, y in re.findall(r"L(\d+) (\d+)", long.path)]
    assert stops, "it has places of its own"
    for x, y in stops:
        for name, (left, top) in layout.places.items():
            inside = left < x - 1 < left + WIDE and top < y < top + HIGH
            assert not inside, name


def test_a_loop_that_nobody_declared_is_drawn_as_well() -> None:
    edges = (Edge("in", "check", "check"), Edge("check", "price", "p"), Edge("price", "check", "c"))
    assert levels(list(KINDS), edges)["check"] == 1
    assert len(laid_out(KINDS, edges).edges) == 3


def test_a_board_without_a_tick_can_be_shown() -> None:
    found = shown.everything(board())
    assert found["latest"] is None
    assert found["history"]["time"] == []
    assert found["decisions"] == []
