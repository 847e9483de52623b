"""DRS ToN fig. 6 (ICDCS fig. 6): mean and deviation of the sojourn for the recommended allocation
of 22 processors and its five nearest neighbours, of video logo detection and frequent pattern
detection. Theirs is the measured best: (10:11:1) and (6:13:3).

The papers give no service times. `vld` and `fpd` have times with which the model places 22 and 17
processors as theirs did, and the papers' rates: frames at a rate uniform in [1, 25] that is drawn
anew each second, 320 messages a second that come and as many that go. The others have the CPU times
of this project's applications, from one committed sample (cpu_times.json). Patterns are there
twice: a detector tells the instance concerned, or all of its instances, as the papers' does.

Neighbours are the five nearest that keep up, also those that hardly do, the better estimated first
among equals. All six have the same traffic and the same chance, so what is tested are differences
and ratios in pairs. A statement about all neighbours holds if each one's figure is beyond the bound
with 95 % confidence, one-sided; it does not if one's is on the other side, by Holm's correction;
else it cannot be decided. "Considerably worse" is a mean sojourn at least a tenth longer. The times
of vld and fpd are ours, and what the model itself has for each neighbour is told beside: where that
is less than a tenth, this follows from the times that we chose. In quick runs, what does not hold
cannot be decided. Nothing else decides."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import paired
from controlled import tentative
from lab import Claim, Finding, Lab, judged
from paired import Estimate, Series
from shapes import Shape, fpd, neighbours, real, vld

from sojourn.queueing import assign_processors

PROCESSORS, NEIGHBOURS = 22, 5
PAPER = {"vld": "10:11:1", "fpd": "6:13:3"}
WORSE = 1.1
BOTH = "ToN and ICDCS fig. 6"
NOTES = (
    "operators sleep on Spark; vld and fpd have the chosen times of examples/plans/vld.yaml and "
    "fpd.yaml, vld five times as fast with seconds of 0.2 s for its rates, fpd 15 times as slow; "
    "the other shapes have CPU times from experiments/cpu_times.json, lengthened, with a squared "
    "coefficient of variation between 0.05 and 4; the simulator has 20 minutes an allocation (5 in "
    "quick runs), Spark 2 minutes in ten turns (12 s in three), each with traffic of its own that "
    "is the same for all; on Spark all shapes run at the same time"
)

Found = list[tuple[Shape, list[Series]]]


def shapes(seed: int) -> list[Shape]:
    """As the papers place them and as they are here; neighbours in the list run together."""
    own = [real(name, seed) for name in ("vld", "fpd", "fpd-all")]
    return [vld(scale=5.0, drawn=seed), fpd(), *own]


def measured(lab: Lab) -> Found:
    """The recommended allocation first."""

    def of(shape: Shape) -> tuple[Shape, list[Series]]:
        network = shape.network()
        best = dict(assign_processors(network, PROCESSORS).allocation)
        allocations = [best, *neighbours(network, best, NEIGHBOURS)]
        return shape, paired.measure(lab, shape, allocations)

    some = shapes(lab.seed_of("rates"))
    found: Found = lab.once("fig6", lambda: lab.each(of, some, len(some)))
    return found


def run(lab: Lab) -> Finding:
    """Measure all of them."""
    return told(measured(lab), lab.quick)


def ratios(series: Sequence[Series]) -> list[Estimate]:
    """Of each neighbour's mean sojourn to that of the recommended allocation."""
    return [paired.ratio(one, series[0]) for one in series[1:]]


def deviations(series: Sequence[Series]) -> list[Estimate]:
    """The same of the deviations."""
    return [paired.jackknife(_deviation, [one, series[0]]) for one in series[1:]]


def _deviation(totals: list[paired.Part]) -> float:
    return paired.deviation(totals[0]) / paired.deviation(totals[1])


def told(found: Found, quick: bool) -> Finding:
    """What they show."""
    theirs = [(shape, some) for shape, some in found if shape.name in PAPER]
    own = [(shape, some) for shape, some in found if shape.name not in PAPER]
    claims = [
        Claim(
            BOTH,
            "with 22 processors, DRS recommends (10:11:1) for logo detection and (6:13:3) for "
            "pattern detection",
            "cannot be decided here by any run: the papers give no service times, and those of vld "
            "and fpd were chosen such that the model recommends these",
            "; ".join(f"{shape.name}: {some[0].label}" for shape, some in theirs),
            None,
            "our service times were chosen for it",
        )
    ]
    rest: list[tuple[str, str, Any, float]] = [
        (
            "the recommended allocation has the smallest mean sojourn of it and its five nearest",
            "the mean sojourn of each neighbour is above that of the recommended",
            ratios,
            1.0,
        ),
        (
            "it has the smallest standard deviation as well",
            "the deviation of each neighbour is above that of the recommended",
            deviations,
            1.0,
        ),
        (
            "all five nearest are considerably worse",
            f"the mean sojourn of each neighbour is at least {WORSE:g} times that of the "
            "recommended",
            ratios,
            WORSE,
        ),
    ]
    for says, rule, of, bound in rest:
        for paper, some, which in (
            (BOTH, theirs, "of both applications"),
            ("ours", own, "of all of our applications, with their own CPU times"),
        ):
            if some:
                if paper == "ours":
                    says_here = f"with the CPU times of our applications, {says}"
                else:
                    says_here = says
                claims.append(_judged(paper, says_here, f"{rule}, {which}", some, of, bound, quick))
    rows = [row for shape, some in found for row in _rows(shape, some)]
    figures = {shape.name: [_figures(one) for one in some] for shape, some in found}
    return judged(tentative(claims, quick), figures, rows, partial(draw, found))


