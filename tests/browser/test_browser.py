"""The dashboard in a real browser, fed with ticks, a simulation's records, and a journal."""

import itertools
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from periods import journalled
from playwright.sync_api import Page, expect
from shown import HOLD, added, board, tick

import sojourn as sj
from sojourn.cli.dashboard import read_board
from sojourn.control.controller import shape_of
from sojourn.dashboard import app
from sojourn.dashboard.board import Board
from sojourn.dashboard.history import OLDER, RECENT, History, row_of
from sojourn.dashboard.server import Server
from sojourn.dashboard.tick import Part, Tick
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation
from sojourn.simulator import Distribution, OperatorLoad, Workload
from sojourn.views.records import Follower, about_of

Opened = Callable[..., Page]
ANY = "127.0.0.1:0"


def body(value: object) -> list[object]:
    return [value]


def simulated(journal: Path) -> Board:
    """A split, a join and a loop, for two minutes."""
    t = sj.Topology("orders")
    web = t.source("web", sj.sources.paced(lambda n: n, rate=60))
    parse = t.operator("parse", body, web)
    enrich = t.operator("enrich", body, parse)
    score = t.operator("score", body, parse["risky"])
    match = t.operator("match", body, enrich, score, key=lambda value: value)
    t.feedback(match["again"], parse)
    t.sink("store", sj.sinks.console(), match)
    gains = {
        "parse": {"enrich": 0.8, "score": 0.4},
        "match": {"parse": 0.1, "store": 0.9},
    }
    loads = {
        name: OperatorLoad(Distribution("exponential", 0.02), gains.get(name, {}))
        for name in t.operators
    }
    control = ControlSettings(max_sojourn_s=0.25)
    settings = (EngineSettings(), control, SimulatorSettings())
    simulation = Simulation(t, Workload(loads), settings, 120.0)
    shape = shape_of(t)
    made = Board(about_of(shape, "run"))
    simulation.run(journal=journal, listeners=[Follower(made, shape)])
    return made


def texts(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


def test_ticks_changes_and_restarts_are_seen_as_they_come(opened: Opened) -> None:
    b = board()
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator("#state")).to_have_text("Starting")
        expect(page.locator("#tiles")).to_contain_text("after the first interval")
        for number in range(1, 6):
            b.add(tick(number))
        expect(page.locator("#foot")).to_have_text("Tick 5")
        expect(page.locator("#state")).to_have_text("Live")
        expect(page.locator(".marks button")).to_have_count(0)
        b.add(tick(6, decision=added()))
        mark = page.locator('#sojourn .marks button[data-kind="change"]')
        expect(mark).to_have_count(1)
        expect(page.locator(".decisions li").first).to_contain_text("'check' cannot keep up")
        expect(page.locator("#said")).to_have_text("add: 'check' cannot keep up")
        expect(page.locator('g[data-name="check"]')).to_contain_text("× 3")
        mark.hover()
        expect(page.locator("#sojourn .tip")).to_contain_text("'check' cannot keep up")
        b.add(tick(7, restarts=1, vertices={}, sojourn=None, value_s=None, load=None))
        expect(page.locator('.marks button[data-kind="restart"]')).to_have_count(1)
        expect(page.locator('g[data-name="check"]')).to_contain_text("not there")
        b.add(tick(8, restarts=1, relocations=1))
        expect(page.locator('.marks button[data-kind="relocation"]')).to_have_count(1)
        expect(page.locator("#tiles")).to_contain_text("1 restart, 1 relocation, commit 1")
        page.locator(".decisions summary").first.click()
        expect(page.locator(".decisions table").first).to_contain_text("price")
        b.end()
        expect(page.locator("#state")).to_have_text("Ended")


def test_a_simulation_and_its_journal_are_drawn_from_left_to_right(
    opened: Opened, tmp_path: Path
) -> None:
    live = simulated(tmp_path / "journal.jsonl")
    recorded = read_board(tmp_path / "journal.jsonl")
    for b, state in ((live, "Live"), (recorded, "Recorded simulation")):
        with Server(b, ANY) as server:
            page = opened(server.url)
            expect(page.locator("#state")).to_have_text(state)
            boxes = {}
            for name in b.about.kinds:
                box = page.locator(f'g[data-name="{name}"] .box').bounding_box()
                assert box is not None
                boxes[name] = box
            for edge in b.about.edges:
                sender, receiver = boxes[edge.sender], boxes[edge.receiver]
                forward = sender["x"] + sender["width"] < receiver["x"]
                assert forward != edge.feedback, edge
                path = f'path[data-from="{edge.sender}"][data-to="{edge.receiver}"]'
                classes = page.locator(path).first.get_attribute("class") or ""
                assert ("feedback" in classes) == edge.feedback
            assert boxes["enrich"]["x"] == boxes["score"]["x"], "the split is side by side"
            label = page.locator('g[data-name="match"]').get_attribute("aria-label") or ""
            assert "% busy" in label
            assert "of the sojourn" in label
            expect(page.locator(".answer b")).to_contain_text("processors")
            expect(page.locator(".shards i").first).to_be_visible()


