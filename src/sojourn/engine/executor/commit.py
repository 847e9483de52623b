"""An executor's part in a commit. Fed by the channel with the driver's requests, and by workers
with what they saved; tells the driver which files count.

A commit is a cut through the whole topology. Every row says in which interval between two cuts it
was sent (Lai and Yang), and its number among the sender's rows. An executor cuts when it is told
to. Tuples that wait at it then, to be processed or to be sent, go into the commit's log. So do the
rows that it had sent and that had not arrived when their receivers cut; the receivers tell which by
number. So nobody waits for a row, and no row is a marker. It does not matter how long tuples wait,
which way they take, or whether they go round in a loop."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sojourn import durable
from sojourn.engine.executor.background import Background
from sojourn.engine.executor.emitter import Emitter, To
from sojourn.engine.executor.loop import Loop
from sojourn.engine.executor.on_error import OnError
from sojourn.engine.executor.receiver import Receiver
from sojourn.engine.executor.table import Table
from sojourn.engine.executor.workers import Worker, Workers
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FIRST_TOLD, Bundle
from sojourn.engine.wire.channel import ChannelClient
from sojourn.engine.wire.spec import ExecutorSpec
from sojourn.engine.worker import store
from sojourn.sinks import Staged

_log = logging.getLogger("sojourn")
# Senders keep rows until they know that these have come. They are told after this many bytes.
_TELL_BYTES = 1 << 20


@dataclass
class _Cut:
    """A commit whose cut is made."""

    number: int
    part: m.Part
    sent: dict[To, int]
    table: list[m.Change]
    log: m.Log = field(default_factory=lambda: m.Log([], {}, {}))
    confirmed: bool = False
    writing: bool = False

    @property
    def log_to(self) -> list[str]:
        """The vertices that the log has tuples for."""
        own = [self.part.vertex] if self.log.own else []
        return sorted({*self.log.sent, *self.log.out, *own})


def _add(to: dict[str, list[tuple[bytes, int]]], receiver: str, bundle: Bundle | m.Group) -> None:
    """Add tuples that are under way to a vertex."""
    shards = bundle.shards or [-1] * len(bundle.payloads)
    to.setdefault(receiver, []).extend(zip(bundle.payloads, shards, strict=True))


def _under_way(spec: ExecutorSpec, logs: list[str]) -> tuple[list[Bundle], list[bytes]]:
    """The tuples of the last commit's logs that are for this executor: first those that waited
    here, then those that were sent, then those that waited to be sent. They are no longer traced,
    because their trees were dropped with the start that began them. Also returns broadcasts that
    were under way: only to the first executor, because its table is the one that was saved."""
    place = spec.place
    told: list[bytes] = []
    waited, sent, unsent = (Bundle([], [], []) for _ in range(3))
    for number, path in enumerate(map(Path, logs)):
        log = m.decode_log(path.read_bytes())
        mine = path.parent.parent.name == place.vertex
        for bundle, items in (
            (waited, log.own if mine else []),
            (sent, log.sent.get(place.vertex, [])),
            (unsent, log.out.get(place.vertex, [])),
        ):
            told += [payload for payload, shard in items if shard == FIRST_TOLD]
            plain = [item for item in items if item[1] > FIRST_TOLD]
            with_shards = any(shard >= 0 for _, shard in plain)
            for i, (payload, shard) in enumerate(plain):
                if spec.owner_of(shard if shard >= 0 else i + number) == place.executor:
                    bundle.payloads.append(payload)
                    if with_shards:
                        bundle.shards.append(shard)
    return [bundle for bundle in (waited, sent, unsent) if bundle.payloads], told


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
        table: Table,
    ) -> None:
        self.spec, self.loop, self.channel = spec, loop, channel
        self.receiver, self.workers, self.emitter = receiver, workers, emitter
        self.on_error, self.table = on_error, table
        place = spec.place
        self.folder = f"{place.vertex}/{place.executor}"
        self.files: list[tuple[str, int]] = []
        self.asked: m.Commit | None = None
        self.cut: _Cut | None = None
        self.told = 0
        self.divided = spec.place.vertex in spec.tables  # shards, other than usual
        self.merging = False
        self.merges = 0
        self.merger: subprocess.Popen[str] | None = None
        # A commit must not wait for files to be merged.
        self.background, self.behind = Background(), Background()
        for thread in (self.background, self.behind):
            loop.add(thread, thread.hand_back)

    def resume(self, welcome: m.Welcome) -> None:
        """Go on from the last commit. Its files count until they are merged. Workers load their
        state, and then get the tuples that were under way."""
        if welcome.state and not welcome.anew:
            (files,) = welcome.state
            self.files = list(zip(files.files, welcome.sizes, strict=True))
        root = self.spec.directory.parents[1]
        saved = [
            msgspec.structs.replace(s, files=[str(root / name) for name in s.files])
            for s in welcome.state
        ]
        for worker in self.workers.all if saved else ():
            shards = [s for s, owner in self.workers.owner.items() if owner is worker]
            worker.link.send(m.encode(m.Load(saved, shards, welcome.anew)))
            worker.loading += 1
        bundles, told = _under_way(self.spec, welcome.logs)
        if self.spec.host.broadcast:
            tables = [root / name for name in welcome.table]
            self.table.load(store.newest(tables, store.TABLE), welcome.anew)
            self.table.take(told)
            self.workers.tell(list(self.table.entries.values()))
        for bundle in bundles:
            self.workers.put(bundle)
        self.receiver.open = True
        self.receiver.hand_on_early()

    def ask(self, commit: m.Commit) -> None:
        """Note that the driver wants a commit."""
        self.asked = commit
        self.workers.no_moves = True

    def confirm(self, confirm: m.Confirm) -> None:
        """Note which of our rows have come, as receivers tell. Rows that we had sent before our
        cut, and that had not come before the receiver's cut, belong to the commit."""
        for vertex, executor, feedback, number in confirm.rows:
            self.emitter.confirmed((vertex, executor, feedback), number)
        cut = self.cut
        if not confirm.commit or cut is None:
            return
        for to, rows in self.emitter.unconfirmed.items():
            for number, sent in rows:
                if number <= cut.sent.get(to, 0):
                    _add(cut.log.sent, to[0], sent.bundle)
        cut.confirmed = True

    def go_on(self) -> None:
        """Do what can be done now."""
        if self.asked is not None and self.receiver.open and self.workers.may_cut:
            # Splits are taken from readers only once they have told where they are.
            anew = self.spec.place.vertex in self.asked.anew
            if not anew or all(worker.pid is not None for worker in self.workers.all):
                self._cut(self.asked)
        cut = self.cut
        if cut is None:
            if self.receiver.untold_bytes >= min(_TELL_BYTES, self.spec.queue_bytes // 8):
                self.channel.send(m.Got(self.receiver.told()))
        elif cut.confirmed and not cut.writing and not any(w.saving for w in self.workers.all):
            self._save(cut)

    def emitted(self, worker: Worker, groups: Iterable[m.Group]) -> None:
        """Note what a worker emits. Before the worker's cut, it belongs to the commit."""
        if worker.cutting and self.cut is not None:
            for group in groups:
                _add(self.cut.log.out, self.emitter.routes[group.route].receiver, group)

    def worker_cut(self, worker: Worker) -> None:
        """Note a worker's cut: its answers from now on belong to the next interval."""
        worker.cutting = False
        if not any(w.cutting for w in self.workers.all):
            self.on_error.cut()

    def worker_saved(self, worker: Worker, saved: m.Saved) -> None:
        """Note that a worker's part is on disk."""
        assert self.cut is not None
        worker.saving = False
        part = self.cut.part
        if saved.size:
            self.files.append((f"{self.folder}/{worker.saves_to}", saved.size))
        part.position = saved.position or part.position
        part.publish += saved.publish
        part.held += saved.held
        part.splits |= saved.splits
        part.schedule = max(part.schedule, saved.schedule)
        self.workers.retire_if_done(worker)

    def committed(self) -> None:
        """Note that the commit is durable: now files may be merged."""
        count = 0 if self.merging else store.to_merge([size for _, size in self.files])
        if count:
            self.merging = True
            merged = self.files[-count:]
            everything = count == len(self.files)
            self.merges += 1
            name = f"{self.folder}/{self.merges}.{self.spec.epoch}.merged"
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
        part = m.Part(spec.place.vertex, spec.place.executor)
        changed = self.table.cut()
        table = changed if spec.place.executor == 0 else []  # all have the same
        cut = self.cut = _Cut(commit.number, part, dict(self.emitter.sent), table)
        cut.part.guilty = list(workers.convicted)
        if self.divided:
            cut.part.shards = sorted(workers.own_shards)
        # A worker with state finishes what it has in hand before its cut, because the saved state
        # must match. Without state, what is in hand is simply repeated.
        stateful = spec.kind != "operator" or spec.keyed or commit.hold
        if not stateful:
            cut.log.own += [(payload, shard) for payload, shard, _ in workers.in_hand()]
        cut.log.own += [(payload, shard) for payload, shard, _ in workers.queued()]
        for receiver, bundle in self.emitter.pending():
            _add(cut.log.out, receiver, bundle)
        self.receiver.interval = self.emitter.interval = commit.number
        if commit.hold:
            workers.hold = self.emitter.hold = True
        for worker in workers.all:
            if stateful and worker.pid is not None:
                self._have_saved(worker, commit)
        if not any(w.cutting for w in workers.all):
            self.on_error.cut()
        self.channel.send(m.HasCut(commit.number, self.receiver.told()))
        workers.no_moves = False
        workers.pump()
        self.receiver.hand_on_early()

    def _have_saved(self, worker: Worker, commit: m.Commit) -> None:
        self.told += 1
        worker.cutting = worker.saving = True
        worker.saves_to = f"{commit.number}.{self.spec.epoch}.{self.told}.keys"
        path = str(self.spec.directory / worker.saves_to)
        hold = commit.hold or self.spec.place.vertex in commit.anew
        worker.link.send(m.encode(m.Save(commit.number, path, hold, commit.last)))

    def _save(self, cut: _Cut) -> None:
        """Write the commit, which is complete here, and tell the driver."""
        cut.writing = True
        letters = self.on_error.take_cut()
        log, name = cut.log, f"{cut.number}.{self.spec.epoch}.log"
        table = f"{cut.number}.{self.spec.epoch}.0.keys"  # workers' files count from one

        def write() -> tuple[int, Staged]:
            if cut.log_to:
                durable.write(self.spec.directory / name, m.encode(log))
            size = 0
            if cut.table:
                size = store.write(self.spec.directory / table, {store.TABLE: cut.table})
            return size, letters()

        def written(found: tuple[int, Staged]) -> None:
            size, staged = found
            if size:
                self.files.append((f"{self.folder}/{table}", size))
            self._saved(cut, name, list(staged.publish), list(staged.held))

        self.background.do(write, written)

    def _saved(self, cut: _Cut, name: str, publish: list[tuple[str, str]], held: list[str]) -> None:
        part = cut.part
        part.state = list(self.files)
        part.log_to = cut.log_to
        if part.log_to:
            part.log = f"{self.folder}/{name}"
        part.publish += publish
        part.held += held
        self.cut = None
        self.channel.send(m.HasSaved(cut.number, part))

    def _merged(self, merged: list[tuple[str, int]], made: tuple[str, int]) -> None:
        self.merging = False
        if made[1]:
            start = self.files.index(merged[0])
            self.files[start : start + len(merged)] = [made]


def _merger(out: Path, files: list[Path], everything: bool) -> "subprocess.Popen[str]":
    """Start a process that merges files, because merging takes CPU."""
    command = [sys.executable, "-m", "sojourn.engine.worker.compact", str(out), *map(str, files)]
    command.append(f"--parent={os.getpid()}")
    if everything:
        command.append("--all")
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def _size(merger: "subprocess.Popen[str] | None") -> int:
    """Wait for a merger and return the size of its file, in bytes. It is 0 if the merge failed;
    then only the old files stay."""
    assert merger is not None
    said, error = merger.communicate()
    if merger.returncode == -signal.SIGKILL:
        return 0  # we end
    if merger.returncode:
        _log.warning("saved state could not be merged: %s", error.strip()[-500:])
        return 0
    return int(said)
