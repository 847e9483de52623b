"""Attached queries from hearing of a batch to asking for executors, with a journal."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attaching import JOB, WISH, Told, behind, seen, told

from sojourn.attached import journal, loop
from sojourn.attached import status as st
from sojourn.attached.decide import Memory, Wish, decided
from sojourn.attached.listener import Ended, Idle
from sojourn.attached.loop import Attached
from sojourn.errors import InputError
from sojourn.provisioning.mended import Options


def test_rates_that_make_no_sense_replace_none_and_are_not_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, odd = seen(100), seen(math.nan)
    assert Attached._newer(sound, odd) is sound
    found, *_ = attached(tmp_path)
    monkeypatch.setattr(found.observer, "seen", lambda *_: odd)
    period = found.tick()
    assert period.seen.rates is None
    assert period.decision.why == "the rates make no sense"
    assert found.path is not None
    assert [one.seen for one in journal.read(found.path)[1]] == [period.seen]


def test_a_journal_that_cannot_be_begun_is_told_of_and_decisions_go_on(tmp_path: Path) -> None:
    found, *_ = attached(tmp_path)
    assert found.path is not None
    found.path.write_text("somebody else's")
    for number in range(6):
        assert found._try(found.tick)
        assert found.failures == 0
        assert len(found.periods) == number + 1
    assert "the journal lacks period 5: " in found.periods[-1].note
    assert found.path.read_text() == "somebody else's"


def test_a_clock_that_is_set_back_puts_nothing_off(tmp_path: Path) -> None:
    found, _, _, clock = attached(tmp_path)
    clock.now_s -= 3600.0
    found._by_clock()
    assert found._due_s() == clock.now_s + 5.0
    assert found.tick().note == "the clock was set back by 3600 s"


class Given:
    """Whoever is asked for executors."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.gone: list[str] = []
        self.takes = True

    def ask(self, executors: int) -> bool:
        self.asked.append(executors)
        return self.takes

    def give_back(self, names: Sequence[str]) -> list[str]:
        self.gone.extend(names)
        return list(names)


class Clock:
    def __init__(self) -> None:
        self.now_s = behind(1)[0].time_s

    def __call__(self) -> float:
        return self.now_s


class Running:
    """A context that was not stopped."""

    def sc(self) -> "Running":
        return self

    def isStopped(self) -> bool:  # noqa: N802
        return False


class Quiet(Attached):
    """Without a driver, so no query runs."""

    def _java(self) -> None:
        return None


MADE: list[Quiet] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop()._let_go()


def attached(tmp_path: Path, **more: Any) -> tuple[Quiet, Given, Told, Clock]:
    given, status, clock = Given(), Told(), Clock()
    wish = Wish(policy="mended", quiet_s=0, options=Options(period_s=5))
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=Running()))
    found = Quiet(
        spark, "query", wish, journal=tmp_path / "j.jsonl", status=status, scaling=given,
        clock=clock, **more,
    )  # fmt: skip
    MADE.append(found)
    found.observer.before = st.executors(status)
    return found, given, status, clock


def hear(found: Attached, batches: Sequence[str]) -> None:
    for one in batches:
        found.heard.put(one)


def overloaded(first: int, count: int) -> list[str]:
    return [told(n, float(n), 0.9, 60, (n + 1) * 60, (n + 1) * 100, n * 60)
            for n in range(first, first + count)]  # fmt: skip


def test_a_batch_that_takes_oddly_long_is_not_waited_for(tmp_path: Path) -> None:
    found, _, _, clock = attached(tmp_path)
    first_s = clock.now_s
    for one in [*overloaded(0, 2), told(2, 2.0, 2.0, 60)]:
        found._hear(one)
    clock.now_s = first_s + 2.0
    assert found._due_s() == first_s + 5.0  # the others decide once a period
    found.wish = replace(found.wish, policy="model")
    found.observer.batches.pop()
    assert found._due_s() == pytest.approx(first_s + 1.9 + 1.25 * 0.9)  # longer than the last one
    found.trigger_s = 1.2  # the next one begins later
    assert found._due_s() == pytest.approx(first_s + 2.2 + 1.25 * 0.9)
    found.trigger_s = 0.0
    found.ticked_s = clock.now_s + 1.8
    found._hear(told(2, 2.0, 2.0, 60))
    assert found._due_s() == found.ticked_s + 1.0  # it was decided just now, and is not forgotten
    found.tick()
    found.ticked_s = clock.now_s = first_s + 9.0  # and once for each batch that lasts
    assert found._due_s() == found.ticked_s + 5.0
    found.real_time = True
    found._hear(told(3, 4.0, 9.0, 60))
    assert found._due_s() == found.ticked_s + 5.0


