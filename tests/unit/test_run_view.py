"""What a terminal shows of a run: sojourn against target, processors, operators, and why."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from test_control import SHAPE, FakeEngine, OnePool

from sojourn.cli import sparkline
from sojourn.cli.run_view import LineView, LiveView
from sojourn.control.controller import Record
from sojourn.control.loop import ControlLoop
from sojourn.control.negotiator import Negotiator
from sojourn.settings import ControlSettings


def records() -> list[Record]:
    """Of a run whose load rises and falls."""
    engine = FakeEngine(rate=50)
    settings = ControlSettings(max_sojourn_s=0.1)
    control = ControlLoop(engine, SHAPE, settings, Negotiator(OnePool()))
    made = []
    for rate in (50, 110, 40):
        engine.rate = rate
        made += [control.tick() for _ in range(20)]
    return made


def screen(some: list[Record], width: int = 100, colours: bool = False) -> str:
    """All that a terminal is sent, or the last screen without colours."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=40, force_terminal=colours, _environ={})
    view = LiveView(console)
    with view:
        for record in some:
            view(record)
        if not colours:
            out.truncate(0)
            out.seek(0)
            console.print(view.screen)
            return out.getvalue()
    return out.getvalue()


def test_blocks_are_as_high_as_their_share_and_nothing_is_hidden() -> None:
    assert sparkline.bars([0, 1e-9, 4, 8, 99, None], 8) == " ▁▄██·"
    assert sparkline.bars([0.0, None], 0.0) == " ·"
    assert sparkline.against([0.1, 0.2, 0.3, 0.9, None], 0.2) == ("  ▄█ ", "▄███·")
    assert sparkline.meter(0.5, 4) == "██  "
    assert sparkline.meter(0.53, 4) == "██▏ "
    assert [sparkline.meter(share, 3) for share in (-1.0, 0.0, 1.0, 7.0)] == ["   ", "   "] + [
        "███"
    ] * 2


def test_the_screen_has_the_sojourn_against_its_target_and_the_processors() -> None:
    some = records()
    lines = screen(some).splitlines()
    charts = [line.partition("┤") for line in lines if "┤" in line]
    labels = [label.strip() for label, _, _ in charts]
    assert labels[:2] == ["200 ms", "target 100 ms"]
    over, under, processors = (blocks.ljust(len(some)) for _, _, blocks in charts)
    assert len(under.rstrip()) == len(some)
    for record, above, below in zip(some, over, under, strict=False):
        value = record.metric
        assert (below == "·") == (value is None)
        assert (above != " ") == (value is not None and value > 0.1)
        if above != " ":
            assert below == "█"
    assert re.fullmatch(r"\d+ processors", labels[2])
    counts = [sum(r.measure.operators[n].processors for n in r.wanted) for r in some if r.measure]
    assert labels[2] == f"{counts[-1]} processors"
    highest = [block for block, count in zip(processors[-len(counts) :], counts, strict=True)
               if count == max(counts)]  # fmt: skip
    assert set(highest) == {"▆"}


def test_the_screen_has_a_row_for_each_operator_and_says_why() -> None:
    some = records()
    shown = screen(some)
    last = some[-1]
    assert last.measure is not None
    for name, operator in last.measure.operators.items():
        (row,) = (line for line in shown.splitlines() if line.split()[:1] == [name])
        assert f"{operator.arrival_rate:.1f}" in row
        assert f"{operator.busy:.0%}" in row
    told = " ".join(shown.split())
    changes = [record for record in some if record.applied]
    assert changes
    for record in changes[-5:]:
        assert " ".join(record.decision.reason.split()) in told


@pytest.mark.parametrize("width", [40, 60, 100, 250])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, screen(records(), width).splitlines())) <= width


def test_without_a_target_the_sojourn_has_one_row() -> None:
    shown = screen(
        [replace(r, settings=replace(r.settings, max_sojourn_s=None)) for r in records()]
    )
    assert "target" not in shown
    assert shown.count("┤") == 2


def test_the_screen_keeps_its_height_and_is_drawn_in_one_go() -> None:
    """So nothing jumps, and nothing flickers."""
    some = records()
    console = Console(file=io.StringIO(), width=200, height=40, _environ={})
    view = LiveView(console)
    heights = set()
    for record in some:
        view(record)
        lines = console.render_lines(view.screen)
        heights.add(len(lines) - len(view.changes))
    assert len(heights) <= 2, "before the first measures, and after"
    sent = screen(some, colours=True)
    frames = sent.split("\x1b[?2026h")[1:]
    assert len(frames) == len(some)
    assert all(frame.count("\x1b[?2026l") == 1 for frame in frames)
    assert all("\x1b[2J" not in frame for frame in frames), "the screen is not cleared"


def test_before_the_first_interval_it_says_what_it_waits_for() -> None:
    out = io.StringIO()
    with LiveView(Console(file=out, width=80, height=20, force_terminal=True, _environ={})):
        assert "waiting for the first interval" in out.getvalue()


def test_utilization_is_told_by_colour_as_well() -> None:
    sent = screen(records(), colours=True)
    assert "\x1b[32m" in sent
    assert "\x1b[31m" in sent


def test_a_pipe_gets_a_line_for_each_interval() -> None:
    out = io.StringIO()
    some = records()
    with LineView(out) as view:
        for record in some:
            view(record)
    lines = out.getvalue().splitlines()
    assert len(lines) == len(some)
    assert "\x1b" not in out.getvalue()
    for line, record in zip(lines, some, strict=True):
        assert record.decision.reason in line
