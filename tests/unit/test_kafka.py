"""What sources and sinks of Kafka do without a broker: settings, records, errors, patience."""

import logging
import operator
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sojourn.errors import InputError, TopologyFailed
from sojourn.kafka import client
from sojourn.kafka.client import Cluster, Trouble, checked
from sojourn.kafka.message import writer
from sojourn.kafka.reader import Reading
from sojourn.sinks import Record
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
    assert client.limits(CLUSTER, "orders", Trouble(CLUSTER, Clock())) == (limit, 3)


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
