"""`sojourn profile` in virtual time: what it finds, keeps and goes on with, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
APP = f"{ROOT}/examples/patterns.py:linear"
SERVICE = "operators: {op1: {service: 2ms}, op2: {service: 4ms}, op3: {service: 2ms, cpu: 0}}"
Run = Callable[..., Any]


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
    shown = run("profile", APP, "--compare", "guided,threshold,stela", *options)
    assert shown.code == 0, shown.err
    assert "carries" in shown.out
    for name in ("guided", "threshold", "stela"):
        assert f" over {name}, which took " in shown.out
    folder = tmp_path / "out" / "linear"
    found = yaml.safe_load((folder / "profile.yaml").read_text(encoding="utf-8"))
    # Four cores have 6 ms of work for each tuple; op3 only waits.
    assert 400 < found["profile"]["throughput"] < 680
    assert found["profile"]["processors"].keys() == {"op1", "op2", "op3"}
    assert 3 < float(found["operators"]["op2"]["service"].removesuffix("ms")) < 5
    rounds = (folder / "stepwise.jsonl").read_text(encoding="utf-8").splitlines()
    (folder / "stepwise.jsonl").write_text("\n".join(rounds[:3]) + "\n", encoding="utf-8")
    again = run("profile", APP, "--json", *options)
    assert again.code == 0, again.err
    result = json.loads(again.out)["linear"]
    assert [json.loads(line) for line in rounds[:3]] == result["rounds"]["stepwise"][:3]
    assert again.err.count(" …\n") == len(result["rounds"]["stepwise"]) - 3


def test_rounds_of_something_else_are_tried_anew(
    run: Run, tmp_path: Path, options: list[str]
) -> None:
    assert run("profile", APP, *options).code == 0
    path = tmp_path / "out" / "linear" / "stepwise.jsonl"
    before = path.read_text(encoding="utf-8")
    assert run("profile", APP, *options, "--slice", "1").code == 0
    after = path.read_text(encoding="utf-8")
    assert after.splitlines()[:2] == before.splitlines()[:2]
    assert json.loads(after.splitlines()[2])["proposal"]["parallelism"]["processors"] == {
        "op1": 1,
        "op2": 1,
        "op3": 1,
    }
    path.write_text("{}\n", encoding="utf-8")
    refused = run("profile", APP, *options)
    assert refused.code == 2
    assert "stepwise.jsonl:1: is not a round of profiling" in refused.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--engine", "storm"], "--engine must be spark or simulator; got 'storm'"),
        (["--engine", "spark"], "--service FILE is needed with --engine simulator, and only there"),
        (["--compare", "ds2"], "--compare must name guided or threshold or stela; got 'ds2'"),
        (["--kind", "op1=odd"], "--kind must be OPERATOR=KIND"),
        (["--kind", "op9=logic"], "operator 'op9' is not in the topology"),
        (["--machines", "0"], "--machines and --cores must be at least 1; got 0 and 2"),
        (["--alpha", "2"], "--alpha above 0 and at most 1"),
        (["--slice", "0"], "slice must be above 0 and at most 1; got 0"),
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
