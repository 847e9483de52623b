"""An executor's part in a commit. Fed by the channel with the driver's word, by workers with what
they saved, by the receiver with what came late; feeds the driver with what counts.

A commit is a cut through the whole topology, made as Lai and Yang have it, with Mattern's counts:
every row says in which interval between two cuts it was sent. An executor cuts when it is told to;
what waits at it then, to be processed or to be sent, goes into the commit's log. Rows that were
sent before their sender's cut and come after ours go into the log too, until as many have come as
were sent. So nobody waits for anybody, no marker takes up a row, and it does not matter how tuples
wait, which way they take or whether they go round in a loop."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sojourn import durable
from sojourn.engine.executor.background import Background
from sojourn.engine.executor.emitter import Emitter
from sojourn.engine.executor.loop import Loop
from sojourn.engine.executor.on_error import Fault, OnError
from sojourn.engine.executor.receiver import Receiver
from sojourn.engine.executor.workers import Worker, Workers
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import Bundle
from sojourn.engine.wire.channel import ChannelClient
from sojourn.engine.wire.spec import ExecutorSpec
from sojourn.engine.worker.store import to_merge


@dataclass
class _Cut:
    """A commit whose cut is made."""

    number: int
    part: m.Part
    log: m.Log = field(default_factory=lambda: m.Log([], {}))
    expected: int | None = None
    writing: bool = False

    def late(self, bundle: Bundle) -> None:
        """A bundle was under way to us."""
        shards = bundle.shards or [-1] * len(bundle.payloads)
        self.log.own += zip(bundle.payloads, shards, strict=True)

    def to_send(self, receiver: str, payloads: list[bytes], shards: list[int]) -> None:
        """Tuples are to be sent."""
        out = self.log.out.setdefault(receiver, [])
        out += zip(payloads, shards or [-1] * len(payloads), strict=True)


class Commits:
    """One commit after the other: asked for, cut, saved, committed."""

    def __init__(
        self,
        spec: ExecutorSpec,
        loop: Loop,
        channel: ChannelClient,
        receiver: Receiver,
        workers: Workers,
        emitter: Emitter,
        on_error: OnError,
    ) -> None:
        self.spec, self.loop, self.channel = spec, loop, channel
        self.receiver, self.workers, self.emitter = receiver, workers, emitter
        self.on_error = on_error
        place = spec.place
        self.folder = f"{place.vertex}/{place.executor}"
        self.files: list[tuple[str, int]] = []
        self.asked: m.Commit | None = None
        self.cut: _Cut | None = None
        self.told = 0
        self.merging = False
        self.merger: subprocess.Popen[str] | None = None
        # A commit must not wait until files are merged.
        self.background, self.behind = Background(), Background()
        for thread in (self.background, self.behind):
            loop.add(thread, thread.hand_back)

    @property
    def reads_on(self) -> bool:
        """Whether rows must be read however full the queues are: a commit waits for them. There
        are no more of them than the way has room for."""
        cut = self.cut
        return cut is not None and self.receiver.before < (cut.expected or 0)

    def begin(self, welcome: m.Welcome) -> None:
        """The files of the last commit count, until they are merged."""
        if welcome.state and not welcome.anew:
            (saved,) = welcome.state
            self.files = list(zip(saved.files, welcome.sizes, strict=True))

    def ask(self, commit: m.Commit) -> None:
        """The driver wants a commit."""
        self.asked = commit
        self.workers.no_moves = True

    def expect(self, expect: m.Expect) -> None:
        """The driver has counted what was sent to us before the senders' cuts."""
        if self.cut is not None and self.cut.number == expect.commit:
            self.cut.expected = expect.rows

    def go_on(self) -> None:
        """Do what can be done now."""
        if self.asked is not None and self.receiver.open and self.workers.may_cut:
            self._cut(self.asked)
        cut = self.cut
        if cut is None or cut.writing or cut.expected is None:
            return
        if self.receiver.before > cut.expected:
            raise Fault(f"{self.receiver.before} rows came of {cut.expected} that were sent")
        if self.receiver.before == cut.expected and not any(w.saving for w in self.workers.all):
            self._save(cut)

    def arrived(self, bundle: Bundle, late: bool) -> None:
        """A bundle has come; if its sender had not cut yet, it belongs to the commit."""
        if late:
            if self.cut is None:
                raise Fault("a row came that was sent before the last commit")
            self.cut.late(bundle)

    def emitted(self, worker: Worker, groups: Iterable[m.Group]) -> None:
        """A worker has answered; before its cut, what it emits belongs to the commit."""
        if worker.cutting and self.cut is not None:
            for group in groups:
                receiver = self.emitter.routes[group.route].receiver
                self.cut.to_send(receiver, group.payloads, group.shards)

    def worker_cut(self, worker: Worker) -> None:
        """All that a worker answered from now on is of the next interval."""
        worker.cutting = False
        if not any(w.cutting for w in self.workers.all):
            self.on_error.cut()

    def worker_saved(self, worker: Worker, saved: m.Saved) -> None:
        """What a worker had is on disk."""
        assert self.cut is not None
        worker.saving = False
        part = self.cut.part
        if saved.size:
            self.files.append((f"{self.folder}/{worker.saves_to}", saved.size))
        part.position = saved.position or part.position
        part.publish += saved.publish
        part.held += saved.held
        self.workers.retire_if_done(worker)

    def committed(self) -> None:
        """The commit is durable: now files may be merged."""
        count = 0 if self.merging else to_merge([size for _, size in self.files])
        if count:
            self.merging = True
            merged = self.files[-count:]
            everything = count == len(self.files)
            name = f"{self.folder}/{merged[-1][0].split('/')[-1]}.merged"
            root = self.spec.directory.parents[1]

            self.merger = _merger(root / name, [root / path for path, _ in merged], everything)
            self.behind.do(
                lambda: _size(self.merger), lambda size: self._merged(merged, (name, size))
            )

    def close(self) -> None:
        """Merge no more."""
        if self.merger is not None:
            self.merger.kill()

    def _cut(self, commit: m.Commit) -> None:
        spec, workers = self.spec, self.workers
        self.asked = None
        cut = self.cut = _Cut(commit.number, m.Part(spec.place.vertex, spec.place.executor))
        cut.part.guilty = list(workers.convicted)
        # What a worker has in hand is processed before its cut, as its state must fit; without
        # any state it is simply done again.
        stateful = spec.kind != "operator" or spec.keyed or commit.hold
        if not stateful:
            cut.log.own += [(payload, shard) for payload, shard, _ in workers.in_hand()]
        cut.log.own += [(payload, shard) for payload, shard, _ in workers.queued()]
        for receiver, bundle in self.emitter.pending():
            cut.to_send(receiver, bundle.payloads, bundle.shards)
        self.receiver.cut(commit.number)
        self.emitter.interval = commit.number
        if commit.hold:
            workers.hold = self.emitter.hold = True
        for worker in workers.all:
            if stateful and worker.pid is not None:
                self._have_saved(worker, commit)
        if not any(w.cutting for w in workers.all):
            self.on_error.cut()
        sent = [(vertex, executor, n) for (vertex, executor), n in self.emitter.sent.items()]
        self.channel.send(m.HasCut(commit.number, sent))
        workers.no_moves = False
        workers.pump()
        self.receiver.hand_on_early()

    def _have_saved(self, worker: Worker, commit: m.Commit) -> None:
        self.told += 1
        worker.cutting = worker.saving = True
        worker.saves_to = f"{commit.number}.{self.spec.epoch}.{self.told}.keys"
        path = str(self.spec.directory / worker.saves_to)
        worker.link.send(m.encode(m.Save(commit.number, path, commit.hold, commit.last)))

    def _save(self, cut: _Cut) -> None:
        """All that belongs to the commit is here: write it, and tell the driver."""
        cut.writing = True
        letters = self.on_error.take_cut()
        log, name = cut.log, f"{cut.number}.{self.spec.epoch}.log"

        def write() -> tuple[list[tuple[str, str]], list[str]]:
            if log.own or log.out:
                durable.write(self.spec.directory / name, m.encode(log))
            staged = letters()
            return list(staged.publish), list(staged.held)

        self.background.do(write, lambda staged: self._saved(cut, name, *staged))

    def _saved(self, cut: _Cut, name: str, publish: list[tuple[str, str]], held: list[str]) -> None:
        part, log = cut.part, cut.log
        part.state = list(self.files)
        if log.own or log.out:
            part.log = f"{self.folder}/{name}"
            part.log_to = sorted({*log.out, *([self.spec.place.vertex] if log.own else [])})
        part.publish += publish
        part.held += held
        self.cut = None
        self.channel.send(m.HasSaved(cut.number, part))

    def _merged(self, merged: list[tuple[str, int]], made: tuple[str, int]) -> None:
        start = self.files.index(merged[0])
        self.files[start : start + len(merged)] = [made]
        self.merging = False


def _merger(out: Path, files: list[Path], everything: bool) -> "subprocess.Popen[str]":
    """A process that merges files, as that takes CPU."""
    command = [sys.executable, "-m", "sojourn.engine.worker.compact", str(out), *map(str, files)]
    if everything:
        command.append("--all")
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def _size(merger: "subprocess.Popen[str] | None") -> int:
    """What it has made, in bytes, once it is done."""
    assert merger is not None
    said, error = merger.communicate()
    if merger.returncode:
        raise Fault(f"saved state cannot be merged: {error.strip()[-500:]}")
    return int(said)
