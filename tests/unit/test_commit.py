"""A commit's cut, wherever everything happens to be: each tuple that was read before it is at one
place in the commit, no more and no less.

Executors are real but for their sockets: receivers, workers, emitters and commits, with rows,
answers and the driver's messages delivered in any order that the ways between them allow."""

import random
import socket
from collections import Counter, deque
from pathlib import Path
from typing import Any

import pytest

from sojourn.engine.executor import commit as module
from sojourn.engine.executor.commit import Commits
from sojourn.engine.executor.emitter import Emitter
from sojourn.engine.executor.meter import Meter
from sojourn.engine.executor.receiver import Callbacks, Receiver
from sojourn.engine.executor.table import Table
from sojourn.engine.executor.workers import Worker, Workers
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import Bundle, Link, Seal
from sojourn.engine.wire.layout import Place, Route
from sojourn.engine.wire.spec import ExecutorSpec
from sojourn.sinks import Staged

SEAL = Seal(b"secret")
SHARDS = 6


class NoLoop:
    """Sockets are turned by the test."""

    def add(self, *_: Any) -> None: ...
    def remove(self, *_: Any) -> None: ...


class AtOnce:
    """What is done in the background is done at once, but for its callback."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def do(self, work: Any, then: Any) -> None:
        result = work()
        self.done.append(lambda: then(result))

    def hand_back(self) -> None:
        done, self.done = self.done, []
        for then in done:
            then()


class NoLetters:
    """Nothing fails."""

    def cut(self) -> None: ...
    def take_cut(self) -> Any:
        return Staged


class Way(Link):
    """The way out of an executor: rows to be delivered, in order for each receiver."""

    def __init__(self, network: "Network", sender: str) -> None:
        self.network, self.sender = network, sender

    def send(self, *parts: bytes) -> None:
        self.network.row(self.sender, parts[1])


class Far:
    """A worker at the far end of its socket, which remembers what it has processed, by shard."""

    def __init__(self, node: "Node", near: Link, far: Link) -> None:
        self.node, self.near, self.link = node, near, far
        self.told: deque[m.ToWorker] = deque()
        self.answers: deque[m.FromWorker] = deque([m.Ready(1)])
        self.states: dict[int, Counter[bytes]] = {}

    def work(self) -> bool:
        """Do the next thing it was told."""
        self.near.flush()
        self.told.extend(map(m.decode_to_worker, self.link.receive() or []))
        if not self.told:
            return False
        match self.told.popleft():
            case m.Work(payloads, shards):
                groups = []
                for payload, shard in zip(payloads, shards or [0] * len(payloads), strict=True):
                    self.states.setdefault(shard, Counter())[payload] += 1
                    groups += self.node.results(payload)
                self.answers.append(m.Done(groups, [], len(payloads), 0.1, 0, 0.0, 0.0, [], []))
            case m.Save(number):
                self.answers.append(m.Cut(number))
                for state in self.states.values():
                    self.node.saved[number] += state
                self.answers.append(m.Saved(number, position=self.node.position()))
            case m.TakeShard(shard):
                state = self.states.pop(shard, Counter())
                self.answers.append(m.GiveShard(shard, b" ".join(state.elements())))
            case m.GiveShard(shard, data):
                self.states[shard] = Counter((data or b"").split())
        return True


class Node:
    """An executor: its parts, wired as ElasticExecutor wires them."""

    def __init__(
        self, network: "Network", name: str, kind: str, to: list[Route], processors: int
    ) -> None:
        self.network, self.name, self.kind = network, name, kind
        self.keyed = kind == "operator"
        self.read = 0
        self.held = False
        self.saved: dict[int, Counter[bytes]] = {}
        self.parts: dict[int, m.Part] = {}
        self.heard: deque[m.ToDriver] = deque()
        self.far: dict[Link, Far] = {}
        spec = ExecutorSpec.__new__(ExecutorSpec)
        folder = network.root / name / "0"
        folder.mkdir(parents=True)
        given = {
            "place": Place(name, 0, 0, 0),
            "kind": kind,
            "keyed": self.keyed,
            "epoch": 1,
            "queue_bytes": 1 << 20,
            "directory": folder,
            "tables": {},
        }
        for field, value in given.items():
            object.__setattr__(spec, field, value)
        shards = list(range(SHARDS)) if self.keyed else []
        self.workers = Workers(self._start, self.keyed, shards, 3)
        self.emitter = Emitter(
            network.numbers[name],
            tuple(to),
            0,
            (-1,) * 9,
            3,
            Meter(0.0),
            SEAL,
            lambda row: network.row(name, row),
        )
        self.emitter.window = 10**9
        self.way = Way(network, name)
        self.receiver = Receiver.__new__(Receiver)
        self.receiver.seal = SEAL
        never = self._never
        self.receiver.callbacks = Callbacks(never, never, never, never)
        self.receiver.arrived = self._arrived
        self.receiver.open = True
        self.receiver.interval = self.receiver.untold_bytes = 0
        self.receiver.got = {}
        self.receiver.early = []
        self.commits = Commits(
            spec,
            NoLoop(),  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.receiver,
            self.workers,
            self.emitter,
            NoLetters(),  # type: ignore[arg-type]
            Table(),
        )
        self.workers.resize(processors)
        for worker in self.workers.all:
            self.answer(worker)

    def _never(self, *_: Any) -> None:
        raise AssertionError("no task here")

    def send(self, message: m.ToDriver) -> None:
        """As the channel."""
        self.heard.append(message)

    def _start(self) -> Link:
        ours, theirs = socket.socketpair()
        link = Link(ours)
        self.far[link] = Far(self, link, Link(theirs))
        return link

    def _arrived(self, bundle: Bundle) -> None:
        self.workers.put(bundle)

    def position(self) -> bytes:
        self.held = self.network.hold
        return str(self.read).encode()

    def results(self, payload: bytes) -> list[m.Group]:
        """What processing a tuple emits: itself to every receiver; over a loop three times."""
        groups = []
        for number, route in enumerate(self.emitter.routes):
            value = payload
            if route.feedback:
                name, _, rounds = payload.partition(b"+")
                if rounds == b"2":
                    continue
                value = name + b"+" + str(int(rounds or b"0") + 1).encode()
            groups.append(m.Group(number, 0, [value], [shard_of(value)], []))
        return groups

    def feed(self) -> None:
        """A source reads a number; its worker is the source itself."""
        if not self.held:
            (far,) = self.far.values()
            value = b"%s%d" % (self.name.encode(), self.read)
            self.read += 1
            groups = self.results(value)
            far.answers.append(m.Fed(groups, [], 1, 0, 0.0, 0.0, 0.0, False))

    def answer(self, worker: Worker) -> bool:
        """Let a worker's next answer arrive."""
        far = self.far[worker.link]
        if not far.answers:
            return False
        match far.answers.popleft():
            case m.Ready(pid):
                self.workers.ready(worker, pid)
            case m.Done() as done:
                self.workers.done(worker, done)
                self.commits.emitted(worker, done.groups)
                self.emitter.add(done.groups)
            case m.Fed() as fed:
                self.commits.emitted(worker, fed.groups)
                self.emitter.add(fed.groups)
            case m.Cut():
                self.commits.worker_cut(worker)
            case m.Saved() as saved:
                self.commits.worker_saved(worker, saved)
            case m.GiveShard() as given:
                self.workers.taken(worker, given)
        return True


