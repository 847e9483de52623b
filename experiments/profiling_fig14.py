"""Liu fig. 14: what the parameters do, on TSA with four machines: the limit on latency (300, 500
and 700 ms), slice (0.1, 0.3 and 0.5) and k (1.5, 2 and 3).

Claims: a longer limit carries no more; too short a one carries less. With slice 0.5 the start is
90.9 % and the end 79.7 % of what it is with 0.3; with 0.1 the start is higher. With k 3 the last
step falls away, with 1.5 it is longer.

Rule: 700 ms carry at most 3 % more than 500, and 300 ms no more than 500 by Welch's test; with
slice 0.5 the start and the end are below those of 0.3 for sure, and with 0.1 the start is no lower;
k 3 takes no more rounds than 2, and 1.5 no fewer."""

from functools import partial
from typing import Any

from lab import Finding, Lab
from profiled import ENGINES, all_told, applications, at_once, final, profiled, rates
from profiled import NOTES as OF_ALL

from sojourn.cli.profile_view import boxes
from sojourn.confidence import differ

__all__ = ["ENGINES", "NOTES"]
MACHINES = 4
UNDER_WAY = 40_000  # tuples, so that the limit on latency binds
NOTES = OF_ALL.replace(
    "at most 1000 source tuples are under way, so the limit on latency hardly binds",
    "at most 40 000 source tuples are under way",
)
VARIED: dict[str, tuple[str, Any]] = {
    "default": ("slice", 0.3),
    "limit 300 ms": ("latency_s", 0.3),
    "limit 700 ms": ("latency_s", 0.7),
    "slice 0.1": ("slice", 0.1),
    "slice 0.5": ("slice", 0.5),
    "k 1.5": ("factor", 1.5),
    "k 3": ("factor", 3.0),
}


def run(lab: Lab) -> Finding:
    """The default, and each parameter by itself."""
    made = applications()["tsa"]
    found = at_once(
        {
            name: partial(profiled, lab, made, MACHINES, ("stepwise",), UNDER_WAY, **{key: value})
            for name, (key, value) in VARIED.items()
        }
    )
    plain = found["default"]
    first = {name: of.tried("stepwise")[0].measured.readings for name, of in found.items()}
    last = {name: of.best["stepwise"].measured.readings for name, of in found.items()}
    rounds = {name: len(of.tried("stepwise")) for name, of in found.items()}
    claims = {"slice 0.5": ("90.9%", "79.7%")}
    rows = []
    for name, of in found.items():
        start = rates(of, "stepwise")[0] / rates(plain, "stepwise")[0]
        end = final(of, "stepwise") / final(plain, "stepwise")
        theirs = ", ".join(claims[name]) if name in claims else ""
        rows.append(
            (f"{name}: start, end, rounds", theirs, f"{start:.1%}, {end:.1%}, {rounds[name]}")
        )
    good = {
        "limit 700 ms": final(found["limit 700 ms"], "stepwise") <= 1.03 * final(plain, "stepwise"),
        "limit 300 ms": differ(last["default"], last["limit 300 ms"]) <= 0,
        "slice 0.5": differ(first["default"], first["slice 0.5"]) < 0
        and differ(last["default"], last["slice 0.5"]) < 0,
        "slice 0.1": differ(first["default"], first["slice 0.1"]) >= 0,
        "k": rounds["k 3"] <= rounds["default"] <= rounds["k 1.5"],
    }
    missed = [name for name, is_good in good.items() if not is_good]
    verdict = "all claims hold" if not missed else f"missed: {', '.join(missed)}"

    def draw(figure: Any) -> None:
        places = figure.subplots(2, 4).flat
        for axis, (name, of) in zip(places, found.items(), strict=False):
            boxes(axis, of, legend=False)
            axis.set_title(name, fontsize=9)
        places[-1].set_axis_off()  # seven of eight

    return Finding(all_told(found), rows, verdict, not missed, draw)
