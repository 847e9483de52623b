"""DRS ToN fig. 7: estimated against measured sojourn of the allocations of fig. 6. Theirs are
strongly correlated; estimates are slightly low for logo detection and lower for patterns, whose
network costs the model leaves out. Some neighbours differ by a few parts in a hundred only,
which takes long to tell apart: besides the correlation of ranks it says how many of the pairs that
were told apart, with 95 % confidence, are in the estimated order."""

import itertools
import statistics
from typing import Any

import drs_fig6
from lab import Finding, Lab

ENOUGH_PAIRS = 4  # told apart, for a verdict
PAPER = {"vld": "slightly above 1", "fpd": "above 1, more than for vld"}
NEEDS = drs_fig6.NEEDS
NOTES = drs_fig6.NOTES


def ranks(values: list[float]) -> list[float]:
    """The place of each in order; equal ones share the mean of theirs."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def run(lab: Lab) -> Finding:
    """Compare."""
    figures: dict[str, dict[str, Any]] = {}
    rows, words, right, apart, positive = [], [], 0, 0, True
    for shape, results in drs_fig6.measured(lab):
        network = shape.network()
        found = [(network.mean_sojourn(m.allocation), m.mean_s) for m in results]
        told = 0
        for slow, fast in itertools.permutations(results, 2):
            if slow.slower_than(fast):
                told += 1
                right += network.mean_sojourn(slow.allocation) > network.mean_sojourn(
                    fast.allocation
                )
        correlation = statistics.correlation(
            ranks([e for e, _ in found]), ranks([m for _, m in found])
        )
        apart += told
        positive &= correlation > 0 or not told
        error = statistics.fmean(m / e - 1 for e, m in found)
        figures[shape.name] = {"pairs": found, "rank_correlation": correlation, "error": error}
        rows.append((f"rank correlation, {shape.name}", "strong, no figure", f"{correlation:.2f}"))
        rows.append(
            (
                f"measured over estimated, {shape.name}",
                PAPER.get(shape.name, ""),
                f"{1 + error:.2f}",
            )
        )
        words.append(f"{shape.name}: rank correlation {correlation:.2f}, measured {error:+.0%}")
    rows.append(
        ("significantly different pairs in the estimated order", "all", f"{right} of {apart}")
    )
    words.append(f"{right} of {apart} significantly different pairs are in the estimated order")
    holds = None if apart < ENOUGH_PAIRS else right >= 0.9 * apart and positive

    def draw(figure: Any) -> None:
        for number, (name, one) in enumerate(figures.items(), 1):
            found = one["pairs"]
            axes = figure.add_subplot(2, 2, number)
            axes.plot(*zip(*found, strict=True), "o")
            low, high = min(min(p) for p in found), max(max(p) for p in found)
            axes.plot([low, high], [low, high], ":", c="grey")
            axes.set(title=name, xlabel="estimated, s", ylabel="measured, s")

    counts = {"told_apart": apart, "in_order": right}
    return Finding({**figures, **counts}, rows, "; ".join(words), holds, draw)
