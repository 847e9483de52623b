"""The highest price of every stock in every second (Cervino 2012, fig. 6), in two stages: the first
is not keyed, so each of its workers gets an equal share of all trades and passes on the maxima of
those; the second merges them.

    python examples/stocks.py [--count 20000] [--rate 5000] [--shed-after 0.2] [--out out/stocks]
    python examples/stocks.py --plain [--count 20000] [--master spark://…]

    trades ─→ maxima ─→ merge ─→ out
          └─→ kept

With --shed-after, trades that are so many seconds late are shed. What was kept is written as well,
so that the maxima can be held against it.

With --plain, the same as a Structured Streaming query on a local Spark, or on that of --master,
whose machines must see this one's folder for temporary files. On a cluster, `sojourn.attach` can
look after such a query. Trades of 1000 symbols are made up.
"""

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import sojourn as sj

SYMBOLS = 1000
RATE = 5000.0  # trades a second of their own time
KEPT_S = 60  # seconds of that time for which a price is remembered
Trade = tuple[float, int, float]  # its time, its symbol, its price
Best = tuple[int, int, float]  # a second, a symbol, the highest price


def trade(number: int) -> Trade:
    """A made-up trade."""
    mixed = number * 2654435761 % 2**32
    symbol = mixed % SYMBOLS
    return number / RATE, symbol, round(50 + symbol % 100 + mixed % 997 / 100, 2)


class Maxima(sj.Operator):
    """The highest prices among trades that come together."""

    def process_bundle(self, trades: list[Trade]) -> list[list[Best]]:
        best: dict[tuple[int, int], tuple[int, float]] = {}
        for place, (time_s, symbol, price) in enumerate(trades):
            second = int(time_s)
            if price > best.get((second, symbol), (0, 0.0))[1]:
                best[second, symbol] = place, price
        found: list[list[Best]] = [[] for _ in trades]
        for (second, symbol), (place, price) in best.items():
            found[place].append((second, symbol, price))
        return found


def symbol_of(best: Best) -> int:
    """A key."""
    return best[1]


class Merge(sj.Operator):
    """Passes on a price that is the highest so far."""

    def process(self, best: Best) -> list[Best]:
        second, symbol, price = best
        if price <= self.state.get((second, symbol), 0.0):
            return []
        self.state[second, symbol] = price
        self.state.pop((second - KEPT_S, symbol), None)
        return [best]


def topology(
    count: int | None = None,
    rate: float | Sequence[tuple[float, float]] | None = None,
    out: str | None = None,
    shed_after: float | None = None,
    kept: str | None = None,
    executors: int = 1,
) -> sj.Topology:
    """Both stages, the first in so many executors. Without `out`, nobody keeps what comes out. With
    `kept`, the trades that were not shed are written there."""
    t = sj.Topology("stocks")
    if rate is None:
        source = sj.sources.iterable(lambda: map(trade, range(count or 10**9)))
    else:
        source = sj.sources.paced(trade, rate=rate, count=count, shed_after=shed_after)
    trades = t.source("trades", source)
    maxima = t.operator("maxima", Maxima, trades, executors=executors)
    merged = t.operator("merge", Merge, maxima, key=symbol_of)
    t.sink("out", sj.sinks.call(lambda _: None) if out is None else sj.sinks.jsonl(out), merged)
    if kept is not None:
        t.sink("kept", sj.sinks.jsonl(kept), trades)
    return t


def written(directory: str | Path) -> Iterator[Any]:
    """What a sink has written."""
    for path in sorted(Path(directory).glob("*.jsonl")):
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def highest(directory: str | Path) -> dict[tuple[int, int], float]:
    """The last word of what came out: the highest price of each second and symbol."""
    best: dict[tuple[int, int], float] = {}
    for second, symbol, price in written(directory):
        best[second, symbol] = max(price, best.get((second, symbol), 0.0))
    return best


def sequentially(trades: Iterable[Trade]) -> dict[tuple[int, int], float]:
    """The same without streams."""
    best: dict[tuple[int, int], float] = {}
    for time_s, symbol, price in trades:
        best[int(time_s), symbol] = max(price, best.get((int(time_s), symbol), 0.0))
    return best


def plain(count: int, master: str) -> dict[tuple[int, int], float]:
    """The same as a plain query: trades from files, maxima in memory."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    spark = (
        SparkSession.builder.master(master)
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        lines = (json.dumps(dict(zip(("at", "symbol", "price"), trade(n), strict=True)))
                 for n in range(count))  # fmt: skip
        Path(folder, "trades.json").write_text("\n".join(lines), encoding="utf-8")
        trades = spark.readStream.schema("at double, symbol int, price double").json(folder)
        second = f.floor("at").cast("int").alias("second")
        best = trades.groupBy(second, "symbol").agg(f.max("price").alias("price"))
        query = best.writeStream.outputMode("complete").format("memory").queryName("best").start()
        query.processAllAvailable()
        found = {(row.second, row.symbol): row.price for row in spark.table("best").collect()}
        query.stop()
    spark.stop()
    return found


def main() -> None:
    """Find the highest prices of some trades."""
    parser = argparse.ArgumentParser(description="the highest price of every stock in every second")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rate", type=float, help="trades a second; as fast as they go without")
    parser.add_argument("--shed-after", type=float, help="seconds after which late trades are shed")
    parser.add_argument("--out", help="directory for what comes out; out/stocks without")
    parser.add_argument("--plain", action="store_true", help="as a Structured Streaming query")
    parser.add_argument("--master", help="where the plain query runs; local[2] without")
    options = parser.parse_args()
    if options.plain and any((options.rate, options.shed_after, options.out)):
        parser.error("--plain takes --count and --master only; leave the others out")
    if options.master and not options.plain:
        parser.error("--master goes with --plain; leave it out")
    options.out = options.out or "out/stocks"
    if options.count < 1:
        parser.error(f"--count must be at least 1; got {options.count}")
    if options.rate is not None and not options.rate > 0:
        parser.error(f"--rate must be above 0; got {options.rate:g}")
    if not options.plain and any(
        Path(options.out).parent.glob(f"{Path(options.out).name}*/*.jsonl")
    ):
        parser.error(f"{options.out}: has results already; give another --out")
    if options.shed_after is not None and (options.rate is None or not options.shed_after > 0):
        parser.error(f"--shed-after must be above 0 and needs --rate; got {options.shed_after:g}")
    kept = None if options.shed_after is None else f"{options.out}-kept"
    if options.plain:
        best = plain(options.count, options.master or "local[2]")
    else:
        try:
            made = topology(options.count, options.rate, options.out, options.shed_after, kept)
            with sj.start(made) as running:
                running.await_idle()
        except sj.TopologyFailed as error:
            parser.exit(1, f"{error}\n")
        best = highest(options.out)
    trades: list[Trade] = list(map(trade, range(options.count)))
    if kept is not None and not options.plain:
        trades = list(written(kept))
        print(f"{options.count - len(trades)} of {options.count} trades were shed")
    right = best == sequentially(trades)
    seconds = {second for second, _ in best}
    print(f"{len(best)} maxima of {len(seconds)} seconds, {'all right' if right else 'WRONG'}")


if __name__ == "__main__":
    main()
