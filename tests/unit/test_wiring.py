"""The way in: what is wrong with the options of `start` and `run` is told before Spark starts."""

import re
from pathlib import Path
from typing import Any

import pytest

import sojourn as sj
from sojourn.errors import InputError


def topology() -> sj.Topology:
    t = sj.Topology("t")
    numbers = t.source("numbers", sj.sources.iterable(lambda: range(3)))
    t.sink("out", sj.sinks.console(), t.map("same", int, numbers))
    return t


@pytest.mark.parametrize("way_in", [sj.start, sj.run])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"maxsojourn": "1s"}, "there is no option 'maxsojourn'; did you mean 'max_sojourn'?"),
        ({"foo": 1}, "there is no option 'foo'; known are topology, "),
        ({"spark": "local"}, "spark: must be a SparkSession of this process; got 'local'; a mast"),
        ({"master": 3}, "master: must be text, such as 'local[4]'; got 3"),
        ({"checkpoint": 3}, "checkpoint: must be a path, as text or a pathlib.Path; got 3"),
        ({"journal": 3, "max_sojourn": 1}, "journal: must be a path"),
        ({"percentile": 99}, "needs a target; give max_sojourn or max_processors"),
        ({"min_sojourn": "1s"}, "needs a target; give max_sojourn or max_processors"),
        ({"settings": {"percentile": 99}}, "needs a target; give max_sojourn or max_processors"),
        ({"settings": {"dashboard": "on"}}, "dashboard: shows what the control loop sees, which"),
        ({"settings": {"dashboard": "a:b", "maxSojourn": 1}}, "must be HOST:PORT such as"),
        ({"advise": True}, "needs a target; give max_sojourn or max_processors"),
        ({"journal": "journal.jsonl"}, "needs a target; give max_sojourn or max_processors"),
    ],
)
def test_a_wrong_option_is_told(way_in: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        way_in(topology(), **options)


@pytest.mark.parametrize("way_in", [sj.start, sj.run])
def test_what_is_no_topology_is_told(way_in: Any) -> None:
    with pytest.raises(InputError, match=r"start: needs a sojourn\.Topology; got 't'"):
        way_in("t")
    with pytest.raises(InputError, match="topology 'empty': has no source"):
        way_in(sj.Topology("empty"))


def test_state_is_read_from_a_path(tmp_path: Path) -> None:
    wrong: Any = 3
    with pytest.raises(InputError, match="read_state: the checkpoint: must be a path"):
        sj.read_state(wrong, "same")
    with pytest.raises(InputError, match="is not a checkpoint of a topology"):
        sj.read_state(tmp_path, "same")


def test_kinds_of_machines_are_refused_where_machines_are_alike() -> None:
    settings = {"policy": "provision", "provision.kinds": "small=1:1"}
    with pytest.raises(InputError, match=r"provision\.kinds is for simulations"):
        sj.start(topology(), max_sojourn="1s", settings=settings)
