"""DRS ToN fig. 8 (ICDCS fig. 9): 22 processors in three initial placements, which may be changed
from the 14th of 27 minutes on. Theirs are changed then, all end at the same optimum, and the change
costs little and takes seconds, where Storm's own takes one to two minutes.

The papers' claims are judged by runs of `drs-2017`, their own scheduler, with M/M/k and T_ra of 14
minutes, ours by `drs`. A minute is five seconds on Spark. Service times are chosen such that the
model places processors as theirs did, at the papers' rates. The optimum is what the scheduler
itself ends with in a run before these, from the papers' optimum; runs start with it and with two
others of the papers' starts. The papers' optimum is by eq. 4 as printed, while our scheduler weighs
trees by their critical path. On Spark, full runs have both applications' real code as well
(coded.py), from the allocation that the scheduler recommends in a run before these and from two
near it; patterns tell all instances of the detector. Storm's way, to stop and to start anew from a
checkpoint with other processors, is measured on Spark as well, five times.

A claim about all runs of both applications holds if each shows it. That the sojourn falls holds if
it does for sure in each run that was changed, by the means of minutes 2 to 13 and 15 to 27 with 95
% confidence, and does not if it rises in one, by Holm's correction. Curves are similar from the
15th minute on if each one's mean is within a quarter of that of the best start, with its whole
interval of 95 %. The 14th minute's mean is at most half as much again as that of minutes 2 to 13,
and the 15th's is no longer than that: then the increase is negligible and within the 14th minute
only. That does not hold if one is above its bound by more than minutes differ from one another, in
95 % of the cases and by Holm's correction. A few seconds are less than ten. A run with real code in
which more than 60 % of the CPU is used decides nothing. In quick runs, what does not hold cannot be
decided. Nothing else decides.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import paired
from coded import BUSY, TIMES, coded, sleeps
from controlled import (
    POLICIES,
    Run,
    decided,
    difference,
    minute_of,
    quotient,
    run_of,
    tentative,
    told,
    unless_busy,
)
from lab import Claim, Finding, Lab, Watched, judged
from paired import Estimate
from restarts import restarts
from shapes import Shape, fpd, neighbours, vld

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
    "alone and leave out fpd, real code and restarts; change.gain is 0.01 and change.doubt 0 for "
    "drs, so that any better placement is taken, as in the papers; real code keeps "
    f"{BUSY['vld']:g} (vld) and {BUSY['fpd']:g} (fpd) processors busy, by sleeping "
    f"{TIMES['vld']:g} and {TIMES['fpd']:g} times the CPU time of a call, or fewer times if "
    "calls take longer than in the sample; patterns have a window of 87 messages "
    "and a support of 0.1, with 13 instances that are all told"
)

Runs = Mapping[str, Mapping[str, Sequence[Run]]]  # by policy and application, the optimum first


def settings_of(policy: str, first: int, minute_s: float) -> ControlSettings:
    """The papers' scheduler changes at most once, as its T_ra of 14 minutes leaves room for a
    second change in the last one only; ours as it likes."""
    before_s = (first - 1) * minute_s
    theirs = policy == "drs-2017"
    return ControlSettings(
        policy=policy,
        max_processors=22,
        interval_s=minute_s,
        window_s=before_s,
        change_interval_s=MINUTES * minute_s if theirs else 0.0,
        gain=0.01,
        doubt=0.0,
        model="mmk",
    )


def run(lab: Lab) -> Finding:
    """Each start once under each policy, after a run that finds the optimum."""
    quick = lab.quick and lab.engine == "spark"
    minutes, first = (QUICK_MINUTES, QUICK_FIRST) if quick else (MINUTES, FIRST)
    shapes: list[Shape] = [vld(scale=3.0, drawn=lab.seed_of("rates"))]
    if not quick:
        shapes.append(fpd(slower=20.0))
    found: dict[str, dict[str, list[Run]]] = {}
    resized_s: list[float] = []

    def made(policy: str, case: tuple[Shape, tuple[int, ...]]) -> tuple[Run, list[float]]:
        one, watched = controlled(lab, policy, *case, minutes, first)
        return one, watched.resized_s

    for policy in POLICIES if not quick else POLICIES[:1]:
        found[policy] = {shape.name: [] for shape in shapes}
        begin = [(shape, STARTS[shape.name][0]) for shape in shapes]
        ends = [one.end for one, _ in lab.each(partial(made, policy), begin, len(begin))]
        cases = [
            (shape, start)
            for shape, end in zip(shapes, ends, strict=True)
            for start in (end, *[s for s in STARTS[shape.name] if s != end][-2:])
        ]
        some = lab.each(partial(made, policy), cases, len(cases))
        for (shape, _), (one, took_s) in zip(cases, some, strict=True):
            found[policy][shape.name].append(one)
            resized_s += took_s
    busy, restart = 0.0, None
    times = {}
    if lab.engine == "spark" and not quick:
        for app in BUSY:
            times[app] = sleeps(lab, app)
            runs, used = with_code(lab, app, times[app])
            found["drs-2017"][f"{app}-code"] = runs
            busy = max(busy, used)
        restart = restarts(lab)
    return told_of(found, first, resized_s, restart, lab.quick, busy, times)


def controlled(
    lab: Lab, policy: str, shape: Shape, start: tuple[int, ...], minutes: int, first: int
) -> tuple[Run, Watched]:
    """One run, and what it was made of."""
    minute_s = minute_of(lab, MINUTE_S)
    allocation = dict(zip(shape.service, start, strict=True))
    settings, allowed_s = settings_of(policy, first, minute_s), (first - 1) * minute_s
    found = lab.controlled(shape, allocation, settings, minutes * minute_s, allowed_s)
    return run_of(found.records, list(shape.service), quiet=first - 1), found


def with_code(lab: Lab, app: str, times: float) -> tuple[list[Run], float]:
    """Real code, whose calls sleep so many times their CPU time, from what the scheduler recommends
    in a run of its own, and from two others; and the most of the CPU that was used."""
    shape = coded(app, times=times)
    network = shape.network()

    def one(start: tuple[int, ...]) -> tuple[Run, float]:
        run, watched = controlled(lab, "drs-2017", shape, start, MINUTES, FIRST)
        return run, watched.busy

    begin = tuple(assign_processors(network, 22).allocation.values())
    ((before, _),) = lab.each(one, [begin], 1)
    best = dict(zip(shape.service, before.end, strict=True))
    near = neighbours(network, best, 12)
    others = [tuple(place.values()) for place in (near[len(near) // 2], near[-1])]
    at_once = 1 if app == "vld" else 3  # calls of patterns take microseconds
    some = lab.each(one, [before.end, *others], at_once)
    return [run for run, _ in some], max(busy for _, busy in some)


def told_of(
    found: Runs,
    first: int,
    resized_s: Sequence[float],
    restart: Estimate | None,
    quick: bool,
    busy: float = 0.0,
    times: Mapping[str, float] | None = None,
) -> Finding:
    """What they show."""
    claims: list[Claim] = []
    for policy, runs in found.items():
        sleeping = {name: some for name, some in runs.items() if not name.endswith("-code")}
        real = {name: some for name, some in runs.items() if name.endswith("-code")}
        if policy == "drs-2017":
            claims += _whole(_claims(BOTH, "", sleeping, first, quick), sleeping)
            if real:
                of_code = _claims("ours", "with real code and drs-2017, ", real, first, quick)
                claims += unless_busy(of_code, busy)
        else:
            claims += _whole(_claims("ours", "with drs, ", sleeping, first, quick), sleeping)
    claims += _costs(resized_s, restart)
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
        "restart_s": None if restart is None else (restart.value, restart.half),
        "busy with real code": busy,
        "times that real code sleeps": times or {},
    }
    return judged(tentative(claims, quick), figures, rows, partial(draw, found, first))


def _whole(claims: Sequence[Claim], runs: Mapping[str, Sequence[Run]]) -> list[Claim]:
    """Claims about both applications hold only if both were run."""
    lacking = [name for name in STARTS if name not in runs]
    if not lacking:
        return list(claims)
    why = f"too short to tell: {' and '.join(lacking)} was not run"
    return [replace(one, holds=None, why=why) if one.holds else one for one in claims]


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
    falls = {name: difference(r.mean(2, first - 1), after[name]) for name, r in moved.items()}
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
    if known and all(now.value <= HARDLY and then.value <= 1 for now, then in known):
        hardly = True if len(known) == len(rises) else None
    elif paired.rejected(
        [one.above(b) for r in known for one, b in zip(r, (HARDLY, 1), strict=True)]
    ):
        hardly = False
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
            f"the mean of the minute of the change is at most {HARDLY:g} times that of the minutes "
            "before, from the second on, and that of the next one no longer, in each run that "
            "starts elsewhere; it does not hold if one is above that for sure, as minutes differ, "
            "with 95 % confidence and by Holm's correction",
            ", ".join(f"{_both(rise)} ({name})" for name, rise in rises.items()),
            hardly,
            "one increases more" if hardly is False else "not all were changed, or minutes differ",
        ),
    ]  # fmt: skip


def _both(rise: tuple[Estimate, Estimate] | None) -> str:
    return "no change" if rise is None else f"{rise[0]:.2f} and then {rise[1]:.2f}"


def _after(one: Run, first: int) -> Estimate:
    return one.mean(first + 1, len(one.means_s))


def _rise(one: Run, first: int) -> tuple[Estimate, Estimate] | None:
    """The minute of the change, and the next, over those before, with how much minutes differ from
    their mean; None without a change."""
    minute = one.changes[0].minute if one.changes else first
    before, now = one.known(2, minute - 1), one.known(minute, minute)
    then = one.known(minute + 1, minute + 1)
    if not one.changes or len(before) < 2 or not (now and then):
        return None
    usual_s = statistics.fmean(before)
    error = statistics.stdev(before) / usual_s * (1 + 1 / len(before)) ** 0.5
    of_now, of_then = (Estimate(some[0] / usual_s, error, len(before) - 1) for some in (now, then))
    return of_now, of_then


def _costs(resized_s: Sequence[float], restart: Estimate | None) -> list[Claim]:
    most = max(resized_s, default=None)
    seldom = (
        "nothing was changed in real time: that of the simulator is virtual"
        if most is None
        else "quick runs restart nothing"
    )
    less = None
    if restart is not None and most is not None:
        less = paired.every([restart], 10 * most)
    return [
        decided(
            BOTH,
            "a change takes a few seconds",
            f"all processors are there, or gone, less than {FEW_S:g} s after they are asked for, "
            "in each change on Spark where operators sleep",
            "not measured" if most is None else f"at most {most:.2f} s in {len(resized_s)} changes",
            None if most is None else most < FEW_S,
            seldom if most is None else f"one takes {most:.1f} s",
        ),
        decided(
            BOTH,
            "that is remarkably less than Storm's own way, which restarts",
            "to stop a topology and to start it anew from its checkpoint with other processors "
            "takes at least ten times as long until the next tuple is done as the slowest change, "
            "on Spark, by the mean of five with 95 % confidence; it does not hold if it takes less "
            "with as much; Storm's one to two minutes themselves cannot be measured here",
            "not measured"
            if restart is None or most is None
            else f"{restart:.1f} s, and at most {most:.2f} s for a change",
            less,
            seldom
            if restart is None or most is None
            else "a restart takes not so much longer"
            if less is False
            else "not told apart",
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
        axes.axvline(first, ls=":", c="grey", label=f"theirs change, minute {first}")
        axes.set(title=f"{name}, {policy}", xlabel="minutes", ylabel="sojourn, ms")
        axes.legend(fontsize=6)
