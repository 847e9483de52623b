"""YAML that knows the place of each value, so that every error names its file and line. Fed by a
path; the plan file's rules are checked on it."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from sojourn.errors import InputError
from sojourn.units import parse_whole

_MAX_DEPTH = 20


@dataclass(frozen=True)
class Section:
    """A mapping of the file that knows its place, so that every error names it."""

    value: dict[str, Any]
    lines: Mapping[tuple[str | int, ...], int]
    path: str
    place: tuple[str | int, ...]

    def fail(self, message: str, *below: str | int) -> NoReturn:
        """Refuse the value here, or one below it."""
        place = (*self.place, *below)
        dotted = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place).lstrip(".")
        line = next(
            self.lines[place[:n]] for n in range(len(place), -1, -1) if place[:n] in self.lines
        )
        raise InputError(f"{self.path}:{line}: {dotted + ': ' if dotted else ''}{message}")

    def section(self, *below: str | int) -> "Section":
        """A mapping below."""
        value: Any = self.value
        for key in below:
            value = value[key]
        if not isinstance(value, dict):
            self.fail(f"must be a mapping of keys to values; got {value!r:.60}", *below)
        return Section(value, self.lines, self.path, (*self.place, *below))

    def entries(self, key: str, *known: str) -> Iterable[tuple[str, "Section"]]:
        """The named mappings below a key, with their keys checked."""
        if not self.value.get(key):
            self.fail(f"needs {key} with at least one entry", *([key] if key in self.value else []))
        section = self.section(key)
        for name in section.value:
            entry = section.section(name)
            entry.check_keys(*known)
            yield name, entry

    def check_keys(self, *known: str) -> None:
        """Refuse unknown keys and suggest the nearest."""
        for key in self.value:
            if key not in known:
                self.fail(f"unknown key{_nearest(key, known)}", key)

    def number(
        self,
        key: str,
        parse: Callable[[object, str], float],
        default: float | None = None,
        above: float | None = None,
    ) -> float:
        """A number, with the unit that `parse` knows."""
        if key not in self.value:
            if default is None:
                self.fail(f"needs {key}")
            return default
        try:
            number = parse(self.value[key], "")
        except InputError as error:
            self.fail(str(error).removeprefix(": "), key)
        if above is not None and number <= above:
            self.fail(f"must be above {above:g}; got {self.value[key]!r}", key)
        if number < 0:
            self.fail(f"must not be negative; got {self.value[key]!r}", key)
        return number

    def optional(
        self, key: str, parse: Callable[[object, str], float], above: float
    ) -> float | None:
        """A number that may be absent."""
        return self.number(key, parse, above=above) if key in self.value else None

    def whole(self, key: str) -> int | None:
        """A whole number that may be absent."""
        if key not in self.value:
            return None
        try:
            return parse_whole(self.value[key], "")
        except InputError as error:
            self.fail(str(error).removeprefix(": "), key)

    def name(self, key: str, known: Iterable[str], what: str) -> str:
        """One of the known names."""
        if key not in self.value:
            self.fail(f"needs {key}")
        value = self.value[key]
        if not isinstance(value, str) or value not in known:
            self.fail(f"unknown {what} {value!r:.60}{_nearest(str(value), known)}", key)
        return value

    def text(self, key: str, default: str) -> str:
        """Text that may be absent."""
        value = self.value.get(key, default)
        if not isinstance(value, str) or not value.strip():
            self.fail(f"must be text; got {value!r:.60}", key)
        return value


def _nearest(word: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"


def read_section(path: Path, holds: str = "sources, operators and edges") -> Section:
    """A whole file as a section."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not a text file in UTF-8 ({error.reason})") from error
    try:
        _check_events(text, str(path))
        value, lines = _build(text, str(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{path}{line}: is not valid YAML: {problem}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}:1: must hold {holds}; got {value!r:.60}")
    return Section(value, lines, str(path), ())


def _check_events(text: str, path: str) -> None:
    """Refuse what a plan does not need, before it is built: aliases, tags, endless nesting."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise InputError(f"{path}:{line}: aliases (*name) are not supported; write it in full")
        if getattr(event, "tag", None) is not None:
            raise InputError(
                f"{path}:{line}: tags (!name) are not supported; leave out {event.tag!r}"
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise InputError(f"{path}:{line}: is nested too deeply")


def _build(text: str, path: str) -> tuple[Any, dict[tuple[str | int, ...], int]]:
    """The YAML as plain values, and the line of every key and item."""
    lines: dict[tuple[str | int, ...], int] = {(): 1}
    loader = yaml.SafeLoader(text)

    def build(node: yaml.Node, place: tuple[str | int, ...]) -> Any:
        if isinstance(node, yaml.MappingNode):
            mapping: dict[str, Any] = {}
            for key_node, value_node in node.value:
                line = key_node.start_mark.line + 1
                key = loader.construct_object(key_node)
                if not isinstance(key, str):
                    raise InputError(
                        f"{path}:{line}: the key {key!r:.60} must be text; put it in quotes"
                    )
                if key in mapping:
                    raise InputError(f"{path}:{line}: the key {key!r} is given twice")
                lines[*place, key] = line
                mapping[key] = build(value_node, (*place, key))
            return mapping
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                lines[*place, index] = item.start_mark.line + 1
            return [build(item, (*place, index)) for index, item in enumerate(node.value)]
        try:
            return loader.construct_object(node)
        except ValueError as error:  # such as a date that no calendar has
            line = node.start_mark.line + 1
            raise InputError(
                f"{path}:{line}: {node.value!r:.60} cannot be read: {error}"
            ) from error

    try:
        node = loader.get_single_node()
        return (build(node, ()) if node else None), lines
    finally:
        loader.dispose()
