"""What the experiments make of measurements, on ones whose answer is known."""

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import chain
import drs_fig7
import drs_random
import lab
import numpy as np
import pytest
import shapes
import stolen

import sojourn as sj
from sojourn.control.controller import Record
from sojourn.control.situation import Action, Decision
from sojourn.engine.driver.tracker import Tracker
from sojourn.engine.wire import messages as m
from sojourn.ports import Sample, Samples, Sojourn
from sojourn.settings import ControlSettings
from sojourn.simulator import SourceLoad


def samples(values: list[float], time_s: float = 0.0, **vertices: Sample) -> Samples:
    return Samples(time_s, vertices, Sojourn.of(sorted(values)) if values else None, 0)


def measured(mean_s: float, error_s: float, parts: int = 10) -> lab.Measured:
    return lab.Measured({"a": 1}, mean_s, 0.0, error_s, parts, 100)


def test_several_intervals_make_one_mean_deviation_and_interval() -> None:
    rng = np.random.default_rng(1)
    values = [rng.exponential(0.2, 150).tolist() for _ in range(40)]
    everything = np.concatenate(values)
    found = lab.summed({"a": 1}, [samples(some) for some in values])
    assert found.trees == 6000
    assert found.mean_s == pytest.approx(everything.mean())
    assert found.deviation_s == pytest.approx(everything.std(), rel=0.03)
    assert found.parts == 10
    assert found.error_s == pytest.approx(0.2 / math.sqrt(6000), rel=0.6)
    assert found.half_s == pytest.approx(2.262 * found.error_s, rel=0.01)


def test_intervals_without_a_tree_do_not_count_but_one_must_have_some() -> None:
    assert lab.summed({"a": 1}, [samples([]), samples([1.0]), samples([3.0])]).mean_s == 2.0
    with pytest.raises(sj.TopologyFailed, match="no tuple was done in 2 intervals"):
        lab.summed({"a": 1}, [samples([]), samples([])])


@pytest.mark.parametrize(("count", "of"), [(4, 2000), (10, 2000)])
def test_equal_ones_are_told_apart_in_one_of_forty_cases(count: int, of: int) -> None:
    """Of five of a hundred, half are slower and half faster."""
    rng = np.random.default_rng(count)

    def one() -> lab.Measured:
        parts = rng.normal(1.0, 0.1, count)
        return measured(parts.mean(), parts.std(ddof=1) / math.sqrt(count), count)

    told = sum(one().slower_than(one()) for _ in range(of)) / of
    assert 0.01 < told < 0.04


def test_those_not_told_apart_from_the_best_pass() -> None:
    best, close, worse = measured(1.0, 0.05), measured(1.1, 0.05), measured(1.3, 0.05)
    vague = measured(1.3, 0.4)
    assert lab.passing([close, worse, best, vague]) == [close, best, vague]
    assert worse.slower_than(best)
    assert not best.slower_than(worse)
    assert measured(1.01, 0.0).slower_than(measured(1.0, 0.0))
    assert not measured(9.0, math.nan, 1).slower_than(best)


def test_ranks_share_places() -> None:
    assert drs_fig7.ranks([3.0, 1.0, 2.0, 2.0]) == [3.0, 0.0, 1.5, 1.5]


def test_neighbours_are_the_nearest_of_as_many_processors() -> None:
    network = shapes.vld(rate=17.0, scale=5.0).network()
    best = {"extract": 10, "match": 11, "aggregate": 1}
    found = shapes.neighbours(network, best, 5)
    assert len({tuple(one.values()) for one in found}) == 5
    distances = [sum(abs(k - best[n]) for n, k in one.items()) for one in found]
    assert distances == sorted(distances)
    assert all(sum(one.values()) == 22 and min(one.values()) >= 1 for one in found)


@pytest.mark.parametrize("name", ["vld", "fpd"])
def test_shapes_of_the_applications_keep_seventeen_processors_busy(name: str) -> None:
    stations = shapes.real(name).network().stations.values()
    assert sum(s.offered_load for s in stations) == pytest.approx(17.0)
    assert sum(s.arrival_rate for s in stations) == pytest.approx(250.0)


def test_random_topologies_split_join_and_loop() -> None:
    made = [drs_random.random_shape(seed) for seed in range(20)]
    senders = [[s for s, r in shape.gains if s != r] for shape in made]
    receivers = [[r for s, r in shape.gains if s != r] for shape in made]
    assert sum(len(set(some)) < len(some) for some in senders) >= 10
    assert sum(len(set(some)) < len(some) for some in receivers) >= 5
    assert sum(bool(shape.feedback) for shape in made) >= 5
    for shape in made:
        assert all(0.79 < s.offered_load < 3.01 for s in shape.network().stations.values())


