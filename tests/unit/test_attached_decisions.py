"""How many executors an attached query is to have."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from attaching import QUERY, WISH, behind, seen, told

from sojourn.attached.decide import Decision, Memory, Wish, decided, wished
from sojourn.attached.progress import batch, limit
from sojourn.attached.seen import Seen
from sojourn.errors import InputError
from sojourn.provisioning.mended import Options
from sojourn.provisioning.rates import Rates
from sojourn.queueing.batches import Batches, Stage


def test_the_model_finds_the_fewest_executors_for_a_latency() -> None:
    found = decided(seen(100), Memory(), WISH)
    assert found.executors == 1
    more = decided(seen(500), Memory(), WISH)
    assert more.executors is not None
    assert more.executors > 1
    steady = QUERY.steady(500, more.executors)
    assert steady is not None
    assert steady.worst_s <= 0.85 * 2.0
    fewer = QUERY.steady(500, more.executors - 1)
    assert (
        fewer is None
        or fewer.worst_s > 0.85 * 2.0
        or 0.9 * QUERY.capacity(more.executors - 1) < 500
    )
    backlog = decided(seen(500, waiting=20_000), Memory(), WISH)
    assert (backlog.executors or 0) > more.executors


def test_no_more_executors_than_tasks_or_than_allowed() -> None:
    found = decided(seen(1e5), Memory(), WISH)
    assert found.executors == 8
    assert "no number of executors carries" in found.why
    allowed = decided(seen(1e5), Memory(), replace(WISH, most=3))
    assert allowed.executors == 3
    assert "3 are allowed" in allowed.why
    rates = Rates(0, 9000, (1000,), waiting=1e6, growth=8000)
    by_rates = decided(
        Seen(0, 1, 1, 1, rates, batches=QUERY), Memory(), replace(WISH, policy="mended")
    )
    assert by_rates.executors == 8
    assert "would have no task" in by_rates.why


def test_fewer_executors_only_once_they_would_have_done_for_a_while() -> None:
    memory, found = Memory(), None
    for number in range(4):
        found = decided(seen(100, 4, 30.0 * number), memory, WISH)
        memory = found.memory
        if number < 2:
            assert found.executors is None
            assert "would do for" in found.why
        if found.executors is not None:
            break
    assert found is not None
    assert found.executors == 1


def test_what_is_looked_at_has_lasted_since_the_look_before() -> None:
    memory = decided(seen(2000, 4, 0.0), Memory(), WISH).memory
    found = decided(seen(100, 4, 30.0), memory, WISH)
    assert "1 would do for 30 s so far" in found.why
    assert decided(seen(100, 4, 60.0), found.memory, WISH).executors == 1


def test_who_stays_must_do_if_chance_has_shown_too_little() -> None:
    (edge,) = (
        rate
        for rate in range(100, 400)
        if decided(seen(rate), Memory(), WISH).executors == 1
        and decided(seen(rate + 1), Memory(), WISH).executors == 2
    )

    def after(executors: int, *chances: float) -> Decision:
        memory, found = Memory(), None
        for number, chance in enumerate(chances):
            one = seen(edge - 10, executors, 30.0 * number)
            assert one.rates is not None
            one = replace(one, rates=replace(one.rates, chance=chance))
            found = decided(one, memory, WISH)
            memory = found.memory
        assert found is not None
        return found

    assert f"with 1; it may be {edge + 10}, which needs 2" in after(2, 20).why
    assert after(2, 20, 20, 20).executors == 2  # none goes
    assert after(4, 20, 20, 20).executors == 2
    assert after(4, 5, 20, 5).executors == 2  # once in that time is enough
    assert after(2, 5, 5, 5).executors == 1
    assert after(1, 20).executors == 1  # it is no reason for more


def test_a_gap_or_a_clock_that_was_set_back_is_no_time_in_which_fewer_would_do() -> None:
    memory = decided(seen(2000, 4, 0.0), Memory(), WISH).memory
    found = decided(seen(100, 4, 300.0), memory, WISH)  # looks failed meanwhile
    assert "1 would do for 30 s so far" in found.why
    found = decided(seen(100, 4, -3600.0), found.memory, WISH)
    assert "1 would do for 0 s so far" in found.why
    assert decided(seen(100, 4, -3540.0), found.memory, WISH).executors == 1


def test_time_in_which_nothing_is_known_is_no_time_in_which_fewer_would_do() -> None:
    memory = decided(seen(100, 4, 0.0), Memory(), WISH).memory
    blind = Seen(300.0, 4, 1, 4, None, "no batch was done for 300 s")
    memory = decided(blind, memory, WISH).memory
    found = decided(seen(100, 4, 330.0), memory, WISH)
    assert found.executors is None
    assert "1 would do for 30 s so far" in found.why
    assert decided(seen(100, 4, 360.0), found.memory, WISH).executors == 1


def test_what_a_batch_at_work_needs_is_not_given_back() -> None:
    needed = decided(seen(400), Memory(), WISH).executors
    assert needed == 2
    memory = decided(seen(100, 4, 0.0), Memory(), WISH).memory
    memory = decided(seen(400, 4, 30.0, at_least=True), memory, WISH).memory
    memory = decided(seen(100, 4, 60.0), memory, WISH).memory
    assert decided(seen(100, 4, 90.0), memory, WISH).executors == needed
    more = decided(seen(2000, 4, 30.0, at_least=True), memory, WISH)
    assert more.memory.low_since_s is None


def test_a_number_that_the_user_bounds_is_told_with_what_it_misses() -> None:
    assert decided(seen(500), Memory(), replace(WISH, most=1)).why.endswith(
        "1 are allowed, which do not keep up"
    )
    late = decided(seen(100), Memory(), replace(WISH, most=1, max_latency_s=0.4)).why
    assert "1 are allowed, with which rows take" in late
    assert decided(seen(100), Memory(), replace(WISH, least=4)).why.endswith(
        "at least 4 are wished for"
    )


def test_what_comes_is_remembered_once_a_period() -> None:
    memory = Memory()
    for second in range(0, 200, 2):
        memory = decided(seen(100 + second, time_s=float(second)), memory, WISH).memory
    times = [at_s for at_s, _ in memory.known.inputs]
    assert len(times) == 5
    assert all(b - a >= WISH.options.period_s - 2 for a, b in itertools.pairwise(times[:-1]))


def test_bad_data_is_no_reason_to_act() -> None:
    blind = Seen(0, 2, 1, 2, None, "no batch was done for 30 s")
    found = decided(blind, Memory(), WISH)
    assert (found.executors, found.why) == (None, "no batch was done for 30 s")
    odd = replace(blind, rates=Rates(0, float("nan"), (1.0, 1.0)))
    assert decided(odd, Memory(), WISH).executors is None


def test_what_waits_until_executors_come_must_not_make_later_rows_late() -> None:
    wish = replace(WISH, max_latency_s=10.0)
    calm = decided(seen(500), Memory(), wish).executors
    waits = decided(seen(500, waiting=3_000), Memory(), wish).executors
    assert calm is not None
    assert waits is not None
    assert waits > calm
    slow = replace(seen(500, waiting=3_000), start_s=20.0)
    assert (decided(slow, Memory(), wish).executors or 0) > waits
    there = replace(seen(500, 8), start_s=20.0)  # nobody has to come
    assert decided(there, Memory(), replace(wish, quiet_s=0)).executors == calm


def test_a_batch_at_work_can_ask_for_more_executors_and_never_for_fewer() -> None:
    at_work = replace(
        seen(500, at_least=True), why="a batch is at work for 9 s, and 3 of its tasks wait"
    )
    found = decided(at_work, Memory(low_since_s=1.0, low_most=1), WISH)
    assert (found.executors or 0) > 1
    assert found.why.startswith(
        "a batch is at work for 9 s, and 3 of its tasks wait: at least 500 rows/s"
    )
    assert found.memory == Memory(time_s=0.0)  # a bound is no rate to remember
    assert decided(replace(at_work, asked=8), Memory(), WISH).executors is None
    few = decided(seen(1, 4, at_least=True), Memory(), replace(WISH, quiet_s=0))
    assert few.executors is None
    for policy in ("mended", "printed"):
        assert decided(at_work, Memory(), replace(WISH, policy=policy)).executors is None


def test_in_real_time_mode_slots_that_are_held_are_kept() -> None:
    rates = Rates(0, 100, (50, 50), idle=0.9)
    now = Seen(0, 2, 2, 2, rates, until_s=200.0, held=4)
    wish = Wish(policy="mended", quiet_s=0, options=Options(idle=True))
    found = decided(now, Memory(), wish)
    assert found.executors == 2
    assert "in effect with the next batch, in 200 s" in found.why
    fewer = decided(now, Memory(), replace(WISH, quiet_s=0, most=1))
    assert fewer.executors == 2
    assert "1 are allowed; 2 hold its tasks; batches tell nothing of max_latency" in fewer.why
    short = replace(now, rates=Rates(0, 1000, (200, 200), growth=600, waiting=9000))
    more = decided(short, Memory(), replace(wish, options=Options()))
    assert more.executors == 2  # others would have no task


def test_a_latency_that_cannot_be_had_takes_no_more_executors_than_come_near_it() -> None:
    query = Batches(0.6, (Stage(12, 0.01, 0.01),), trigger_s=2.0)
    found = decided(seen(5, batches=query), Memory(), replace(WISH, max_latency_s=3.0))
    assert found.executors == 1
    assert "no number of executors carries within 3 s; with 1 they take" in found.why


def test_before_a_model_is_fitted_tasks_bound_executors_as_well() -> None:
    short = Rates(0, 1000, (100,), growth=900, waiting=9000)
    blind = replace(seen(1), rates=short, batches=None, tasks=6)
    assert decided(blind, Memory(), WISH).executors == 6
    assert (decided(replace(blind, tasks=0), Memory(), WISH).executors or 0) > 6


def test_the_model_plans_for_what_comes_of_late() -> None:
    usual = seen(100)
    assert usual.rates is not None
    risen = replace(usual, rates=replace(usual.rates, latest=500.0))
    found = decided(risen, Memory(), WISH)
    assert found.executors == decided(seen(500), Memory(), WISH).executors
    assert found.why.startswith("100 rows/s come, 500/s of late: ")


@pytest.mark.parametrize(
    ("policy", "options", "latency_s", "message"),
    [
        ("model", {"full": 0}, None, "full must be above 0 and at most 1; got 0"),
        ("model", {"start_s": "5s"}, None, "start_s must be a number of seconds"),
        ("model", {"predict": 1}, None, "predict must be True or False; got 1"),
        ("model", {"idle": True}, None, "predict, start_s, full; got 'idle'; .*policy 'mended'"),
        ("mended", {"spread": True}, None, "got 'spread'; plain queries shed nothing"),
        ("mended", {"speed": 1}, None, "takes predict, .*latency, idle; got 'speed'; leave it out"),
        ("printed", {"full": 0.8}, None, "'printed' takes none; got 'full'; .*policy 'mended'"),
        ("model", None, 0.0, "max_latency: must be above 0"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(
    policy: str, options: dict[str, Any] | None, latency_s: float | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        wished(policy, latency_s, 1, None, 10.0, options)


def test_a_decision_without_a_model_goes_by_rates() -> None:
    found = decided(seen(100, batches=None), Memory(), WISH)
    assert found == decided(seen(100, batches=None), Memory(), replace(WISH, policy="mended"))
    assert "batches of" not in found.why


def test_what_another_run_has_shown_is_forgotten() -> None:
    low = decided(seen(100, executors=3, run="one"), Memory(run="one"), WISH)
    assert low.executors is None
    assert low.memory.low_since_s is not None
    again = decided(seen(100, executors=3, time_s=1e6, run="two"), low.memory, WISH)
    assert again.executors is None
    assert again.memory.low_since_s == 1e6
    assert decided(seen(100, executors=3, time_s=1e6, run="one"), low.memory, WISH).executors


@pytest.mark.parametrize(("asked", "wanted"), [(1, 2), (2, None), (9, None)])
def test_before_the_first_batch_the_users_least_holds(asked: int, wanted: int | None) -> None:
    blind = replace(seen(1, executors=asked, asked=asked), rates=None, why="nothing is known")
    found = decided(blind, Memory(), replace(WISH, least=2, most=4))
    assert found.executors == wanted
    assert found.why.startswith("nothing is known")
    nobody = replace(blind, executors=0)  # the first ones are on their way
    assert decided(nobody, Memory(), replace(WISH, least=2, most=4)).executors is None
    odd = replace(blind, run="run")
    assert decided(odd, Memory(), replace(WISH, least=2, most=4)).executors is None


def test_the_limit_on_a_batch_is_learned_and_more_executors_are_not_asked_for_in_vain() -> None:
    assert limit(behind(6)) == 60
    assert limit(behind(6, comes=60)) is None  # nothing is left behind
    assert limit(behind(2)) is None
    larger = batch(told(6, 6.0, 0.9, 90, 450, 450, 360))
    assert limit([*behind(6), larger]) is None  # so it is none
    slow = Batches(0.2, (Stage(8, 0.01, 0.01),), trigger_s=10.0, max_rows=1000)
    found = decided(seen(150, batches=slow), Memory(), replace(WISH, max_latency_s=None))
    assert found.executors == 2  # 1000 rows take 10 s with one and 5 s with two
    assert "no number of executors carries; batches are limited to 1000 rows" in found.why


def test_a_batch_at_work_with_more_tasks_than_usual_may_have_as_many_executors() -> None:
    wide = QUERY.of_tasks(50)
    assert wide.tasks == 50
    assert QUERY.of_tasks(2) is QUERY
    at_work = seen(1e5, batches=wide, at_least=True, why="a batch is at work")
    assert decided(at_work, Memory(), WISH).executors == 50


def burst(rows: float, executors: int, time_s: float, **more: Any) -> Seen:
    """Seen after a time without rows."""
    asked = more.pop("asked", executors)
    found = Seen(time_s, executors, 1, asked, None, "only one batch", batches=QUERY, **more)
    return replace(found, burst=rows)


def silent(executors: int, time_s: float) -> Seen:
    return seen(0, executors, time_s)


def test_rows_that_come_at_once_need_executors_though_they_have_no_rate() -> None:
    need = next(n for n in range(1, 9) if QUERY.work_s(2000, n) <= 0.85 * 2.0)
    assert need > 2
    found = decided(burst(2000, 1, 0.0), Memory(), WISH)
    assert found.executors == need
    assert "2000 rows came at once" in found.why
    assert decided(burst(2000, need, 0.0), Memory(), WISH).executors is None
    assert decided(burst(2000, 8, 0.0), Memory(), WISH).executors is None  # none goes for that
    at_work = decided(burst(2000, 1, 0.0, at_least=True), Memory(), WISH)
    assert (at_work.executors, at_work.memory.low_most) == (need, need)
    never = decided(burst(1e6, 1, 0.0), Memory(), WISH)
    assert never.executors == 8
    without = replace(WISH, max_latency_s=None)
    assert decided(burst(2000, 1, 0.0), Memory(), without).executors is None


def test_what_rows_needed_that_came_at_once_is_kept_for_the_next_ones_for_a_while() -> None:
    memory = decided(burst(1000, 8, 0.0), Memory(), WISH).memory
    ((_, need),) = memory.bursts
    assert need == 3
    given = []
    for time_s in range(30, 1000, 30):
        found = decided(silent(8, float(time_s)), memory, WISH)
        memory = found.memory
        if found.executors is not None:
            given.append((time_s, found.executors))
            assert found.executors == 1 or "at once of late needed 3" in found.why or time_s == 600
    assert given[0] == (60, need)
    assert next(time_s for time_s, count in given if count == 1) >= 10 * WISH.quiet_s
    later = decided(burst(10, 1, 1200.0), memory, WISH).memory
    assert later.bursts == ((1200.0, 1),)
    for at_s in (1201.0, 1202.0, 1203.0):  # one at work is looked at every second
        later = decided(burst(1000, 1, at_s, at_least=True), later, WISH).memory
    assert later.bursts == ((1203.0, need),)
    assert decided(burst(10, 1, 1210.0), later, WISH).memory.bursts == (
        (1203.0, need),
        (1210.0, 1),
    )


def test_executors_that_spark_has_come_unasked_go_as_late_as_others() -> None:
    memory = decided(seen(100, 1, 0.0), Memory(), WISH).memory
    found = decided(seen(100, 4, 30.0, asked=1), memory, WISH)
    assert found.executors is None
    assert "1 would do for 30 s so far" in found.why
    assert decided(seen(100, 4, 60.0, asked=1), found.memory, WISH).executors == 1


@pytest.mark.parametrize("policy", ["mended", "printed"])
def test_as_many_executors_as_are_there_is_no_reason_to_do_without_those_that_come(
    policy: str,
) -> None:
    memory, wish = Memory(), replace(WISH, policy=policy, max_latency_s=None)
    for time_s in (0.0, 30.0, 60.0, 90.0):
        found = decided(seen(1000, 4, time_s, asked=5, batches=None), memory, wish)
        memory = found.memory
        assert found.executors == 5
