"""What sources and sinks of Kafka do without a broker: settings, records, errors, patience."""

import gc
import logging
import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sojourn.errors import InputError, TopologyFailed
from sojourn.kafka import client, outbox
from sojourn.kafka.client import Cluster, Limits, Trouble, checked
from sojourn.kafka.message import writer
from sojourn.kafka.reader import Reading
from sojourn.kafka.topic import Topic
from sojourn.sinks import Record
from sojourn.sinks.kafka import _Interval, _Straight
from sojourn.sources import Unreadable

CLUSTER = Cluster("broker:9092", {"sasl.password": "open-sesame", "client.id": "us"}, 60.0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_secret_is_cut_out_of_what_others_say_and_nothing_else_is() -> None:
    assert CLUSTER.safe("us: open-sesame is wrong") == "us: … is wrong"
    assert "sesame" not in repr(CLUSTER)


class TestTrouble:
    """How long it may last, and what cannot pass."""

    def test_it_lasts_as_long_as_the_timeout_and_begins_anew_when_it_is_over(self) -> None:
        clock = Clock()
        trouble = Trouble(CLUSTER, clock)
        trouble.met("refused")
        clock.now = 59.0
        trouble.met("refused")
        trouble.over()
        trouble.met("gone")
        clock.now = 119.0
        with pytest.raises(TopologyFailed, match="could not be used for 60 s: gone; see") as told:
            trouble.met("still gone")
        assert "nothing committed is lost" not in str(told.value)  # it is, without a checkpoint

    def test_time_in_which_nobody_asked_does_not_count(self) -> None:
        clock = Clock()
        trouble = Trouble(CLUSTER, clock)
        trouble.unheard(1000.0)
        trouble.met("refused")
        clock.now = 500.0
        trouble.unheard(490.0)
        trouble.met("refused")
        clock.now = 550.0
        with pytest.raises(TopologyFailed, match="could not be used for 60 s"):
            trouble.met("refused")

    def test_a_refused_login_ends_it_until_we_were_let_in_once(self) -> None:
        clock = Clock()
        trouble = Trouble(CLUSTER, clock)
        refused = KafkaError(KafkaError._AUTHENTICATION, "open-sesame is wrong")
        with pytest.raises(TopologyFailed, match="refuses us: … is wrong; correct options="):
            trouble.told(refused)
        trouble.over()
        trouble.told(refused)
        assert trouble.since_s == clock.now
        clock.now = 60.0
        with pytest.raises(TopologyFailed, match="could not be used for 60 s: … is wrong"):
            trouble.told(refused)


class TestOptions:
    """What a user may set, and what must hold."""

    @pytest.mark.parametrize("name", sorted(client._OURS))
    def test_what_must_hold_is_refused(self, name: str) -> None:
        with pytest.raises(InputError, match=f"the option '{name}' belongs to "):
            checked("kafka source 'orders'", "broker:9092", {name: "x"}, 1.0)

    @pytest.mark.parametrize("kind", ["consumer", "producer", "admin"])
    def test_what_is_only_tuned_can_be_changed_and_what_is_held_is_refused(
        self, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[dict[str, Any]] = []
        fake = SimpleNamespace(Consumer=made.append, Producer=made.append)
        fake.admin = SimpleNamespace(AdminClient=made.append)
        monkeypatch.setattr(client, "confluent", lambda: fake)
        given: dict[str, tuple[Any, ...]] = {"consumer": ("group",)}
        for options in ({}, dict.fromkeys(("linger.ms", "fetch.queue.backoff.ms"), 77)):
            cluster = checked("sink", "broker:9092", options, 1.0)
            getattr(cluster, kind)(Trouble(cluster), *given.get(kind, ()))
        plain, tuned = made
        assert (tuned["linger.ms"], tuned["fetch.queue.backoff.ms"]) == (77, 77)
        held = plain.keys() & client._OURS.keys()
        assert plain.keys() - held == {*client._QUICK, *getattr(client, f"_{kind.upper()}", {})}


class Answers:
    """A client to which a cluster answers about topics, or does not, as time passes."""

    def __init__(self, clock: Clock, *known: bool | None) -> None:
        self.clock, self.known = clock, iter(known)

    def poll(self, _wait_s: float) -> None:
        """It has nothing to say."""

    def list_topics(self, topic: str | None, timeout: float) -> Any:
        self.clock.now += 4.0
        known = next(self.known)
        if known is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        partition = SimpleNamespace(error=None)
        found = SimpleNamespace(error=None, partitions={0: partition, 1: partition})
        del timeout
        return SimpleNamespace(topics={topic: found} if known else {})


def asked(monkeypatch: pytest.MonkeyPatch, *known: bool | None) -> list[int]:
    clock = Clock()
    monkeypatch.setattr("time.sleep", lambda _s: None)
    answers: Any = Answers(clock, *known)
    return client.partitions(CLUSTER, answers, "orders", Trouble(CLUSTER, clock))


def test_a_topic_unknown_to_the_first_that_answers_after_an_outage_may_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(monkeypatch, None, None, None, False, True) == [0, 1]


def test_a_topic_that_stays_unknown_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="topic 'orders': does not exist"):
        asked(monkeypatch, False, False, False, False)


class Config:
    """An administrator's client that is asked how large messages may be."""

    def __init__(self, *answers: Any) -> None:
        self.answers = iter(answers)

    def describe_configs(self, resources: list[Any]) -> dict[Any, Any]:
        answer = next(self.answers)

        def result(_wait_s: float) -> dict[str, Any]:
            if isinstance(answer, Exception):
                raise answer
            return {"max.message.bytes": SimpleNamespace(value=str(answer))}

        return {resources[0]: SimpleNamespace(result=result)}


@pytest.mark.parametrize(
    ("answers", "limit"),
    [
        ((5_000_000,), 5_000_000),
        ((2_147_483_647,), 1_000_000_000),
        ((TimeoutError(), KafkaException(KafkaError(KafkaError._TRANSPORT)), 5_000), 5_000),
        ((KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),), 1_000_000),
    ],
)
def test_a_topics_limit_is_asked_for_until_it_is_known(
    answers: tuple[Any, ...], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "admin", lambda *_: Config(*answers))
    monkeypatch.setattr(client, "partitions", lambda *_: [0, 1, 2])
    monkeypatch.setattr("time.sleep", lambda _s: None)
    assert client.limits(CLUSTER, "orders", Trouble(CLUSTER, Clock())) == Limits(limit, 3)


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"cleanup.policy": "delete"}, Limits(5000, 3)),
        ({"cleanup.policy": "compact,delete"}, Limits(5000, 3, keys=True)),
        (
            {"message.timestamp.after.max.ms": "3600000", "message.timestamp.type": "CreateTime"},
            Limits(5000, 3, after_s=3600.0),
        ),
        (
            {"message.timestamp.before.max.ms": "1000", "message.timestamp.type": "LogAppendTime"},
            Limits(5000, 3),
        ),
    ],
)
def test_a_topics_settings_say_what_it_takes(settings: dict[str, str], found: Limits) -> None:
    assert client._limits({"max.message.bytes": "5000", **settings}, 3) == found


