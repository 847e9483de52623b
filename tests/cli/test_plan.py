"""`sojourn plan`: what it answers and how it refuses."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLANS = ROOT / "examples" / "plans"
Run = Callable[..., Any]

GOOD = """\
sources:
  frames: {rate: 13}
operators:
  extract: {service_time: 475ms, max_processors: 12}
  match: {service_rate: 2/s, service_scv: 2}
edges:
  - {from: frames, to: extract}
  - {from: extract, to: match, gain: 0.9}
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "plan.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("name", "processors", "allocation"),
    [
        ("vld", 22, [10, 11, 1]),  # DRS, ToN 2017, fig. 6
        ("vld", 17, [8, 8, 1]),  # DRS, ICDCS 2015, fig. 10
        ("fpd", 22, [6, 13, 3]),  # DRS, ToN 2017, fig. 6
    ],
)
def test_the_examples_give_the_papers_placements(
    run: Run, name: str, processors: int, allocation: list[int]
) -> None:
    shown = run("plan", PLANS / f"{name}.yaml", "--max-processors", str(processors), "--json")
    assert shown.code == 0
    assert list(json.loads(shown.out)["allocation"].values()) == allocation


def test_the_loop_of_fig_2_counts_in_the_rates(run: Run) -> None:
    record = json.loads(run("plan", PLANS / "split_join_loop.yaml", "--json").out)
    rates = {row["name"]: row["arrival_rate"] for row in record["operators"]}
    assert rates["A"] == pytest.approx(100 / 0.72)
    assert record["mean_sojourn_s"] <= record["max_sojourn_s"] == 0.2
    assert sum(row["share"] for row in record["operators"]) == pytest.approx(1)


def test_every_way_to_name_a_target_is_the_same(run: Run, plan_file: Any) -> None:
    file = plan_file(GOOD)
    answers = {
        run("plan", file, "--max-sojourn", text, "--json").out
        for text in ("1200ms", "1.2s", "1.2", "0.02min", "1200000us")
    }
    assert len(answers) == 1
    assert json.loads(answers.pop())["mean_sojourn_s"] <= 1.2


def test_limits_in_the_file_hold_unless_the_command_has_its_own(run: Run, plan_file: Any) -> None:
    file = plan_file(GOOD + "limits: {max_sojourn: 3s, percentile: 90}\n")
    from_file = json.loads(run("plan", file, "--json").out)
    assert from_file["percentile"] == 90
    mean = json.loads(run("plan", file, "--max-processors", "20", "--json").out)
    assert mean["processors"] == 20
    assert from_file["max_sojourn_s"] == 3


def test_a_percentile_target_needs_more_than_the_mean(run: Run, plan_file: Any) -> None:
    file = plan_file(GOOD)
    mean = json.loads(run("plan", file, "--max-sojourn", "5s", "--json").out)
    tail = json.loads(run("plan", file, "--max-sojourn", "5s", "--percentile", "99", "--json").out)
    assert tail["percentile_sojourn_s"] <= 5
    assert tail["processors"] > mean["processors"]


def test_the_models_differ_where_scvs_do(run: Run, plan_file: Any) -> None:
    file = plan_file(GOOD)
    gigk = json.loads(run("plan", file, "--max-processors", "15", "--json").out)
    mmk = json.loads(run("plan", file, "--max-processors", "15", "--model", "mmk", "--json").out)
    assert gigk["mean_sojourn_s"] > mmk["mean_sojourn_s"]
    assert {row["service_scv"] for row in mmk["operators"]} == {1.0}


def test_compare_shows_unstable_allocations_as_such(run: Run) -> None:
    arguments = ("plan", PLANS / "vld.yaml", "--compare", "8:12:2, 5:11:1")
    record = json.loads(run(*arguments, "--json").out)
    assert [row["processors"] for row in record["compare"]] == [22, 17]
    assert record["compare"][1]["mean_sojourn_s"] is None
    assert "extract cannot keep up" in run(*arguments).out


