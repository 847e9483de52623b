"""DRS ToN fig. 7: estimated against measured sojourn of the allocations of fig. 6. Theirs are
strongly correlated; estimates are slightly low for logo detection and lower for patterns, whose
network costs the model leaves out. Some neighbours differ by one part in a hundred only, which
takes long to tell apart: besides the correlation of ranks it says how many of the pairs whose
measured means lie apart by more than their confidence intervals are in the estimated order."""

import itertools
import statistics
from typing import Any

import drs_fig6
from lab import Finding, Lab


def ranks(values: list[float]) -> list[float]:
    """The place of each in order."""
    order = sorted(values)
    return [float(order.index(value)) for value in values]


def run(lab: Lab) -> Finding:
    """Compare."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    orders: dict[str, tuple[int, int]] = {}
    for shape in drs_fig6.SHAPES:
        results = drs_fig6.measured(lab)[shape.name]
        network = shape.network()
        pairs[shape.name] = [(network.mean_sojourn(m.allocation), m.mean_s) for m in results]
        told_apart = [
            (slow, fast)
            for slow, fast in itertools.permutations(results, 2)
            if slow.mean_s - slow.half_s > fast.mean_s + fast.half_s
        ]
        right = sum(
            network.mean_sojourn(slow.allocation) > network.mean_sojourn(fast.allocation)
            for slow, fast in told_apart
        )
        orders[shape.name] = right, len(told_apart)
    rows, words, holds = [], [], True
    for name, found in pairs.items():
        estimated, real = [e for e, _ in found], [m for _, m in found]
        correlation = statistics.correlation(ranks(estimated), ranks(real))
        error = statistics.fmean(m / e - 1 for e, m in found)
        right, apart = orders[name]
        holds &= correlation > 0 and right >= 0.9 * apart
        rows.append((f"rank correlation, {name}", "strong, no figure", f"{correlation:.2f}"))
        rows.append((f"pairs told apart in the right order, {name}", "all", f"{right} of {apart}"))
        rows.append((f"measured over estimated, {name}", "slightly above 1", f"{1 + error:.2f}"))
        words.append(
            f"{name}: rank correlation {correlation:.2f}, {right} of {apart} in order, "
            f"measured {error:+.0%}"
        )

    def draw(figure: Any) -> None:
        for number, (name, found) in enumerate(pairs.items(), 1):
            axes = figure.add_subplot(1, 2, number)
            axes.plot(*zip(*found, strict=True), "o")
            low, high = min(min(p) for p in found), max(max(p) for p in found)
            axes.plot([low, high], [low, high], ":", c="grey")
            axes.set(title=name, xlabel="estimated, s", ylabel="measured, s")

    return Finding({"pairs": pairs, "orders": orders}, rows, "; ".join(words), bool(holds), draw)
