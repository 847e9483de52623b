"""What the dashboard costs: the CPU time of the process that serves it, with one page open, at one
tick a second, beside the same ticks without it.

    python benchmarks/dashboard.py [--seconds 60] [--browser PATH]

A topology with a split, a join and a loop is simulated beforehand. Its records are then fed to a
board, one a second, in a process of their own that does nothing else: with the server and one page
open in a Chromium, and without a server. Metrics are scraped every 15 s, as Prometheus does. The
difference is the cost. The page's own work is in the browser, and is told as well.

The history, the list of decisions and the marks are full from the beginning. In the middle of the
measured time the page is told everything anew. That happens every 900 ticks otherwise, so a minute
shows more of it than a day does.

Rule: with a page open the process takes at most 2 % of a core more than without, over at least a
minute, after 5 s in which the page loads. The benchmark exits with 1 if it takes more.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import sojourn as sj
from sojourn.control.controller import Record, shape_of
from sojourn.dashboard import app
from sojourn.dashboard.board import Board
from sojourn.dashboard.history import OLDER, RECENT
from sojourn.dashboard.server import Server
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation
from sojourn.simulator import Distribution, OperatorLoad, Workload
from sojourn.topology import Topology
from sojourn.views.records import Follower, about_of, tick_of

BOUND = 0.02  # of a core
LOADING_S = 5.0
SCRAPE_S = 15
BEFORE_S = 120  # of records before the page, as many as the model looks at
FULL = RECENT + OLDER  # ticks before those: the page begins with all that is ever remembered


def topology() -> Topology:
    """Two sources, five operators, a loop."""
    t = sj.Topology("orders")
    web = t.source("web", sj.sources.paced(lambda n: n, rate=60))
    shops = t.source("shops", sj.sources.paced(lambda n: n, rate=40))
    parse = t.operator("parse", lambda n: [n], web, shops)
    enrich = t.operator("enrich", lambda n: [n], parse)
    score = t.operator("score", lambda n: [n], parse["risky"])
    match = t.operator("match", lambda n: [n], enrich, score, key=lambda n: n)
    t.feedback(match["again"], enrich)
    t.sink("store", sj.sinks.console(), match)
    return t


def simulated(t: Topology, seconds: float) -> list[Record]:
    """The records of so many seconds of control."""
    gains = {
        "parse": {"enrich": 0.8, "score": 0.4},
        "match": {"enrich": 0.1, "store": 0.9},
    }
    loads = {
        name: OperatorLoad(Distribution("exponential", 0.02), gains.get(name, {}))
        for name in t.operators
    }
    settings = EngineSettings(), ControlSettings(max_sojourn_s=0.25), SimulatorSettings()
    records: list[Record] = []
    Simulation(t, Workload(loads), settings, seconds).run(listeners=[records.append])
    return [record for record in records if not record.pressures]


def serve(seconds: float, with_server: bool) -> None:
    """What the process that is measured does: prints the page's address, waits for a line, feeds
    ticks, and prints the share of a core that it took."""
    t = topology()
    records = simulated(t, BEFORE_S + LOADING_S + seconds + 10)
    shape = shape_of(t)
    board = Board(about_of(shape, "run"))
    fill(board, records[0])
    records = [replace(record, number=record.number + FULL) for record in records]
    follower = Follower(board, shape)
    follower.first_s = records[0].time_s - FULL - 1.0
    app._ANEW = int(LOADING_S + seconds / 2)
    for record in records[:BEFORE_S]:
        follower(record)
    with ExitStack() as stack:
        url = stack.enter_context(Server(board, "127.0.0.1:0")).url if with_server else "-"
        print(url, flush=True)
        sys.stdin.readline()
        began_s, cpu_s = time.monotonic() + LOADING_S, 0.0
        due_s = time.monotonic()
        for number, record in enumerate(records[BEFORE_S:]):
            due_s += 1.0
            time.sleep(max(0.0, due_s - time.monotonic()))
            if not cpu_s and time.monotonic() >= began_s:
                began_s, cpu_s = time.monotonic(), time.process_time()
            if cpu_s and time.monotonic() >= began_s + seconds:
                break
            if with_server:
                follower(record)
            if with_server and number % SCRAPE_S == 0:
                scrape(url)
        took_s = time.process_time() - cpu_s
        print(took_s / (time.monotonic() - began_s), flush=True)


def fill(board: Board, record: Record) -> None:
    """With as many ticks as it remembers, a change every ten and a commit every five."""
    hold = tick_of(record, record.time_s)
    change = replace(hold.decision, action="add", reason=32 * "why ", acts=True, applied=True)
    for number in range(1, FULL + 1):
        decision = hold.decision if number % 10 else change
        board.add(
            replace(
                hold,
                number=number,
                time_s=float(number),
                commits=number // 5,
                decision=decision,
            )
        )


def scrape(url: str) -> None:
    """As Prometheus does; done here, so its own cost counts too."""
    with urllib.request.urlopen(f"{url}metrics", timeout=5) as answer:
        answer.read()


def measured(seconds: float, browser: str | None) -> tuple[float, float]:
    """The share of a core of the process, and of the browser."""
    command = [sys.executable, __file__, "--seconds", str(seconds)]
    command += ["--serve"] if browser else ["--bare"]
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        shown = 0.0
        if browser is not None:
            from playwright.sync_api import sync_playwright

            playwright = stack.enter_context(sync_playwright())
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            stack.callback(chromium.close)
            page = chromium.new_page()
            page.goto(url)
            page.wait_for_selector("#graph .vertex")
            # Of the page's own thread, by the browser's count.
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable")
            process.stdin.write("\n")
            process.stdin.flush()
            page.wait_for_timeout(1000 * LOADING_S)
            before = task_s(session.send("Performance.getMetrics"))
            page.wait_for_timeout(1000 * (seconds - 2))
            shown = (task_s(session.send("Performance.getMetrics")) - before) / (seconds - 2)
        else:
            process.stdin.write("\n")
            process.stdin.flush()
        share = float(process.stdout.readline())
    return share, shown


def task_s(metrics: dict[str, list[dict[str, float]]]) -> float:
    """For how long the page has been busy."""
    return next(one["value"] for one in metrics["metrics"] if str(one["name"]) == "TaskDuration")


def main() -> None:
    """Measure both, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--browser", default=shutil.which("chromium"), help="a Chromium")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve or options.bare:
        serve(options.seconds, options.serve)
        return
    if options.browser is None or not Path(options.browser).exists():
        sys.exit("no Chromium was found; name one with --browser")
    bare, _ = measured(options.seconds, None)
    served, page = measured(options.seconds, options.browser)
    cost = served - bare
    verdict = "within" if cost <= BOUND else "above"
    print(f"cores: {os.cpu_count()}; {options.seconds:g} s at one tick a second, one page open")
    print(f"without the dashboard  {bare:7.2%} of a core")
    print(f"with the dashboard     {served:7.2%} of a core")
    print(f"the dashboard costs    {cost:7.2%} of a core, {verdict} the bound of {BOUND:.0%}")
    print(f"the page in the browser takes {page:.2%} of a core")
    sys.exit(cost > BOUND)


if __name__ == "__main__":
    main()
