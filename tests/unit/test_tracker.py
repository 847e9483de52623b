"""Trees complete exactly when all their tuples are processed; reports merge into samples."""

import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.engine.driver.merge import Change, merge
from sojourn.engine.driver.tracker import Tracker
from sojourn.engine.wire import messages as m
from sojourn.ports import Sample

START_S = 1000.0


def tree(draw: random.Random, root: int, size: int) -> list[m.Root | m.Ack]:
    """Messages of a random tree of `size` tuples, one at a random time for each."""
    ids = [draw.getrandbits(63) for _ in range(size)]
    parents = [draw.randrange(-1, i) for i in range(size)]  # -1: emitted by the source

    def children(of: int) -> int:
        value = 0
        for i, parent in enumerate(parents):
            if parent == of:
                value ^= ids[i]
        return value

    acks = [m.Ack(root, ids[i] ^ children(i), START_S + draw.random()) for i in range(size)]
    return [m.Root(root, children(-1), START_S - root), *acks]


def traces(*messages: m.Root | m.Ack) -> m.Traces:
    return m.Traces(
        [x for x in messages if isinstance(x, m.Root)],
        [x for x in messages if isinstance(x, m.Ack)],
    )


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(0, 2**32), st.data())
def test_a_tree_is_complete_exactly_when_all_of_it_is_processed(
    sizes: list[int], seed: int, data: st.DataObject
) -> None:
    draw = random.Random(seed)
    trees = {root: tree(draw, root, size) for root, size in enumerate(sizes, 1)}
    messages = data.draw(st.permutations([x for found in trees.values() for x in found]))
    missing = {root: len(found) for root, found in trees.items()}
    tracker = Tracker()
    while messages:
        some = messages[: data.draw(st.integers(1, 3))]
        messages = messages[len(some) :]
        tracker.note(traces(*some))
        begun = {root for root, n in missing.items() if n < len(trees[root])}
        for message in some:
            missing[message.root] -= 1
            begun.add(message.root)
        done = {root for root, n in missing.items() if n == 0}
        assert len(tracker.completed) == len(done)
        assert set(tracker.trees) == begun - done
    last = {r: max(x.at_s for x in t if isinstance(x, m.Ack)) for r, t in trees.items()}
    expected = sorted(last[root] - (START_S - root) for root in trees)
    assert sorted(tracker.completed) == pytest.approx(expected)


def test_a_root_that_led_nowhere_is_no_sojourn() -> None:
    tracker = Tracker()
    tracker.note(traces(m.Root(1, 0, START_S)))
    assert not tracker.trees
    assert tracker.collect() is None


def test_a_clock_that_runs_behind_makes_no_negative_sojourn() -> None:
    tracker = Tracker()
    tracker.note(traces(m.Root(1, 5, START_S), m.Ack(1, 5, START_S - 0.5)))
    assert tracker.completed == [0.0]


def test_acknowledgements_of_an_unknown_tree_wait_for_it() -> None:
    tracker = Tracker()
    tracker.note(traces(m.Ack(1, 5, START_S + 2)))
    assert tracker.collect() is None
    tracker.note(traces(m.Root(1, 5, START_S)))
    assert tracker.completed == [2.0]


def test_sojourns_are_collected_once() -> None:
    tracker = Tracker()
    order = list(range(1, 101))
    random.Random(1).shuffle(order)
    for i in order:
        tracker.note(traces(m.Root(i, 5, START_S), m.Ack(i, 5, START_S + i)))
    sojourn = tracker.collect()
    assert sojourn is not None
    assert (sojourn.count, sojourn.mean_s) == (100, 50.5)
    assert (sojourn.p50_s, sojourn.p95_s, sojourn.p99_s, sojourn.max_s) == (50, 95, 99, 100)
    assert tracker.collect() is None


def test_one_sojourn_is_all_its_quantiles() -> None:
    tracker = Tracker()
    tracker.note(traces(m.Root(1, 5, START_S), m.Ack(1, 5, START_S + 2)))
    sojourn = tracker.collect()
    assert sojourn is not None
    assert (sojourn.count, sojourn.mean_s, sojourn.max_s) == (1, 2.0, 2.0)
    assert {sojourn.p50_s, sojourn.p95_s, sojourn.p99_s, *sojourn.quantiles} == {2.0}
    assert {sojourn.percentile(p) for p in (1, 50, 99, 99.9, 99.99)} == {2.0}


