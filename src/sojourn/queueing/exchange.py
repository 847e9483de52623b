"""A search that moves and exchanges things of several kinds between sites as long as that lowers a
cost. Fed by unequal.py, whose things are processors and whose sites are operators.

A move changes what two sites have by the same amounts, in opposite directions: it moves one thing,
or exchanges one or two for one or two others. The last site is where things are left over; it may
owe some, until other sites have given them back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations, combinations_with_replacement

Mix = tuple[int, ...]
Cost = Callable[[int, Mix], tuple[float, float] | None]
"""What a site lacks and what it costs with so many of each kind; None if it must not have them."""

_MOST_TRIALS = 100
_MORE = 4
_LEAST_GAIN = 1e-12


@dataclass(frozen=True)
class Deal:
    """What each site has, what is left over, and what that lacks and costs in all."""

    mixes: tuple[Mix, ...]
    left: Mix
    short: float
    total: float

    @property
    def used(self) -> list[int]:
        """How many of each kind the sites have."""
        return [sum(counts) for counts in zip(*self.mixes, strict=True)]


class Exchange:
    """The moves there are, and what is known of their effects."""

    def __init__(self, cost: Cost, kinds: int) -> None:
        self.cost = cost
        self.steps = _steps(kinds)
        self.known: dict[tuple[int, Mix], dict[Mix, tuple[float, float]]] = {}

    def deal(self, mixes: Sequence[Mix], counts: Sequence[int]) -> Deal:
        """A deal with so many of each kind in all."""
        used = (sum(of) for of in zip(*mixes, strict=True))
        left = tuple(n - gone for n, gone in zip(counts, used, strict=True))
        found = [self._at(site, mix) for site, mix in enumerate((*mixes, left))]
        short = round(sum(lacks for lacks, _ in found), 9)
        return Deal(tuple(mixes), left, short, sum(costs for _, costs in found))

    def least(self, deal: Deal) -> Deal:
        """A better deal that no move improves. Where there are few sites, each is then given things
        of one kind only, and the moves go on from there: a site that is best served by many slow
        things would else keep a fast one, as each single exchange looks bad."""
        best = self.settled(deal)
        improved = len(deal.mixes) * len(deal.left) <= _MOST_TRIALS
        while improved:
            improved = False
            for site in range(len(deal.mixes)):
                for kind in range(len(deal.left)):
                    tried = self.settled(self._of_one_kind(best, site, kind))
                    fewer = tried.short - best.short
                    gain = best.total - tried.total
                    if fewer < 0 or (fewer == 0 and gain > 1e-9 * best.total):
                        best, improved = tried, True
        return best

    def settled(self, deal: Deal) -> Deal:
        """Make the best move, again and again, until none is left that lowers what is lacking, or
        else the cost."""
        mixes = [*deal.mixes, deal.left]
        counts = [n + left for n, left in zip(deal.used, deal.left, strict=True)]
        gains = [self._gains(site, mix) for site, mix in enumerate(mixes)]
        total = deal.total
        while True:
            moves = [move for step in self.steps if (move := _best_move(gains, step)) is not None]
            (short, change), to, giver, step = min(moves)
            if short >= 0 and not (short == 0 and change < -_LEAST_GAIN * abs(total)):
                return self.deal(mixes[:-1], counts)
            total += change
            for site, by in ((to, step), (giver, _opposite(step))):
                mixes[site] = _plus(mixes[site], by)
                gains[site] = self._gains(site, mixes[site])

    def _of_one_kind(self, deal: Deal, site: int, kind: int) -> Deal:
        """The same, but a site has things of one kind only: twice as many as it needs to lack
        nothing, as far as there are so many and it may have them."""
        counts = [n + left for n, left in zip(deal.used, deal.left, strict=True)]

        def alone(count: int) -> Mix:
            return tuple(count * (k == kind) for k in range(len(counts)))

        needed = 1
        while needed < counts[kind] and (self.cost(site, alone(needed)) or (0.0, 0.0))[0] > 0:
            needed += 1
        count = min(2 * needed + _MORE, counts[kind])
        while self.cost(site, alone(count)) is None:
            count -= 1
        mixes = [*deal.mixes]
        mixes[site] = alone(count)
        owed = max(0, sum(mix[kind] for mix in mixes) - counts[kind])
        for other, mix in sorted(enumerate(mixes), key=lambda of: -of[1][kind]):
            gone = min(owed, mix[kind]) if other != site else 0
            mixes[other] = tuple(n - gone * (k == kind) for k, n in enumerate(mix))
            owed -= gone
        return self.deal(mixes, counts)

    def _gains(self, site: int, mix: Mix) -> dict[Mix, tuple[float, float]]:
        """How every step would change what a site lacks and costs."""
        found = self.known.get((site, mix))
        if found is None:
            lacks, costs = self._at(site, mix)
            found = self.known[site, mix] = {}
            for step in (*self.steps, *map(_opposite, self.steps)):
                after = self.cost(site, _plus(mix, step))
                if after is not None:
                    found[step] = (after[0] - lacks, after[1] - costs)
        return found

    def _at(self, site: int, mix: Mix) -> tuple[float, float]:
        found = self.cost(site, mix)
        assert found is not None, (site, mix)
        return found


def _steps(kinds: int) -> list[Mix]:
    """Everything that a site can gain in one move, up to the sign."""
    one = [(kind,) for kind in range(kinds)]
    some = [(), *one, *combinations_with_replacement(range(kinds), 2)]
    found: dict[Mix, None] = {}
    for gone, come in combinations(some, 2):
        if not set(come) & set(gone) and (gone or come in one):
            found[tuple(come.count(kind) - gone.count(kind) for kind in range(kinds))] = None
    return list(found)


def _best_move(
    gains: list[dict[Mix, tuple[float, float]]], step: Mix
) -> tuple[tuple[float, float], int, int, Mix] | None:
    """By how much a step helps, and the two sites between which it helps most."""
    back = _opposite(step)
    to = nsmallest(2, [(found[step], site) for site, found in enumerate(gains) if step in found])
    giver = nsmallest(2, [(found[back], site) for site, found in enumerate(gains) if back in found])
    moves = [
        ((round(one[0] + two[0], 9), one[1] + two[1]), site, other, step)
        for one, site in to
        for two, other in giver
        if site != other
    ]
    return min(moves, default=None)


def _plus(one: Mix, other: Mix) -> Mix:
    return tuple([a + b for a, b in zip(one, other, strict=True)])


def _opposite(step: Mix) -> Mix:
    return tuple([-n for n in step])
