"""DRS ToN fig. 7 (ICDCS fig. 7): estimated against measured sojourn of the allocations of fig. 6.
ICDCS calls what they show strictly monotonic, ToN positively correlated. Estimates are slightly low
for logo detection and lower for patterns, whose network costs the model leaves out.

The estimate is eq. 4 with M/M/k stations, read as printed: the times of a tuple and of all that
derive from it are added up, with the rates and times that were measured at each station, as DRS has
it. A tree is done when its last branch is, so where a message becomes
several at once, that is more than anybody waits. What one branch takes, if each tuple is followed
by one of those that derive from it, is told as well, as the other reading of eq. 4.

Both the order and the ratios are tested in pairs, under the same traffic, with 95 % confidence. A
pair of allocations is in order if the one with the higher estimate is the slower one. Of the
fifteen pairs of an application those whose estimates differ by less than 1 % need not be in order
for sure, as nobody could tell what is so close: times are ours. Monotonicity holds, as far as
estimates differ by more, if all others of both applications are in order for sure; it does not if
any pair is in the wrong order, by Holm's correction. What GI/G/k
estimates is by how variable arrivals and times were measured to be at each station, and is asked of
applications where both are less so than exponential ones wherever there is something to do.
Correlation is that of ranks, of which chance gives 0.829 or more in 3 % of the cases. In quick
runs, what does not hold cannot be decided. Nothing else decides."""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import drs_fig6
import paired
from controlled import tentative
from lab import Claim, Finding, Lab, judged
from paired import Estimate, Part, Series
from shapes import Shape

RANKS = 0.829  # of six, or more: 3 % by chance
STRONG = 0.9
SLIGHT = 1.25
CLOSE = 1.01  # times as long by the model: nobody can tell such allocations apart
_SOME = 0.1  # processors busy
NOTES = drs_fig6.NOTES


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each in order; equal ones share the mean of theirs."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def branch(shape: Shape) -> Shape:
    """The other reading: no tuple is followed by more than one."""
    return replace(shape, gains={edge: min(1.0, gain) for edge, gain in shape.gains.items()})


def estimates(
    shape: Shape, some: Sequence[Series], one_branch: bool = False, model: str = "mmk"
) -> list[float]:
    """By eq. 4, as printed or along one branch. Either way stations have all of their load."""
    network = shape.network(model)
    if all(one.seen for one in some):
        network = paired.measured_network(network, next(iter(shape.service)), some, model)
    if one_branch:
        alone = branch(shape).network()
        weights = {n: s.arrival_rate / alone.external_rate for n, s in alone.stations.items()}
        network = replace(network, weights=weights)
    return [network.mean_sojourn(one.allocation) for one in some]


def pairs(shape: Shape, some: Sequence[Series]) -> dict[str, tuple[Estimate, bool]]:
    """Of each two allocations, the ratio of the mean sojourn of the one with the higher estimate to
    that of the other, and whether the model has them close together."""
    order = sorted(zip(estimates(shape, some), some, strict=True), key=lambda one: one[0])
    return {
        f"{shape.name} {slow.label} and {fast.label}": (
            paired.ratio(slow, fast),
            high <= CLOSE * low,
        )
        for (low, fast), (high, slow) in itertools.combinations(order, 2)
    }


def over(shape: Shape, some: Sequence[Series], one_branch: bool = False) -> Estimate:
    """Measured over estimated, on average."""
    expected = estimates(shape, some, one_branch)

    def of(totals: list[Part]) -> float:
        return statistics.fmean(
            paired.mean(total) / one for total, one in zip(totals, expected, strict=True)
        )

    return paired.jackknife(of, some)


def correlation(shape: Shape, some: Sequence[Series], of: Callable[..., Any] = list) -> Estimate:
    """Of estimated and measured, or of what is made of them."""
    expected = of(estimates(shape, some))

    def figure(totals: list[Part]) -> float:
        return statistics.correlation(expected, of([paired.mean(total) for total in totals]))

    return paired.jackknife(figure, some)


def run(lab: Lab) -> Finding:
    """Compare."""
    return told(drs_fig6.measured(lab), lab.quick)


