"""DRS ToN fig. 6: mean and deviation of the sojourn for the recommended allocation of 22 processors
and its five nearest neighbours, of video logo detection and frequent pattern detection. Theirs is
the measured best: (10:11:1) and (6:13:3).

The papers give no service times. `vld` and `fpd` have times with which the model places processors
as theirs did; the other two have those of this project's applications, as they are measured when
their code is called."""

from typing import Any

from lab import Finding, Lab, Measured, passing
from shapes import Shape, fpd, neighbours, real, vld

from sojourn.queueing import assign_processors

PROCESSORS = 22
PAPER = {"vld": "10:11:1", "fpd": "6:13:3"}
NOTES = (
    "operators sleep; vld is five times as fast as examples/plans/vld.yaml and fpd a fifth as fast "
    "as examples/plans/fpd.yaml, whose times are chosen; the other times are measured, and scaled"
)


def shapes() -> list[Shape]:
    """Two as the papers place them, two as they are here."""
    return [vld(scale=5.0), fpd(), real("vld"), real("fpd")]


def measured(lab: Lab) -> list[tuple[Shape, list[Measured]]]:
    """The recommended allocation first."""

    def of(shape: Shape) -> tuple[Shape, list[Measured]]:
        network = shape.network()
        best = dict(assign_processors(network, PROCESSORS).allocation)
        several = 3 if lab.quick and shape.name not in PAPER else 5
        allocations = [best, *neighbours(network, best, several)]
        return shape, lab.measure(shape, allocations, lab.seconds(10, 60))

    def all_of_them() -> list[tuple[Shape, list[Measured]]]:
        first, second, *others = shapes()  # the first two have enough to do for two cores
        return [of(first), of(second), *lab.each(of, others)]

    found: list[tuple[Shape, list[Measured]]] = lab.once("fig6", all_of_them)
    return found


def run(lab: Lab) -> Finding:
    """Measure all of them."""
    found = measured(lab)
    holds, words, rows = True, [], []
    for shape, results in found:
        recommended = results[0]
        best = min(results, key=lambda m: m.mean_s)
        good = passing(results)
        holds &= recommended in good and PAPER.get(shape.name, recommended.label) == (
            recommended.label
        )
        how = "is the measured best" if best is recommended else (
            f"is not told apart from the best, {best.label}" if recommended in good
            else f"is not the best, which is {best.label}"
        )  # fmt: skip
        words.append(f"{shape.name}: the recommended {recommended.label} {how}")
        theirs = PAPER.get(shape.name, "")
        rows += [
            (f"recommended, {shape.name}", theirs, recommended.label),
            (f"measured best, {shape.name}", theirs, best.label),
            (
                f"allocations not told apart from the best, {shape.name}",
                "",
                f"{len(good)} of {len(results)}",
            ),
        ]

    def draw(figure: Any) -> None:
        for number, (shape, results) in enumerate(found, 1):
            axes = figure.add_subplot(2, 2, number)
            labels = [f"{m.label}{'*' if m is results[0] else ''}" for m in results]
            axes.bar(labels, [m.mean_s for m in results], color="tab:blue", alpha=0.7)
            axes.errorbar(
                labels, [m.mean_s for m in results], [m.half_s for m in results], fmt="none", c="k"
            )
            axes.plot(labels, [m.deviation_s for m in results], "o", c="tab:orange")
            axes.set(title=f"{shape.name}: mean (bar), deviation (dot)", ylabel="sojourn, s")

    figures = {shape.name: [vars(m) for m in results] for shape, results in found}
    return Finding(figures, rows, "; ".join(words), bool(holds), draw)
