"""Durations, rates and paths as people write them; the former to and from seconds and tuples per
second.
Fed by files, settings and the command line; used wherever such a value enters or is shown."""

import math
import re
from pathlib import Path
from typing import Any

from sojourn.errors import InputError

_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,  # micro sign
    "μs": 1e-6,  # Greek mu
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_MAX_DIGITS = 12
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*")


def parse_duration(value: object, what: str) -> float:
    """Seconds from `500ms`, `1.5 s`, `2min`, `250us`; a bare number is seconds."""
    number, unit = _split(value, what, "a duration such as 500ms, 1.5s or 2min")
    if unit and unit not in _SECONDS:
        known = ", ".join(u for u in _SECONDS if u.isascii())
        raise InputError(f"{what}: unknown unit {unit!r} in {value!r}; known: {known}")
    return _finite(number * _SECONDS[unit or "s"], value, what)


def parse_rate(value: object, what: str) -> float:
    """Tuples per second from `13`, `13/s`, `780/min`; a bare number is per second."""
    number, unit = _split(value, what, "a rate such as 13, 13/s or 780/min")
    per = unit.removeprefix("/").strip()
    if unit and (not unit.startswith("/") or per not in _SECONDS):
        raise InputError(f"{what}: unknown unit {unit!r} in {value!r}; write 13/s, 780/min or 4/h")
    return _finite(number / _SECONDS[per or "s"], value, what)


def parse_number(value: object, what: str) -> float:
    """A finite number without a unit."""
    number, unit = _split(value, what, "a number")
    if unit:
        raise InputError(f"{what}: must be a plain number; got {value!r}")
    return number


def parse_whole(value: object, what: str, least: int = 1) -> int:
    """A whole number of at least `least`."""
    text = str(value) if isinstance(value, str) else ""
    if text.strip().isdecimal() and len(text) <= _MAX_DIGITS:
        value = int(text)
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not least <= value < 10**_MAX_DIGITS
    ):
        told = value if isinstance(value, float) else shown(value)
        raise InputError(f"{what}: must be a whole number of at least {least}; got {told}")
    return value


def parse_path(value: Any, what: str) -> Path:
    """A path from text, or from what stands for one."""
    try:
        return Path(value)
    except TypeError:
        raise InputError(
            f"{what}: must be a path, as text or a pathlib.Path; got {shown(value)}"
        ) from None


DASHBOARD_PORT = 4190


def parse_address(value: Any, what: str) -> str:
    """HOST:PORT from that, from a part of it, or from True and "on"; "off" from False. Port 0 takes
    any that is free."""
    text = str(value).strip() if isinstance(value, int | str) else ":"
    if isinstance(value, bool):
        text = "on" if value else "off"
    if text == "off":
        return text
    host, port = "127.0.0.1", str(DASHBOARD_PORT)
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]/]*)(?::(\d{1,5}))?", text)
    if text.isdecimal():
        port = text
    elif text != "on" and found is not None:
        host, port = found[1] or host, found[2] or port
    if (found is None and not text.isdecimal()) or text == "" or int(port) > 65535:
        raise InputError(
            f"{what}: must be HOST:PORT such as {host}:{DASHBOARD_PORT}, on or off; got "
            f"{shown(value)}"
        )
    return f"{host}:{int(port)}"


def format_rate(rate: float, digits: int = 4) -> str:
    """A rate or a number with so many digits, and never with a power of ten."""
    return f"{rate:.0f}" if rate >= 10 ** (digits - 1) else f"{rate:.{digits}g}"


def format_duration(seconds: float) -> str:
    """`612 ms`, `1.25 s`, `3.4 µs`: three significant digits in the unit that suits."""
    if math.isinf(seconds):
        return "∞"
    if seconds == 0:
        return "0 ms"
    for unit, size in (("µs", 1e-6), ("ms", 1e-3)):
        if abs(seconds) < 999.5 * size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds)} s"


def format_wait(seconds: float) -> str:
    """How long is left: `14 s`, `31 min`, `2 h 5 min`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _three_digits(number: float) -> str:
    if abs(number) >= 100:
        return f"{number:.0f}"
    return f"{number:.3g}"


def _split(value: object, what: str, expected: str) -> tuple[float, str]:
    """The number and the unit after it. Refuses booleans, words and infinities."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**300:
        value = float(value)
    usable = isinstance(value, float | str)
    match = _QUANTITY.fullmatch(str(value)) if usable else None
    if match is None:
        raise InputError(f"{what}: must be {expected}; got {shown(value)}")
    return _finite(float(match[1]), value, what), match[2]


def _finite(number: float, value: object, what: str) -> float:
    if not math.isfinite(number):
        raise InputError(f"{what}: is too large; got {shown(value)}")
    return number


def shown(value: object) -> str:
    """A value as a message quotes it. One that is too long to print is named by its kind."""
    if isinstance(value, int) and abs(value) >= 10**_MAX_DIGITS:
        return "a number of many digits"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
