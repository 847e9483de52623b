"""DRS ToN fig. 10: seven processors, 5 and 6 frames a second, an extractor that emits a random
number of parts at once, and operators whose times follow that number. GI/G/k picks (2:4:1), the
measured best, M/M/k picks (3:3:1) and underestimates more the higher the rate.

The paper prints gaps that are uniform in [1/8, 1/2] and [1/9, 1/3] s, which give 3.2 and 4.5 frames
a second. Here rates are uniform in [2, 8] and [3, 9] and drawn anew each second; the printed gaps,
scaled to 5 and 6 a second, are measured as well, with claims of their own. The paper gives no
service times; those here are such that the two allocations are close by M/M/k with (3:3:1) ahead.
They were chosen by eq. 1-5, with simulated means in sight, before any counted run. So that the
models pick as theirs did is no evidence, nor is how variable the extractor's times are, which
follow the parts that we chose; neither is decided. How variable arrivals and times of service are
is measured at each station, and goes into the models as DRS would have it.

Eq. 4 is read in both ways: as printed, where the times of all parts of a frame are added up, and
along one branch, a frame and one of its parts. Allocations with as many processors that keep up all
have the same frames, parts and times. What is said of pairs holds if it is sure with 95 %
confidence of each, and does not if it is wrong for one, by Holm's correction. Where a model is
nearer to what is measured, the ratio of both is nearer to 1, by its logarithm. In full runs on
Spark, logo detection with its real code has seven processors as well (coded.py), of which three and
a half are busy: the allocation that M/M/k recommends for the committed sample of CPU times, and its
two nearest. It decides nothing if more than 60 % of the CPU is used. In quick runs, what does not
hold cannot be decided.

Whether both models agree is asked of the applications alone, as the papers ask it of theirs: fig.
6's shapes, each K_max up to 48 at which waiting is more than a tenth of E[T] by M/M/k. With
more processors nobody waits, and any two models agree. Random topologies, and K_max at which there
is no waiting, are told beside it. Nothing else decides."""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import paired
from bulks import Bulky, Flow, simulated
from coded import BUSY, coded, sleeps
from controlled import difference, tentative, unless_busy
from drs_random import random_shape
from lab import Claim, Finding, Lab, judged
from paired import Estimate, Part, Series
from shapes import Shape, fpd, neighbours, real, varied, vld
from stolen import Steal

from sojourn.control.measure import Measure, measured
from sojourn.control.model import network_of
from sojourn.errors import InputError, TopologyFailed
from sojourn.ports import Samples
from sojourn.queueing import Network, Station, assign_processors
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulator import SimulatedEngine

PROCESSORS = 7
NAMES = ("extract", "match", "aggregate")
THEIRS = {"mmk": "3:3:1", "gigk": "2:4:1"}
BEST = "2:4:1"
FASTER = 5.0
RATES = (5.0, 6.0)
KINDS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "rates": ((2.0, 8.0), (3.0, 9.0)),  # frames a second
    "gaps": ((0.4, 1.6), (0.5, 1.5)),  # as shares of their mean
}
TOLD = {
    "rates": "frame rates uniform in [2, 8] and [3, 9]",
    "gaps": "printed gaps, scaled to 5 and 6 a second",
}
CLOSE = 0.1
WAITING = 0.1  # of E[T]; with less, any two models agree
REAL_BUSY = 3.5  # of seven processors with real code
NEEDS = ("cv2", "skimage")
SHAPES, QUICK_SHAPES = 20, 4  # random ones
MOST_PROCESSORS = 48
_LOOK_S, _QUICK_LOOK_S = 600.0, 120.0
NOTES = (
    "operators sleep on Spark for chosen times; everything runs five times as fast; in virtual "
    "time, queues in a row as in experiments/bulks.py, 20 minutes an allocation (5 in quick runs), "
    "Spark 2 minutes in ten turns (12 s in three), each with traffic of its own that is the same "
    "for all; how often both models recommend the same is found in the simulator, also by runs on "
    "Spark"
)

Found = dict[str, list[tuple[list[Series], dict[str, Flow]]]]  # by kind of arrivals, then by rate


@dataclass(frozen=True)
class Case:
    """A topology and a K_max: whether both models suggest the same, E[T] of one over that of the
    other, the furthest of any station's E[T_i], and what share of E[T] is waiting, by M/M/k."""

    name: str
    same: bool
    ratio: float
    furthest: float
    waiting: float
    own: bool = True  # an application, and no random topology

    @property
    def counts(self) -> bool:
        """Whether it decides."""
        return self.own and self.waiting > WAITING


