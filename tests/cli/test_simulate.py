"""`sojourn simulate`: the same control loop in virtual time, over files, traces and grids; and how
mistakes are refused."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

APP = """
import sojourn as sj

def topology():
    t = sj.Topology("shop")
    orders = t.source("orders", sj.sources.paced(lambda n: n, rate=40.0))
    checked = t.operator("check", lambda n: [n], orders, processors=2)
    t.sink("out", sj.sinks.console(), t.operator("price", lambda n: [n], checked, processors=3))
    return t

def unpaced():
    t = sj.Topology("unpaced")
    orders = t.source("orders", sj.sources.iterable(lambda: range(3)))
    t.sink("out", sj.sinks.console(), t.operator("check", lambda n: [n], orders))
    return t
"""
SERVICE = "operators: {check: {service: 25ms}, price: {service: 40ms}}\n"


@pytest.fixture
def shop(tmp_path: Path) -> list[str]:
    """What every call begins with."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "service.yaml").write_text(SERVICE, encoding="utf-8")
    return [
        "simulate", f"{tmp_path / 'app.py'}:topology", "--service", str(tmp_path / "service.yaml"),
    ]  # fmt: skip


def told(run: Run, *arguments: object) -> Any:
    ended = run(*map(str, arguments), "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_a_target_is_kept_in_virtual_time(run: Run, shop: list[str]) -> None:
    aim = ("--max-sojourn", "85ms", "--duration", "5min")
    shown = run(*shop, *aim)
    assert shown.code == 0, shown.err
    assert "shop: 300 s under control, 300 intervals" in shown.out
    assert "add" in shown.out
    summary = told(run, *shop, *aim)
    assert summary["within_target"] > 0.8 * summary["intervals"]
    again = told(run, *shop, *aim)
    assert again == summary
    other = told(run, *shop, *aim, "--seed", 1)
    assert other != summary


def test_a_journal_of_a_simulation_can_be_replayed_and_simulated_from(
    run: Run, shop: list[str], tmp_path: Path
) -> None:
    journal = tmp_path / "journal.jsonl"
    first = told(run, *shop, "--max-sojourn", "150ms", "--journal", journal)
    replayed = run("replay", str(journal))
    assert replayed.code == 0
    assert "none decided differently" in replayed.out
    from_it = [*shop[:3], str(journal)]
    second = told(run, *from_it, "--max-sojourn", "150ms")
    assert second["mean_sojourn_s"] == pytest.approx(first["mean_sojourn_s"], rel=0.3)


def test_a_plan_says_how_long_operators_take(run: Run, shop: list[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "sources: {orders: {rate: 80/s}}\n"
        "operators: {check: {service_time: 25ms}, price: {service_time: 40ms, service_scv: 0.5}}\n"
        "edges: [{from: orders, to: check}, {from: check, to: price}]\n",
        encoding="utf-8",
    )
    summary = told(run, *shop[:3], plan, "--max-sojourn", "150ms")
    assert summary["mean_processors"] > 5


def test_a_trace_gives_the_rates(run: Run, shop: list[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"{60 * i},{rate}" for i, rate in enumerate((20, 20, 120, 120, 20))]
    trace.write_text("\n".join(["time,rate", *rows]), encoding="utf-8")
    summary = told(run, *shop, "--max-sojourn", "150ms", "--trace", trace)
    assert summary["seconds"] == 300
    assert {change["action"] for change in summary["changes"]} >= {"add", "remove"}
    assert summary["most_processors"] >= 8


def test_machines_are_asked_for_and_take_their_time(run: Run, shop: list[str]) -> None:
    conf = ["--conf", "machines.processors=4", "--machines", "1", "--duration", "5min"]
    summary = told(run, *shop, "--max-sojourn", "150ms", *conf)
    assert summary["most_processors"] > 4
    alone = told(run, *shop, "--max-sojourn", "150ms", *conf, "--conf", "machines.most=1")
    assert alone["most_processors"] <= 5  # of the topology's own, before it is known that few fit


def test_replications_have_intervals_of_confidence(run: Run, shop: list[str]) -> None:
    options = [*shop, "--max-sojourn", "150ms", "--duration", "2min", "--replications", "3"]
    shown = run(*options)
    assert shown.code == 0, shown.err
    assert "3 simulations" in shown.out
    assert "mean sojourn" in shown.out
    assert "±" in shown.out
    found = told(run, *options)
    assert [one["seed"] for one in found["runs"]] == [0, 1, 2]
    assert found["mean_sojourn"]["half"] > 0


def test_a_sweep_goes_on_where_it_was(run: Run, shop: list[str], tmp_path: Path) -> None:
    out, plot = tmp_path / "sweep.jsonl", tmp_path / "sweep.png"
    options = [*shop, "--duration", "1min", "--sweep", "rate=1x,2x", "--out", str(out)]
    first = told(run, *options, "--sweep", "processors=6..10:2")
    assert [(p["rate"], p["processors"]) for p in first] == [
        (rate, count) for rate in (1.0, 2.0) for count in (6, 8, 10)
    ]
    assert sum(point["knee"] for point in first) >= 1
    lines = out.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 7
    # Cut short in mid-write, as when it is killed: one point is simulated again.
    out.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20], encoding="utf-8")
    shown = run(*options, "--sweep", "processors=6..12:2", "--plot", plot)
    assert shown.code == 0, shown.err
    assert "knee" in shown.out
    assert plot.stat().st_size > 10_000
    assert len(out.read_text(encoding="utf-8").splitlines()) == 7 + 1 + 2  # a broken line, new ones
    other = run(*options, "--sweep", "processors=6..8:2", "--seed", "5")
    assert other.code == 2
    assert "holds results of another" in other.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operators: {chek: {service: 25ms}}", "'chek' is not in the topology; did you mean"),
        ("operators: {check: {service: 25ms}}", "operator 'price': its service time is not known"),
        ("operators: {check: {service: fast}}", "must be a duration"),
        ("operators: {check: {service: -1ms}}", "must be above 0"),
        ("operators: {check: {gains: {price: 1}}}", "needs service"),
        (
            "operators: {check: {service: {distribution: pareto, mean: 1ms, shape: 0.9}}}",
            "its mean is infinite; got 0.9",
        ),
        ("operators: {check: {service: {distribution: gama, mean: 1ms}}}", "did you mean 'gamma'?"),
        ("operators: {check: {service: {samples: []}}}", "must be a list of durations"),
        ("operators: {check: {service: {samples: none.txt}}}", "none.txt: cannot be read"),
        (SERVICE + "sources: {orders: {rate: 0}}", "must be above 0"),
        (SERVICE + "sources: {orders: {rate: [[1s]]}}", "must be a rate, or steps"),
        (SERVICE + "sources: {order: {rate: 1}}", "did you mean 'orders'?"),
        (SERVICE.replace("25ms", "25ms, gains: {pric: 1}"), "did you mean 'price'?"),
        (SERVICE.replace("25ms", "25ms, gains: {price: 1e9}"), "must be from 0 to 10000"),
        (SERVICE.replace("25ms", "25ms, keys: {zipf: 1}"), "'check': has no key"),
        (SERVICE.replace("25ms", "{samples: [1ms], scv: 2}"), "scv: unknown key"),
        (SERVICE + "sources: {orders: {rate: 1e13}}", "must be at most 1e+07/s"),
        ("", "must hold operators, with their service times"),
    ],
)  # fmt: skip
def test_mistakes_in_a_service_file_are_refused(
    run: Run, shop: list[str], tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "service.yaml").write_text(text, encoding="utf-8")
    ended = run(*shop, "--max-sojourn", "150ms")
    assert ended.code == 2
    assert message in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("time,rate\n0,1\n60,2\n180,1", ":4: times must be evenly spaced, every 60 s"),
        ("time,rate\n0,1\n0,2", "evenly"),
        ("time,rate\n-60,1\n0,2", ":2: times and rates must be finite"),
        ("time,rate\n0,nan\n60,2", ":2: times and rates must be finite and"),
        ("time,rate\n0,1\n60,x", ":3:"),
        ("time,rate\n0,1\n60", ":3: has 1 values; the header has 2"),
        ("time,rate\n0,1", "needs at least two rows"),
        ("when,rate\n0,1\n1,1", "the header must be time,rate"),
        ("time,ordres\n0,1\n1,1", "'ordres' is not a source"),
        ("time,orders,orders\n0,1,1\n1,1,1", "has two columns"),
        ("time,rate\n\n\n0,1\n60,2\n180,1", ":6: times must be evenly spaced"),
        ("time,rate\n0,0\n1,0", "all rates are zero"),
    ],
)  # fmt: skip
def test_mistakes_in_a_trace_are_refused(
    run: Run, shop: list[str], tmp_path: Path, text: str, message: str
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text, encoding="utf-8")
    ended = run(*shop, "--max-sojourn", "150ms", "--trace", trace)
    assert ended.code == 2
    assert message in ended.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "a target is missing; give a sojourn"),
        (["--max-sojourn", "1s", "--machines", "0"], "--machines must be at least 1; got 0"),
        (["--max-sojourn", "1s", "--replications", "0"], "--replications must be at least 1"),
        (["--max-sojourn", "1s", "--duration", "0"], "--duration must be above zero"),
        (["--max-sojourn", "1s", "--plot", "a.png"], "--plot needs a sweep"),
        (["--sweep", "processors"], "must be name=values"),
        (["--sweep", "processors=9..3"], "the first value is above the last"),
        (["--sweep", "processors=a..b"], "'a' is not a whole number"),
        (["--sweep", f"processors=1..{'9' * 400}"], "is not a whole number"),
        (["--sweep", "processors=1..9999,", "--sweep", "rate=1x..9x:0.001x"], "is no"),
        (
            ["--sweep", "processors=2..9999", "--sweep", "rate=1x..9x"],
            "169966 points; at most 10000",
        ),
        (["--sweep", "processors=2..9", "--plot", "none/a.png"], "there is no such directory"),
        (["--sweep", "processors=2..9", "--plot", "a.doc"], "must end in .png"),
        (["--sweep", "processors=1..9"], "maxProcessors must be at least 2"),
        (["--max-sojourn", "1s", "--sweep", "rate=1..1e308:1e-300"], "is not a factor"),
        (["--max-sojourn", "1s", "--seed", "-1"], "the seed must be at least 0; got -1"),
        (["--max-sojourn", "1s", "--duration", "500ms"], "at least one interval, 1 s"),
        (["--max-sojourn", "1s", "--sweep", "rate=0x..2x"], "'0x' is not a factor"),
        (["--max-sojourn", "1s", "--sweep", "change.quite=1s,2s"], "did you mean"),
        (["--max-processors", "1"], "maxProcessors must be at least 2"),
    ],
)
def test_mistakes_on_the_command_line_are_refused(
    run: Run, shop: list[str], options: list[str], message: str
) -> None:
    ended = run(*shop, *options)
    assert ended.code == 2
    assert message in ended.err


