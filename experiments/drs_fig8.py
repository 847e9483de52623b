"""DRS ToN fig. 8 (ICDCS fig. 9): 22 processors in three initial placements, which may be changed
from the 14th of 27 minutes on. Theirs are changed then, all end at the same optimum, and the change
costs little and takes seconds, where Storm's own takes one to two minutes.

The papers' claims are judged by runs of `drs-2017`, their own scheduler, with M/M/k and T_ra of 14
minutes, ours by `drs`. A minute is five seconds on Spark. Service times are chosen such that the
model places processors as theirs did, at the papers' rates. On Spark, full runs have both
applications' real code as well (coded.py), from the allocation that the committed sample of CPU
times recommends and from two others; patterns tell all instances of the detector. Storm's way, to
stop and to start anew from a checkpoint with other processors, is measured on Spark as well.

A claim about all runs of both applications holds if each shows it. That the sojourn falls holds if
it does for sure in each run that was changed, by the means of minutes 2 to 13 and 15 to 27 with 95
% confidence, and does not if it rises in one, by Holm's correction. Curves are similar from the
15th minute on if each one's mean is within a quarter of that of the best start, with its whole
interval of 95 %. The 14th minute's mean is at most half as much again as that of the three before
it, and the 15th's is no longer than that of those three: then the increase is negligible and within
the 14th minute only. A few seconds are less than ten. In quick runs, what does not hold cannot be
decided. Nothing else decides."""

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import paired
from coded import coded
from controlled import POLICIES, Run, decided, quotient, run_of, tentative, told
from lab import Claim, Finding, Lab, judged
from paired import Estimate
from shapes import Shape, fpd, neighbours, vld

import sojourn as sj
from sojourn.queueing import assign_processors
from sojourn.settings import ControlSettings

MINUTE_S = 5.0
MINUTES, FIRST = 27, 14  # changes may be made from the beginning of the 14th
QUICK_MINUTES, QUICK_FIRST = 12, 6
FEW_S, HARDLY, ALIKE = 10.0, 1.5, 0.25
BOTH = "ToN fig. 8, ICDCS fig. 9"
STARTS = {
    "vld": ((10, 11, 1), (8, 12, 2), (11, 9, 2)),
    "fpd": ((6, 13, 3), (8, 12, 2), (7, 13, 2)),
}
NEEDS = ("cv2", "skimage")
NOTES = (
    "operators sleep on Spark; vld runs three times as fast, with rates uniform in [1, 25] a "
    "second of 1/3 s, fpd 20 times as slow; a minute is five seconds, or 60 in full runs in the "
    "simulator; quick runs on Spark have 12 minutes, may change from the 6th on, run drs-2017 "
    "alone and leave out fpd and real code; change.gain is 0.01 and change.doubt 0 for drs, so "
    "that any better placement is taken, as in the papers; real code sleeps 29 (vld) or 20 000 "
    "(fpd) times the CPU time of each call"
)

Runs = Mapping[str, Mapping[str, Sequence[Run]]]  # by policy and application, the best start first


def minute_of(lab: Lab) -> float:
    """Seconds of a minute; virtual time has whole ones in full runs."""
    return MINUTE_S if lab.engine == "spark" or lab.quick else 60.0


def settings_of(policy: str, first: int, minute_s: float) -> ControlSettings:
    """The papers' scheduler changes at most once; ours as it likes."""
    before_s = (first - 1) * minute_s
    theirs = policy == "drs-2017"
    return ControlSettings(
        policy=policy,
        max_processors=22,
        interval_s=minute_s,
        window_s=before_s,
        change_interval_s=first * minute_s if theirs else 0.0,
        gain=0.01,
        doubt=0.0,
        model="mmk",
    )


def starts_of(shape: Shape) -> list[tuple[int, ...]]:
    """The papers', or of real code the recommended one and two near it."""
    if shape.name in STARTS:
        return list(STARTS[shape.name])
    network = shape.network()
    best = dict(assign_processors(network, 22).allocation)
    some = neighbours(network, best, 12)
    return [tuple(one.values()) for one in (best, some[5], some[-1])]