Agreement = list[Case]


def allocations() -> list[dict[str, int]]:
    """All of seven processors that keep up at the higher rate, the paper's two first."""
    least = {"extract": 2, "match": 2, "aggregate": 1}  # 6 · 0.22, 24 · 0.07, 24 · 0.002
    some = [
        dict(zip(NAMES, counts, strict=True))
        for counts in itertools.product(range(1, PROCESSORS), repeat=len(NAMES))
        if sum(counts) == PROCESSORS
        and all(k >= n for k, n in zip(counts, least.values(), strict=True))
    ]
    first = [dict(zip(NAMES, counts, strict=True)) for counts in ((2, 4, 1), (3, 3, 1))]
    return [*first, *(one for one in some if one not in first)]


def shapes(seed: int) -> dict[str, list[Bulky]]:
    """At both rates, by kind of arrivals."""
    found: dict[str, list[Bulky]] = {}
    for kind, bounds in KINDS.items():
        for rate, bound in zip(RATES, bounds, strict=True):
            drawn, gaps = (bound, None) if kind == "rates" else (None, bound)
            name = f"vld-7-{kind}-{rate:g}"
            found.setdefault(kind, []).append(Bulky(name, rate, drawn, gaps, FASTER, seed))
    return found


def of_shape(lab: Lab, shape: Bulky) -> tuple[list[Series], dict[str, Flow]]:
    """All allocations, and what stations have seen."""
    if lab.engine == "spark":
        samples: list[Samples] = []
        some = paired.in_turns(lab, shape, allocations(), samples.append)
        return some, {name: flow_of(samples, name) for name in NAMES}
    seconds = 300.0 if lab.quick else paired.SIMULATED_S
    shape = replace(shape, turn_s=1.1 * seconds)
    found = [simulated(shape, a, 0.1 * seconds, paired.PARTS) for a in allocations()]
    some = [paired.series(a, one) for a, (one, _) in zip(allocations(), found, strict=True)]
    return some, found[0][1]


def flow_of(samples: Sequence[Samples], name: str) -> Flow:
    """What a station has seen, by the means of its intervals."""

    def weighed(of: Callable[[Any], float | None], by: Callable[[Any], float]) -> float:
        known = [(of(v), by(v)) for v in vertices if of(v) is not None]
        return sum((value or 0.0) * weight for value, weight in known) / sum(w for _, w in known)

    vertices = [one.vertices[name] for one in samples]
    seconds = sum(v.interval_s for v in vertices)
    return Flow(
        sum(v.arrivals for v in vertices) / seconds,
        weighed(lambda v: v.arrival_scv, lambda v: v.arrivals),
        weighed(lambda v: v.service_s, lambda v: v.served),
        weighed(lambda v: v.service_scv, lambda v: v.served),
    )


def network(flows: Mapping[str, Flow], model: str, one_branch: bool = False) -> Network:
    """As DRS has it, from what was measured."""
    stations = {
        name: Station(
            flow.rate,
            1 / flow.service_s,
            *((flow.arrival_scv, flow.service_scv) if model == "gigk" else ()),
        )
        for name, flow in flows.items()
    }
    return Network(stations, flows["extract"].rate, dict.fromkeys(flows, 1.0) if one_branch else {})


def agreements(lab: Lab) -> Agreement:
    """What both models say of the applications and of random topologies, each by what is measured
    of it in the simulator, for all K_max up to 48 that leave room."""
    seed, count = lab.seed_of("rates"), QUICK_SHAPES if lab.quick else SHAPES
    own: list[Shape] = [vld(scale=5.0, drawn=seed), fpd()]
    own += [real(name, seed) for name in ("vld", "fpd", "fpd-all")]
    some = own + [random_shape(lab.seed * SHAPES + number) for number in range(count)]
    found = []
    for shape in some:
        both = {model: seen_in(shape, model, lab) for model in THEIRS}
        least = sum(s.min_processors for s in both["mmk"].stations.values())
        for processors in range(least + 1, MOST_PROCESSORS + 1):
            plans = {m: dict(assign_processors(n, processors).allocation) for m, n in both.items()}
            plan = plans["mmk"]
            one, other = (both[model].mean_sojourn(plan) for model in THEIRS)
            each = [
                both["gigk"].stations[name].mean_sojourn(k)
                / both["mmk"].stations[name].mean_sojourn(k)
                for name, k in plan.items()
            ]
            served = sum(
                both["mmk"].visits(name) / station.service_rate
                for name, station in both["mmk"].stations.items()
            )
            found.append(
                Case(
                    f"{shape.name}, {processors}",
                    plan == plans["gigk"],
                    other / one,
                    max(each, key=lambda ratio: abs(math.log(ratio))),
                    1 - served / one,
                    shape in own,
                )
            )
    return found


