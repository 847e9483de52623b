"""The single exit of an executor: gathers what workers emit and sends it as bundles.
Fed by the workers; writes rows to the Spark task, and feedback to the channel.

While the way out is free, every group goes at once. While it is not, groups for the same receiver
grow together. So bundles are single tuples under light load and hundreds under heavy load. The way
is free while Spark has taken all but a few of the rows sent, as the task tells, and once it has
rested after a row that was not full: a row costs Spark far more than its bytes."""

import sys
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from sojourn.engine.executor.meter import Meter
from sojourn.engine.executor.on_error import Fault
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import PREFIX, Bundle, Link, Row, Seal, Trace, Way
from sojourn.engine.wire.layout import Route, next_partition
from sojourn.engine.wire.spec import WINDOW
from sojourn.settings import REST_S

_ROW = 7  # measured: CPU that a row costs all processes, over the time until it is taken
_SHARE = 0.75  # share of the machine that may be busy with rows
_SMOOTH = 0.05
_BUNDLE_BYTES = 1 << 18
_LOOP_BOUND = 8  # feedback that may wait at all, in queues of full size


class _Growing:
    """A bundle that still takes tuples."""

    def __init__(self) -> None:
        self.bundle = Bundle([], [], [])
        self.bytes = 0


def rests(senders: int, cores: float) -> float:
    """How long a way out must rest after a row, as a multiple of the time until the row is taken.
    The rest keeps the rows of all senders from using the whole machine; operators need some."""
    return _ROW * senders / (_SHARE * cores)


To = tuple[str, int, bool]
"""An executor of a vertex, reached by the plain way or as feedback."""


