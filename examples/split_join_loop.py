"""Factors numbers with a topology that splits, joins and loops, and checks the results.

    python examples/split_join_loop.py [--count 500] [--rate 100]

    numbers ─→ sort ─ even ─→ halve ─┐
                 └─── odd ───────────┴→ divide ─→ collect ─→ out
                                          ↑  │
                                          └──┘ what is left of a number goes round again

`divide` finds one factor at a time. `collect` keeps the factors found so far, per number.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sojourn as sj

Part = tuple[int, int, int]  # the number, what is left of it, a factor of it


def sort(number: int) -> list[Any]:
    """Even numbers take their own way."""
    start: Part = (number, number, 1)
    return [sj.Output("even", start)] if number % 2 == 0 else [start]


def halve(part: Part) -> Part:
    """Divide by two as often as it goes."""
    number, left, factor = part
    while left % 2 == 0:
        left, factor = left // 2, factor * 2
    return number, left, factor


def divide(part: Part) -> Iterator[Any]:
    """Send one factor on, and what is left round again."""
    number, left, factor = part
    if factor > 1:
        yield number, factor
    if left == 1:
        return
    prime = next((d for d in range(3, math.isqrt(left) + 1, 2) if left % d == 0), left)
    yield sj.Output("again", (number, left // prime, prime))


class Collect(sj.Operator):
    """Gathers the factors of each number until their product is the number."""

    def process(self, found: tuple[int, int]) -> Iterator[dict[str, Any]]:
        number, factor = found
        factors = self.state.setdefault(number, [])
        factors.append(factor)
        if math.prod(factors) == number:
            yield {"number": number, "factors": sorted(self.state.pop(number))}


def topology(count: int, rate: float, out: str) -> sj.Topology:
    """The picture above."""
    t = sj.Topology("factors")
    numbers = t.source("numbers", sj.sources.paced(lambda i: 1001 + 37 * i, rate=rate, count=count))
    sorted_out = t.operator("sort", sort, numbers)
    halved = t.map("halve", halve, sorted_out["even"])
    divided = t.operator("divide", divide, sorted_out, halved)
    t.feedback(divided["again"], divided)
    collected = t.operator("collect", Collect, divided, key=lambda found: found[0])
    t.sink("out", sj.sinks.jsonl(out), collected)
    return t


def main() -> None:
    """Factor the numbers and check every product."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--rate", type=float, default=100, help="numbers per second")
    parser.add_argument("--out", default="out/factors", help="directory for the results")
    options = parser.parse_args()
    print("starting Spark …", flush=True)
    with sj.start(topology(options.count, options.rate, options.out)) as running:
        while not running.await_idle(timeout_s=1.0):
            rounds = running.samples().vertices["divide"].served
            print(f"{rounds} rounds of 'divide' in the last second", flush=True)
    found = {}
    for path in Path(options.out).glob("*.jsonl"):
        for text in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(text)
            found[row["number"]] = row["factors"]
    wrong = [n for n, factors in found.items() if math.prod(factors) != n]
    print(f"{len(found)} numbers factored, {len(wrong)} wrong")


if __name__ == "__main__":
    main()
