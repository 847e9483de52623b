"""Cervino fig. 7 on Spark: machines of a real standalone cluster follow a rate that rises and falls
in steps. As in virtual time (`provisioning_fig7.py`), a small machine has one slot and a large one
four, and an operator sleeps for 10 ms; here a slot carries about 90 tuples a second, so the rate
goes up to 290. The machine sheds what would wait for more than a quarter of a second. Steps last 40
s and a period 10 s. Machines are kept ready, or are started when they are asked for, which takes
about ten seconds.

Claims and rule are those of figure 7. Seconds with stolen CPU do not count for latency. It is
undecided where a step has fewer than half of its seconds left, or more than 60 % of the CPU was
used. Until a run in which one second had nothing done and 22 of 874 had stolen CPU, all seconds
counted."""

import tempfile
import time
from dataclasses import replace
from functools import partial

from lab import Finding, Lab
from provisioning_fig7 import SERVICE_S, SHED_S, Case, control_of, draw, judged_by_rule, told
from shapes import Nap
from stolen import Steal, alone

import sojourn as sj
from sojourn.control.controller import Record
from sojourn.settings import EngineSettings
from sojourn.simulator import Distribution

ENGINES = ("spark",)
NOTES = (
    "a standalone cluster on loopback; the operator sleeps for 10 ms, machines have one slot or "
    "four; what would wait for more than 250 ms is shed; steps of 40 s, a period of 10 s"
)
RATES = (50.0, 135.0, 210.0, 290.0, 210.0, 135.0, 50.0)
STEP_S, PERIOD_S, START_S = 40.0, 10.0, 10.0
MOST = 6
BUSY = 0.6  # of the CPU, above which a run says little


def records_of(case: Case) -> tuple[list[Record], list[bool]]:
    """Second by second, and whether others left the CPU alone in it."""
    t = sj.Topology("stocks")
    trades = t.source("trades", sj.sources.paced(lambda n: n, rate=case.steps))
    nap = Nap(0, Distribution("constant", SERVICE_S), {"out": 1.0})
    maxima = t.operator("maxima", nap, trades, processors=case.slots, shed_after=SHED_S)
    t.sink("out", sj.sinks.call(lambda _: None), maxima["out"])
    control = replace(control_of(case), pool="standalone", machine_cores=4, max_machines=MOST)
    found: list[Record] = []
    ended_s: list[float] = []

    def note(record: Record) -> None:
        if not record.pressures:
            found.append(record)
            ended_s.append(time.monotonic())

    with (
        alone(),
        Steal() as steal,
        tempfile.TemporaryDirectory() as checkpoint,
        sj.Running(
            t,
            EngineSettings(batch_s=3600.0),
            control,
            checkpoint=checkpoint,
            listeners=[note],
        ) as running,
    ):
        running.wait(case.step_s * len(case.rates))
    return found, [steal.was_clean(at_s - 1.0, at_s) for at_s in ended_s]


def run(lab: Lab) -> Finding:
    """Small machines that are ready, small ones that are started, and large ones."""
    lab.close()  # the cluster has a Spark of its own
    some = [Case(1, ready=3), Case(1, START_S), Case(4, START_S)]
    cases = [replace(one, rates=RATES, step_s=STEP_S, period_s=PERIOD_S) for one in some]
    with Steal() as steal:
        found = {
            case.name: (case, told(case, *records_of(case)))
            for case in cases[: 1 if lab.quick else 3]
        }
    rows, wrong = judged_by_rule(found)
    verdict = "all claims hold" if not wrong else f"missed: {'; '.join(wrong)}"
    figures = {name: of for name, (_, of) in found.items()}
    least = min(step["clean"] for _, of in found.values() for step in of["steps"])
    busy = steal.told()["busy"]
    held = None if lab.quick else not wrong
    if least < 0.5 or busy > BUSY:
        held, verdict = None, f"{verdict}; {busy:.0%} of the CPU used, {least:.0%} of a step clean"
    return Finding(figures, rows, verdict, held, partial(draw, found=found))
