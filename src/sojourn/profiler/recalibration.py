"""When a profile holds no more (Liu 2017, §4.4): the application or its platform is another, or
messages wait or tuples take too long for a while. Says why. What comes from the data is told apart
from what comes from the platform, and from a load that was never carried. Pure, but for what it
remembers; fed with the samples of a run under control."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sojourn.ports import Sample, Samples
from sojourn.units import format_rate

Cause = Literal["platform", "topology", "data", "load", "unknown"]
_OTHER_GAIN = 1.2  # times as much, or as little, is passed on
_SLOWER = 1.25  # times as long as when profiled
_MORE = 1.05  # times the load


@dataclass(frozen=True)
class Known:
    """What a profile says: the limit on latency, what is carried within it, and how long operators
    take at that load and how much they pass on to each other."""

    limit_s: float
    throughput: float
    service_s: Mapping[str, float]
    gains: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Reason:
    """Why a profile holds no more. A load that was never carried is no reason to profile again: it
    takes machines."""

    cause: Cause
    words: str

    @property
    def is_profiled(self) -> bool:
        """Whether profiling again can help."""
        return self.cause != "load"


@dataclass
class _Sums:
    """Of an operator, while things were bad."""

    served: int = 0
    service_s: float = 0.0
    emitted: dict[str, int] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        self.served += sample.served
        self.service_s += (sample.service_s or 0.0) * sample.served
        for edge, count in sample.emitted.items():
            self.emitted[edge] = self.emitted.get(edge, 0) + count


class Recalibration:
    """Looks at each interval of a run. Tells a reason once, and again only after things were well
    for as long as it waits before it tells one. Another number of processors is told of once."""

    def __init__(self, known: Known, after_s: float, most_waiting: float) -> None:
        self.known, self.after_s, self.most_waiting = known, after_s, most_waiting
        self.bad_s = self.good_s = self.rate_s = 0.0
        self.sums: dict[str, _Sums] = {}
        self.cores: int | None = None
        self.told = self.resized = False

    def look(self, samples: Samples, cores: int | None = None) -> Reason | None:
        """One more interval, on so many cores."""
        seconds = max((s.interval_s for s in samples.vertices.values()), default=0.0)
        if None not in (cores, self.cores) and cores != self.cores and not self.resized:
            self.resized = True
            return Reason("platform", f"there are {cores} processors now, {self.cores} before")
        self.cores = cores if self.cores is None else self.cores
        bad = self._bad(samples)
        if bad is None:
            self.good_s += seconds
            if self.good_s >= self.after_s:
                self.told = False
            self._begin()
            return None
        self.good_s = 0.0
        self.bad_s += seconds
        for name, sample in samples.vertices.items():
            self.sums.setdefault(name, _Sums()).add(sample)
            if sample.lag_s is not None:
                self.rate_s += (sample.arrival_rate or 0.0) * sample.interval_s
        if self.told or self.bad_s < self.after_s:
            return None
        self.told = True
        reason = self._why(bad)
        self._begin()
        return reason

    def _begin(self) -> None:
        self.bad_s = self.rate_s = 0.0
        self.sums = {}

    def _bad(self, samples: Samples) -> str | None:
        """What is beyond a threshold, in words."""
        late = [s for s in samples.vertices.values() if s.lag_s is not None]
        waiting = sum((s.lag_s or 0.0) * (s.arrival_rate or 0.0) for s in late)
        if waiting > self.most_waiting:
            return f"{waiting:.0f} messages wait before the sources"
        if samples.sojourn is not None and samples.sojourn.mean_s > self.known.limit_s:
            return (
                f"tuples take {samples.sojourn.mean_s * 1e3:.0f} ms, more than "
                f"{self.known.limit_s * 1e3:.0f}"
            )
        return None

    def _why(self, bad: str) -> Reason:
        rate = self.rate_s / self.bad_s if self.bad_s else 0.0
        if rate > _MORE * self.known.throughput:
            carried = format_rate(self.known.throughput)
            words = f"{format_rate(rate)} messages come a second, and {carried} are carried"
            return Reason("load", f"{bad}, because {words}; it takes more machines")
        for name, gains in self.known.gains.items():
            sums = self.sums.get(name)
            if sums is None or not sums.served:
                continue
            for to, before in gains.items():
                made = sum(n for e, n in sums.emitted.items() if e.partition("[")[0] == to)
                now = made / sums.served
                if not before / _OTHER_GAIN <= now <= before * _OTHER_GAIN:
                    words = f"{name} passes on {now:.3g} for each tuple to {to}, {before:.3g} when"
                    return Reason("data", f"{bad}, because the data is other: {words} profiled")
        slower = {}
        for name, before in self.known.service_s.items():
            sums = self.sums.get(name)
            if sums is not None and sums.served:
                slower[name] = sums.service_s / sums.served / before
        worst = max(slower, key=slower.__getitem__, default=None)
        if worst is not None and slower[worst] > _SLOWER:
            if min(slower.values()) > _SLOWER and len(slower) > 1:
                words = f"all operators take at least {min(slower.values()):.2f} times as long as"
                return Reason("platform", f"{bad}, because {words} when profiled")
            words = f"{worst} takes {slower[worst]:.2f} times as long as when profiled"
            return Reason("data", f"{bad}, because the data is other: {words}")
        return Reason("unknown", f"{bad}, and nothing that is measured says why")