def test_a_batch_at_work_counts_beside_those_that_are_done_if_it_shows_more(
    tmp_path: Path,
) -> None:
    found, _, status, clock = attached(tmp_path)
    found.wish = replace(found.wish, policy="model")
    began_s = clock.now_s
    hear(found, [told(n, float(n), 0.5, 10, '"file"', None) for n in range(4)])
    begun = datetime.fromtimestamp(began_s + 4, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fGMT")
    status.running = {**JOB, "jobId": 9, "submissionTime": begun, "completionTime": None,
                      "stageIds": [7]}  # fmt: skip
    status.task_ms = 50
    clock.now_s = began_s + 4.1
    assert not found.tick().seen.at_least
    hear(found, [told(4, 4.0, 0.5, 10, '"file"', None)])
    begun = datetime.fromtimestamp(began_s + 5, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fGMT")
    status.running = {**status.running, "submissionTime": begun}
    status.task_ms = 4000
    clock.now_s = began_s + 14.0
    period = found.tick()
    assert period.seen.at_least
    assert period.seen.rates is not None
    assert period.seen.rates.input > 10


def test_a_query_that_falls_behind_gets_executors_and_a_journal_tells_why(tmp_path: Path) -> None:
    found, given, _, clock = attached(tmp_path)
    hear(found, overloaded(0, 6))
    clock.now_s += 6
    period = found.tick()
    assert period.decision.executors is not None
    assert given.asked == [period.decision.executors]
    assert period.applied
    # they do not come, and are not asked for again and again
    for number in range(1, 15):
        hear(found, overloaded(6 * number, 6))
        clock.now_s += 6
        period = found.tick()
    assert "executors are there after" in period.note
    assert len(given.asked) == len(set(given.asked))
    # nothing more is heard
    clock.now_s += 60
    assert "no batch was done for 60 s" in found.tick().decision.why
    found._tell(period)
    found._let_go()
    path = tmp_path / "j.jsonl"
    assert journal.is_attached(path)
    header, periods = journal.read(path)
    assert header.query == "query"
    every = list(journal.replay(periods, header.wish))
    assert len(every) == 17
    assert all(then.decision == again for then, again in every[:16])


def test_an_executor_that_is_gone_for_two_periods_is_told_of(tmp_path: Path) -> None:
    found, given, status, clock = attached(tmp_path)
    status.names = ["0", "1"]
    found._apply(2, st.executors(status))
    clock.now_s += 3600
    found.tick()
    status.names = ["0"]
    clock.now_s += 5
    assert found.tick().note == "executor 1 is gone, and was not given back"
    clock.now_s += 5
    assert found.tick().note == "1 of 2 executors are there after 10 s"
    assert not given.asked


def test_advice_changes_nothing(tmp_path: Path) -> None:
    found, given, _, clock = attached(tmp_path, advise=True)
    hear(found, overloaded(0, 6))
    clock.now_s += 6
    period = found.tick()
    assert (period.decision.executors or 0) > 1
    assert not period.applied
    assert not given.asked


def test_the_newest_idle_executors_are_given_back(tmp_path: Path) -> None:
    found, given, status, _ = attached(tmp_path)
    status.names = ["0", "1", "2"]
    every = st.executors(status)
    every = {n: replace(e, since_s=float(n), running=int(n == "2")) for n, e in every.items()}
    assert found._apply(2, every) == (True, "gave back 1")
    assert given.gone == ["1"]
    del every["1"]  # it is leaving, and so does not count
    assert found._apply(2, every) == (False, "")
    assert found._apply(1, every) == (True, "gave back 0")


def test_a_query_to_which_no_rows_come_gives_executors_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, given, status, clock = attached(tmp_path)
    status.names = ["0", "1", "2"]
    hear(found, overloaded(0, 6))  # so that it is known what one can process
    clock.now_s += 6
    found.tick()
    hear(found, [told(6, 7.0, 0.1, 1, 601, 601, 600)])
    clock.now_s += 5
    found.tick()
    given.asked.clear()
    clock.now_s += 30
    assert found.tick().decision.executors is None  # no batch: it may be a long one
    monkeypatch.setattr(found, "_says", lambda: ("Spark says: Waiting for data to arrive", True))
    clock.now_s += 5
    period = found.tick()
    assert period.seen.rates is not None
    assert period.seen.rates.input == 0
    assert period.decision.executors == 1
    assert given.gone


def test_what_makes_no_sense_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, given, status, clock = attached(tmp_path)
    status.names = ["0", "1", "2"]
    monkeypatch.setattr(found, "_says", lambda: ("Spark says: Waiting for data to arrive", True))
    hear(found, overloaded(0, 6))
    clock.now_s += 6
    found.tick()
    given.asked.clear()
    given.gone.clear()
    hear(found, [told(6, 7.0, 0.1, 1, 601, 1, 600)])
    clock.now_s += 5
    period = found.tick()
    assert period.decision.executors is None
    assert period.decision.why.startswith("the source's offsets went back")
    assert not given.asked
    assert not given.gone


def test_executors_go_once_the_batch_at_work_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, given, status, _ = attached(tmp_path)
    status.names = ["0", "1", "2"]
    monkeypatch.setattr(found, "_is_at_work", lambda: True)
    assert found._apply(2, st.executors(status)) == (
        False,
        "1 will go once the batch at work is done",
    )
    assert not given.asked
    assert not given.gone
    assert not found._hear(Idle("query", "run", 0.0))  # it is heard late: a batch is at work
    assert found._hear(overloaded(0, 1)[0])
    monkeypatch.setattr(found, "_is_at_work", lambda: False)
    assert not found._hear(Idle("other", "run", 0.0))
    assert found._hear(Idle("query", "run", 0.0))  # a trigger that has found no rows is over
    monkeypatch.setattr(found, "_is_at_work", lambda: True)
    found._reduce()
    assert given.asked == [2]
    assert len(given.gone) == 1
    assert found.news == [f"gave back {given.gone[0]}"]
    assert found.fewer is None
    found._apply(2, st.executors(status))
    found._apply(3, st.executors(status))  # they are needed after all
    assert found.fewer is None
    found._apply(2, st.executors(status))
    status.names = ["0"]
    found._reduce()  # enough have gone by themselves
    assert len(given.gone) == 1


@pytest.mark.parametrize("rate", [20.0, 700.0, 5000.0])
def test_executors_that_the_batch_at_work_needs_do_not_go_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    needed = decided(seen(rate), Memory(), WISH).executors or 0
    assert {20.0: needed < 2, 700.0: 2 < needed < 5, 5000.0: needed > 5}[rate]
    found, given, status, _ = attached(tmp_path)
    status.names = [str(n) for n in range(5)]
    found.wish, found.asked = replace(WISH, quiet_s=60), 5
    shown = seen(rate, 5, time_s=1.0, asked=5, at_least=True, why="a batch is at work")
    monkeypatch.setattr(found.observer, "seen", lambda *_: shown)
    monkeypatch.setattr(found, "_newer", lambda one, _: one)
    found.fewer = 2
    found.tick()
    assert found.fewer == (max(2, needed) if needed < 5 else None)
    assert not given.gone


def test_a_batch_that_is_heard_of_while_a_decision_is_made_does_not_press_for_another(
    tmp_path: Path,
) -> None:
    found, _, _, clock = attached(tmp_path)
    found.wish = replace(found.wish, policy="model")
    hear(found, [*overloaded(0, 2), told(2, 2.0, 9.0, 60)])
    found.tick()
    assert not found.presses
    assert found._due_s() > clock.now_s + 1.0


def test_an_executor_that_leaves_is_not_counted_and_none_other_goes_where_more_are_wanted(
    tmp_path: Path,
) -> None:
    found, given, status, clock = attached(tmp_path)
    status.names = ["0", "1", "2", "3"]
    found.leaving = {"2", "3", "gone"}
    hear(found, overloaded(0, 6))
    clock.now_s += 6
    period = found.tick()
    assert period.seen.executors == 2
    assert "2, 3 still leaving" in period.note
    assert found.leaving == {"2", "3"}
    assert found._apply(3, {n: e for n, e in st.executors(status).items() if n in "01"})[0]
    assert not given.gone


def test_a_request_that_is_not_taken_is_made_again(tmp_path: Path) -> None:
    found, given, status, _ = attached(tmp_path)
    given.takes = False
    for _ in range(2):
        taken, note = found._apply(3, st.executors(status))
        assert (taken, note) == (False, "the cluster manager takes no requests")
    assert given.asked == [3, 3]
    status.names = ["0", "1", "2"]
    assert found._apply(2, st.executors(status)) == (False, "the cluster manager takes no requests")
    assert not given.gone  # others would come for them
    assert found.asked is None


def test_a_period_that_fails_is_told_and_the_next_one_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, *_, clock = attached(tmp_path)
    monkeypatch.setattr(found, "_trigger", lambda: 1 / 0)
    found._try(found.tick)
    monkeypatch.undo()
    found._try(found.tick)
    assert "a period failed, ZeroDivisionError: division by zero" in found.periods[-1].note
    monkeypatch.setattr(found, "_trigger", lambda: 1 / 0)
    for _ in range(4):
        found._try(found.tick)
    clock.now_s += 3600  # the fifth is due
    found._run()
    assert found.ended.is_set()
    assert found.path is not None
    *_, last = journal.read(found.path)[1]
    assert last.decision.executors is None
    assert "has failed, ZeroDivisionError: division by zero; the query goes on" in last.seen.why
    assert decided(last.seen, last.memory, found.wish) == last.decision


def test_a_restart_of_the_query_begins_anew(tmp_path: Path) -> None:
    found, *_ = attached(tmp_path)
    hear(found, overloaded(0, 3))
    found.tick()
    assert len(found.observer.batches) == 3
    found._hear(told(0, 9.0, 0.5, 10, run="again"))
    assert [one.run for one in found.observer.batches] == ["again"]


def test_a_journal_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_text("{}\n")
    assert not journal.is_attached(path)
    with pytest.raises(InputError, match="is not a journal of an attached query"):
        journal.read(path)
    with pytest.raises(InputError, match="cannot be read"):
        journal.read(tmp_path / "none")
    path.write_text('{"sojourn_attached":9,"query":"q","wish":{}}\n')
    with pytest.raises(InputError, match="has journal format 9"):
        journal.read(path)


def test_a_trigger_without_rows_tells_from_when_on_what_comes_counts(tmp_path: Path) -> None:
    found, _, _, clock = attached(tmp_path)
    began_s = clock.now_s
    hear(found, overloaded(0, 6))
    clock.now_s += 6
    found.tick()
    for minute in range(1, 11):  # nothing comes
        found.heard.put(Idle("query", "run", began_s + 60 * minute))
    found.heard.put(Idle("another", "run", began_s + 601))
    found.heard.put(Idle("query", "before", began_s + 602))
    clock.now_s = began_s + 605
    found.tick()
    assert found.observer.idle_s == began_s + 600
    hear(found, [told(6, 610.0, 0.9, 1000, 1360, 1360, 360)])
    clock.now_s = began_s + 611
    first = found.tick().seen
    assert first.rates is None  # not 1000 rows in ten minutes
    assert first.why.startswith("only one batch is done since rows come again")
    hear(found, [told(7, 611.0, 0.9, 100, 1460, 1460, 1360)])
    clock.now_s = began_s + 612
    period = found.tick()
    assert period.seen.rates is not None
    assert period.seen.rates.input == pytest.approx(100)
    assert period.seen.rates.growth == 0


def test_a_query_that_found_no_rows_waits_for_them_between_triggers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, *_ = attached(tmp_path)

    class Said:
        words, active, run = "Waiting for next trigger", False, "run"
        number, took = 1, {"addBatch": 100}

        def runId(self) -> "Said":  # noqa: N802
            return self

        def toString(self) -> str:  # noqa: N802
            return self.run

        def status(self) -> "Said":
            return self

        def message(self) -> str:
            return self.words

        def isTriggerActive(self) -> bool:  # noqa: N802
            return self.active

        def lastProgress(self) -> "Said":  # noqa: N802
            return self

        def batchId(self) -> int:  # noqa: N802
            return self.number

        def durationMs(self) -> "Said":  # noqa: N802
            return self

        def containsKey(self, key: str) -> bool:  # noqa: N802
            return key in self.took

    hear(found, overloaded(0, 2))
    found.tick()
    monkeypatch.setattr(found, "_java", Said)
    assert found._says() == ("Spark says: Waiting for next trigger", False)
    found._hear(Idle("query", "run", found.observer.batches[-1].end_s + 10))
    assert found._says()[1]
    Said.number = 2  # a batch is done that nobody has heard of
    assert found._says() == (
        "Spark says: Waiting for next trigger; batch 2 is done, of which nothing was heard",
        None,
    )
    Said.took = {}  # a trigger found no rows for it
    assert found._says() == ("Spark says: Waiting for next trigger", True)
    Said.number = 3
    assert found._says()[1] is None
    Said.number = 2
    Said.active = True  # a batch is at work by now
    assert not found._says()[1]
    Said.active, Said.run = False, "again"  # of a run that has done nothing yet
    assert not found._says()[1]


def test_a_time_without_rows_counts_for_nothing_also_within_a_period(tmp_path: Path) -> None:
    found, _, _, clock = attached(tmp_path)
    began_s = clock.now_s
    hear(found, overloaded(0, 3))
    found.heard.put(Idle("query", "run", began_s + 600))
    hear(found, [told(3, 610.0, 0.9, 1000, 1180, 1180, 180)])
    hear(found, [told(4, 611.0, 0.9, 100, 1280, 1280, 1180)])
    clock.now_s = began_s + 612
    rates = found.tick().seen.rates
    assert rates is not None
    assert rates.input == pytest.approx(100)


def test_what_cannot_be_read_or_written_is_told_and_nothing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, *_, clock = attached(tmp_path)
    hear(found, ['{"id": "query"}', "no JSON", *overloaded(0, 6)])
    clock.now_s += 6
    note = found.tick().note
    assert "a progress cannot be read, KeyError: 'runId'" in note
    assert "a progress cannot be read, JSONDecodeError" in note

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    assert found.journal is not None
    monkeypatch.setattr(found.journal.lines, "append", full)
    assert found.tick() is found.periods[-1]
    monkeypatch.undo()
    assert "the journal lacks period 2: [Errno 28] No space left" in found.tick().note


def test_where_spark_was_stopped_it_ends_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, *_ = attached(tmp_path)
    monkeypatch.setattr(found, "_trigger", lambda: 1 / 0)
    found.spark.sparkContext._jsc = None
    assert not found._try(found.tick)
    assert not found.news


def test_the_end_of_a_run_is_in_the_journal_once(tmp_path: Path) -> None:
    found, *_, clock = attached(tmp_path)
    hear(found, overloaded(0, 6))
    found.heard.put(Ended("query", None))
    found.heard.put(Ended("another", "failed"))
    clock.now_s += 6
    assert "the query has ended; its executors stay" in found.tick().note
    clock.now_s += 6
    assert "ended" not in found.tick().note


class Conf:
    def __init__(self, **of: str) -> None:
        self.of = of

    def get(self, key: str, default: str) -> str:
        return self.of.get(key.replace(".", "_"), default)


def session(
    master: str = "spark://here:7077", active: Sequence[Any] = (), **conf: str
) -> SimpleNamespace:
    context = SimpleNamespace(
        master=master, applicationId=f"app-{master}", getConf=lambda: Conf(**conf)
    )
    streams = SimpleNamespace(
        active=list(active), get=lambda of: next((q for q in active if q.id == of), None)
    )
    return SimpleNamespace(_jsc=None, _jvm=None, sparkContext=context, streams=streams)


def query(name: str) -> SimpleNamespace:
    return SimpleNamespace(id=name, name=name, isActive=True)


@pytest.mark.parametrize(
    ("spark", "given", "message"),
    [
        (SimpleNamespace(), None, "got one of Spark Connect; call it in the program that starts"),
        (session("local[2]"), None, "got master 'local[2]', which has none; use spark://"),
        (
            session(spark_dynamicAllocation_enabled="true"),
            None,
            "got spark.dynamicAllocation.enabled=true; set it to false",
        ),
        (
            session(active=[query("one"), query("two")]),
            None,
            "must be given where several run, as they share executors; there are one, two",
        ),
        (session(), "one", "query: must be what start() returned; got 'one'"),
        (session(active=[query("one")]), query("other"), "got other; give the session that"),
    ],
)
def test_who_cannot_be_looked_after_is_refused_with_the_reason(
    spark: Any, given: Any, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        loop.attach(spark, given)
    assert message in str(refused.value)


def test_a_second_query_of_an_application_is_refused(tmp_path: Path) -> None:
    found, *_ = attached(tmp_path)
    spark = session("spark://second:7077")
    loop._ATTACHED["app-spark://second:7077"] = found
    with pytest.raises(InputError, match="got a second one beside query; stop that first"):
        loop.attach(spark)
