"""What `sojourn plan` shows for processors of different speed: who gets how many of which kind, as
a table and as JSON. Fed by the command; read by the user."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from sojourn.cli.plan_report import Goal, Model, given, plan_table
from sojourn.queueing import Kind, Network, UnequalPlan
from sojourn.units import format_duration


def print_unequal(
    console: Console, title: str, network: Network, best: UnequalPlan, kinds: Mapping[str, Kind]
) -> None:
    """The table of operators with a column for each kind, the totals, and what is left over."""
    columns = (*kinds, "busy", "wait", "sojourn", "of E[T]")
    table = plan_table("operator", "arrivals/s", "serves/s at speed 1", *columns)
    for name, station in network.stations.items():
        found = best.expected[name]
        table.add_row(
            name,
            f"{station.arrival_rate:.4g}",
            f"{station.service_rate:.4g}",
            *(str(best.allocation[name][kind]) for kind in kinds),
            f"{found.utilization:.0%}",
            format_duration(found.wait),
            format_duration(found.sojourn),
            f"{_share(network, best, name):.0%}",
        )
    console.print(f"{title}: {network.external_rate:.4g} tuples/s from outside")
    console.print(table)
    used = ", ".join(
        f"{best.used(name)} of {kind.count} {name} (speed {kind.speed:g})"
        for name, kind in kinds.items()
    )
    cost = "" if all(kind.cost == 1 for kind in kinds.values()) else f" at a cost of {best.cost:g}"
    console.print(
        f"{best.processors} processors{cost}, {used}: mean sojourn "
        f"{format_duration(best.mean_sojourn)} "
        f"(without any waiting, on the fastest, {format_duration(_bound(network, kinds))})."
    )


def unequal_record(
    name: str,
    model: Model,
    network: Network,
    goal: Goal,
    best: UnequalPlan,
    kinds: Mapping[str, Kind],
) -> dict[str, Any]:
    """The whole plan for JSON."""
    return {
        "topology": name,
        "model": model.value,
        "max_sojourn_s": goal.max_sojourn,
        "external_rate": network.external_rate,
        "lower_bound_s": _bound(network, kinds),
        "allocation": {name: dict(mix) for name, mix in best.allocation.items()},
        "processors": best.processors,
        "cost": best.cost,
        "mean_sojourn_s": best.mean_sojourn,
        "kinds": [
            {
                "name": name,
                "count": kind.count,
                "speed": kind.speed,
                "cost": kind.cost,
                "used": best.used(name),
            }
            for name, kind in kinds.items()
        ],
        "operators": [
            {
                **given(name, station),
                "utilization": best.expected[name].utilization,
                "wait_s": best.expected[name].wait,
                "service_s": best.expected[name].service,
                "sojourn_s": best.expected[name].sojourn,
                "visits": network.visits(name),
                "share": _share(network, best, name),
            }
            for name, station in network.stations.items()
        ],
    }


def _bound(network: Network, kinds: Mapping[str, Kind]) -> float:
    return network.lower_bound() / max(kind.speed for kind in kinds.values())


def _share(network: Network, best: UnequalPlan, name: str) -> float:
    return network.visits(name) * best.expected[name].sojourn / best.mean_sojourn
