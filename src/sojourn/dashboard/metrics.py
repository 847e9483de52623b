"""The board for Prometheus: names and units by its conventions, labels of which there are few (per
operator, never per tuple). Read by `/metrics`."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from sojourn.dashboard.board import BUCKETS_S, Board
from sojourn.dashboard.tick import Tick

_TOPOLOGY, _OPERATOR = ["topology"], ["topology", "operator"]
_TUPLES = {
    "arrivals": "Tuples that came.",
    "served": "Tuples that were processed.",
    "dropped": "Tuples that were dropped.",
    "shed": "Tuples that were shed because of too much load.",
}


class BoardCollector:
    """Makes metrics of the board when they are asked for."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        with self.board.lock:
            yield from self._sums()
            yield from self._state()
            if self.board.tick is not None:
                yield from self._topology(self.board.tick)
                yield from self._operators(self.board.tick)

    def _sums(self) -> Iterator[Metric]:
        board, totals, name = self.board, self.board.totals, self.board.about.name
        sojourns = HistogramMetricFamily(
            "sojourn_topology_sojourn_seconds",
            "Sojourns of the tuple trees that are tracked, from a tuple's intended arrival until "
            "all that derives from it is processed.",
            labels=_TOPOLOGY,
        )
        # Trees between two percentiles are shared out among buckets; a count has no fractions.
        upto = [*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"]
        counts = map(round, [*totals.buckets, totals.trees])
        sojourns.add_metric([name], list(zip(upto, counts, strict=True)), totals.sojourn_s)
        yield sojourns
        last = board.last
        sums = {
            "intervals": (totals.intervals, "Intervals of control."),
            "intervals_targeted": (totals.targeted, "Intervals that had a target."),
            "intervals_within_target": (totals.within, "Intervals that kept the target."),
            "changes": (totals.changes, "Changes of the allocation that were made."),
            "restarts": (last.restarts if last else 0, "Restarts of the topology after failures."),
            "relocations": (
                last.relocations if last else 0,
                "Starts anew that no failure made, such as on other machines.",
            ),
            "commits": (last.commits if last else 0, "Commits, with those before the start."),
        }
        for key, (value, told) in sums.items():
            metric = CounterMetricFamily(f"sojourn_{key}", told, labels=_TOPOLOGY)
            metric.add_metric([name], value)
            yield metric
        decisions = CounterMetricFamily(
            "sojourn_decisions", "Decisions by what they do.", labels=["topology", "action"]
        )
        for action, count in totals.decisions.items():
            decisions.add_metric([name, action.replace(" ", "_")], count)
        yield decisions
        for what, told in _TUPLES.items():
            tuples = CounterMetricFamily(f"sojourn_operator_{what}", told, labels=_OPERATOR)
            for vertex in board.about.kinds:
                tuples.add_metric([name, vertex], totals.tuples[vertex, what])
            yield tuples

    def _state(self) -> Iterator[Metric]:
        """How it stands. When the last tick was is known of runs, which have a time of day."""
        board, began_s, last = self.board, self.board.about.began_s, self.board.last
        yield from self._gauges(
            ("control_paused", "Whether changes are paused.", float(board.paused)),
            ("finished", "Whether the topology has ended.", float(board.finished)),
            ("failed", "Whether the topology has failed.", float(bool(board.problem))),
            (
                "last_tick_timestamp_seconds",
                "When the last tick was, as Unix time.",
                None if began_s is None or last is None else began_s + last.time_s,
            ),
        )

    def _gauges(self, *gauges: tuple[str, str, float | None]) -> Iterator[Metric]:
        """Those that are known."""
        for key, told, value in gauges:
            if value is not None:
                metric = GaugeMetricFamily(f"sojourn_{key}", told, labels=_TOPOLOGY)
                metric.add_metric([self.board.about.name], value)
                yield metric

    def _topology(self, tick: Tick) -> Iterator[Metric]:
        name = self.board.about.name
        what = "mean" if tick.percentile is None else f"p{tick.percentile:g}"
        statistic = ["topology", "statistic"]
        for key, told, value in (
            ("target", "The sojourn to keep below.", tick.target_s),
            ("last", "The sojourn of the last interval.", tick.value_s),
            ("expected", "The sojourn that the model expects.", tick.estimate_s),
        ):
            if value is not None:
                metric = GaugeMetricFamily(f"sojourn_{key}_seconds", told, labels=statistic)
                metric.add_metric([name, what], value)
                yield metric
        limits = [limit for limit in (tick.most, tick.capacity) if limit is not None]
        forecast = tick.forecast
        yield from self._gauges(
            ("arrival_rate", "Tuples per second from outside.", tick.load),
            (
                "forecast_arrival_rate",
                "Tuples per second that are expected.",
                None if forecast is None else forecast.rate,
            ),
            ("processors", "Processors of all operators.", tick.processors),
            (
                "processors_limit",
                "The most that may be used.",
                min(limits, default=None),
            ),
            (
                "processors_needed",
                "Processors that the last decision found to be needed.",
                tick.decision.needed,
            ),
        )
        if tick.machines is not None:
            machines = GaugeMetricFamily(
                "sojourn_machines", "Machines in use by kind.", labels=["topology", "kind"]
            )
            for kind, count in tick.machines.items():
                machines.add_metric([name, kind], count)
            yield machines

    def _operators(self, tick: Tick) -> Iterator[Metric]:
        name = self.board.about.name
        of = {
            "processors": "Processors that are there.",
            "processors_wanted": "Processors that there should be.",
            "utilization_ratio": "The share of time that processors were busy.",
            "arrival_rate": "Tuples that came per second.",
            "service_seconds": "Mean time to process a tuple.",
            "queue_length": "Tuples that wait.",
            "lag_seconds": "How far a source is behind.",
        }
        found = {
            key: GaugeMetricFamily(f"sojourn_operator_{key}", told, labels=_OPERATOR)
            for key, told in of.items()
        }
        for vertex, one in tick.vertices.items():
            values = {
                "processors": one.processors,
                "processors_wanted": tick.wanted.get(vertex),
                "utilization_ratio": one.busy,
                "arrival_rate": one.rate,
                "service_seconds": one.service_s,
                "queue_length": one.queue,
                "lag_seconds": one.lag_s,
            }
            for key, value in values.items():
                if value is not None:
                    found[key].add_metric([name, vertex], value)
        yield from found.values()


def exposed(board: Board, accept: str) -> tuple[bytes, str]:
    """The text that Prometheus reads, and its kind."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BoardCollector(board))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind
