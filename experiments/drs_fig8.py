"""DRS ToN fig. 8 (ICDCS fig. 9): 22 processors in three initial placements, which may be changed
from the 14th of 27 minutes on. All end at the same optimum; the change costs little and takes
seconds. A minute is five seconds here."""

import math
from typing import Any

from lab import Finding, Lab
from shapes import Shape, fpd, vld

from sojourn.control.controller import Record
from sojourn.queueing import assign_processors
from sojourn.settings import ControlSettings

MINUTE_S = 5.0
NOTES = (
    "operators sleep, those of vld a fifth of their times; a minute is five seconds; quick runs on "
    "Spark have 12 minutes, may change from the 6th on and leave out fpd; change.gain is 0.01 and "
    "change.doubt 0, so that any better placement is taken, as in the papers: by default one that "
    "gains less than a tenth, or perhaps nothing, is left alone"
)
STARTS = {
    "vld": ((10, 11, 1), (8, 12, 2), (11, 9, 2)),
    "fpd": ((6, 13, 3), (8, 12, 2), (7, 13, 2)),
}


def run(lab: Lab) -> Finding:
    """Each start once."""
    shapes = [vld(scale=5.0)] if lab.quick and lab.engine == "spark" else [vld(scale=5.0), fpd()]
    minutes, allowed = (12, 6) if lab.quick and lab.engine == "spark" else (27, 14)
    settings = ControlSettings(
        max_processors=22,
        interval_s=MINUTE_S,
        window=allowed,
        gain=0.01,
        doubt=0.0,
        model="mmk",  # as in the paper
    )
    curves: dict[str, dict[str, list[float]]] = {}
    ends: dict[str, dict[str, str]] = {}
    costs: list[float] = []
    lab.resized_s.clear()
    cases = [(shape, start) for shape in shapes for start in STARTS[shape.name]]

    def records_of(case: tuple[Shape, tuple[int, ...]]) -> list[Record]:
        shape, start = case
        allocation = dict(zip(shape.service, start, strict=True))
        return lab.controlled(shape, allocation, settings, minutes * MINUTE_S, allowed * MINUTE_S)

    for (shape, start), records in zip(cases, lab.each(records_of, cases, 3), strict=True):
        label = ":".join(map(str, start))
        means = [r.samples.sojourn.mean_s if r.samples.sojourn else math.nan for r in records]
        curves.setdefault(shape.name, {})[label] = means
        last = records[-1].samples.vertices
        end = ":".join(str(last[n].processors) for n in shape.service)
        ends.setdefault(shape.name, {})[label] = end
        for number, record in enumerate(records[:-3]):
            if record.applied:
                before, after = means[number], sum(means[number + 2 : number + 4]) / 2
                costs += [c for c in [means[number + 1] / max(before, after)] if not math.isnan(c)]
    rows, words, holds = [], [], True
    for shape in shapes:
        best = ":".join(map(str, assign_processors(shape.network(), 22).allocation.values()))
        found = sorted(set(ends[shape.name].values()))
        holds &= found == [best]
        rows.append(
            (
                f"all end at, {shape.name}",
                ":".join(map(str, STARTS[shape.name][0])),
                " ".join(found),
            )
        )
        words.append(f"{shape.name}: {' and '.join(ends[shape.name])} end at {' and '.join(found)}")
    worst = max(costs, default=0.0)
    rows.append(
        (
            "mean sojourn in the minute of a change, over the larger of before and after",
            "small",
            f"{worst:.2f} at the most",
        )
    )
    if lab.resized_s:
        rows.append(
            (
                "seconds that a change takes",
                "a few; Storm's own one to two minutes",
                f"{max(lab.resized_s):.2f} at the most",
            )
        )

    def draw(figure: Any) -> None:
        for number, (name, found) in enumerate(curves.items(), 1):
            axes = figure.add_subplot(1, len(curves), number)
            for label, means in found.items():
                axes.plot(
                    range(1, len(means) + 1), means, ".-", label=f"{label} → {ends[name][label]}"
                )
            axes.axvline(allowed, ls=":", c="grey")
            axes.set(title=name, xlabel=f"minutes of {MINUTE_S:g} s", ylabel="sojourn, s")
            axes.legend()

    return Finding(
        {"curves": curves, "ends": ends, "costs": costs, "resized_s": lab.resized_s},
        rows,
        "; ".join(words),
        bool(holds),
        draw,
    )
