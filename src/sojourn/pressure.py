"""What cannot wait for the next tick: the rate of a source that has risen for sure, and a queue in
which tuples will wait for too long. Watched where tuples arrive, by executors and by the simulator.
Pure, but for what a watch remembers."""

import math

_RATIO = 1.5  # the change that is looked for, up and down
_SURE = 9.0  # logarithm of how much likelier a change must be, for each arrival in a second: chance
# comes there once a day, whatever the rate
_CALM = 2.0  # evidence below which nothing has begun to change
_KNOWN = 50  # arrivals from which the usual rate is known
_KNOWN_S = 1.0
_MEMORY_S = 30.0  # of the usual rate
_STEP_S = 0.02  # arrivals are looked at together
_SPREAD_S = 0.5  # over which their irregularity is measured
_MOST_IRREGULAR = 20.0
_SPANS = 10  # such spans, from which it is known
_LEAST = 1e-6  # the lowest usual rate, after a silence
_FEW = 20  # arrivals that hardly tell a rate
_LONG = 0.5  # times the target; other operators need time too


class RateWatch:
    """Tells that a rate has risen, by Page's CUSUM for Poisson arrivals: the evidence for another
    rate over the usual one adds up, and what speaks against it never counts below zero. Where
    arrivals are less regular than Poisson's, each says less. After a change the new rate becomes
    the usual one."""

    def __init__(self) -> None:
        self.began_s: float | None = None
        self.last_s = 0.0
        self.usual = 0.0  # the rate
        self.fallen: tuple[float, float] | None = None  # when it last fell, and what it was before
        self.count = 0  # since it began
        self.coming = 0  # since it last looked
        self.up = self.down = 0.0
        self.rising: list[tuple[float, int]] = []  # steps since it may have begun to rise
        self.irregular = 1.0  # variance over mean of the number in half a second
        self.usually = 1.0  # the same, as it was before something may have begun to change
        self.spans = 0  # over which it was measured
        self.spread_s, self.spread_count, self.spread_expected = 0.0, 0, 0.0

    def add(self, count: int, now_s: float) -> tuple[float, float] | None:
        """So many have arrived since the last call. Returns the rate, and for how many seconds it
        has been so, once it is sure that the rate has risen."""
        if self.began_s is None:
            self._begin(now_s)
        self.coming += count
        seconds = now_s - self.last_s
        if seconds < _STEP_S:
            return None
        count, self.coming, self.last_s = self.coming, 0, now_s
        self.count += count
        assert self.began_s is not None
        if self.count < _KNOWN or now_s - self.began_s < _KNOWN_S:
            self.usual = self.count / (now_s - self.began_s)
            return None
        expected = self.usual * seconds
        self._note_spread(count, expected, seconds)
        step = math.log(_RATIO)
        if self.up <= _CALM and self.down <= _CALM:
            self.usually = max(1.0, self.irregular)
        self.down += ((1 - 1 / _RATIO) * expected - count * step) / self.usually
        if self.up <= _CALM:
            self.rising.clear()
        self.rising.append((seconds, count))
        self.up = max(0.0, self.up + (count * step - (_RATIO - 1) * expected) / self.usually)
        self.down = max(0.0, self.down)
        sure = _SURE + math.log(max(1.0, self.usual))
        if self.spans < _SPANS:
            self.up = self.down = 0.0
        elif self.up > sure:
            self._begin(now_s)
            return self._news(now_s)
        elif self.down > sure:
            self.fallen = (now_s, self.usual)
            self._begin(now_s)
            return None
        self.usual += (count - expected) / max(_MEMORY_S, seconds)
        return None

    def _news(self, now_s: float) -> tuple[float, float] | None:
        """The rise, unless it is far from making up for a fall just before: what was needed until
        then is still there, and a loop that is woken up would keep all of it."""
        rate, over_s = self._risen()
        if self.fallen is not None:
            at_s, before = self.fallen
            if now_s - at_s < _MEMORY_S and _RATIO * rate < before:
                return None
        return rate, over_s

    def _risen(self) -> tuple[float, float]:
        """The rate that it has risen to, and for how long it has been so: since when is what makes
        the steps since likeliest."""
        best, found = -math.inf, (0.0, 0.0)
        seconds, count = 0.0, 0
        usual = max(self.usual, _LEAST)
        for step_s, came in reversed(self.rising):
            seconds, count = seconds + step_s, count + came
            rate = count / seconds
            likelier = count * math.log(max(rate, usual) / usual)
            likelier -= (max(rate, usual) - usual) * seconds
            if likelier > best and (count >= _FEW or not found[1]):
                best, found = likelier, (rate, seconds)
        return found

    def _begin(self, now_s: float) -> None:
        """Learn the usual rate anew."""
        self.began_s = self.last_s = now_s
        self.count = 0
        self.up = self.down = 0.0
        self.spread_s, self.spread_count, self.spread_expected = 0.0, 0, 0.0

    def _note_spread(self, count: int, expected: float, seconds: float) -> None:
        self.spread_s += seconds
        self.spread_count += count
        self.spread_expected += expected
        if self.spread_s < _SPREAD_S:
            return
        off = (self.spread_count - self.spread_expected) ** 2 / max(1.0, self.spread_expected)
        self.spans += 1
        weight = min(1.0, max(self.spread_s / _MEMORY_S, 1 / (1 + self.spans)))
        self.irregular += weight * (min(off, _MOST_IRREGULAR) - self.irregular)
        self.spread_s, self.spread_count, self.spread_expected = 0.0, 0, 0.0


class QueueWatch:
    """Tells that tuples that come now will wait for longer than half the target, once each time
    that it comes to that."""

    def __init__(self, max_sojourn_s: float | None) -> None:
        self.max_sojourn_s = max_sojourn_s  # the target; None: they may wait as long as they like
        self.crossed = False

    def look(self, waiting: int, processors: int, service_s: float) -> float | None:
        """How long a tuple that comes now will wait, if that has just become too long. A few that
        wait are no queue."""
        if self.max_sojourn_s is None or processors < 1:
            return None
        wait_s = waiting * service_s / processors
        long = wait_s > _LONG * self.max_sojourn_s and waiting > 2 * processors + 10
        if wait_s < _LONG / 2 * self.max_sojourn_s:
            self.crossed = False
        if not long or self.crossed:
            return None
        self.crossed = True
        return wait_s
