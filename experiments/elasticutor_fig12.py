"""Elasticutor fig. 12: throughput of one elastic executor with 1 to 256 cores, by the state of a
shard, at ω = 2 and 16.

Claims: it scales for all states but 32 MB, and that one scales worse at ω = 16.

Rule: with 32 KB and 256 cores it carries at least 80 times what one core does, at both ω; with
32 MB at most half of what it does with 32 KB, at both ω, and less at 16 than at 2."""

from typing import Any

from lab import Finding, Lab
from paradigms import ENGINES, lines, micro, ran, rate
from paradigms import NOTES as MICRO

__all__ = ["ENGINES", "NOTES"]
NOTES = (
    f"{MICRO}; here one executor with 1024 shards, as 256 could not be balanced over 256 cores, so "
    "that 32 MB a shard are 32 GB in all"
)
CORES = (1, 8, 16, 32, 64, 128, 256)
STATES = {"32 KB": 32 << 10, "1 MB": 1 << 20, "8 MB": 8 << 20, "32 MB": 32 << 20}
SHUFFLES = (2, 16)


def run(lab: Lab) -> Finding:
    """Both ω, all states. One executor with 1024 shards."""
    seconds = 60.0 if lab.quick else 180.0
    found: dict[int, dict[str, list[float]]] = {}
    for shuffles in SHUFFLES:
        found[shuffles] = {
            name: [
                rate(
                    ran(
                        micro(
                            "elastic",
                            shuffles,
                            state=float(state),
                            executors=1,
                            shards=1024,
                            cores=cores,
                            phi=float("inf"),
                        ),
                        seconds,
                    )
                )
                for cores in CORES
            ]
            for name, state in STATES.items()
        }
    small = [found[w]["32 KB"][-1] / found[w]["32 KB"][0] for w in SHUFFLES]
    large = [found[w]["32 MB"][-1] / found[w]["32 KB"][-1] for w in SHUFFLES]
    holds = min(small) >= 80 and max(large) <= 0.5 and large[1] < large[0]
    verdict = (
        f"with 32 MB it carries {large[0]:.0%} (ω = 2) and {large[1]:.0%} (ω = 16) of what it does "
        "with 32 KB"
    )
    rows = [
        ("32 KB: 256 cores over 1, ω = 2", "scales", f"{small[0]:.0f}"),
        ("32 KB: 256 cores over 1, ω = 16", "scales", f"{small[1]:.0f}"),
        ("32 MB over 32 KB at 256 cores, ω = 2", "a bottleneck", f"{large[0]:.2f}"),
        ("32 MB over 32 KB at 256 cores, ω = 16", "a worse one", f"{large[1]:.2f}"),
    ]

    def draw(figure: Any) -> None:
        for part, shuffles in zip(figure.subfigures(1, 2), SHUFFLES, strict=True):
            lines(
                part,
                [(name, CORES, [r / 1e3 for r in of]) for name, of in found[shuffles].items()],
                xlabel="cores",
                ylabel="thousand tuples/s",
                title=f"ω = {shuffles}",
            )

    return Finding({"cores": CORES, "per_second": found}, rows, verdict, bool(holds), draw)
