"""Many tuples at once in one worker, for operators whose `process` is `async`: while one waits for
a service elsewhere, others go on. The user's code runs in an event loop in a thread of its own; the
worker's loop hands it tuples and broadcasts, and waits for it only at a commit's cut and at the
end."""

import asyncio
import contextlib
import inspect
import os
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sojourn.engine.wire import messages as m
from sojourn.engine.worker import values
from sojourn.engine.worker.router import Router

if TYPE_CHECKING:
    from sojourn.engine.worker.code import OperatorCode


class EventLoop:
    """An event loop that runs in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def result(self, found: Any) -> Any:
        """What an operator's method returned, awaited if need be."""
        if inspect.isasyncgen(found) or inspect.isawaitable(found):
            return asyncio.run_coroutine_threadsafe(awaited(found), self.loop).result()
        return found

    def call(self, function: Callable[[], Any]) -> Any:
        """What a function returns that is called between the steps of what runs in it, and awaited
        there if need be."""

        async def called() -> Any:
            found = function()
            return await awaited(found) if inspect.isawaitable(found) else found

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result()

    def close(self) -> None:
        """End the event loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


async def awaited(found: Any) -> Any:
    """What an `async def` returns, or all that it yields."""
    if inspect.isasyncgen(found):
        return [value async for value in found]
    return await found


class Waiting:
    """The tuples that an async operator has in hand. Each is answered when it is done, in any
    order; the answer says which of those in hand it is."""

    def __init__(
        self,
        code: "OperatorCode",
        events: EventLoop,
        router: Router,
        keep_going: bool,
        send: Callable[[m.FromWorker], None],
    ) -> None:
        self.code, self.events, self.router = code, events, router
        self.keep_going, self.send = keep_going, send
        self.in_hand: list[m.Work] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.changed = threading.Condition()
        self.given = self.done = 0

    def give(self, work: m.Work) -> None:
        """Begin to process work."""
        self.given += 1
        self.events.loop.call_soon_threadsafe(self._begin, work)

    def finish(self) -> None:
        """Wait until all that was given is answered."""
        with self.changed:
            self.changed.wait_for(lambda: self.done == self.given)

    def _begin(self, work: m.Work) -> None:
        self.in_hand.append(work)
        task = self.events.loop.create_task(self._process(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _process(self, work: m.Work) -> None:
        (payload,) = work.payloads
        trace = work.traces[0] if work.traces else None
        failed: list[m.DeadLetter] = []
        fatal: m.Fatal | None = None
        made, began = 0, time.perf_counter()
        try:
            value = values.loads(payload)
            returned = await awaited(self.code.function(value))
            results = self.code.read(self.code.name, returned, value)
            made = self.router.send(results, trace.root if trace else None)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001  # it meets on_error
            shown, told = values.shown(payload), traceback.format_exc()
            if self.keep_going:
                failed.append(m.DeadLetter(shown, told))
            else:
                fatal = m.Fatal(f"processing {shown} raised\n{told}")
        except BaseException:  # noqa: BLE001  # it ends the process, as in any other worker
            os._exit(1)
        took = time.perf_counter() - began
        acks = [m.Ack(trace.root, trace.id ^ made, time.monotonic())] if trace else []
        place = next(i for i, one in enumerate(self.in_hand) if one is work)
        del self.in_hand[place]
        done = m.Done(
            together=self.router.together(),
            groups=self.router.collect(),
            acks=acks,
            served=1,
            elapsed_s=took,
            timed=1,
            service_s=took,
            service_s2=took * took,
            failed=failed,
            text=[],
            place=place,
        )
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send(fatal or done)  # if the executor is gone, the worker's loop finds out
        with self.changed:
            self.done += 1
            self.changed.notify_all()
