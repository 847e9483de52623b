"""The composition root of simulations: the control loop over the simulated engine, once, several
times with other seeds, or over a grid of settings. Called by `sojourn simulate`."""

import math
import os
import signal
import statistics
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from sojourn import configuration
from sojourn.asked import argument_layer, check_goal, check_room
from sojourn.confidence import half_width
from sojourn.control.journal import read_journal
from sojourn.control.loop import Listener
from sojourn.control.negotiator import KindsNegotiator, Negotiator
from sojourn.control.summary import Summary
from sojourn.errors import InputError, TopologyFailed
from sojourn.ports import Samples
from sojourn.settings import PREFIX, ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulator.draws import Distribution
from sojourn.simulator.engine import SimulatedEngine
from sojourn.simulator.machines import SimulatedPool, pools_of
from sojourn.simulator.workload import OperatorLoad, Workload
from sojourn.sinks import Sink
from sojourn.sources import Source
from sojourn.topology import OperatorSpec, SinkSpec, SourceSpec, Topology
from sojourn.wiring import control_loop

Settings = tuple[EngineSettings, ControlSettings, SimulatorSettings]
Progress = Callable[[float], None]  # called with the share of the virtual time that has passed


@dataclass(frozen=True)
class Simulation:
    """Everything that one simulation depends on. Equal simulations give equal results, on every
    machine. Nothing is changed before `act_after_s`."""

    topology: Topology
    workload: Workload
    settings: Settings
    duration_s: float
    seed: int = 0
    machines: int | None = None
    advise: bool = False
    act_after_s: float = 0.0

    def check(self) -> None:
        """Refuse what cannot be simulated."""
        control = self.settings[1]
        check_room(self.topology, control)
        if self.machines is None and control.policy == "provision" and control.provision_kinds:
            raise InputError(
                f"{PREFIX}provision.kinds needs machines to begin with; give --machines"
            )
        if self.seed < 0:
            raise InputError(f"the seed must be at least 0; got {self.seed}")
        if self.duration_s < control.interval_s:
            raise InputError(
                f"the duration must be at least one interval, {control.interval_s:g} s "
                f"({PREFIX}measure.interval); got {self.duration_s:g} s"
            )

    def run(
        self,
        *,
        journal: Path | None = None,
        listeners: Iterable[Listener] = (),
        progress: Progress = lambda _share: None,
    ) -> Summary:
        """Run the simulation. `listeners` are told of every tick."""
        engine_settings, control, simulator = self.settings
        self.check()
        kinds = (control.provision_kinds or ()) if control.policy == "provision" else ()
        engine = SimulatedEngine(
            self.topology,
            self.workload,
            simulator,
            engine_settings,
            seed=self.seed,
            machines=self.machines,
            machine_processors=kinds[0].slots if kinds else control.machine_processors,
            machine_kind=kinds[0].name if kinds else "",
            max_sojourn_s=control.max_sojourn_s,
        )
        pool = SimulatedPool(engine, control.max_machines)
        by_kind = {
            name: Negotiator(one, one.begin) for name, one in pools_of(engine, kinds).items()
        }
        loop = control_loop(
            engine,
            self.topology,
            control,
            KindsNegotiator(by_kind) if kinds else pool,
            listeners,
            advise=self.advise,
            act_after_s=self.act_after_s,
            journal=journal,
            begin=pool.begin,
            clock=lambda: engine.now_s,
        )
        try:
            while engine.now_s + control.interval_s <= self.duration_s and not engine.is_idle:
                due_s = engine.now_s + control.interval_s
                while engine.advance(due_s):
                    loop.tick(urgent=True)
                loop.tick()
                progress(engine.now_s / self.duration_s)
        finally:
            loop.close()
        return loop.summary(engine.restarts)


def settings_for(config: Path | None, conf: Iterable[str], **targets: Any) -> Settings:
    """Settings as `layered` has them, which must have a target."""
    found = layered(config, conf, **targets)
    check_goal(found[1])
    return found


def layered(config: Path | None, conf: Iterable[str], **targets: Any) -> Settings:
    """Settings from the file, the environment, `conf` and the arguments, each overriding the one
    before."""
    layers = [] if config is None else [configuration.read_file(config)]
    layers.append(configuration.from_environment(os.environ))
    layers.append(configuration.from_options(conf))
    layers.append(argument_layer(targets))
    return configuration.settings_from(layers)


