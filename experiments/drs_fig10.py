"""DRS ToN fig. 10: seven processors, frames of uniform gaps at 5 and 6 a second, service times that
vary more than exponential ones. GI/G/k picks (2:4:1), the measured best, M/M/k (3:3:1), and
underestimates more the higher the load. All is ten times as fast here, so that there are enough
tuples to tell them apart."""

import math
from typing import Any

from lab import Finding, Lab, Measured, passing
from shapes import Shape

from sojourn.queueing import assign_processors
from sojourn.simulator import Distribution, SourceLoad

RATES = (5.0, 6.0)
FASTER = 10.0
NOTES = "operators sleep for chosen times; everything runs ten times as fast"
PAIR = ({"extract": 2, "match": 4, "aggregate": 1}, {"extract": 3, "match": 3, "aggregate": 1})


def shape(rate: float) -> Shape:
    """The paper gives no service times. These are such that the two allocations are close by
    M/M/k, and the matcher, which is fed in bulks, varies most."""
    return Shape(
        "vld-7",
        {"frames": SourceLoad(((1.0, rate * FASTER),), Distribution("uniform", 1.0))},
        {
            "extract": Distribution("gamma", 0.180 / FASTER, 0.2),
            "match": Distribution("hyperexponential", 0.290 / FASTER, 8.0),
            "aggregate": Distribution("exponential", 0.005 / FASTER),
        },
        {("frames", "extract"): 1, ("extract", "match"): 1, ("match", "aggregate"): 1},
    )


def run(lab: Lab) -> Finding:
    """Both allocations at both rates, beside both models."""
    figures: dict[str, Any] = {}
    rows, words, holds, untold = [], [], True, False
    ratios: dict[str, list[float]] = {"mmk": [], "gigk": []}
    halves: list[float] = []

    def measured(rate: float) -> list[Measured]:
        longer = 1 if lab.engine == "spark" else 5  # times that vary much take long to tell apart
        return lab.measure(shape(rate), PAIR, longer * lab.seconds(30, 180))

    for rate, results in zip(RATES, lab.each(measured, RATES), strict=True):
        made = shape(rate)
        models = {model: made.network(model) for model in ("mmk", "gigk")}
        picks = {m: assign_processors(network, 7).allocation for m, network in models.items()}
        best = min(results, key=lambda m: m.mean_s)
        under = {
            model: results[1].mean_s / network.mean_sojourn(PAIR[1])
            for model, network in models.items()
        }
        figures[f"{rate:g}/s"] = {
            "measured": [vars(m) for m in results],
            "estimated": {m: [n.mean_sojourn(a) for a in PAIR] for m, n in models.items()},
        }
        told = {model: ":".join(map(str, pick.values())) for model, pick in picks.items()}
        rows.append((f"M/M/k picks at {rate:g}/s", "3:3:1", told["mmk"]))
        rows.append((f"GI/G/k picks at {rate:g}/s", "2:4:1, the measured best", told["gigk"]))
        rows.append((f"measured best at {rate:g}/s", "2:4:1", best.label))
        good = passing(results)
        untold |= len(good) > 1
        holds &= told == {"mmk": "3:3:1", "gigk": "2:4:1"} and results[0] in good
        for model, ratio in under.items():
            ratios[model].append(ratio)
        halves.append(results[1].half_s / models["mmk"].mean_sojourn(PAIR[1]))
        rows.append((f"measured over M/M/k, 3:3:1 at {rate:g}/s", "above 1", f"{under['mmk']:.2f}"))
        rows.append(
            (f"measured over GI/G/k, 3:3:1 at {rate:g}/s", "nearer to 1", f"{under['gigk']:.2f}")
        )
        words.append(
            f"{rate:g}/s: M/M/k {told['mmk']}, GI/G/k {told['gigk']}, measured best {best.label}"
            f"{', though not significantly' if len(good) > 1 else ''}, "
            f"3:3:1 measured over M/M/k {under['mmk']:.2f}, over GI/G/k {under['gigk']:.2f}"
        )

    nearer = all(
        abs(math.log(g)) < abs(math.log(m))
        for m, g in zip(ratios["mmk"], ratios["gigk"], strict=True)
    )
    more = ratios["mmk"][1] > ratios["mmk"][0]
    # Ratios that chance may have put the other way round tell nothing.
    wide = math.hypot(*halves) > abs(ratios["mmk"][1] - ratios["mmk"][0])
    words.append(
        f"GI/G/k is {'' if nearer else 'not '}nearer at both rates; M/M/k "
        f"{'underestimates' if more else 'does not underestimate'} more at the higher rate"
    )
    fails = not holds or not ((nearer and more) or wide)
    verdict = False if fails else None if untold or wide else True

    def draw(figure: Any) -> None:
        for number, (rate, found) in enumerate(figures.items(), 1):
            axes = figure.add_subplot(1, 2, number)
            bars = {"measured": [m["mean_s"] for m in found["measured"]], **found["estimated"]}
            for place, (name, values) in enumerate(bars.items()):
                axes.bar([place * 0.25, 1 + place * 0.25], values, 0.22, label=name)
            axes.set_xticks([0.25, 1.25], ["2:4:1", "3:3:1"])
            axes.set(title=rate, ylabel="sojourn, s")
            axes.legend(loc="lower right")

    return Finding(figures, rows, "; ".join(words), verdict, draw)
