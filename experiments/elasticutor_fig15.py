"""Elasticutor fig. 15: arrival rates of the five most popular stocks over time. Theirs are of the
Shanghai exchange; these are of the orders that `examples/sse.py` makes up.

Claim: both the rates and which stocks are popular fluctuate greatly.

Rule: of each of the five, the highest rate over ten seconds is at least twice the mean."""

from collections import Counter
from typing import Any

from lab import Finding, Lab
from shapes import example

market = example("sse")
NOTES = "orders made up by examples/sse.py, 8 million an hour; no engine is involved"
RATE = 8e6 / 3600
SPAN_S = 10.0


def run(lab: Lab) -> Finding:
    """Counted over spans of ten seconds."""
    minutes = 5 if lab.quick else 20
    made = market.Market(1000, 0)
    spans: list[Counter[str]] = []
    for number in range(round(RATE * 60 * minutes)):
        at = int(number / RATE / SPAN_S)
        if at >= len(spans):
            spans.append(Counter())
        spans[at][made.order(number)[2]] += 1  # its symbol
    total = sum(spans, Counter())
    five = [symbol for symbol, _ in total.most_common(5)]
    rates = {symbol: [span[symbol] / SPAN_S for span in spans] for symbol in five}
    ratios = {s: max(of) / (sum(of) / len(of)) for s, of in rates.items()}
    holds = min(ratios.values()) >= 2
    low, high = min(ratios.values()), max(ratios.values())
    verdict = f"the highest rate is {low:.1f} to {high:.1f} times the mean"
    rows = [
        (
            "highest over mean rate of a popular stock",
            "fluctuates greatly",
            f"{min(ratios.values()):.1f}",
        )
    ]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for symbol, of in rates.items():
            axes.plot([SPAN_S * i / 60 for i in range(len(of))], of, label=symbol)
        axes.set(xlabel="minutes", ylabel="orders/s", ylim=(0, None))
        axes.legend()

    return Finding({"per_second": rates}, rows, verdict, bool(holds), draw)
