"""Machines from rates: Cervino's algorithm as printed and mended, and kinds of machines."""

import itertools
import math
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sojourn.control.policies.provision import rates_of
from sojourn.errors import InputError
from sojourn.provisioning.kinds import (
    Kind,
    cheapest,
    chosen,
    cost,
    parse_kinds,
    price_of,
    slots_of,
    told,
)
from sojourn.provisioning.mended import Options, is_short, mended, predicted
from sojourn.provisioning.printed import printed
from sojourn.provisioning.rates import Known, Rates

EACH = 1000.0  # tuples a second that a machine can process


def period(
    comes: float, machines: int, time_s: float = 0.0, noise: float = 0.0, off: float = 1.0
) -> Rates:
    """Machines that shed what they cannot process. What is measured of them may be `off`."""
    processed = min(comes, machines * EACH)
    return Rates(
        time_s,
        comes,
        (processed / machines * off,) * machines,
        noise=noise,
        shed=max(0.0, comes - processed),
    )


def test_printed_line_by_line() -> None:
    # 2500/s on one machine that processes 1000: 1500 more take two machines
    found = printed(Rates(0, 2500, (1000,)), Known())
    assert (found.machines, found.known.max_rate) == (3, 1000)
    # the floor of what is expected, 833, is what a machine processes: nothing is left over
    same = printed(Rates(30, 2500, (833, 833, 833)), found.known)
    assert same.machines == 3
    # fewer come: 1200 / 1000 take two
    less = printed(Rates(60, 1200, (401, 401, 401)), found.known)
    assert less.machines == 2
    # no number of machines before a first overload
    assert printed(Rates(0, 100, (51, 51)), Known()).machines == 2
    # nothing comes: one machine at least
    assert printed(Rates(0, 0, (1, 1)), found.known).machines == 1
    # machines that process nothing say nothing
    assert printed(Rates(0, 500, (0, 0)), found.known).machines is None


def test_noise_has_printed_grow_and_mended_stay() -> None:
    draw = random.Random(7)
    counts = {"printed": [1], "mended": [1]}
    known = {"printed": Known(), "mended": Known()}
    for number in range(40):
        off = 1 + draw.gauss(0, 0.02)
        for name, all_of in counts.items():
            rates = period(700.0, all_of[-1], 30.0 * number, noise=2 * 0.02 * 700, off=off)
            decide = printed if name == "printed" else mended
            found = decide(rates, known[name])
            known[name] = found.known
            assert found.machines is not None
            all_of.append(found.machines)
    assert max(counts["printed"]) >= 10
    assert set(counts["mended"]) == {1}


def followed(
    loads: list[float], options: Options | None = None, off: float = 0.0
) -> tuple[list[int], list[float]]:
    """Machines and what was shed, period by period; machines come between two periods."""
    machines, known, draw = 1, Known(), random.Random(3)
    counts, shed = [], []
    for number, load in enumerate(loads):
        noisy = load * (1 + draw.gauss(0, off))
        rates = period(noisy, machines, 30.0 * number, noise=2 * off * load)
        shed.append(rates.shed)
        found = mended(rates, known, options=options)
        known = found.known
        machines = found.machines or machines
        counts.append(machines)
    return counts, shed


def test_mended_follows_up_and_down_and_sheds_for_two_periods_at_most() -> None:
    loads = [500.0] * 4 + [3500.0] * 6 + [1500.0] * 6 + [400.0] * 6
    counts, shed = followed(loads, off=0.005)
    assert counts[3] == 1
    assert counts[9] == 4
    assert counts[15] == 2
    assert counts[21] == 1
    assert all(not lost for lost in [*shed[6:10], *shed[11:]])


def test_what_a_machine_can_process_is_learned_only_where_something_is_short() -> None:
    calm = mended(period(700.0, 1), Known())
    assert calm.known.max_rate is None
    assert calm.machines == 1
    short = mended(period(1800.0, 1), calm.known)
    assert short.known.max_rate == EACH
    assert short.machines == 2
    # a difference alone, with nothing shed and nothing that waits, is noise
    odd = Rates(0, 1000, (900,), noise=10)
    assert not is_short(odd)
    assert mended(odd, short.known).known.max_rate == EACH
    waits = Rates(0, 1000, (900,), noise=10, waiting=3000, growth=100)
    assert is_short(waits)
    # a machine that processes more than was known can do that
    assert mended(Rates(0, 1200, (1200,)), short.known).known.max_rate == 1200


def test_what_waits_is_worked_off_within_a_period() -> None:
    waits = Rates(0, 1500, (1000,), waiting=30_000, growth=500)
    found = mended(waits, Known(), options=Options(full=1.0, period_s=30))
    assert found.machines == 3  # 1500 and 1000 a second