def seen_in(shape: Shape, model: str, lab: Lab) -> Network:
    """A network of what is measured in the simulator, with ample processors."""

    def look() -> Samples:
        best = {name: s.min_processors + 1 for name, s in shape.network().stations.items()}
        engine = SimulatedEngine(
            shape.topology(best, sleep=False),
            shape.workload(),
            SimulatorSettings(),
            EngineSettings(batch_s=3600.0),
            seed=shape.seed + lab.seed,
        )
        look_s = _QUICK_LOOK_S if lab.quick else _LOOK_S
        engine.advance(0.1 * look_s)
        engine.samples()
        engine.advance(1.1 * look_s)
        return engine.samples()

    samples: Samples = lab.once(f"fig10 {shape.name}", look)
    known = dict.fromkeys(shape.service, "operator")
    known |= dict.fromkeys(shape.sources, "source") | {"out": "sink"}
    settings = ControlSettings(max_sojourn_s=1.0, model=model)
    seen = measured(samples, None, known, settings)
    if not isinstance(seen, Measure):
        raise TopologyFailed(f"{shape.name}: nothing could be measured: {seen.reason}")
    found = network_of(seen, settings)
    if not isinstance(found, Network):
        raise TopologyFailed(f"{shape.name}: there is no model of what was measured: {found}")
    names = list(shape.service)
    return Network({name: found.stations[name] for name in names}, found.external_rate)


def with_code(lab: Lab) -> tuple[list[Series], dict[str, Flow], dict[str, float]]:
    """Real code, with rates that are drawn anew every second; how much of the CPU was used, and how
    many times its CPU time a call slept."""
    mean_rate = coded("vld").rate * REAL_BUSY / BUSY["vld"]
    steps = varied(lab.seed_of("frames"), 0.4 * mean_rate, 1.6 * mean_rate).steps
    times = sleeps(lab, "vld")
    shape = coded("vld", steps, mean_rate, times)
    best, *rivals = of_code(shape)

    def measured(one: Shape) -> tuple[list[Series], dict[str, Flow], float]:
        samples: list[Samples] = []
        with Steal() as steal:
            some = paired.in_turns(lab, one, [best, *rivals], samples.append)
        return some, {name: flow_of(samples, name) for name in NAMES}, steal.told()["busy"]

    (found,) = lab.each(measured, [shape], 1)
    return found[0], found[1], {"busy": found[2], "sleeps": times}


def of_code(shape: Shape) -> list[dict[str, int]]:
    """The recommended allocation and its two nearest."""
    network = shape.network()
    best = dict(assign_processors(network, PROCESSORS).allocation)
    rivals = neighbours(network, best, 2)
    if len(rivals) < 2:
        raise InputError(
            f"{shape.name}: with {PROCESSORS} processors there must be two allocations beside the "
            f"best that keep up; there is {len(rivals)}, so fewer processors must be busy"
        )
    return [best, *rivals]


def run(lab: Lab) -> Finding:
    """Both kinds of arrivals at both rates, and how often the models agree."""
    agree = agreements(lab)  # what may be refused comes before what takes long
    made = shapes(lab.seed_of("frames"))
    every = [shape for both in made.values() for shape in both]
    some = iter(lab.each(partial(of_shape, lab), every, 4))
    found: Found = {kind: [next(some) for _ in both] for kind, both in made.items()}
    real = with_code(lab) if lab.engine == "spark" and not lab.quick else None
    return told(found, agree, lab.quick, real)


