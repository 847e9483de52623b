"""The hub, which is the driver's end of the channel: one thread that hears all executors, relays
feedback, keeps the trees and the last reports, and passes commands on. Used by `Running`."""

import logging
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sojourn.engine.driver.interrupts import deferred
from sojourn.engine.driver.merge import Change, merge
from sojourn.engine.driver.tracker import Tracker
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.channel import ChannelServer
from sojourn.engine.wire.layout import Layout, Place
from sojourn.ports import Samples

_log = logging.getLogger("sojourn")
_TURN_S = 0.01
_LOOK_S = 0.1


class Hub(threading.Thread):
    """All sockets and the tracker belong to this thread; others reach it by `send` and `wait`."""

    def __init__(self, host: str, layout: Layout) -> None:
        super().__init__(daemon=True, name="sojourn-hub")
        self.channel = ChannelServer(host)
        self.layout = layout
        self.tracker = Tracker()
        self.members: dict[bytes, m.Hello] = {}
        self.at: dict[tuple[str, int], bytes] = {}
        self.processors: dict[tuple[str, int], int] = {}
        self.feedback: dict[tuple[bytes, int], m.Inject] = {}
        self.reports: dict[bytes, m.Report] = {}
        self.sampled: dict[bytes, m.Report] = {}
        self.failures: list[m.Failed] = []
        self.changed = threading.Condition()
        self.requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.epoch = 0
        self.polls = 0
        self.ended = False
        self.broken: str | None = None

    def run(self) -> None:
        """Until `end`."""
        try:
            while not self.ended:
                while not self.requests.empty():
                    self.requests.get()()
                arrived = self.channel.receive(_TURN_S)
                if arrived:
                    with self.changed:
                        for sender, message in arrived:
                            self._handle(sender, message)
                        self.changed.notify_all()
        except Exception as error:  # noqa: BLE001  # told by the supervisor
            self.broken = f"the hub failed: {error!r}"
        finally:
            self.channel.close()

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
        frame = m.encode(message)  # here, so that who gave something odd is told
        self.requests.put(lambda: self.channel.send_frame(target, frame))

    def resize(self, place: Place, processors: int) -> None:
        """Give the executor at a place, now and should it start anew, so many processors."""
        self.processors[place.vertex, place.executor] = processors
        self.send(place, m.Resize(processors))

    def send_all(self, message: m.ToExecutor) -> None:
        """To every executor that has joined."""
        for target in list(self.members):
            self._send(target, message)

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether a condition came true in time. It is looked at whenever something was heard, and
        every now and then, as it may also depend on what is not heard here."""
        deadline = time.monotonic() + timeout_s
        with deferred() as interrupted, self.changed:
            while (left := deadline - time.monotonic()) > 0 and not interrupted():
                if self.changed.wait_for(condition, min(left, _LOOK_S)):
                    return True
            return condition()

    def poll(self, timeout_s: float) -> dict[bytes, m.Report]:
        """A fresh report of every executor that answers in time."""
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

    def samples(self, timeout_s: float) -> Samples:
        """What happened since the last call."""
        reports = self.poll(timeout_s)
        with self.changed:
            changes = [Change(now, self.sampled.get(who)) for who, now in reports.items()]
            self.sampled.update(reports)
            return Samples(
                time.time(), merge(changes), self.tracker.collect(), len(self.tracker.trees)
            )

    @property
    def is_broken(self) -> bool:
        """Whether an executor has failed, or the channel itself."""
        return bool(self.failures) or self.broken is not None

    def complete(self) -> bool:
        """Whether every executor of the present epoch has joined."""
        return len(self.at) == len(self.layout.places)

    def all_left(self, timeout_s: float) -> bool:
        """Whether all executors are gone in time: they said so, or were on this host and died."""

        def none_left() -> bool:
            for member, hello in list(self.members.items()):
                if hello.host == socket.gethostname() and not Path(f"/proc/{hello.pid}").exists():
                    del self.members[member]
            return not self.members

        return self.wait(none_left, timeout_s)

    def start_epoch(self, epoch: int) -> None:
        """A new start: nothing heard before counts any more."""
        with self.changed:
            self.epoch = epoch
            self.members.clear()
            self.at.clear()
            self.feedback.clear()
            self.failures.clear()
            self.reports.clear()
            self.sampled.clear()
            self.tracker.clear()

    def _handle(self, sender: bytes, message: m.ToDriver) -> None:
        if not sender.endswith(f"/{self.epoch}".encode()):
            if isinstance(message, m.Hello):  # of a start that has failed meanwhile
                self.channel.send(sender, m.Finish(None))
            return
        match message:
            case m.Hello():
                self._join(sender, message)
            case m.Bye():
                self.members.pop(sender, None)
                self.reports.pop(sender, None)
                self.sampled.pop(sender, None)
                self.feedback = {k: v for k, v in self.feedback.items() if k[0] != sender}
            case m.Failed():
                if self._is_current(sender):
                    self.failures.append(message)
            case m.Report():
                self.reports[sender] = message
            case m.Traces():
                self.tracker.note(message)
            case m.Text():
                _print(message.lines)
            case _:
                self._relay(sender, message)

    def _join(self, sender: bytes, hello: m.Hello) -> None:
        """An executor takes its place. One that had it before is on a machine to which Spark no
        longer sends the partition; all it knew is saved."""
        self.members[sender] = hello
        place = (hello.vertex, hello.executor)
        before = self.at.get(place)
        self.at[place] = sender
        if place in self.processors:
            self.channel.send(sender, m.Resize(self.processors[place]))
        if before is not None and before in self.members:
            self.channel.send(before, m.Finish(None))
        if sender == self._injector():
            for inject in self.feedback.values():
                self.channel.send(sender, inject)

    def _is_current(self, sender: bytes) -> bool:
        hello = self.members.get(sender)
        return hello is None or self.at.get((hello.vertex, hello.executor)) == sender

    def _injector(self) -> bytes | None:
        first = self.layout.places[0]
        return self.at.get((first.vertex, first.executor))

    def _relay(self, sender: bytes, message: m.ToDriver) -> None:
        """Feedback goes through here to the first source, and its acknowledgement back. What is
        not acknowledged is kept, should the source move to another machine meanwhile."""
        injector = self._injector()
        match message:
            case m.Feedback():
                inject = m.Inject(sender, message.number, message.batch, message.row, message.count)
                self.feedback[sender, message.number] = inject
                if injector is not None:
                    self.channel.send(injector, inject)
            case m.Acknowledge():
                self.feedback.pop((message.sender, message.number), None)
                self.channel.send(message.sender, m.Injected(message.number))
            case m.Settle():
                assert injector is not None  # no batch runs without it
                self.channel.send(injector, m.SettleFor(sender))
            case m.SettledFor():
                self.channel.send(message.sender, m.Settled())


def _print(lines: list[str]) -> None:
    """On standard output, whatever that can take."""
    text = "".join(f"{line}\n" for line in lines)
    try:
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError:
            sys.stdout.write(text.encode("ascii", "backslashreplace").decode())
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        _log.debug("standard output is closed; %d lines are not shown", len(lines))