def test_a_sweep_ends_at_the_limit_and_thins_long_tables(run: Run, plan_file: Any) -> None:
    record = json.loads(run("plan", PLANS / "vld.yaml", "--sweep", "--json").out)
    assert [row["processors"] for row in record["sweep"]] == list(range(15, 23))
    sojourns = [row["mean_sojourn_s"] for row in record["sweep"]]
    assert sojourns == sorted(sojourns, reverse=True)
    long = plan_file(GOOD.replace("rate: 13", "rate: 1300").replace(", max_processors: 12", ""))
    shown = run("plan", long, "--max-processors", "1500", "--sweep").out
    assert "points is shown" in shown
    assert len(shown.splitlines()) < 70


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_plot_is_drawn(run: Run, tmp_path: Path, suffix: str) -> None:
    plot = tmp_path / f"sweep.{suffix}"
    shown = run("plan", PLANS / "vld.yaml", "--sweep", "--plot", plot)
    assert shown.code == 0
    start = plot.read_bytes()[:100]
    assert start.startswith(b"\x89PNG") if suffix == "png" else b"<?xml" in start


def test_the_limit_is_told_in_words(run: Run) -> None:
    busy = run("plan", PLANS / "vld.yaml", "--max-processors", "17").out
    assert "'match' limits this topology: its processors are 85% busy" in busy
    idle = run("plan", PLANS / "vld.yaml", "--max-processors", "40").out
    assert "Service time limits this topology, not waiting: 'match' alone is 52%" in idle