def told(
    found: Found,
    agree: Agreement,
    quick: bool,
    real: tuple[list[Series], dict[str, Flow], dict[str, float]] | None = None,
) -> Finding:
    """What they show."""
    unsure = "too short to tell" if quick else "not told apart"
    claims, rows = [], []
    figures: dict[str, Any] = {"agreement": [vars(case) for case in agree]}
    for kind, both in found.items():
        claims += _claims(kind, both, unsure)
        for rate, (some, flows) in zip(RATES, both, strict=True):
            at = f"{rate:g}/s, {kind}"
            rows += _rows(at, kind, some, flows)
            figures[at] = {
                "measured_s": {one.label: one.mean_s for one in some},
                "parts": {one.label: one.parts for one in some},
                "stations": {name: vars(flow) for name, flow in flows.items()},
                "estimated_s": {
                    f"{model}{', one branch' if branch else ''}": {
                        one.label: network(flows, model, branch).mean_sojourn(one.allocation)
                        for one in some
                    }
                    for model in THEIRS
                    for branch in (False, True)
                },
            }
    claims += _agreeing(agree)
    if real is not None:
        claims += unless_busy([_real(*real[:2])], real[2]["busy"])
        figures["real code"] = {
            **real[2],
            "measured_s": {one.label: one.mean_s for one in real[0]},
            "stations": {name: vars(flow) for name, flow in real[1].items()},
        }
    return judged(tentative(claims, quick), figures, rows, partial(draw, found))


def over(one: Series, flows: Mapping[str, Flow], model: str, branch: bool) -> Estimate:
    """The logarithm of measured over estimated."""
    expected = network(flows, model, branch).mean_sojourn(one.allocation)
    return paired.jackknife(lambda totals: math.log(paired.mean(totals[0]) / expected), [one])


def _claims(
    kind: str, both: Sequence[tuple[list[Series], dict[str, Flow]]], unsure: str
) -> list[Claim]:
    paper, of = "ToN fig. 10", f"({TOLD[kind]})"
    picks = {
        f"{model} at {rate:g}/s": ":".join(
            map(str, assign_processors(network(flows, model), PROCESSORS).allocation.values())
        )
        for rate, (_, flows) in zip(RATES, both, strict=True)
        for model in THEIRS
    }
    right = all(picks[f"{m} at {rate:g}/s"] == one for m, one in THEIRS.items() for rate in RATES)
    ratios = {
        f"{one.label} at {rate:g}/s": paired.ratio(one, some[0])
        for rate, (some, _) in zip(RATES, both, strict=True)
        for one in some[1:]
    }
    best = paired.every(list(ratios.values()), 1.0)
    more = {
        f"{name} at {rate:g}/s": (flow.arrival_scv + flow.service_scv) / 2
        for rate, (_, flows) in zip(RATES, both, strict=True)
        for name, flow in flows.items()
        if name != "aggregate"
    }
    stochastic = all(value > 1 for value in more.values())
    low = min(more, key=lambda name: more[name])
    claims = [
        Claim(
            paper,
            f"M/M/k prefers (3:3:1), and GI/G/k suggests (2:4:1) {of}",
            "they do at both rates, with the rates, times and variabilities that were measured at "
            "each station",
            ", ".join(f"{name} {pick}" for name, pick in picks.items()),
            None,
            f"our times were chosen for it; they {'do' if right else 'pick others'}",
        ),
        Claim(
            paper,
            f"(2:4:1) is the measured best {of}",
            "each other allocation of seven processors that keeps up has a longer mean sojourn at "
            "both rates: holds if that is sure of each, with 95 % confidence in pairs; does not if "
            "one is shorter, by Holm's correction",
            "over (2:4:1): " + ", ".join(f"{figure:.3f} ({n})" for n, figure in ratios.items()),
            best,
            {True: "", False: "another one is better", None: unsure}[best],
        ),
        _second(paper, of, both, unsure),
        Claim(
            paper,
            "arrivals and service of extractor and matcher are more variable than those of "
            f"exponential distributions {of}",
            "the mean of both squared coefficients of variation, as measured, is above 1 for both "
            "operators at both rates",
            ", ".join(f"{value:.2f} ({name})" for name, value in more.items()),
            None,
            "frames and parts were chosen by us, as the paper does not give them; "
            f"{'all are' if stochastic else f'it is {more[low]:.2f} for {low}'}",
        ),
    ]
    for branch in (False, True):
        reading = "along one branch" if branch else "as printed"
        claims += _estimates(both, branch, f"with eq. 4 {reading} {of}", unsure)
    return claims