def run(lab: Lab) -> Finding:
    """Each start once under each policy."""
    quick = lab.quick and lab.engine == "spark"
    minutes, first = (QUICK_MINUTES, QUICK_FIRST) if quick else (MINUTES, FIRST)
    shapes: list[Shape] = [vld(scale=3.0, drawn=lab.seed_of("rates"))]
    if not quick:
        shapes.append(fpd(slower=20.0))
    found: dict[str, dict[str, list[Run]]] = {}
    minute_s = minute_of(lab)
    lab.resized_s.clear()

    def made(policy: str, shape: Shape, at_once: int) -> list[Run]:
        def one(start: tuple[int, ...]) -> Run:
            allocation = dict(zip(shape.service, start, strict=True))
            settings, allowed_s = settings_of(policy, first, minute_s), (first - 1) * minute_s
            records = lab.controlled(shape, allocation, settings, minutes * minute_s, allowed_s)
            return run_of(records, list(shape.service))

        return lab.each(one, starts_of(shape), at_once)

    for policy in POLICIES if not quick else ("drs-2017",):
        found[policy] = {shape.name: made(policy, shape, 3) for shape in shapes}
    restart_s = None
    if lab.engine == "spark":
        resized_s = list(lab.resized_s)
        if not quick:
            found["drs-2017"] |= {
                shape.name: made("drs-2017", shape, 1) for shape in (coded("vld"), coded("fpd"))
            }
        restart_s = restarted(lab, shapes[0])
    else:
        resized_s = []
    return told_of(found, first, resized_s, restart_s, lab.quick)


