"""Latency and CPU against load, before and after, as `python benchmarks/curve.py`.

    python benchmarks/curve.py [--quick] [--rates 50,300,…,flat] [--before COMMIT] [--plot FILE]
                               [--json FILE] [--peers FILE]

The chain of three no-op operators with tuples of 100 bytes, at each rate in turn: sojourn of the
tracked tuples, and CPU per tuple by kind of process. An older commit is checked out beside it and
measured in the same run, in turns; whatever is not the engine's is the same for both. A second in
which more than 5 % of the CPU was stolen does not count, and a point runs on until enough do.
`--peers` puts what `benchmarks/peers.py --json` has found into the plot.

Rule, of the medians over the repeats: the 99th percentile at 1000 and 3000 tuples/s is at most
twice that at 50, at 10 000 at most four times; at 50 the median and the 99th percentile are at most
1.1 times those before, or 1 ms more; CPU per tuple at 1000 is at most half of that before; flat out
at least twice the tuples/s of before, at no more than 25 µs of CPU per tuple.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RATES = ("50", "300", "1000", "3000", "10000", "30000", "flat")
BEFORE = "5951ade"
STOLEN = 0.05
WARM_S = 6.0
PAD = "x" * 100
KINDS = (
    (b"SparkSubmit", "jvm"),
    (b"engine.executor", "executors"),
    (b"daemon", "spark python"),
)


def same(value: Any) -> tuple[Any]:
    """A no-op operator."""
    return (value,)


def nothing(value: Any) -> None:
    """A no-op operator that ends the chain."""


def measure(rates: list[str], seconds: float) -> None:
    """One line of JSON for each rate, with whatever Sojourn is on the path. Nothing here may be
    the engine's own but what every version of it has."""
    import sojourn as sj

    for rate in rates:
        t = sj.Topology("chain")
        if rate == "flat":
            source = sj.sources.iterable(lambda: (PAD for _ in itertools.count()))
        else:
            source = sj.sources.paced(lambda _: PAD, rate=float(rate))
        a = t.operator("a", same, t.source("source", source))
        t.operator("c", nothing, t.operator("b", same, a))
        with sj.start(t) as running:
            print(json.dumps({"rate": rate, **point(running, seconds)}), flush=True)


def point(running: Any, seconds: float) -> dict[str, Any]:
    """What there is to know of one rate."""
    engine = getattr(running, "engine", running)  # of older versions
    hub = engine.hub if hasattr(engine, "hub") else engine.driver
    hub.wait(lambda: bool(hub.tracker.completed), 60)
    time.sleep(WARM_S)
    taken(hub)
    running.samples()
    cpu, began, kept, stolen = cpu_by_kind(), time.monotonic(), 0, 0
    sojourns: list[float] = []
    while kept < seconds and kept + stolen < 10 * seconds:
        before = ticks()
        time.sleep(1.0)
        found, now = taken(hub), ticks()
        if (now[7] - before[7]) / max(1, sum(now) - sum(before)) <= STOLEN:
            kept += 1
            sojourns += found
        else:
            stolen += 1
    used = {kind: s - cpu.get(kind, 0.0) for kind, s in cpu_by_kind().items()}
    elapsed = time.monotonic() - began
    tuples = running.samples().vertices["c"].served
    ranked = sorted(sojourns)
    return {
        "per_s": tuples / elapsed,
        "cpu_us": {kind: s / max(tuples, 1) * 1e6 for kind, s in used.items()},
        "total_cpu_us": sum(used.values()) / max(tuples, 1) * 1e6,
        "p50_ms": statistics.median(ranked) * 1e3,
        "p99_ms": ranked[int(0.99 * (len(ranked) - 1))] * 1e3,
        "tracked": len(ranked),
        "clean_seconds": kept,
        "stolen_seconds": stolen,
    }


def taken(hub: Any) -> list[float]:
    """The sojourns completed since the last call."""
    with hub.changed:
        found = list(hub.tracker.completed)
        hub.tracker.completed = []
    return found


def ticks() -> list[int]:
    """The CPU's, by what they went into; the eighth are stolen."""
    with open("/proc/stat", encoding="ascii") as file:
        return [int(word) for word in file.readline().split()[1:9]]


def cpu_by_kind() -> dict[str, float]:
    """CPU seconds of this process and of all others of its topology."""
    found = {"driver": _cpu_s(os.getpid()), **{kind: 0.0 for _, kind in KINDS}}
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it has just ended
            command = Path(entry.path, "cmdline").read_bytes()
            for word, kind in KINDS:
                if word in command:
                    found[kind] += _cpu_s(int(entry.name))
                    break
    return found