def _second(
    paper: str, of: str, both: Sequence[tuple[list[Series], dict[str, Flow]]], unsure: str
) -> Claim:
    """The paper shows two allocations; the second is the one that M/M/k prefers."""
    ratios = {
        f"{one.label} at {rate:g}/s": paired.ratio(one, some[1])
        for rate, (some, _) in zip(RATES, both, strict=True)
        for one in some[2:]
    }
    second = paired.every(list(ratios.values()), 1.0)
    return Claim(
        paper,
        f"(3:3:1), which M/M/k prefers, is the second best {of}",
        "each one but (2:4:1) has a longer mean sojourn at both rates: holds if that is sure of "
        "each, with 95 % confidence in pairs; does not if one is shorter, by Holm's correction",
        "over (3:3:1): " + ", ".join(f"{figure:.3f} ({n})" for n, figure in ratios.items()),
        second,
        {True: "", False: "another one is better", None: unsure}[second],
    )


def _estimates(
    both: Sequence[tuple[list[Series], dict[str, Flow]]], branch: bool, of: str, unsure: str
) -> list[Claim]:
    """Of the two allocations that the paper shows."""
    shown = [(rate, some[:2], flows) for rate, (some, flows) in zip(RATES, both, strict=True)]
    under = {
        f"{one.label} at {rate:g}/s": over(one, flows, "mmk", branch)
        for rate, some, flows in shown
        for one in some
    }
    (_, low, at_low), (_, high, at_high) = shown
    rises = [
        difference(over(b, at_high, "mmk", branch), over(a, at_low, "mmk", branch))
        for a, b in zip(low, high, strict=True)
    ]
    nearer = {
        f"{one.label} at {rate:g}/s": _nearer(one, flows, branch)
        for rate, some, flows in shown
        for one in some
    }
    is_under, grows = paired.every([*under.values()], 0.0), paired.every(rises, 0.0)
    underestimates = False if False in (is_under, grows) else is_under and grows
    better = paired.every(list(nearer.values()), 0.0)
    ratios = ", ".join(f"{math.exp(figure.value):.3f} ({name})" for name, figure in under.items())
    added = "parts run side by side, and eq. 4 adds them up" if not branch else "it is not lower"
    why = "it does not underestimate more at the higher rate" if is_under else added
    return [
        Claim(
            "ToN fig. 10",
            f"M/M/k underestimates, and more so at the higher rate, {of}",
            "measured over M/M/k is above 1 for (2:4:1) and (3:3:1) at both rates, and higher at "
            "the higher rate, with 95 % confidence of each; it does not hold if one of them is "
            "the other way round, by Holm's correction",
            f"measured over M/M/k: {ratios}",
            underestimates,
            {True: "", False: why, None: unsure}[underestimates],
        ),
        Claim(
            "ToN fig. 10",
            f"GI/G/k estimates more accurately than M/M/k, {of}",
            "measured over GI/G/k is nearer to 1 than measured over M/M/k, by logarithms, for "
            "(2:4:1) and (3:3:1) at both rates, with 95 % confidence of each; it does not hold if "
            "one is further from it, by Holm's correction",
            "nearer by a factor of "
            + ", ".join(f"{math.exp(f.value):.3f} ({name})" for name, f in nearer.items()),
            better,
            {True: "", False: "it is further from what is measured", None: unsure}[better],
        ),
    ]


def _real(some: list[Series], flows: Mapping[str, Flow]) -> Claim:
    picks = {
        model: ":".join(
            map(str, assign_processors(network(flows, model), PROCESSORS).allocation.values())
        )
        for model in THEIRS
    }
    picked = [one for one in some if one.label == picks["gigk"]]
    others = [one for one in some if one.label != picks["gigk"]]
    ratios = {one.label: paired.ratio(one, picked[0]) for one in others} if picked else {}
    holds = paired.every(list(ratios.values()), 1.0) if picked else None
    why = "another one is better" if holds is False else "not told apart"
    return Claim(
        "ours",
        "with real code, the allocation that GI/G/k suggests is the measured best",
        "each other one of those measured has a longer mean sojourn: holds if that is sure of "
        "each, with 95 % confidence in pairs; does not if one is shorter, by Holm's correction; "
        "cannot be decided if it was not measured",
        f"M/M/k suggests ({picks['mmk']}), GI/G/k ({picks['gigk']}); over the latter: "
        + (
            ", ".join(f"{figure:.3f} ({name})" for name, figure in ratios.items()) or "not measured"
        ),
        holds,
        "" if holds else why if picked else "it was not measured",
    )