def test_random_topologies_are_judged_together() -> None:
    def topology(best: bool, hit: bool, worst_hit: bool) -> dict[str, object]:
        means = [1.0, 2.0, 3.0] if best else [2.0, 1.0, 3.0]
        told = {"best": best, "hit": hit, "worst_hit": worst_hit}
        return {"means_s": means, "estimated_s": [1.0, 1.5, 2.0], **told}

    good, vague = topology(True, True, False), topology(False, True, True)
    bad = topology(False, False, True)

    def verdicts(some: list[dict[str, object]]) -> list[bool | None]:
        return [claim.holds for claim in drs_random.told(some).claims]

    assert verdicts([good] * 20) == [True, True]
    assert verdicts([good] * 6 + [vague] * 14) == [True, None]
    assert verdicts([vague] * 20) == [None, False]
    assert verdicts([good] * 17 + [bad] * 3) == [False, True]
    assert verdicts([topology(True, True, True)] * 20) == [None, True]
    assert verdicts([good] * 4) == [None, None]


@pytest.mark.parametrize("seed", [0, 3])
def test_another_seed_draws_other_topologies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def compared(_: lab.Lab, number: int) -> dict[str, object]:
        drawn.append(number)
        told = {"best": True, "hit": True, "worst_hit": False}
        return {"means_s": [1.0, 2.0], "estimated_s": [1.0, 2.0], **told}

    monkeypatch.setattr(drs_random, "compared", compared)
    drs_random.run(lab.Lab("simulator", quick=True, seed=seed))
    assert drawn == list(range(20 * seed, 20 * seed + 20))


def test_how_likely_it_is_to_be_the_best_by_chance() -> None:
    assert drs_random.by_chance(0, 20) == pytest.approx(1.0)
    assert drs_random.by_chance(20, 20) == pytest.approx(3.0**-20)
    assert drs_random.by_chance(2, 2) == pytest.approx(1 / 9)


def record(time_s: float, did: Action | None, mean_s: float = 0.1, load: float = 0.5) -> Record:
    source = sample("frames", 7.0, 6.0, None)
    vertices = {"frames": source, "extract": sample("extract", 8.0, 6.0, load / 6.0)}
    decision = Decision(did or Action.HOLD, "", {"extract": 2} if did else None)
    return Record(
        number=1,
        time_s=time_s,
        samples=samples([mean_s], time_s, **vertices),
        wanted={"extract": 1},
        capacity=None,
        settings=ControlSettings(max_sojourn_s=1.0),
        measure=None,
        estimate_s=None,
        bias=(0.0, 1.0),
        kept_up=True,
        decision=decision,
        applied=did is not None,
    )


def sample(name: str, interval_s: float, rate: float, service_s: float | None) -> Sample:
    return Sample(name, interval_s, 1, 1, 0, 30, 30, rate, 1.0, service_s, 1.0, 0.5)


def test_what_is_written_is_json_whatever_was_measured(tmp_path: Path) -> None:
    figures = {"means": [1.0, math.nan], "seconds": (math.inf,), "count": np.float64(2.0)}
    finding = lab.Finding(figures, [], "so", None, lambda figure: figure.add_subplot().plot([1]))
    about = {"engine": "simulator", "length": "quick", "seed": 0}
    lab.written(finding, "some", about, tmp_path)
    text = (tmp_path / "some.json").read_text(encoding="utf-8")
    found = json.loads(text, parse_constant=pytest.fail)
    assert found["figures"] == {"means": [1.0, None], "seconds": [None], "count": 2.0}
    assert found["holds"] is None
    assert lab.in_words(found["holds"]) == "cannot be decided"


@pytest.mark.parametrize(
    ("kinds", "holds", "verdict"),
    [
        ([True], True, "of 1 claim 1 holds"),
        ([True, True], True, "of 2 claims 2 hold"),
        ([True, None], None, "of 2 claims 1 holds, 1 cannot be decided"),
        (
            [None, False, True, False, None],
            False,
            "of 5 claims 1 holds, 2 do not hold, 2 cannot be decided",
        ),
        ([False, True, True], False, "of 3 claims 2 hold, 1 does not hold"),
    ],
)
def test_claims_are_judged_together(
    kinds: list[bool | None], holds: bool | None, verdict: str
) -> None:
    claims = [lab.Claim("ToN fig. 6", "so", "if so", "so it is", kind) for kind in kinds]
    found = lab.judged(claims, {}, [], lambda _: None)
    assert (found.holds, found.verdict) == (holds, verdict)
    assert found.claims == claims


