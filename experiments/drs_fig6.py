"""DRS ToN fig. 6: mean and deviation of the sojourn for the recommended allocation of 22 processors
and its five nearest neighbours, of video logo detection and frequent pattern detection. Theirs is
the measured best: (10:11:1) and (6:13:3). Logo detection is five times as fast here, pattern
detection a fifth, so that there are enough tuples, and not too many."""

from typing import Any

from lab import Finding, Lab, Measured, Shape, fpd, neighbours, vld

from sojourn.queueing import assign_processors

PROCESSORS = 22
PAPER = {"vld": "10:11:1", "fpd": "6:13:3"}


def measured(lab: Lab) -> dict[str, list[Measured]]:
    """By shape, the recommended allocation first."""

    def of(shape: Shape) -> list[Measured]:
        network = shape.network()
        best = dict(assign_processors(network, PROCESSORS).allocation)
        allocations = [best, *neighbours(network, best)]
        return lab.measure(shape, allocations, lab.seconds(10, 60))

    def all_of_them() -> dict[str, list[Measured]]:
        return {shape.name: of(shape) for shape in SHAPES}  # each has enough to do for two cores

    found: dict[str, list[Measured]] = lab.once("fig6", all_of_them)
    return found


SHAPES = (vld(scale=5.0), fpd())


def run(lab: Lab) -> Finding:
    """Measure all of them."""
    found = measured(lab)
    holds, words, rows = True, [], []
    for name, results in found.items():
        recommended = results[0]
        best = min(results, key=lambda m: m.mean_s)
        close = recommended.mean_s - best.mean_s <= recommended.half_s + best.half_s
        holds &= close and recommended.label == PAPER[name]
        how = "is the measured best" if best is recommended else (
            f"is within the confidence interval of the best, {best.label}" if close
            else f"is not the best, which is {best.label}"
        )  # fmt: skip
        words.append(f"{name}: the recommended {recommended.label} {how}")
        rows.append((f"best of 22 processors, {name}", PAPER[name], recommended.label))

    def draw(figure: Any) -> None:
        for number, (name, results) in enumerate(found.items(), 1):
            axes = figure.add_subplot(1, 2, number)
            labels = [f"{m.label}{'*' if m is results[0] else ''}" for m in results]
            axes.bar(labels, [m.mean_s for m in results], color="tab:blue", alpha=0.7)
            axes.errorbar(
                labels, [m.mean_s for m in results], [m.half_s for m in results], fmt="none", c="k"
            )
            axes.plot(labels, [m.deviation_s for m in results], "o", c="tab:orange")
            axes.set(title=f"{name}: mean (bar), deviation (dot)", ylabel="sojourn, s")
            axes.tick_params(axis="x", rotation=30)

    figures = {name: [vars(m) for m in results] for name, results in found.items()}
    return Finding(figures, rows, "; ".join(words), bool(holds), draw)