def workload_of(path: Path) -> Workload:
    """What the journal of a run says about its operators: the mean and variability of service
    times, and gains. Arrivals stay those of the topology."""
    shape, records = read_journal(path)
    sums: dict[str, _Sums] = {}
    for record in records:
        if not record.pressures:  # what an urgent tick sees, the next one sees again
            _add(sums, record.samples)
    measured = {
        name: OperatorLoad(
            found.service,
            {to: count / found.served for to, count in found.emitted.items()},
        )
        for name, found in sums.items()
        if shape.known.get(name) != "source" and found.served
    }
    if not measured:
        raise InputError(f"{path}: has no measured service times; let the run go on for longer")
    return Workload(measured)


@dataclass
class _Sums:
    """The sums of an operator over all intervals."""

    served: int
    service_s: float
    service_s2: float
    emitted: dict[str, int]

    @property
    def service(self) -> Distribution:
        mean = self.service_s / self.served
        scv = max(0.0, self.service_s2 / self.served / mean**2 - 1) if mean else 0.0
        return Distribution.of_moments(mean, scv)


def _add(sums: dict[str, _Sums], samples: Samples) -> None:
    for name, sample in samples.vertices.items():
        if sample.service_s is None or not sample.served:
            continue
        found = sums.setdefault(name, _Sums(0, 0.0, 0.0, {}))
        found.served += sample.served
        found.service_s += sample.served * sample.service_s
        squares = sample.service_s**2 * (1 + (sample.service_scv or 0.0))
        found.service_s2 += sample.served * squares
        for to, count in sample.emitted.items():
            found.emitted[to] = found.emitted.get(to, 0) + count


@dataclass(frozen=True)
class Spread:
    """The mean of several values, and half the width of its 95 % confidence interval."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """By Student's t."""
        mean = statistics.fmean(values)
        return cls(mean, half_width(values) if len(values) > 1 else math.nan)


def in_parallel(
    jobs: dict[Any, Simulation], progress: Progress = lambda _share: None
) -> Iterator[tuple[Any, Summary]]:
    """Run many simulations on all cores. Yields each as it is done."""
    workers = min(len(jobs), os.cpu_count() or 1)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _until_interrupted)
    try:
        futures = {pool.submit(_run, job): key for key, job in jobs.items()}
        for number, future in enumerate(as_completed(futures), 1):
            yield futures[future], future.result()
            progress(number / len(jobs))
    except BrokenProcessPool:
        raise TopologyFailed(
            "a simulation process died; it was killed, or ran out of memory; the file of --out, if "
            "there is one, keeps what is done"
        ) from None
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown()


def _until_interrupted() -> None:
    """Have Ctrl-C, which reaches the whole group, end a worker silently."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(job: Simulation) -> Summary:
    return job.run()


def outlined(topology: Topology) -> Topology:
    """The same topology without the user's code. A simulation never calls it, so it need not go to
    other processes."""
    bare = Topology(topology.name)
    bare.edges = list(topology.edges)
    for name, spec in topology.vertices.items():
        if isinstance(spec, OperatorSpec):
            key = None if spec.key is None else _no_code
            bare.vertices[name] = replace(spec, code=_no_code, key=key)
        elif isinstance(spec, SourceSpec):
            source = Source()
            source.pace, source.shed_after = spec.source.pace, spec.source.shed_after
            source.count = spec.source.count
            bare.vertices[name] = SourceSpec(name, source)
        else:
            bare.vertices[name] = SinkSpec(name, Sink())
    return bare


def _no_code(value: Any) -> Any:
    raise AssertionError(f"a simulation calls no code; got {value!r}")


def replicated(
    simulation: Simulation, replications: int, progress: Progress = lambda _share: None
) -> dict[int, Summary]:
    """The same simulation with other seeds, counted up from its own."""
    jobs = {
        seed: replace(simulation, seed=seed)
        for seed in range(simulation.seed, simulation.seed + replications)
    }
    return dict(sorted(in_parallel(jobs, progress)))
