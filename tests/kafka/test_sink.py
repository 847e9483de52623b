"""What `sojourn.sinks.kafka` writes to a real broker. The test does what the engine does."""

import os
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import time
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from topics import NewTopics, held

import sojourn as sj
from sojourn.engine.spark.broker import Broker
from sojourn.errors import InputError, TopologyFailed
from sojourn.kafka import client, outbox
from sojourn.kafka.client import Cluster, Limits
from sojourn.sinks import Record, Sink, Staged, kafka
from sojourn.sinks.kafka import _Straight


def opened(sink: Sink[Any], room: Path, part: int = 0, epoch: int = 0) -> Sink[Any]:
    sink.run, sink.room = "run", room
    sink.open(part, epoch)
    return sink


def commit(sink: Sink[Any], values: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    """Write values and cut. Returns what is to be published."""
    for value in values:
        sink.write(value)
    return sink.cut()().publish


@pytest.fixture
def room(tmp_path: Path, topics: NewTopics) -> Path:
    """A directory for one sink, whose name no other test's transactions have."""
    return tmp_path / f"sink-{os.getpid()}-{topics()}"


def test_results_appear_once_committed(broker: Broker, topics: NewTopics, room: Path) -> None:
    topic = topics()
    sink = opened(kafka(broker.servers, topic), room)
    first = commit(sink, [{"n": 1}, {"n": 2}])
    assert held(broker.servers, topic) == []
    sink.publish(first, 1)
    assert held(broker.servers, topic) == [(0, b'{"n":1}'), (0, b'{"n":2}')]
    assert not Path(first[0][0]).exists()
    sink.publish(commit(sink, []), 2)
    sink.publish(commit(sink, [3]), 3)
    assert [value for _, value in held(broker.servers, topic)] == [b'{"n":1}', b'{"n":2}', b"3"]
    sink.close()


def test_publishing_again_sends_nothing_twice(
    broker: Broker, topics: NewTopics, room: Path
) -> None:
    topic = topics()
    staged = commit(opened(kafka(broker.servers, topic), room), range(5))
    opened(kafka(broker.servers, topic), room).publish(staged, 1)
    after = opened(kafka(broker.servers, topic), room, epoch=1)  # another driver
    after.publish(staged, 1, again=True)
    assert len(held(broker.servers, topic)) == 5


def test_a_predecessor_that_still_runs_can_send_no_more(
    broker: Broker, topics: NewTopics, room: Path
) -> None:
    topic = topics()
    old, new = (opened(kafka(broker.servers, topic), room, epoch=n) for n in range(2))
    old.publish(commit(old, [1]), 1)
    new.publish(commit(new, [2]), 2)
    with pytest.raises(TopologyFailed, match="another run sends the results of this sink"):
        old.publish(commit(old, [3]), 3)
    assert [value for _, value in held(broker.servers, topic)] == [b"1", b"2"]


@pytest.mark.parametrize(("number", "again"), [(2, False), (2, True), (3, False)])
def test_a_checkpoint_that_is_older_than_what_was_sent_is_refused(
    broker: Broker, topics: NewTopics, room: Path, number: int, again: bool
) -> None:
    """Its results would be taken for those of the commit with the same number."""
    topic = topics()
    sink = opened(kafka(broker.servers, topic), room)
    for commits in range(1, 4):
        sink.publish(commit(sink, [commits]), commits)
    copy = opened(kafka(broker.servers, topic), room, epoch=1)
    staged = commit(copy, ["other"])
    with pytest.raises(TopologyFailed, match=f"is older .* commit {number}, and commit 3 was sent"):
        copy.publish(staged, number, again)
    assert Path(staged[0][0]).exists()
    newest = opened(kafka(broker.servers, topic), room, epoch=2)
    newest.publish(staged, 4)
    assert [value for _, value in held(broker.servers, topic)] == [b"1", b"2", b"3", b'"other"']


def test_several_processes_write_and_keys_keep_their_order(
    broker: Broker, topics: NewTopics, room: Path
) -> None:
    topic = topics(3)

    def made() -> Sink[Any]:
        return kafka(broker.servers, topic, write="text", key=lambda value: value[0])

    parts = [opened(made(), room, part) for part in range(2)]
    assert parts[0].key is not None
    driver = opened(made(), room)
    for number in range(1, 4):
        staged = [
            pair
            for part, sink in enumerate(parts)
            for pair in commit(sink, [f"{'ab'[part]}{number}{n}" for n in range(3)])
        ]
        driver.publish(staged, number)
    found = held(broker.servers, topic)
    for key in "ab":
        of_key = [(p, v.decode()) for p, v in found if v.decode()[0] == key]
        assert len({partition for partition, _ in of_key}) == 1
        expected = [f"{key}{number}{n}" for number in range(1, 4) for n in range(3)]
        assert [value for _, value in of_key] == expected


def test_what_does_not_fit_a_transaction_is_sent_in_several(
    broker: Broker, topics: NewTopics, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "CHUNK", 3)
    topic = topics()
    sink = opened(kafka(broker.servers, topic), room)
    sink.publish(commit(sink, range(8)), 1)
    assert [value for _, value in held(broker.servers, topic)] == [b"%d" % n for n in range(8)]


POINTS = ("send_offsets_to_transaction", "commit_transaction", "begin_transaction")
KILLED = """
import os, signal, sys
from pathlib import Path
import sojourn as sj
from confluent_kafka import Producer
from sojourn.kafka import client, outbox

servers, topic, room, point, chunk, turn = sys.argv[1:7]
outbox.CHUNK = int(chunk)
left = [int(turn)]  # at which of its transactions; the first says only that nothing is sent yet

def dies(name):
    def method(self, *given):
        if name == point:
            left[0] -= 1
        if name == point and not left[0] and name != "commit_transaction":
            self.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        getattr(Producer, name)(self, *given)
        if name == point and not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    return method

names = ("send_offsets_to_transaction", "commit_transaction", "begin_transaction")
kind = type("Dies", (Producer,), {name: dies(name) for name in names})
client.confluent().Producer = kind
committed = Path(room, "committed")
sink = sj.sinks.kafka(servers, topic, write="bytes")
sink.run, sink.room = "run", Path(room)
number = 0
if committed.exists():  # what the driver does at a start
    number, _, staged = committed.read_text().partition(" ")
    number = int(number)
    sink.publish([(staged, sink.mark)], number, again=True)
sink.open(0, number)
while number < 4:
    number += 1
    for n in range(10):
        sink.write(b"%d" % (number * 10 + n))
    ((path, mark),) = sink.cut()().publish
    committed.write_text(f"{number} {path}")
    sink.publish([(path, mark)], number)
"""


@pytest.mark.parametrize(
    ("point", "chunk", "turn"),
    [
        *((point, chunk, 3) for chunk in (1000, 4) for point in POINTS),
        ("commit_transaction", 1000, 1),
    ],
)
def test_a_driver_that_is_killed_while_it_sends_sends_each_result_once(
    broker: Broker, topics: NewTopics, room: Path, point: str, chunk: int, turn: int
) -> None:
    topic = topics()
    room.mkdir()
    for at in (point, "nowhere"):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                KILLED,
                broker.servers,
                topic,
                str(room),
                at,
                f"{chunk}",
                f"{turn}",
            ],
            check=False,
        )
        assert done.returncode == (0 if at == "nowhere" else -signal.SIGKILL)
    found = [int(value) for _, value in held(broker.servers, topic)]
    assert found == list(range(10, 50))


