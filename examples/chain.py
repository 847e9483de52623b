"""Three operators in a row, each of which computes or sleeps for a given time per tuple (DRS, ICDCS
2015, fig. 8): to see what a tuple costs beyond its operators, or how many processors a load takes.

    sojourn run examples/chain.py --max-sojourn 200ms
    python examples/chain.py [--cpu 5 5 5] [--sleep 0 20 0] [--rate 20] [--seconds 10 | --count 60]

    numbers ─→ first ─→ second ─→ third ─→ (nothing)

Times are in milliseconds per tuple, one for each operator; an operator with both first computes.
"""

import argparse
import time
from dataclasses import dataclass
from functools import partial

import sojourn as sj

NAMES = ("first", "second", "third")


@dataclass(frozen=True)
class Settings:
    """Tuples per second, milliseconds for each of the three operators, and how many tuples there
    are if they end."""

    rate: float = 20.0
    cpu: tuple[float, ...] = (0.0, 0.0, 0.0)
    sleep: tuple[float, ...] = (20.0, 40.0, 10.0)
    seed: int = 0
    count: int | None = None


def work(cpu_ms: float, sleep_ms: float, value: int) -> int:
    """The value, after so long."""
    end = time.thread_time() + cpu_ms / 1e3
    while time.thread_time() < end:
        pass
    if sleep_ms:
        time.sleep(sleep_ms / 1e3)
    return value


DEFAULTS = Settings()


def topology(settings: Settings = DEFAULTS) -> sj.Topology:
    """numbers → first → second → third."""
    for name, times in (("cpu", settings.cpu), ("sleep", settings.sleep)):
        if len(times) != len(NAMES) or not all(0 <= ms < float("inf") for ms in times):
            raise sj.InputError(
                f"{name} must be {len(NAMES)} times in milliseconds, none below zero; got {times}"
            )
    t = sj.Topology("chain")
    source = sj.sources.paced(
        lambda number: number, rate=settings.rate, seed=settings.seed, count=settings.count
    )
    value = t.source("numbers", source)
    for name, cpu_ms, sleep_ms in zip(NAMES, settings.cpu, settings.sleep, strict=True):
        value = t.map(name, partial(work, cpu_ms, sleep_ms), value)
    t.sink("nothing", sj.sinks.call(lambda _: None), value)
    return t


def main() -> None:
    """Run for a while, or for so many tuples, and print what was measured."""
    parser = argparse.ArgumentParser(description="three operators that compute or sleep")
    parser.add_argument("--cpu", type=float, nargs=3, default=DEFAULTS.cpu, metavar="MS")
    parser.add_argument("--sleep", type=float, nargs=3, metavar="MS")
    parser.add_argument("--rate", type=float, default=DEFAULTS.rate)
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--seconds", type=float, default=10.0)
    ends.add_argument("--count", type=int)
    options = parser.parse_args()
    sleep = options.sleep
    if sleep is None:
        sleep = (0.0, 0.0, 0.0) if any(options.cpu) else DEFAULTS.sleep
    settings = Settings(options.rate, tuple(options.cpu), tuple(sleep), count=options.count)
    try:
        if not 0 < options.seconds < float("inf"):
            raise sj.InputError(f"seconds must be above 0; got {options.seconds}")
        if options.count is not None and options.count < 1:
            raise sj.InputError(f"count must be at least 1; got {options.count}")
        made = topology(settings)
    except sj.InputError as error:
        parser.error(str(error))
    try:
        with sj.start(made) as running:
            running.await_idle(options.seconds if options.count is None else None)
            measured = running.samples()
    except sj.TopologyFailed as error:
        parser.exit(1, f"{error}\n")
    asked = [cpu_ms + sleep_ms for cpu_ms, sleep_ms in zip(options.cpu, sleep, strict=True)]
    for name, asked_ms in zip(NAMES, asked, strict=True):
        sample = measured.vertices[name]
        service = "nothing yet" if sample.service_s is None else f"{sample.service_s * 1e3:.2f} ms"
        print(f"{name}: {sample.served} tuples, {service} each; {asked_ms:g} ms asked for")
    if measured.sojourn is not None:
        mean_ms = measured.sojourn.mean_s * 1e3
        print(f"sojourn: {mean_ms:.2f} ms on average; {sum(asked):g} ms asked for")


if __name__ == "__main__":
    main()
