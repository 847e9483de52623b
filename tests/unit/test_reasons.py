"""Every reason is true: each part of it is held against the numbers that the decision was based on,
over simulated runs that differ in shape, load, target and limits. What no rule knows fails."""

# ruff: noqa: ARG001  # all rules are called in the same way

import itertools
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

import sojourn as sj
from sojourn.control.measure import metric_of
from sojourn.control.policies import POLICIES
from sojourn.control.policies.drs import drs
from sojourn.control.programs import busier
from sojourn.control.situation import Action, Blind, Decision, Situation
from sojourn.queueing.keyed import KeyedStation
from sojourn.queueing.network import what_of
from sojourn.queueing.split import executors_of
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload
from sojourn.units import format_duration as told

TIME = r"[\d.]+ (?:µs|ms|s|min|h)(?: [\d.]+ (?:µs|ms|s|min))?"
NAME = r"'(\w+)'"
RATE = r"([\d.e+]+)/s"
Rule = Callable[[Situation, Decision, re.Match[str]], bool]


def station(s: Situation, name: str) -> Any:
    return s.network.stations[name]


def target(s: Situation) -> float:
    assert s.settings.max_sojourn_s is not None
    return s.settings.max_sojourn_s


def after(s: Situation, d: Decision) -> Mapping[str, int]:
    changed = {name: int(count) for name, _, count in CHANGE.findall(d.reason)}
    return d.allocation or d.enough or s.current | changed


def since_change(s: Situation) -> float:
    assert s.memory.change is not None
    return s.now_s - s.memory.change.time_s