def test_the_installed_script_ends_with_code_2_and_no_traceback() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "sojourn", "plan", "no-such.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "error: no-such.yaml: cannot be read: No such file or directory\n"
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "to: match,",
            "to: mach,",
            ":8: edges[1].to: unknown operator 'mach'; did you mean 'match'",
        ),
        ("from: frames", "from: x", ":7: edges[0].from: unknown source or operator 'x'; known:"),
        ("rate: 13", "rate: -13", ":2: sources.frames.rate: must be above 0; got -13"),
        ("rate: 13", "rate: 0", ":2: sources.frames.rate: must be above 0; got 0"),
        ("rate: 13", "rate: .nan", ":2: sources.frames.rate: must be a rate"),
        ("rate: 13", "rate: true", ":2: sources.frames.rate: must be a rate"),
        ("rate: 13", "rate: 13/fortnight", "rate: unknown unit '/fortnight'"),
        ("{rate: 13}", "{}", ":2: sources.frames: needs rate"),
        ("{rate: 13}", "13", ":2: sources.frames: must be a mapping"),
        ("475ms", "0ms", ":4: operators.extract.service_time: must be above 0; got '0ms'"),
        ("475ms", "475 parsecs", "service_time: unknown unit 'parsecs'"),
        ("service_rate: 2/s", "service_rate: -2/s", ":5: operators.match.service_rate: must be"),
        ("service_scv: 2", "service_scv: -2", "service_scv: must not be negative; got -2"),
        ("service_scv: 2", "service_csv: 2", "unknown key; did you mean 'service_scv'?"),
        ("service_rate: 2/s, ", "", ":5: operators.match: needs either service_time or"),
        ("max_processors: 12", "max_processors: 0", "max_processors: must be a whole number of at"),
        (
            "max_processors: 12",
            "max_processors: 2.5",
            "must be a whole number of at least 1; got 2.5",
        ),
        (
            "max_processors: 12",
            "max_processors: 3, min_processors: 4",
            "min_processors 4 is above",
        ),
        ("gain: 0.9", "gain: 0", ":8: edges[1].gain: must be above 0; got 0"),
        ("gain: 0.9", "gain: much", ":8: edges[1].gain: must be a number; got 'much'"),
        ("gain: 0.9", "feedback: maybe", ":8: edges[1].feedback: must be true or false"),
        ("to: extract}", "to: extract, feedback: true}", "source 'frames' cannot send feedback"),
        (
            "from: extract, to: match",
            "from: frames, to: extract",
            "frames → extract is given twice",
        ),
        ("from: extract, ", "", ":8: edges[1]: needs from"),
        ("from: extract, to: match", "from: match, to: match", "form a cycle match → match; mark"),
        (
            "from: frames, to: extract",
            "from: match, to: extract",
            ":6: edges: the forward edges form a cycle extract → match → extract; mark the edge",
        ),
        (
            "from: extract, to: match",
            "from: extract, feedback: true, to: extract",
            ":5: operators.match: receives no tuples",
        ),
        ("extract: {s", "frames: {s", ":4: operators.frames: 'frames' is both a source and"),
        (
            "  frames: {rate: 13}",
            "  frames: {rate: 13}\n  more: {rate: 1}",
            "sources.more: feeds noth",
        ),
        ("operators:", "operatros:", ":3: operatros: unknown key; did you mean 'operators'?"),
        ("sources:\n  frames: {rate: 13}\n", "", ":1: needs sources with at least one entry"),
        ("edges:", "edges: {}\nlimits:", "edges: must be a list"),
        ("  match:", "  7:", "the key 7 must be text; put it in quotes"),
        ("  match:", "  extract:", ":5: the key 'extract' is given twice"),
        ("rate: 13", "rate: 1e20", "operator 'extract': arrival_rate must lie between 0 and 1e+15"),
        ("rate: 13", "rate: 1e14", "operator 'extract': 1e+14/s at 2.105/s each would need"),
        ("rate: 13", "rate: 1e300/ns", "rate: is too large; got '1e300/ns'"),
        ("rate: 13", "rate: 0x" + "F" * 5000, "rate: must be a rate such as 13, 13/s or 780/min"),
        ("475ms", "1e-310", "operator 'extract': service_rate must lie between"),
        ("475ms", "1e308h", "service_time: is too large; got '1e308h'"),
        (
            "service_scv: 2",
            "service_scv: 1e308",
            "operator 'match': service_scv must lie between 0",
        ),
        (
            "gain: 0.9",
            "gain: 1e308",
            "the gains before 'match' multiply to a number that is too large",
        ),
        (
            "from: frames",
            "from: [frames]",
            ":7: edges[0].from: unknown source or operator ['frames']",
        ),
        ("from: frames", "from: {a: 1}", ":7: edges[0].from: unknown source or operator {'a': 1}"),
        ("frames: {rate: 13}", "frames: " + "[" * 50 + "]" * 50, ":2: is nested too deeply"),
        ("frames: {rate: 13}", "frames: !foo {rate: 13}", ":2: tags (!name) are not supported"),
        ("rate: 13", "rate: 2026-02-30", ":2: '2026-02-30' cannot be read: day is out of range"),
        ("sources:", "name:\nsources:", ":1: name: must be text; got None"),
        ("rate: 13", "rate: \x07", ": is not valid YAML: "),
        ("match:", '"ma\\ntch":', "edges[1].to: unknown operator 'match'; did you mean 'ma\\ntch'"),
        ("{rate: 13}", "{rate: 13", ": is not valid YAML: "),
        ("{rate: 13}", "&a {rate: 13}\n  b: *a", ":3: aliases (*name) are not supported"),
        (
            "13}",
            "!!python/name:os.system x}",
            ":2: tags (!name) are not supported; leave",
        ),
    ],
)
def test_mistakes_in_the_file_are_named_with_their_place(
    run: Run, plan_file: Any, old: str, new: str, message: str
) -> None:
    assert GOOD.count(old) == 1
    file = plan_file(GOOD.replace(old, new))
    shown = run("plan", file, "--max-processors", "30")
    assert shown.code == 2
    assert shown.out == ""
    assert shown.err.startswith(f"error: {file}")
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1


@pytest.mark.parametrize("text", ["", "just words", "[1, 2]"])
def test_a_file_of_another_kind_is_refused(run: Run, plan_file: Any, text: str) -> None:
    shown = run("plan", plan_file(text), "--max-processors", "9")
    assert shown.code == 2
    assert "must hold sources, operators and edges" in shown.err


