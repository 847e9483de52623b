"""Records of a control loop as ticks: of a run, a simulation or a journal. Fed by the loop, as
one of its listeners; feeds a board."""

import functools
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from sojourn.control.bias import Bias
from sojourn.control.controller import Record, Shape
from sojourn.control.measure import Measure, NotReady
from sojourn.control.model import network_of
from sojourn.control.situation import ACTING
from sojourn.control.smoothing import smoothed
from sojourn.dashboard import tick as shown
from sojourn.dashboard.board import Board
from sojourn.dashboard.whatif import Model
from sojourn.paths import Critical
from sojourn.ports import QUANTILES, Part, Sample, Samples, Sojourn

_KEPT = 120  # measures, as many as the model looks at


def about_of(shape: Shape, source: str, began_s: float | None = None) -> shown.About:
    """What is known of a topology before its first tick."""
    return shown.About(
        name=shape.name,
        source=source,
        kinds=shape.known,
        edges=tuple(
            shown.Edge(edge.sender, edge.receiver, edge.name, edge.feedback) for edge in shape.edges
        ),
        began_s=began_s,
    )


class Follower:
    """A listener of a control loop that keeps a board up to date."""

    def __init__(
        self, board: Board, shape: Shape, time_of_day: Callable[[], float] | None = None
    ) -> None:
        self.board, self.shape, self.time_of_day = board, shape, time_of_day
        self.first_s: float | None = None
        self.past: deque[Measure] = deque(maxlen=_KEPT)

    def know(self, shape: Shape) -> None:
        """The shape as control has it, which also knows the processes that read sources."""
        self.shape = shape
        self.board.know(about_of(shape, self.board.about.source))

    def __call__(self, record: Record) -> None:
        if self.first_s is None:
            self.first_s = record.time_s - record.settings.interval_s
            if self.time_of_day is not None:
                self.board.begin(self.time_of_day() - record.settings.interval_s)
        if record.measure is not None and not record.pressures:
            self.past.append(record.measure)
        model = functools.partial(model_of, self.shape, record, tuple(self.past))
        self.board.add(tick_of(record, self.first_s), model)


def tick_of(record: Record, first_s: float) -> shown.Tick:
    """A record as it is shown; its time counts from `first_s`."""
    settings, samples, decision = record.settings, record.samples, record.decision
    shares = _shares(samples)
    note = "" if record.stale is None else f"the profile holds no more: {record.stale}"
    forecast = record.forecast
    return shown.Tick(
        number=record.number,
        time_s=record.time_s - first_s,
        interval_s=settings.interval_s,
        decision=shown.Decision(
            action=str(decision.action),
            reason=decision.reason,
            acts=decision.action in ACTING,
            applied=record.applied,
            allocation=decision.allocation,
            expected_s=decision.expected_s,
            needed=decision.needed,
        ),
        vertices={
            name: _vertex(sample, shares.get(name))
            for name, sample in samples.vertices.items()
            if sample.head is None
        },
        wanted=record.wanted,
        sojourn=None if samples.sojourn is None else _sojourn(samples.sojourn),
        value_s=record.metric,
        estimate_s=record.estimate_s,
        target_s=settings.max_sojourn_s,
        least_s=settings.min_sojourn_s,
        percentile=settings.percentile,
        within_target=record.within_target,
        load=None if record.measure is None else record.measure.external_rate,
        forecast=None
        if forecast is None
        else shown.Forecast(forecast.rate, forecast.horizon_s, forecast.by),
        most=settings.max_processors,
        capacity=record.capacity,
        machines=record.machines,
        restarts=samples.restarts,
        relocations=samples.relocations,
        commits=samples.commits,
        urgent=bool(record.pressures),
        note=note,
    )


def _vertex(sample: Sample, share: float | None) -> shown.Vertex:
    interval_s = sample.interval_s or 1.0
    return shown.Vertex(
        processors=sample.processors,
        wanted=sample.wanted,
        busy=sample.busy,
        rate=sample.arrival_rate,
        service_s=sample.service_s,
        queue=sample.queue + sum((sample.backlog or {}).values()),
        arrivals=sample.arrivals,
        served=sample.served,
        dropped=sample.dropped,
        shed=sample.shed,
        lag_s=sample.lag_s if sample.backlog is None else sample.behind_s,
        share=share,
        arrival_scv=sample.arrival_scv,
        service_scv=sample.service_scv,
        sent={name: count / interval_s for name, count in sample.emitted.items()},
        parts=tuple(_part(part) for part in sample.parts),
        shards=sample.shards,
    )


def _part(part: Part) -> shown.Part:
    return shown.Part(
        executor=part.executor,
        processors=part.processors,
        load=part.load,
        arrivals=part.arrivals,
        hottest=part.hottest,
        state=part.state,
        moves=part.moves,
        moved=part.moved,
        moving_s=part.moving_s,
        machines=_on(part.machines),
    )


def _on(machines: Mapping[str, int]) -> dict[str, int]:
    """Processors by machine, as people call it."""
    found: Counter[str] = Counter()
    for machine, count in machines.items():
        found[_called(machine)] += count
    return dict(found)


def _called(machine: str) -> str:
    """Its host, and the Spark executor there, if that has a number."""
    host, _, rest = machine.partition(":")
    number = rest.rpartition("/")[2]
    return f"{host}/{number}" if number.isdigit() else host


def _sojourn(sojourn: Sojourn) -> shown.Sojourn:
    return shown.Sojourn(
        count=sojourn.count,
        mean_s=sojourn.mean_s,
        p95_s=sojourn.p95_s,
        p99_s=sojourn.p99_s,
        max_s=sojourn.max_s,
        quantiles=tuple(zip(QUANTILES, sojourn.quantiles, strict=False)),
    )


def _shares(samples: Samples) -> dict[str, float]:
    """The part of each vertex in critical paths; without these, nothing."""
    critical: dict[str, Critical] = {}
    if samples.sojourn is not None:
        critical = dict(samples.sojourn.critical)
    total = sum(part.seconds for part in critical.values())
    return {name: part.seconds / total for name, part in critical.items()} if total > 0 else {}


def model_of(shape: Shape, record: Record, past: tuple[Measure, ...]) -> Model | str:
    """The model of the newest measures, for what-ifs, or why there is none."""
    if not past:
        return "nothing was measured yet"
    settings = record.settings
    network = network_of(smoothed(past, settings), settings)
    if isinstance(network, NotReady):
        return network.reason
    limits = replace(shape.limits, capacity=record.capacity)
    present = {name: past[-1].operators[name].processors for name in record.wanted}
    offset_s, slope = record.bias
    bare_s = network.bound(settings.percentile)
    raw_s = network.sojourn({**limits.fixed, **present}, settings.percentile)
    told_s = record.estimate_s
    # Of the learned bias, records lack only whether it counts what is served apart.
    bias = min(
        (Bias((), offset_s, slope, share) for share in (1.0, 0.0)),
        key=lambda one: 0.0 if told_s is None else abs(one.correct(raw_s, bare_s) - told_s),
    )
    return Model(
        network=network,
        minimum={name: limits.least(name) for name in record.wanted},
        maximum=limits.maximum,
        fixed=limits.fixed,
        present=present,
        percentile=settings.percentile,
        target_s=settings.max_sojourn_s,
        headroom=settings.headroom,
        correct=bias.correct,
        estimate_for=bias.estimate_for,
    )