def _cpu_s(pid: int) -> float:
    """With that of threads that have ended, as Java's compilers do when they have nothing to do."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def older(commit: str) -> Iterator[Path]:
    """The source tree of an older commit."""
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(ROOT), "archive", commit, "src"]
        with subprocess.Popen(git, stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
        if archive.returncode:
            sys.exit(f"curve: no commit {commit} here; name another with --before")
        yield Path(folder, "src")


def measured(tree: Path, rates: list[str], seconds: float) -> list[dict[str, Any]]:
    """All rates with the Sojourn of a tree, in a process of its own."""
    command = [sys.executable, __file__, "--measure", ",".join(rates), str(seconds)]
    made = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in made.stdout.splitlines() if line.startswith("{")]


def medians(runs: list[list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """By rate, the median of each figure over the repeats, and least and most of the latencies."""
    found: dict[str, dict[str, Any]] = {}
    for rows in zip(*runs, strict=True):
        row: dict[str, Any] = {"rate": rows[0]["rate"]}
        for name in ("per_s", "total_cpu_us", "p50_ms", "p99_ms", "clean_seconds"):
            row[name] = statistics.median(r[name] for r in rows)
        row["p99_range_ms"] = [min(r["p99_ms"] for r in rows), max(r["p99_ms"] for r in rows)]
        row["cpu_us"] = {
            kind: statistics.median(r["cpu_us"][kind] for r in rows) for kind in rows[0]["cpu_us"]
        }
        found[row["rate"]] = row
    return found


def missed(after: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """What the rule does not allow; only what was measured is looked at."""
    wrong = []

    def most(what: str, value: float, bound: float) -> None:
        if value > bound:
            wrong.append(f"{what}: {value:.1f}, at most {bound:.1f}")

    if "50" in after:
        for rate, times in (("1000", 2), ("3000", 2), ("10000", 4)):
            if rate in after:
                most(f"p99 at {rate}/s", after[rate]["p99_ms"], times * after["50"]["p99_ms"])
    if "50" in after and "50" in before:
        for name in ("p50_ms", "p99_ms"):
            was = before["50"][name]
            most(f"{name} at 50/s", after["50"][name], max(1.1 * was, was + 1))
    if "1000" in after and "1000" in before:
        was = before["1000"]["total_cpu_us"]
        most("CPU per tuple at 1000/s", after["1000"]["total_cpu_us"], was / 2)
    if "flat" in after:
        most("CPU per tuple flat out", after["flat"]["total_cpu_us"], 25.0)
        if "flat" in before:
            least = 2 * before["flat"]["per_s"]
            if after["flat"]["per_s"] < least:
                wrong.append(f"flat out {after['flat']['per_s']:.0f}/s, at least {least:.0f}")
    return wrong


def table(name: str, rows: dict[str, Any]) -> None:
    """For people."""
    print(f"\n{name}: tuples/s, p50 and p99 in ms, CPU per tuple in µs", file=sys.stderr)
    for row in rows.values():
        kinds = ", ".join(f"{kind} {us:.0f}" for kind, us in row["cpu_us"].items())
        told = f"{row['p50_ms']:8.1f} {row['p99_ms']:8.1f} {row['total_cpu_us']:8.0f}  ({kinds})"
        print(f"{row['rate']:>6} {row['per_s']:8.0f} {told}", file=sys.stderr, flush=True)


def plot(path: Path, curves: dict[str, dict[str, Any]]) -> None:
    """Median and 99th percentile against load, both logarithmic."""
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "curve", "font.size": 10})
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    for (name, rows), colour in zip(
        curves.items(), ("#0b7285", "#868e96", "#e8590c", "#5f3dc4"), strict=False
    ):
        points = [row for row in rows.values() if row["rate"] != "flat"]
        loads = [float(row["rate"]) for row in points]
        p50, p99 = ([row[key] for row in points] for key in ("p50_ms", "p99_ms"))
        axes.plot(loads, p50, "-o", color=colour, markersize=4, label=f"{name}, median")
        axes.plot(loads, p99, "--", color=colour, linewidth=1, label=f"{name}, 99th percentile")
        axes.fill_between(loads, p50, p99, color=colour, alpha=0.08)
    axes.set(xscale="log", yscale="log", xlabel="tuples per second", ylabel="sojourn (ms)")
    axes.set_title("Three operators in processes of their own, two cores")
    axes.grid(True, which="major", alpha=0.25)
    axes.legend(fontsize=8, ncols=2, frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Both trees in turns; ends with code 1 where the rule is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--rates", default=",".join(RATES))
    parser.add_argument("--before", default=BEFORE, help="a commit; '' for none")
    parser.add_argument("--quick", action="store_true", help="one repeat of 8 s instead of 3 of 20")
    parser.add_argument("--plot", type=Path, help="where to draw the curves: .svg or .png")
    parser.add_argument("--json", type=Path, help="where to put the figures")
    parser.add_argument("--peers", type=Path, help="what peers.py has put into a file")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0].split(","), float(options.measure[1]))
        return
    rates = options.rates.split(",")
    repeats, seconds = (1, 8.0) if options.quick else (3, 20.0)
    runs: dict[str, list[list[dict[str, Any]]]] = {}
    with older(options.before) if options.before else contextlib.nullcontext() as old:
        trees = {"before": old, "now": ROOT / "src"} if old else {"now": ROOT / "src"}
        for repeat, (name, tree) in itertools.product(range(repeats), trees.items()):
            print(f"{name}, {repeat + 1} of {repeats} …", file=sys.stderr, flush=True)
            runs.setdefault(name, []).append(measured(tree, rates, seconds))
    found = {name: medians(rows) for name, rows in runs.items()}
    for name, rows in found.items():
        table(name, rows)
    wrong = missed(found["now"], found.get("before", {}))
    if options.json:
        made = {"figures": found, "runs": runs, "missed": wrong}
        options.json.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        curves = {"Sojourn": found["now"]}
        if options.peers:
            curves |= json.loads(options.peers.read_text(encoding="utf-8"))["curves"]
        elif "before" in found:
            curves["Sojourn before"] = found["before"]
        plot(options.plot, curves)
    if wrong:
        sys.exit("missed: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