class TestRecords:
    """What `write=` may return. All else is refused before it is part of a commit."""

    @pytest.mark.parametrize(
        ("record", "rule"),
        [
            (Record({"a": 1}), r"value must be bytes or None; got \{'a': 1\}"),  # type: ignore[arg-type]
            (Record(b"v", "k"), "key must be bytes or None; got 'k'"),  # type: ignore[arg-type]
            (Record(b"v", headers=((b"h", b"x"),)), "headers must be pairs of a str and bytes"),  # type: ignore[arg-type]
            (Record(b"v", headers=(("h", "x"),)), "headers must be pairs of a str and bytes"),  # type: ignore[arg-type]
            (Record(b"v", headers={"h": b"x"}), "headers must be pairs"),  # type: ignore[arg-type]
            (Record(b"v", partition="one"), "partition must be a number or None; got 'one'"),  # type: ignore[arg-type]
            (Record(b"v", partition=True), "partition must be a number or None; got True"),
            (Record(b"v", partition=-1), "partition must be a number or None; got -1"),
            (Record(b"v", time_s="now"), "time_s must be seconds"),  # type: ignore[arg-type]
            (Record(b"v", time_s=1_700_000_000_500), "time_s must be seconds"),
        ],
    )
    def test_what_kafka_would_refuse_is_refused_at_once(self, record: Record, rule: str) -> None:
        with pytest.raises(TypeError, match=rule):
            writer("sink", lambda _: record, None)(1)

    def test_a_record_without_a_key_gets_that_of_the_sink(self) -> None:
        made = writer("sink", lambda value: Record(b"v", b"own" if value else None), str)
        assert (made(0).key, made(1).key) == (b"0", b"own")


class Said:
    """A message that stands for an error, or for a value."""

    def __init__(self, partition: int, code: int | None = None) -> None:
        self._partition, self._error = partition, code and KafkaError(code)

    def error(self) -> Any:
        return self._error

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return 0

    def value(self) -> bytes:
        return b"v"


