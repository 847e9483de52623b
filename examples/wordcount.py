"""Counts words as they arrive, and shows how fast.

    python examples/wordcount.py [FILE] [--rate 300] [--out out/wordcount]

Without a file it makes up 3000 sentences from the words of AFINN-111, which comes with pyspark.
Half-way it gives the counting operator more processors, without stopping anything.
"""

import argparse
import random
from pathlib import Path

import pyspark

import sojourn as sj


def split(line: str) -> list[str]:
    """A sentence to its words."""
    return line.lower().split()


class Count(sj.Operator):
    """Counts each word; the state is kept per word, and saved with every commit."""

    def process(self, word: str) -> tuple[str, int]:
        self.state[word] = self.state.get(word, 0) + 1
        return word, self.state[word]


def sentences() -> list[str]:
    """The same 3000 sentences every time; common words are common."""
    listed = Path(pyspark.__file__).parent / "data" / "streaming" / "AFINN-111.txt"
    words = [line.split("\t")[0] for line in listed.read_text(encoding="utf-8").splitlines()]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    draw = random.Random(111)
    return [" ".join(draw.choices(words, weights, k=8)) for _ in range(3000)]


def topology(file: str | None, rate: float, out: str) -> sj.Topology:
    """lines → split → count → out."""
    t = sj.Topology("wordcount")
    if file is None:
        source = sj.sources.iterable(sentences, rate=rate, arrivals="poisson")
    else:
        source = sj.sources.lines(file, rate=rate)
    lines = t.source("lines", source)
    words = t.operator("split", split, lines)
    counts = t.map("count", Count, words, key=lambda word: word)
    t.sink("out", sj.sinks.jsonl(out), counts)
    return t


def main() -> None:
    """Run until the lines are counted, then say how it went."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", help="a text file, one sentence a line")
    parser.add_argument("--rate", type=float, default=300, help="lines per second")
    parser.add_argument("--out", default="out/wordcount", help="directory for the counts")
    options = parser.parse_args()
    print("starting Spark …", flush=True)
    with sj.start(topology(options.file, options.rate, options.out)) as running:
        print("running; one line a second", flush=True)
        counted = second = 0
        while not running.await_idle(timeout_s=1.0):
            second += 1
            seen = running.samples()
            counted += seen.vertices["count"].served
            print(line(second, seen), flush=True)
            if second == 5:
                print("giving 'count' 3 processors, while it runs", flush=True)
                running.resize({"count": 3})
        counted += running.samples().vertices["count"].served
    print(f"{counted} words counted; the counts are in {options.out}/")


def line(second: int, seen: sj.Samples) -> str:
    """One second in words."""
    count = seen.vertices["count"]
    text = f"{second:3} s  {count.arrival_rate or 0:6.0f} words/s on {count.processors} processors"
    if seen.sojourn is not None:
        text += (
            f", sojourn {seen.sojourn.p50_s * 1e3:.1f} ms (p99 {seen.sojourn.p99_s * 1e3:.1f} ms)"
        )
    return text


if __name__ == "__main__":
    main()
