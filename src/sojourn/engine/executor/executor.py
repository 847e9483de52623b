"""An elastic executor: a process of its own per (topology, vertex, partition), with a receiver, a
pool of workers and an emitter. It outlives batches, so that models, connections and state stay
warm, and changes its number of workers without touching anyone else.

One thread turns one loop over sockets: the Spark task's, the workers', the channel's. Started by
the first task of its partition; ends when the driver says so or is gone."""

import os
import signal
import socket
import time
import traceback
import zlib
from enum import Enum, auto

from sojourn.engine.executor.emitter import WINDOW, Emitter
from sojourn.engine.executor.injector import Injector
from sojourn.engine.executor.loop import Loop
from sojourn.engine.executor.meter import Meter
from sojourn.engine.executor.on_error import Fault, OnError
from sojourn.engine.executor.receiver import Callbacks, Receiver
from sojourn.engine.executor.report import report
from sojourn.engine.executor.state import StateStore
from sojourn.engine.executor.workers import Pool, Worker
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import PREFIX, Link, decode_bundle
from sojourn.engine.wire.channel import ChannelClient
from sojourn.engine.wire.spec import END, ExecutorSpec, identity
from sojourn.engine.worker.host import ask_for_worker, start_host

_REPORT_TRACES_S = 0.02
_BACKLOG_BYTES = 1 << 20
_WORKER_BYTES = 1 << 20
_SOURCE_BYTES = 1 << 14  # what is not read must stay with the source, which may shed it
_FINISH_S = 10.0
_SETTLE_S = 10.0
_WAVED_THROUGH = 16  # bundles for later levels that may wait


class Phase(Enum):
    """Where a batch stands."""

    WAITING = auto()  # for a task
    RUNNING = auto()
    DRAINING = auto()  # all input has come
    SETTLING = auto()  # acknowledgements of feedback are under way
    ENDING = auto()  # workers finish the batch


class WorkerDied(Fault):
    """A worker died and cannot be replaced here; perhaps because of the tuple it had in hand."""

    def __init__(self, error: str, suspect: int | None) -> None:
        super().__init__(error)
        self.suspect = suspect


