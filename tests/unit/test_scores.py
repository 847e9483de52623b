"""How benchmarks score runs under control, on ones whose score is known."""

import numpy as np
import pytest
from scores import Score, Seconds, back_after, made, pooled, reversed_soon, verdict

from sojourn.control.summary import Happened
from sojourn.ports import Sojourn


def change(at_s: float, before: tuple[int, int], after: tuple[int, int]) -> Happened:
    names = ("check", "price")
    return Happened(
        at_s, "add", dict(zip(names, before, strict=True)), dict(zip(names, after, strict=True)), ""
    )


def sojourn(values: list[float]) -> Sojourn:
    return Sojourn.of(sorted(values))


def test_a_second_has_the_mean_of_all_tuples_that_end_in_it() -> None:
    seconds = Seconds()
    seconds.add(0.4, sojourn([0.1]), True)
    seconds.add(1.0, sojourn([0.3, 0.3, 0.3]), True)
    assert seconds.count == {0: 4}
    assert seconds.mean_s(0) == pytest.approx(0.25)
    assert seconds.above(0.24) == [0]
    assert seconds.above(0.26) == []


def test_a_second_in_which_nothing_ends_is_above_if_something_is_under_way() -> None:
    seconds = Seconds()
    seconds.add(1.0, None, under_way=True)
    seconds.add(2.0, None, under_way=False)
    seconds.add(3.0, sojourn([0.1]), True)
    assert seconds.above(0.2) == [0]
    assert len(seconds.count) == 2


@pytest.mark.parametrize(
    ("above", "after"),
    [
        ([], 0),
        ([0], 1),
        ([1], 2),
        ([0, 1, 2, 3], 4),
        ([4, 5, 6, 7], 8),  # it rises late, and too often for chance
        ([0, 20, 40], 1),  # chance
        ([*range(0, 60, 4)], 57),
        ([58], 0),
        ([*range(60)], None),
    ],
)
def test_the_target_is_kept_again_once_only_chance_misses_it(
    above: list[int], after: int | None
) -> None:
    assert back_after([second in above for second in range(60)]) == after


def test_pooled_percentiles_are_those_of_all_tuples() -> None:
    rng = np.random.default_rng(1)
    parts = [rng.exponential(mean, 40) for mean in (0.1,) * 200] + [rng.exponential(2.0, 400)]
    whole = np.concatenate(parts)
    found = [sojourn(part.tolist()) for part in parts]
    for percent in (50.0, 95.0, 99.0):
        assert pooled(found, percent) == pytest.approx(np.percentile(whole, percent), rel=0.05)
    assert pooled(found, 100.0) == whole.max()


def test_what_is_asked_for_again_is_no_change() -> None:
    changes = [change(1, (2, 3), (3, 4)), change(6, (3, 4), (3, 4))]
    assert made(changes) == changes[:1]


def test_a_change_is_reversed_if_an_operator_goes_back_within_a_minute() -> None:
    up, further = change(0, (2, 3), (3, 4)), change(5, (3, 4), (4, 4))
    assert reversed_soon([up, further]) == []
    assert reversed_soon([up, further, change(60, (4, 4), (4, 3))]) == [up]
    assert reversed_soon([up, further, change(64, (4, 4), (2, 3))]) == [further]
    assert reversed_soon([up, further, change(66, (4, 4), (2, 3))]) == []


def test_the_verdict_is_against_who_is_no_better_in_anything() -> None:
    own = Score(10, 1200, 8000)
    assert (
        verdict(
            own, {"more of one": Score(9, 1200, 8001), "of the other": Score(11, 1200, 1)}, 0.05
        )
        == []
    )
    (worse,) = verdict(own, {"as good": own, "misses more": Score(11, 1200, 8000)}, 0.05)
    assert worse.startswith("as good has 10 seconds above")
    (missed,) = verdict(Score(61, 1200, 1), {}, 0.05)
    assert missed.startswith("5.1% of seconds")
