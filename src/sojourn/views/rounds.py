"""Rounds of profiling as ticks: each trial with what it carried, and what the method made of it.
Fed by the file that keeps them; feeds a board."""

from collections.abc import Sequence

from sojourn.dashboard import tick as shown
from sojourn.dashboard.board import Board
from sojourn.profiler.rounds import Round
from sojourn.profiler.trial import Seen


def board_of(name: str, rounds: Sequence[Round]) -> Board:
    """A board with all rounds."""
    board = Board(_about(name, rounds))
    for one in rounds:
        board.add(_tick(one, board.about))
    return board


def _about(name: str, rounds: Sequence[Round]) -> shown.About:
    seen = rounds[-1].measured.seen if rounds else {}
    names = {n: {to.partition("[")[0]: to for to in one.emitted} for n, one in seen.items()}
    sinks = [to for onward in names.values() for to in onward if to not in seen]
    parts = rounds[-1].proposal.parallelism.parts if rounds else {}
    operators = rounds[-1].proposal.parallelism.processors if rounds else {}
    kinds = {name: "source" for name in [*parts, *seen] if name not in operators}
    kinds |= dict.fromkeys(operators, "operator") | dict.fromkeys(sinks, "sink")
    return shown.About(
        name=name,
        source="profile",
        kinds=kinds,
        edges=tuple(
            shown.Edge(sender, receiver, output)
            for sender, onward in names.items()
            for receiver, output in onward.items()
        ),
        across="round",
    )


def _tick(one: Round, about: shown.About) -> shown.Tick:
    measured, proposal = one.measured, one.proposal
    processors = dict(proposal.parallelism.processors)
    sound = "" if measured.sound else "; its readings scatter too much"
    return shown.Tick(
        number=one.number,
        time_s=float(one.number),
        interval_s=1.0,
        decision=shown.Decision(
            action="keep" if one.verdict.kept else "drop",
            reason=f"{proposal.why} → {one.verdict.why}{sound}",
            acts=one.verdict.kept,
            applied=one.verdict.kept,
            allocation=processors,
        ),
        vertices={
            name: _vertex(measured.seen.get(name), processors.get(name, 1)) for name in about.kinds
        },
        wanted=processors,
        sojourn=shown.Sojourn(1, measured.latency_s, None, None),
        value_s=measured.latency_s,
        load=measured.throughput,
    )


def _vertex(seen: Seen | None, processors: int) -> shown.Vertex:
    if seen is None:
        return shown.Vertex(processors, processors, 0.0, None, None, 0)
    return shown.Vertex(
        processors=seen.tasks,
        wanted=processors,
        busy=seen.capacity,
        rate=seen.arrivals,
        service_s=seen.service_s,
        queue=0,
        service_scv=seen.service_scv,
        sent={name: seen.served * count for name, count in seen.emitted.items()},
    )