def told(found: drs_fig6.Found, quick: bool) -> Finding:
    """What they show."""
    theirs = {shape.name: (shape, some) for shape, some in found if shape.name in drs_fig6.PAPER}
    own = {shape.name: (shape, some) for shape, some in found if shape.name not in drs_fig6.PAPER}
    unsure = "too short to tell" if quick else "not told apart"
    claims = [_monotonic("ICDCS fig. 7", "", theirs, unsure), _positive("ToN fig. 7", theirs)]
    if own:
        of_own = "with the CPU times of our applications, "
        claims.append(_monotonic("ours", of_own, own, unsure))
        claims.append(_poorer([one for one in own.values() if _is_steady(*one)], unsure))
    if len(theirs) == len(drs_fig6.PAPER):
        claims += [*_ratios({name: over(*one) for name, one in theirs.items()}, unsure)]
        claims.append(_strong(correlation(*theirs["fpd"]), quick))
        claims.append(_order({"fpd": theirs["fpd"]}, unsure))
    rows, figures = [], {}
    for shape, some in found:
        measured = [one.mean_s for one in some]
        both = [estimates(shape, some, one_branch) for one_branch in (False, True)]
        figures[shape.name] = {
            "allocations": [one.label for one in some],
            "estimated_s": both[0],
            "one_branch_s": both[1],
            "measured_s": measured,
        }
        rank = statistics.correlation(ranks(both[0]), ranks(measured))
        paper = {"vld": "slightly above 1", "fpd": "above 1, more than for vld"}
        rows += [
            (f"rank correlation, {shape.name}", "1 (ICDCS)", f"{rank:.2f}"),
            (
                f"measured over estimated, {shape.name}",
                paper.get(shape.name, ""),
                f"{over(shape, some):.3f}",
            ),
            (
                f"measured over the estimate of one branch, {shape.name}",
                "",
                f"{over(shape, some, one_branch=True):.3f}",
            ),
        ]
    return judged(tentative(claims, quick), figures, rows, partial(draw, figures))


Applications = Mapping[str, tuple[Shape, list[Series]]]


def _monotonic(paper: str, of: str, found: Applications, unsure: str) -> Claim:
    both = {name: pair for one in found.values() for name, pair in pairs(*one).items()}
    some = {name: ratio for name, (ratio, _) in both.items()}
    apart = [ratio for ratio, close in both.values() if not close]
    wrong = [name for name, ratio in some.items() if ratio.below(1.0) <= paired.SURE]
    sure = [ratio.above(1.0) <= paired.SURE for ratio in apart]
    contradicted = paired.rejected([ratio.below(1.0) for ratio in some.values()])
    holds = False if contradicted else True if sure and all(sure) else None
    worst = min(some, key=lambda name: some[name].value)
    return Claim(
        paper,
        f"{of}measured sojourn is strictly monotonic in the estimated one, over the six "
        "allocations of each application, as far as estimates differ by more than 1 %",
        "of each two allocations, the one with the higher estimate is the slower one: holds if "
        "that is sure for all pairs of all applications whose estimates differ by more than 1 %, "
        "with 95 % confidence each; does not if any pair at all is the other way round, by Holm's "
        "correction",
        f"{sum(sure)} of {len(apart)} such pairs are in order for sure, {len(some) - len(apart)} "
        f"are closer, {len(wrong)} of all are the other way round; the worst is {worst}, with a "
        f"ratio of {some[worst]:.3f}",
        holds,
        {True: "", False: f"{worst} are the other way round", None: unsure}[holds],
    )


def _order(found: Applications, unsure: str) -> Claim:
    """ToN says it of patterns alone, whose estimates it finds too low."""
    says = "the model indicates the relative performance order of allocations of pattern detection"
    return replace(_monotonic("ToN fig. 7", "", found, unsure), says=says)


def _is_steady(shape: Shape, some: Sequence[Series]) -> bool:
    """Whether arrivals and times are less variable than those of exponential distributions, at all
    operators that have something to do."""
    network = shape.network("gigk")
    if all(one.seen for one in some):
        network = paired.measured_network(network, next(iter(shape.service)), some, "gigk")
    return all(
        s.arrival_scv < 1 and s.service_scv < 1
        for s in network.stations.values()
        if s.offered_load > _SOME
    )


def _poorer(steady: Sequence[tuple[Shape, list[Series]]], unsure: str) -> Claim:
    """What ToN expects of the extended model where it makes estimates less."""
    further = {shape.name: _further(shape, some) for shape, some in steady}
    holds = paired.every([figure for figure, _ in further.values()], 0.0) if further else None
    why = {
        True: "",
        False: "GI/G/k is nearer to what is measured",
        None: unsure if further else "each of them has an operator with more variable ones",
    }
    return Claim(
        "ToN §V-D",
        "where arrivals and times of service are less variable than exponential ones, GI/G/k "
        "estimates less than M/M/k, and more poorly, as M/M/k is too low already",
        "of those of our applications that have none more variable, measured over GI/G/k is "
        "further from 1 than measured over M/M/k, by logarithms and on average over six "
        "allocations, with 95 % confidence; it does not hold if it is nearer with as much",
        "; ".join(
            f"{name}: further by a factor of {math.exp(figure.value):.3f}; the extended model's "
            f"estimates are {min(ratios):.3f} to {max(ratios):.3f} times the basic one's"
            for name, (figure, ratios) in further.items()
        )
        or "there is none",
        holds,
        why[holds],
    )


