"""How fast this machine works: a fixed piece of work, over and over."""

import time

from sojourn.probing import figures

_STEPS = 100_000


def piece() -> int:
    """Some milliseconds of plain Python on one core, always the same."""
    value = 1
    for _ in range(_STEPS):
        value = (value * 1_103_515_245 + 12_345) & 0x7FFFFFFF
    return value


def capacity(seconds: float) -> tuple[float, ...]:
    """Pieces a second that one core does, in each second."""
    began_s = time.monotonic()
    done_s = [0.0]
    while done_s[-1] < seconds:
        piece()
        done_s.append(time.monotonic() - began_s)
    return figures.each_second(done_s[1:], seconds)
