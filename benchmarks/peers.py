"""The chain of three no-op operators beside other engines, over the whole curve, in one run on one
machine.

    python benchmarks/peers.py [--quick] [--rates 50,300,…] [--json FILE] [--plot FILE]

Each rate in turn on every engine: ours, PyFlink 2.3 (process mode), bytewax (one process, so that
nothing goes from one process to another: a floor rather than a peer), and plain PySpark micro-
batches. Tuples of 100 bytes are due at random moments; sojourn is from when a tuple was due to when
the last operator has it. PyFlink and bytewax read them from a socket, to which another process
writes each when it is due. PyFlink runs with several sizes of bundles, and its best 99th percentile
counts at each rate; flat out its highest rate does. Seconds with more than 5 % of the CPU stolen do
not count. The others get environments of their own, `.venv-flink` and `.venv-bytewax`, made on
first use.

Rule: at every rate PyFlink's median and 99th percentile are at least three times ours; flat out we
carry at least three times as many tuples/s. The ratio to bytewax is told.
"""

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import curve

ROOT = Path(__file__).parents[1]
PEERS = {"flink": "apache-flink==2.3.0", "bytewax": "bytewax==0.21.1"}
BUNDLES = ((1, 1), (100, 2), (1000, 5), (1000, 20))  # of PyFlink: most tuples, most milliseconds
WARM_S = 15.0

# Both run in environments of their own. They read lines "due pad" from a port, and append to a file
# when each was due and when the last operator had it.
LAST = r"""
import time

seen, wrote = [], [time.time()]


def last(text):
    now = time.time()
    seen.append(f"{text.split(' ', 1)[0]} {now:.6f}\n")
    if now - wrote[0] > 0.5:
        with open(out, "a") as file:
            file.write("".join(seen))
        seen.clear()
        wrote[0] = now
"""
FLINK = (
    r"""
import sys
from pyflink.common import Configuration, Types
from pyflink.datastream import DataStream, StreamExecutionEnvironment

port, out, size, millis = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
config = Configuration()
config.set_string("python.execution-mode", "process")
config.set_string("python.fn-execution.bundle.size", size)
config.set_string("python.fn-execution.bundle.time", millis)
config.set_string("python.operator-chaining.enabled", "false")
config.set_string("execution.buffer-timeout.interval", "0ms" if int(millis) < 5 else "2ms")
config.set_string("rest.bind-address", "127.0.0.1")
config.set_string("taskmanager.memory.process.size", "2g")
env = StreamExecutionEnvironment.get_execution_environment(config)
env.set_parallelism(1)
"""
    + LAST
    + r"""

def ending(text):
    last(text)
    return None


lines = env._j_stream_execution_environment.socketTextStream("127.0.0.1", port, "\n", 0)
stream = DataStream(lines)
for _ in range(2):
    stream = stream.rebalance().map(lambda v: v, output_type=Types.STRING()).disable_chaining()
stream = stream.rebalance().map(ending, output_type=Types.STRING()).disable_chaining()
stream.filter(lambda v: False).print()
env.execute("chain")
"""
)
BYTEWAX = (
    r"""
import socket, sys
import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

port, out = int(sys.argv[1]), sys.argv[2]
"""
    + LAST
    + r"""

class Lines(StatelessSourcePartition):
    def __init__(self):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setblocking(False)
        self.rest = b""

    def next_batch(self):
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return []
        if not data:
            raise StopIteration
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [line.decode() for line in lines]


class Socket(DynamicSource):
    def build(self, step_id, worker_index, worker_count):
        return Lines()


class End(StatelessSinkPartition):
    def write_batch(self, items):
        for item in items:
            last(item)


class Ends(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return End()


flow = Dataflow("chain")
stream = op.input("in", flow, Socket())
for name in "abc":
    stream = op.map(name, stream, lambda v: v)
op.output("out", stream, Ends())
run_main(flow)
"""
)


def python_of(peer: str) -> str:
    """An environment with a peer, installed once."""
    folder = ROOT / f".venv-{peer}"
    done = folder / ".done"  # says what is there
    if not done.exists() or done.read_text(encoding="utf-8") != PEERS[peer]:
        print(f"installing {PEERS[peer]} into {folder.name} (once) …", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "setuptools<81", *PEERS[peer].split()], check=True)
        done.write_text(PEERS[peer], encoding="utf-8")
    return str(folder / "bin" / "python")


class Lines(threading.Thread):
    """Writes lines to whoever connects first, each when it is due or, flat out, at once."""

    def __init__(self, rate: str, seconds: float) -> None:
        super().__init__(daemon=True)
        self.rate, self.seconds = rate, seconds
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]

    def run(self) -> None:
        link, _ = self.server.accept()
        draw, due = random.Random(1), time.time()
        end = due + self.seconds
        with link, self.server:
            while due < end:
                now = time.time()
                lines: list[str] = []
                while due <= now and len(lines) < 1000:
                    lines.append(f"{due:.6f} {curve.PAD}\n")
                    due = now if self.rate == "flat" else due + draw.expovariate(float(self.rate))
                    if self.rate == "flat" and len(lines) >= 100:
                        due = time.time()
                        break
                if lines:
                    try:
                        link.sendall("".join(lines).encode())
                    except OSError:
                        return
                else:
                    time.sleep(max(0.0, due - time.time()))