class ElasticExecutor:
    """The loop, and the life of a batch: attach, run, drain, settle, end, save, answer."""

    def __init__(self, spec: ExecutorSpec, listener: socket.socket) -> None:
        self.spec = spec
        self.host_pid, self.control = start_host(spec.host, listener)
        self.loop = Loop()
        self.channel = ChannelClient(spec.keys, identity(spec.place, spec.epoch))
        self.meter = Meter(time.monotonic())
        self.emitter = Emitter(
            spec.host.routes, spec.place.level, list(spec.partitions), spec.max_bundle, self.meter
        )
        self.emitter.hand_over = self._hand_over
        own = [s for s in range(spec.shards) if s % spec.executors == spec.place.executor]
        self.pool = Pool(self._start_worker, spec.keyed, own, spec.max_bundle)
        self.wanted = spec.processors
        self.store = StateStore(
            spec.checkpoint, spec.place.vertex, spec.place.executor, spec.executors
        )
        self.on_error = OnError(spec, self.meter)
        self.phase = Phase.WAITING
        self.batch: int | None = None
        self.first_batch: int | None = None
        self.settled = False
        self.loaded: dict[int, bytes] = {}
        self.early: list[bytes] = []
        self.changed: dict[int, bytes] = {}
        self.roots: list[m.Root] = []
        self.acks: list[m.Ack] = []
        self.traces_due: float | None = None
        self.exhausted = spec.kind != "source"
        self.intended_s: float | None = None
        self.lag_s = 0.0
        self.source_stopped = False
        self.injector = Injector(self.channel, self.emitter)
        self.finish_at: float | None = None
        self.settle_by: float | None = None
        self.receiver = Receiver(
            self.loop,
            listener,
            spec.secret,
            Callbacks(self._attached, self._handle, self._taken, self._task_gone),
        )
        self.loop.add(self.channel, lambda: self.channel.receive(self._command))
        self.loop.add(self.channel.monitor, self.channel.read_monitor)

    def run(self) -> None:
        """Until finished, or the driver is gone."""
        place = self.spec.place
        self.channel.send(
            m.Hello(
                place.vertex, place.executor, self.spec.epoch, socket.gethostname(), os.getpid()
            )
        )
        try:
            while not self._is_over():
                self.loop.turn(self._timeout())
                self._follow_up()
        except WorkerDied as death:
            self.channel.send(m.Failed(place.vertex, death.error, False, True, death.suspect))
        except Fault as fault:
            self.channel.send(m.Failed(place.vertex, fault.error, fault.user, False, None))
        except Exception:  # noqa: BLE001  # a process of its own has nobody else to tell
            error = f"an executor of {place.vertex!r} failed: {traceback.format_exc()}"
            self.channel.send(m.Failed(place.vertex, error, False, False, None))
        finally:
            self.receiver.close()
            self.control.close()
            os.kill(self.host_pid, signal.SIGKILL)  # and with it all workers
            os.waitpid(self.host_pid, 0)
            self.channel.send(m.Bye())
            self.channel.close()

    def _follow_up(self) -> None:
        """What follows from what was read: send, report, go on to the next phase."""
        self.emitter.flush(self.receiver.task)
        if self.traces_due is not None and time.monotonic() >= self.traces_due:
            self.channel.send(m.Traces(self.roots, self.acks))
            self.roots, self.acks, self.traces_due = [], [], None
        if self.settle_by is not None and time.monotonic() >= self.settle_by:
            raise Fault("the first source is gone, with acknowledgements of feedback")
        if self.phase is Phase.DRAINING:
            self._try_to_end()
        if self.phase is Phase.ENDING:
            self._try_to_save()
        self._hold_back()
        if self.pool.processors != self.meter.processors:
            self.meter.employs(self.pool.processors, time.monotonic())
        # The channel's descriptors signal changes only, so what is there must be looked for.
        self.channel.receive(self._command)
        self.channel.read_monitor()

    def _timeout(self) -> float | None:
        due = (self.traces_due, self.finish_at, self.channel.lost_at, self.settle_by)
        waits = [t - time.monotonic() for t in due if t is not None]
        return max(0.0, min(waits)) if waits else None

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self.channel.lost_at is not None and now >= self.channel.lost_at:
            return True
        return self.finish_at is not None and (now >= self.finish_at or not self.pool.workers)

    # the receiver

    def _attached(self, batch: int) -> None:
        """A batch starts: everything up to the one before is committed."""
        spec = self.spec
        if self.phase is not Phase.WAITING:
            raise Fault(f"a task came for batch {batch} while {self.batch} was running")
        if self.batch is None:
            self.first_batch = batch
            self.loaded, parked = self.store.load(batch - 1)
            self.emitter.restore(parked)
        elif batch != self.batch + 1:
            raise Fault(f"batch {batch} came after {self.batch}; what is in memory is of neither")
        self.batch = batch
        self.phase = Phase.RUNNING
        self.emitter.window = WINDOW
        self.settled = False
        self.changed = {}
        self.meter.begin()
        self.on_error.begin(batch, spec.epoch)
        self._resize()
        for worker in self.pool.workers:
            worker.ended = False
            if worker.pid is not None:
                self._begin_worker(worker)
        self.emitter.hand_over_again()
        self.injector.begin(batch)

    def _begin_worker(self, worker: Worker) -> None:
        assert self.batch is not None
        if not self.source_stopped:
            worker.link.send(m.encode(m.Begin(self.batch, self.spec.epoch)))

    def _taken(self, rows: int) -> None:
        self.emitter.window += rows

    def _task_gone(self) -> None:
        if self.phase is not Phase.WAITING:
            raise Fault("the Spark task is gone")
        self.receiver.detach()

    def _handle(self, frames: list[bytes]) -> None:
        if not self.pool.processors:
            self.early += frames  # until a worker is ready
            return
        for frame in frames:
            if frame == END:
                self.phase = Phase.DRAINING
                self.injector.end()
            elif self.spec.kind != "source":
                level, _ = PREFIX.unpack_from(frame)
                if level != self.spec.place.level:
                    self.emitter.pass_on(frame)
                    continue
                bundle = decode_bundle(memoryview(frame)[PREFIX.size :])
                self.meter.arrived(len(bundle.payloads), time.monotonic())
                if self.spec.guilty:
                    bundle, ended = self.on_error.without_guilty(bundle)
                    self._note([], [m.Ack(trace.root, trace.id, time.time()) for trace in ended])
                self.pool.put(bundle)

    def _hold_back(self) -> None:
        """Read from the task, or from the source, only while there is room: the sockets and
        Spark's buffers behind them carry the pressure back."""
        task = self.receiver.task
        full = (
            self.pool.waiting >= self.spec.max_queue
            or self.emitter.count >= self.spec.max_queue
            or len(self.emitter.rows) >= _WAVED_THROUGH
            or (task is not None and task.unsent_bytes > _BACKLOG_BYTES)
        )
        if self.spec.kind == "source":
            for worker in self.pool.workers:
                self.loop.pause(worker.link, full)
        elif task is not None:
            self.loop.pause(task, full or not self.pool.processors)

    # workers

    def _start_worker(self) -> Link:
        if self.spec.kind == "source":
            sock = ask_for_worker(self.control, _SOURCE_BYTES, self.loaded.get(0, b""))
            link = Link(sock, _SOURCE_BYTES)
        else:
            link = Link(ask_for_worker(self.control, _WORKER_BYTES))
        self.loop.add(link, lambda: self._read_worker(link))
        return link

    def _read_worker(self, link: Link) -> None:
        frames = link.receive()
        worker = next((w for w in self.pool.workers if w.link is link), None)
        if frames is None:
            self.loop.remove(link)
            link.close()
            if worker is not None:
                self._worker_gone(worker)
            return
        for frame in frames:
            message = m.decode_from_worker(frame)
            if isinstance(message, m.Fatal):
                raise Fault(f"{self.spec.kind} {self.spec.place.vertex!r}: {message.error}", True)
            if worker is not None:
                self._from_worker(worker, message)

    def _from_worker(self, worker: Worker, message: m.FromWorker) -> None:
        match message:
            case m.Done():
                self.pool.done(worker, message)
                self.meter.served_some(
                    message.served, message.timed, message.service_s, message.service_s2
                )
                self.emitter.add(message.groups)
                self._note([], message.acks)
                self.on_error.failed(message.failed)
                if message.text:
                    self.channel.send(m.Text(message.text))
            case m.Fed():
                self.meter.read(message.read, message.gap_s, message.gap_s2)
                self.intended_s, self.lag_s = message.intended_s, time.time() - message.intended_s
                self.meter.shed += message.shed
                self.emitter.add(message.groups)
                self._note(message.roots, [])
            case m.Exhausted():
                self.exhausted = True
            case m.Ended():
                worker.ended = True
                self.changed.update(message.shards)
            case m.Ready():
                self._worker_ready(worker, message.pid)
            case m.GiveShard():
                self.pool.taken(worker, message.shard, message.state)

    def _worker_ready(self, worker: Worker, pid: int) -> None:
        self._begin_worker(worker)
        self.pool.ready(worker, pid)
        if self.phase is Phase.ENDING:
            worker.link.send(m.encode(m.End()))
        if self.loaded and self.pool.owner:
            for shard, state in self.loaded.items():
                self.pool.owner[shard].link.send(m.encode(m.GiveShard(shard, state)))
            self.loaded = {}
        early, self.early = self.early, []
        self._handle(early)

    def _worker_gone(self, worker: Worker) -> None:
        """A worker died. Without a key its tuples are given to others; with one, state is lost
        with it, and the topology goes back to the last committed batch."""
        spec = self.spec
        if self.finish_at is not None:
            self.pool.workers.remove(worker)
            return
        if worker.pid is None:
            raise Fault(f"{spec.kind} {spec.place.vertex!r}: a worker died while it started")
        if spec.kind != "operator" or spec.keyed or spec.host.threads:
            raise WorkerDied(f"a worker of {spec.place.vertex!r} died", self._suspect(worker))
        for payload, _, trace in self.pool.lost(worker):
            self.on_error.give_up(payload)
            if trace is not None:
                self._note([], [m.Ack(trace.root, trace.id, time.time())])
        self._resize()

    def _suspect(self, worker: Worker) -> int | None:
        """The fingerprint of the tuple in hand, if it is the only one that can have killed the
        worker: threads die together."""
        if self.spec.host.threads and len(self.pool.workers) > 1:
            return None
        in_hand = worker.given[0] if worker.given else []
        return zlib.crc32(in_hand[0][0]) if len(in_hand) == 1 else None

    def _resize(self) -> None:
        """As many workers as wanted. After a worker's death, until what killed it is behind us,
        tuples are given out singly, and to one thread, so that the culprit is known."""
        careful = self.spec.careful and self.batch == self.first_batch
        self.pool.max_helping = 1 if careful else self.spec.max_bundle
        self.pool.resize(1 if careful and self.spec.host.threads else self.wanted)

    def _note(self, roots: list[m.Root], acks: list[m.Ack]) -> None:
        if roots or acks:
            self.roots += roots
            self.acks += acks
            if self.traces_due is None:
                self.traces_due = time.monotonic() + _REPORT_TRACES_S

    # the end of a batch

    def _try_to_end(self) -> None:
        """All input has come: once it is processed and sent, have the workers end the batch."""
        if not self.pool.idle or not self.emitter.sent_all or not self.pool.processors:
            return
        if self.emitter.unacknowledged and not self.settled:
            self.phase = Phase.SETTLING
            self.settle_by = time.monotonic() + _SETTLE_S
            self.channel.send(m.Settle())
        else:
            self._end()

    def _end(self) -> None:
        self.phase = Phase.ENDING
        for worker in self.pool.workers:
            if worker.pid is not None and not worker.ended:
                worker.link.send(m.encode(m.End()))

    def _try_to_save(self) -> None:
        """Workers have ended the batch and all is sent: save it and let the task end."""
        ended = all(w.ended for w in self.pool.workers if w.pid is not None)
        if not ended or not self.pool.idle or not self.emitter.sent_all:
            return
        assert self.batch is not None
        assert self.receiver.task is not None
        self.on_error.end()
        self.store.save(self.batch, self.spec.epoch, self.changed, self.emitter.parked())
        self.phase = Phase.WAITING
        self.receiver.task.send(END)

    # the channel

    def _command(self, message: m.ToExecutor) -> None:
        match message:
            case m.Resize():
                self.wanted = message.processors
                if self.phase in (Phase.RUNNING, Phase.DRAINING):
                    self._resize()
            case m.Poll():
                self.channel.send(report(self, message.number))
            case m.StopSource():
                self.source_stopped = self.exhausted = True
                for worker in self.pool.workers:
                    if self.phase is Phase.RUNNING and not worker.ended:
                        worker.link.send(m.encode(m.End()))
            case m.Inject():
                self.injector.take(message)
            case m.Injected():
                self.emitter.acknowledge(message.number)
            case m.SettleFor():
                self.channel.send(m.SettledFor(message.sender))
            case m.Settled():
                self.settled, self.settle_by = True, None
                self.phase = Phase.DRAINING
            case m.Finish():
                self._finish(message.committed)

    def _hand_over(self, number: int, row: bytes, count: int) -> None:
        assert self.batch is not None
        self.channel.send(m.Feedback(number, self.batch, row, count))

    def _finish(self, committed: int | None) -> None:
        self.finish_at = time.monotonic() + _FINISH_S
        self.receiver.close()
        self.on_error.close(committed)
        for worker in self.pool.workers:
            worker.link.send(m.encode(m.Close(committed)))

    def behind_s(self) -> float | None:
        """How far a source is behind its intended arrivals: as it was when it last read, and
        growing while it is held back."""
        if self.intended_s is None:
            return None
        held = any(worker.link in self.loop.paused for worker in self.pool.workers)
        return max(0.0, time.time() - self.intended_s if held else self.lag_s)