def test_any_percentile_can_be_had() -> None:
    tracker = Tracker()
    for i in range(1, 1001):
        tracker.note(traces(m.Root(i, 5, START_S), m.Ack(i, 5, START_S + i)))
    sojourn = tracker.collect()
    assert sojourn is not None
    assert [sojourn.percentile(p) for p in (1, 50, 90, 99, 99.5, 99.9)] == pytest.approx(
        [10, 500, 900, 990, 995, 999]
    )
    assert sojourn.percentile(99.99) == 1000


def test_open_trees_are_forgotten_by_a_restart_and_completed_ones_kept() -> None:
    tracker = Tracker()
    tracker.note(traces(m.Root(1, 5, START_S), m.Ack(1, 5, START_S + 2), m.Root(2, 5, START_S)))
    tracker.clear()
    assert not tracker.trees
    assert tracker.completed == [2.0]


def test_many_sojourns_are_kept_as_a_sample_with_exact_number_mean_and_maximum() -> None:
    tracker = Tracker(random.Random(1), max_completed=1000)
    for i in range(1, 20_001):
        tracker.note(traces(m.Root(i, 5, START_S), m.Ack(i, 5, START_S + i)))
    assert len(tracker.completed) == 1000
    sojourn = tracker.collect()
    assert sojourn is not None
    assert (sojourn.count, sojourn.mean_s, sojourn.max_s) == (20_000, 10_000.5, 20_000)
    assert sojourn.p50_s == pytest.approx(10_000, rel=0.1)  # early and late ones alike
    assert sojourn.p95_s == pytest.approx(19_000, rel=0.02)
    tracker.note(traces(m.Root(1, 5, START_S), m.Ack(1, 5, START_S + 2)))
    sojourn = tracker.collect()
    assert sojourn is not None
    assert (sojourn.count, sojourn.mean_s, sojourn.max_s) == (1, 2.0, 2.0)


def test_sojourns_can_be_taken_singly() -> None:
    tracker = Tracker()
    for i in range(1, 4):
        tracker.note(traces(m.Root(i, 5, START_S), m.Ack(i, 5, START_S + i)))
    assert tracker.take() == [1.0, 2.0, 3.0]
    assert tracker.take() == []
    assert tracker.collect() is None


def test_trees_whose_acknowledgements_are_lost_are_forgotten_the_oldest_first() -> None:
    tracker = Tracker(max_open=10)
    for i in range(1, 31):
        tracker.note(traces(m.Root(i, 5, START_S)))
    assert list(tracker.trees) == list(range(21, 31))
    assert tracker.forgotten == 20
    tracker.note(traces(m.Ack(30, 5, START_S + 2), m.Ack(21, 5, START_S + 3)))
    assert tracker.take() == [2.0, 3.0]


def test_what_comes_of_a_forgotten_tree_opens_it_no_longer_than_others() -> None:
    tracker = Tracker(max_open=3)
    for i in range(1, 5):
        tracker.note(traces(m.Root(i, 5, START_S)))
    tracker.note(traces(m.Ack(1, 5, START_S + 2)))  # forgotten, so this is half a tree
    assert list(tracker.trees) == [3, 4, 1]
    for i in range(5, 8):
        tracker.note(traces(m.Root(i, 5, START_S)))
    assert list(tracker.trees) == [5, 6, 7]
    assert not tracker.completed


def test_only_what_stays_open_counts_against_the_bound() -> None:
    tracker = Tracker(max_open=1)
    tracker.note(traces(m.Root(1, 5, START_S)))
    for i in range(2, 10):
        tracker.note(traces(m.Root(i, 0, START_S)))  # complete at once
    assert list(tracker.trees) == [1]
    assert tracker.forgotten == 0


# samples


def report(vertex: str = "v", executor: int = 0, **values: Any) -> m.Report:
    """A report of an executor that did nothing for the two seconds since it started."""
    fields: dict[str, Any] = {
        "processors": 1,
        "wanted": 1,
        "started_s": 100.0,
        "at_s": 102.0,
        "emitted": {},
        "stages": {},
        "together": {},
        "away": {},
        "machine": "",
        "lag_s": None,
        "idle": True,
        "exhausted": True,
        "backlog": None,
    }
    fields |= {"vertex": vertex, "executor": executor, **values}
    for name in m.Report.__struct_fields__:
        fields.setdefault(name, 0)
    return m.Report(**fields)


