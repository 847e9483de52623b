"""Forecast: the load to plan for, where the past foretells it. A slope is extrapolated over the
time that a change takes, and a library learns what recurs. Either counts in full only where it has
proved right; a slope that lasts counts up to the headroom. Part of `model`; feeds `decide`.
Pure."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from sojourn.control.measure import MORE, Measure, reading_of
from sojourn.control.shift import Reading, since
from sojourn.settings import ControlSettings
from sojourn.units import format_duration as told

_log = logging.getLogger("sojourn")
_SURE = 4.0  # standard errors that a slope must be from none
_FEWEST = 6  # intervals that a slope is taken from
_REACHES_S = (60.0, 120.0)  # how far back a slope reaches; a slow one is seen only from afar
_LASTS_S = 20.0  # a slope that has not proved right counts once it has lasted that long
_STEEPEST = 2.0  # times the present load; a slope is not followed further
_CASES = 30  # by which a slope is judged
_PROVES = 10  # cases that say something
_MARGIN = 0.7  # of the squared error of "as now" that a forecast may have
_OUT_OF_LINE = 3.0  # times its usual error
_BUCKETS = 1440  # the most in a season: the minutes of a day
_BUCKET_INTERVALS = 5  # the fewest in a bucket
_SEASONS = 7  # remembered
_NEWEST = 0.3  # how much the newest season counts against those before
_LONGEST = 5  # times that; what took longer was refused
_MACHINES_S = 30.0  # how long machines take to come, until that is measured


@dataclass(frozen=True)
class Forecast:
    """The external rate that a change should do for, which is expected within `horizon_s` and never
    below the one `now`; and `by` what: "now", "slope" or "pattern". `soon` is expected by the time
    that a change made now takes effect, and `highest` before processors that are given back could
    be had again. `slope` and `pattern` are what they say of the rate, whether or not it counts."""

    now: float
    soon: float
    rate: float
    highest: float
    by: str
    horizon_s: float
    slope: float | None = None
    pattern: float | None = None

    @property
    def words(self) -> str:
        """What is expected; empty if it is the present load."""
        if self.by == "now":
            return ""
        within = told(self.horizon_s)
        return f"the load is expected to rise to {self.rate:.3g}/s within {within} (its {self.by})"


class Case(NamedTuple):
    """A forecast, beside the rate when it was made."""

    due: float  # a time, or the number of a bucket
    forecast: float
    now: float


@dataclass(frozen=True)
class Score:
    """The squared errors of the last forecasts, each beside the one that "as now" would have
    made."""

    cases: tuple[tuple[float, float], ...] = ()

    def judged(self, case: Case, came: float, most: int) -> "Score":
        """One more forecast, and what came."""
        errors = ((case.forecast - came) ** 2, (case.now - came) ** 2)
        return Score((*self.cases, errors)[-most:])

    @property
    def proved(self) -> bool:
        """Whether it has been better than "as now", often enough and by a margin, and whether the
        last case is in line with that."""
        if len(self.cases) < _PROVES:
            return False
        own = sum(error for error, _ in self.cases)
        last, last_now = self.cases[-1]
        in_line = last <= max(last_now, _OUT_OF_LINE**2 * own / len(self.cases))
        return in_line and own <= _MARGIN * sum(error for _, error in self.cases)


@dataclass(frozen=True)
class Seasons:
    """The load in buckets that recur. `history` has the rates of those that are over, the newest
    last; `ahead` what is expected of the one that is open and of those after it."""

    start_s: float = 0.0  # of bucket 0
    bucket: int = -1  # the open one
    seconds: float = 0.0
    tuples: float = 0.0
    history: tuple[float, ...] = ()
    ahead: tuple[float, ...] = ()
    pending: tuple[Case, ...] = ()
    score: Score = Score()

    def with_interval(
        self, now_s: float, rate: float, seconds: float, settings: ControlSettings
    ) -> "Seasons":
        """One more interval. Where a bucket is over, forecasts for it are judged and the pattern is
        learned anew."""
        season, bucket_s = buckets_of(settings)
        if self.bucket < 0:
            return replace(self, start_s=now_s, bucket=0)
        number = math.floor((now_s - seconds / 2 - self.start_s) / bucket_s)
        if number == self.bucket or not self.seconds:
            added = replace(self, seconds=self.seconds + seconds)
            return replace(added, tuples=self.tuples + rate * seconds, bucket=number)
        if not self.bucket < number <= self.bucket + season:
            return Seasons()
        came, score = self.tuples / self.seconds, self.score
        for case in self.pending:
            if case.due == self.bucket:
                score = score.judged(case, came, season)
        history = (*self.history, came)
        for _ in range(number - self.bucket - 1):  # not seen: as a season ago
            history = (*history, history[-season] if len(history) >= season else came)
        history = history[-_SEASONS * season :]
        return replace(
            self,
            bucket=number,
            seconds=seconds,
            tuples=rate * seconds,
            history=history,
            ahead=_learned(history, season),
            pending=tuple(case for case in self.pending if case.due >= number),
            score=score,
        )

    def expected(self, time_s: float, settings: ControlSettings) -> float | None:
        """The rate at that time, as far as it is known."""
        place = self._number(time_s, settings) - self.bucket
        return self.ahead[place] if 0 <= place < len(self.ahead) else None

    def highest(self, from_s: float, to_s: float, settings: ControlSettings) -> float | None:
        """The highest rate expected in a stretch of time."""
        first, last = (self._number(t, settings) - self.bucket for t in (from_s, to_s))
        return max(self.ahead[max(0, first) : last + 1], default=None)

    def foretold(self, due_s: float, now: float, settings: ControlSettings) -> "Seasons":
        """With a case for the bucket at that time, once for each bucket."""
        number, rate = self._number(due_s, settings), self.expected(due_s, settings)
        if rate is None or any(case.due >= number for case in self.pending):
            return self
        return replace(self, pending=(*self.pending, Case(number, rate, now)))

    def _number(self, time_s: float, settings: ControlSettings) -> int:
        return math.floor((time_s - self.start_s) / buckets_of(settings)[1])


@dataclass(frozen=True)
class Outlook:
    """What forecasts are made from and judged by."""

    pending: tuple[Case, ...] = ()  # of slopes
    score: Score = Score()  # of slopes
    seasons: Seasons = Seasons()
    asked_s: float | None = None  # since when more room is needed than there is
    room: int = 0  # when it was asked for
    machines_s: float = _MACHINES_S  # how long machines take to come

    def moved(self, seconds: float) -> "Outlook":
        """The same by a clock that was set back."""
        return replace(
            self,
            pending=tuple(case._replace(due=case.due + seconds) for case in self.pending),
            seasons=replace(self.seasons, start_s=self.seasons.start_s + seconds),
            asked_s=None,
        )

    def with_room(self, now_s: float, needed: int | None, room: int | None) -> "Outlook":
        """Notes how long it takes until there is more room, from when it is needed."""
        if self.asked_s is not None and room is not None and room > self.room:
            took_s = min(now_s - self.asked_s, _LONGEST * _MACHINES_S)
            return replace(self, asked_s=None, machines_s=took_s)
        if needed is None or room is None or needed <= room:
            return replace(self, asked_s=None)
        return self if self.asked_s is not None else replace(self, asked_s=now_s, room=room)

    def with_interval(
        self, now_s: float, rate: float, seconds: float, settings: ControlSettings
    ) -> "Outlook":
        """One more interval: what is due is judged by it."""
        due_s = now_s + settings.interval_s / 2
        score = self.score
        for case in self.pending:
            if now_s - settings.interval_s / 2 < case.due <= due_s:
                score = score.judged(case, rate, _CASES)
        pending = tuple(case for case in self.pending if case.due > due_s)
        seasons = self.seasons
        if settings.season_s is not None:
            seasons = seasons.with_interval(now_s, rate, seconds, settings)
        return replace(self, pending=pending, score=score, seasons=seasons)

    def lead_s(self, settings: ControlSettings, room: int | None) -> float:
        """How long a change takes: an interval until it is decided, and one until it shows; where
        room is limited, as long as machines take to come."""
        resize_s = 2 * settings.interval_s
        return resize_s if room is None else max(resize_s, self.machines_s)


def foreseen(
    outlook: Outlook,
    past: Sequence[Measure],
    smooth: Measure,
    settings: ControlSettings,
    room: int | None,
) -> tuple[Outlook, Forecast]:
    """The load to plan for, and the outlook with what was foretold, to be judged when it is due."""
    now_s, now = smooth.time_s, smooth.external_rate
    lead_s = outlook.lead_s(settings, room)
    horizon_s = lead_s + settings.change_interval_s  # until the next change may follow
    forecast = Forecast(now, now, now, now, "now", horizon_s)
    line = slope_of(past)
    if line is not None:
        soon, rate = (min(line.at(now_s + s), _STEEPEST * now) for s in (lead_s, horizon_s))
        outlook = replace(outlook, pending=(*outlook.pending, Case(now_s + horizon_s, rate, now)))
        forecast = replace(forecast, slope=rate)
        proved = outlook.score.proved
        if not proved:
            rate = min(rate, (1 + settings.headroom) * now)
        if rate > now and (proved or line.seconds >= _LASTS_S):
            soon = min(max(soon, now), rate)
            forecast = replace(forecast, soon=soon, rate=rate, highest=rate, by="slope")
    if settings.season_s is None:
        return outlook, forecast
    seasons = outlook.seasons.foretold(now_s + horizon_s, now, settings)
    return replace(outlook, seasons=seasons), _recurring(seasons, forecast, now_s, lead_s, settings)


def _recurring(
    seasons: Seasons, forecast: Forecast, now_s: float, lead_s: float, settings: ControlSettings
) -> Forecast:
    """The forecast with what the pattern says of it. When something comes is known to within a
    bucket, so a rise is looked for one bucket further."""
    bucket_s = buckets_of(settings)[1]
    soon_s = lead_s + bucket_s
    horizon_s = soon_s + max(bucket_s, settings.change_interval_s)
    quiet_s = max(horizon_s, settings.quiet_s)
    soon = seasons.highest(now_s, now_s + soon_s, settings)
    rate = seasons.highest(now_s, now_s + horizon_s, settings)
    later = seasons.highest(now_s + bucket_s, now_s + quiet_s, settings)
    if soon is None or rate is None or later is None:
        return forecast
    forecast = replace(forecast, pattern=rate)
    if not seasons.score.proved:
        return forecast
    forecast = replace(forecast, highest=max(forecast.highest, later))
    if rate <= MORE * forecast.rate:
        return forecast
    soon = max(soon, forecast.soon)
    return replace(forecast, soon=soon, rate=rate, by="pattern", horizon_s=horizon_s)


def slope_of(past: Sequence[Measure]) -> "Line | None":
    """The line that the load has followed since it last jumped; None if that has no slope for
    sure."""
    newest_s = past[-1].time_s
    past = [m for m in past if m.time_s > newest_s - max(_REACHES_S)]
    readings, times_s = [reading_of(m) for m in past], [_middle_s(m) for m in past]
    for reach_s in _REACHES_S:
        first = next(i for i, m in enumerate(past) if m.time_s > newest_s - reach_s)
        first += _jumped(readings[first:], times_s[first:])
        line = _line(times_s[first:], readings[first:])
        if len(past) - first >= _FEWEST and abs(line.slope) > _SURE * line.error:
            return line
    return None


class Line(NamedTuple):
    """A rate at a time, how fast it grows, the standard error of that, how far the readings are
    from it (the sum of squares over what chance makes of it), and how many seconds they are of."""

    rate: float
    time_s: float
    slope: float
    error: float
    misfit: float
    seconds: float

    def at(self, time_s: float) -> float:
        """The rate at a time."""
        return max(0.0, self.rate + self.slope * (time_s - self.time_s))


def _line(times_s: Sequence[float], readings: Sequence[Reading]) -> Line:
    """Weighted least squares. The number that comes in a second has its mean as variance, times
    the variability of gaps; readings that are further from the line than that say so."""
    weight = sum(r.weight for r in readings)
    rate = sum(r.mean * r.weight for r in readings) / weight
    time_s = sum(t * r.weight for t, r in zip(times_s, readings, strict=True)) / weight
    spread = sum(r.weight * (t - time_s) ** 2 for t, r in zip(times_s, readings, strict=True))
    slope = sum(
        r.weight * (t - time_s) * (r.mean - rate) for t, r in zip(times_s, readings, strict=True)
    )
    slope = slope / spread if spread > 0 else 0.0
    squares = sum(
        r.weight * (r.mean - rate - slope * (t - time_s)) ** 2
        for t, r in zip(times_s, readings, strict=True)
    )
    chance = rate * sum(r.scv * r.weight for r in readings) / weight
    misfit = squares / chance if chance > 0 else 0.0
    each = chance * max(1.0, misfit / max(1, len(readings) - 2))
    error = math.sqrt(each / spread) if spread > 0 else math.inf
    return Line(rate, time_s, slope, error, misfit, weight)


def _jumped(readings: Sequence[Reading], times_s: Sequence[float]) -> int:
    """The first reading since the load last jumped, rather than rose or fell steadily: where two
    levels fit better than a line does."""
    first = 0
    while True:
        rest, times = readings[first:], times_s[first:]
        place = since(rest, rates=True)
        if place == 0 or _steps(rest, place) >= _line(times, rest).misfit:
            return first
        first += place


def _steps(readings: Sequence[Reading], place: int) -> float:
    """The misfit of two levels."""
    squares = 0.0
    for part in (readings[:place], readings[place:]):
        weight = sum(r.weight for r in part)
        level = sum(r.mean * r.weight for r in part) / weight
        squares += sum(r.weight * (r.mean - level) ** 2 for r in part)
    weight = sum(r.weight for r in readings)
    rate = sum(r.mean * r.weight for r in readings) / weight
    return squares / (rate * sum(r.scv * r.weight for r in readings) / weight)


def _middle_s(measure: Measure) -> float:
    return measure.time_s - measure.interval_s / 2


def buckets_of(settings: ControlSettings) -> tuple[int, float]:
    """How many buckets a season has, and how long each is."""
    assert settings.season_s is not None
    shortest_s = _BUCKET_INTERVALS * settings.interval_s
    count = max(1, min(_BUCKETS, math.floor(settings.season_s / shortest_s)))
    return count, settings.season_s / count


def _learned(history: Sequence[float], season: int) -> tuple[float, ...]:
    """What the library expects of the next season's buckets; nothing before two are over."""
    forecaster = _forecaster()
    if forecaster is None or len(history) < 2 * season:
        return ()
    return forecaster(history, season)


def prepare(settings: ControlSettings) -> None:
    """Load the library if patterns are to be learned, so that no tick waits for that."""
    if settings.season_s is not None:
        _forecaster()


@cache
def _forecaster() -> Callable[[Sequence[float], int], tuple[float, ...]] | None:
    try:
        import numpy as np
        from statsforecast.models import SeasonalExponentialSmoothing
    except ImportError:
        _log.warning(
            "no pattern forecaster is installed, so no pattern is learned: "
            "pip install 'sojourn[forecast]'"
        )
        return None

    def learned(history: Sequence[float], season: int) -> tuple[float, ...]:
        model = SeasonalExponentialSmoothing(season, alpha=_NEWEST)
        found = model.forecast(y=np.array(history), h=season)["mean"]
        return tuple(max(0.0, float(rate)) for rate in found)

    return learned
