"""An elastic executor: a process of its own per (topology, vertex, partition), with a receiver,
workers and an emitter. It outlives Spark's batches, so models, connections and state stay warm. It
changes its number of workers without touching other executors.

One thread runs one loop over sockets: the Spark task's, the workers', the channel's. The first task
of its partition starts it. It ends when the driver says so or is gone."""

import os
import signal
import socket
import time
import traceback

from sojourn import durable
from sojourn.engine.executor.batch import Batches
from sojourn.engine.executor.commit import Commits
from sojourn.engine.executor.cores import cores
from sojourn.engine.executor.credit import Credit
from sojourn.engine.executor.division import Division
from sojourn.engine.executor.emitter import Emitter, rests
from sojourn.engine.executor.entrance import Entrance
from sojourn.engine.executor.loop import Loop
from sojourn.engine.executor.meter import Meter
from sojourn.engine.executor.on_error import Fault, OnError
from sojourn.engine.executor.receiver import Receiver
from sojourn.engine.executor.report import report
from sojourn.engine.executor.table import Table
from sojourn.engine.executor.tracing import Tracing
from sojourn.engine.executor.workers import Item, Worker, Workers
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FIRST_TOLD, Bundle, Link, Seal
from sojourn.engine.wire.channel import ChannelClient
from sojourn.engine.wire.spec import (
    ExecutorSpec,
    boot_id,
    identity,
    machine_name,
    own_code,
    spark_executor_id,
)
from sojourn.engine.worker.host import ask_for_worker, start_host
from sojourn.pressure import QueueWatch, RateWatch

_BACKLOG_BYTES = 1 << 20
_FINISH_S = 10.0
_FEEDBACK_ROWS = 16  # feedback that may wait before the first source has to
_EARLY_ROWS = 16  # rows that may wait until we have made our cut


class WorkerDied(Fault):
    """A worker died and cannot be replaced here. A tuple it had in hand may be the cause."""

    def __init__(self, error: str, suspects: list[m.Suspect]) -> None:
        super().__init__(error)
        self.suspects = suspects