def test_the_keyboard_reaches_what_the_mouse_does(opened: Opened, tmp_path: Path) -> None:
    with Server(simulated(tmp_path / "journal.jsonl"), ANY) as server:
        page = opened(server.url)
        expect(page.locator(".answer b")).to_contain_text("processors")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        before = page.locator(".answer b").text_content()
        page.locator("#load-knob").focus()
        for _ in range(30):
            page.keyboard.press("ArrowRight")
        expect(page.locator(".answer b")).not_to_have_text(before or "")
        expect(page.locator(".knob output").nth(1)).to_contain_text("2 ×")
        page.locator('g[data-name="parse"]').focus()
        page.keyboard.press("Enter")
        expect(page.locator("#executors select")).to_have_value("parse")
        page.locator("#ranges button").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#ranges button").first).to_have_attribute("aria-pressed", "true")


def test_a_page_after_a_day_of_ticks_has_few_points(opened: Opened) -> None:
    b = board()
    row = row_of(tick(1), b.names)
    for second in range(1, 86_400):
        b.history.add(replace(row, time_s=float(second)))
    b.add(tick(86_400))
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator("#foot")).to_have_text("Tick 86,400")
        told = page.request.get(f"{server.url}api/v1/samples").body()
        assert len(told) < 2_000_000
        points = page.evaluate(
            "fetch('api/v1/samples').then(r => r.json()).then(s => s.history.time.length)"
        )
        assert 1000 < points <= RECENT + OLDER + 1
        b.add(tick(86_401, decision=added()))
        expect(page.locator("#foot")).to_have_text("Tick 86,401")
        expect(page.locator(".marks button")).to_have_count(1)


def test_a_page_that_is_told_everything_anew_stays_as_it_is(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_ANEW", 5)
    b = board()
    hold, wait = HOLD, replace(HOLD, action="wait")
    b.add(tick(1, decision=added()))
    with Server(b, ANY) as server:
        page = opened(server.url)
        page.locator(".decisions summary").first.click()
        expect(page.locator(".decisions table")).to_have_count(1)
        for number in range(2, 40):
            b.add(tick(number, decision=wait if number % 3 else hold))
            expect(page.locator("#foot")).to_have_text(f"Tick {number}")
        # One after the other, whatever they are called, they are one entry.
        expect(page.locator(".decisions li")).to_have_count(2)
        expect(page.locator(".decisions li").first).to_contain_text("38 × since")
        expect(page.locator(".decisions details[open] table")).to_have_count(1)


def test_a_page_that_was_open_for_long_stays_small(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_ANEW", 50)
    nodes = "document.querySelectorAll('*').length"
    b = board(History(recent=100, older=100))
    b.add(tick(1))
    with Server(b, ANY) as server:
        page = opened(server.url)
        counts = []
        for number in range(2, 2002):
            b.add(tick(number, decision=added() if number % 2 else HOLD))
            if number % 20 == 0:  # as many as there are, but no more than a page keeps up with
                expect(page.locator("#foot")).to_have_text(f"Tick {number:,}")
            if number % 500 == 0:
                counts.append(page.evaluate(nodes))
        expect(page.locator("#foot")).to_have_text("Tick 2,001")
        expect(page.locator(".decisions li")).to_have_count(120)
        assert page.locator(".marks button").count() <= 80
        assert page.evaluate(f"{nodes}") < 1.1 * counts[0] < 4000
        page.locator("#decisions .more").click()
        expect(page.locator(".decisions li")).to_have_count(240)


@pytest.mark.parametrize(
    ("problem", "state"), [("'check' divided by zero", "Failed"), ("", "Ended")]
)
def test_how_it_ended_stays_when_the_server_has_gone(
    opened: Opened, problem: str, state: str
) -> None:
    b = board()
    b.add(tick(1))
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator("#state")).to_have_text("Live")
        with page.expect_event(
            "requestfailed", lambda request: "events" in request.url, timeout=20_000
        ):  # it asks again, in vain
            b.end(problem)
            server.close()
    expect(page.locator("#state")).to_have_text(state)
    if problem:
        expect(page.locator("#banner")).to_have_text(f"The topology has failed: {problem}")
    else:
        expect(page.locator("#banner")).to_be_hidden()


def test_a_mark_leads_to_its_decision_or_the_nearest(opened: Opened) -> None:
    b = board()
    for number in range(1, 401):
        b.add(tick(number, decision=added() if number % 2 else HOLD, commits=0))
    b.add(tick(401, decision=HOLD, commits=0, target_s=0.3))
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator(".decisions li")).to_have_count(120)
        page.locator('#sojourn .marks button[data-key="change 243"]').focus()
        page.keyboard.press("Enter")
        expect(page.locator(".decisions li:focus")).to_contain_text("add")
        assert page.locator(".decisions li").count() > 120
        page.locator('#sojourn .marks button[data-kind="target"]').click()
        expect(page.locator(".decisions li:focus")).to_contain_text("hold")
        # Nothing that can be reached lies within what is but a picture.
        assert page.locator(".chart button").count() == 0


