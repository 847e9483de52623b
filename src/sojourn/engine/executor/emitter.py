"""The single exit of an executor: gathers what workers emit and sends it as bundles.
Fed by the pool; writes rows to the Spark task, and feedback to the channel.

There is no timer: while the way out is free, every group goes at once; while it is not, groups
for the same receiver grow together. So bundles are single tuples under light load and hundreds
under heavy load. The way is free as long as Spark has taken all but a few of the rows sent, which
the task tells: a row costs Spark far more than its bytes."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from sojourn.engine.executor.meter import Meter
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import PREFIX, Bundle, Link, Trace, decode_bundle, encode
from sojourn.engine.wire.layout import Route

WINDOW = 4  # rows that Spark may not have taken yet
_BUNDLE_BYTES = 1 << 16
_decode_parked = msgspec.msgpack.Decoder(list[tuple[str, str | None, bytes]]).decode


class _Growing:
    """A bundle that still takes tuples."""

    def __init__(self) -> None:
        self.bundle = Bundle([], [], [])
        self.bytes = 0


@dataclass(frozen=True)
class _HandedOver:
    """Feedback on its way to the source level: the row, its tuples, the edge it goes along."""

    row: bytes
    count: int
    route: Route


class Emitter:
    """Outgoing bundles by receiver, oldest first."""

    def __init__(
        self,
        routes: tuple[Route, ...],
        level: int,
        partitions: list[int],
        max_bundle: int,
        meter: Meter,
    ) -> None:
        self.routes, self.level, self.meter = routes, level, meter
        self.next_partitions = partitions[level + 1] if level + 1 < len(partitions) else 0
        self.max_bundle = max_bundle
        self.waiting: dict[tuple[int, int], deque[_Growing]] = {}
        self.rows: deque[bytes] = deque()
        self.window = 0
        self.count = 0
        self.turns = [0] * len(routes)
        self.numbers = 0
        self.unacknowledged: dict[int, _HandedOver] = {}
        self.hand_over: Callable[[int, bytes, int], None] | None = None

    @property
    def sent_all(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self.count and not self.rows

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sent or acknowledged."""
        return self.sent_all and not self.unacknowledged

    def add(self, groups: Iterable[m.Group]) -> None:
        """Take the output of a worker."""
        for group in groups:
            route = self.routes[group.route]
            self.meter.sent(route.edge, len(group.payloads), route.feedback)
            self._queue(group)

    def _queue(self, group: m.Group) -> None:
        executor = group.executor
        if executor < 0:
            executor = self.turns[group.route] % self.routes[group.route].executors
            self.turns[group.route] += 1
        queue = self.waiting.setdefault((group.route, executor), deque())
        self._append(queue, group)
        self.count += len(group.payloads)

    def pass_on(self, row: bytes) -> None:
        """Wave a bundle for a later level through."""
        self.rows.append(row)

    def flush(self, link: Link | None) -> None:
        """Send while the way out is free."""
        while self.rows and link is not None and self.window > 0:
            self._send(link, self.rows.popleft())
        sending = True
        while sending:
            sending = False
            for key in list(self.waiting):  # one bundle each: every receiver gets its turn
                if self.routes[key[0]].feedback or (link is not None and self.window > 0):
                    self._send_next(key, link)
                    sending = True

    def _send_next(self, key: tuple[int, int], link: Link | None) -> None:
        """The oldest bundle of one receiver."""
        route = self.routes[key[0]]
        queue = self.waiting[key]
        bundle = queue.popleft().bundle
        if not queue:
            del self.waiting[key]
        self.count -= len(bundle.payloads)
        row = PREFIX.pack(route.level, route.first_partition + key[1]) + encode(bundle)
        if route.feedback:
            self.numbers += 1
            self.unacknowledged[self.numbers] = _HandedOver(row, len(bundle.payloads), route)
            self._hand_over(self.numbers)
        else:
            assert link is not None
            self._send(link, row)

    def parked(self) -> bytes:
        """Feedback that nobody has acknowledged, to be saved with the state."""
        if not self.unacknowledged:
            return b""
        return encode(
            [
                (handed.route.receiver, handed.route.output, handed.row[PREFIX.size :])
                for handed in self.unacknowledged.values()
            ]
        )

    def restore(self, parked: Iterable[bytes]) -> None:
        """Take up saved feedback. It is addressed anew, as the receiver may have other executors
        now, and no longer traced, as its tree was dropped with the start that began it."""
        for saved in parked:
            for receiver, output, data in _decode_parked(saved):
                number = next(
                    i
                    for i, route in enumerate(self.routes)
                    if route.feedback and (route.receiver, route.output) == (receiver, output)
                )
                executors = self.routes[number].executors
                bundle = decode_bundle(data)
                if not bundle.shards:
                    self._queue(m.Group(number, -1, bundle.payloads, [], []))
                for payload, shard in zip(bundle.payloads, bundle.shards, strict=False):
                    self._queue(m.Group(number, shard % executors, [payload], [shard], []))

    def hand_over_again(self) -> None:
        """A new batch has begun: send what was parked."""
        for number in list(self.unacknowledged):
            self._hand_over(number)

    def acknowledge(self, number: int) -> None:
        """Feedback is on its way again."""
        self.unacknowledged.pop(number, None)

    def _hand_over(self, number: int) -> None:
        assert self.hand_over is not None
        handed = self.unacknowledged[number]
        self.hand_over(number, handed.row, handed.count)

    def _send(self, link: Link, row: bytes) -> None:
        level, partition = PREFIX.unpack_from(row)
        if level != self.level + 1:
            partition %= self.next_partitions
        self.window -= 1
        link.send(partition.to_bytes(2, "little"), row)

    def _is_full(self, growing: _Growing) -> bool:
        return len(growing.bundle.payloads) >= self.max_bundle or growing.bytes >= _BUNDLE_BYTES

    def _append(self, queue: deque[_Growing], group: m.Group) -> None:
        """Add tuples to the youngest bundle, and to new ones as each is full."""
        start, total = 0, len(group.payloads)
        traces = deque(group.traces)
        while start < total:
            if not queue or self._is_full(queue[-1]):
                queue.append(_Growing())
            growing = queue[-1]
            bundle = growing.bundle
            base = len(bundle.payloads)
            end = min(total, start + self.max_bundle - base)
            size = 0
            for stop in range(start, end):
                size += len(group.payloads[stop])
                if growing.bytes + size >= _BUNDLE_BYTES:
                    end = stop + 1
                    break
            bundle.payloads += group.payloads[start:end]
            bundle.shards += group.shards[start:end]
            while traces and traces[0].index < end:
                trace = traces.popleft()
                bundle.traces.append(Trace(trace.index - start + base, trace.root, trace.id))
            growing.bytes += size
            start = end