def _further(shape: Shape, some: Sequence[Series]) -> tuple[Estimate, list[float]]:
    """By how much GI/G/k is further from what is measured, as a logarithm, and its estimates over
    those of M/M/k."""
    basic, extended = (estimates(shape, some, model=model) for model in ("mmk", "gigk"))

    def figure(totals: list[Part]) -> float:
        return statistics.fmean(
            abs(math.log(mean_s / gigk)) - abs(math.log(mean_s / mmk))
            for mean_s, mmk, gigk in zip(map(paired.mean, totals), basic, extended, strict=True)
        )

    ratios = [one / other for one, other in zip(extended, basic, strict=True)]
    return paired.jackknife(figure, some), ratios


def _positive(paper: str, found: Applications) -> Claim:
    by_name = {name: correlation(*one, of=ranks).value for name, one in found.items()}
    low = min(by_name.values())
    falls = any(correlation(*one).below(0.0) <= paired.SURE for one in found.values())
    holds = False if falls else True if low >= RANKS else None
    why = "no correlation" if holds is False else f"chance gives less than {RANKS} too often"
    return Claim(
        paper,
        "estimated and measured sojourn are positively correlated, for both applications",
        f"the rank correlation of six allocations is at least {RANKS}, which chance gives in 3 % "
        "of the cases, for both; it does not hold if the correlation of one is below 0, with 95 % "
        "confidence",
        ", ".join(f"{value:.2f} for {name}" for name, value in by_name.items()),
        holds,
        "" if holds else why,
    )


def _ratios(found: Mapping[str, Estimate], unsure: str) -> list[Claim]:
    vld, fpd = found["vld"], found["fpd"]
    slightly = paired.between(vld, 1.0, SLIGHT)
    above = paired.every([fpd], 1.0)
    away = [abs(one.value - 1) for one in (fpd, vld)]
    error = (fpd.error**2 + vld.error**2) ** 0.5
    larger = paired.every([Estimate(away[0] - away[1], error, fpd.freedom)], 0.0)
    told = f"measured over estimated: {vld:.3f} for vld, {fpd:.3f} for fpd"
    added = "eq. 4 adds up the branches of a message, which run side by side"
    return [
        Claim(
            "ToN and ICDCS fig. 7",
            "estimates are accurate for logo detection, and slightly too low",
            f"measured over estimated is between 1 and {SLIGHT:g}, on average over six "
            "allocations, with its whole interval of 95 %; it does not hold if all of that is "
            "outside",
            told,
            slightly,
            {True: "", False: f"it is {vld:.3f}", None: unsure}[slightly],
        ),
        Claim(
            "ToN and ICDCS fig. 7",
            "estimates are too low for pattern detection, as the model leaves out the network",
            "measured over estimated is above 1, on average over six allocations, with 95 % "
            "confidence; it does not hold if it is below 1 with as much",
            told,
            above,
            {True: "", False: added, None: unsure}[above],
        ),
        Claim(
            "ToN and ICDCS fig. 7",
            "estimates deviate more from what is measured for pattern detection",
            "measured over estimated is further from 1 than for logo detection, with 95 % "
            "confidence; it does not hold if it is nearer with as much",
            told,
            larger,
            {True: "", False: "it is nearer", None: unsure}[larger],
        ),
    ]


def _strong(found: Estimate, quick: bool) -> Claim:
    holds = paired.every([found], STRONG)
    if quick and not holds:
        holds = None  # noise alone makes a correlation less
    return Claim(
        "ToN and ICDCS fig. 7",
        "estimates for pattern detection are strongly correlated with the true values, so that a "
        "regression can make predictions of them",
        f"the correlation over six allocations is above {STRONG:g} with 95 % confidence; it does "
        "not hold if it is below that with as much, in a full run",
        f"{found:.3f}",
        holds,
        {True: "", False: "they are correlated less", None: "too short to tell"}[holds],
    )


def draw(figures: Mapping[str, Mapping[str, Any]], figure: Any) -> None:
    """As theirs: a point for each allocation."""
    for number, (name, one) in enumerate(figures.items(), 1):
        axes = figure.add_subplot(2, -(-len(figures) // 2), number)
        for what, label, mark in (
            ("estimated_s", "eq. 4", "o"),
            ("one_branch_s", "one branch", "x"),
        ):
            axes.plot(one[what], one["measured_s"], mark, label=label)
        some = [*one["estimated_s"], *one["measured_s"]]
        axes.plot([min(some), max(some)], [min(some), max(some)], ":", c="grey")
        axes.set(title=name, xlabel="estimated, s", ylabel="measured, s")
        if number == 1:
            axes.legend()