def test_one_mark_is_reached_by_tab_and_the_others_by_arrows(opened: Opened) -> None:
    b = board()
    for number in range(1, 200):
        b.add(tick(number, decision=added() if number > 1 else HOLD, restarts=number // 5))
    with Server(b, ANY) as server:
        page = opened(server.url)
        marks = page.locator("#sojourn .marks button")
        expect(marks).to_have_count(80)
        expect(page.locator("#sojourn .unit")).to_contain_text("signs of 80 of 237 changes")
        # Those that are rare come first, also where they are old.
        expect(page.locator('#sojourn .marks button[data-kind="restart"]')).to_have_count(39)
        stop = page.locator('#sojourn .marks button[tabindex="0"]')
        expect(stop).to_have_count(1)
        stop.focus()
        page.keyboard.press("Home")
        expect(page.locator(".marks button:focus")).to_have_attribute("data-key", "restart 5")
        page.keyboard.press("ArrowRight")
        expect(page.locator(".marks button:focus")).to_have_attribute("data-key", "restart 10")
        expect(stop).to_have_count(1)
        expect(page.locator("#sojourn .tip")).to_contain_text("restart 2")
        narrow = opened(server.url, width=390)
        expect(narrow.locator("#foot")).to_have_text("Tick 199")
        lefts = sorted(
            float(one)
            for one in narrow.evaluate(
                "[...document.querySelectorAll('#sojourn .marks button')]"
                ".map(e => parseFloat(e.style.left))"
            )
        )
        assert len(lefts) > 5
        assert min(b - a for a, b in itertools.pairwise(lefts)) >= 24


def test_a_chart_is_read_by_keys(opened: Opened) -> None:
    b = board()
    for number in range(1, 41):
        b.add(tick(number, load=100.0 + number))
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator("#foot")).to_have_text("Tick 40")
        chart = page.get_by_role("slider", name="Load over time")
        legend = page.locator("#load .keys")
        page.locator("#decisions .decisions").focus()
        while not chart.evaluate("e => e === document.activeElement"):
            page.keyboard.press("Tab")
        expect(legend).to_contain_text("came 140/s")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        expect(legend).to_contain_text("came 138/s")
        page.keyboard.press("PageDown")
        expect(chart).to_have_attribute("aria-valuetext", re.compile("^came 128/s, .*[0-9]$"))
        then = page.locator("#load .keys .at").text_content() or ""
        assert then
        expect(page.locator("#sojourn .keys .at")).to_have_text(then)
        b.add(tick(41, load=141.0))
        expect(page.locator("#foot")).to_have_text("Tick 41")
        expect(legend).to_contain_text("came 128/s")  # new figures take nothing away
        page.keyboard.press("Home")
        expect(legend).to_contain_text("came 101/s")
        page.keyboard.press("End")
        expect(legend).to_contain_text("came 141/s")
        page.keyboard.press("Home")
        page.keyboard.press("Tab")
        expect(legend).to_contain_text("came 141/s")
        expect(page.locator("#load .keys .at")).to_be_empty()


def test_silence_is_told(opened: Opened) -> None:
    """A stream that hangs makes no error."""
    later = "Date.now = () => {0} + 40_000; document.dispatchEvent(new Event('visibilitychange'))"
    b = board()
    b.add(tick(1))
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator("#state")).to_have_text("Live")
        page.evaluate(later.format("performance.timeOrigin + performance.now()"))
        expect(page.locator("#state")).to_have_text("No news")
        expect(page.locator("#banner")).to_contain_text("The last figures are from")
        b.add(tick(2))
        expect(page.locator("#state")).to_have_text("Live")
        expect(page.locator("#banner")).to_be_hidden()


