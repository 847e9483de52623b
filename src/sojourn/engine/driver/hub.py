"""The hub is the driver's end of the channel: one thread that hears all executors, relays feedback,
keeps the trees and the last reports, and passes commands on. Used by `Running`."""

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sojourn.engine.driver.handover import Handover
from sojourn.engine.driver.interrupts import deferred
from sojourn.engine.driver.merge import Change, merge, part
from sojourn.engine.driver.printer import Printer
from sojourn.engine.driver.tracker import Tracker
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.channel import ChannelServer
from sojourn.engine.wire.layout import Layout, Place, senders_of
from sojourn.engine.wire.spec import OUTPOST, PACKAGE, boot_id, own_code
from sojourn.ports import Part, Pressure, Samples

_log = logging.getLogger("sojourn")
Rows = tuple[int, bool, int]  # sender, whether feedback, number
RowsTo = tuple[str, int, bool, int]  # vertex, executor, whether feedback, number
_TURN_S = 0.01
_LOOK_S = 0.1
_PRINT_S = 2.0
_CODE = own_code()  # of what this process has loaded, also if the files change later


class Hub(threading.Thread):
    """All sockets and the tracker belong to this thread; others reach it by `send` and `wait`."""

    def __init__(self, host: str, layout: Layout) -> None:
        super().__init__(daemon=True, name="sojourn-hub")
        self.channel = ChannelServer(host)
        self.layout = layout
        self.tracker = Tracker(senders=senders_of(layout))
        self.printer = Printer()
        self.members: dict[bytes, m.Hello] = {}
        self.at: dict[tuple[str, int], bytes] = {}
        self.processors: dict[tuple[str, int], m.Resize] = {}
        self.outposts: dict[str, tuple[bytes, m.Outpost]] = {}  # by machine
        self.dismissed: set[str] = set()  # Spark executors whose outpost was told to end
        self.welcome: Callable[[m.Hello], m.Welcome] | None = None
        self.attached: set[bytes] = set()
        self.batch, self.handled_batch = -1, -1  # the last batch of Spark's that has ended
        self.held = False  # whether all is held until the next batch has begun
        self.moved = False
        self.sources = {place.vertex for place in layout.places if place.level == 0}
        self.sources_began = False
        self.feedback: list[m.Feedback] = []
        self.cuts: dict[bytes, m.HasCut] = {}
        self.saved: dict[bytes, m.HasSaved] = {}
        self.handover = Handover(self.send)
        self.places = {(place.vertex, place.executor): place for place in layout.places}
        self.reports: dict[bytes, m.Report] = {}
        self.sampled: dict[bytes, m.Report] = {}
        self.parts: dict[tuple[str, int], Part] = {}  # of executors, in the last samples
        self.rates: dict[tuple[str, int], float] = {}  # at which tuples came to them then
        self.failures: list[m.Failed] = []
        self.changed = threading.Condition()
        self.requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.epoch = self.starts = 0
        self.polls = 0
        self.ended = False
        self.broken: str | None = None
        self.on_pressure: Callable[[Pressure], None] | None = None

    def run(self) -> None:
        """Until `end`."""
        try:
            while not self.ended:
                while not self.requests.empty():
                    self.requests.get()()
                arrived = self.channel.receive(_TURN_S)
                if arrived or self.channel.overrun:
                    with self.changed:
                        for sender, message in arrived:
                            self.handle(sender, message)
                        self._note_overrun()
                        self.changed.notify_all()
        except Exception as error:  # noqa: BLE001  # told by the supervisor
            self.broken = f"the hub failed: {error!r}"
        finally:
            self.channel.close()
            self.printer.close(_PRINT_S)

    def end(self) -> None:
        """Close the channel."""
        self.ended = True
        self.join()

    def send(self, place: Place, message: m.ToExecutor) -> None:
        """To the executor at a place, if one has joined."""
        target = self.at.get((place.vertex, place.executor))
        if target is not None:
            self._send(target, message)

    def _send(self, target: bytes, message: m.ToExecutor) -> None:
        frame = m.encode(message)  # here, so that the caller gets the error of an odd message
        self.requests.put(lambda: self.channel.send_frame(target, frame))

    def resize(self, place: Place, processors: int, away: Mapping[str, int]) -> None:
        """Give the executor at a place that many processors, so many of them on other machines. If
        it starts anew, all are at home at first."""
        self.processors[place.vertex, place.executor] = m.Resize(processors)
        self.send(place, m.Resize(processors, dict(away)))

    def hellos(self) -> dict[Place, m.Hello]:
        """What the executors that have joined said."""
        with self.changed:
            return {
                place: self.members[member]
                for place in self.layout.places
                if (member := self.at.get((place.vertex, place.executor))) in self.members
            }

    def dismiss(self, machine: str) -> None:
        """Have the outpost on a machine end."""
        with self.changed:
            found = self.outposts.pop(machine, None)
            if found is None:
                return
            self.dismissed.add(found[1].spark_executor)
        self._send(found[0], m.Finish())

    def send_all(self, message: m.ToExecutor) -> None:
        """To every executor that has joined."""
        for target in list(self.members):
            self._send(target, message)

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether a condition came true in time. It is checked whenever something was heard, and
        now and then, because it may also depend on what is not heard here."""
        deadline = time.monotonic() + timeout_s
        with deferred() as interrupted, self.changed:
            while (left := deadline - time.monotonic()) > 0 and not interrupted():
                if self.changed.wait_for(condition, min(left, _LOOK_S)):
                    return True
            return condition()

    def poll(self, timeout_s: float) -> dict[bytes, m.Report]:
        """A fresh report from every executor that answers in time."""
        self.polls += 1
        number = self.polls
        asked = list(self.at.values())
        for target in asked:
            self._send(target, m.Poll(number))

        def all_answered() -> bool:
            return all(
                (report := self.reports.get(target)) is not None and report.number >= number
                for target in asked
                if target in self.members
            )

        self.wait(all_answered, timeout_s)
        with self.changed:
            return {
                target: report
                for target in self.at.values()
                if (report := self.reports.get(target)) is not None and report.number >= number
            }

    def samples(self, timeout_s: float, peek: bool = False) -> Samples:
        """What happened since the last call that did not just peek."""
        reports = self.poll(timeout_s)
        with self.changed:
            changes = [Change(now, self.sampled.get(who)) for who, now in reports.items()]
            sojourn = None
            if not peek:
                self.sampled.update(reports)
                self.parts = {(c.now.vertex, c.now.executor): part(c) for c in changes}
                self.rates = {(c.now.vertex, c.now.executor): c.rate or 0.0 for c in changes}
                sojourn = self.tracker.collect()
            trees = len(self.tracker.trees)
            return Samples(time.time(), merge(changes), sojourn, trees, starts=self.starts)

    @property
    def is_broken(self) -> bool:
        """Whether an executor has failed, or the channel itself."""
        return bool(self.failures) or self.broken is not None

    def _note_overrun(self) -> None:
        """Fail executors that read nothing from the channel: they have lost messages."""
        while self.channel.overrun:
            hello = self.members.get(self.channel.overrun.pop())
            if hello is not None:
                error = f"an executor of {hello.vertex!r} reads nothing from the channel"
                self.failures.append(m.Failed(hello.vertex, error, False))

    def confirm(self, commit: int) -> None:
        """Tell every executor which of its rows had come when their receivers made their cuts."""
        with self.changed:
            here = [target for target in self.at.values() if target in self.members]
            cuts = {target: self.cuts[target].got for target in here if target in self.cuts}
            found = self._by_sender(cuts)
            places = {n: self.layout.places[n] for n in found}
            targets = {n: self.at.get((p.vertex, p.executor)) for n, p in places.items()}

        def send() -> None:  # to all before anything else: some would act on what comes later
            for number, rows in found.items():
                if (target := targets[number]) is not None:
                    self.channel.send(target, m.Confirm(commit, rows))

        self.requests.put(send)

    def _by_sender(self, got: Mapping[bytes, list[Rows]]) -> dict[int, list[RowsTo]]:
        """What receivers have got, by sender. Every sender has an entry."""
        found: dict[int, list[RowsTo]] = {n: [] for n in range(len(self.layout.places))}
        for receiver, rows in got.items():
            hello = self.members.get(receiver)
            if hello is None:
                continue  # it has just left, which ends this start
            for sender, feedback, number in rows:
                found[sender].append((hello.vertex, hello.executor, feedback, number))
        return found

    def cut_by_all(self, commit: int) -> bool:
        """Whether every executor has made its cut for a commit."""
        found = [self.cuts.get(target) for target in self.at.values()]
        cuts = [cut for cut in found if cut is not None and cut.commit == commit]
        return len(cuts) == len(self.layout.places)

    def saved_by_all(self, commit: int) -> list[m.Part] | None:
        """Every executor's part in a commit, once all are saved. To be called with `changed`."""
        found = [self.saved.get(target) for target in self.at.values()]
        parts = [saved.part for saved in found if saved is not None and saved.commit == commit]
        return parts if len(parts) == len(self.layout.places) else None

    def complete(self) -> bool:
        """Whether every executor of the present epoch has joined and has its task."""
        here = list(self.at.values())
        return len(here) == len(self.layout.places) and self.attached.issuperset(here)

    def between_batches(self) -> None:
        """Note that all is held and committed: tasks go, and come again, perhaps elsewhere."""
        with self.changed:
            self.handled_batch, self.held = self.batch, True
            self.attached.clear()

    @property
    def batch_ended(self) -> bool:
        """Whether a batch of Spark's has ended that has no commit yet."""
        return self.batch > self.handled_batch

    def go_on(self) -> bool:
        """Have what was held go on, if every executor is where it was and has its task. If not, end
        this start."""
        with self.changed:
            if self.moved:
                return False
            if not self.complete():
                self.failures.append(m.Failed("", "Spark's next batch has not begun", False))
            self.held = False
            for target in self.members:
                self._send(target, m.GoOn())
            return True

    def all_left(self, timeout_s: float) -> bool:
        """Whether all executors left in time: they said so, or were on this host and died."""

        def none_left() -> bool:
            for member, hello in list(self.members.items()):
                if hello.host == socket.gethostname() and _is_dead(hello.pid):
                    del self.members[member]
                    self.attached.discard(member)
            return not self.members

        return self.wait(none_left, timeout_s)

    def start_epoch(self, epoch: int) -> None:
        """Begin a new start: nothing heard before counts any more."""
        with self.changed:
            self.epoch = epoch
            self.starts += 1
            self.members.clear()
            self.at.clear()
            self.attached.clear()
            self.batch = self.handled_batch = -1
            self.moved = self.held = self.sources_began = False
            self.feedback.clear()
            self.cuts.clear()
            self.saved.clear()
            self.handover.begin(0)
            self.failures.clear()
            self.reports.clear()
            self.sampled.clear()
            self.tracker.clear()

    def handle(self, sender: bytes, message: m.ToDriver) -> None:
        """Handle a message from an executor or outpost. To be called with `changed`."""
        if sender.startswith(OUTPOST.encode()):
            self._from_outpost(sender, message)
            return
        if not sender.endswith(f"/{self.epoch}".encode()):
            if isinstance(message, m.Hello):  # of a start that has failed meanwhile
                self.channel.send(sender, m.Finish())
            return
        if isinstance(message, m.HandedOver):
            self._hand_over(sender, message)
            return
        match message:
            case m.Hello():
                self._join(sender, message)
            case m.Bye():
                self.members.pop(sender, None)
                self.attached.discard(sender)
                self.reports.pop(sender, None)
                self.sampled.pop(sender, None)
            case m.Failed():
                self.failures.append(message)
            case m.Report():
                self.reports[sender] = message
            case m.Pressed():
                self._press(sender, message)
            case m.Traces():
                hello = self.members.get(sender)
                self.tracker.note(message, "" if hello is None else hello.vertex)
            case m.Text():
                self.printer.show(message.lines)
            case m.Feedback():
                self._inject(message)
            case m.AskTime():
                if sender in self.members:
                    self._tell_time(sender, message.at_s)
            case m.Hire():
                if (found := self.outposts.get(message.machine)) is not None:
                    self.channel.send(found[0], m.Employ(message.host, message.port, message.count))
            case m.Attached():
                self.attached.add(sender)
                self._let_sources_begin()
            case m.BatchEnded():
                self.batch = max(self.batch, message.batch)
            case m.Got():
                for number, rows in self._by_sender({sender: message.rows}).items():
                    place = self.layout.places[number]
                    if rows and (target := self.at.get((place.vertex, place.executor))):
                        self.channel.send(target, m.Confirm(0, rows))
            case m.HasCut():
                self.cuts[sender] = message
            case m.HasSaved():
                self.saved[sender] = message

    def _press(self, sender: bytes, message: m.Pressed) -> None:
        """Tell control what cannot wait. Other executors of a source are as they last were."""
        hello, rate = self.members.get(sender), message.rate
        if hello is None or self.on_pressure is None:
            return
        if rate is not None:
            rate += self._rate_beside(hello.vertex, hello.executor)
        self.on_pressure(Pressure(hello.vertex, rate, message.over_s, message.wait_s))

    def _rate_beside(self, vertex: str, executor: int) -> float:
        """At how many tuples a second the other executors of a vertex were in the last samples."""
        others = self.rates.items()
        return sum(rate for (name, n), rate in others if name == vertex and n != executor)

    def _hand_over(self, sender: bytes, message: m.HandedOver) -> None:
        if (hello := self.members.get(sender)) is not None:
            place = self.places[hello.vertex, hello.executor]
            self.handover.heard(place, message, self.places)

    def _from_outpost(self, sender: bytes, message: m.ToDriver) -> None:
        if isinstance(message, m.Outpost):
            if message.code != _CODE:
                _log.warning("no workers there: %s", _other_version(message.machine))
                self.channel.send(sender, m.Finish())
                return
            self.outposts[message.machine] = sender, message
        elif isinstance(message, m.Bye):
            self.outposts = {k: v for k, v in self.outposts.items() if v[0] != sender}

    def _join(self, sender: bytes, hello: m.Hello) -> None:
        """Let an executor take its place. If another one has it, Spark has begun a batch and put
        the partition on another machine."""
        place = (hello.vertex, hello.executor)
        self.members[sender] = hello
        if hello.code != _CODE:
            self.failures.append(m.Failed(hello.vertex, _other_version(hello.host), True))
            return
        if place in self.at:  # it waits for a welcome that it does not get
            self.moved = True
            if not self.held:
                moved = f"Spark has moved {hello.vertex!r} to another machine"
                self.failures.append(m.Failed(hello.vertex, moved, False))
            return
        self.at[place] = sender
        self._tell_time(sender, hello.at_s)
        if hello.vertex not in self.sources:
            self._let_begin(sender)
        self._let_sources_begin()

    def _let_begin(self, sender: bytes) -> None:
        """Tell an executor where to go on."""
        hello = self.members[sender]
        place = (hello.vertex, hello.executor)
        if self.welcome is not None:
            self.channel.send(sender, self.welcome(hello))
        if place in self.processors:
            self.channel.send(sender, self.processors[place])

    def _let_sources_begin(self) -> None:
        """Let sources begin once everything behind them is there. Tuples that came earlier would
        only wait for it."""
        if self.sources_began or not self.complete():
            return
        self.sources_began = True
        for (vertex, _), sender in self.at.items():
            if vertex in self.sources:
                self._let_begin(sender)
        waited, self.feedback = self.feedback, []
        for feedback in waited:
            self._inject(feedback)

    @property
    def _first(self) -> tuple[str, int]:
        first = self.layout.places[0]
        return first.vertex, first.executor

    def _tell_time(self, sender: bytes, asked_s: float) -> None:
        same = self.members[sender].boot == boot_id()
        self.channel.send(sender, m.Time(asked_s, time.monotonic(), same))

    def _inject(self, feedback: m.Feedback) -> None:
        """Pass feedback to the first source, which sends it on. Feedback that comes before that
        source has begun waits for it."""
        if self.sources_began:
            self.channel.send(self.at[self._first], m.Inject(feedback.row))
        else:
            self.feedback.append(feedback)


def _other_version(where: str) -> str:
    return (
        f"{where} has another version of sojourn than the driver, which has "
        f"that of {PACKAGE}; install the same on all machines"
    )


def _is_dead(pid: int) -> bool:
    """Whether a process of this machine has ended, even if its parent has not waited for it yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] in ("Z", "X")