def test_rates_that_make_no_sense_are_no_reason_to_act() -> None:
    known = Known(max_rate=EACH)
    for rates in (
        Rates(0, -5, (10,)),
        Rates(0, math.nan, (10,)),
        Rates(0, 100, (-1,)),
        Rates(0, 100, ()),
        Rates(0, 5000, (0.0,), shed=5000),
    ):
        found = mended(rates, known)
        assert found.machines is None
        assert found.known.max_rate == EACH
        assert printed(rates, known).machines is None


def test_a_rise_that_goes_on_is_predicted() -> None:
    line = tuple((30.0 * i, 1000.0 + 300 * i) for i in range(5))
    assert predicted(line, 30) == pytest.approx(2500)
    assert predicted(line[:2], 30) is None
    draw = random.Random(5)
    assert predicted(tuple((30.0 * i, draw.gauss(1000, 100)) for i in range(5)), 30) is None
    loads = [800.0 + 250 * i for i in range(14)]
    plain, sheds = followed(loads)
    early, fewer = followed(loads, Options(predict=True))
    assert sum(fewer) < sum(sheds)
    assert sum(early) >= sum(plain)


def test_long_latencies_ask_for_a_machine_before_anything_is_shed() -> None:
    options, known = Options(latency=True), Known()
    for number in range(5):
        calm = Rates(30.0 * number, 700, (700,), latency_s=0.01)
        known = mended(calm, known, options=options).known
    slow = Rates(150, 950, (950,), latency_s=0.08)
    assert mended(slow, known, options=options).machines == 2
    assert mended(slow, known).machines == 1
    assert known.calm_s == pytest.approx(0.01)


def test_idle_time_tells_what_a_machine_can_process_without_an_overload() -> None:
    rates = Rates(0, 300, (100, 100, 100), idle=0.9)
    assert mended(rates, Known()).machines == 3
    found = mended(rates, Known(), options=Options(idle=True))
    assert found.known.max_rate == pytest.approx(1000)
    assert found.machines == 1
    # nearly no work says nothing
    bored = Rates(0, 3, (1, 1, 1), idle=0.999)
    assert mended(bored, Known(), options=Options(idle=True)).known.max_rate is None


def test_bursts_of_what_is_shed_count() -> None:
    rates = Rates(0, 1200, (1000,), shed=200, spread=500)
    assert mended(rates, Known(), options=Options(full=1.0)).machines == 2
    assert mended(rates, Known(), options=Options(full=1.0, spread=True)).machines == 3


def test_machines_that_are_coming_are_not_asked_for_twice() -> None:
    rates, options = period(1800.0, 1), Options(start_s=60)
    first = mended(rates, Known(), options=options)
    assert first.machines is not None
    coming = first.machines - 1
    again = mended(rates, first.known, coming, options)
    assert again.machines == first.machines
    assert "still coming" in again.why


@given(
    some.floats(0, 1e5),
    some.lists(some.floats(0, 1e4), min_size=1, max_size=8),
    some.floats(0, 100),
    some.one_of(some.none(), some.floats(1, 1e4)),
)
def test_there_is_always_one_machine_at_least(
    comes: float, processed: list[float], noise: float, most: float | None
) -> None:
    rates = Rates(0, comes, tuple(processed), noise=noise, shed=max(0, comes - sum(processed)))
    for found in (printed(rates, Known(most)), mended(rates, Known(most))):
        assert found.machines is None or found.machines >= 1
        assert found.why


KINDS = (Kind("small", 1, 1.0, 60), Kind("large", 4, 3.2, 120))


def test_kinds_as_they_are_written() -> None:
    assert parse_kinds("small=1:1:60s, large=4:3.2:2min", "kinds") == KINDS
    assert parse_kinds("one=2:0.5", "kinds") == (Kind("one", 2, 0.5),)
    for wrong in ("", "small", "small=1", "=1:1", "a=0:1", "a=1:-1", "a=1:1:-5s", "a=1:1,a=2:2"):
        with pytest.raises(InputError):
            parse_kinds(wrong, "kinds")


def test_the_cheapest_machines_have_the_slots() -> None:
    assert cheapest(0, KINDS) == {}
    assert cheapest(1, KINDS) == {"small": 1}
    assert cheapest(3, KINDS) == {"small": 3}
    assert cheapest(4, KINDS) == {"large": 1}
    assert cheapest(5, KINDS) == {"large": 1, "small": 1}


@given(some.integers(1, 10), some.floats(0.5, 6))
def test_no_other_mix_is_cheaper(need: int, large: float) -> None:
    kinds = (Kind("small", 1, 1.0), Kind("large", 4, large))
    found = cheapest(need, kinds)
    assert slots_of(found, kinds) >= need
    for small, big in itertools.product(range(11), range(4)):
        if small + 4 * big >= need:
            assert price_of(found, kinds) <= price_of({"small": small, "large": big}, kinds) + 1e-9


