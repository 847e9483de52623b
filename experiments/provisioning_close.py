"""Side by side on plain queries once more: Spark's own dynamic allocation, and the model of batches
where it may be late by up to 5 % more. Not in a paper.

`provisioning_sides` asks for no more lateness at all, and gives the verdict on that. Spark keeps
nearly all executors all the time there, so nobody can be less late than it is, and five runs tell
no two of those apart that are as late. This experiment asks what a lateness costs that few would
notice. It was written after the runs of the other one had been seen.

Traces, cluster, periods and how runs are made are those of `provisioning_sides`. So are the
settings: Spark's best of each trace, and of the model's sweep the one with the fewest
machine-seconds of those that were at most 2.5 % later than Spark's best, by medians of three runs.
They are taken from its result, and all runs that are compared are new.

Rule: five runs of each, paired by their number. On each trace, the median of the model's
machine-seconds over Spark's is below 1, and that of its 95th percentile of lateness over Spark's is
at most 1.05. All rows of all runs are there. Where the median run used more than 60 % of the CPU,
it is undecided. A run in which more than a tenth of the seconds had CPU stolen is made again, twice
at most.

Runs are kept as those of `provisioning_sides` are, so it goes on where it was interrupted."""

from pathlib import Path

import provisioning_sides as sides
from kept import FOLDER, read_all
from lab import Finding, Lab, Runs

from sojourn.errors import InputError

ENGINES, NOTES = sides.ENGINES, sides.NOTES
OURS = ("model",)
LATER = 1.05  # than Spark's, at most
CHOSEN = 1.025  # of the model's settings


def before(results: Path) -> tuple[Runs, dict[str, sides.Own]]:
    """Of the newest result of `provisioning_sides`: the runs of its sweeps, and Spark's best."""
    some = [
        one
        for one in read_all(results).values()
        if (one["experiment"], one["length"]) == ("provisioning_sides", "full")
    ]
    if not some:
        raise InputError(
            f"{results}: has no full result of provisioning_sides, whose settings "
            "provisioning_close goes by; run that with --full --keep"
        )
    figures = max(some, key=lambda one: str(one["date"]))["figures"]
    runs = Runs(results / "none")
    runs.found = {tuple(run["name"]): run for run in figures["runs"].values()}
    return runs, {trace: tuple(figures[trace]["best"]) for trace in sides.TRACES}


def run(lab: Lab) -> Finding:
    """Both in turn, with the settings of before."""
    traces = ["steps"] if lab.quick else list(sides.TRACES)
    count = 1 if lab.quick else sides.RUNS
    swept, best = before(Path(__file__).parent / FOLDER)
    late = {t: sides.middle(swept, (t, "sweep", *best[t]), sides.AGAIN)[1] for t in traces}
    own = {
        t: sides.cheapest(swept, t, CHOSEN * late[t], sides.LIMITS, sides.AGAIN)[0] for t in traces
    }
    best = {t: best[t] for t in traces}
    runs = Runs(lab.out / f"provisioning_close.{'quick' if lab.quick else 'full'}.jsonl")
    with sides.a_cluster() as cluster:
        jobs = [j for t in traces for j in sides.compared(t, best[t], late[t], own[t], OURS, count)]
        sides.made(jobs, runs, cluster)
    runs.done()
    return sides.judged(runs, best, late, own, OURS, count, decided=not lab.quick, most=LATER)
