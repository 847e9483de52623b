"""Elasticity in virtual time: the parts exchange and popularity of `elasticity.py`, whose
documentation has their rules. They are experiments, run in full unless they are to be quick."""

import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "experiments"))
import elasticutor_fig6
import elasticutor_fig7
import elasticutor_fig16
from lab import Lab


def exchange(_spark: Any, quick: bool) -> dict[str, Any]:
    """The stock exchange under four paradigms."""
    finding = elasticutor_fig16.run(Lab("simulator", quick))
    missed = [] if finding.holds else [finding.verdict]
    return {**finding.figures, "rows": finding.rows, "missed": missed}


def popularity(_spark: Any, quick: bool) -> dict[str, Any]:
    """Dips after shuffles, and what is carried with many of them."""
    lab = Lab("simulator", quick)
    over_time, by_shuffles = elasticutor_fig7.run(lab), elasticutor_fig6.run(lab)
    shuffles, rates = by_shuffles.figures["shuffles"], by_shuffles.figures["per_second"]
    never, often = shuffles.index(0), shuffles.index(16)
    kept = {paradigm: of[often] / of[never] for paradigm, of in rates.items()}
    missed = [] if over_time.holds else [over_time.verdict]
    longest = statistics.median(over_time.figures["dips_s"]["resource-centric"])
    if longest < 10:
        missed.append(f"resource-centric dips for {longest:.1f} s, and 10 to 20 are expected")
    if kept["elastic"] < 0.85:
        missed.append(f"elastic keeps {kept['elastic']:.0%} at 16 shuffles a minute, at least 85 %")
    if rates["resource-centric"][often] >= rates["static"][often]:
        missed.append("resource-centric does not collapse at 16: it carries more than static")
    return {**over_time.figures, "kept_at_16": kept, "missed": missed}
