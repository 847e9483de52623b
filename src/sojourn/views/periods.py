"""Periods of an attached query as ticks: its Spark executors are what is allocated, and the latency
of rows is the sojourn. Fed by its journal; feeds a board."""

from collections.abc import Iterable

from sojourn.attached.journal import Header, Period
from sojourn.dashboard import tick as shown
from sojourn.dashboard.board import Board

_ROWS, _QUERY = "rows", "query"


def board_of(header: Header, periods: Iterable[Period]) -> Board:
    """A board with all periods of a journal."""
    board: Board | None = None
    before: Period | None = None
    first_s, runs = 0.0, 0
    for period in periods:
        if board is None:
            first_s = period.seen.time_s - header.wish.options.period_s
            board = Board(_about(header, first_s))
        new = before is not None and period.seen.run not in ("", before.seen.run)
        runs += new
        board.add(_tick(header, period, first_s, runs))
        before = period
    return Board(_about(header, None)) if board is None else board


def _about(header: Header, began_s: float | None) -> shown.About:
    return shown.About(
        name=header.query,
        source="attached query",
        kinds={_ROWS: "source", _QUERY: "operator"},
        edges=(shown.Edge(_ROWS, _QUERY, _QUERY),),
        unit="executors",
        began_s=began_s,
    )


def _tick(header: Header, period: Period, first_s: float, restarts: int) -> shown.Tick:
    seen, decision, wish = period.seen, period.decision, header.wish
    rates = seen.rates
    wanted = seen.executors if decision.executors is None else decision.executors
    acts = wanted != (seen.asked or seen.executors)
    if decision.executors is None:
        action = "hold" if rates is not None else "not ready"
    else:
        action = "hold" if not acts else "add" if wanted > seen.executors else "remove"
    latency_s = None if rates is None else rates.latency_s
    busy = 0.0 if rates is None or rates.idle is None else 1 - rates.idle
    load = None if rates is None else rates.input
    expected = None
    if seen.batches is not None and load is not None:
        expected = seen.batches.steady(load, wanted * seen.slots)
    limit_s = wish.max_latency_s
    return shown.Tick(
        number=period.number,
        time_s=seen.time_s - first_s,
        interval_s=wish.options.period_s,
        decision=shown.Decision(
            action=action,
            reason=decision.why,
            acts=acts and decision.executors is not None,
            applied=period.applied,
            allocation=None if decision.executors is None else {_QUERY: decision.executors},
            expected_s=None if expected is None else expected.worst_s,
            needed=decision.executors,
        ),
        vertices={
            _ROWS: shown.Vertex(1, 1, 0.0, load, None, 0, sent={_QUERY: load or 0.0}),
            _QUERY: shown.Vertex(
                processors=seen.executors,
                wanted=wanted,
                busy=busy,
                rate=load,
                service_s=None,
                queue=0 if rates is None else round(rates.waiting),
                share=1.0,
            ),
        },
        wanted={_QUERY: seen.asked or seen.executors},
        sojourn=None
        if latency_s is None
        else shown.Sojourn(1, latency_s, None, None, latency_s, ((100.0, latency_s),)),
        value_s=latency_s,
        estimate_s=None if expected is None else expected.worst_s,
        target_s=limit_s,
        within_target=None if latency_s is None or limit_s is None else latency_s <= limit_s,
        load=load,
        most=wish.most,
        restarts=restarts,
        note=period.note,
    )