def restarted(lab: Lab, shape: Shape) -> float:
    """Storm's way: seconds from stopping a topology to the first tuple that is done after it was
    started anew with other processors."""
    before, after = (
        dict(zip(shape.service, start, strict=True)) for start in reversed(STARTS["vld"][:2])
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        at: dict[str, Any] = {"spark": lab.session(), "checkpoint": checkpoint}
        with sj.start(shape.topology(before, sleep=True), **at) as running:
            lab.let_pass(running, 4 * MINUTE_S)
            began = time.monotonic()
        with sj.start(shape.topology(after, sleep=True), **at) as running:
            while running.samples().sojourn is None:
                lab.let_pass(running, 0.2)
            return time.monotonic() - began


def told_of(
    found: Runs, first: int, resized_s: Sequence[float], restart_s: float | None, quick: bool
) -> Finding:
    """What they show."""
    claims: list[Claim] = []
    for policy, runs in found.items():
        sleeping = {name: some for name, some in runs.items() if not name.endswith("-code")}
        real = {name: some for name, some in runs.items() if name.endswith("-code")}
        if policy == "drs-2017":
            claims += _claims(BOTH, "", sleeping, first, quick)
            if real:
                claims += _claims("ours", "with real code and drs-2017, ", real, first, quick)
        else:
            claims += _claims("ours", "with drs, ", sleeping, first, quick)
    claims += _costs(resized_s, restart_s)
    rows = []
    for policy, runs in found.items():
        for name, some in runs.items():
            theirs = told(STARTS[name][0]) if name in STARTS else ""
            for one in some:
                rows.append(
                    (
                        f"{name} from {told(one.start)}, {policy}",
                        f"{theirs} from minute {first} on" if theirs else "",
                        "; ".join(map(str, one.changes)) or "unchanged",
                    )
                )
    figures = {
        "runs": {
            policy: {name: [_figures(one) for one in some] for name, some in runs.items()}
            for policy, runs in found.items()
        },
        "resized_s": resized_s,
        "restart_s": restart_s,
    }
    return judged(tentative(claims, quick), figures, rows, partial(draw, found, first))


def _figures(one: Run) -> dict[str, Any]:
    return {
        "start": one.start,
        "means_s": one.means_s,
        "changes": [vars(change) for change in one.changes],
    }


def _claims(
    paper: str, of: str, runs: Mapping[str, Sequence[Run]], first: int, quick: bool
) -> list[Claim]:
    if not runs:
        return []
    short = "too short to tell" if quick else "not told apart"
    moved = {f"{n} from {told(r.start)}": r for n, some in runs.items() for r in some[1:]}
    best = {f"{n} from {told(some[0].start)}": some[0] for n, some in runs.items()}
    late = [name for name, r in moved.items() if not r.changes or r.changes[0].minute != first] + [
        name for name, r in best.items() if r.changes
    ]
    ends = {name: {told(r.end) for r in some} for name, some in runs.items()}
    unlike = [name for name, some in ends.items() if some != {told(runs[name][0].start)}]
    after = {name: _after(r, first) for name, r in (moved | best).items()}
    falls = {name: _fall(r.mean(2, first - 1), after[name]) for name, r in moved.items()}
    fall = paired.every(list(falls.values()), 0.0)
    alike = {
        f"{n} from {told(r.start)}": quotient(_after(r, first), _after(some[0], first))
        for n, some in runs.items()
        for r in some[1:]
    }
    kinds = [paired.between(one, 1 - ALIKE, 1 + ALIKE) for one in alike.values()]
    similar = False if False in kinds else None if None in kinds else True
    rises = {name: _rise(r, first) for name, r in moved.items()}
    known = [rise for rise in rises.values() if rise is not None]
    hardly = None
    if len(known) == len(rises):
        hardly = all(now <= HARDLY and then <= 1 for now, then in known)
    changed = "; ".join(
        f"{n}: {', '.join(map(str, r.changes)) or 'no change'}" for n, r in moved.items()
    )
    return [
        decided(
            paper,
            f"{of}sub-optimal placements are changed in the 14th minute, the earliest possible, "
            "and the optimal one is not",
            "the first change of each run that starts elsewhere comes with the first minute in "
            "which it may, and runs that start with the recommended allocation have none",
            changed,
            not late,
            f"not so: {', '.join(late)}",
        ),
        decided(
            paper,
            f"{of}all three starts end with the unique optimal solution",
            "at last each run of an application has the allocation that is recommended for it",
            "; ".join(f"{name}: {' and '.join(sorted(some))}" for name, some in ends.items()),
            not unlike,
            f"others at last: {', '.join(unlike)}",
        ),
        decided(
            paper,
            f"{of}the mean sojourn decreases clearly in the runs that were changed",
            "the mean of the minutes after the change is below that of the minutes before, from "
            "the second on: holds if that is sure of each run, with 95 % confidence; does not if "
            "it is above for one, by Holm's correction",
            ", ".join(f"{figure:.3f} s less ({name})" for name, figure in falls.items()),
            fall,
            "it rises" if fall is False else short,
        ),
        decided(
            paper,
            f"{of}all three curves are similar after the change",
            f"from the minute after it on, each run's mean is within {ALIKE:.0%} of that of the "
            "optimal start, by the whole 95 % interval; it does not hold if one's is outside",
            ", ".join(f"{figure:.2f} ({name})" for name, figure in alike.items()),
            similar,
            "one is not similar" if similar is False else short,
        ),
        decided(
            paper,
            f"{of}a change increases the sojourn negligibly, and in its own minute only",
            f"the mean of the minute of the change is at most {HARDLY:g} times that of the three "
            "before, and that of the next one no longer than that of those three, in each run that "
            "starts elsewhere",
            ", ".join(f"{_both(rise)} ({name})" for name, rise in rises.items()),
            hardly,
            "one increases more" if hardly is False else "not all were changed",
        ),
    ]  # fmt: skip


def _both(rise: tuple[float, float] | None) -> str:
    return "no change" if rise is None else f"{rise[0]:.2f} and then {rise[1]:.2f}"


def _after(one: Run, first: int) -> Estimate:
    return one.mean(first + 1, len(one.means_s))


def _fall(before: Estimate, after: Estimate) -> Estimate:
    error = (before.error**2 + after.error**2) ** 0.5
    return Estimate(before.value - after.value, error, min(before.freedom, after.freedom))


def _rise(one: Run, first: int) -> tuple[float, float] | None:
    """The minute of the change, and the next, over the three before; None without a change."""
    minute = one.changes[0].minute if one.changes else first
    before, now = one.known(minute - 3, minute - 1), one.known(minute, minute)
    then = one.known(minute + 1, minute + 1)
    if not one.changes or not (before and now and then):
        return None
    usual = statistics.fmean(before)
    return now[0] / usual, then[0] / usual


def _costs(resized_s: Sequence[float], restart_s: float | None) -> list[Claim]:
    virtual = "time is virtual in the simulator, so changes take as long as it is told"
    most = max(resized_s, default=None)
    seldom = virtual if restart_s is None else "nothing was changed"
    return [
        decided(
            BOTH,
            "a change takes a few seconds",
            f"all processors are there, or gone, less than {FEW_S:g} s after they are asked for, "
            "in each change on Spark",
            "not measured" if most is None else f"at most {most:.2f} s in {len(resized_s)} changes",
            None if most is None else most < FEW_S,
            seldom if most is None else f"one takes {most:.1f} s",
        ),
        decided(
            BOTH,
            "that is remarkably less than Storm's own way, which restarts",
            "to stop a topology and to start it anew from its checkpoint with other processors "
            "takes at least ten times as long until the next tuple is done as the slowest change, "
            "on Spark; Storm's one to two minutes themselves cannot be measured here",
            "not measured"
            if restart_s is None or most is None
            else f"{restart_s:.1f} s, and {most:.2f} s for a change",
            None if restart_s is None or most is None else restart_s >= 10 * most,
            seldom if most is None else "a restart takes not so much longer",
        ),
    ]


def draw(found: Runs, first: int, figure: Any) -> None:
    """As theirs: a curve for each start."""
    names = list(dict.fromkeys(name for runs in found.values() for name in runs))
    for number, (policy, name) in enumerate(
        [(p, n) for p in found for n in names if n in found[p]], 1
    ):
        axes = figure.add_subplot(len(found), max(2, len(names)), number)
        for one, mark in zip(found[policy][name], "o+x", strict=False):
            means = [None if mean is None else mean * 1e3 for mean in one.means_s]
            axes.plot(range(1, len(means) + 1), means, f"{mark}-", label=told(one.start))
        axes.axvline(first, ls=":", c="grey")
        axes.set(title=f"{name}, {policy}", xlabel="minutes", ylabel="sojourn, ms")
        axes.legend(fontsize=6)