class Emitter:
    """Outgoing bundles by receiver, oldest first. Every row carries the interval it is sent in and
    its number on its way; `sent` has the last number of each way. A row is kept until its receiver
    has confirmed it, because a commit may have to log it. `queue` is how much may wait, in tuples
    and in bytes. The way out rests for `rest` times as long as a row takes, at most `max_rest_s`;
    it rests once after rows to many receivers at a time."""

    def __init__(
        self,
        number: int,
        routes: tuple[Route, ...],
        level: int,
        lanes: tuple[int, ...],
        max_bundle: int,
        meter: Meter,
        seal: Seal,
        hand_over: Callable[[bytes], None],
        queue: tuple[int, int] = (sys.maxsize, sys.maxsize),
        rest: float = 14.0,
        max_rest_s: float = REST_S,
    ) -> None:
        self.queue, self.rest, self.max_rest_s = queue, rest, max_rest_s
        self.ways = {feedback: Way(number, feedback) for feedback in (False, True)}
        self.routes, self.level, self.lanes, self.meter = routes, level, lanes, meter
        self.max_bundle = max_bundle
        self.seal, self.hand_over = seal, hand_over
        self.interval = 0
        self.hold = False
        self.waiting: dict[tuple[int, int], deque[_Growing]] = {}
        self.rows: deque[bytes] = deque()
        self.rows_bytes = 0
        self.window = 0
        self.free_at = 0.0
        self.since = 0.0  # when the first of what waits came
        self.took_s = 0.0  # how long a row takes to be taken, smoothed
        self.sent_at: deque[float] = deque()
        self.count = 0
        self.bytes = 0
        self.bytes_ever = 0
        self.turns = [0] * len(routes)
        self.sent: Counter[To] = Counter()
        self.paused: set[str] = set()  # receivers that nothing is sent to for now
        self.tables: dict[str, list[int]] = {}  # the executor of each shard, where that was changed
        self.unconfirmed: dict[To, deque[tuple[int, _Growing]]] = {}
        self.unconfirmed_bytes = 0

    def open(self) -> None:
        """Note that a batch of Spark's begins."""
        self.window = WINDOW
        self.sent_at.clear()

    def shut(self) -> None:
        """Send nothing until the next batch."""
        self.window = 0
        self.sent_at.clear()

    def taken(self, rows: int) -> None:
        """Note that Spark has taken that many rows."""
        self.window += rows
        sent_s = 0.0
        for _ in range(min(rows, len(self.sent_at))):
            sent_s = self.sent_at.popleft()
        if sent_s:
            self.took_s += _SMOOTH * (time.monotonic() - sent_s - self.took_s)

    def due(self, asked: bool, more_soon: bool) -> float | None:
        """When what waits, or what is `asked` for, can be sent, if it only waits for the way's rest
        to end or for more that comes soon."""
        if self.hold or not (self.waiting or asked):
            return None
        ways = [self.routes[route] for route, _ in self.waiting]
        open_ways = [route for route in ways if route.receiver not in self.paused]
        loops = any(route.feedback for route in open_ways)
        sends = (asked or open_ways) and (loops or self.window > 0)
        return self._sends_at(more_soon) if sends else None

    def _sends_at(self, more_soon: bool) -> float:
        return max(self.free_at, self.since + self.max_rest_s) if more_soon else self.free_at

    @property
    def is_free(self) -> bool:
        """Whether what comes now goes at once."""
        return not self.hold and self.window > 0 and time.monotonic() >= self.free_at

    @property
    def has_room(self) -> bool:
        """Whether less than a full bundle waits."""
        return self.count < self.max_bundle and self.bytes < _BUNDLE_BYTES

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self.count and not self.rows

    def add(self, groups: Iterable[m.Group]) -> None:
        """Take the output of a worker."""
        if not self.waiting:
            self.since = time.monotonic()
        for group in groups:
            if not self.routes[group.route].broadcast:  # a broadcast is no load
                self.meter.sent(self.routes[group.route].edge, len(group.payloads))
            route = self.routes[group.route]
            if route.receiver in self.tables and not route.broadcast:
                self._add_by_table(group)
                continue
            executor = group.executor
            if executor < 0:
                executor = self.turns[group.route] % self.routes[group.route].executors
                self.turns[group.route] += 1
            queue = self.waiting.setdefault((group.route, executor), deque())
            self._append(queue, group)
            self.count += len(group.payloads)

    def _add_by_table(self, group: m.Group) -> None:
        """Take tuples for a vertex whose shards were divided anew: workers do not know how."""
        table = self.tables[self.routes[group.route].receiver]
        traces = {trace.index: trace for trace in group.traces}
        parts: dict[int, m.Group] = {}
        for index, (payload, shard) in enumerate(zip(group.payloads, group.shards, strict=True)):
            executor = table[shard]
            part = parts.get(executor)
            if part is None:
                part = parts[executor] = m.Group(group.route, executor, [], [], [])
            if index in traces:
                trace = traces[index]
                part.traces.append(Trace(len(part.payloads), trace.root, trace.id))
            part.payloads.append(payload)
            part.shards.append(shard)
        for executor, part in parts.items():
            queue = self.waiting.setdefault((group.route, executor), deque())
            self._append(queue, part)
            self.count += len(part.payloads)

    def pause(self, vertex: str) -> list[tuple[int, bool, int]]:
        """Send nothing to a vertex for now. Returns the last row sent to each of its executors."""
        self.paused.add(vertex)
        return [(e, back, number) for (to, e, back), number in self.sent.items() if to == vertex]

    def divided(self, vertex: str, table: list[int]) -> None:
        """From now on each shard of a vertex goes to the executor in the table. So does what
        waits."""
        self.paused.discard(vertex)
        self.tables[vertex] = table
        plain = {n for n, r in enumerate(self.routes) if r.receiver == vertex and not r.broadcast}
        ours = [key for key in self.waiting if key[0] in plain]
        for queue, route in [(self.waiting.pop(key), key[0]) for key in ours]:
            if not self.waiting:
                self.since = time.monotonic()
            for growing in queue:
                bundle = growing.bundle
                self.count -= len(bundle.payloads)
                self.bytes -= growing.bytes
                self.bytes_ever -= growing.bytes
                again = m.Group(route, -1, bundle.payloads, bundle.shards, bundle.traces)
                self._add_by_table(again)

    def pending(self) -> Iterator[tuple[str, Bundle]]:
        """What waits to be sent, by receiver, in order."""
        for (route, _), queue in self.waiting.items():
            for growing in queue:
                yield self.routes[route].receiver, growing.bundle

    def confirmed(self, to: To, number: int) -> None:
        """Note that rows up to this one have come."""
        rows = self.unconfirmed.get(to)
        while rows and rows[0][0] <= number:
            self.unconfirmed_bytes -= rows.popleft()[1].bytes

    def pass_on(self, row: bytes) -> None:
        """Send feedback on from the source level. It goes before what the source reads. A loop that
        gains more than it loses ends the topology before it takes all memory."""
        self.rows.append(row)
        self.rows_bytes += len(row)
        tuples, size = self.queue
        if len(self.rows) > _LOOP_BOUND * tuples or self.rows_bytes > _LOOP_BOUND * size:
            raise Fault(
                f"feedback grows without bound: {len(self.rows)} bundles of {self.rows_bytes} "
                "bytes wait; a loop must lose more tuples than it gains, or have room for a burst; "
                "raise spark.sojourn.maxQueue or maxQueueBytes",
                True,
            )

    def flush(self, link: Link | None, more_soon: bool = False) -> None:
        """Send while the way out is free, but wait for more that comes soon: otherwise that would
        have to wait until the rest is over. While all is held, send only what is already under
        way."""
        while self.rows and link is not None and self.window > 0:
            row = self.rows.popleft()
            self.rows_bytes -= len(row)
            self._send(link, row)
        now = time.monotonic()
        resting = now < self._sends_at(more_soon)
        rows, sending = 0, not self.hold
        while sending:
            sending = False
            for key, queue in list(self.waiting.items()):  # every receiver gets its turn
                full = self._is_full(queue[0])
                if self.routes[key[0]].receiver in self.paused:
                    continue
                free = self.routes[key[0]].feedback or (link is not None and self.window > 0)
                if free and (full or not resting):
                    self._send_next(key, link)
                    rows += not full
                    sending = True
        if rows:
            rest_s = min(rows * self.rest * self.took_s, self.max_rest_s + rows * self.took_s)
            self.free_at = now + rest_s

    def _send_next(self, key: tuple[int, int], link: Link | None) -> None:
        """Send the oldest bundle of one receiver."""
        route = self.routes[key[0]]
        queue = self.waiting[key]
        growing = queue.popleft()
        if not queue:
            del self.waiting[key]
        self.count -= len(growing.bundle.payloads)
        self.bytes -= growing.bytes
        to = (route.receiver, key[1], route.feedback)
        self.sent[to] = number = self.sent[to] + 1
        self.unconfirmed.setdefault(to, deque()).append((number, growing))
        self.unconfirmed_bytes += growing.bytes
        made = Row(self.interval, self.ways[route.feedback], number, growing.bundle)
        row = self.seal.row(route.level, route.first_partition + key[1], made)
        if route.feedback:
            self.hand_over(row)
        else:
            assert link is not None
            self._send(link, row)

    def _send(self, link: Link, row: bytes) -> None:
        level, partition, *_ = PREFIX.unpack_from(row)
        partition = next_partition(self.lanes, self.level, level, partition)
        self.window -= 1
        self.sent_at.append(time.monotonic())
        link.send(partition.to_bytes(2, "little"), row)

    def _is_full(self, growing: _Growing) -> bool:
        return len(growing.bundle.payloads) >= self.max_bundle or growing.bytes >= _BUNDLE_BYTES

    def _append(self, queue: deque[_Growing], group: m.Group) -> None:
        """Add tuples to the newest bundle, and to a new one whenever it is full."""
        start, total = 0, len(group.payloads)
        traces = deque(group.traces)
        while start < total:
            if not queue or self._is_full(queue[-1]):
                queue.append(_Growing())
            growing = queue[-1]
            bundle = growing.bundle
            base = len(bundle.payloads)
            end = min(total, start + self.max_bundle - base)
            payloads = group.payloads[start:end]
            size = sum(map(len, payloads))
            if growing.bytes + size >= _BUNDLE_BYTES:
                room = _BUNDLE_BYTES - growing.bytes
                reached = bisect_left(list(accumulate(map(len, payloads))), room) + 1
                del payloads[reached:]
                end, size = start + reached, sum(map(len, payloads))
            bundle.payloads += payloads
            bundle.shards += group.shards[start:end]
            while traces and traces[0].index < end:
                trace = traces.popleft()
                bundle.traces.append(Trace(trace.index - start + base, trace.root, trace.id))
            growing.bytes += size
            self.bytes += size
            self.bytes_ever += size
            start = end
