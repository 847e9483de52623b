"""The configuration reader: settings from a file, SparkConf, the environment and the command line,
each overriding the one before. An unknown key is refused; the message names the nearest known
one."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from sojourn.errors import InputError
from sojourn.settings import (
    PREFIX,
    ControlSettings,
    EngineSettings,
    Knob,
    SimulatorSettings,
    knobs_of,
    known_keys,
)

Layer = tuple[str, Mapping[str, object]]
_S = TypeVar("_S", EngineSettings, ControlSettings, SimulatorSettings)


def read_file(path: Path) -> Layer:
    """A YAML file (`spark.sojourn: {maxSojourn: 500ms}`, nested or with dots) or a properties file
    like Spark's own (`spark.sojourn.maxSojourn 500ms`). Keys of others are left alone."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if path.suffix in (".yaml", ".yml"):
        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(f"{path}: is not YAML: {error}") from None
        if found is not None and not isinstance(found, dict):
            raise InputError(f"{path}: must be a mapping of keys to values; got {found!r:.60}")
        flat = dict(_flat("", found or {}))
    else:
        flat = {}
        for line in text.splitlines():
            if line.strip() and not line.lstrip().startswith(("#", "!")):
                key, *value = re.split(r"\s*[=:\s]\s*", line.strip(), maxsplit=1)
                flat[key] = value[0] if value else ""
    known = known_keys()
    for key in flat:
        if PREFIX + key in known:
            raise InputError(
                f"{path}: {key} would be ignored, as a file may have other programs' keys as well; "
                f"write {PREFIX}{key}"
            )
    return str(path), ours(flat)


def _flat(prefix: str, tree: Mapping[Any, Any]) -> Iterable[tuple[str, object]]:
    for key, value in tree.items():
        whole = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, dict):
            yield from _flat(whole, value)
        else:
            yield whole, value


def ours(found: Mapping[str, object]) -> dict[str, object]:
    """The keys that are Sojourn's."""
    return {key: value for key, value in found.items() if key.startswith(PREFIX)}


def from_environment(environ: Mapping[str, str]) -> Layer:
    """`SOJOURN_MAX_SOJOURN=500ms` and so on."""
    found = {
        knob.name: environ[knob.variable]
        for knob in known_keys().values()
        if knob.variable in environ
    }
    return "environment", found


def from_options(conf: Iterable[str]) -> Layer:
    """`--conf key=value`, with the prefix or without."""
    found: dict[str, object] = {}
    for option in conf:
        key, equals, value = option.partition("=")
        if not equals:
            raise InputError(f"--conf {option!r}: must be key=value")
        found[_whole(key, f"--conf {option!r}")] = value
    return "--conf", found


def from_mapping(settings: Mapping[str, object]) -> Layer:
    """`settings={"commit": "2s"}`, with the prefix or without."""
    if not isinstance(settings, Mapping):
        raise InputError(f"settings must be a mapping of keys to values; got {settings!r:.80}")
    return "settings", {_whole(key, f"settings {key!r}"): v for key, v in settings.items()}


def _whole(key: object, what: str) -> str:
    if not isinstance(key, str):
        raise InputError(f"{what}: a key must be text, such as 'commit'")
    if key.startswith("spark.") and not key.startswith(PREFIX):
        raise InputError(f"{what}: is a setting of Spark; give it to spark-submit or your session")
    return key if key.startswith(PREFIX) else PREFIX + key


def settings_from(
    layers: Iterable[Layer],
) -> tuple[EngineSettings, ControlSettings, SimulatorSettings]:
    """Settings from all layers; later ones override earlier ones."""
    known = known_keys()
    merged: dict[str, Any] = {}
    for where, values in layers:
        for key, value in values.items():
            knob = known.get(key)
            if knob is None:
                raise InputError(f"{key} ({where}): there is no such setting{_nearest(key, known)}")
            merged[key] = knob.parse(value, where)
    return (
        _made(EngineSettings, merged),
        _made(ControlSettings, merged),
        _made(SimulatorSettings, merged),
    )


def _made(kind: type[_S], merged: Mapping[str, Any]) -> _S:
    by_field = knobs_of(kind)
    return kind(**{name: merged[k.name] for name, k in by_field.items() if k.name in merged})


def _nearest(key: str, known: Mapping[str, Knob]) -> str:
    close = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {close[0]}?" if close else "; docs/settings.md lists them"


def changed_live(old: ControlSettings, new: ControlSettings) -> list[str]:
    """The keys that differ. Refuses one that cannot be changed while a topology runs."""
    found = []
    for name, knob in knobs_of(ControlSettings).items():
        if getattr(old, name) != getattr(new, name):
            if not knob.live:
                raise InputError(f"{knob.name} cannot be changed while the topology runs")
            found.append(knob.name)
    return found


def reference() -> str:
    """The reference page of all settings, in Markdown."""
    lines = [
        "# Settings",
        "",
        "Generated from `src/sojourn/settings.py` by `make docs`.",
        "",
        "Settings come from five places, each overriding the one before: a file (`--config FILE`,",
        "YAML or properties), SparkConf (`spark-submit --conf`), the environment, options",
        "`--conf key=value`, and options of their own such as `--max-sojourn`. In Python,",
        '`settings={"commit": "2s"}` stands for `--conf`, and `max_sojourn=` for `--max-sojourn`.',
        "Only `--conf` and `settings=` may leave out `spark.sojourn.`. A YAML file may have it",
        "once, above its settings:",
        "",
        "```yaml",
        "spark.sojourn:",
        "  maxSojourn: 500ms",
        "  commit: 2s",
        "```",
    ]
    titles = {
        "Control": ControlSettings,
        "Engine": EngineSettings,
        "Simulator": SimulatorSettings,
    }
    for title, kind in titles.items():
        lines += ["", f"## {title}", "", "| key | kind | default | meaning |"]
        lines += ["| --- | --- | --- | --- |"]
        defaults = {f.name: f.default for f in fields(kind)}
        for name, knob in knobs_of(kind).items():
            live = " Can be changed while the topology runs." if knob.live else ""
            cells = (
                f"`{knob.name}`<br>`{knob.variable}`",
                knob.kind.replace("|", " or "),
                _shown(knob, defaults[name]),
                f"{knob.about}{live}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _shown(knob: Knob, default: Any) -> str:
    if default is None:
        return ""
    text = f"{default:g}" if isinstance(default, float) else str(default)
    return f"{text}s" if knob.kind == "duration" else text