class Consumes:
    """A consumer of a topic with two partitions, of which one has no leader."""

    def __init__(self, clock: Clock, messages: Iterator[Said]) -> None:
        self.clock, self.messages = clock, messages
        self.shown: list[Any] = []

    def poll(self, _wait_s: float = 0.0) -> None:
        """It has nothing to say."""

    def consume(self, _most: int, _wait_s: float) -> list[Said]:
        self.clock.now += 5.0
        return [next(self.messages)]

    def assign(self, _places: list[Any]) -> None:
        """It is told what to read."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        del timeout
        lost = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        each = {0: SimpleNamespace(error=None), 1: SimpleNamespace(error=lost)}
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=each)})

    def commit(self, offsets: list[Any], asynchronous: bool) -> None:
        assert asynchronous
        self.shown.append(offsets)


def reading(monkeypatch: pytest.MonkeyPatch, messages: Iterable[Said]) -> Reading:
    clock = Clock()
    monkeypatch.setattr(Cluster, "consumer", lambda *_, **__: Consumes(clock, iter(messages)))
    at: dict[int, int | None] = {0: 0, 1: 0}
    parse = operator.methodcaller("value")
    return Reading(CLUSTER, "orders", "shown", parse, False, Unreadable, at, clock)


def test_a_partition_without_a_leader_is_noticed_while_others_flow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = reading(monkeypatch, (Said(0) for _ in range(100)))
    with pytest.raises(TopologyFailed, match="for 60 s: topic 'orders' lacks partition 1"):
        for _ in found.run():
            pass


def test_a_group_that_may_not_be_written_does_not_stop_the_reading(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    refused = KafkaError.GROUP_AUTHORIZATION_FAILED
    found = reading(monkeypatch, [Said(0, refused), Said(0, refused), Said(0), Said(0)])
    read = found.run()
    assert [next(read) for _ in range(4)] == [None, None, (b"v", "0", 1), (b"v", "0", 1)]
    assert caplog.text.count("group 'shown' may not be written") == 1
    consumer: Any = found.consumer
    assert consumer.shown == []


class TestStraight:
    """A producer in trouble: whose fault it is, and what to do."""

    def made(self, monkeypatch: pytest.MonkeyPatch, **methods: Any) -> _Straight:
        fine = SimpleNamespace(topics={})
        asked = {"list_topics": lambda *_, **__: fine, **methods}
        monkeypatch.setattr(Cluster, "producer", lambda *_, **__: SimpleNamespace(**asked))
        return _Straight(CLUSTER, "orders", 1000)

    @pytest.mark.parametrize(
        ("code", "told"),
        [
            (KafkaError._UNKNOWN_PARTITION, None),
            (KafkaError._FATAL, "did not take a result: .*; start again, which goes on after the"),
        ],
    )
    def test_only_what_a_value_is_to_blame_for_meets_on_error(
        self, code: int, told: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def produce(*_: Any, **__: Any) -> None:
            raise KafkaException(KafkaError(code))

        straight = self.made(monkeypatch, produce=produce)
        with pytest.raises(KafkaException if told is None else TopologyFailed, match=told):
            straight.write(Record(b"v"))
        assert straight.cut()().publish == ()  # it leaves no trace

    @pytest.mark.parametrize(
        ("code", "told"),
        [
            (KafkaError._MSG_TIMED_OUT, "could not be used for 60 s: .*; see that it runs, and"),
            (KafkaError.TOPIC_AUTHORIZATION_FAILED, "orders.*; correct its settings and start"),
            (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "orders.*; start again, which goes on after"),
        ],
    )
    def test_what_could_not_be_delivered_says_what_helps(
        self, code: int, told: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def produce(*_: Any, on_delivery: Any) -> None:
            on_delivery(KafkaError(code), None)

        straight = self.made(monkeypatch, produce=produce)
        straight.write(Record(b"v"))
        with pytest.raises(TopologyFailed, match=told):
            straight.cut()()

    def test_a_message_that_arrives_ends_the_trouble(self) -> None:
        clock = Clock()
        trouble = Trouble(CLUSTER, clock)
        interval = _Interval(trouble)
        for clock.now in (0.0, 40.0, 80.0, 120.0):
            trouble.met("a broker is away")
            interval.delivered(None, None)
        assert (interval.done, interval.refused, trouble.since_s) == (4, None, None)

    def test_a_partition_without_a_leader_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def produce(*_: Any, on_delivery: Any) -> None:
            on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT), None)

        listed = Consumes(Clock(), iter(())).list_topics
        straight = self.made(monkeypatch, produce=produce, list_topics=listed)
        straight.write(Record(b"v"))
        with pytest.raises(TopologyFailed, match="topic 'orders' lacks partition 1; see that"):
            straight.cut()()

    def test_a_client_that_cannot_go_on_is_told_by_a_commit(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def poll(_wait_s: float) -> None:
            raise KafkaException(KafkaError(KafkaError._FATAL, "the producer is broken"))

        straight = self.made(monkeypatch, produce=lambda *_, **__: None, poll=poll)
        straight.write(Record(b"v"))
        with pytest.raises(TopologyFailed, match="the producer is broken; start again, which goes"):
            straight.cut()()


class TestTopic:
    """What the driver asks about the partitions."""

    def made(self, monkeypatch: pytest.MonkeyPatch, *clients: Any) -> Topic:
        left = iter(clients)
        monkeypatch.setattr(Cluster, "admin", lambda *_: next(left))
        monkeypatch.setattr(client, "partitions", lambda _, asked, *__: asked.partitions())
        return Topic(CLUSTER, "orders", "group", "latest", str, False, Unreadable)

    def answers(self, *given: Any) -> Any:
        """A client that gives these answers when it is asked for offsets."""
        left = iter(given)

        def result(_wait_s: float) -> Any:
            answer = next(left)
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(offset=answer)

        def list_offsets(wanted: dict[Any, Any]) -> dict[Any, Any]:
            return {partition: SimpleNamespace(result=result) for partition in wanted}

        return SimpleNamespace(list_offsets=list_offsets, partitions=lambda: [0])

    def test_after_a_failure_it_is_asked_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails() -> list[int]:
            raise TopologyFailed("Kafka is away")

        found = self.made(monkeypatch, SimpleNamespace(partitions=fails), self.answers(7, 8))
        with pytest.raises(TopologyFailed):
            found.splits()
        assert [found.splits(), found.splits()] == [{"0": 7}, {"0": 8}]

    def test_what_does_not_answer_is_asked_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        met: list[object] = []
        monkeypatch.setattr(Trouble, "met", lambda _, why: met.append(why))
        found = self.made(monkeypatch, self.answers(TimeoutError(), 7))
        assert found.splits() == {"0": 7}
        assert met == ["no answer within 5 s"]

    def test_where_we_may_not_ask_it_is_told_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        forbidden = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(InputError, match=r"topic 'orders' at broker:9092: .*; ask for access"):
            self.made(monkeypatch, self.answers(forbidden)).splits()


def test_an_outbox_that_is_not_told_its_marker_asks_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And does not take it for one that has expired."""
    lost = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
    answers = iter([(lost, -1001), (None, 3)])

    def committed(_: Any, _wait_s: float) -> list[Any]:
        error, offset = next(answers)
        return [SimpleNamespace(error=error, offset=offset, metadata="")]

    asked = SimpleNamespace(
        committed=committed, close=lambda: None, consumer_group_metadata=lambda: None
    )
    producer = SimpleNamespace(init_transactions=lambda _: None)
    monkeypatch.setattr(Cluster, "consumer", lambda *_, **__: asked)
    monkeypatch.setattr(Cluster, "producer", lambda *_, **__: producer)
    monkeypatch.setattr(outbox, "limits", lambda *_: Limits(1000, 1))
    monkeypatch.setattr("time.sleep", lambda _s: None)
    (tmp_path / outbox.BEGUN).write_text("3", encoding="ascii")
    staged = tmp_path / "staged"
    staged.touch()
    outbox.Outbox(CLUSTER, "orders", "name", tmp_path).publish([staged], 3, again=True)
    assert not staged.exists()  # it was sent before
    assert next(answers, None) is None