def merged(*reports: m.Report) -> dict[str, Sample]:
    return merge([Change(report, None) for report in reports])


def test_executors_say_on_which_machines_their_processors_are() -> None:
    at_home = report(machine="a:/tmp/1", processors=2)
    (sample,) = merged(at_home).values()
    assert sample.parts == (), "the operator's sample says as much"
    lent = report(machine="a:/tmp/1", processors=5, away={"b:/tmp/2": 2})
    moved = report(executor=1, machine="a:/tmp/1", processors=1, away={"c:/tmp/3": 1})
    (sample,) = merged(lent).values()
    assert [part.machines for part in sample.parts] == [{"a:/tmp/1": 3, "b:/tmp/2": 2}]
    (sample,) = merged(lent, moved).values()
    assert sample.parts[1].machines == {"c:/tmp/3": 1}


def of_service(times: list[float]) -> dict[str, Any]:
    return {
        "served": len(times),
        "timed": len(times),
        "service_s": sum(times),
        "service_s2": sum(t * t for t in times),
    }


def test_rates_and_counts_add_up() -> None:
    sample = merged(
        report(arrivals=10, queue=1, wanted=2, dropped=1, shed=3, emitted={"a": 5, "b": 1}),
        report(arrivals=6, at_s=104.0, queue=2, processors=3, dropped=1, emitted={"a": 2}),
    )["v"]
    assert sample.arrival_rate == pytest.approx(10 / 2 + 6 / 4)
    assert (sample.arrivals, sample.queue, sample.processors, sample.wanted) == (16, 3, 4, 3)
    assert (sample.dropped, sample.shed, sample.interval_s) == (2, 3, 4.0)
    assert sample.emitted == {"a": 7, "b": 1}


def test_a_shard_that_was_not_told_of_before_is_not_the_hottest() -> None:
    """It may have had all its tuples long ago, if only the busiest are told of."""
    before = dict.fromkeys(range(m.BUSIEST), 1000)
    now = {**before, m.BUSIEST: 999}
    del now[0]
    now[1] += 3
    change = Change(report(shards=now, arrivals=1003), report(shards=before, arrivals=1000))
    assert change.shards == {1: 3}
    del before[5]
    change = Change(report(shards=now), report(shards=before))
    assert change.shards[5] == 1000, "all were told of, so it is new"


@given(st.lists(st.lists(st.floats(0.001, 10), max_size=20), min_size=1, max_size=4))
def test_service_times_are_pooled(times: list[list[float]]) -> None:
    sample = merged(*(report(executor=i, **of_service(t)) for i, t in enumerate(times)))["v"]
    together = [t for some in times for t in some]
    assert sample.served == len(together)
    if not together:
        assert sample.service_s is None
        assert sample.service_rate is None
        return
    mean = statistics.fmean(together)
    assert sample.service_s == pytest.approx(mean)
    assert sample.service_rate == pytest.approx(1 / mean)
    if len(together) < 2:
        assert sample.service_scv is None
    else:
        expected = statistics.pvariance(together) / mean**2
        assert sample.service_scv == pytest.approx(expected, abs=1e-6)


def test_gaps_are_pooled() -> None:
    sample = merged(
        report(arrivals=2, gaps=2, gap_s=2.0, gap_s2=2.0),
        report(arrivals=2, gaps=2, gap_s=6.0, gap_s2=18.0),
    )["v"]
    assert sample.arrival_scv == pytest.approx(1 / 4)  # gaps of 1, 1, 3 and 3 seconds


def test_a_single_gap_has_no_variance() -> None:
    assert merged(report(gaps=1, gap_s=2.0, gap_s2=4.0))["v"].arrival_scv is None
    assert merged(report(gaps=2, gap_s=4.0, gap_s2=8.0))["v"].arrival_scv == 0.0


def test_busy_is_the_share_of_the_processors_time() -> None:
    reports = [report(executor=i, processor_s=4.0, **of_service([1.0, 2.0])) for i in range(2)]
    assert merged(*reports)["v"].busy == pytest.approx(3 / 4)
    assert merged(report())["v"].busy == 0.0


