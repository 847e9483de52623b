"""Orders are checked, priced and booked while their number per second rises and falls. Kept under
its target by

    sojourn run examples/orders.py --max-sojourn 200ms

Checking and pricing wait for a service elsewhere, here a pause of random length, so that their
processors hardly need a core: this runs on two. Rates, in orders per second: 40 at first, then 100,
then 30, about half a minute each. Only the first orders, and what they come to, by

    python examples/orders.py --count 200
"""

import argparse
import json
import random
import time
from pathlib import Path

import sojourn as sj

RATES = ((25.0, 40.0), (30.0, 100.0), (30.0, 30.0))
COUNT = int(sum(seconds * rate for seconds, rate in RATES))
OUT = "out/orders"


def order(number: int) -> dict[str, int]:
    """The order of that number."""
    return {"number": number, "customer": number * 7919 % 97, "amount": 1 + number % 50}


def ask_elsewhere(mean_s: float) -> None:
    """An answer from another service, after a while."""
    time.sleep(random.expovariate(1 / mean_s))


def check(order: dict[str, int]) -> dict[str, int]:
    """Is the customer good for it?"""
    ask_elsewhere(0.025)
    return order


def price(order: dict[str, int]) -> dict[str, int]:
    """What it costs today."""
    ask_elsewhere(0.040)
    return order | {"price": order["amount"] * 3}


class Book(sj.Operator):
    """Each customer's total."""

    def process(self, order: dict[str, int]) -> dict[str, int]:
        total = self.state.get(order["customer"], 0) + order["price"]
        self.state[order["customer"]] = total
        return {"customer": order["customer"], "total": total}


def topology(count: int = COUNT) -> sj.Topology:
    """orders → check → price → book → totals."""
    t = sj.Topology("orders")
    orders = t.source("orders", sj.sources.paced(order, rate=RATES, count=count))
    checked = t.map("check", check, orders, processors=2)
    priced = t.map("price", price, checked, processors=3)
    booked = t.map("book", Book, priced, key=lambda order: order["customer"], shards=64)
    t.sink("totals", sj.sinks.jsonl(OUT), booked)
    return t


def main() -> None:
    """Book some orders, and add up what all customers have bought."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=COUNT)
    options = parser.parse_args()
    if options.count < 1:
        parser.error(f"--count must be at least 1; got {options.count}")
    with sj.start(topology(options.count), max_sojourn="200ms") as running:
        running.await_idle()
    totals: dict[int, int] = {}
    for path in Path(OUT).glob("*.jsonl"):
        for text in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(text)
            totals[row["customer"]] = max(row["total"], totals.get(row["customer"], 0))
    print(f"{options.count} orders of {len(totals)} customers, {sum(totals.values())} in all")


if __name__ == "__main__":
    main()