def test_other_machines_must_pay() -> None:
    # 0.8 an hour are saved; a large machine costs 3.2 an hour for the two minutes it takes to come
    assert chosen({"small": 4}, 4, KINDS, 400) == {"small": 4, "large": 0}
    assert chosen({"small": 4}, 4, KINDS, 500) == {"large": 1}
    assert cost({"small": 4}, {"large": 1}, KINDS, 3600) == pytest.approx(3.2 + 3.2 / 30)
    # never back to what costs more
    assert slots_of(chosen({"large": 1}, 4, KINDS, 1e6), KINDS) == 4
    assert chosen({"large": 1}, 4, KINDS, 1e6)["large"] == 1


def test_machines_that_are_too_many_go_and_those_that_lack_come() -> None:
    assert chosen({"small": 6}, 5, KINDS, 60) == {"small": 5, "large": 0}
    assert chosen({"small": 1}, 3, KINDS, 60) == {"small": 3, "large": 0}
    assert chosen({"large": 1}, 5, KINDS, 60) == {"large": 1, "small": 1}
    # a large machine for one slot: it goes once a small one has paid for coming
    assert chosen({"large": 1}, 1, KINDS, 20)["large"] == 1
    assert chosen({"large": 1}, 1, KINDS, 30) == {"small": 1}
    assert told({"large": 1, "small": 0}, KINDS) == "1 large (3.2 an hour)"


@given(some.integers(0, 8), some.integers(0, 3), some.integers(1, 12), some.floats(0, 1e4))
def test_what_is_chosen_has_the_slots_and_is_the_cheaper_of_both(
    small: int, large: int, need: int, lasts_s: float
) -> None:
    now = {"small": small, "large": large}
    found = chosen(now, need, KINDS, lasts_s)
    assert slots_of(found, KINDS) >= need
    assert min(found.values()) >= 0
    best = cost(now, cheapest(need, KINDS), KINDS, lasts_s)
    assert cost(now, found, KINDS, lasts_s) <= best + 1e-12


def test_reasons_have_plain_numbers() -> None:
    many = Rates(0, 2_500_000, (1_000_000,), shed=1_500_000, waiting=123_456, growth=1000)
    for found in (mended(many, Known()), printed(many, Known())):
        assert "e+" not in found.why
        assert "1000000/s" in found.why


def test_machines_that_are_busy_with_nothing_teach_nothing() -> None:
    """Such as a query whose batches take time though no row came."""
    rates = Rates(0.0, 0.0, (0.0, 0.0), idle=0.5)
    found = mended(rates, Known(), options=Options(idle=True))
    assert found.known.max_rate is None
    assert mended(rates, found.known, options=Options(idle=True)).machines == 2


def measured(time_s: float, backlog_s: float = 0.0, comes: float = 100.0, shed: float = 0.0) -> Any:
    return SimpleNamespace(
        time_s=time_s, interval_s=1.0, external_rate=comes, shed=shed, backlog_s=backlog_s,
        operators={"nap": SimpleNamespace(processors=2)},
    )  # fmt: skip


def test_what_a_machine_can_process_shows_while_tuples_are_shed() -> None:
    """In the rest of the period there was less to do, and nothing would ever correct it."""
    past = [measured(float(n), comes=400.0, shed=300.0 + n) for n in range(3)]
    past += [measured(float(n), comes=20.0) for n in range(3, 7)]
    situation: Any = SimpleNamespace(
        past=tuple(past),
        wanted=("nap",),
        smooth=SimpleNamespace(operators={}),
        metric=None,
        now_s=6.0,
    )
    rates = rates_of(situation, 2, -1.0)
    assert rates.each == pytest.approx((400 - 301) / 2)
    assert rates.total == pytest.approx((100 + 99 + 98 + 4 * 20) / 7)
    found = mended(rates, Known())
    assert found.known.max_rate == pytest.approx(rates.each)
    situation.past = tuple(past[3:])
    calm = rates_of(situation, 2, -1.0)
    assert calm.machine is None
    assert mended(calm, found.known).machines == 1


@pytest.mark.parametrize(("since_s", "count"), [(0.0, 5), (4.0, 1), (-1.0, 6)])
def test_growth_counts_from_the_end_of_the_period_before(since_s: float, count: int) -> None:
    past = tuple(measured(float(n), 0.2 * n) for n in range(6))
    situation: Any = SimpleNamespace(
        past=past, wanted=(), smooth=SimpleNamespace(operators={}), metric=None, now_s=5.0
    )
    assert len([m for m in past if m.time_s > since_s]) == count
    assert rates_of(situation, 1, since_s).growth == pytest.approx(20.0)


def test_what_is_known_follows_a_clock_that_is_set_back() -> None:
    known = Known(inputs=((5.0, 1.0), (6.0, 2.0)), slots=(4, 5.5), begun_s=1.0)
    assert known.moved(-1.0) == Known(inputs=((4.0, 1.0), (5.0, 2.0)), slots=(4, 4.5), begun_s=0.0)
    assert Known().moved(-1.0) == Known()