def test_of_several_that_run_beside_one_another_the_cause_is_told() -> None:
    """And not that the others no longer had anybody to wait for."""
    bench = lab.Lab("spark", quick=True, spark="not used")

    def make(number: int) -> None:
        if number == 1:
            raise ValueError("this is why")
        bench.together.wait(60)

    with pytest.raises(ValueError, match="this is why"):
        bench.each(make, [0, 1], 2)


def test_what_an_interrupted_experiment_had_made_is_not_made_again(tmp_path: Path) -> None:
    made: list[int] = []

    def make(number: int) -> int:
        if number == 3 and made.count(1) == 1 and 3 not in made:
            made.append(3)
            raise ValueError("interrupted")
        made.append(number)
        return 10 * number

    def run(bench: lab.Lab) -> list[int]:
        bench.begin(tmp_path / "runs")
        return [*bench.each(make, [1, 2]), *bench.each(make, [3])]

    with pytest.raises(ValueError, match="interrupted"):
        run(lab.Lab("simulator", quick=True))
    again = lab.Lab("simulator", quick=True)
    assert run(again) == [10, 20, 30]
    assert made == [1, 2, 3, 3]
    assert len(again.borrowed) == 2  # what was stolen from the CPU then is told
    assert run(lab.Lab("simulator", quick=True)) == [10, 20, 30]
    assert made == [1, 2, 3, 3]


def test_of_what_two_experiments_share_the_second_tells_what_was_stolen() -> None:
    bench = lab.Lab("simulator", quick=True)
    bench.begin(None)
    assert bench.once("shared", lambda: 7) == 7
    assert bench.borrowed == []
    bench.begin(None)
    assert bench.once("shared", lambda: 8) == 7
    assert [sorted(told) for told in bench.borrowed] == [
        ["busy", "clean_seconds", "most_stolen", "seconds"]
    ]


def test_what_was_stolen_from_several_runs_is_told_together() -> None:
    one = {"seconds": 10, "clean_seconds": 9, "most_stolen": 0.1, "busy": 0.2}
    other = {"seconds": 30, "clean_seconds": 30, "most_stolen": 0.0, "busy": 0.6}
    both = {"seconds": 40, "clean_seconds": 39, "most_stolen": 0.1, "busy": 0.5}
    assert stolen.together([one, other]) == both
    assert stolen.together([])["seconds"] == 0


class Waiting:
    """An engine at which so many tuples wait, look by look."""

    def __init__(self, queues: Iterable[int]) -> None:
        self.queues = iter(queues)

    def samples(self) -> Samples:
        vertex = replace(sample("extract", 1.0, 6.0, 0.1), queue=next(self.queues))
        return samples([0.1], 1.0, extract=vertex)


def test_what_waits_is_worked_off_as_long_as_it_becomes_less() -> None:
    falls = [*range(1000, 0, -1), *[0] * 3]
    lab.work_off(Waiting(falls), lambda _: None)
    with pytest.raises(sj.TopologyFailed, match=r"cannot keep up .*: 9 at 'extract'"):
        lab.work_off(Waiting(itertools.chain([30, 20], itertools.repeat(9))), lambda _: None)


@pytest.mark.parametrize(("policy", "urgent"), [("drs", True), ("drs-2017", False)])
def test_what_cannot_wait_is_decided_at_once(policy: str, urgent: bool) -> None:
    """By a policy that does; the other one ends intervals only."""
    bench = lab.Lab("simulator", quick=True)
    steps = ((60.0, 20.0), (60.0, 90.0))
    shape = replace(shapes.vld(scale=10.0), sources={"frames": SourceLoad(steps)})
    settings = ControlSettings(policy=policy, max_sojourn_s=0.3, interval_s=20.0, window_s=60.0)
    start = {"extract": 2, "match": 2, "aggregate": 1}
    records = bench.controlled(shape, start, settings, 120.0).records
    assert sum(not record.pressures for record in records) == 6
    assert any(record.pressures and record.applied for record in records) is urgent