def test_figures_that_are_old_when_the_page_is_opened_are_not_live(opened: Opened) -> None:
    b = board(began_s=time.time() - 3600)
    b.add(tick(1))
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator("#state")).to_have_text("No news")
        b.add(tick(3600))
        expect(page.locator("#state")).to_have_text("Live")


def test_tuples_that_are_lost_are_seen(opened: Opened) -> None:
    b = board()
    made = tick(1)
    check = replace(made.vertices["check"], dropped=12, shed=3)
    b.add(replace(made, vertices={**made.vertices, "check": check}))
    b.add(tick(2))  # which loses none
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator("#tiles")).to_contain_text("12 dropped, 3 shed")
        expect(page.locator('g[data-name="check"] .lost')).to_have_text("15 lost")
        label = page.locator('g[data-name="check"]').get_attribute("aria-label") or ""
        assert "12 dropped, 3 shed" in label
        expect(page.locator('g[data-name="price"] .lost')).to_have_count(0)


def test_without_a_target_what_is_asked_for_stays_put(opened: Opened, tmp_path: Path) -> None:
    b = simulated(tmp_path / "journal.jsonl")
    last = b.tick
    assert last is not None
    b.add(replace(last, number=last.number + 1, target_s=None, value_s=0.1))
    with Server(b, ANY) as server:
        page = opened(server.url)
        told = page.locator(".knob output").first
        expect(told).to_have_text("none; now 100 ms")
        page.locator("#target-knob").focus()
        page.keyboard.press("ArrowRight")
        expect(told).to_have_text("102 ms")
        b.add(replace(last, number=last.number + 2, target_s=None, value_s=0.2))
        expect(page.locator("#foot")).to_have_text(f"Tick {last.number + 2}")
        expect(told).to_have_text("102 ms")


def test_what_ended_before_its_first_interval_says_so(opened: Opened) -> None:
    b = board()
    b.end("'check' is not there")
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator("#tiles")).to_contain_text("No interval was measured")
        expect(page.locator("#decisions .empty")).to_have_text("There were none.")


def test_what_if_is_read_out_only_when_asked_for(opened: Opened, tmp_path: Path) -> None:
    with Server(simulated(tmp_path / "journal.jsonl"), ANY) as server:
        page = opened(server.url)
        expect(page.locator(".answer b")).to_contain_text("processors")
        assert page.locator(".answer[role], .answer [role], .answer[aria-live]").count() == 0
        expect(page.locator("#said")).to_have_text("")
        page.locator("#load-knob").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#said")).to_contain_text("processors")


def test_scrolling_sideways_outlasts_a_tick(opened: Opened) -> None:
    state: dict[str, Any] = {
        "state": 10_000_000,
        "moves": 3,
        "moved": 100_000,
        "machines": {"a": 2, "b": 1},
    }
    parts = tuple(Part(number, 3, 0.5, 50, 0.2, **state) for number in range(4))
    b = board()

    def at(number: int) -> Tick:
        made = tick(number)
        check = replace(made.vertices["check"], parts=parts)
        return replace(made, vertices={**made.vertices, "check": check})

    b.add(at(1))
    with Server(b, ANY) as server:
        page = opened(server.url, width=390)
        expect(page.locator("#executors tbody tr:last-child")).to_contain_text("a × 2; b × 1")
        page.evaluate("document.querySelector('#executors .over').scrollLeft = 40")
        b.add(at(2))
        expect(page.locator("#foot")).to_have_text("Tick 2")
        assert page.evaluate("document.querySelector('#executors .over').scrollLeft") == 40