def test_a_broker_that_is_away_for_a_while_delays_and_loses_nothing(
    broker: Broker, topics: NewTopics, room: Path
) -> None:
    """The source that reads along goes on, too."""
    topic, before, after = topics(), range(1, 4), range(4, 30)
    sink = opened(kafka(broker.servers, topic, write="text"), room)
    read = sj.sources.kafka(broker.servers, topic).read_splits({"0": None})
    reading = (piece for piece in read if piece is not None and len(piece) > 2)
    for number in before:
        sink.publish(commit(sink, [number]), number)
    found = [next(reading)]
    staged = {number: commit(sink, [number]) for number in after}

    def publish() -> None:
        for number, pairs in staged.items():
            sink.publish(pairs, number)

    publishing = threading.Thread(target=publish)
    broker.kill()
    publishing.start()
    broker.start()
    while len(found) < len([*before, *after]):
        found.append(next(reading))
    publishing.join()
    assert [piece[0] for piece in found] == [str(number) for number in [*before, *after]]


def test_a_transaction_that_takes_too_long_is_sent_in_smaller_ones(
    broker: Broker, topics: NewTopics, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka ends it, as if another run had come."""
    topic = topics()
    asked = AdminClient({"bootstrap.servers": broker.servers})
    partition, latest = TopicPartition(topic, 0), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ended: list[int] = []

    class Slow(Producer):
        """It lets its first transaction with results be ended by Kafka."""

        def send_offsets_to_transaction(self, *given: Any) -> None:
            if sink.outbox.known and not ended:
                self.flush()
                while not (at := seen(asked, partition, latest)):
                    continue
                ended.append(at)
            super().send_offsets_to_transaction(*given)

    monkeypatch.setattr(client.confluent(), "Producer", Slow)
    options = {"transaction.timeout.ms": 1000}
    sink: Any = opened(kafka(broker.servers, topic, options=options), room)
    sink.publish(commit(sink, range(8)), 1)
    assert ended
    assert sink.outbox.chunk < outbox.CHUNK
    assert [value for _, value in held(broker.servers, topic)] == [b"%d" % n for n in range(8)]


def seen(asked: AdminClient, partition: TopicPartition, latest: Any) -> int:
    """Up to where readers of committed messages have nothing to wait for."""
    level = IsolationLevel.READ_COMMITTED
    (found,) = asked.list_offsets({partition: latest}, isolation_level=level).values()
    offset: int = found.result(30).offset
    return offset


def test_a_sink_that_gave_up_sends_what_is_missing_once_kafka_is_back(
    broker: Broker, topics: NewTopics, room: Path
) -> None:
    """At least once gives up with the same words. Who is patient goes on, at the first contact,
    too."""
    topic, other = topics(), topics()
    first = opened(kafka(broker.servers, topic), room)
    first.publish(commit(first, [1]), 1)
    staged = commit(first, [2])
    patient = opened(kafka(broker.servers, other, delivery="at_least_once"), room)
    once = kafka(broker.servers, topic, timeout=0.5)
    once.run, once.room = "run", room
    at_once = _Straight(Cluster(broker.servers, {}, 1.0), other, 1_000_000)
    source = sj.sources.kafka(broker.servers, topic)
    with ThreadPoolExecutor() as threads:
        broker.kill()
        with pytest.raises(TopologyFailed, match=r"could not be used for .* see that it runs"):
            once.publish(staged, 2)
        at_once.write(Record(b"lost"))
        with pytest.raises(TopologyFailed, match=r"could not be used for .* see that it runs"):
            at_once.cut()()
        patient.write("kept")
        waits, comes = threads.submit(patient.cut()), threads.submit(source.splits)
        broker.start()
        assert (waits.result(), comes.result()) == (Staged(), ["0"])
    assert (0, b'"kept"') in held(broker.servers, other)
    after = opened(kafka(broker.servers, topic), room, epoch=1)
    after.publish(staged, 2, again=True)
    assert [value for _, value in held(broker.servers, topic)] == [b"1", b"2"]


def test_at_least_once_sends_at_once_and_a_commit_waits_for_it(
    broker: Broker, topics: NewTopics, room: Path
) -> None:
    topic = topics()
    sink = opened(kafka(broker.servers, topic, delivery="at_least_once"), room)
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    sink.write("now")
    seen = consumer.poll(30)
    assert seen is not None
    assert seen.value() == b'"now"'
    consumer.close()
    assert commit(sink, range(100)) == ()
    assert len(held(broker.servers, topic)) == 101
    sink.close()


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_record_has_all_that_a_message_has(
    broker: Broker, topics: NewTopics, room: Path, delivery: Any
) -> None:
    topic = topics(2)

    def write(value: str) -> Record:
        return Record(value.encode(), b"key", (("h", b"x"), ("n", None)), 1, 1_700_000_000.5)

    sink = opened(kafka(broker.servers, topic, write=write, delivery=delivery), room)
    sink.publish(commit(sink, ["v"]), 1)
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": topic})
    consumer.assign([TopicPartition(topic, 1, 0)])
    found: Any = consumer.poll(30)
    consumer.close()
    assert (found.value(), found.key(), found.timestamp()[1]) == (b"v", b"key", 1_700_000_000_500)
    assert found.headers() == [("h", b"x"), ("n", None)]


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_what_cannot_be_written_raises_and_leaves_no_trace(
    broker: Broker, topics: NewTopics, room: Path, delivery: Any
) -> None:
    topic = topics(max_message_bytes="2000")
    sink = opened(kafka(broker.servers, topic, write="bytes", delivery=delivery), room)
    sink.write(b"small")
    with pytest.raises(ValueError, match=f"topic '{topic}' takes messages of at most 2000 bytes"):
        sink.write(b"x" * 1900)
    with pytest.raises(TypeError, match="write='bytes' takes bytes; got str"):
        sink.write("text")
    beyond: Any = kafka(broker.servers, topic, write=lambda n: Record(b"", None, (), n))
    with pytest.raises(ValueError, match="has partitions 0 to 0; got a Record with partition 1"):
        opened(beyond, room, 1).write(1)
    sink.publish(commit(sink, [b"y" * 1000] * 3), 1)
    assert Counter(len(value) for _, value in held(broker.servers, topic)) == {1000: 3, 5: 1}


def test_a_topic_that_takes_less_than_it_did_is_told(
    broker: Broker, topics: NewTopics, room: Path
) -> None:
    small = topics(max_message_bytes="500")
    sink = opened(kafka(broker.servers, topics(), write="bytes"), room)
    staged = commit(sink, [b"x" * 900])
    sink.topic = small  # type: ignore[attr-defined]
    sink.limits = Limits(10_000, 1)  # type: ignore[attr-defined]
    with pytest.raises(TopologyFailed, match=r"refuses a result of commit 1: .*too large"):
        sink.publish(staged, 1)
    assert Path(staged[0][0]).exists()


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_what_a_topic_would_refuse_after_the_commit_is_refused_before_it(
    broker: Broker, topics: NewTopics, room: Path, delivery: Any
) -> None:
    topic = topics(cleanup_policy="compact")

    def write(given: tuple[Any, Any]) -> Record:
        key, time_s = given
        return Record(b"v", key, time_s=time_s)

    sink = opened(kafka(broker.servers, topic, write=write, delivery=delivery), room)
    with pytest.raises(ValueError, match="takes none without a key; give key=, or a Record"):
        sink.write((None, None))
    with pytest.raises(ValueError, match=r"at most 3600 s after now; .* which is 72\d\d s;"):
        sink.write((b"key", time() + 7210))
    sink.publish(commit(sink, [(b"key", time() + 3000)]), 1)
    assert [value for _, value in held(broker.servers, topic)] == [b"v"]


def forget(broker: Broker, room: Path) -> None:
    """What Kafka does after a week."""
    admin = AdminClient({"bootstrap.servers": broker.servers})
    (gone,) = admin.delete_consumer_groups([f"sojourn-run-{room.name}"]).values()
    gone.result(30)


def marker(broker: Broker, topic: str, room: Path) -> int:
    asked = Consumer({"bootstrap.servers": broker.servers, "group.id": f"sojourn-run-{room.name}"})
    (found,) = asked.committed([TopicPartition(topic, 0)], 30)
    asked.close()
    offset: int = found.offset
    return offset


def killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("was_sent", [True, False])
def test_expired_markers_are_told_and_the_remedy_helps(
    broker: Broker,
    topics: NewTopics,
    room: Path,
    was_sent: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = topics()
    sink = opened(kafka(broker.servers, topic), room)
    sink.publish(commit(sink, [1]), 1)
    staged = commit(sink, [2])
    path = Path(staged[0][0])
    if was_sent:  # and the driver was killed before it removed what it had sent
        content = path.read_bytes()
        sink.publish(staged, 2)
        path.write_bytes(content)
    else:
        monkeypatch.setattr(outbox.Outbox, "_send", killed)
        with pytest.raises(KeyboardInterrupt):
            sink.publish(staged, 2)
        monkeypatch.undo()
    forget(broker, room)
    after = opened(kafka(broker.servers, topic), room, epoch=1)
    with pytest.raises(TopologyFailed, match=r"it is not known whether .* commit 2 were") as told:
        after.publish(staged, 2, again=True)
    files, begun = re.findall(rf"{room}\S*", str(told.value))
    assert [value for _, value in held(broker.servers, topic)] == [b"1", b"2"][: 1 + was_sent]
    if was_sent:
        for one in Path(files).iterdir():
            one.unlink()
    else:
        Path(begun).unlink()
    last = opened(kafka(broker.servers, topic), room, epoch=2)
    last.publish(staged, 2, again=True)
    last.publish(commit(last, [3]), 3)
    assert [value for _, value in held(broker.servers, topic)] == [b"1", b"2", b"3"]


def test_an_expired_marker_matters_only_to_what_was_about_to_be_sent(
    broker: Broker, topics: NewTopics, room: Path
) -> None:
    """Not to a later commit."""
    topic = topics()
    sink = opened(kafka(broker.servers, topic), room)
    sink.publish(commit(sink, [1]), 1)
    staged = commit(sink, [2])
    forget(broker, room)
    after = opened(kafka(broker.servers, topic), room, epoch=1)
    after.publish(staged, 2, again=True)
    assert [value for _, value in held(broker.servers, topic)] == [b"1", b"2"]


def test_a_marker_is_kept_though_nothing_is_sent(
    broker: Broker, topics: NewTopics, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics()
    sink = opened(kafka(broker.servers, topic), room)
    sink.publish((), 1)  # there is none yet
    assert marker(broker, topic, room) < 0
    sink.publish(commit(sink, [1]), 2)
    forget(broker, room)
    sink.publish((), 3)
    assert marker(broker, topic, room) < 0  # not at every commit
    monkeypatch.setattr(outbox, "KEEP_S", 0.0)
    sink.publish((), 4)
    assert marker(broker, topic, room) == 2  # as before: a copy made since then may be used
    monkeypatch.undo()
    forget(broker, room)
    after = opened(kafka(broker.servers, topic), room, epoch=1)  # whose results may be rare
    after.publish((), 5)
    assert marker(broker, topic, room) == 5


def test_a_marker_is_there_before_results_are(
    broker: Broker, topics: NewTopics, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an expired one is told from none, though the first commit with results failed."""
    topic = topics()
    sink = opened(kafka(broker.servers, topic), room)
    staged = commit(sink, [1])
    monkeypatch.setattr(outbox.Outbox, "_send", killed)
    with pytest.raises(KeyboardInterrupt):
        sink.publish(staged, 7)
    assert marker(broker, topic, room) == 6
    assert (room / outbox.BEGUN).exists()


def test_what_a_sink_keeps_open_is_closed(broker: Broker, topics: NewTopics, room: Path) -> None:
    sink: Any = opened(kafka(broker.servers, topics()), room)
    sink.publish(commit(sink, [1]), 1)
    left = weakref.ref(sink.outbox)
    sink.retire()
    assert left() is None


def test_a_misspelt_topic_is_not_made_by_asking(tmp_path: Path, room: Path) -> None:
    """Brokers do that by default."""
    settings = {"auto.create.topics.enable": "true"}
    with Broker(tmp_path / "broker", settings=settings) as lenient:
        refused = "topic 'ordres': does not exist"
        for delivery in ("exactly_once", "at_least_once"):
            sink = kafka(lenient.servers, "ordres", delivery=delivery, timeout=0.5)
            with pytest.raises(InputError, match=refused):
                opened(sink, room)
        source = sj.sources.kafka(lenient.servers, "ordres", timeout=0.5)
        with pytest.raises(InputError, match=refused):
            source.splits()
        asked = AdminClient({"bootstrap.servers": lenient.servers})
        assert "ordres" not in asked.list_topics(timeout=30).topics


def test_results_that_are_missing_are_told(broker: Broker, topics: NewTopics, room: Path) -> None:
    sink = opened(kafka(broker.servers, topics()), room)
    staged = commit(sink, [1])
    Path(staged[0][0]).unlink()
    with pytest.raises(InputError, match="is missing; all machines"):
        sink.publish(staged, 1)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_topic_that_does_not_exist_is_named(broker: Broker, room: Path, delivery: Any) -> None:
    sink = kafka(broker.servers, "nowhere", delivery=delivery, timeout=0.2)
    with pytest.raises(InputError, match="topic 'nowhere': does not exist"):
        opened(sink, room)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"delivery": "once"}, "delivery must be 'exactly_once' or 'at_least_once'"),
        ({"write": "xml"}, "write must be one of 'bytes', 'text', 'json', or a function"),
        ({"key": 3}, "key must be a function"),
        ({"options": {"acks": 0}}, "the option 'acks' belongs to delivery="),
        ({"delivery": "at_least_once", "timeout": "10min"}, "timeout must be at most 9min"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        kafka(**{"servers": "127.0.0.1:9092", "topic": "orders", **given})
