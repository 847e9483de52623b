"""One tick, from samples to a decision. Each step is a function of the results of the steps before.
None touches anything outside, so a journal can be decided anew offline. Fed by the loop, or by
`replay`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sojourn.chains import contracted
from sojourn.control.forecast import Forecast, prepare
from sojourn.control.measure import Measure, NotReady, is_whole, measured, metric_of, urged
from sojourn.control.model import modelled
from sojourn.control.policies import POLICIES
from sojourn.control.remember import adopted, after_start, remembered
from sojourn.control.situation import ACTING, Action, Change, Decision, Limits, Memory, Situation
from sojourn.ports import Pressure, Sample, Samples
from sojourn.settings import ControlSettings
from sojourn.topology import Edge, Topology, kind_of


@dataclass(frozen=True)
class Shape:
    """What control must know about a topology: the kinds of its vertices, and its limits. Views of
    it also need its edges; journals from before they were noted lack them."""

    name: str
    known: Mapping[str, str]
    limits: Limits
    start: Mapping[str, int]
    edges: tuple[Edge, ...] = ()


def shape_of(topology: Topology, paradigm: str = "elastic") -> Shape:
    """Sinks have one processor, and a chain has those of its head."""
    topology = contracted(topology).without_broadcasts()
    operators = topology.operators
    bounds = {name: spec.bounds(paradigm) for name, spec in operators.items()}
    return Shape(
        name=topology.name,
        known={name: kind_of(spec) for name, spec in topology.vertices.items()},
        limits=Limits(
            minimum={name: least for name, (least, _) in bounds.items()},
            maximum={name: most for name, (_, most) in bounds.items() if most is not None},
            fixed=dict.fromkeys(topology.sinks, 1),
        ),
        start={name: spec.processors for name, spec in operators.items()},
        edges=tuple(topology.edges),
    )


def _least(usual: int, sample: Sample | None) -> int:
    """The fewest processors of an operator: one for each executor that has shards."""
    parts = () if sample is None else sample.parts
    return min(usual, sum(part.used for part in parts)) if len(parts) > 1 else usual


@dataclass(frozen=True)
class Record:
    """One tick: what came in, what followed from it, what was decided, and whether it was done."""

    number: int
    time_s: float
    samples: Samples
    wanted: Mapping[str, int]
    capacity: int | None
    settings: ControlSettings
    measure: Measure | None
    estimate_s: float | None
    bias: tuple[float, float]
    kept_up: bool
    decision: Decision
    applied: bool
    pressures: tuple[Pressure, ...] = ()
    forecast: Forecast | None = None
    measured_s: float | None = None  # over as many intervals as it takes to say something
    machines: Mapping[str, int] | None = None  # in use by kind, where there are several kinds
    stale: str | None = None  # why the profile it started with holds no more, once it does not

    @property
    def metric(self) -> float | None:
        """The mean or percentile that the target applies to, of the interval alone."""
        if self.measure is None:
            return None
        return metric_of(self.measure.sojourn, self.settings.percentile)

    @property
    def within_target(self) -> bool | None:
        """Whether the target was kept in the interval. It was not if tuples were under way and none
        was completed, or if an operator was not there, as while the topology starts anew. None
        without a target, or if the tick was urgent and ends no interval."""
        target = self.settings.max_sojourn_s
        if target is None or self.pressures:
            return None
        if not self.wanted.keys() <= self.samples.vertices.keys():
            return False
        value = metric_of(self.samples.sojourn, self.settings.percentile)
        return self.samples.open_trees == 0 if value is None else value <= target

    @property
    def change(self) -> Change:
        """What is remembered about the change once it is made."""
        return Change(
            time_s=self.time_s,
            before=self.wanted,
            action=self.decision.action,
            measured_s=self.measured_s,
            expected_s=self.decision.expected_s,
            rate=0.0 if self.measure is None else self.measure.external_rate,
            kept_up=self.kept_up,
            reviewed=self.decision.forced or self.is_ahead,
            short=self.decision.short,
            forced=self.decision.forced,
        )

    @property
    def is_ahead(self) -> bool:
        """Whether the decision adds for a load that is to come or has just come. What was measured
        before, under less load, is then no measure of it."""
        foretold = self.forecast is not None and self.forecast.by != "now"
        risen = any(pressure.rate is not None for pressure in self.pressures)
        return (foretold or risen) and self.decision.action is Action.ADD


class Controller:
    """Takes the steps of each tick, and keeps the memory from one tick to the next."""

    def __init__(self, shape: Shape, settings: ControlSettings) -> None:
        self.shape, self.settings = shape, settings
        self.memory = Memory(dict(shape.start))
        prepare(settings)

    def step(
        self,
        samples: Samples,
        capacity: int | None,
        advise: bool = False,
        pressures: tuple[Pressure, ...] = (),
    ) -> Record:
        """Make one decision. Unless it is only advice, its allocation is wanted from now on.
        `pressures` are why the tick does not wait for the end of the interval."""
        shape, settings, now_s = self.shape, self.settings, samples.time_s
        least = {n: _least(k, samples.vertices.get(n)) for n, k in shape.limits.minimum.items()}
        limits = replace(shape.limits, capacity=capacity, minimum=least)
        before = self.memory
        if samples.starts != before.starts:
            before = after_start(before, samples.starts)
        if pressures:
            earlier = (replace(p, over_s=p.over_s + now_s - at) for at, p in before.pressed)
            found = urged(samples, before.past, shape.known, (*earlier, *pressures))
            if before.starting:  # what is read again is no load
                found = NotReady("the first interval mostly measures the start")
        else:
            found = measured(samples, before.before_s, shape.known, settings, before.starting)
            over = is_whole(samples, shape.known)
            before = replace(before, starting=before.starting and not over)
        situation = modelled(found, now_s, limits, before, settings, pressures, samples.commits)
        decision = POLICIES[settings.policy](situation)
        self.memory = remembered(situation, decision)
        record = Record(
            number=self.memory.number,
            time_s=now_s,
            samples=samples,
            wanted=situation.wanted,
            capacity=capacity,
            settings=settings,
            measure=situation.measure,
            estimate_s=situation.estimate_s,
            bias=(self.memory.bias.offset_s, self.memory.bias.slope),
            kept_up=situation.keeps_up,
            decision=decision,
            applied=decision.action in ACTING and not advise,
            pressures=pressures,
            forecast=situation.forecast if isinstance(situation, Situation) else None,
            measured_s=situation.metric if isinstance(situation, Situation) else None,
        )
        if record.applied:
            self.adopt(record)
        return record

    def adopt(self, record: Record) -> None:
        """Note that a decision is carried out: its allocation is wanted from now on."""
        allocation, hold_off_s = record.decision.allocation, record.settings.hold_off_s
        assert allocation is not None
        self.memory = adopted(self.memory, record.change, allocation, hold_off_s)