def test_a_zoom_ends_with_its_topology(opened: Opened) -> None:
    first, second = board(), board(name="returns")
    for b in (first, second):
        for number in range(1, 20):
            b.add(tick(number))
    with Server(first, ANY) as server:
        address = server.url.removeprefix("http://").rstrip("/")
        page = opened(server.url)
        expect(page.locator("#foot")).to_have_text("Tick 19")
        box = page.locator("#sojourn .u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 50, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 50, steps=4)
        page.mouse.up()
        expect(page.locator("#ranges [aria-pressed=true]")).to_have_count(0)
    with Server(second, address):
        expect(page.locator("#name")).to_have_text("returns", timeout=20_000)
        expect(page.locator("#ranges [aria-pressed=true]")).to_have_text("All")


def test_an_attached_query_is_shown_in_its_own_words(opened: Opened, tmp_path: Path) -> None:
    with Server(read_board(journalled(tmp_path / "journal.jsonl", 0.5)), ANY) as server:
        page = opened(server.url)
        expect(page.locator("#state")).to_have_text("Recorded attached query")
        expect(page.locator("#tiles")).to_contain_text("Spark executors")
        expect(page.locator("#tiles")).not_to_contain_text("commit")
        expect(page.locator("#load .unit")).to_have_text("rows per second")
        for hidden in ("#whatif", "#executors"):
            expect(page.locator(hidden)).to_be_hidden()
        query = page.locator('g[data-name="query"]')
        expect(query).to_have_attribute("role", "img")
        expect(query).to_have_attribute("aria-label", re.compile("Spark executors"))
        page.locator(".decisions summary").first.click()
        expect(page.locator(".decisions table")).to_have_count(1)
        assert "processors" not in page.locator("main").inner_text()
        # What stands in for a line that is not there yet lies within the chart.
        inside = page.locator("#sojourn .chart").bounding_box()
        words = page.locator("#sojourn .empty").bounding_box()
        assert inside is not None
        assert words is not None
        assert inside["y"] < words["y"] < inside["y"] + inside["height"] - words["height"]


def test_a_profile_goes_in_rounds(opened: Opened) -> None:
    b = board(source="profile", across="round")
    b.add(tick(3, decision=added()))
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator(".decisions li")).to_contain_text("round 3")
        expect(page.locator("#ranges")).to_be_hidden()
        expect(page.locator("#executors")).to_be_hidden()
        expect(page.locator("#tiles")).to_contain_text("Carried")


def test_times_of_other_days_have_a_date(opened: Opened) -> None:
    b = board(began_s=1_000_000_000.0)
    for number in range(1, 4):
        b.add(tick(number))
    with Server(b, ANY) as server:
        page = opened(server.url)
        expect(page.locator(".decisions .when").first).to_have_text(
            re.compile(r"since Sep \d+, \d\d:\d\d:\d\d")
        )


def test_nothing_is_left_of_a_topology_when_another_has_told_nothing_yet(
    opened: Opened, tmp_path: Path
) -> None:
    with Server(simulated(tmp_path / "journal.jsonl"), ANY) as server:
        address = server.url.removeprefix("http://").rstrip("/")
        page = opened(server.url)
        expect(page.locator(".answer b")).to_contain_text("processors")
        page.locator("#load-knob").focus()
        page.keyboard.press("ArrowRight")
        for chart in ("sojourn", "processors", "load"):
            expect(page.locator(f"#{chart} .keys")).not_to_be_empty()
    with Server(board(name="returns"), address):
        expect(page.locator("#name")).to_have_text("returns", timeout=20_000)
        for chart in ("sojourn", "processors", "load"):
            expect(page.locator(f"#{chart} .keys")).to_be_empty()
        for empty in (".answer", ".bars", "output[for=load-knob]"):
            expect(page.locator(empty)).to_have_text("")
        expect(page.locator("#load-knob")).to_have_value("0")
        expect(page.locator("#executors .body")).to_contain_text("come after the first interval")
        assert "parse" not in page.locator("#main").inner_text()


def test_a_page_comes_back_with_the_next_start(opened: Opened) -> None:
    first, second = board(), board()
    first.add(tick(1))
    second.add(tick(2))
    with Server(first, ANY) as server:
        address = server.url.removeprefix("http://").rstrip("/")
        page = opened(server.url)
        expect(page.locator("#foot")).to_have_text("Tick 1")
    expect(page.locator("#state")).to_have_text("Connection lost")
    expect(page.locator("#banner")).to_contain_text("trying again")
    with Server(second, address):
        expect(page.locator("#foot")).to_have_text("Tick 2", timeout=20_000)
        expect(page.locator("#state")).to_have_text("Live")
        expect(page.locator("#banner")).to_be_hidden()


def test_it_fits_a_phone_in_the_dark(opened: Opened) -> None:
    b = board()
    for number in range(1, 40):
        b.add(tick(number, decision=added(number)))
    with Server(b, ANY) as server:
        page = opened(server.url, width=390, scheme="dark")
        expect(page.locator("#foot")).to_have_text("Tick 39")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(14, 19, 26)"
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, input, select, [role=img], [tabindex]')]"
            ".filter(e => !e.textContent.trim() && !e.getAttribute('aria-label')"
            " && !e.labels?.length && e.id !== 'main').length"
        )
        assert unnamed == 0
