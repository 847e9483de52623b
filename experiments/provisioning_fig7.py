"""Cervino fig. 7: machines follow a rate that rises and falls in steps. A small machine has one
slot and a large one four; an operator sleeps for 10 ms, so a slot carries 100 tuples a second.
The rate goes up to 340 a second and down again, 90 s a step; one large machine carries that. The
source sheds what is a quarter of a second late. Machines are ready beforehand, and again take 40
s to come.

Claims: small machines follow up and down, and drops end within two periods of a rise; with large
machines one is enough throughout, with few drops; the latency of kept tuples stays flat.

Rule, of the mended algorithm with a period of 30 s: with small machines, more are used at the peak
than in the first and in the last step; two periods after a step began, and the time that a machine
takes to come, nothing is shed any more; with large ones there is one throughout, and less than 1 %
is shed; and in every step of both the 95th percentile of kept tuples is below twice the time after
which they are shed, and no second passes in which tuples came and none was done.

Told, and not judged: the printed algorithm, each of the options, and periods of 5, 10, 60 and 120
s: machine-seconds, and the share that was shed. Where machines take 40 s to come: an allowance for
that, and one machine that is kept ready. Kinds to choose from by price: what they cost, in hours of
a small machine, beside machines of either kind alone; once if they are ready, and once if they take
40 s to come."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lab import Finding, Lab

import sojourn as sj
from sojourn.control.controller import Record
from sojourn.provisioning.kinds import Kind
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload

ENGINES = ("simulator",)
NOTES = (
    "virtual time; operators sleep for 10 ms, machines have one slot or four; the source sheds "
    "what is 250 ms late; steps of 90 s"
)
SERVICE_S = 0.010
SHED_S = 0.25
STEP_S = 90.0
RATES = (60.0, 160.0, 250.0, 340.0, 250.0, 160.0, 60.0)
PERIOD_S, START_S = 30.0, 40.0
OPTIONS = ("predict", "latency", "idle", "spread", "all")
PRICES = {1: 1.0, 4: 3.0}  # an hour, by slots
PERIODS = (5.0, 10.0, 60.0, 120.0)


@dataclass(frozen=True)
class Case:
    """What is varied."""

    slots: int = 1
    start_s: float = 0.0
    form: str = "mended"
    extra: str = "none"
    period_s: float = PERIOD_S
    ready: int = 0
    mixed: bool = False
    rates: tuple[float, ...] = RATES
    step_s: float = STEP_S

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        """For how long which rate."""
        return tuple((self.step_s, rate) for rate in self.rates)

    @property
    def kinds(self) -> tuple[Kind, ...] | None:
        """Small and large ones to choose from, if that is so."""
        if not self.mixed:
            return None
        small, large = PRICES.items()
        return Kind("small", *small, self.start_s), Kind("large", *large, self.start_s)

    @property
    def name(self) -> str:
        size = "both" if self.mixed else "small" if self.slots == 1 else "large"
        ready = "ready" if not self.start_s else f"{self.start_s:.0f} s to come"
        more = "" if self.extra == "none" else f", {self.extra}"
        more += f", {self.ready} spare" if self.ready else ""
        return f"{size}, {ready}, {self.form}{more}, every {self.period_s:.0f} s"


def records_of(case: Case) -> list[Record]:
    """Second by second, in virtual time."""
    t = sj.Topology("stocks")
    trades = t.source("trades", sj.sources.paced(lambda n: n, rate=1.0, shed_after=SHED_S))
    t.sink("out", sj.sinks.console(), t.operator("maxima", lambda v: [v], trades))
    load = OperatorLoad(Distribution("gamma", SERVICE_S, scv=0.05), cpu=0.0)
    found: list[Record] = []
    Simulation(
        t,
        Workload({"maxima": load}, {"trades": SourceLoad(case.steps)}),
        (EngineSettings(), control_of(case), SimulatorSettings(machine_start_s=case.start_s)),
        case.step_s * len(case.rates),
        machines=1,
    ).run(listeners=[found.append])
    return [record for record in found if not record.pressures]


def control_of(case: Case) -> ControlSettings:
    """How machines are decided on."""
    return ControlSettings(
        max_sojourn_s=1.0,
        policy="provision",
        provision_form=case.form,
        provision_extra=case.extra,
        provision_s=case.period_s,
        provision_ready=case.ready,
        provision_kinds=case.kinds,
        machine_processors=case.slots,
        quiet_s=0.0,
    )


def told(case: Case, records: list[Record], clean: Sequence[bool] | None = None) -> dict[str, Any]:
    """What came of it, second by second and step by step. Seconds that are not `clean` say nothing
    about latency."""
    clean = [True] * len(records) if clean is None else clean
    machines = [(record.capacity or case.slots) / case.slots for record in records]
    shed = [sum(v.shed for v in record.samples.vertices.values()) for record in records]
    sources = [record.samples.vertices["trades"] for record in records]
    came = sum(source.arrivals + source.shed for source in sources)
    sojourns = [record.samples.sojourn for record in records]
    began_s = records[0].time_s - sources[0].interval_s
    times = [record.time_s - began_s for record in records]
    each = []
    for number, rate in enumerate(case.rates):
        since, until = number * case.step_s, (number + 1) * case.step_s
        part = [i for i, at in enumerate(times) if since < at <= until]
        settled = since + 2 * case.period_s + case.start_s
        sure = [i for i in part if clean[i]]
        slow_s = [s.p95_s for i in sure if (s := sojourns[i]) is not None]
        each.append(
            {
                "rate": rate,
                "machines": machines[part[-1]] if part else 0.0,
                "shed": sum(shed[i] for i in part),
                "shed_later": sum(shed[i] for i in part if times[i] > settled),
                "p95_s": statistics.quantiles(slow_s, n=20)[-1] if len(slow_s) > 1 else 0.0,
                "stalled": sum(sources[i].arrivals > 0 and sojourns[i] is None for i in sure),
                "clean": len(sure) / max(1, len(part)),
            }
        )
    return {
        "machines": machines,
        "shed": shed,
        "steps": each,
        "machine_s": sum(machines),
        "slot_s": sum(machines) * case.slots,
        "price_h": sum(map(_price, records)) / 3600
        if case.mixed
        else sum(machines) * PRICES[case.slots] / 3600,
        "shed_share": sum(shed) / max(1, came),
    }


def _price(record: Record) -> float:
    """An hour of the machines in use."""
    machines = record.machines or {}
    return machines["small"] * PRICES[1] + machines["large"] * PRICES[4]


Judged = dict[str, tuple[Case, dict[str, Any]]]


def judged_by_rule(found: Judged) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Rows for the page, and what is against the rule."""
    rows, wrong = [], []
    for name, (case, of) in found.items():
        steps = of["steps"]
        counts = [round(step["machines"]) for step in steps]
        rows.append(
            (f"{name}: machines by step, shed", "follows" if case.slots == 1 else "one, few",
             f"{' '.join(map(str, counts))}, {of['shed_share']:.2%}")
        )  # fmt: skip
        if case.slots == 1:
            if not counts[len(counts) // 2] > max(counts[0], counts[-1]):
                wrong.append(f"{name}: machines do not follow")
            wrong += [f"{name}: shed at {s['rate']:.0f}/s" for s in steps if s["shed_later"]]
        elif max(of["machines"]) > 1 or of["shed_share"] >= 0.01:
            wrong.append(f"{name}: {max(of['machines']):.0f} machines, {of['shed_share']:.1%} shed")
        wrong += [f"{name}: none done at {s['rate']:.0f}/s" for s in steps if s["stalled"]]
        longest = max(step["p95_s"] for step in steps)
        if longest > 2 * SHED_S:
            wrong.append(f"{name}: tuples take {longest * 1e3:.0f} ms")
    return rows, wrong


def run(lab: Lab) -> Finding:
    """What is judged, and what is told."""
    cases = (Case(1), Case(1, START_S), Case(4), Case(4, START_S))
    judged = {case.name: (case, told(case, records_of(case))) for case in cases}
    others = [Case(form="printed")]
    others += [Case(extra=extra) for extra in OPTIONS] + [Case(period_s=p) for p in PERIODS]
    others += [Case(1, START_S, extra=extra) for extra in ("start", "predict", "all")]
    others += [Case(1, START_S, ready=1)]
    others += [Case(mixed=True), Case(start_s=START_S, mixed=True)]
    if lab.quick:
        others = others[:2]
    rows, wrong = judged_by_rule(judged)
    figures: dict[str, Any] = {name: of for name, (_, of) in judged.items()}
    for case in others:
        of = figures[case.name] = told(case, records_of(case))
        rows.append(
            (f"{case.name}: machine-seconds, shed", "", f"{of['machine_s']:.0f}, "
             f"{of['shed_share']:.2%}")
        )  # fmt: skip
    for case, of in [*judged.values(), *((c, figures[c.name]) for c in others if c.mixed)]:
        rows.append(
            (f"{case.name}: price, shed", "", f"{of['price_h']:.3f}, {of['shed_share']:.2%}")
        )
    verdict = "all claims hold" if not wrong else f"missed: {'; '.join(wrong)}"
    return Finding(figures, rows, verdict, not wrong, partial(draw, found=judged))


def draw(figure: Any, found: Judged) -> None:
    """Machines beside the rate, and what was shed."""
    for axis, (name, (case, of)) in zip(figure.subplots(2, 2).flat, found.items(), strict=False):
        seconds = range(len(of["machines"]))
        axis.step(seconds, of["machines"], where="post", label="machines")
        axis.step(
            [i * case.step_s for i in range(len(case.rates) + 1)],
            [rate / 100 / case.slots for rate in (*case.rates, case.rates[-1])],
            where="post",
            color="grey",
            label="rate, in machines",
        )
        shed = [s / 100 / case.slots for s in of["shed"]]
        axis.plot(seconds, shed, "*", ms=2, label="shed, in machines")
        axis.set_title(name, fontsize=8)
        axis.set(ylim=(0, None))
        axis.legend(fontsize=6)
