"""`sojourn profile` in virtual time: what it finds, keeps and goes on with, and what it refuses."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from sojourn.cli.app import load_topology
from sojourn.cli.profile_view import LiveView
from sojourn.cli.profilefile import read_profile
from sojourn.cli.recalibrate import Watch
from sojourn.errors import InputError
from sojourn.ports import Parallelism, Samples
from sojourn.profiler.rounds import Round
from sojourn.profiler.trial import Measured, Progress, Proposal, Verdict
from sojourn.settings import ControlSettings

ROOT = Path(__file__).parents[2]
APP = f"{ROOT}/examples/patterns.py:linear"
SERVICE = "operators: {op1: {service: 2ms}, op2: {service: 4ms}, op3: {service: 2ms, cpu: 0}}"
Run = Callable[..., Any]
PROFILE = """
name: linear
sources: {messages: {rate: 100/s}}
operators: {op2: {service_time: 4ms}}
edges: [{from: messages, to: op2}]
profile:
  machines: 4
  cores: 2
  limit: 500ms
  throughput: 100/s
  processors: {op2: 3}
  service: {op2: 5ms}
  topology: [messages → op2]
"""


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    service = tmp_path / "service.yaml"
    service.write_text(SERVICE, encoding="utf-8")
    return [
        *("--engine", "simulator", "--service", str(service), "--machines", "2", "--cores", "2"),
        *("--reading", "300ms", "--small", "5", "--out", str(tmp_path / "out")),
    ]


def test_a_profile_is_found_kept_and_gone_on_with(
    run: Run, tmp_path: Path, options: list[str]
) -> None:
    compare = ("--method", "stepwise", "--compare", "guided,threshold,stela")
    plot = tmp_path / "rounds.png"
    shown = run("profile", APP, *compare, *options, "--plot", plot)
    assert shown.code == 0, shown.err
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "carries" in shown.out
    for name in ("guided", "threshold", "stela"):
        assert f" over {name}, which took " in shown.out
    folder = tmp_path / "out" / "linear"
    found = yaml.safe_load((folder / "profile.yaml").read_text(encoding="utf-8"))
    # Four cores have 6 ms of work for each tuple; op3 only waits.
    assert 400 < float(found["profile"]["throughput"].removesuffix("/s")) < 680
    assert found["profile"]["processors"].keys() == {"op1", "op2", "op3"}
    assert 3 < float(found["operators"]["op2"]["service_time"].removesuffix("ms")) < 5
    head, *rounds = (folder / "stepwise.jsonl").read_text(encoding="utf-8").splitlines()
    (folder / "stepwise.jsonl").write_text("\n".join([head, *rounds[:3]]) + "\n", "utf-8")
    again = run("profile", APP, "--json", "--method", "stepwise", *options)
    assert again.code == 0, again.err
    result = json.loads(again.out)["profiles"]["linear"]
    assert [json.loads(line) for line in rounds[:3]] == result["rounds"]["stepwise"][:3]
    assert again.err.count(" …\n") - 1 == len(result["rounds"]["stepwise"]) - 3
    assert [json.loads(line) for line in rounds] == result["rounds"]["stepwise"]  # as if not ended
    assert read_profile(folder / "profile.yaml").options["method"] == "stepwise"


def test_rounds_of_something_else_are_tried_anew(
    run: Run, tmp_path: Path, options: list[str]
) -> None:
    options += ["--method", "stepwise"]
    assert run("profile", APP, *options).code == 0
    path = tmp_path / "out" / "linear" / "stepwise.jsonl"
    before = path.read_text(encoding="utf-8")
    assert run("profile", APP, *options, "--slice", "1").code == 0
    after = path.read_text(encoding="utf-8")
    assert after.splitlines()[:3] == before.splitlines()[:3]
    assert json.loads(after.splitlines()[3])["proposal"]["parallelism"]["processors"] == {
        "op1": 1,
        "op2": 1,
        "op3": 1,
    }
    path.write_bytes(b"\xff\xfe")
    refused = run("profile", APP, *options)
    assert refused.code == 2
    assert "stepwise.jsonl: is not a file of rounds" in refused.err
    path.write_text(after.splitlines()[0] + "\n{}\n", encoding="utf-8")
    refused = run("profile", APP, *options)
    assert refused.code == 2
    assert "stepwise.jsonl:2: is not a round of profiling" in refused.err
    # Another platform has rounds of its own.
    path.write_text(after, encoding="utf-8")
    other = run("profile", APP, *options, "--seed", "1")
    assert other.code == 0
    assert path.read_text(encoding="utf-8").splitlines()[0] != after.splitlines()[0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--engine", "storm"], "--engine must be spark or simulator; got 'storm'"),
        (["--engine", "spark"], "--service FILE is needed with --engine simulator, and only there"),
        (["--compare", "ds2"], "--compare must name some of guided, stepwise, threshold, stela"),
        (["--kind", "op1=odd"], "--kind must be OPERATOR=KIND"),
        (["--kind", "op9=logic"], "operator 'op9' is not in the topology"),
        (["--machines", "0"], "--machines must be whole numbers from 1 to 1000"),
        (["--machines", "4..2"], "--machines must be whole numbers from 1 to 1000"),
        (["--machines", "1..99999999999"], "--machines must be whole numbers from 1 to 1000"),
        (["--cores", "0"], "--cores: must be at least 1; got 0"),
        (["--factor", "nan"], "--factor: must be at least 1; got nan"),
        (["--small", "inf"], "--small: must be above 0; got inf"),
        (["--target", "-5"], "--target: must be above 0; got -5"),
        (["--out", __file__], "test_profile.py: cannot be a directory"),
        (["--method", "stela"], "--method must be guided or stepwise; got 'stela'"),
        (["--placement", "odd"], "--placement must be round-robin or packed; got 'odd'"),
        (["--target", "fast"], "--target"),
        (["--alpha", "2"], "--alpha: must be above 0 and at most 1; got 2"),
        (["--slice", "0"], "--slice: must be above 0 and at most 1; got 0"),
        (["--reading", "0s"], "--reading: must be above 0; got 0"),
        (["--master", "local[2]"], "--master and --checkpoint are for --engine spark"),
        (["--conf", "simulator.hop=x"], "simulator.hop"),
    ],
)
def test_mistakes_are_refused(run: Run, options: list[str], more: list[str], message: str) -> None:
    refused = run("profile", APP, *options, *more)
    assert refused.code == 2
    assert message in refused.err


def test_a_load_that_is_not_small_is_told(run: Run, options: list[str]) -> None:
    ended = run("profile", APP, *options, "--small", "1000")
    assert ended.code == 1
    assert "it does not keep up even with 1000 messages a second" in ended.err


def test_a_profile_is_a_plan_and_has_service_times(
    run: Run, tmp_path: Path, options: list[str]
) -> None:
    assert run("profile", APP, *options).code == 0
    path = tmp_path / "out" / "linear" / "profile.yaml"
    planned = run("plan", path, "--max-sojourn", "100ms")
    assert planned.code == 0, planned.err
    assert "op2" in planned.out
    simulated = run(
        *("simulate", APP, "--service", path, "--max-sojourn", "100ms", "--duration", "20s")
    )
    assert simulated.code == 0, simulated.err
    profile = read_profile(path)
    applied = profile.applied(load_topology(APP))
    assert {n: s.processors for n, s in applied.operators.items()} == profile.processors
    with pytest.raises(InputError, match="is of 'linear' and has no operator of 'star'"):
        profile.applied(load_topology(APP.replace("linear", "star")))
    path.write_text("operators: {op1: {service_time: 2ms}}\n", encoding="utf-8")
    with pytest.raises(InputError, match="is no profile"):
        read_profile(path)


def test_machines_for_a_throughput(run: Run, tmp_path: Path, options: list[str]) -> None:
    plot = tmp_path / "machines.png"
    shown = run(
        *("profile", APP, *options, "--machines", "1,3", "--target", "500/s", "--plot", plot)
    )
    assert shown.code == 0, shown.err
    # Two cores carry at most 333 a second, six at most 1000.
    assert "500 tuples a second take 3 machines and " in shown.out
    assert plot.read_bytes().startswith(b"\x89PNG")
    told = run("profile", APP, *options, "--machines", "1,3", "--target", "500/s", "--json")
    assert json.loads(told.out)["target"]["machines"] == 3
    never = run("profile", APP, *options, "--machines", "1,3", "--target", "5000/s")
    assert "None of these carries 5000 tuples a second within the limit." in never.out


def test_a_terminal_shows_each_trial_and_the_time_left() -> None:
    console = Console(file=io.StringIO(), width=160, force_terminal=False)
    view = LiveView(console)
    profiling: Any = SimpleNamespace(most_rounds=lambda _method: 5)
    parallelism = Parallelism({"op1": 2}, {"messages": 1})
    proposal = Proposal("platform", parallelism, "the ratios")
    seen = Measured((100.0, 110.0), 0.2, {})
    view("guided", proposal, profiling)
    view("guided", Progress(False, 5, 30, 1.0, 99.0), profiling)
    console.print(view.render(5))
    view("guided", Round(1, proposal, seen, Verdict(True, "more is carried")), profiling)
    view("guided", proposal, profiling)
    view("guided", Progress(True, 15, 20, 1.0, 99.0), profiling)
    console.print(view.render(5))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "now: messages 1, op1 2 (the ratios): not steady yet, 99/s" in shown
    assert "at least 25 s left of this trial" in shown
    assert "105 ± 7.1/s" in shown
    assert "kept" in shown
    assert "reading 15 of 20" in shown
    assert "about 5 s left of this trial" in shown
    assert "left of this method" in shown


def test_a_service_file_must_know_the_operators(
    run: Run, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "service.yaml").write_text(SERVICE.replace("op2", "op4"), encoding="utf-8")
    refused = run("profile", APP, *options)
    assert refused.code == 2
    assert "operator 'op4' is not in the topology" in refused.err


def test_what_a_run_would_profile_again_with_is_understood(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(PROFILE, encoding="utf-8")
    watch = Watch(
        path, load_topology(APP), ControlSettings(), "none.py", "local[2]", tmp_path, True
    )
    assert watch.topology.operators["op2"].processors == 3
    told = watch(Samples(0.0, {}, None, 0), None)
    assert told == "topology: the topology has other edges than when it was profiled"
    assert watch(Samples(0.0, {}, None, 0), None) is None
    refused = run(*watch.command()[3:])
    assert refused.code == 2
    assert "none.py" in refused.err  # all options are known; only the file is not there
