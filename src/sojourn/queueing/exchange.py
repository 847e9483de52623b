"""A search that moves and exchanges things of several kinds between sites as long as that lowers a
cost. Fed by unequal.py, whose things are processors and whose sites are operators.

A move changes what two sites have by the same amounts, in opposite directions: it moves one thing,
exchanges two, or exchanges two for one. The last site is where things are left over."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations, combinations_with_replacement

Mix = tuple[int, ...]
Cost = Callable[[int, Mix], tuple[float, float] | None]
"""What a site lacks and what it costs with so many of each kind; None if it must not have them."""

_MOST_TRIALS = 100
_LEAST_SHORT = 1e-9
_LEAST_GAIN = 1e-12


@dataclass(frozen=True)
class Deal:
    """What each site has, what is left over, and what that lacks and costs in all."""

    mixes: tuple[Mix, ...]
    left: Mix
    short: float
    total: float

    @classmethod
    def of(cls, cost: Cost, mixes: Sequence[Mix], left: Mix) -> "Deal":
        """With its cost."""
        short = total = 0.0
        for site, mix in enumerate((*mixes, left)):
            found = cost(site, mix)
            assert found is not None, (site, mix)
            short, total = short + found[0], total + found[1]
        return cls(tuple(mixes), left, round(short, 9), total)

    @property
    def used(self) -> list[int]:
        """How many of each kind the sites have."""
        return [sum(counts) for counts in zip(*self.mixes, strict=True)]

    def with_counts(self, cost: Cost, counts: Sequence[int]) -> "Deal":
        """The same with so many of each kind in all. What is left over may become negative; then
        sites must give some back."""
        left = tuple(n - used for n, used in zip(counts, self.used, strict=True))
        return Deal.of(cost, self.mixes, left)


def least(deal: Deal, cost: Cost) -> Deal:
    """From a deal on, a better one that no move improves. One site after the other is then given
    all there is of one kind, and no other, and the moves go on from there: a site that is best
    served by slow things alone would else keep a fast one, as each single exchange looks bad."""
    best = settled(deal, cost)
    improved = len(deal.mixes) * len(deal.left) <= _MOST_TRIALS
    while improved:
        improved = False
        for site in range(len(deal.mixes)):
            for kind in range(len(deal.left)):
                tried = settled(_given_all(best, site, kind, cost), cost)
                gain = best.total - tried.total
                if tried.short < best.short or (
                    tried.short <= best.short and gain > _LEAST_SHORT * best.total
                ):
                    best, improved = tried, True
    return best


def settled(deal: Deal, cost: Cost) -> Deal:
    """Make the best move, again and again, until none is left that lowers what is lacking, or else
    the cost."""
    mixes = [*deal.mixes, deal.left]
    steps = _steps(len(deal.left))
    gains = [_gains(site, mix, steps, cost) for site, mix in enumerate(mixes)]
    total = deal.total
    while True:
        moves = [found for step in steps if (found := _best_pair(gains, step)) is not None]
        (short, change), to, giver, step = min(moves)
        if short >= 0 and not (short == 0 and change < -_LEAST_GAIN * abs(total)):
            return Deal.of(cost, mixes[:-1], mixes[-1])
        total += change
        for site, by in ((to, step), (giver, _opposite(step))):
            mixes[site] = _plus(mixes[site], by)
            gains[site] = _gains(site, mixes[site], steps, cost)


def _given_all(deal: Deal, site: int, kind: int, cost: Cost) -> Deal:
    """The same, but a site has all of one kind that it may have, and nothing else."""
    mixes = [tuple(0 if k == kind else n for k, n in enumerate(mix)) for mix in deal.mixes]
    have = [n + left for n, left in zip(deal.used, deal.left, strict=True)]
    count = have[kind]
    while cost(site, mix := tuple(count * (k == kind) for k in range(len(have)))) is None:
        count -= 1
    mixes[site] = mix
    left = tuple(n - sum(counts) for n, counts in zip(have, zip(*mixes, strict=True), strict=True))
    return Deal.of(cost, mixes, left)


def _steps(kinds: int) -> list[Mix]:
    """Everything that a site can gain in one move, up to the sign: one thing, or one or two for one
    or two others."""
    one = [(kind,) for kind in range(kinds)]
    some = [(), *one, *combinations_with_replacement(range(kinds), 2)]
    found = {}
    for gone, come in combinations(some, 2):
        if not set(come) & set(gone) and (gone or come in one):
            found[tuple(come.count(kind) - gone.count(kind) for kind in range(kinds))] = None
    return list(found)


def _gains(site: int, mix: Mix, steps: list[Mix], cost: Cost) -> dict[Mix, tuple[float, float]]:
    """How every step would change what a site lacks and costs."""
    now = cost(site, mix)
    assert now is not None, (site, mix)
    found = {}
    for step in (*steps, *map(_opposite, steps)):
        after = cost(site, _plus(mix, step))
        if after is not None:
            found[step] = (after[0] - now[0], after[1] - now[1])
    return found


def _best_pair(
    gains: list[dict[Mix, tuple[float, float]]], step: Mix
) -> tuple[tuple[float, float], int, int, Mix] | None:
    """By how much a step helps, and the two sites between which it helps most."""
    back = _opposite(step)
    to = nsmallest(2, ((found[step], site) for site, found in enumerate(gains) if step in found))
    giver = nsmallest(2, ((found[back], site) for site, found in enumerate(gains) if back in found))
    pairs = [
        ((round(one[0] + two[0], 9), one[1] + two[1]), site, other, step)
        for one, site in to
        for two, other in giver
        if site != other
    ]
    return min(pairs, default=None)


def _plus(one: Mix, other: Mix) -> Mix:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _opposite(step: Mix) -> Mix:
    return tuple(-n for n in step)