def _nearer(one: Series, flows: Mapping[str, Flow], branch: bool) -> Estimate:
    """How much nearer GI/G/k is, by logarithms."""
    mmk, gigk = (network(flows, m, branch).mean_sojourn(one.allocation) for m in ("mmk", "gigk"))

    def figure(totals: list[Part]) -> float:
        mean_s = paired.mean(totals[0])
        return abs(math.log(mean_s / mmk)) - abs(math.log(mean_s / gigk))

    return paired.jackknife(figure, [one])


def _agreeing(agree: Agreement) -> list[Claim]:
    some = [case for case in agree if case.counts]
    cases = (
        f"{len(some)} cases: K_max of an application at which waiting is more than {WAITING:.0%} "
        "of E[T], by what is measured of it in the simulator"
    )
    same = [case.same for case in some]
    close = [abs(case.ratio - 1) <= CLOSE for case in some]
    each = [abs(case.furthest - 1) <= CLOSE for case in some]
    rest = [case for case in agree if not case.counts]
    beside = f"in {_share([c.same for c in rest])} of {len(rest)} others" if rest else "no others"
    kinds: tuple[tuple[str, str, list[bool], str], ...] = (
        (
            "both models suggest the same allocation",
            "in more than half of the cases; a case is an application and a K_max",
            same,
            "they suggest others more often than not",
        ),
        (
            "E[T] by the extended model is close to that by the basic one",
            f"within {CLOSE:.0%}, with the allocation that M/M/k suggests, in more than half of "
            "the cases",
            close,
            "they differ more often than not",
        ),
        (
            "E[T_i] by the extended model is close to that by the basic one",
            f"that of each operator is within {CLOSE:.0%}, with the allocation that M/M/k "
            "suggests, in more than half of the cases",
            each,
            "that of one operator differs more often than not",
        ),
    )
    return [
        Claim(
            "ToN §V-D",
            f"in most cases, {says}",
            rule,
            f"in {_share(those)} of {cases}" + (f"; {beside}" if those is same else ""),
            2 * sum(those) > len(those) if those else None,
            "" if 2 * sum(those) > len(those) else why if those else "nobody waits anywhere",
        )
        for says, rule, those, why in kinds
    ]


def _share(some: Sequence[bool]) -> str:
    return f"{statistics.fmean(some):.0%}" if some else "none"


def _rows(
    at: str, kind: str, some: Sequence[Series], flows: Mapping[str, Flow]
) -> list[tuple[str, str, str]]:
    best = min(some, key=lambda one: one.mean_s)
    rows = [(f"measured best at {at}", BEST, best.label)]
    for model, theirs in THEIRS.items():
        pick = assign_processors(network(flows, model), PROCESSORS).allocation
        rows.append((f"{model} picks at {at}", theirs, ":".join(map(str, pick.values()))))
    for name, flow in flows.items():
        rows.append(
            (
                f"squared coefficients of variation of gaps and of times, {name} at {at}",
                "above 1" if name != "aggregate" and kind == "rates" else "",
                f"{flow.arrival_scv:.2f} and {flow.service_scv:.2f}",
            )
        )
    return rows


def draw(found: Found, figure: Any) -> None:
    """As theirs: bars for what is measured and for both models, of two allocations."""
    place = 0
    for kind, both in found.items():
        for rate, (some, flows) in zip(RATES, both, strict=True):
            place += 1
            axes = figure.add_subplot(2, 2, place)
            bars = {
                "measured": [one.mean_s for one in some[:2]],
                "M/M/k": [network(flows, "mmk").mean_sojourn(o.allocation) for o in some[:2]],
                "GI/G/k": [network(flows, "gigk").mean_sojourn(o.allocation) for o in some[:2]],
            }
            for number, (name, values) in enumerate(bars.items()):
                heights = [value * FASTER * 1e3 for value in values]
                axes.bar([number * 0.25, 1 + number * 0.25], heights, 0.22, label=name)
            axes.set_xticks([0.25, 1.25], [one.label for one in some[:2]])
            axes.set(title=f"{rate:g}/s, {kind}", ylabel="sojourn, ms of the paper's time")
            if place == 1:
                axes.legend(loc="lower right")
