"""The job as a flow: tuples are a liquid that runs through queues, in steps of a hundredth of a
second. Good for sources that send as much as is taken; chance in arrivals and service is left out,
but not in what is measured.

What holds the sources back is the tightest of: an executor whose queue is full, its receiver, a
machine's card, or an operator behind that takes no more."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sojourn.placement.loads import MEMORY_S
from sojourn.simulator.elastic.job import Setup, summed
from sojourn.simulator.elastic.placing import Move, Placing, repartition_s

STEP_S = 0.01
_LOOKS = 10  # steps between two looks at how long tuples take
_MOMENT_S = 0.001  # in which a core hands over shards that leave together
_HALF = 0.5  # of a card that state may take while tuples need it
_DRAINED = 1e-6  # tuples

Flow = npt.NDArray[np.float64]


@dataclass
class Outcome:
    """What was seen: tuples from outside that were served in each step, and from looks at each
    core how long tuples took, with how many they stand for. Bytes of state that crossed machines,
    and of tuples that went to cores of other machines and back. If sources have only so much to
    send, how much of it waited there at the end of each step."""

    step_s: float
    served: list[float] = field(default_factory=list)
    looks: list[tuple[float, Flow, Flow]] = field(default_factory=list)  # time, seconds, tuples
    held: list[float] = field(default_factory=list)
    came: float = 0.0  # tuples from outside
    moves: int = 0
    migrated: float = 0.0
    remote: float = 0.0
    pauses_s: list[float] = field(default_factory=list)  # of repartitionings

    def rate(self, since_s: float, until_s: float) -> float:
        """Tuples per second."""
        some = self.served[round(since_s / self.step_s) : round(until_s / self.step_s)]
        return sum(some) / (len(some) * self.step_s)

    def rates(self, span_s: float) -> Flow:
        """Over a sliding span, at the end of each step."""
        width = round(span_s / self.step_s)
        total = np.concatenate([[0.0], np.cumsum(self.served)])
        found: Flow = (total[width:] - total[:-width]) / span_s
        return found

    def _weighted(self, since_s: float) -> tuple[Flow, Flow]:
        seen = [(s, n) for at, s, n in self.looks if at >= since_s]
        return np.concatenate([s for s, _ in seen]), np.concatenate([n for _, n in seen])

    def mean_s(self, since_s: float = 0.0) -> float:
        """How long tuples took."""
        seconds, tuples = self._weighted(since_s)
        return float((seconds * tuples).sum() / tuples.sum())

    def mean_since_due_s(self, offered: float, since_s: float = 0.0) -> float:
        """The same, and how long they waited at sources that have so many a second to send."""
        held = self.held[round(since_s / self.step_s) :]
        return self.mean_s(since_s) + sum(held) / len(held) / offered  # Little's law

    def means_since_due_s(self, offered: float) -> tuple[list[float], list[float]]:
        """The times of all looks, and how long tuples took then, since they were due."""
        held = (self.held[round(at / self.step_s)] / offered for at, _, _ in self.looks)
        means = (float((s * n).sum() / n.sum()) for _, s, n in self.looks)
        times = [at for at, _, _ in self.looks]
        return times, [mean + late for mean, late in zip(means, held, strict=True)]

    def percentile_s(self, percent: float, since_s: float = 0.0) -> float:
        """How long so many of a hundred took at most."""
        seconds, tuples = self._weighted(since_s)
        order = np.argsort(seconds)
        below = np.cumsum(tuples[order]) / tuples.sum()
        return float(seconds[order][np.searchsorted(below, percent / 100)])


class _Operator:
    """The flow through one operator, shard by shard. A shard on its way holds what comes for it
    until its label has passed what its old core has in hand, and its state has crossed. A core
    gives up a few at a time; the others are served there until it is their turn."""

    def __init__(self, setup: Setup, number: int) -> None:
        self.keyed, self.number = setup.operators[number], number
        self.shares = np.zeros(setup.shards)
        self.queue = np.zeros(setup.shards)  # tuples
        self.came = np.zeros(setup.shards)  # tuples, since the last decision
        self.load = np.zeros(setup.shards)  # tuples per second, measured
        self.leaving: dict[int, deque[int]] = {}  # shards that a core has to give up, in turn
        self.to_leave = np.zeros(setup.shards, bool)
        self.moving = np.zeros(setup.shards, bool)
        self.giver = np.zeros(setup.shards, np.int64)  # cores
        self.ready_s = np.zeros(setup.shards)  # when the label has passed
        self.left = np.zeros(setup.shards)  # bytes that must cross
        self.source = np.zeros(setup.shards, np.int64)  # machines
        self.target = np.zeros(setup.shards, np.int64)
        self.core_of = np.zeros(setup.shards, np.int64)
        self.owner = np.zeros(setup.shards, np.int64)  # executors of this operator
        self.homes = np.zeros(1, np.int64)  # their machines
        self.to_executor = np.zeros(1)
        self.able = np.zeros(setup.shards)  # tuples that can be served in a step
        self.pause: _Pause | None = None
        self.kept = 0.0  # tuples, from outside, that those before it keep while it is paused
        self.behind: list[_Operator] = []


@dataclass
class _Pause:
    """A repartitioning: since when senders wait, until when they are told, and how many moved."""

    began_s: float
    moves: Sequence[Move]
    told_s: float = math.inf


class FlowRun:
    """One run."""

    def __init__(self, setup: Setup, offered: float = math.inf) -> None:
        self.setup, self.offered = setup, offered
        self.placing = Placing(setup)
        self.operators = [_Operator(setup, number) for number in range(len(setup.operators))]
        for operator in self.operators:
            operator.behind = [
                other for other in self.operators if other.keyed.behind == operator.keyed.name
            ]
        self.draw = np.random.default_rng(setup.seed)
        self.now_s, self.turn = 0.0, -1
        self.held = 0.0  # tuples that sources should have sent and could not
        self.held_back = False
        self.outcome = Outcome(STEP_S)
        machines = setup.cluster.machines
        self.state = np.zeros((2, machines))  # bytes of state in this step, out and in
        self.used = np.zeros((2, machines))  # and of tuples in the last one
        self.cards = np.zeros((2, machines))  # bytes for one tuple from outside
        self.away = 0.0  # the same, to and from cores of other machines

    def run(self, seconds: float) -> Outcome:
        """Let time pass."""
        period = round(self.setup.costs.period_s / STEP_S)
        for step in range(round(seconds / STEP_S)):
            turn = math.floor(self.now_s / self.setup.popularity.turn_s + 1e-9)
            if turn != self.turn:
                self.turn = turn
                for operator in self.operators:
                    operator.shares = self.setup.shard_shares(turn, operator.number)
                    operator.shares *= operator.keyed.per_order
                self._route()
            if step and step % period == 0:
                self._decide()
            self._settle()
            self._flow(step % _LOOKS == 0)
            self.now_s += STEP_S
        return self.outcome

    # deciding

    def _decide(self) -> None:
        """By loads that are measured as the engine does it: by counting, which errs."""
        costs = self.setup.costs
        fresh = 1 - math.exp(-costs.period_s / MEMORY_S)
        for operator in self.operators:
            counted = self.draw.poisson(operator.came)
            operator.load += fresh * (counted / costs.period_s - operator.load)
            operator.came[:] = 0.0
        self.placing.note([operator.load for operator in self.operators])
        if all(operator.pause is None for operator in self.operators):
            loads, waiting = [o.load for o in self.operators], [o.queue for o in self.operators]
            moving = [o.moving | o.to_leave for o in self.operators]
            self._begin(self.placing.decide(loads, self.held_back, waiting, moving))
        self.held_back = False

    def _begin(self, moves: Sequence[Move]) -> None:
        """Carry moves out: each shard by itself, or all of an operator together."""
        self.outcome.moves += len(moves)
        for move in moves:
            operator, shard = self.operators[move.operator], move.shard
            if not self.setup.is_elastic:
                self._depart(operator, shard, move.source, move.target)
            elif operator.moving[shard]:
                operator.target[shard] = self.placing.machine(move.target)
            elif not operator.to_leave[shard]:
                operator.to_leave[shard] = True
                core = int(operator.core_of[shard])
                operator.leaving.setdefault(core, deque()).append(shard)
        if not self.setup.is_elastic:
            for operator in self.operators:
                mine = [move for move in moves if move.operator == operator.number]
                if mine:
                    operator.pause = _Pause(self.now_s, mine)

    def _depart(self, operator: _Operator, shard: int, source: int, target: int) -> float:
        """Send a shard from one core to another. Returns how long its state takes alone."""
        machine, size = self.placing.machine, operator.keyed.shard_bytes
        operator.source[shard], operator.target[shard] = machine(source), machine(target)
        away = machine(source) != machine(target)
        operator.left[shard] = size if away else 0.0
        setup = self.setup
        return size / (setup.cluster.bytes_per_s if away else setup.costs.local_bytes_per_s)

    def _give_up(self, operator: _Operator) -> bool:
        """Have cores give up the next shards, if those before them have come: as many as they hand
        over in a moment, or in half the time of a tuple. Returns whether any goes."""
        gone, costs = False, self.setup.costs
        placed = self.placing.core_of[operator.number]
        giving = set(operator.giver[operator.moving].tolist())
        for core in [core for core in operator.leaving if core not in giving]:
            shards, moment_s = operator.leaving[core], max(_MOMENT_S, operator.keyed.cost_s / 2)
            while shards and moment_s > 0:
                shard = shards.popleft()
                operator.to_leave[shard] = False
                target = int(placed[shard])
                if target != core:
                    state_s = self._depart(operator, shard, core, target)
                    moment_s -= costs.each_s + state_s
                    ready_s = self.now_s + operator.keyed.cost_s / 2 + costs.sync_s
                    operator.ready_s[shard] = ready_s + (0.0 if operator.left[shard] else state_s)
                    operator.moving[shard], operator.giver[shard] = True, core
                    gone = True
            if not shards:
                del operator.leaving[core]
        return gone

    def _senders(self, operator: _Operator) -> int:
        """The executors that send to an operator; generators are on every machine."""
        name = operator.keyed.behind
        if name is None:
            return self.setup.cluster.machines
        names = [o.keyed.name for o in self.operators]
        return sum(names[e.operator] == name for e in self.placing.executors)

    def _settle(self) -> None:
        """Go on with what is on its way."""
        changed = False
        for operator in self.operators:
            if operator.moving.any():
                due = np.nonzero(operator.moving & (operator.ready_s <= self.now_s))[0]
                self._carry(operator, due)
                done = due[operator.left[due] <= 0]
                operator.moving[done] = False
                changed |= len(done) > 0
            if operator.leaving:
                changed |= self._give_up(operator)
            pause, costs = operator.pause, self.setup.costs
            if pause is None:
                continue
            if pause.told_s == math.inf:
                if operator.queue.max() < _DRAINED:
                    senders = self._senders(operator)
                    takes_s = repartition_s(pause.moves, operator.keyed, costs, senders)
                    pause.told_s = self.now_s + takes_s
            elif self.now_s >= pause.told_s:
                moved = np.array([move.shard for move in pause.moves])
                self._carry(operator, moved)
                if (operator.left[moved] <= 0).all():
                    operator.pause = None
                    self.outcome.pauses_s.append(self.now_s - pause.began_s)
                    changed = True
        if changed:
            self._route()

    def _carry(self, operator: _Operator, shards: npt.NDArray[np.int64]) -> None:
        """Let state cross. What crosses together shares the cards; where tuples need a card,
        state gets half of it."""
        crossing = shards[operator.left[shards] > 0]
        if not len(crossing):
            return
        machines, whole = self.setup.cluster.machines, self.setup.cluster.bytes_per_s * STEP_S
        out, into = np.maximum(whole - self.used, _HALF * whole) - self.state
        source, target = operator.source[crossing], operator.target[crossing]
        by_source = out[source] / np.bincount(source, minlength=machines)[source]
        by_target = into[target] / np.bincount(target, minlength=machines)[target]
        some = np.minimum(
            operator.left[crossing], np.maximum(0.0, np.minimum(by_source, by_target))
        )
        operator.left[crossing] -= some
        operator.left[crossing[operator.left[crossing] < 1]] = 0.0
        self.state[0] += summed(source, some, machines)
        self.state[1] += summed(target, some, machines)
        self.outcome.migrated += float(some.sum())

    # flowing

    def _route(self) -> None:
        """Work out anew where tuples go, and how many bytes one from outside makes on each card."""
        setup, placing = self.setup, self.placing
        machines, costs = setup.cluster.machines, setup.costs
        self.cards[:] = 0.0
        self.away = 0.0
        elsewhere = 1 - 1 / machines
        for operator in self.operators:
            keyed = operator.keyed
            if operator.pause is None:  # else it drains as it was
                mine = [e for e in placing.executors if e.operator == operator.number]
                operator.core_of = np.where(
                    operator.to_leave, operator.core_of, placing.core_of[operator.number]
                )
                operator.homes = np.array([e.home for e in mine])
                for number, executor in enumerate(mine):
                    operator.owner[executor.shards] = number
            homes = operator.homes
            operator.to_executor = summed(operator.owner, operator.shares, len(homes))
            size_in = keyed.in_bytes + costs.frame_bytes
            size_out = keyed.makes * (keyed.out_bytes + costs.frame_bytes)
            size_out = size_out if keyed.out_bytes else 0.0
            at_home = summed(homes, operator.to_executor, machines) * elsewhere
            self.cards[0] += at_home * size_out
            self.cards[1] += at_home * size_in
            if keyed.behind is None:  # generators send from all machines
                self.cards[0] += at_home.sum() * size_in / machines
            home, there = homes[operator.owner], operator.core_of // setup.cluster.cores
            away = np.where((home != there) & ~operator.moving, operator.shares, 0.0)
            to, back = (summed(place, away, machines) for place in (home, there))
            self.cards[0] += to * size_in + back * size_out
            self.cards[1] += back * size_in + to * size_out
            self.away += float(away.sum()) * (size_in + size_out)

    def _accepted(self, operator: _Operator) -> float:
        """Tuples from outside per second that an operator has room for. While it is paused, those
        that send to it keep what is for it, as many as may wait there; sources do not."""
        costs, to = self.setup.costs, operator.to_executor
        if operator.pause is not None:
            most = 0.0
            if operator.keyed.behind is not None:
                most = costs.max_queue * self._senders(operator) / operator.keyed.per_order
            return max(0.0, most - operator.kept) / STEP_S
        waiting = summed(operator.owner, operator.queue - operator.able, len(to))
        room = (costs.max_queue - waiting) / STEP_S
        used = to > 0
        by_queue = (room[used] / to[used]).min()
        return max(0.0, float(min(by_queue, self._received(operator))))

    def _received(self, operator: _Operator) -> float:
        """Tuples from outside per second that the busiest receiver of an operator can take."""
        return 1 / (self.setup.costs.receive_s * float(operator.to_executor.max()))

    def _flow(self, looks: bool) -> None:
        cluster = self.setup.cluster
        for operator in self.operators:
            operator.able = self._able(operator)
        accepted = {operator.number: self._accepted(operator) for operator in self.operators}
        free = cluster.bytes_per_s - self.state / STEP_S
        by_card = float((free / np.maximum(self.cards, 1e-12)).min())
        self.state[:] = 0.0
        first = self.operators[0]
        due = self.offered + self.held / STEP_S
        rate = max(0.0, min(due, by_card, accepted[first.number]))
        self.held_back |= rate < self.offered
        if math.isfinite(due):
            self.held = (due - rate) * STEP_S
        self.outcome.held.append(self.held)
        self.used = self.cards * rate * STEP_S
        first.came += first.shares * (rate * STEP_S)
        self.outcome.served.append(self._pass(first, rate, accepted))
        self.outcome.came += rate * STEP_S
        self.outcome.remote += rate * STEP_S * self.away
        if looks and rate > 0:
            carried = min(by_card, self._received(first))
            self._look(rate, self._on_the_way_s(rate) if carried <= rate < due else 0.0)

    def _able(self, operator: _Operator) -> Flow:
        """Tuples of each shard that its core can serve in a step."""
        waits = np.where(operator.moving, 0.0, operator.queue)
        cores = self.setup.cluster.all_cores
        by_core = summed(operator.core_of, waits, cores)
        share = np.minimum(1.0, STEP_S / operator.keyed.cost_s / np.maximum(by_core, 1e-12))
        found: Flow = waits * share[operator.core_of]
        return found

    def _pass(self, operator: _Operator, rate: float, accepted: Mapping[int, float]) -> float:
        """Let tuples come to an operator, at a rate of those from outside, and what it makes of
        them to those behind. Returns how many of those from outside were served."""
        operator.queue += operator.shares * (rate * STEP_S)
        able = self._able(operator)
        total, each = float(able.sum()), operator.keyed.per_order
        most = min((accepted[o.number] for o in operator.behind), default=math.inf)
        most *= each * STEP_S
        if total > most:
            able *= most / total
            total = most
        operator.queue -= able
        for other in operator.behind:
            other.came += other.shares * (total / each)  # also what is kept
            due = other.kept + total / each
            goes = 0.0 if other.pause else min(due, accepted[other.number] * STEP_S)
            other.kept = due - goes
            self._pass(other, goes / STEP_S, accepted)
        return total / each

    def _on_the_way_s(self, rate: float) -> float:
        """How long tuples take to the first operator if a card or a receiver is full: then as many
        are on their way as may be, besides those that have come."""
        first, to = self.operators[0], self.operators[0].to_executor
        busiest = int(to.argmax())
        come = float(first.queue[first.owner == busiest].sum())
        return max(0.0, self.setup.costs.max_queue - come) / (rate * float(to[busiest]))

    def _look(self, rate: float, on_the_way_s: float) -> None:
        """How long tuples that come now will take: on their way, at the first operator, and at the
        slowest of those behind it."""
        first = self.operators[0]
        seconds, tuples = self._takes(first)
        later = [self._takes(operator) for operator in first.behind]
        kept_s = (operator.kept / rate for operator in first.behind)
        means = (float((s * n).sum() / n.sum()) for s, n in later)
        more = max((mean + late for mean, late in zip(means, kept_s, strict=True)), default=0.0)
        more += on_the_way_s
        self.outcome.looks.append((self.now_s, seconds + more, tuples * rate * STEP_S * _LOOKS))

    def _takes(self, operator: _Operator) -> tuple[Flow, Flow]:
        """Seconds at each core and for the shards on their way, and their shares of tuples."""
        cores, cost_s = self.setup.cluster.all_cores, operator.keyed.cost_s
        moving = operator.moving
        flowing = np.where(moving, 0.0, operator.shares)
        to_core = summed(operator.core_of, flowing, cores)
        waits = summed(operator.core_of, operator.queue, cores)
        used = to_core > 0
        seconds, tuples = (waits[used] + 1) * cost_s, to_core[used]
        if moving.any():
            shards = np.nonzero(moving)[0]
            left_s = np.maximum(0.0, operator.ready_s[shards] - self.now_s)
            left_s += operator.left[shards] / self.setup.cluster.bytes_per_s
            left_s += (waits[operator.core_of[shards]] + 1) * cost_s
            seconds = np.append(seconds, left_s)
            tuples = np.append(tuples, operator.shares[shards])
        return seconds, tuples