@pytest.mark.parametrize(
    ("again", "note", "is_ours"),
    [
        (False, None, False),
        (True, None, False),  # it ended before it sent anything
        (True, "10 another", False),
        (True, "11 us", False),  # it ended before its first transaction
        (True, "11 us another", True),
        (True, "11", True),  # of a version that did not note who
    ],
)
def test_what_another_run_sent_under_the_same_number_is_not_taken_for_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, again: bool, note: str | None, is_ours: bool
) -> None:
    """A copy of the checkpoint whose original has gone on, also where the first contact fails."""
    tries = iter([KafkaException(KafkaError(KafkaError._TIMED_OUT)), None])
    if note is not None:
        (tmp_path / outbox.BEGUN).write_text(note, encoding="ascii")

    def init(_wait_s: float) -> None:
        if (error := next(tries)) is not None:
            raise error

    theirs = SimpleNamespace(error=None, offset=11, metadata="another ")
    asked = SimpleNamespace(
        committed=lambda *_: [theirs], close=lambda: None, consumer_group_metadata=lambda: None
    )
    producer = SimpleNamespace(init_transactions=init)
    monkeypatch.setattr(Cluster, "consumer", lambda *_, **__: asked)
    monkeypatch.setattr(Cluster, "producer", lambda *_, **__: producer)
    monkeypatch.setattr(outbox, "limits", lambda *_: Limits(1000, 1))
    monkeypatch.setattr("time.sleep", lambda _s: None)
    staged = tmp_path / "staged"
    staged.touch()
    made = outbox.Outbox(CLUSTER, "orders", "name", tmp_path)
    if is_ours:
        made.publish([staged], 11, again)
        assert not staged.exists()
    else:
        with pytest.raises(TopologyFailed, match="commit 11, and commit 11 was sent"):
            made.publish([staged], 11, again)
        assert staged.exists()


