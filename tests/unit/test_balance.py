"""Which worker serves which shard: balanced by load, with few moves."""

import random

import pytest

from sojourn.placement.balance import CLOSE, THETA, balanced, imbalance, skew, tolerated
from sojourn.placement.loads import Loads


def zipf(shards: int, power: float, seed: int) -> dict[int, float]:
    ranks = random.Random(seed).sample(range(shards), shards)
    return {shard: (1.0 + rank) ** -power for shard, rank in enumerate(ranks)}


def spread(shards: int, workers: int) -> dict[int, list[int]]:
    return {worker: list(range(worker, shards, workers)) for worker in range(workers)}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_no_worker_is_much_busier_than_the_mean(workers: int, seed: int) -> None:
    loads, owned = zipf(256, 0.5, seed), spread(256, workers)
    moves = list(balanced(owned, loads))
    assert imbalance(owned, loads) <= THETA
    assert sorted(shard for shards in owned.values() for shard in shards) == list(range(256))
    assert len(moves) < 256 / workers


@pytest.mark.parametrize(("each", "in_a_row"), [(1.0, 4), (0.0, 20)])
def test_shards_that_come_in_turn_do_not_go_to_the_same_worker(each: float, in_a_row: int) -> None:
    """Those that came last seem to be the busiest."""
    turn = random.Random(3).sample(range(256), 256)
    loads = {shard: 1.3 + place / 256 for place, shard in enumerate(turn)}
    owned = {**{w: turn[w:256:5] for w in range(5)}, 5: []}
    list(balanced(owned, loads, each=each))
    assert imbalance(owned, loads) <= THETA
    new = "".join("x" if shard in owned[5] else " " for shard in turn)
    longest = max(map(len, new.split()))
    assert longest <= in_a_row if each else longest >= in_a_row


def test_what_is_balanced_stays() -> None:
    loads = dict.fromkeys(range(64), 1.0)
    assert list(balanced(spread(64, 4), loads)) == []


@pytest.mark.parametrize("workers", [1, 5, 6, 30])
def test_a_worker_that_comes_gets_its_share(workers: int) -> None:
    """Also where the others are not much busier than the mean."""
    owned = {**spread(600, workers), workers: []}
    loads = dict.fromkeys(range(600), 1.0)
    moves = list(balanced(owned, loads))
    assert {to for _, to in moves} == {workers}
    assert len(owned[workers]) >= 600 / (workers + 1) / THETA


def test_without_any_load_shards_are_spread_by_their_number() -> None:
    owned: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    moves = list(balanced(owned, {}, range(64)))
    assert len(moves) == 64
    assert sorted(map(len, owned.values())) == [21, 21, 22]


def test_shards_without_load_are_spread_too() -> None:
    owned: dict[str, list[int]] = {"a": [], "b": []}
    list(balanced(owned, {0: 1.0, 1: 1.0}, range(100)))
    assert abs(len(owned["a"]) - len(owned["b"])) <= 2
    assert (0 in owned["a"]) != (1 in owned["a"])


def test_a_shard_that_is_too_busy_is_left_alone_and_the_others_share_the_rest() -> None:
    loads = {0: 100.0} | dict.fromkeys(range(1, 61), 1.0)
    owned = spread(61, 4)
    list(balanced(owned, loads))
    hot = next(shards for shards in owned.values() if 0 in shards)
    rest = sorted(len(shards) for shards in owned.values() if shards is not hot)
    assert sum(rest) + len(hot) == 61
    assert len(hot) <= 4
    assert rest[-1] <= THETA * sum(rest) / 3


def test_a_busy_shard_does_not_keep_the_small_ones_beside_it() -> None:
    """Its count is changed so that it seems to fit, and it does not."""
    owned = {"a": list(range(17)), "b": [20], "c": [21]}
    loads = {0: 100.0, **dict.fromkeys(range(1, 17), 5.0), 20: 80.0, 21: 80.0}
    list(balanced(owned, loads, each=1.0))
    assert imbalance(owned, loads) <= THETA


def test_workers_without_time_to_spare_are_balanced_closely() -> None:
    assert tolerated(0.0) == tolerated(0.5) == tolerated(0.75) == THETA
    assert 0.8 * tolerated(0.8) == pytest.approx(0.9)
    assert tolerated(0.95) == tolerated(2.0) == CLOSE


def test_one_worker_keeps_everything() -> None:
    owned = {"a": [1, 2, 3]}
    assert list(balanced(owned, {1: 5.0})) == []


def test_chance_is_told_from_skew() -> None:
    """Tuples that are drawn evenly, few or many, hardly ever look skewed."""
    draw, seen = random.Random(1), 0
    for number in range(200):
        tuples = (40, 400, 4000)[number % 3]
        counts = dict.fromkeys(range(64), 0.0)
        for _ in range(tuples):
            counts[draw.randrange(64)] += 1.0
        seen += imbalance(spread(64, 4), counts) > THETA + skew(4.0, float(tuples))
    assert seen <= 4


def test_loads_decay() -> None:
    loads = Loads()
    loads.arrived([1] * 100)
    loads.look(10.0)
    loads.arrived([2] * 100)
    loads.look(13.0)
    found = loads.of_shards(0.01, {})
    assert found[2] == pytest.approx(1.0)
    assert found[1] == pytest.approx(1.0 / 2.71828, rel=1e-3)
    loads.look(100.0)
    loads.look(101.0)
    assert loads.of_shards(0.01, {}) == {}
    assert loads.ever == {1: 100, 2: 100}


def test_those_are_busiest_that_have_most_lately() -> None:
    loads = Loads()
    loads.look(0.0)
    loads.arrived([1] * 100)
    loads.look(1.0)
    loads.look(60.0)
    loads.arrived([2] * 5 + [3])
    assert loads.busiest(1) == {2: 5}
    loads.look(61.0)
    loads.arrived([3] * 9)
    assert loads.busiest(2) == {3: 10, 2: 5}


def test_what_waits_counts_and_says_how_busy_workers_are() -> None:
    loads = Loads()
    assert loads.of_shards(0.01, {1: 5}) == {}, "nothing has come"
    loads.look(0.0)
    loads.arrived([1] * 100 + [2] * 100)
    loads.look(1.0)
    found = loads.of_shards(0.01, {2: 50, 3: 10})
    assert found == pytest.approx({1: 1.0, 2: 1.5, 3: 0.1})
    assert loads.busy(found.values(), 4) == pytest.approx(2.6 / 4)


def test_a_shard_whose_tuples_take_longer_counts_for_more() -> None:
    loads = Loads()
    loads.arrived([1, 2] * 50)
    for _ in range(50):
        loads.served(1, 0.1)
        loads.served(2, 0.01)
    loads.look(1.0)
    found = loads.of_shards(0.05, {})
    assert 7 < found[1] / found[2] < 10
