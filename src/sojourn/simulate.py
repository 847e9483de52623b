"""The composition root of simulations: the control loop over the simulated engine, once, several
times with other seeds, or over a grid of settings. What `sojourn simulate` calls."""

import math
import os
import statistics
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cloudpickle

from sojourn import configuration
from sojourn.control.controller import Controller, Record, shape_of
from sojourn.control.journal import Journal, read_journal
from sojourn.control.loop import ControlLoop
from sojourn.control.negotiator import Negotiator
from sojourn.control.summary import Summary, Tally
from sojourn.errors import InputError
from sojourn.ports import Samples
from sojourn.run import argument_layer, check_goal, check_room
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulator.draws import Distribution
from sojourn.simulator.engine import SimulatedEngine
from sojourn.simulator.machines import SimulatedPool
from sojourn.simulator.workload import OperatorLoad, Workload
from sojourn.topology import Topology

Settings = tuple[EngineSettings, ControlSettings, SimulatorSettings]
Progress = Callable[[float], None]  # told the share of the virtual time that has passed


@dataclass(frozen=True)
class Simulation:
    """Everything that one simulation follows from. The same gives the same, everywhere."""

    topology: Topology
    workload: Workload
    settings: Settings
    duration_s: float
    seed: int = 0
    machines: int | None = None
    advise: bool = False

    def run(
        self,
        *,
        journal: Path | None = None,
        on_tick: Callable[[Record], None] | None = None,
        progress: Progress = lambda _share: None,
    ) -> Summary:
        """Let it happen."""
        engine_settings, control, simulator = self.settings
        check_room(self.topology, control)
        shape = shape_of(self.topology)
        engine = SimulatedEngine(
            self.topology,
            self.workload,
            simulator,
            engine_settings,
            seed=self.seed,
            machines=self.machines,
            machine_processors=control.machine_processors,
        )
        pool = SimulatedPool(engine, control.max_machines)
        tally = Tally()
        listeners: list[Callable[[Record], None]] = [tally]
        written = None if journal is None else Journal(journal, shape)
        if written is not None:
            listeners.append(written)
        if on_tick is not None:
            listeners.append(on_tick)
        loop = ControlLoop(
            engine,
            Controller(shape, control),
            Negotiator(pool, pool.begin),
            listeners,
            self.advise,
        )
        try:
            while engine.now_s + control.interval_s <= self.duration_s and not engine.is_idle:
                engine.advance(engine.now_s + control.interval_s)
                loop.tick()
                progress(engine.now_s / self.duration_s)
        finally:
            if written is not None:
                written.close()
        return tally.summary(self.topology.name, engine.restarts)


def settings_for(config: Path | None, conf: Iterable[str], **targets: Any) -> Settings:
    """Settings from the file, the environment, `conf` and the arguments, each over the one
    before."""
    layers = [] if config is None else [configuration.read_file(config)]
    layers.append(configuration.from_environment(os.environ))
    layers.append(configuration.from_options(conf))
    layers.append(argument_layer(targets))
    found = configuration.settings_from(layers)
    check_goal(found[1])
    return found


def workload_of(path: Path) -> Workload:
    """What a journal of a run says of its operators: service times by their mean and variability,
    and gains. Arrivals stay those of the topology."""
    shape, records = read_journal(path)
    sums: dict[str, _Sums] = {}
    for record in records:
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
    """Of an operator over all intervals."""

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
    """Several values of the same: their mean, and half of its interval of 95 % confidence."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """By Student's t."""
        mean = statistics.fmean(values)
        if len(values) < 2:
            return cls(mean, math.nan)
        return cls(mean, _student(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5)


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's t, within 1 % (Cornish and Fisher's expansion; the first ones
    from tables)."""
    table = (12.706, 4.303, 3.182, 2.776, 2.571)
    if freedom <= len(table):
        return table[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def in_parallel(
    jobs: dict[Any, Simulation], progress: Progress = lambda _share: None
) -> Iterator[tuple[Any, Summary]]:
    """Run many over all cores; yields each as it is done."""
    workers = min(len(jobs), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        futures = {
            pool.submit(_run_pickled, cloudpickle.dumps(job)): key for key, job in jobs.items()
        }
        try:
            for number, future in enumerate(as_completed(futures), 1):
                yield futures[future], future.result()
                progress(number / len(jobs))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _run_pickled(job: bytes) -> Summary:
    simulation: Simulation = cloudpickle.loads(job)
    return simulation.run()


def replicated(
    simulation: Simulation, replications: int, progress: Progress = lambda _share: None
) -> dict[int, Summary]:
    """The same with other seeds, from its own on."""
    jobs = {
        seed: replace(simulation, seed=seed)
        for seed in range(simulation.seed, simulation.seed + replications)
    }
    return dict(sorted(in_parallel(jobs, progress)))
