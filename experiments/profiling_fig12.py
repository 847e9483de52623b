"""Liu fig. 12: deeper topologies and larger platforms. (a) A line of operators that compute, parse
and sleep in turn, 6, 8 and 12 deep, on six machines; (b) word count on 6, 10 and 14.

Claims: profiling gains 33.5, 24 and 20.5 %, less the deeper; on more machines more is carried, but
less than in proportion; 14 machines take 10 rounds.

Rule: each line gains at least that, by the best over the first round; 10 machines carry more than 6
and 14 more than 10, for sure by Welch's test, and none more than in proportion; 14 take at most 10
rounds. Whether deeper ones gain less is told, and not judged: it follows from the start."""

from functools import partial
from typing import Any

from lab import Finding, Lab
from profiled import ENGINES, NOTES, all_told, applications, at_once, final, line, profiled, so_far

from sojourn.cli.profile_view import boxes
from sojourn.confidence import differ

__all__ = ["ENGINES", "NOTES"]
DEEP = {6: 0.335, 8: 0.24, 12: 0.205}
MACHINES = (6, 10, 14)
MIXED = ("cpu", "json", "sleep")


def run(lab: Lab) -> Finding:
    """Both parts."""
    count = applications()["wc"]
    jobs = {f"{n} deep": partial(profiled, lab, line(n, MIXED), 6, ("stepwise",)) for n in DEEP}
    jobs |= {f"{n} machines": partial(profiled, lab, count, n, ("stepwise",)) for n in MACHINES}
    found = at_once(jobs)
    deep = {name: of for name, of in found.items() if name.endswith("deep")}
    wide = {name: of for name, of in found.items() if name not in deep}
    rows, good = [], []
    for (name, one), claim in zip(deep.items(), DEEP.values(), strict=True):
        of = so_far(one, "stepwise")
        gain = of[-1] / of[0] - 1
        rows.append((f"{name}: gain", f"{claim:+.1%}", f"{gain:+.1%}"))
        good.append(gain >= claim)
    carried = [final(one, "stepwise") for one in wide.values()]
    readings = [one.best["stepwise"].measured.readings for one in wide.values()]
    for place, name in enumerate(wide):
        rows.append((f"{name}: tuples a second", "", f"{carried[place]:.0f}"))
    for i in (1, 2):
        good.append(differ(readings[i - 1], readings[i]) > 0)
        good.append(carried[i] / carried[0] <= MACHINES[i] / MACHINES[0])
    rounds = len(wide["14 machines"].tried("stepwise"))
    rows.append(("14 machines: rounds", "10", str(rounds)))
    good.append(rounds <= 10)
    verdict = (
        f"lines gain {', '.join(ours for _, _, ours in rows[:3])}; 14 machines carry "
        f"{carried[2] / carried[0]:.2f} times what 6 do, after {rounds} rounds"
    )

    def draw(figure: Any) -> None:
        places = figure.subplots(2, 3).flat
        for axis, (name, of) in zip(places, {**deep, **wide}.items(), strict=True):
            boxes(axis, of, legend=False)
            axis.set_title(name, fontsize=9)

    return Finding(all_told({**deep, **wide}), rows, verdict, all(good), draw)
