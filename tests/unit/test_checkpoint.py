"""A checkpoint belongs to one topology, and to one run at a time."""

from pathlib import Path

import pytest

import sojourn as sj
from sojourn.engine.driver.checkpoint import claim, next_epoch
from sojourn.errors import InputError


def topology(shards: int = 4, name: str = "count", executors: int = 1) -> sj.Topology:
    t = sj.Topology("words")
    source = t.source("lines", sj.sources.iterable(lambda: ["a"]))
    count = t.operator(
        name, str.split, source, key=lambda word: word, shards=shards, executors=executors
    )
    t.sink("out", sj.sinks.console(), count)
    return t


def test_a_checkpoint_is_one_runs_at_a_time(tmp_path: Path) -> None:
    first = claim(tmp_path, topology())
    with pytest.raises(InputError, match="another run uses it"):
        claim(tmp_path, topology())
    first.close()
    again = claim(tmp_path, topology(executors=2))  # that may change
    again.close()
    assert again.name == first.name
    other = claim(tmp_path / "other", topology())
    other.close()
    assert other.name != first.name


def test_a_topology_that_cannot_take_up_the_state_is_refused(tmp_path: Path) -> None:
    claim(tmp_path, topology()).close()
    with pytest.raises(
        InputError,
        match=r"vertex 'count' is an operator with 4 shards there and an operator with 8 shards",
    ):
        claim(tmp_path, topology(shards=8))
    with pytest.raises(InputError, match=r"vertex 'count' is an operator with 4 .* and missing in"):
        claim(tmp_path, topology(name="other"))
    looped = topology()
    looped.feedback(
        sj.topology.Vertex(looped, "count", "again"), sj.topology.Vertex(looped, "count")
    )
    with pytest.raises(InputError, match=r"feedback 'count'\['again'\] → 'count' is missing there"):
        claim(tmp_path, looped)
    claim(tmp_path, topology()).close()  # a refusal leaves it as it was


def test_every_start_has_a_number_of_its_own(tmp_path: Path) -> None:
    claim(tmp_path, topology()).close()
    assert [next_epoch(tmp_path) for _ in range(3)] == [0, 1, 2]
