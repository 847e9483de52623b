"""Now and then looks whether executors should be split or merged, and has it done. Fed by samples;
uses `placement/regroup.py`."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sojourn.engine.driver.division import Division
from sojourn.engine.driver.placing import Placing
from sojourn.placement.regroup import regrouped
from sojourn.ports import Samples

_log = logging.getLogger("sojourn")


@dataclass
class Regrouping:
    """What came for each shard since the last look, every `every_s`; never if that is 0."""

    placing: Placing
    shards: Mapping[str, int]  # of operators with several executors
    table: Callable[[str, int], list[int]]
    divide: Callable[[str, list[int]], Division]
    every_s: float
    since_s: float | None = None
    work_s: dict[str, dict[int, float]] = field(default_factory=dict)  # by operator and shard
    divisions: list[Division] = field(default_factory=list)

    def look(self, samples: Samples) -> None:
        """Take in an interval, and regroup if it is time."""
        if not self.every_s:
            return
        for name in self.shards:
            sample = samples.vertices.get(name)
            if sample is not None and sample.shards is not None:
                work_s = self.work_s.setdefault(name, {})
                for shard, count in sample.shards.items():
                    work_s[shard] = work_s.get(shard, 0.0) + count * (sample.service_s or 0.0)
        if self.since_s is None:
            self.since_s = samples.time_s
        elapsed_s = samples.time_s - self.since_s
        if elapsed_s >= self.every_s and all(d.done.is_set() for d in self.divisions):
            self.since_s = samples.time_s
            for name, work_s in self.work_s.items():
                self._regroup(name, {shard: s / elapsed_s for shard, s in work_s.items()})
            self.work_s.clear()

    def _regroup(self, name: str, loads: Mapping[int, float]) -> None:
        places = self.placing.layout.of(name)
        homes = {place: hello.machine for place, hello in self.placing.hub.hellos().items()}
        if len(places) < 2 or not all(place in homes for place in places):
            return
        cores = self.placing.counts.get(name) or [1] * len(places)
        found = regrouped(
            self.table(name, self.shards[name]),
            loads,
            cores,
            [homes[place] for place in places],
            self.placing.room,
        )
        if found is not None:
            _log.info("operator %s: %s", name, found.reason)
            self.divisions = [self.divide(name, found.table)]
