"""Numbers over time as blocks of text, a column each. Pure; used by the live view."""

import math
from collections.abc import Iterable, Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
UNKNOWN = "·"
_FULL = len(BLOCKS) - 1
_ROUNDING = 1e-9


def bars(values: Iterable[float | None], most: float) -> str:
    """A block for each, as high as its share of the most. What is above zero is seen; what is
    unknown is a dot."""
    return "".join(_block(value, most) for value in values)


def against(values: Sequence[float | None], target: float) -> tuple[str, str]:
    """Two rows: what lies above the target, up to twice of it, and what lies below."""
    over = [None if value is None else max(0.0, value - target) for value in values]
    return bars(over, target).replace(UNKNOWN, " "), bars(values, target)


def meter(share: float, width: int) -> str:
    """A bar of that width that is filled to a share."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(width)


def _block(value: float | None, most: float) -> str:
    if value is None:
        return UNKNOWN
    if not value > 0 or not most > 0:
        return BLOCKS[0]
    height = math.ceil(value / most * _FULL - _ROUNDING)
    return BLOCKS[min(_FULL, max(1, height))]