def test_only_what_came_since_the_last_report_counts() -> None:
    before = report(arrivals=10, emitted={"a": 3}, processor_s=2.0, **of_service([1.0] * 4))
    now = report(
        at_s=107.0, arrivals=30, emitted={"a": 5}, processor_s=7.0, **of_service([1.0] * 4 + [0.5])
    )
    sample = merge([Change(now, before)])["v"]
    assert (sample.arrivals, sample.served, sample.interval_s) == (20, 1, 5.0)
    assert (sample.arrival_rate, sample.service_s, sample.busy) == (4.0, 0.5, 0.1)
    assert sample.emitted == {"a": 2}


def test_a_source_that_falls_behind_has_its_intended_rate() -> None:
    before = report(arrivals=100, lag_s=1.0)
    behind = report(at_s=112.0, arrivals=200, lag_s=6.0)  # 100 tuples in 5 s of its schedule
    sample = merge([Change(behind, before)])["v"]
    assert (sample.arrival_rate, sample.lag_s) == (20.0, 6.0)
    catching_up = report(at_s=112.0, arrivals=300, lag_s=0.0)  # 200 in 11 s
    assert merge([Change(catching_up, before)])["v"].arrival_rate == pytest.approx(200 / 11)
    stuck = report(at_s=112.0, arrivals=100, lag_s=11.0)
    assert merge([Change(stuck, before)])["v"].arrival_rate is None


def test_tuples_that_come_to_wait_in_splits_count_as_coming() -> None:
    """Wherever a split is read; one that is new was not counted before."""
    before = report(arrivals=100, backlog={"a": 10}), report("v", 1, backlog={"b": 5, "c": 7})
    now = (
        report(at_s=112.0, arrivals=140, backlog={"a": 90, "b": 25}),
        report("v", 1, at_s=112.0, backlog={"d": 1000}),
    )
    sample = merge([Change(*pair) for pair in zip(now, before, strict=True)])["v"]
    assert sample.backlog == {"a": 90, "b": 25, "d": 1000}
    assert sample.arrival_rate == pytest.approx((40 + 80 + 20) / 10)
    assert merged(report(arrivals=4, backlog={"a": 90}))["v"].arrival_rate == 2.0
    assert merged(report(arrivals=4))["v"].backlog is None


def test_every_vertex_has_its_own_sample() -> None:
    samples = merged(report("a", arrivals=1), report("b", arrivals=2), report("a", 1, arrivals=4))
    assert {name: (s.name, s.arrivals) for name, s in samples.items()} == {
        "a": ("a", 5),
        "b": ("b", 2),
    }
    assert merge([]) == {}


def test_shards_count_since_the_last_samples_whoever_else_polls() -> None:
    before, now = report(shards={1: 5, 2: 7}), report(shards={1: 5, 2: 17, 3: 4})
    assert merge([Change(now, before)])["v"].shards == {2: 10, 3: 4}
    others = Change(report(executor=1, shards={9: 1}), None)
    assert merge([Change(now, before), others])["v"].shards == {2: 10, 3: 4, 9: 1}
    assert merge([Change(report(shards=None), None)])["v"].shards is None


def test_what_is_shed_is_told_by_machine() -> None:
    before = report(executor=1, machine="b", shed=4)
    now = [report(machine="a", shed=3), report(executor=1, machine="b", shed=9)]
    now.append(report(executor=2, machine="c"))
    changes = [Change(now[0], None), Change(now[1], before), Change(now[2], None)]
    sample = merge(changes)["v"]
    assert sample.shed == 8
    assert sample.shed_by == {"a": 3, "b": 5}


def test_a_tree_whose_tuple_is_shed_is_over_and_has_no_sojourn() -> None:
    tracker = Tracker()
    tracker.note(traces(m.Root(1, 77, START_S), m.Ack(1, 77, m.SHED_S)))
    assert not tracker.trees
    assert tracker.collect() is None
    # what else came of it counts
    tracker.note(traces(m.Root(2, 5 ^ 6, START_S), m.Ack(2, 5, START_S + 2), m.Ack(2, 6, m.SHED_S)))
    assert tracker.take() == [2.0]