def _judged(
    paper: str, says: str, rule: str, found: Found, of: Any, bound: float, quick: bool
) -> Claim:
    """A statement about all neighbours of all shapes."""
    figures = {
        f"{shape.name} {one.label}": figure
        for shape, some in found
        for one, figure in zip(some[1:], of(some), strict=True)
    }
    expected = {
        f"{shape.name} {one.label}": ratio
        for shape, some in found
        for one, ratio in zip(some[1:], _expected(shape, some), strict=True)
    }
    holds = paired.every(list(figures.values()), bound)
    least = min(figures, key=lambda name: figures[name].value)
    if holds is None:
        unsure = [n for n, figure in figures.items() if figure.above(bound) > paired.SURE]
        why = f"{'too short to tell' if quick else 'not told apart'}: {', '.join(unsure)}"
    else:
        why = "" if holds else f"{least} has {figures[least]:.3f} times the recommended one's"
    alike = [f"{expected[n]:.3f} ({n})" for n in figures if expected[n] < bound]
    if bound > 1 and alike and not holds:
        whose = "we chose" if paper == BOTH else "our applications have"
        why += f"; by the model itself, with the times that {whose}, they are {', '.join(alike)}"
    return Claim(
        paper,
        says,
        f"{rule}: holds if each is, with 95 % confidence in pairs, and does not if one is below "
        "that, by Holm's correction",
        "over the recommended: "
        + ", ".join(f"{figure:.3f} ({name})" for name, figure in figures.items()),
        holds,
        why,
    )


def _expected(shape: Shape, some: Sequence[Series]) -> list[float]:
    """The same by the model."""
    network = shape.network()
    best_s = network.mean_sojourn(some[0].allocation)
    return [network.mean_sojourn(one.allocation) / best_s for one in some[1:]]


def _rows(shape: Shape, some: Sequence[Series]) -> list[tuple[str, str, str]]:
    theirs = PAPER.get(shape.name, "")
    best = min(some, key=lambda one: one.mean_s)
    steady = min(some, key=lambda one: one.deviation_s)
    return [
        (f"recommended, {shape.name}", theirs, some[0].label),
        (f"measured best, {shape.name}", theirs, best.label),
        (f"least deviation, {shape.name}", theirs, steady.label),
        (
            f"mean sojourn of neighbours over that of the recommended, {shape.name}",
            "considerably above 1" if theirs else "",
            ", ".join(f"{figure:.3f}" for figure in ratios(some)),
        ),
    ]


def _figures(one: Series) -> dict[str, Any]:
    half_s = paired.jackknife(lambda totals: paired.mean(totals[0]), [one]).half
    return {
        "allocation": one.label,
        "mean_s": one.mean_s,
        "half_s": half_s,
        "deviation_s": one.deviation_s,
        "parts": one.parts,
    }


def draw(found: Found, figure: Any) -> None:
    """As theirs: a bar for the mean and one for the deviation."""
    for number, (shape, some) in enumerate(found, 1):
        axes = figure.add_subplot(2, -(-len(found) // 2), number)
        places = range(len(some))
        told = [_figures(one) for one in some]
        for shift, what in ((-0.2, "mean"), (0.2, "deviation")):
            bars = [one[f"{what}_s"] * 1e3 for one in told]
            axes.bar([place + shift for place in places], bars, 0.38, label=what)
        means, halves = ([one[what] * 1e3 for one in told] for what in ("mean_s", "half_s"))
        axes.errorbar([place - 0.2 for place in places], means, halves, fmt="none", c="k")
        labels = [f"{one.label}{'*' if one is some[0] else ''}" for one in some]
        axes.set_xticks(list(places), labels)
        title = f"{shape.name}, theirs best {PAPER[shape.name]}" if shape.name in PAPER else None
        axes.set(title=title or shape.name, ylabel="sojourn, ms")
        axes.tick_params(axis="x", labelsize=7)
        if number == 1:
            axes.legend()