def above(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    value = s.metric
    return (
        value is not None
        and m[1] == what_of(s.settings.percentile)
        and (m[2], m[3]) == (told(value), told(target(s)))
        and value > target(s)
    )


def within(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    value = s.metric
    same = (m[1], m[3]) == (what_of(s.settings.percentile), told(target(s)))
    return same and value is not None and m[2] == told(value) and value <= target(s)


def low(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    value, least = metric_of(s.smooth.sojourn, s.settings.percentile), s.settings.min_sojourn_s
    return value is not None and least is not None and value < least and m[3] == told(least)


def unstable(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    one = station(s, m[1])
    return (
        m[2] == f"{one.arrival_rate:.4g}"
        and m[4] == f"{one.service_rate:.4g}"
        and int(m[3]) == s.current[m[1]]
        and one.offered_load * 1.001 >= int(m[3])
    )


def hottest(s: Situation, name: str) -> KeyedStation:
    """The operator, or its executor with the busiest shard."""
    parts = [part for part, _ in executors_of(station(s, name), s.current[name])]
    keyed = [part for part in parts if isinstance(part, KeyedStation) and part.hot]
    return max(keyed, key=lambda part: part.hot[0] * part.arrival_rate)


def hot_shard(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    one = hottest(s, m[1])
    brings = one.hot[0] * one.arrival_rate
    as_told = (m[2], m[3]) == (f"{brings:.4g}", f"{one.service_rate:.4g}")
    return (
        as_told and brings >= one.service_rate and not station(s, m[1]).is_stable(s.current[m[1]])
    )


def uneven(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    one, count = station(s, m[1]), s.current[m[1]]
    return bool(one.offered_load < count and not one.is_stable(count))


def backlogged(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    one, count = station(s, m[1]), int(m[3])
    rate = one.arrival_rate + s.to_come[m[1]] / max(2.0, s.settings.interval_s)
    return (
        m[2] == f"{s.to_come[m[1]]:.0f}"
        and count == s.current[m[1]]
        and (rate >= count * one.service_rate or s.draining[m[1]] > count)
    )


def waits(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return int(m[1]) == s.latest.operators[m[2]].queue > 0


def no_tree(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return s.latest.sojourn is None


def nothing_waits(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return not any(s.latest.operators[name].queue for name in s.wanted)


def one_more(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    best = after(s, d)
    none_lost = all(best[n] >= k for n, k in s.current.items())
    return none_lost and s.total(best) == s.total(s.current) + 1


def doubled(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    best = after(s, d)
    names = re.findall(NAME, m[1])
    return all(n in s.slowed and best[n] == 2 * s.current[n] for n in names)


def floor(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    """It names what is aimed at and what it takes, which must not be more than was seen."""
    bound = s.network.bound(s.settings.percentile)
    named = s.memory.bias.correct(bound, bound)
    seen = metric_of(s.smooth.sojourn, s.settings.percentile)
    possible = seen is None or named <= seen
    right = (m[1], m[2]) == (told(target(s)), told(named)) and named >= target(s) * 0.99
    return right and possible


def not_seen(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    seen = metric_of(s.smooth.sojourn, s.settings.percentile)
    bound = s.network.bound(s.settings.percentile)
    assert seen is not None
    doubted = (m[1], m[2]) == (told(target(s)), told(seen))
    return doubted and seen < s.memory.bias.correct(bound, bound)


def out_of_reach(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    most = {n: s.limits.most(n) for n in s.current}
    huge = {n: int(min(k, 10_000)) for n, k in most.items()}
    return m[1] == told(target(s)) and s.estimate(s.network, huge) > 0.8 * target(s)


def bounded(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return int(m[4]) > int(m[5]) == s.limits.most(m[1])


def all_in_use(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return int(m[1]) == s.most


def too_few(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    best = d.allocation or s.current
    return not all(station(s, n).is_stable(k) for n, k in best.items())


def expected(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    ahead = busier(s.network, s.forecast.rate / s.forecast.now)  # if it is added for that
    then = (told(s.estimate(network, after(s, d))) for network in (s.network, ahead))
    shown = d.expected_s is None or d.allocation is None or m[1] == told(d.expected_s)
    return m[1] in then and shown


def foreseen(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    told_of = (m[1], m[2], m[3]) == (
        f"{s.forecast.rate:.3g}",
        told(s.forecast.horizon_s),
        s.forecast.by,
    )
    return told_of and s.forecast.rate > s.forecast.now


def instead(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return m[1] == told(s.estimate(s.network, s.current))


def by_model(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return m[1] == told(s.estimate(s.network, s.current))


def falls_behind(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return any(not station(s, name).is_stable(count) for name, count in s.current.items())


def expected_now(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    value = s.estimate(s.network, s.current)
    right = value > target(s) if m[2] == "above" else value <= target(s)
    return (m[1], m[3]) == (told(value), told(target(s))) and right


def limited(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return int(m[2]) == s.most and int(m[1]) > int(m[2])


def in_use(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return int(m[1]) == s.total(s.current) > int(m[2]) == s.most


def fresh(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    wait_s = max(s.settings.change_interval_s, s.patience_s)
    return since_change(s) < wait_s and d.action is Action.WAIT


def chronic(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    tried = [t for t in s.tried if t.time_s > s.now_s - 180]
    share = sum(t.missed for t in tried) / len(tried)
    return share >= 0.1 and m[1] == f"{share:.0%}"


def busy(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return m[2] == f"{station(s, m[1]).utilization(s.current[m[1]]):.0%}"


def moved(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return s.total(after(s, d)) == s.total(s.current)


def fewer(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return m[1] == told(target(s)) and s.total(after(s, d)) < s.total(s.current)


def presses(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    back = m[3] is None or f"{s.latest.rates[m[1]]:.4g}" == m[3]
    return back and any(p.vertex == m[1] and f"{p.rate:.4g}" == m[2] for p in s.pressures)


def will_wait(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return any(p.vertex == m[2] and told(p.wait_s) == m[1] for p in s.pressures)


def behind(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return m[1] == told(s.latest.backlog_s)


def some_so_far(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return (int(m[2]), int(m[3])) == (s.current[m[1]], s.wanted[m[1]]) and m[2] != m[3]


def includes(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return since_change(s) < s.latest.interval_s and m[1] == told(since_change(s))


def worse(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    change = s.memory.change
    assert change is not None
    assert change.expected_s is not None
    assert change.measured_s is not None
    assert s.metric is not None
    values = (s.metric, change.expected_s, change.measured_s)
    return m.groups() == tuple(map(told, values)) and s.metric > 1.3 * max(values[1:])


def keep_up(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return d.allocation is None and s.keeps_up


def always(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return True


def stays(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return d.allocation is None


def never_keeps_up(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    one = hottest(s, m[1])
    return bool(one.hot[0] * one.arrival_rate >= one.service_rate * 0.999)


def at_most(s: Situation, d: Decision, m: re.Match[str]) -> bool:
    return int(m[1]) == s.most and s.total(s.current) >= int(m[1])


RULES: list[tuple[str, Rule]] = [
    (rf"((?:mean|p[\d.]+) sojourn) ({TIME}) is above ({TIME})", above),
    (rf"((?:mean|p[\d.]+) sojourn) ({TIME}) is within ({TIME})", within),
    (rf"((?:mean|p[\d.]+) sojourn) ({TIME}) is below ({TIME})", low),
    (rf"{NAME} cannot keep up: {RATE} arrive, it serves (\d+) × {RATE}", unstable),
    (
        rf"(?<!operator ){NAME} cannot keep up: one shard brings {RATE}, and a processor does "
        rf"{RATE}; split that shard's key",
        hot_shard,
    ),
    (rf"{NAME} cannot keep up: its busiest processor has too much", uneven),
    (
        rf"{NAME} cannot work off (\d+) tuples that wait or are to come in time: "
        rf"it serves (\d+) × {RATE}",
        backlogged,
    ),
    (
        rf"the load is expected to rise to {RATE} within ({TIME}) \(its (slope|pattern)\)",
        foreseen,
    ),
    (rf"{NAME} sends {RATE} for {TIME}(?: \(perhaps {RATE}, as before\))?", presses),
    (rf"tuples will wait ({TIME}) at {NAME}", will_wait),
    (rf"(\d+) tuples wait at {NAME}", waits),
    (rf"sources are ({TIME}) behind", behind),
    (r"no tuple tree was completed", no_tree),
    (r"nothing waits", nothing_waits),
    (r"(?:the model sees no need, so )?one more goes where it helps most", one_more),
    (rf"({TIME}) is out of reach: tuples take ({TIME}) without any waiting", floor),
    (rf"the model has ({TIME}) out of reach, and ({TIME}) was measured", not_seen),
    (rf"({TIME}) is out of reach with as many processors as operators may have", out_of_reach),
    (
        rf"operator {NAME} cannot keep up with any number of processors: one shard brings {RATE}, "
        rf"and a processor does {RATE}; split that shard's key",
        never_keeps_up,
    ),
    (
        rf"operator {NAME} is unstable: {RATE} at {RATE} per processor needs at least (\d+) "
        r"processors; its maximum is (\d+)",
        bounded,
    ),
    (r"using as many as help", always),
    (r"that is too few to keep up", too_few),
    (r"(\d+) processors are needed and the limit is (\d+)", limited),
    (r"(\d+) processors are in use and the limit is (\d+)", in_use),
    (r"the limit is (\d+) processors", at_most),
    (r"every operator is at its minimum", stays),
    (r"nothing more can be done", stays),
    (r"no other placement is sure to be better", stays),
    (r"nothing can be added at once", stays),
    (
        rf"tuples take longer than before at ({NAME}(?:, {NAME})*), so at most twice as many "
        r"at first",
        doubled,
    ),
    (r"all operators keep up, so this waits for the next interval", keep_up),
    (rf"the last change is too recent \({TIME} to go\)", fresh),
    (r"the last change has not shown its effect yet", stays),
    (rf"that was (?:rolled back|not enough) and is not tried again for {TIME}", stays),
    (r"waiting to see whether it lasts", stays),
    (rf"the model expects ({TIME})", by_model),
    (r"by the model an operator falls behind", falls_behind),
    (rf"({TIME}) expected is (above|within) ({TIME})", expected_now),
    (rf"fewer processors are enough for ({TIME})", fewer),
    (rf"some are given back if that lasts another {TIME}", stays),
    (r"the same number, placed better", moved),
    (rf"they are moved if that lasts another {TIME}", stays),
    (r"without headroom", always),
    (rf"the (?:mean|p[\d.]+) sojourn was above {TIME} in (\d+%) of the last {TIME}", chronic),
    (rf"they wait for {NAME}, which is (\d+%) busy", busy),
    (rf"tuples take {TIME} without any waiting; make operators faster, or raise the target", stays),
    (rf"one shard of {NAME} gets \d+% of its tuples; split that key", stays),
    (
        rf"[\d.]+% of the tuples pass {NAME}, which takes {TIME}; "
        r"make that operator faster, or raise the target",
        stays,
    ),
    (r"\d+% of these lie beside a commit; commit less often, or to faster disks", stays),
    (r"one more processor would not help", stays),
    (rf"{NAME} has (\d+) of (\d+) processors so far", some_so_far),
    (rf"the measured interval includes the change made ({TIME}) ago", includes),
    (
        rf"the last change made it worse: ({TIME}) measured, ({TIME}) expected, "
        rf"({TIME}) before it; going back, and not trying that again for {TIME}",
        worse,
    ),
    (r"no placement of \d+ processors is (?:much|sure to be) better", stays),
    (r"all (\d+) processors are in use", all_in_use),
    (rf"instead of ({TIME})", instead),
    (rf"({TIME}) expected", expected),
]
CHANGE = re.compile(rf"{NAME} (\d+) → (\d+)")
BETWEEN = re.compile(r"(?:[;:, ]|and|but|though)*")


def untrue(s: Situation, d: Decision) -> str:
    """What no rule knows of a reason, or what is not so."""
    left = d.reason
    changes = {m[1]: (int(m[2]), int(m[3])) for m in CHANGE.finditer(left)}
    left = CHANGE.sub("", left)
    if d.allocation is not None:
        made = {n: (k, d.allocation[n]) for n, k in s.current.items() if d.allocation[n] != k}
        if changes != made and d.action not in (Action.RETRY, Action.ROLL_BACK):
            return f"{changes} is not {made}"
    for pattern, rule in RULES:
        for m in re.finditer(pattern, left):
            if not rule(s, d, m):
                return f"{m[0]} is not so"
        left = re.sub(pattern, "", left)
    return "" if BETWEEN.fullmatch(left) else f"nobody knows {left!r}"


def same(value: Any) -> list[Any]:
    return [value]


def simulation(seed: int, seconds: float = 150.0) -> Simulation:
    """A run that nobody has thought of."""
    draw = random.Random(seed)
    t = sj.Topology("random")
    at = t.source("source", sj.sources.paced(lambda n: n, rate=1.0))
    names = ["alpha", "beta", "gamma"][: draw.randint(1, 3)]
    loads = {}
    value: Any = at
    for name in names:
        keyed: dict[str, Any] = {}
        if draw.random() < 0.4:
            keyed = {"key": same, "shards": draw.choice((8, 256)), "executors": draw.choice((1, 2))}
        processors = max(draw.randint(1, 4), keyed.get("executors", 1))
        value = t.operator(name, same, value, processors=processors, **keyed)
        if draw.random() < 0.3:
            value = at if draw.random() < 0.5 else value
        mean_s, scv = draw.choice((0.005, 0.02, 0.05)), draw.choice((0.5, 1.0, 4.0))
        loads[name] = OperatorLoad(
            Distribution.of_moments(mean_s, scv),
            zipf=draw.choice((0.0, 1.0, 2.0)) if keyed else 0.0,
        )
    t.sink("out", sj.sinks.console(), value)
    steps = tuple(
        (draw.uniform(3, 40), draw.choice((5.0, 20.0, 50.0, 100.0, 300.0, 0.5))) for _ in range(6)
    )
    control = ControlSettings(
        max_sojourn_s=draw.choice((0.02, 0.1, 0.2, 0.5)),
        max_processors=draw.choice((None, None, 12, 30)),
        percentile=draw.choice((None, None, 95.0)),
        quiet_s=draw.choice((5.0, 30.0)),
    )
    return Simulation(
        t,
        Workload(loads, {"source": SourceLoad(steps)}),
        (EngineSettings(), control, SimulatorSettings()),
        seconds,
        seed,
    )


@pytest.mark.parametrize(
    ("seeds", "seconds"),
    [*((range(n, n + 4), 150.0) for n in range(0, 20, 4)), (range(100, 103), 400.0)],
)
def test_every_reason_is_true(
    seeds: range, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: list[str] = []
    told_of: set[str] = set()

    def watched(s: Situation | Blind) -> Decision:
        d = drs(s)
        if isinstance(s, Situation):
            told_of.add(str(d.action))
            problem = untrue(s, d)
            if problem:
                wrong.append(f"{s.now_s:.1f} s, {d.action}: {d.reason}\n    {problem}")
        return d

    monkeypatch.setitem(POLICIES, "drs", watched)
    for seed in seeds:
        simulation(seed, seconds).run()
    assert not wrong, "\n".join(itertools.islice(wrong, 10))
    assert {"add", "hold"} <= told_of


def test_a_reason_that_is_not_so_is_found() -> None:
    """The rules can fail."""
    found: list[str] = []

    def lying(s: Situation | Blind) -> Decision:
        d = drs(s)
        if isinstance(s, Situation) and d.action is Action.HOLD:
            for lie in (
                d.reason.replace("within", "above"),
                f"{d.reason}; 7 tuples wait at 'alpha'",
                f"{d.reason}; who knows",
            ):
                found.append(untrue(s, replace(d, reason=lie)))
        return d

    shape = simulation(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(POLICIES, "drs", lying)
        shape.run()
    assert found
    assert all(found)
