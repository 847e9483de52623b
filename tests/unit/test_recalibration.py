"""When a profile holds no more, and why."""

from dataclasses import replace

from sojourn.ports import Sample, Samples, Sojourn
from sojourn.profiler.recalibration import Known, Reason, Recalibration

KNOWN = Known(
    limit_s=0.5,
    throughput=100.0,
    service_s={"split": 0.010, "count": 0.001},
    gains={"split": {"count": 12.0}},
)


def interval(
    mean_s: float = 0.1,
    *,
    lag_s: float = 0.0,
    rate: float = 80.0,
    split_s: float = 0.010,
    count_s: float = 0.001,
    words: float = 12.0,
) -> Samples:
    served = round(rate * 10)
    split = Sample(
        name="split",
        interval_s=10.0,
        processors=1,
        wanted=1,
        queue=0,
        arrivals=served,
        served=served,
        arrival_rate=rate,
        arrival_scv=1.0,
        service_s=split_s,
        service_scv=1.0,
        busy=0.5,
        emitted={"count": round(words * served)},
    )
    count = replace(split, name="count", service_s=count_s, emitted={})
    tweets = replace(split, name="tweets", service_s=None, emitted={"split": served}, lag_s=lag_s)
    vertices = {"tweets": tweets, "split": split, "count": count}
    return Samples(0.0, vertices, Sojourn.of([mean_s]), 0)


def looked(*intervals: Samples) -> list[Reason | None]:
    watch = Recalibration(KNOWN, after_s=30.0, most_waiting=1000)
    return [watch.look(one) for one in intervals]


def only(reasons: list[Reason | None]) -> Reason:
    found = [reason for reason in reasons if reason is not None]
    assert len(found) == 1
    return found[0]


def test_a_profile_holds_while_all_is_well_or_bad_for_a_moment() -> None:
    good, bad = interval(), interval(0.9)
    assert looked(*[good] * 20) == [None] * 20
    assert looked(bad, bad, good, bad, bad, good) == [None] * 6


def test_it_waits_for_a_while_and_tells_once() -> None:
    bad = interval(0.9)
    reasons = looked(*[bad] * 20)
    assert [number for number, reason in enumerate(reasons) if reason] == [2]
    good = interval()
    again = looked(*[bad] * 5, *[good] * 3, *[bad] * 5)
    assert [number for number, reason in enumerate(again) if reason] == [2, 10]
    # Well for too short a time: still the same.
    once = looked(*[bad] * 5, good, *[bad] * 5)
    assert [number for number, reason in enumerate(once) if reason] == [2]


def test_other_data_is_told_apart() -> None:
    more = only(looked(*[interval(0.9, words=18.0)] * 4))
    assert more.cause == "data"
    assert "tuples take 900 ms, more than 500" in more.words
    assert "split passes on 18 for each tuple to count, 12 when profiled" in more.words
    longer = only(looked(*[interval(0.9, split_s=0.020)] * 4))
    assert longer.cause == "data"
    assert "split takes 2.00 times as long" in longer.words
    assert longer.is_profiled


def test_a_slower_platform_slows_all_operators() -> None:
    slower = only(looked(*[interval(0.9, split_s=0.015, count_s=0.0016)] * 4))
    assert slower.cause == "platform"
    assert "all operators take at least 1.50 times as long" in slower.words


def test_a_load_that_was_never_carried_takes_machines_not_profiling() -> None:
    late = only(looked(*[interval(0.2, lag_s=10.0, rate=150.0)] * 4))
    assert late.cause == "load"
    assert "1500 messages wait" in late.words
    assert "150 messages come a second, and 100 are carried" in late.words
    assert not late.is_profiled


def test_what_nothing_explains_is_said_so() -> None:
    assert only(looked(*[interval(0.9)] * 4)).cause == "unknown"


def test_another_number_of_processors_is_told_at_once() -> None:
    watch = Recalibration(KNOWN, after_s=30.0, most_waiting=1000)
    assert watch.look(interval(), 8) is None
    assert watch.look(interval(), 8) is None
    found = watch.look(interval(), 12)
    assert found is not None
    assert found.cause == "platform"
    assert "12 processors now, 8 before" in found.words
    assert watch.look(interval(), 12) is None
    assert watch.look(interval(), 16) is None  # the loop may ask for more every now and then


def test_more_load_is_told_before_what_follows_from_it() -> None:
    crowded = only(looked(*[interval(0.9, rate=150.0, split_s=0.020)] * 4))
    assert crowded.cause == "load"
