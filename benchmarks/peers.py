"""The engine's chain of three no-op operators beside PyFlink's, in one run on one machine.

    python benchmarks/peers.py [--json] [--quick]

PyFlink (apache-flink from PyPI, process mode) gets an environment of its own, `.venv-flink`, made
on first use. At 50 tuples/s it runs with bundles of one, its best for latency; flat out with
bundles of 1000, its best for throughput. Both sides carry 100-byte strings.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import engine
import machine

from sojourn.engine.spark.session import session

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv-flink"
FLINK = "apache-flink==2.3.0"

# Runs in PyFlink's own environment: argv is the mode (latency or throughput), how many tuples,
# and the file for the results.
JOB = r"""
import json, sys, time
from pyflink.common import Configuration, Types
from pyflink.datastream import StreamExecutionEnvironment

mode, count, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
config = Configuration()
config.set_string("python.execution-mode", "process")
config.set_string("python.fn-execution.bundle.size", "1" if mode == "latency" else "1000")
config.set_string("python.fn-execution.bundle.time", "1" if mode == "latency" else "1000")
config.set_string("python.operator-chaining.enabled", "false")
config.set_string("execution.buffer-timeout.interval", "0ms" if mode == "latency" else "100ms")
config.set_string("rest.bind-address", "127.0.0.1")
config.set_string("taskmanager.memory.process.size", "2g")
env = StreamExecutionEnvironment.get_execution_environment(config)
env.set_parallelism(1)
PAD = "x" * 100


def pace(i):
    if mode == "latency":
        time.sleep(0.02)  # a process of its own, so this paces the whole chain at 50/s
    return f"{time.time():.6f} {PAD}"


stream = env.from_collection(range(count), type_info=Types.INT())
stream = stream.map(pace, output_type=Types.STRING()).disable_chaining()
for _ in range(2):
    stream = stream.rebalance().map(lambda v: v, output_type=Types.STRING()).disable_chaining()
seen = []


def last(text):
    now = time.time()
    seen.append((float(text.split()[0]), now))
    if len(seen) >= (50 if mode == "latency" else 5000) or now - seen[0][1] > 1:
        with open(out, "a") as file:
            file.write("".join(f"{a:.6f} {b:.6f}\n" for a, b in seen))
        seen.clear()
    return None


stream = stream.rebalance().map(last, output_type=Types.STRING()).disable_chaining()
stream.filter(lambda v: False).print()
env.execute("chain")
"""


def flink(mode: str, count: int) -> list[tuple[float, float]]:
    """Start and end time of every tuple PyFlink carried through its three operators."""
    with tempfile.TemporaryDirectory() as directory:
        job, out = Path(directory, "job.py"), Path(directory, "times")
        job.write_text(JOB, encoding="utf-8")
        environ = {**os.environ, "PYTHONPATH": "", "_python_worker_execution_mode": "process"}
        python = str(ENVIRONMENT / "bin" / "python")
        done = subprocess.run(
            [python, str(job), mode, str(count), str(out)],
            env={**environ, "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            sys.exit(f"PyFlink failed:\n{done.stderr[-3000:]}")
        lines = out.read_text(encoding="utf-8").splitlines()
    return [(float(a), float(b)) for a, b in (line.split() for line in lines)]


def make_environment() -> None:
    """Install PyFlink once."""
    if not (ENVIRONMENT / ".done").exists():
        print(f"installing {FLINK} into {ENVIRONMENT.name} (once) …", file=sys.stderr, flush=True)
        venv.create(ENVIRONMENT, with_pip=True)
        pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "setuptools<81", FLINK], check=True)
        (ENVIRONMENT / ".done").touch()


def compare(quick: bool) -> dict[str, Any]:
    """Latency and throughput of both, one after the other."""
    seconds, count = (10, 100_000) if quick else (30, 300_000)
    spark = session(None, "local[8]", 8, "peers", 10)
    ours_latency = engine.latency_of_engine(spark, seconds)
    ours_rate = engine.flat_out(spark, count, 500)["tuples_per_s"]
    spark.stop()
    times = flink("latency", 50 * (seconds + 10))
    steady = [end - start for start, end in times[-50 * seconds :]]
    flat = flink("throughput", count)
    flat_seconds = flat[-1][1] - flat[len(flat) // 5][1]
    rate = (len(flat) - len(flat) // 5) / flat_seconds
    return {
        "latency": {"engine": ours_latency, "pyflink": machine.summary(steady)},
        "throughput": {"engine_per_s": ours_rate, "pyflink_per_s": rate},
        "latency_ratio": machine.summary(steady)["median_ms"] / ours_latency["median_ms"],
        "throughput_ratio": ours_rate / rate,
        "at": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    """Print the comparison; end with code 1 where PyFlink is ahead."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    options = parser.parse_args()
    make_environment()
    result = compare(options.quick)
    print(json.dumps(result, indent=2))
    if not options.json:
        print(
            f"median sojourn {result['latency_ratio']:.1f} times shorter than PyFlink's, "
            f"throughput {result['throughput_ratio']:.1f} times as high"
        )
    if result["latency_ratio"] < 1 or result["throughput_ratio"] < 1:
        sys.exit("PyFlink is ahead")


if __name__ == "__main__":
    main()