def shard_of(payload: bytes) -> int:
    return sum(payload.partition(b"+")[0]) % SHARDS


class Network:
    """Executors and what is under way between them, and a driver that makes commits."""

    def __init__(self, root: Path, edges: list[tuple[str, str, bool]], draw: random.Random) -> None:
        self.root, self.draw, self.edges = root, draw, edges
        self.rows: dict[tuple[str, str], deque[bytes]] = {}
        self.orders: dict[str, deque[m.ToExecutor]] = {}
        self.hold = False
        names = list(dict.fromkeys(name for sender, to, _ in edges for name in (sender, to)))
        self.numbers = {name: i for i, name in enumerate(names)}
        self.nodes: dict[str, Node] = {}
        for name in names:
            routes = [
                Route(to, None, back, 1, self.numbers[to], 1, None, SHARDS)
                for sender, to, back in edges
                if sender == name
            ]
            source = name.startswith("s")
            kind = "source" if source else "operator" if name.startswith("k") else "plain"
            node = Node(self, name, kind, routes, 1 if source else draw.randint(1, 3))
            if kind == "plain":  # an operator without a key, and so without state
                object.__setattr__(node.commits.spec, "kind", "operator")
            self.nodes[name] = node
            self.orders[name] = deque()

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            for link, far in node.far.items():
                link.close()
                far.link.close()

    def row(self, sender: str, row: bytes) -> None:
        number = int.from_bytes(row[1:3], "little")
        receiver = next(name for name, n in self.numbers.items() if n == number)
        self.rows.setdefault((sender, receiver), deque()).append(row)

    def step(self, feeding: bool = True) -> bool:
        """Something that can happen happens; whether anything could."""
        able: list[Any] = []
        for node in self.nodes.values():
            if feeding and node.kind == "source" and not node.held:
                able.append(node.feed)
            for worker in node.workers.all:
                far = node.far[worker.link]
                worker.link.flush()
                far.told.extend(map(m.decode_to_worker, far.link.receive() or []))
                if far.told:
                    able.append(far.work)
                if far.answers:
                    able.append(lambda node=node, worker=worker: node.answer(worker))
            if node.commits.background.done:
                able.append(node.commits.background.hand_back)
            if self.orders[node.name]:
                able.append(lambda node=node: self._order(node))
            if node.emitter.waiting and not node.emitter.hold:
                able.append(lambda node=node: node.emitter.flush(node.way))
        for way, rows in self.rows.items():
            if rows:
                able.append(lambda way=way: self._deliver(way))
        if not able:
            return False
        self.draw.choice(able)()
        for node in self.nodes.values():
            node.commits.go_on()
        return True

    def _deliver(self, way: tuple[str, str]) -> None:
        opened = SEAL.opened(self.rows[way].popleft())
        assert opened is not None
        self.nodes[way[1]].receiver.hand_on(opened)

    def _order(self, node: Node) -> None:
        match self.orders[node.name].popleft():
            case m.Commit() as commit:
                node.saved[commit.number] = Counter()
                node.commits.ask(commit)
            case m.Confirm() as confirm:
                node.commits.confirm(confirm)

    def commit(self, number: int, hold: bool, feeding: bool) -> None:
        """The driver's part."""
        self.hold = hold
        for orders in self.orders.values():
            orders.append(m.Commit(number, hold, False))
        cuts = self._all(m.HasCut, feeding)
        for name, orders in self.orders.items():
            orders.append(m.Confirm(number, self._confirmed(name, cuts)))
        for name, saved in self._all(m.HasSaved, feeding).items():
            self.nodes[name].parts[number] = saved.part
            self.nodes[name].commits.committed()

    def _confirmed(self, name: str, cuts: dict[str, m.HasCut]) -> list[tuple[str, int, bool, int]]:
        """Which rows of one executor had come when their receivers cut."""
        return [
            (receiver, 0, feedback, number)
            for receiver, cut in cuts.items()
            for sender, feedback, number in cut.got
            if sender == self.numbers[name]
        ]

    def _all(self, kind: Any, feeding: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(100_000):
            for name, node in self.nodes.items():
                while node.heard:
                    message = node.heard.popleft()
                    assert isinstance(message, kind)
                    found[name] = message
            if len(found) == len(self.nodes):
                return found
            if self.draw.random() < 0.02:
                self._resize()
            if self.draw.random() < 0.05:
                self._tell()
            assert self.step(feeding), "nothing can happen, and the commit is not complete"
        raise AssertionError("the commit never comes")

    def _tell(self) -> None:
        """A receiver tells its senders what has come, as it does every so many bytes, unless it
        has just cut."""
        node = self.draw.choice(list(self.nodes.values()))
        if node.commits.cut is None:
            cuts = {node.name: m.HasCut(0, node.receiver.told())}
            for name, orders in self.orders.items():
                orders.append(m.Confirm(0, self._confirmed(name, cuts)))

    def _resize(self) -> None:
        node = self.draw.choice(list(self.nodes.values()))
        if node.kind != "source" and not node.workers.hold:
            node.workers.resize(self.draw.randint(1, 4))

    def check(self, number: int) -> None:
        """Every tuple is where it should be: in the state of those who processed it before the
        cut, or under way to them."""
        expected: dict[str, Counter[bytes]] = {name: Counter() for name in self.nodes}
        for name, node in self.nodes.items():
            if node.kind == "source":
                for i in range(int(node.parts[number].position)):
                    self._follow(b"%s%d" % (name.encode(), i), name, expected)
        for name, node in self.nodes.items():
            if node.kind == "operator":
                assert node.saved[number] + self._under_way(number, name) == expected[name], name

    def _follow(self, payload: bytes, name: str, found: dict[str, Counter[bytes]]) -> None:
        """Who has to process a tuple and what becomes of it, as far as keyed operators show."""
        for group in self.nodes[name].results(payload):
            receiver = self.nodes[name].emitter.routes[group.route].receiver
            for value in group.payloads:
                found[receiver][value] += 1
                self._follow(value, receiver, found)

    def _under_way(self, number: int, name: str) -> Counter[bytes]:
        """The tuples that will still come to a vertex, after the commit."""
        found: Counter[bytes] = Counter()
        later: dict[str, Counter[bytes]] = {n: Counter() for n in self.nodes}
        for sender, node in self.nodes.items():
            part = node.parts[number]
            log = m.Log([], {}, {})
            if part.log:
                log = m.decode_log((self.root / part.log).read_bytes())
            places = [(sender, log.own), *log.sent.items(), *log.out.items()]
            for receiver, items in places:
                for payload, _ in items:
                    if receiver == name:
                        found[payload] += 1
                    self._follow(payload, receiver, later)
        return found + later[name]


SHAPES = {
    "chain": [("s", "k1", False), ("k1", "p", False), ("p", "k2", False)],
    "split and join": [
        ("s", "k1", False),
        ("s", "p", False),
        ("k1", "k2", False),
        ("p", "k2", False),
    ],
    "uneven inputs": [("s1", "k1", False), ("s2", "k1", False), ("k1", "k2", False)],
    "loop": [("s", "k1", False), ("k1", "k2", False), ("k2", "k2", True)],
    "long loop": [("s", "k1", False), ("k1", "p", False), ("p", "k1", True), ("p", "k2", False)],
}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("shape", SHAPES)
def test_every_tuple_is_at_one_place_in_a_commit(
    shape: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Background", AtOnce)
    draw = random.Random(f"{shape} {seed}")
    with Network(tmp_path, SHAPES[shape], draw) as network:
        if shape == "uneven inputs":
            network.nodes["s2"].held = True  # one input is idle
        for number in range(1, 4):
            for _ in range(draw.randint(0, 150)):
                network.step()
            hold = number == 3
            network.commit(number, hold, feeding=draw.random() < 0.5)
            network.check(number)
        # All is held after the last cut: nobody has gone on.
        assert all(node.workers.hold and not node.workers.given for node in network.nodes.values())
