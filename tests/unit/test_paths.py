"""Critical paths of trees."""

import pytest

from sojourn.paths import Critical, Paths, critical_path

CHAIN = {"a": ["source"], "b": ["a"], "out": ["b"]}
DIAMOND = {"a": ["source"], "left": ["a"], "right": ["a"], "out": ["left", "right"]}
LOOP = {"a": ["source", "b"], "b": ["a"]}


def test_a_chain_is_its_own_path() -> None:
    done = [(1.0, "a"), (3.0, "b"), (3.5, "out")]
    assert critical_path(0.5, done, CHAIN) == [("out", 0.5), ("b", 2.0), ("a", 0.5)]


def test_only_the_slower_branch_counts() -> None:
    done = [(1.0, "a"), (2.0, "left"), (2.1, "out"), (5.0, "right"), (5.2, "out")]
    path = critical_path(0.0, done, DIAMOND)
    assert [vertex for vertex, _ in path] == ["out", "right", "a"]
    assert sum(seconds for _, seconds in path) == pytest.approx(5.2)


def test_of_many_siblings_the_last_one_counts() -> None:
    done = [(1.0, "a"), *((2.0 + n, "b") for n in range(100)), (101.5, "out")]
    path = critical_path(0.0, done, CHAIN)
    assert path == [("out", 0.5), ("b", 100.0), ("a", 1.0)]


def test_a_loop_is_passed_as_often_as_it_was() -> None:
    done = [(1.0, "a"), (2.0, "b"), (3.0, "a"), (4.0, "b")]
    assert [vertex for vertex, _ in critical_path(0.0, done, LOOP)] == ["b", "a", "b", "a"]


def test_parts_are_per_tree_and_add_up() -> None:
    paths = Paths(DIAMOND)
    paths.add(0.0, [(1.0, "a"), (2.0, "left"), (4.0, "right")])
    paths.add(10.0, [(11.0, "a"), (13.0, "left"), (12.0, "right")])
    found = paths.collect()
    assert found == {
        "a": Critical(1.0, 1.0, 1.0),
        "left": Critical(0.5, 1.0, 2.0),
        "right": Critical(0.5, 1.5, 4.5),
    }
    assert sum(part.seconds for part in found.values()) == pytest.approx((4 + 3) / 2)
    assert paths.collect() == {}


def test_nothing_processed_is_no_path() -> None:
    assert critical_path(0.0, [], CHAIN) == []