def test_the_longest_time_without_a_tuple_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    tracker = Tracker()
    gaps = lab.Gaps(tracker)

    def done(at_s: float) -> None:
        root = round(1000 * at_s)
        tracker.note(m.Traces([m.Root(root, root, 99.0)], []))
        tracker.note(m.Traces([], [m.Ack(root, root, at_s)]))

    for at_s in (100.2, 100.9, 100.4):  # told in no order
        done(at_s)
    now = 101.0
    assert gaps.take() == pytest.approx(0.5)
    now = 103.0
    assert gaps.take() == pytest.approx(2.1)  # it has not ended
    done(103.5)
    now = 103.6
    assert gaps.take() == pytest.approx(2.6)
    assert tracker.count == 4


def test_the_best_is_found_in_the_simulator() -> None:
    """Where a neighbour is much worse, it is told to be."""
    bench = lab.Lab("simulator", quick=True)
    shape = replace(shapes.vld(rate=18.0, scale=5.0), name="test")
    best = {"extract": 10, "match": 11, "aggregate": 1}
    worse = {"extract": 9, "match": 10, "aggregate": 3}
    found = bench.measure(shape, [best, worse], 400.0)
    assert lab.passing(found) == [found[0]]
    expected = shape.network().mean_sojourn(best)
    assert found[0].mean_s == pytest.approx(expected, rel=0.25)


def test_a_seed_gives_the_same_measurement_and_another_one_another() -> None:
    shape, allocations = shapes.vld(scale=5.0), [{"extract": 10, "match": 11, "aggregate": 1}]
    benches = [lab.Lab("simulator", quick=True, seed=seed) for seed in (0, 0, 1)]
    one, same, other = (bench.measure(shape, allocations, 20.0)[0].mean_s for bench in benches)
    assert one == same != other


@pytest.mark.parametrize("policy", ["drs", "drs-2017"])
def test_machines_come_in_the_simulator_once_changes_are_allowed(policy: str) -> None:
    bench = lab.Lab("simulator", quick=True)
    conf = ["measure.interval=10s", "change.quiet=10s", "machines.processors=5", "machines.most=5"]
    conf.append(f"policy={policy}")
    start = {"extract": 8, "match": 8, "aggregate": 1}
    shape = shapes.vld(rate=15.0, scale=2.0)
    records = bench.on_machines(shape, start, conf, "550ms", 150.0, 60.0).records
    ends = [record.time_s for record in records if not record.pressures]
    assert ends == [10.0 * n for n in range(1, 16)]
    assert {record.capacity for record in records if record.time_s < 60.0} == {20}
    assert not any(record.applied for record in records if record.time_s < 60.0)
    assert records[-1].capacity == 25


def test_places_that_are_reserved_are_kept() -> None:
    """By an operator that nobody sends anything; 17 = 4·5 - 3 and 22 = 5·5 - 3."""
    bench = lab.Lab("simulator", quick=True)
    shape = replace(shapes.vld(rate=14.2, scale=2.5), reserved=3)
    conf = ["measure.interval=10s", "change.quiet=10s", "machines.processors=5", "machines.most=5"]
    start = {"extract": 8, "match": 8, "aggregate": 1}
    conf.append("policy=drs-2017")
    records = bench.on_machines(shape, start, conf, "500ms", 200.0, 60.0).records
    assert {record.capacity for record in records if record.time_s < 60.0} == {20}
    assert records[-1].capacity == 25
    for record in records:
        assert record.wanted["reserved"] == 3
        assert sum(record.wanted.values()) <= (record.capacity or 0)


def test_a_chain_computes_and_sleeps_for_its_times() -> None:
    assert chain.work(1.0, 0.0, 7) == 7
    topology = chain.topology(chain.Settings(cpu=(1.0, 2.0, 3.0)))
    assert tuple(topology.operators) == chain.NAMES
    with pytest.raises(sj.InputError, match="sleep must be 3 times in milliseconds"):
        chain.topology(chain.Settings(sleep=(1.0, -1.0, 0.0)))
    with pytest.raises(sj.InputError, match="cpu must be 3 times"):
        chain.topology(chain.Settings(cpu=(1.0, math.inf, 0.0)))


def test_runs_that_were_made_are_not_made_again_until_all_are_there(tmp_path: Path) -> None:
    path = tmp_path / "out" / "long.full.jsonl"
    runs = lab.Runs(path)
    runs.add({"name": ("steps", 1), "took_s": 2.0})
    runs.add({"name": 4, "took_s": 3.0})
    again = lab.Runs(path)
    assert {name: run["took_s"] for name, run in again.found.items()} == {("steps", 1): 2.0, 4: 3.0}
    again.done()
    assert not lab.Runs(path).found