def measured(command: list[str], job: str, rate: str, seconds: float) -> dict[str, Any]:
    """A peer's job at one rate: what `curve.point` says of ours."""
    with tempfile.TemporaryDirectory() as folder:
        script, out = Path(folder, "job.py"), Path(folder, "times")
        script.write_text(job, encoding="utf-8")
        lines = Lines(rate, WARM_S + 3 * seconds + 5)
        lines.start()
        python, *more = command
        environ = {**os.environ, "PYTHONPATH": "", "_python_worker_execution_mode": "process"}
        environ["PATH"] = f"{Path(python).parent}:{os.environ['PATH']}"
        clean: list[tuple[float, float]] = []
        errors = Path(folder, "errors")
        with (
            errors.open("wb") as told,
            subprocess.Popen(
                [python, str(script), str(lines.port), str(out), *more],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=told,
                start_new_session=True,
            ) as process,
        ):
            try:
                process.wait(WARM_S)
                sys.exit(f"a peer failed:\n{errors.read_text(errors='replace')[-3000:]}")
            except subprocess.TimeoutExpired:
                pass
            began = time.time()
            while len(clean) < seconds and time.time() < began + 3 * seconds:
                before, start = curve.ticks(), time.time()
                time.sleep(1.0)
                now = curve.ticks()
                if (now[7] - before[7]) / max(1, sum(now) - sum(before)) <= curve.STOLEN:
                    clean.append((start, time.time()))
            time.sleep(1.0)
            os.killpg(process.pid, signal.SIGKILL)  # with its Java and Python workers
        times = [tuple(map(float, line.split())) for line in out.read_text().splitlines() if line]
    ended = [(due, end) for due, end in times if any(a <= end < b for a, b in clean)]
    ranked = sorted(end - due for due, end in ended)
    return {
        "rate": rate,
        "per_s": len(ended) / max(1e-9, sum(b - a for a, b in clean)),
        "p50_ms": statistics.median(ranked) * 1e3,
        "p99_ms": ranked[int(0.99 * (len(ranked) - 1))] * 1e3,
        "clean_seconds": len(clean),
    }


def flink(rate: str, seconds: float) -> dict[str, Any]:
    """PyFlink at its best for this rate."""
    python = python_of("flink")
    found = []
    for size, millis in BUNDLES if rate != "flat" else ((1000, 100), (10_000, 1000)):
        row = measured([python, str(size), str(millis)], FLINK, rate, seconds)
        found.append({**row, "bundle": size, "millis": millis})
    if rate == "flat":
        return max(found, key=lambda row: row["per_s"])
    return min(found, key=lambda row: row["p99_ms"])


def micro_batches(rate: str, seconds: float) -> dict[str, Any]:
    """Plain PySpark: a rate source, three Python stages, three shuffles."""
    import engine

    from sojourn.engine.spark.session import session

    spark = session(None, "local[8]", 8, "micro-batches", 10)
    try:
        found = engine.micro_batches(spark, seconds, int(rate))
    finally:
        spark.stop()
    return {"rate": rate, "p50_ms": found["median_ms"], "p99_ms": found["p99_ms"]}


def main() -> None:
    """All of it; ends with code 1 where the rule is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default=",".join(curve.RATES))
    parser.add_argument("--quick", action="store_true", help="8 s at each rate instead of 20")
    parser.add_argument("--json", type=Path, help="where to put the figures")
    parser.add_argument("--plot", type=Path, help="where to draw the curves: .svg or .png")
    options = parser.parse_args()
    seconds = 8.0 if options.quick else 20.0
    engines: dict[str, Callable[[str, float], dict[str, Any]]] = {
        "Sojourn": lambda rate, s: curve.measured(ROOT / "src", [rate], s)[0],
        "PyFlink": flink,
        "bytewax, one process": lambda rate, s: measured([python_of("bytewax")], BYTEWAX, rate, s),
        "micro-batches": micro_batches,
    }
    curves: dict[str, dict[str, Any]] = {name: {} for name in engines}
    for rate in options.rates.split(","):
        for name, run in engines.items():
            if name == "micro-batches" and rate == "flat":
                continue
            print(f"{name} at {rate} …", file=sys.stderr, flush=True)
            row = curves[name][rate] = run(rate, seconds)
            print(f"  p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms", file=sys.stderr)
    wrong = missed(curves["Sojourn"], curves["PyFlink"])
    if options.json:
        made = {"curves": curves, "missed": wrong, "at": time.strftime("%Y-%m-%d")}
        options.json.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        curve.plot(options.plot, curves)
    if wrong:
        sys.exit("missed: " + "; ".join(wrong))


def missed(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Where we are not three times ahead."""
    wrong = []
    for rate, row in theirs.items():
        if rate == "flat":
            ratio = ours[rate]["per_s"] / row["per_s"]
            print(f"flat out: {ratio:.1f} times PyFlink's tuples/s", file=sys.stderr)
            if ratio < 3:
                wrong.append(f"flat out: {ratio:.1f} times PyFlink's")
            continue
        for what in ("p50_ms", "p99_ms"):
            ratio = row[what] / ours[rate][what]
            print(f"{what} at {rate}/s: PyFlink's is {ratio:.1f} times ours", file=sys.stderr)
            if ratio < 3:
                wrong.append(f"{what} at {rate}/s: PyFlink's is {ratio:.1f} times ours")
    return wrong


if __name__ == "__main__":
    main()
