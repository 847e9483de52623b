"""Misses that come again and again although nothing seems to be wrong: what makes them, and what
would help. Fed by a situation; feeds the policy. Pure."""

from dataclasses import dataclass

from sojourn.control.situation import Situation, Tried
from sojourn.queueing.keyed import KeyedStation
from sojourn.queueing.network import Network, what_of
from sojourn.queueing.split import executors_of
from sojourn.units import format_duration as told

LONG_S = 180.0  # in which misses are counted
_OFTEN = 0.1  # of the intervals
_FEWEST = 5  # misses
_FLOOR = 0.85  # of the target that tuples take without waiting: then that is the cause,
_LITTLE = 0.03  # if they wait for no more than that share of it
_BY_COMMITS = 0.8  # of the misses that lie beside a commit: then commits are the cause
_CHANCE = 1.5  # times the share of intervals with a commit that misses must have more of them
_HOT = 0.5  # of an operator's waiting that its busiest shard makes: then the key is the cause
_RARE, _SLOW = 0.2, 0.5  # visits of a tuple, and share of the target


@dataclass(frozen=True)
class Chronic:
    """How often the target was missed, in words, why, and what would help. `busy` says that more
    processors would."""

    often: str
    cause: str
    remedy: str
    busy: bool = False


def chronic(s: Situation, target_s: float) -> Chronic | None:
    """What makes the target be missed again and again, if it is."""
    tried = [t for t in s.tried if t.time_s > s.now_s - LONG_S]
    missed = [t for t in tried if t.missed]
    if not tried or s.now_s - tried[0].time_s < LONG_S - 2 * s.settings.interval_s:
        return None
    if len(missed) < max(_FEWEST, _OFTEN * len(tried)):
        return None
    often = (
        f"the {what_of(s.settings.percentile)} was above {told(target_s)} in "
        f"{len(missed) / len(tried):.0%} of the last {told(LONG_S)}"
    )
    cause, remedy = _cause(s, target_s, tried, missed)
    return Chronic(often, cause, remedy, busy=not remedy)


def _cause(
    s: Situation, target_s: float, tried: list[Tried], missed: list[Tried]
) -> tuple[str, str]:
    """The cause, and the remedy unless that is more processors."""
    network, percentile = s.network, s.settings.percentile
    floor_s = s.memory.bias.correct(network.bound(percentile), network.bound(percentile))
    waiting_s = s.present_s - floor_s
    beside = sum(t.committed for t in missed) / len(missed)
    usual = sum(t.committed for t in tried) / len(tried)
    if beside >= _BY_COMMITS and beside > _CHANCE * usual:
        return f"{beside:.0%} of these lie beside a commit", "commit less often, or to faster disks"
    slow = _rare(s, target_s)
    if slow and percentile is not None:
        return slow, "make that operator faster, or raise the target"
    if floor_s > _FLOOR * target_s and waiting_s < _LITTLE * target_s:
        return (
            f"tuples take {told(floor_s)} without any waiting",
            "make operators faster, or raise the target",
        )
    hot = _hot(s)
    if hot:
        return hot, "split that key"
    name = _busiest(s, network)
    busy = network.stations[name].utilization(s.current[name])
    return f"they wait for {name!r}, which is {busy:.0%} busy", ""


def _rare(s: Situation, target_s: float) -> str:
    """The operator that few tuples visit and that takes them most of the target, in words."""
    for name in s.wanted:
        station = s.network.stations[name]
        visits = station.arrival_rate / s.network.external_rate
        if 0 < visits < _RARE and 1 / station.service_rate > _SLOW * target_s:
            took = told(1 / station.service_rate)
            return f"{visits:.1%} of the tuples pass {name!r}, which takes {took}"
    return ""


def _hot(s: Situation) -> str:
    """The shard that makes most of the waiting at its operator, in words."""
    for name, total in s.current.items():
        whole = s.network.stations[name]
        if not whole.is_stable(total) or not whole.mean_wait(total) > 0:
            continue
        for station, count in executors_of(whole, total):
            if not isinstance(station, KeyedStation) or not station.hot:
                continue
            alone = station.queue_of(station.hot[0])
            share = alone.arrival_rate / whole.arrival_rate
            part = share * alone.mean_wait(1) / whole.mean_wait(total)
            if part > _HOT and count >= (station.useful or count):
                return f"one shard of {name!r} gets {share:.0%} of its tuples"
    return ""


def _busiest(s: Situation, network: Network) -> str:
    """The operator that tuples wait for longest."""

    def waited(name: str) -> float:
        return network.visits(name) * network.stations[name].mean_wait(s.current[name])

    return max(s.current, key=waited)