class Given:
    """A producer that notes what it is asked for; `send` is what it does for offsets."""

    def __init__(self, send: Callable[[], object]) -> None:
        self.send, self.asked = send, list[str]()

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.asked.append("offsets")
        self.send()

    def commit_transaction(self, *_: object) -> None:
        self.asked.append("commit")

    def init_transactions(self, *_: object) -> None: ...
    def begin_transaction(self) -> None: ...
    def produce(self, *_: object) -> None:
        self.asked.append("produce")

    def flush(self, *_: object) -> int:
        return 0

    def __len__(self) -> int:
        return 0


@pytest.fixture
def sent_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Has one producer after the other publish a record."""

    def publish(producers: Iterable[Given]) -> Path:
        left = iter(producers)
        marker = SimpleNamespace(error=None, offset=0, metadata="")
        asked = SimpleNamespace(
            committed=lambda *_: [marker], close=lambda: None, consumer_group_metadata=lambda: None
        )
        monkeypatch.setattr(Cluster, "consumer", lambda *_, **__: asked)
        monkeypatch.setattr(Cluster, "producer", lambda *_, **__: next(left))
        monkeypatch.setattr(outbox, "limits", lambda *_: Limits(1000, 1))
        staged = tmp_path / "staged"
        staged.write_bytes(outbox.pack(Record(b"v")))
        outbox.Outbox(CLUSTER, "orders", "name", tmp_path).publish([staged], 1)
        return staged

    return publish


def test_a_producer_that_waits_for_ever_is_replaced_and_commits_nothing_later(
    sent_by: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka 5456: it forgets its limit where a group's coordinator is gone."""
    monkeypatch.setattr(outbox, "_ASK_S", 0.05)
    monkeypatch.setattr(outbox, "_MORE_S", 0.05)
    wakes = threading.Event()
    stuck, good = Given(wakes.wait), Given(lambda: None)
    assert not sent_by([stuck, good]).exists()
    (thread,) = (one for one in threading.enumerate() if one.name == "sojourn-kafka")
    wakes.set()
    thread.join()
    assert stuck.asked == ["produce", "offsets"]
    assert good.asked == ["produce", "offsets", "commit"]


def test_a_producer_that_fails_is_let_go_at_once(sent_by: Callable[..., Path]) -> None:
    """Its threads and connections end with it, in the thread that has let it go."""

    held: list[bool] = []

    def fails() -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def producers() -> Iterator[Given]:
        bad = Given(fails)
        seen = weakref.ref(bad)
        yield bad
        del bad
        held.append(seen() is not None)
        yield Given(lambda: None)

    gc.disable()
    try:
        assert not sent_by(producers()).exists()
    finally:
        gc.enable()
    assert held == [False]


@pytest.mark.parametrize(
    ("record", "data"),
    [
        (Record(b"v"), b"\x08\x00\x00\x00\x95\xc4\x01v\xc0\x90\xc0\xc0"),
        (
            Record(b"v", b"k", (("h", b"x"), ("n", None)), 1, 1.5),
            b"\x1c\x00\x00\x00\x95\xc4\x01v\xc4\x01k\x92\x92\xa1h\xc4\x01x\x92\xa1n\xc0"
            b"\x01\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00",
        ),
    ],
)
def test_what_waits_in_a_checkpoint_can_be_read_by_later_versions(
    record: Record, data: bytes, tmp_path: Path
) -> None:
    assert outbox.pack(record) == data
    path = tmp_path / "staged"
    path.write_bytes(data)
    assert [found for _, found in outbox.unpack(path)] == [record]
