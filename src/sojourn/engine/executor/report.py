"""What an executor tells when it is polled."""

import time
from collections import Counter
from typing import TYPE_CHECKING

from sojourn.engine.wire import messages as m

if TYPE_CHECKING:
    from sojourn.engine.executor.executor import ElasticExecutor
    from sojourn.engine.executor.workers import Worker


def report(executor: "ElasticExecutor", number: int) -> m.Report:
    """All sums so far, and how things stand now."""
    now, meter, workers = time.monotonic(), executor.meter, executor.workers
    processors = executor.processors
    meter.employs(processors, now)
    chain = executor.spec.chain
    held = bool(executor.credit.waiting)
    return m.Report(
        vertex=executor.spec.place.vertex,
        executor=executor.spec.place.executor,
        processors=processors,
        wanted=executor.wanted,
        queue=workers.waiting + workers.given,
        arrivals=meter.arrivals,
        gaps=meter.gaps,
        gap_s=meter.gap_s,
        gap_s2=meter.gap_s2,
        served=meter.served,
        timed=meter.timed,
        service_s=meter.service_s,
        service_s2=meter.service_s2,
        processor_s=meter.processor_s,
        emitted=dict(meter.emitted),
        dropped=meter.dropped,
        shed=meter.shed,
        lag_s=meter.behind_s(held, now),
        started_s=meter.started_s,
        at_s=now,
        received=executor.receiver.received,
        sent=sum(executor.emitter.sent.values()),
        idle=executor.receiver.open and workers.idle and executor.emitter.idle,
        exhausted=executor.exhausted,
        number=number,
        timers=sum(worker.timers for worker in workers.all),
        shards=workers.busiest,
        together={edge: dict(others) for edge, others in meter.together.items()},
        away=Counter(worker.machine for worker in workers.all if worker.machine),
        bytes_in=meter.bytes_in,
        bytes_out=executor.emitter.bytes_ever,
        owns=len(workers.own_shards) if executor.spec.keyed else -1,
        state=sum(size for _, size in executor.commits.files),
        moves=workers.moved.count,
        moved=workers.moved.bytes,
        sync_s=workers.moved.sync_s,
        moving_s=workers.moved.moving_s,
        machine=executor.machine,
        backlog=_backlog(workers.all),
        stages=dict(zip(chain, meter.stages or [(0, 0.0, 0.0)] * len(chain), strict=True)),
    )


def _backlog(readers: "list[Worker]") -> dict[str, int] | None:
    """What waits in the splits of a source, as far as its readers can tell."""
    told = [reader.backlog for reader in readers if reader.backlog is not None]
    return {split: count for one in told for split, count in one.items()} if told else None