def test_a_trace_may_begin_as_spreadsheets_write_it(
    run: Run, shop: list[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(b"\xef\xbb\xbftime,rate\r\n0,40\r\n60,40\r\n")
    assert told(run, *shop, "--max-sojourn", "150ms", "--trace", trace)["seconds"] == 120


NAMED = """
import threading
import sojourn as sj

lock = threading.Lock()  # cannot be sent to another process

def topology():
    t = sj.Topology("named")
    source = t.source("source", sj.sources.paced(lambda n: n, rate=40.0, count=4000))
    a = t.operator("a", lambda n: [n] if lock else [], source)
    b = t.operator("b", lambda n: [n], a["left"])
    t.sink("out", sj.sinks.console(), b, a["right"])
    return t
"""


def test_gains_of_named_outputs_come_back_from_a_journal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(NAMED, encoding="utf-8")
    (tmp_path / "service.yaml").write_text(
        "operators: {a: {service: 5ms, gains: {'b[left]': 0.2, 'out[right]': 0.8}}, "
        "b: {service: 10ms}}",
        encoding="utf-8",
    )
    journal = tmp_path / "journal.jsonl"
    shop = ["simulate", str(tmp_path / "app.py"), "--max-sojourn", "1s", "--service"]
    first = told(run, *shop, tmp_path / "service.yaml", "--journal", journal)
    assert 95 <= first["seconds"] <= 105  # until its 4000 tuples are through
    found = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()[1:]]
    vertices = found[5]["samples"]["vertices"]
    share = vertices["a"]["emitted"]["b[left]"] / vertices["a"]["served"]
    assert 0.1 < share < 0.3
    again = told(run, *shop, journal)
    assert again["mean_sojourn_s"] == pytest.approx(first["mean_sojourn_s"], rel=0.1)
    assert len(told(run, *shop, journal, "--replications", 2)["runs"]) == 2


def test_a_journal_does_not_depend_on_how_python_hashes(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(NAMED, encoding="utf-8")
    (tmp_path / "service.yaml").write_text(
        "operators: {a: {service: 20ms, gains: {b: 0.5, out: 0.5}}, b: {service: 40ms}}",
        encoding="utf-8",
    )
    written = []
    for seed in ("0", "1"):
        journal = tmp_path / f"{seed}.jsonl"
        subprocess.run(
            [
                *(sys.executable, "-m", "sojourn", "simulate", str(tmp_path / "app.py")),
                *("--service", str(tmp_path / "service.yaml")),
                *("--max-sojourn", "150ms", "--journal", str(journal)),
            ],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        )
        written.append(journal.read_bytes())
    assert written[0] == written[1]


def test_a_loop_that_never_ends_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        NAMED.replace("    t.sink", '    t.feedback(b["again"], a)\n    t.sink'), encoding="utf-8"
    )
    (tmp_path / "service.yaml").write_text(
        "operators: {a: {service: 5ms}, b: {service: 10ms}}", encoding="utf-8"
    )
    ended = run(
        "simulate", str(tmp_path / "app.py"), "--service", str(tmp_path / "service.yaml"),
        "--max-sojourn", "1s",
    )  # fmt: skip
    assert ended.code == 2
    assert "loop" in ended.err


def test_a_source_without_a_pace_needs_a_rate(run: Run, shop: list[str], tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text("operators: {check: {service: 1ms}}", encoding="utf-8")
    ended = run("simulate", f"{tmp_path / 'app.py'}:unpaced", *shop[2:], "--max-sojourn", "1s")
    assert ended.code == 2
    assert "source 'orders': has no pace" in ended.err
