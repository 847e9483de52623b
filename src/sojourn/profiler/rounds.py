"""Driving a method: its trials are run on a platform, or taken from an earlier run of the same
method, which goes on where that was interrupted."""

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass

from sojourn.ports import Parallelism, Platform
from sojourn.profiler.readings import Reading, measure
from sojourn.profiler.trial import Measured, Method, Progress, Proposal, Verdict


@dataclass(frozen=True)
class Round:
    """A trial: what was tried and why, what was measured, and what the method made of it."""

    number: int
    proposal: Proposal
    measured: Measured
    verdict: Verdict


def run(
    method: Method,
    platform: Platform,
    sources: Sequence[str],
    how: Reading,
    known: Iterable[tuple[Proposal, Measured]] = (),
    told: Callable[[Proposal | Progress | Round], None] = lambda _event: None,
    memo: MutableMapping[str, Measured] | None = None,
) -> tuple[Parallelism, list[Round]]:
    """Run a method to its end. `told` hears of every trial that begins, how far it is, and of every
    round. Where the same trial always measures the same, a `memo` of trials saves repeating it."""
    before = iter(known)
    rounds: list[Round] = []
    tried: tuple[Proposal, Measured] | None = None
    answer: Measured | None = None
    while True:
        try:
            event = method.send(answer)
        except StopIteration as ended:
            result: Parallelism = ended.value
            return result, rounds
        answer = None
        if isinstance(event, Proposal):
            earlier = next(before, None)
            if earlier is not None and earlier[0] == event:
                answer = earlier[1]
            else:
                before = iter(())  # it has taken another way
                told(event)
                key = repr((event.parallelism, event.rate))
                answer = None if memo is None else memo.get(key)
                if answer is None:
                    with platform.trial(event.parallelism, event.rate) as trial:
                        answer = measure(trial, sources, how, told)
                if memo is not None:
                    memo[key] = answer
            tried = event, answer
        else:
            assert tried is not None
            rounds.append(Round(len(rounds) + 1, *tried, event))
            told(rounds[-1])