def test_limits_in_the_file_are_checked(run: Run, plan_file: Any) -> None:
    for limits, message in (
        ("{max_processors: 3, max_sojourn: 1s}", ":9: limits: give max_processors or max_sojourn"),
        ("{max_sojourn: 1s, percentile: 100}", ":9: limits.percentile: must lie below 100"),
        ("{max_sojourn: 0}", "limits.max_sojourn: must be above 0; got 0"),
        ("{max_sojorn: 1s}", "limits.max_sojorn: unknown key; did you mean 'max_sojourn'?"),
        ("5", "limits: must be a mapping of keys to values; got 5"),
    ):
        shown = run("plan", plan_file(GOOD + f"limits: {limits}\n"))
        assert shown.code == 2
        assert message in shown.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no limit: give --max-processors K or --max-sojourn T"),
        (["--max-processors", "9", "--max-sojourn", "1s"], "give one of the two, not both"),
        (
            ["--max-processors", "0"],
            "--max-processors: must be a whole number of at least 1; got 0",
        ),
        (["--max-processors", "8"], "8 processors are too few: the topology needs at least 13"),
        (
            ["--max-processors", "x"],
            "--max-processors: must be a whole number of at least 1; got 'x'",
        ),
        (["--max-sojourn", "0ms"], "--max-sojourn: must be above zero; got '0ms'"),
        (["--max-sojourn", "soon"], "--max-sojourn: must be a duration such as 500ms"),
        (["--max-sojourn", "100ms"], "serving a tuple takes 0.925 s even when it never waits"),
        (["--max-sojourn", "1s", "--percentile", "99"], "a p99 sojourn of 1 s is out of reach"),
        (["--max-sojourn", "1s", "--percentile", "0"], "--percentile: must lie between 0 and 100"),
        (["--max-processors", "20", "--model", "mm1"], "'mm1' is not one of 'mmk', 'gigk'"),
        (["--max-processors", "20", "--compare", "8:9:1"], "'8:9:1' must be 2 whole numbers"),
        (["--max-processors", "20", "--compare", "8:0"], "'8:0' must be 2 whole numbers"),
        (["--max-processors", "20", "--plot", "a.png"], "--plot: draws the sweep; add --sweep"),
        (["--max-processors", "20", "--sweep", "--plot", "a.pdf"], "must end in .png or .svg"),
        (["--max-processors", "20", "--sweep", "--plot", "no/a.png"], "no/a.png cannot be written"),
        (["--max-procesors", "20"], "No such option: --max-procesors"),
    ],
)
def test_mistakes_in_the_options_are_named(
    run: Run, plan_file: Any, options: list[str], message: str
) -> None:
    shown = run("plan", plan_file(GOOD), *options)
    assert shown.code == 2
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_diverging_loop_and_a_maximum_too_low_name_the_operators(
    run: Run, plan_file: Any
) -> None:
    loop = GOOD + "  - {from: match, to: extract, gain: 1.2, feedback: true}\n"
    shown = run("plan", plan_file(loop), "--max-processors", "50")
    assert shown.code == 2
    assert (
        "the loop match → extract → match diverges: every tuple that passes 'match' comes back"
        in shown.err
    )
    low = GOOD.replace("max_processors: 12", "max_processors: 4")
    shown = run("plan", plan_file(low), "--max-sojourn", "5s")
    assert shown.code == 2
    assert "operator 'extract' is unstable: 13/s at 2.105/s per processor needs at least 7" in (
        shown.err
    )


def test_what_a_user_calls_things_is_shown_as_it_is(
    run: Run, plan_file: Any, tmp_path: Path
) -> None:
    odd = GOOD.replace("match", "'[/red]:key:'") + "name: '[bold] $\\frac$ 映像'\n"
    plot = tmp_path / "[a].png"
    options = ("--max-processors", "20", "--sweep", "--plot", plot, "--compare", "9:9")
    shown = run("plan", plan_file(odd), *options)
    assert shown.code == 0, shown.err
    assert "[bold] $\\frac$ 映像: 13 tuples/s" in shown.out
    assert "extract:[/red]:key:" in shown.out
    assert str(plot) in shown.out
    assert plot.exists()


def test_an_operator_at_its_maximum_is_said_to_be(run: Run, plan_file: Any) -> None:
    file = plan_file(GOOD.replace("max_processors: 12", "max_processors: 7"))
    shown = run("plan", file, "--max-processors", "30").out
    assert "it already has its maximum of 7 processors" in shown


def test_the_sweep_marks_the_plan_only_where_it_is_on_it(run: Run, plan_file: Any) -> None:
    file = plan_file(
        "sources: {s: {rate: 10}}\n"
        "operators:\n"
        "  quick: {service_rate: 2.5}\n"
        "  slow: {service_rate: 0.1}\n"
        "  mid: {service_rate: 1.6}\n"
        "edges:\n"
        "  - {from: s, to: quick}\n"
        "  - {from: s, to: slow, gain: 0.002}\n"
        "  - {from: s, to: mid, gain: 0.1}\n"
    )
    shown = run("plan", file, "--max-sojourn", "4.66s", "--percentile", "99", "--sweep").out
    assert "← plan" not in shown
    assert "The sweep places processors for the mean, the plan for its percentile." in shown


