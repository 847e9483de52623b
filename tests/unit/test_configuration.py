"""Settings from files, SparkConf, the environment and the command line."""

import re
from pathlib import Path
from typing import Any

import pytest

from sojourn import configuration
from sojourn.asked import retargeted
from sojourn.configuration import (
    changed_live,
    from_environment,
    from_mapping,
    from_options,
    read_file,
    settings_from,
)
from sojourn.errors import InputError
from sojourn.provisioning.kinds import Kind
from sojourn.settings import ControlSettings, EngineSettings, known_keys


def test_later_layers_go_over_earlier_ones(tmp_path: Path) -> None:
    file = tmp_path / "sojourn.yaml"
    file.write_text(
        "spark.sojourn:\n  maxSojourn: 1s\n  measure:\n    interval: 2s\n    window: 7s\n",
        encoding="utf-8",
    )
    layers = [
        read_file(file),
        ("SparkConf", {"spark.sojourn.measure.interval": "3s", "spark.sojourn.maxBundle": "9"}),
        from_environment({"SOJOURN_MEASURE_INTERVAL": "4s", "SOJOURN_PERCENTILE": "99"}),
        from_options(["measure.interval=250ms"]),
    ]
    engine, control, _ = settings_from(layers)
    assert (control.max_sojourn_s, control.interval_s, control.window_s) == (1.0, 0.25, 7.0)
    assert (control.percentile, engine.max_bundle) == (99.0, 9)


@pytest.mark.parametrize("value", ["1, 0.5", [1, 0.5], ("1", "0.5")])
def test_several_numbers_are_read_from_text_and_lists(value: object) -> None:
    layer = from_mapping({"simulator.machines.speeds": value})
    assert settings_from([layer])[2].machine_speeds == (1.0, 0.5)


def test_properties_are_read_as_spark_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text(
        "# a comment\nspark.master local[2]\nspark.sojourn.maxSojourn=300ms\n"
        "spark.sojourn.model   gigk\n",
        encoding="utf-8",
    )
    _, control, _ = settings_from([read_file(file)])
    assert (control.max_sojourn_s, control.model) == (0.3, "gigk")


@pytest.mark.parametrize(
    ("name", "text"),
    [("some.yaml", "maxSojourn: 300ms\nspark.master: local\n"), ("some.conf", "maxSojourn 300ms")],
)
def test_a_setting_in_a_file_that_would_be_ignored_is_refused(
    name: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"{name}: maxSojourn .*write spark.sojourn.maxSojourn"):
        read_file(file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["maxSojurn=1s"], "did you mean spark.sojourn.maxSojourn?"),
        (["maxSojourn=fast"], r"spark.sojourn.maxSojourn \(--conf\)"),
        (["maxProcessors=2.5"], "whole number"),
        (["maxProcessors=0"], "at least 1"),
        (["model=mg1"], "must be one of auto, mmk, gigk"),
        (["measure.alpha=1"], "at most 0.99"),
        (["minSojourn=2s", "maxSojourn=1s"], "minSojourn must be below"),
        (["provision.form=printed", "provision.extra=idle"], "got idle with .*form=printed; leave"),
        (["maxSojourn"], "must be key=value"),
        (["batch=10ms"], "at least 1"),
        (["simulator.machines.speeds=1,fast"], "must be one or more numbers separated by commas"),
        (["simulator.machines.speeds=1,0"], r"each of at least 0.001 .*; got '1,0'"),
        (["simulator.machines.speeds="], "must be one or more numbers separated by commas"),
    ],
)
def test_bad_settings_are_told(options: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        settings_from([from_options(options)])


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ("maxProcessors=x", "a whole number of at least 1; got 'x'"),
        ("maxProcessors=0", "a whole number of at least 1; got '0'"),
        ("maxRestarts=-1", "a whole number of at least 0; got '-1'"),
        ("percentile=x", "a number of at least 1 and at most 99.99; got 'x'"),
        ("percentile=100", "a number of at least 1 and at most 99.99; got '100'"),
        ("maxSojourn=-5s", "a duration of at least 1us; got '-5s'"),
        ("commit=50ms", "a duration of at least 100ms; got '50ms'"),
        ("drain=-1", "a duration of at least 0ms; got '-1'"),
        ("model=mg1", "one of auto, mmk, gigk; got 'mg1'"),
    ],
)
def test_a_bad_setting_is_told_in_one_way(option: str, rule: str) -> None:
    key, _, value = option.partition("=")
    told = rf"^spark\.sojourn\.{re.escape(key)} \(\w+\): must be {re.escape(rule)}$"
    with pytest.raises(InputError, match=told.replace(r"\w+", "--conf")):
        settings_from([from_options([option])])
    with pytest.raises(InputError, match=told.replace(r"\w+", "settings")):
        settings_from([from_mapping({key: value})])


def test_a_bad_setting_of_a_program_is_told() -> None:
    with pytest.raises(InputError, match=r"^spark\.sojourn\.maxProcessors: must be .* 1; got 0$"):
        ControlSettings(max_processors=0)
    with pytest.raises(InputError, match=r"^spark\.sojourn\.maxSojourn: must be .* 1us; got -5$"):
        ControlSettings(max_sojourn_s=-5.0)


