"""How many machines a topology begins with, and may have."""

from typing import Any

import pytest

import sojourn as sj
from sojourn.engine.driver.machines import first_machines
from sojourn.ports import machines_within
from sojourn.settings import ControlSettings


def same(value: Any) -> list[Any]:
    return [value]


@pytest.mark.parametrize(
    ("processors", "cores", "most", "machines"),
    [
        (4, 10, None, 1),
        (17, 10, None, 4),  # of five processors each
        (17, 10, 2, 2),
        (4, 2, None, 2),  # four task slots
        (17, 2, 1, 2),
    ],
)
def test_machines_to_begin_with(
    processors: int, cores: int, most: int | None, machines: int
) -> None:
    t = sj.Topology("row")
    source = t.source("in", sj.sources.iterable(lambda: range(3)))
    t.sink("out", sj.sinks.console(), t.operator("work", same, source, processors=processors))
    settings = ControlSettings(
        max_sojourn_s=1.0, machine_processors=5, machine_cores=cores, max_machines=most
    )
    assert first_machines(t, settings) == machines


@pytest.mark.parametrize(
    ("asked", "least", "most", "machines"),
    [
        (5, 1, None, 5),
        (5, 1, 3, 3),
        (1, 2, None, 2),
        (1, 2, 3, 2),
        (5, 4, 3, 4),  # what the topology cannot do without counts for more
    ],
)
def test_machines_that_may_be_had(asked: int, least: int, most: int | None, machines: int) -> None:
    assert machines_within(asked, least, most) == machines