KINDS = "processors:\n  fast: {count: 6, speed: 2}\n  slow: {count: 20, speed: 0.5, cost: 0.2}\n"


def test_the_report_says_which_operator_gets_which_kind(run: Run, plan_file: Any) -> None:
    record = json.loads(run("plan", plan_file(GOOD + KINDS), "--json").out)
    kinds = {kind["name"]: kind for kind in record["kinds"]}
    for name, kind in kinds.items():
        used = sum(mix[name] for mix in record["allocation"].values())
        assert used == kind["used"] <= kind["count"]
    assert sum(record["allocation"]["extract"].values()) <= 12
    shown = run("plan", plan_file(GOOD + KINDS)).out
    header = next(line for line in shown.splitlines() if "operator" in line)
    assert header.split()[-7:] == ["fast", "slow", "busy", "wait", "sojourn", "of", "E[T]"]
    extract = next(line for line in shown.splitlines() if "extract" in line).split()
    assert extract[3:5] == [str(n) for n in record["allocation"]["extract"].values()]
    assert f"{kinds['slow']['used']} of 20 slow (speed 0.5)" in shown


def test_a_target_takes_the_cheapest_processors(run: Run, plan_file: Any) -> None:
    every = json.loads(run("plan", plan_file(GOOD + KINDS), "--json").out)
    target = ("--max-sojourn", "2.5s", "--json")
    record = json.loads(run("plan", plan_file(GOOD + KINDS), *target).out)
    assert record["mean_sojourn_s"] <= record["max_sojourn_s"] == 2.5
    assert record["cost"] < every["cost"]
    even = json.loads(run("plan", plan_file(GOOD + KINDS.replace(", cost: 0.2", "")), *target).out)
    assert even["cost"] == even["processors"] < record["processors"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count: 6", "count: 0", ":10: processors.fast.count: must be a whole number of at least"),
        ("count: 6, ", "", ":10: processors.fast: needs count"),
        ("speed: 2}", "speed: 0}", ":10: processors.fast.speed: must be above 0; got 0"),
        (", speed: 2}", "}", ":10: processors.fast: needs speed"),
        ("speed: 2}", "speed: 1e9}", ":10: processors.fast: the speed of a processor must lie"),
        ("cost: 0.2", "cost: -1", ":11: processors.slow.cost: must be above 0; got -1"),
        ("cost: 0.2", "price: 1", ":11: processors.slow.price: unknown key; known: count, speed,"),
        ("fast: {count: 6, speed: 2}", "fast: 6", ":10: processors.fast: must be a mapping"),
        (KINDS, "processors: {}\n", ":9: processors: needs processors with at least one entry"),
        (KINDS, KINDS + "limits: {max_processors: 9}\n", "the file's processors say how many"),
        (KINDS, KINDS + "limits: {max_sojourn: 9s, percentile: 99}\n", "percentile: the file has"),
        ("count: 20", "count: 1", "cannot keep up"),
    ],
)
def test_mistakes_about_kinds_of_processors_are_named(
    run: Run, plan_file: Any, old: str, new: str, message: str
) -> None:
    assert (GOOD + KINDS).count(old) == 1
    text = (GOOD + KINDS).replace(old, new)
    shown = run("plan", plan_file(text.replace("speed: 2}", "speed: 0.3}", new == "count: 1")))
    assert shown.code == 2
    assert shown.out == ""
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1


@pytest.mark.parametrize(
    "options", [["--compare", "8:8"], ["--sweep"], ["--max-processors", "9"], ["--percentile", "9"]]
)
def test_what_only_equal_processors_have_is_refused(
    run: Run, plan_file: Any, options: list[str]
) -> None:
    shown = run("plan", plan_file(GOOD + KINDS), *options)
    assert shown.code == 2
    assert len(shown.err.splitlines()) == 1
    assert "processors" in shown.err


def test_a_binary_file_and_a_folder_are_refused(run: Run, tmp_path: Path) -> None:
    binary = tmp_path / "plan.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "is not a text file in UTF-8" in run("plan", binary).err
    assert f"{tmp_path}: cannot be read: Is a directory" in run("plan", tmp_path).err