def test_bad_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_file(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n", encoding="utf-8")
    with pytest.raises(InputError, match="must be a mapping"):
        read_file(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: [\n", encoding="utf-8")
    with pytest.raises(InputError, match="is not YAML"):
        read_file(tmp_path / "broken.yaml")


def test_every_key_and_variable_is_unique() -> None:
    knobs = list(known_keys().values())
    assert len({knob.name for knob in knobs}) == len(knobs)
    assert len({knob.variable for knob in knobs}) == len(knobs)


def test_defaults_are_what_is_promised() -> None:
    control, engine = ControlSettings(), EngineSettings()
    assert (control.interval_s, control.window_s, control.alpha) == (1.0, 10.0, 0.5)
    assert (control.change_interval_s, control.quiet_s, control.headroom) == (10.0, 30.0, 0.15)
    assert (control.model, control.smoothing, control.percentile) == ("auto", "window", None)
    assert (engine.commit_s, engine.batch_s, engine.drain_s) == (5.0, 3600.0, 5.0)
    assert (engine.max_bundle, engine.max_queue, engine.max_queue_bytes) == (
        2_000,
        10_000,
        32 << 20,
    )
    assert (engine.tracked_per_s, engine.timed_every, engine.max_restarts) == (200.0, 1, 5)


def test_only_targets_may_change_while_it_runs() -> None:
    old = ControlSettings(max_sojourn_s=1.0)
    assert changed_live(old, ControlSettings(max_sojourn_s=2.0)) == ["spark.sojourn.maxSojourn"]
    with pytest.raises(InputError, match="window cannot be changed"):
        changed_live(old, ControlSettings(max_sojourn_s=1.0, window_s=9.0))


def test_a_target_is_changed_or_dropped_as_long_as_one_remains() -> None:
    old = ControlSettings(max_sojourn_s=1.0, min_sojourn_s=0.1, max_processors=9)
    new = retargeted(old, {"max_sojourn": "500ms", "max_processors": None})
    assert (new.max_sojourn_s, new.min_sojourn_s, new.max_processors) == (0.5, 0.1, None)
    new = retargeted(old, {"max_sojourn": None, "min_sojourn": None})
    assert (new.max_sojourn_s, new.min_sojourn_s, new.max_processors) == (None, None, 9)
    assert retargeted(old, {}) == old
    with pytest.raises(InputError, match="minSojourn must be below"):
        retargeted(old, {"max_sojourn": None})
    with pytest.raises(InputError, match=r"must remain; give one of them, or call stop\(\)"):
        retargeted(old, {"max_sojourn": None, "min_sojourn": None, "max_processors": None})
    unknown: Any = {"max_sojurn": "1s"}
    fixed: Any = {"percentile": 99}
    with pytest.raises(InputError, match="no option 'max_sojurn'; known: max_processors, max_"):
        retargeted(old, unknown)
    with pytest.raises(InputError, match="percentile cannot be changed while the topology runs"):
        retargeted(old, fixed)


def test_settings_of_a_program_are_those_of_the_command_line() -> None:
    layers = [
        from_options(["commit=2s", "spark.sojourn.batch=1min"]),
        from_mapping({"commit": "2s", "spark.sojourn.batch": "1min"}),
    ]
    (_, options), (_, mapping) = layers
    assert options == mapping
    engine, _, _ = settings_from([from_mapping({"commit": 2, "maxQueue": 7})])
    assert (engine.commit_s, engine.max_queue) == (2.0, 7)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"comit": "2s"}, "did you mean spark.sojourn.commit"),
        ({"spark.executor.cores": 2}, "is a setting of Spark"),
        ({3: 4}, "a key must be text"),
        ([("commit", 2)], "must be a mapping"),
        ({"commit": "soon"}, r"spark.sojourn.commit \(settings\)"),
    ],
)
def test_a_wrong_setting_is_told(given: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        settings_from([from_mapping(given)])


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text(encoding="utf-8") == configuration.reference()


@pytest.mark.parametrize(
    ("given", "target", "hops", "expected"),
    [
        (None, None, 4, 0.01),
        (None, 0.15, 3, 0.005),
        (None, 60.0, 3, 0.01),
        (None, 0.05, 0, 0.005),
        (0.002, 0.15, 3, 0.002),
    ],
)
def test_what_the_target_leaves_is_how_long_tuples_may_gather(
    given: float | None, target: float | None, hops: int, expected: float
) -> None:
    found = EngineSettings(max_rest_s=given).rest_s(target, hops)
    assert found == pytest.approx(expected)


def test_kinds_of_machines_are_read_and_refused_by_their_rule() -> None:
    layers = [configuration.from_options(["provision.kinds=small=1:1,large=4:3.5:2min"])]
    _, control, _ = configuration.settings_from(layers)
    assert control.provision_kinds == (Kind("small", 1, 1.0), Kind("large", 4, 3.5, 120.0))
    for wrong in ("", "small", "small=1:1:1:1", "small=0:1", "a=1:1,a=2:1"):
        with pytest.raises(
            InputError, match=r"provision\.kinds .*: must be kinds of machines such"
        ):
            configuration.settings_from([configuration.from_options([f"provision.kinds={wrong}"])])
