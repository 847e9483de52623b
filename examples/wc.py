"""Word count as streams of tweets have it, in two designs, to be profiled (Liu 2017, §6.1.1).

    sojourn profile examples/wc.py:wc examples/wc.py:swc
    python examples/wc.py [--design wc | swc] [--tweets FILE] [--count 2000] [--out out/wc]

    wc   tweets ─→ parse ─→ split ─→ count ─→ out
    swc  tweets ─→ wait ─→ parse ─→ split ─→ count ─→ out

Tweets are JSON, one a line; those of a file come over and over. Without one they are made up, of
about twelve words each. The second design keeps each tweet for a millisecond first, as a service
would. Both count the same.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import pyspark

import sojourn as sj

WAIT_S = 0.001


def tweet(number: int) -> str:
    """A made-up tweet. Common words are common."""
    draw = random.Random(number)
    words = draw.choices(WORDS, WEIGHTS, k=draw.randint(8, 16))
    return json.dumps({"id": number, "text": " ".join(words), "lang": "en", "user": number % 997})


def listed() -> list[str]:
    """The words of AFINN-111, which comes with pyspark."""
    path = Path(pyspark.__file__).parent / "data" / "streaming" / "AFINN-111.txt"
    return [line.split("\t")[0] for line in path.read_text(encoding="utf-8").splitlines()]


WORDS = [word for word in listed() if " " not in word]
WEIGHTS = [1 / rank for rank in range(1, len(WORDS) + 1)]


def wait(line: str) -> str:
    """The same, a little later."""
    time.sleep(WAIT_S)
    return line


def parse(line: str) -> str:
    """The text of a tweet."""
    return str(json.loads(line)["text"])


def split(text: str) -> list[str]:
    """Its words."""
    return text.lower().split()


def itself(word: str) -> str:
    """A word is its own key."""
    return word


class Count(sj.Operator):
    """Counts each word."""

    def process(self, word: str) -> tuple[str, int]:
        self.state[word] = self.state.get(word, 0) + 1
        return word, self.state[word]


def designed(
    design: str,
    tweets: str | None = None,
    count: int | None = None,
    rate: float | None = None,
    out: str | None = None,
) -> sj.Topology:
    """One of the two designs. Without `out`, nobody keeps the counts."""
    t = sj.Topology(design)

    def lines() -> Iterator[str]:
        made: Iterator[str]
        if tweets is None:
            made = (tweet(number) for number in range(10**9))
        else:
            made = cycle(Path(tweets).read_text(encoding="utf-8").splitlines())
        return made if count is None else islice(made, count)

    stream = t.source("tweets", sj.sources.iterable(lines, rate=rate))
    if design == "swc":
        stream = t.map("wait", wait, stream)
    texts = t.map("parse", parse, stream)
    words = t.operator("split", split, texts)
    counts = t.map("count", Count, words, key=itself)
    sink = sj.sinks.call(lambda _: None) if out is None else sj.sinks.jsonl(out)
    t.sink("out", sink, counts)
    return t


wc = designed("wc")
swc = designed("swc")


def main() -> None:
    """Count the words of some tweets, and show the most frequent ones."""
    parser = argparse.ArgumentParser(description="word count in two designs")
    parser.add_argument("--design", choices=("wc", "swc"), default="wc")
    parser.add_argument("--tweets", help="a file with a tweet a line, as JSON")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--out", default="out/wc", help="directory for the counts")
    options = parser.parse_args()
    if options.tweets is not None and not Path(options.tweets).is_file():
        parser.error(f"--tweets: there is no file {options.tweets!r}")
    if options.count < 1:
        parser.error(f"--count must be at least 1; got {options.count}")
    if any(Path(options.out).glob("*.jsonl")):
        parser.error(f"{options.out}: has results already; give another --out")
    made = designed(options.design, options.tweets, options.count, out=options.out)
    try:
        with sj.start(made) as running:
            running.await_idle()
    except sj.TopologyFailed as error:
        parser.exit(1, f"{error}\n")
    counts: dict[str, int] = {}
    for path in sorted(Path(options.out).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            word, number = json.loads(line)
            counts[word] = max(number, counts.get(word, 0))
    print(f"{sum(counts.values())} words, {len(counts)} different ones")
    for word, number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]:
        print(f"{word}: {number}")


if __name__ == "__main__":
    main()
