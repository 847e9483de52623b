"""Liu fig. 13: how many machines a throughput takes, of word count profiled stepwise and by Stela,
with as many rounds, on 2 to 14 machines.

Claims: 6000 a second take 4 machines, and Stela 8; up to 57.1 % fewer machines for the same.

Rule: what Stela carries on 8 machines, stepwise carries on 4; and of all that Stela carries on some
number of machines, nothing takes stepwise more machines, or is not carried at all."""

from functools import partial
from typing import Any

from lab import Finding, Lab
from profiled import ENGINES, NOTES, all_told, applications, at_once, final, profiled

__all__ = ["ENGINES", "NOTES"]
MACHINES = (2, 4, 6, 8, 10, 12, 14)
TWO = ("stepwise", "stela")


def machines_for(target: float, carried: dict[int, float]) -> int | None:
    """The fewest that carry it."""
    return min((n for n, rate in carried.items() if rate >= target), default=None)


def run(lab: Lab) -> Finding:
    """Both methods on all numbers of machines."""
    count = applications()["wc"]
    all_of = at_once({str(n): partial(profiled, lab, count, n, TWO) for n in MACHINES})
    found = {int(n): of for n, of in all_of.items()}
    carried = {m: {n: final(of, m) for n, of in found.items()} for m in TWO}
    rows, saved = [], []
    for rate in carried["stela"].values():
        ours, theirs = machines_for(rate, carried["stepwise"]), machines_for(rate, carried["stela"])
        shown = "none" if ours is None else str(ours)
        rows.append(
            (f"machines for {rate:.0f} a second, Stela and stepwise", "", f"{theirs}, {shown}")
        )
        saved.append(-1.0 if ours is None or theirs is None else 1 - ours / theirs)
    eight = machines_for(carried["stela"][8], carried["stepwise"])
    rows.append(("machines for what Stela carries on 8", "4", str(eight)))
    rows.append(("fewer machines, at most", "57.1%", f"{max(saved):.1%}"))
    holds = eight is not None and eight <= 4 and min(saved) >= 0
    verdict = (
        f"what Stela carries on 8 machines takes stepwise {eight}; at most {max(saved):.0%} fewer "
        f"machines, at least {min(saved):.0%}"
    )

    def draw(figure: Any) -> None:
        axis = figure.add_subplot()
        for method, of in carried.items():
            axis.step(list(of.values()), list(of), "o-", where="pre", label=method)
        axis.set(xlabel="tuples a second", ylabel="machines", xlim=(0, None), ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.legend()

    figures = {"carried": carried, "rounds": all_told(all_of)}
    return Finding(figures, rows, verdict, bool(holds), draw)
