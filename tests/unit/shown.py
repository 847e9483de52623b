"""Ticks and boards for tests of what is shown."""

from dataclasses import replace
from typing import Any

from sojourn.dashboard.board import Board
from sojourn.dashboard.history import History
from sojourn.dashboard.tick import About, Decision, Edge, Forecast, Sojourn, Tick, Vertex

KINDS = {"in": "source", "check": "operator", "price": "operator", "out": "sink"}
EDGES = (
    Edge("in", "check", "check"),
    Edge("check", "price", "price"),
    Edge("price", "out", "out"),
    Edge("price", "check", "check[again]", feedback=True),
)
HOLD = Decision("hold", "mean sojourn 80 ms is within 200 ms", needed=5)


def about(**changes: Any) -> About:
    return replace(About("orders", "run", KINDS, EDGES), **changes)


def board(history: History | None = None, **changes: Any) -> Board:
    return Board(about(**changes), history)


def tick(number: int, mean_s: float = 0.08, **changes: Any) -> Tick:
    """A second in which all went well."""
    percents = tuple(float(p) for p in range(1, 100))
    made = Tick(
        number=number,
        time_s=float(number),
        interval_s=1.0,
        decision=HOLD,
        vertices={
            "in": Vertex(
                *(1, 1, 0.0, 50.0, None, 0),
                arrivals=50,
                served=50,
                lag_s=0.0,
                sent={"check": 50.0},
            ),
            "check": Vertex(3, 3, 0.5, 50.0, 0.03, 2, arrivals=50, served=50, share=0.4),
            "price": Vertex(
                *(2, 2, 0.8, 50.0, 0.032, 1),
                arrivals=50,
                served=49,
                share=0.6,
                shards={7: 12, 3: 5},
                sent={"out": 50.0, "check[again]": 5.0},
            ),
            "out": Vertex(1, 1, 0.0, 50.0, 1e-5, 0, arrivals=50, served=50),
        },
        wanted={"check": 3, "price": 2},
        sojourn=Sojourn(
            100, mean_s, 2 * mean_s, 3 * mean_s, 4 * mean_s, tuple((p, mean_s) for p in percents)
        ),
        value_s=mean_s,
        estimate_s=0.09,
        target_s=0.2,
        within_target=mean_s <= 0.2,
        load=50.0,
        forecast=Forecast(60.0, 10.0, "slope"),
        most=22,
        commits=number // 5,
    )
    return replace(made, **changes)


def added(processors: int = 4) -> Decision:
    """A change that was made."""
    return Decision(
        "add",
        "'check' cannot keep up",
        acts=True,
        applied=True,
        allocation={"check": processors, "price": 2},
        expected_s=0.1,
    )
