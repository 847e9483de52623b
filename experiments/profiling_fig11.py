"""Liu fig. 11: six applications on six machines of two cores, profiled stepwise, led by the model,
by threshold and by Stela.

Claims: the first step starts 45, 21.1 and 25 % higher than one task each on WC, SWC and TSA; in the
end stepwise carries 34.1, 40.1 and 31.9 % more than the best of the others; on average over these
three, its first four rounds gain 2.48 times as much as Stela's and 11.63 times as much as
threshold's; Linear gains 95.7 % in four rounds and Star 64 % in six; WC takes 5 rounds and SWC 9.

Rule: each of these is at least as good. Gains are over the method's own first round: of stepwise,
by the most that was kept so far within the limit; of the others, which never go back, by the round
itself. The others have as many rounds as stepwise; what they carry is that of their last. And led
by the model, profiling is never worse than stepwise: each application carries at least 97 % as
much, as repeated trials agree within 3 %, none takes more rounds, and all together take fewer."""

import math
import statistics
from functools import partial
from typing import Any

from lab import Finding, Lab
from profiled import (
    ALL,
    ENGINES,
    NOTES,
    all_told,
    applications,
    at_once,
    final,
    profiled,
    rates,
    so_far,
)

from sojourn.cli.profile_view import boxes
from sojourn.profile import Profiling

__all__ = ["ENGINES", "NOTES"]
MACHINES = 6
START = {"wc": 0.45, "swc": 0.211, "tsa": 0.25}
FINAL = {"wc": 0.341, "swc": 0.401, "tsa": 0.319}
FOUR = {"stela": 2.48, "threshold": 11.63}
GAINS = {"linear": (0.957, 4), "star": (0.64, 6)}
ROUNDS = {"wc": 5, "swc": 9}
CLOSE = 0.97


def gained(found: Profiling, method: str) -> float:
    """By the first four rounds, over the first."""
    of = so_far(found, method)[:4]
    return of[-1] / of[0] - 1


def run(lab: Lab) -> Finding:
    """All applications, all methods."""
    found = at_once(
        {
            name: partial(
                profiled, lab, made, MACHINES, ALL, latency_s=0.1 if name == "star" else 0.5
            )
            for name, made in applications().items()
        }
    )
    rows: list[tuple[str, str, str]] = []
    good: dict[str, bool] = {}
    for name, claim in START.items():
        start = rates(found[name], "stepwise")[0] / rates(found[name], "threshold")[0] - 1
        rows.append((f"{name}: start over one task each", f"{claim:+.1%}", f"{start:+.1%}"))
        good[f"start of {name}"] = start >= claim
    for name, claim in FINAL.items():
        others = max(final(found[name], m) for m in ("threshold", "stela"))
        margin = final(found[name], "stepwise") / others - 1
        rows.append(
            (f"{name}: final over the best of the others", f"{claim:+.1%}", f"{margin:+.1%}")
        )
        good[f"final of {name}"] = margin >= claim
    four = {m: statistics.fmean(gained(found[n], m) for n in FINAL) for m in ("stepwise", *FOUR)}
    for method, claim in FOUR.items():
        gains = four["stepwise"], four[method]
        ratio = gains[0] / gains[1] if gains[1] > 0 else math.inf if gains[0] > 0 else math.nan
        rows.append((f"gain of four rounds over {method}'s", f"{claim:g}", f"{ratio:.2f}"))
        good[f"four rounds against {method}"] = ratio >= claim
    for name, (claim, most) in GAINS.items():
        best = so_far(found[name], "stepwise")
        gain, count = best[-1] / best[0] - 1, len(best)
        rows.append((f"{name}: gain, rounds", f"{claim:+.1%}, {most}", f"{gain:+.1%}, {count}"))
        good[f"gain of {name}"] = gain >= claim and count <= most
    for name, most in ROUNDS.items():
        count = len(rates(found[name], "stepwise"))
        rows.append((f"{name}: rounds", str(most), str(count)))
        good[f"rounds of {name}"] = count <= most
    share = final(found["swc"], "stepwise") / final(found["wc"], "stepwise")
    rows.append(("swc of wc", "86.8%", f"{share:.1%}"))
    worse, rounds = [], {"stepwise": 0, "guided": 0}
    for name, of in found.items():
        ours, plain = of.best["guided"].measured, of.best["stepwise"].measured
        counts = {m: len(of.tried(m)) for m in rounds}
        rounds = {m: rounds[m] + counts[m] for m in rounds}
        ratio = ours.throughput / plain.throughput
        rows.append(
            (f"{name}: led by the model over stepwise, rounds", "", f"{ratio:.3f}, "
             f"{counts['guided']} of {counts['stepwise']}")
        )  # fmt: skip
        if ratio < CLOSE or counts["guided"] > counts["stepwise"]:
            worse.append(name)
    good["led by the model"] = not worse and rounds["guided"] < rounds["stepwise"]
    missed = [what for what, is_good in good.items() if not is_good]
    verdict = "all claims hold" if not missed else f"missed: {', '.join(missed)}"

    def draw(figure: Any) -> None:
        for axis, (name, of) in zip(figure.subplots(2, 3).flat, found.items(), strict=True):
            boxes(axis, of, legend=name == "linear")
            axis.set_title(name, fontsize=9)

    figures = {"applications": all_told(found), "four_rounds": four}
    return Finding(figures, rows, verdict, not missed, draw)