class ElasticExecutor:
    """The loop, and what goes on between its parts."""

    def __init__(self, spec: ExecutorSpec, listener: socket.socket, pickled: bytes) -> None:
        self.spec, self.pickled = spec, pickled
        self.what = f"{spec.kind} {spec.place.vertex!r}"
        self.machine = machine_name()
        self.host_pid, self.control = start_host(spec.host, listener)
        durable.private_directory(spec.directory)
        self.loop = Loop()
        self.channel = ChannelClient(spec.keys, identity(spec.place, spec.epoch))
        self.tracing = Tracing(self.channel)
        self.meter = Meter(time.monotonic())
        seal = Seal(spec.secret)
        self.emitter = Emitter(
            spec.number,
            spec.host.routes,
            spec.place.level,
            spec.lanes,
            spec.max_bundle,
            self.meter,
            seal,
            lambda row: self.channel.send(m.Feedback(row)),
            (spec.max_queue, spec.queue_bytes),
            rests(spec.senders, cores()),
            spec.max_rest_s,
        )
        self.emitter.tables = dict(spec.tables)
        own = [s for s in range(spec.shards) if spec.owner_of(s) == spec.place.executor]
        self.table = Table()
        self.workers = Workers(
            self._start_worker,
            spec.keyed,
            own,
            spec.max_bundle,
            spec.bundled,
            spec.suspects,
            spec.guilty,
            self._give_up,
            spec.slots,
            self.table,
            self._hire,
        )
        self.wanted = spec.processors
        self.away: dict[str, int] = {}
        self.entrance: Entrance | None = None
        self.welcome: m.Welcome | None = None
        self.on_error = OnError(spec, self.meter)
        self.stopped = False  # a source reads no more
        self.finish_at: float | None = None
        self.full = False
        self.rate_watch, self.queue_watch = RateWatch(), QueueWatch(spec.max_sojourn_s)
        self.credit = Credit(self.emitter)
        self.receiver = Receiver(self.loop, listener, spec.secret, seal, self._arrived)
        self.commits = Commits(
            spec,
            self.loop,
            self.channel,
            self.receiver,
            self.workers,
            self.emitter,
            self.on_error,
            self.table,
        )
        self.division = Division(
            spec, self.channel, self.receiver, self.workers, self.emitter, self.commits
        )
        self.batches = Batches(
            spec.place.level == 0,
            self.channel,
            self.receiver,
            self.workers,
            self.emitter,
            self.commits,
            self._attached,
        )
        self.loop.add(self.channel, lambda: self.channel.receive(self._command))
        self.loop.add(self.channel.monitor, self.channel.read_monitor)

    def run(self) -> None:
        """Run until finished, or until the driver is gone."""
        place = self.spec.place
        self.channel.send(
            m.Hello(
                place.vertex,
                place.executor,
                socket.gethostname(),
                os.getpid(),
                boot_id(),
                time.monotonic(),
                self.machine,
                spark_executor_id(),
                own_code(),
            )
        )
        try:
            while not self._is_over():
                self.loop.turn(self._timeout())
                self._follow_up()
        except WorkerDied as death:
            self.channel.send(m.Failed(place.vertex, death.error, False, death.suspects))
        except Fault as fault:
            self.channel.send(m.Failed(place.vertex, fault.error, fault.user))
        except OSError as error:
            told = durable.full_disk(error) or traceback.format_exc()
            self.channel.send(m.Failed(place.vertex, f"{self.what}: {told}", False))
        except Exception:  # noqa: BLE001  # a process of its own has nobody else to tell
            error_text = f"an executor of {place.vertex!r} failed: {traceback.format_exc()}"
            self.channel.send(m.Failed(place.vertex, error_text, False))
        finally:
            self.receiver.close()
            self.commits.close()
            if self.entrance is not None:
                self.entrance.close()
            self.control.close()
            os.kill(self.host_pid, signal.SIGKILL)  # and with it all workers
            os.waitpid(self.host_pid, 0)
            self.channel.send(m.Bye())
            self.channel.close()

    def _follow_up(self) -> None:
        """Act on what was read: send, report, go on with a commit. The channel's descriptors signal
        only changes, so this must look for what has come, and act on it."""
        seen = -1
        while self.channel.received != seen:
            seen = self.channel.received
            self.commits.go_on()
            self.division.go_on()
            if not self.full:
                self.workers.fire()
            self.emitter.flush(self.receiver.task, self.workers.answer_soon)
            self.tracing.send()
            self._hold_back()
            processors = self.processors
            self._watch_queue(processors)
            if processors != self.meter.processors:
                self.meter.employs(processors, time.monotonic())
            self.channel.receive(self._command)
            self.channel.read_monitor()

    @property
    def processors(self) -> int:
        """Those in use. Where another executor has all shards, there is nothing to do for them."""
        idle = self.spec.keyed and not self.workers.own_shards
        return 0 if idle else self.workers.processors

    def _timeout(self) -> float | None:
        sends_at = self.emitter.due(self.credit.unasked, self.workers.answer_soon)
        due = (sends_at, self.tracing.next_s, self.finish_at, self.channel.lost_at)
        waits = [t - time.monotonic() for t in due if t is not None]
        fires_at = None if self.full else self.workers.due_s
        if fires_at is not None:
            waits.append(fires_at - time.time())
        return max(0.0, min(waits)) if waits else None

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self.channel.lost_at is not None and now >= self.channel.lost_at:
            return True
        return self.finish_at is not None and (now >= self.finish_at or not self.workers.all)

    # the receiver

    def _attached(self) -> None:
        self.meter.begin()
        self.channel.send(m.Attached())
        self._begin()

    def _begin(self) -> None:
        """Start workers, once there is a task and it is known where to go on."""
        # The first batch may be over before all that has happened.
        attached = self.batches.number is not None
        if attached and self.welcome is not None and not self.workers.all:
            self.emitter.interval = self.receiver.interval = self.welcome.commit
            self._resize()

    def _go_on(self) -> None:
        """Go on with what was held for the end of the last batch: Spark's next one has begun."""
        self.workers.hold = self.emitter.hold = False
        if self.spec.kind == "source":
            for worker in self.workers.all:
                worker.link.send(m.encode(m.GoOn()))
        self._resize()

    def _arrived(self, bundle: Bundle) -> None:
        if bundle.shards and bundle.shards[0] <= FIRST_TOLD:
            self.workers.tell(self.table.take(bundle.payloads))
            return
        now_s = time.monotonic()
        self.meter.arrived(len(bundle.payloads), now_s)
        self._shed(bundle)
        self.meter.bytes_in += self.workers.put(bundle)
        self.workers.look(now_s)

    def _shed(self, bundle: Bundle) -> None:
        """Drop what would wait here for too long. One that need not wait is taken in any case. What
        is dropped is done: it has come, so a commit counts it, and nobody sends it again."""
        limit_s, workers = self.spec.shed_after_s, self.workers
        if limit_s is None:
            return
        room = int(limit_s * max(1, self.processors) / max(workers.service_s, 1e-9))
        taken = max(0 if workers.waiting else 1, room - workers.waiting)
        for trace in bundle.traces:
            if trace.index >= taken:
                self.tracing.shed(trace.root, trace.id)
        self.meter.shed += len(bundle.payloads[taken:])
        bundle.payloads = bundle.payloads[:taken]
        bundle.traces = [trace for trace in bundle.traces if trace.index < taken]

    def _hold_back(self) -> None:
        """Read from the task, or ask the source for more, only while there is room. The sockets and
        Spark's buffers behind them carry the back-pressure."""
        spec, task, emitter = self.spec, self.receiver.task, self.emitter
        full = (
            self.workers.waiting >= spec.max_queue
            or self.workers.waiting_bytes >= spec.queue_bytes
            or emitter.count >= spec.max_queue
            or emitter.bytes >= spec.queue_bytes
            or emitter.unconfirmed_bytes >= spec.queue_bytes
            or len(emitter.rows) >= _FEEDBACK_ROWS
            or len(self.receiver.early) >= _EARLY_ROWS
            or self.workers.telling_bytes >= spec.queue_bytes
            or self.channel.backlog_bytes >= spec.queue_bytes
            or (task is not None and task.unsent_bytes > _BACKLOG_BYTES)
        )
        self.full = full = full and self.finish_at is None
        if spec.kind == "source":
            self.credit.renew(full)
        elif task is not None:
            # While all is held nothing drains, but the end of the batch must still be read. What a
            # division waits for must come, too, even if what follows from it cannot be sent.
            full = full and not self.workers.hold and self.division.awaited is None
            self.loop.pause(task, full or not self.receiver.open)

    def _watch_queue(self, processors: int) -> None:
        """Tell control of a queue that is too long for its target."""
        workers = self.workers
        if workers.hold:
            return
        wait_s = self.queue_watch.look(workers.waiting, processors, workers.service_s)
        if wait_s is not None:
            self.channel.send(m.Pressed(None, 0.0, wait_s))

    # workers

    def _start_worker(self) -> Link:
        try:
            sock = ask_for_worker(self.control)
        except (BrokenPipeError, ConnectionResetError):
            raise Fault(f"{self.what}: the process that makes its workers is gone") from None
        link = Link(sock)
        self.loop.add(link, lambda: self._read_worker(link))
        self._open(link)
        return link

    def _open(self, link: Link) -> None:
        assert self.welcome is not None
        shares = self.welcome.shares
        # It is not among them yet, and the readers that stay are in the order of their shares.
        share = None if shares is None else shares[len(self.workers.staying(""))]
        link.send(m.encode(m.Open(self.welcome.position, self.welcome.held, share)))

    def _hire(self, machine: str, count: int) -> None:
        """Have workers of another machine come here."""
        if self.entrance is None:
            driver = self.spec.keys.address
            self.entrance = Entrance(self.loop, self.spec.secret, driver, self._joined)
        self.channel.send(m.Hire(machine, count, *self.entrance.address))

    def _joined(self, link: Link, machine: str) -> None:
        worker = None
        if self.finish_at is None and self.welcome is not None:
            worker = self.workers.joined(link, machine)
        if worker is None:
            link.close()
            return
        self.loop.add(link, lambda: self._read_worker(link))
        link.send(self.pickled)
        self._open(link)

    def _read_worker(self, link: Link) -> None:
        frames = link.receive()
        worker = next((w for w in self.workers.all if w.link is link), None)
        if frames is None:
            self.loop.remove(link)
            link.close()
            if worker is not None:
                self._worker_gone(worker)
            return
        for frame in frames:
            message = m.decode_from_worker(frame)
            if isinstance(message, m.Fatal):
                raise Fault(f"{self.what}: {message.error}", message.user)
            if worker is not None:
                self._from_worker(worker, message)

    def _from_worker(self, worker: Worker, message: m.FromWorker) -> None:
        match message:
            case m.Done():
                self.workers.done(worker, message)
                self.meter.served_some(
                    message.served, message.timed, message.service_s, message.service_s2
                )
                if message.stages:
                    self.meter.served_behind(message.stages)
                for one, other, product in message.together:
                    routes = self.emitter.routes
                    self.meter.made_together(routes[one].edge, routes[other].edge, product)
                self._emit(worker, message.groups)
                if worker.machine:  # its clock is another one
                    now_s = time.monotonic()
                    message.acks = [m.Ack(ack.root, ack.value, now_s) for ack in message.acks]
                self.tracing.note([], message.acks)
                self._failed(worker, message.failed)
                if message.text:
                    self.channel.send(m.Text(message.text))
            case m.Fed():
                self.meter.read(message.read, message.gap_s, message.gap_s2)
                self.meter.schedule(message.intended_s, time.monotonic())
                if message.busy_s:  # what a tuple takes is known on average only
                    squares = message.busy_s**2 / message.read
                    self.meter.served_some(0, message.read, message.busy_s, squares)
                risen = self.rate_watch.add(message.read, message.intended_s)
                if risen is not None:
                    self.channel.send(m.Pressed(*risen, 0.0))
                self.meter.shed += message.shed
                self.credit.used(worker, message.more)
                self._emit(worker, message.groups)
                self.tracing.note(message.roots, [])
                self._failed(worker, message.failed)
            case m.Exhausted():
                worker.exhausted = True
            case m.Waits():
                worker.backlog = message.backlog
            case m.Cut():
                self.commits.worker_cut(worker)
            case m.Saved():
                self.commits.worker_saved(worker, message)
            case m.Ready():
                self._worker_ready(worker, message.pid)
            case m.GiveShard():
                self.workers.taken(worker, message)
            case m.Took():
                self.workers.took(message.shard)
            case m.Timers():
                self.workers.told(worker, message)
            case m.Told():
                worker.telling.popleft()

    def _failed(self, worker: Worker, letters: list[m.DeadLetter]) -> None:
        if letters:
            cutting = any(w.cutting for w in self.workers.all)
            self.on_error.failed(letters, cutting and not worker.cutting)

    def _emit(self, worker: Worker, groups: list[m.Group]) -> None:
        self.commits.emitted(worker, groups)
        self.emitter.add(groups)

    def _worker_ready(self, worker: Worker, pid: int) -> None:
        self.workers.ready(worker, pid)
        if self.workers.open and not self.receiver.open:
            assert self.welcome is not None
            self.commits.resume(self.welcome)

    def _worker_gone(self, worker: Worker) -> None:
        """Handle a worker's death. Without a key, its tuples are given to others. With a key, its
        state is lost, and the topology goes back to the last commit."""
        spec = self.spec
        if self.finish_at is not None:
            self.workers.all.remove(worker)
            return
        if worker.pid is None and worker.machine:
            self.workers.all.remove(worker)
            self._resize()
            return
        if worker.pid is None:
            raise Fault(f"{self.what}: a worker died while it started")
        if worker.telling:
            raise Fault(f"{self.what}: a worker died while it took up a broadcast")
        if spec.kind != "operator" or spec.keyed or spec.host.threads or worker.saving:
            suspects = self.workers.suspected(None if spec.host.threads else worker)
            raise WorkerDied(f"a worker of {spec.place.vertex!r} died", suspects)
        for item in self.workers.lost(worker):
            self._give_up(item)
        self._resize()

    def _give_up(self, item: Item) -> None:
        """Give up a tuple that kills its workers."""
        payload, _, trace = item
        self.on_error.give_up(payload)
        if trace is not None:
            self.tracing.ended(trace.root, trace.id)

    def _resize(self) -> None:
        """Have as many workers as wanted. While a thread's death is not cleared up, one thread
        works alone, so that the culprit is known."""
        alone = self.spec.host.threads and self.workers.watched
        if alone:
            self.workers.resize(1)
        else:
            self.workers.resize(self.wanted, self.away)

    def _read(self, shares: list[m.Share]) -> None:
        """Have each reader of a source read its share: those that stay, those that come, and none
        any more of those that go."""
        assert self.welcome is not None
        self.welcome.shares = shares
        self.wanted = len(shares)
        for worker, share in zip(self.workers.staying(""), shares, strict=False):
            worker.exhausted = False
            worker.link.send(m.encode(m.Read(share)))
        self._resize()
        self.credit.keep(self.workers.all)

    @property
    def exhausted(self) -> bool:
        """Whether nothing comes from a source any more."""
        workers = self.workers.all
        if self.spec.kind != "source" or self.stopped:
            return True
        return bool(workers) and all(worker.exhausted for worker in workers)

    # the channel

    def _command(self, message: m.ToExecutor) -> None:
        match message:
            case m.Resize():
                self.wanted, self.away = message.processors, message.away
                if self.workers.all and not self.workers.hold:
                    self._resize()
            case m.Aim():
                self.emitter.max_rest_s = message.max_rest_s
                self.queue_watch.max_sojourn_s = message.max_sojourn_s
            case m.Poll():
                self.tracing.flush()
                self.channel.send(report(self, message.number))
            case m.StopSource():
                self.stopped = True
                for worker in self.workers.all:
                    worker.link.send(m.encode(m.Stop()))
            case m.Inject():
                self.emitter.pass_on(message.row)
            case m.Commit():
                self.commits.ask(message)
            case m.Reading():
                self._read(message.shares)
            case m.Confirm():
                self.commits.confirm(message)
            case m.Committed():
                self.commits.committed()
                self.batches.let_end()
            case m.Welcome():
                self.welcome = message
                self.meter.started_s = time.monotonic()
                if message.shares is not None:
                    self.wanted = len(message.shares)
                self._begin()
            case m.GoOn():
                self._go_on()
            case m.Pause() | m.Drain() | m.Release() | m.Carry() | m.Carried() | m.Divided():
                self.division.heard(message)
            case m.Time():
                self.tracing.learn(message)
            case m.Finish():
                self._finish()

    def _finish(self) -> None:
        self.finish_at = time.monotonic() + _FINISH_S
        self.workers.hold = True  # rows that still come find workers that are leaving
        self.receiver.close()
        self.on_error.close()
        self.tracing.flush()
        for worker in self.workers.all:
            worker.link.send(m.encode(m.Close()))
