"""The resource-centric way to use more or fewer processors, and the static one: every executor of
an operator with a key has one processor. More processors are more executors that have shards. The
shards of the whole operator are divided anew among them, also when some are busier than others.
Here for comparison; operators without a key are as usual. Fed by what operators should have and by
samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sojourn.engine.driver.division import Division
from sojourn.engine.driver.placing import Placing
from sojourn.placement.balance import THETA, balanced, imbalance, skew, tolerated
from sojourn.placement.loads import SETTLES_S
from sojourn.ports import SEEN, Samples

# Tuples come to an executor many at a time, in rows. Over a few seconds that looks like imbalance
# between executors, and to divide shards anew for it costs more than it gains.
_MEMORY_S = 10.0


@dataclass(kw_only=True)
class Repartitioning(Placing):
    """Who has which shards, and what each shard brings. If `frozen`, nothing ever changes."""

    shards: Mapping[str, int]
    table: Callable[[str, int], list[int]]
    divide: Callable[[str, list[int]], Division]
    frozen: bool
    lately: dict[str, dict[int, float]] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)  # processors that have something to do
    under_way: dict[str, Division] = field(default_factory=dict)
    before_s: float | None = None
    settled_s: dict[str, float] = field(default_factory=dict)  # when executors may be compared
    divisions: list[Division] = field(default_factory=list)

    def place(self, wanted: Mapping[str, int]) -> None:
        """Have operators use so many processors."""
        super().place({name: n for name, n in wanted.items() if name not in self.shards})
        for name in self.shards.keys() & wanted.keys():
            for place in self.layout.of(name):
                self.hub.resize(place, 1, {})
            self._follow(name, wanted[name])

    def look(self, wanted: Mapping[str, int], samples: Samples | None = None) -> None:
        """Take in what came for each shard. If executors of an operator are unequally busy, for
        sure and not by chance, divide its shards anew."""
        super().look({name: n for name, n in wanted.items() if name not in self.shards})
        assert samples is not None
        seconds = 0.0 if self.before_s is None else samples.time_s - self.before_s
        self.before_s = samples.time_s
        for name in self.shards:
            lately = self.lately.get(name, {})
            sample = samples.vertices.get(name)
            came = {} if sample is None or sample.shards is None else sample.shards
            kept = max(0.0, 1 - max(0.0, seconds) / _MEMORY_S)
            self.lately[name] = {
                shard: kept * lately.get(shard, 0.0) + came.get(shard, 0)
                for shard in {*lately, *came}
            }
            self.busy[name] = 0.0 if sample is None else sample.busy * sample.processors
            self._follow(name, wanted[name])

    def _follow(self, name: str, processors: int) -> None:
        """Divide an operator's shards anew if it should have another number of executors, or if
        these are out of balance. That stops the operator, so θ is not lower for busy ones; but then
        shards are divided closely."""
        under_way = self.under_way.get(name)
        if self.frozen or (under_way is not None and not under_way.done.is_set()):
            self._unsettle(name)
            return
        table = self.table(name, self.shards[name])
        used = sorted(set(table))
        others = [e for e in range(len(self.layout.of(name))) if e not in used]
        then = [*used, *others][:processors]
        owned: dict[int, list[int]] = {executor: [] for executor in then}
        homeless: list[int] = []
        for shard, executor in enumerate(table):
            owned.get(executor, homeless).append(shard)
        loads = self.lately.get(name, {})
        tuples = max(1.0, sum(loads.values()))
        if name not in self.settled_s:
            self._unsettle(name)
        settled = self.before_s is not None and self.before_s >= self.settled_s[name]
        seen = tuples >= SEEN * len(then)
        uneven = settled and seen and imbalance(owned, loads) > THETA + skew(len(then), tuples)
        if then == used and not uneven:
            return
        most = tolerated(self.busy.get(name, 0.0) / len(then))
        moves = list(balanced(owned, loads, homeless, most, each=1.0))
        if not moves:  # it cannot be better
            return
        for shard, executor in moves:
            table[shard] = executor
        division = self.under_way[name] = self.divide(name, table)
        self._unsettle(name)
        self.divisions.append(division)

    def _unsettle(self, name: str) -> None:
        """Do not compare executors for a while. Before the first samples, no time is known."""
        if self.before_s is not None:
            self.settled_s[name] = self.before_s + SETTLES_S
