"""Elasticutor fig. 8: what it takes to move a shard within a machine and between two, elastic and
resource-centric: to synchronise, and to hand over the state. On Spark, on a standalone cluster
whose machines are processes of one, with loopback for a wire.

Claims: resource-centric takes much longer, mainly to synchronise; elastic also hands state over a
little quicker.

Rule: both within and between machines, a move takes resource-centric at least 5 times as long as
elastic, and more than half of that is to synchronise; elastic takes no longer than resource-centric
to hand over the state."""

from typing import Any

import numpy as np
from lab import Finding, Lab
from moves import elastic, resource_centric

ENGINES = ("spark",)
NOTES = (
    "two cores; two machines of a standalone cluster, on one host; the operator sleeps 10 ms a "
    "tuple, 50 tuples a second, 64 shards with 32 KB each, 1 executor upstream; elastic: its "
    "workers change between 1 and 2; resource-centric: 32 shards go to another executor and back"
)
SIZE, SHARDS = 32 << 10, 64


def run(lab: Lab) -> Finding:
    """All four."""
    lab.close()  # each has a Spark of its own
    turns = 6 if lab.quick else 20
    found = {
        "elastic": elastic(lab, SIZE, SHARDS, turns),
        "resource-centric": resource_centric(lab, SIZE, SHARDS, turns),
    }
    rows, ratios, holds = [], [], True
    for where in ("within", "between"):
        ours, theirs = found["elastic"][where], found["resource-centric"][where]
        ratios.append(sum(theirs) / sum(ours))
        holds &= ratios[-1] >= 5 and theirs[0] > theirs[1] and ours[1] <= theirs[1]
        for paradigm, of in (("elastic", ours), ("resource-centric", theirs)):
            rows.append((f"{where}, {paradigm}: to synchronise, ms", "", f"{of[0]:.2f}"))
            rows.append((f"{where}, {paradigm}: to hand over, ms", "", f"{of[1]:.2f}"))
        what = f"{where}: resource-centric over elastic"
        rows.append((what, "much longer", f"{ratios[-1]:.1f}"))
    verdict = (
        f"a move takes resource-centric {ratios[0]:.0f} times as long as elastic within a machine "
        f"and {ratios[1]:.0f} times as long between two"
    )

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        bars = [(p, w, *found[p][w]) for p in found for w in ("within", "between")]
        names = [f"{p},\n{w} a machine" if w == "within" else f"{p},\n{w} two" for p, w, *_ in bars]
        sync, hand = np.array([of[2:] for of in bars]).T
        axes.bar(names, sync, label="to synchronise")
        axes.bar(names, hand, bottom=sync, label="to hand over")
        axes.set(ylabel="ms a shard", ylim=(0, None))
        axes.legend()

    return Finding({"ms": found}, rows, verdict, bool(holds), draw)
