"""Clients of a Kafka cluster: their settings, and which of their errors pass. Used by the reader of
topics and by sinks.

librdkafka retries by itself, forever. So whoever waits asks here how long it has been in trouble,
and gives up with one message once that is longer than the limit. Settings may be secret: neither
`repr` nor a message shows their values."""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sojourn.errors import InputError, TopologyFailed
from sojourn.units import parse_duration

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

_SECRET = re.compile(r"password|secret|token|key|pem|jaas|sasl\.oauthbearer", re.IGNORECASE)
ASK_S = 5.0
_PAUSE_S = 0.2
_LOOK_S = 2.0  # between two looks at what the library has to say
_NEW_S = 5.0  # a topic that was just made may not be known everywhere yet
_USUAL_BYTES = 1_000_000
_LEAST_BYTES, _MOST_BYTES = 1000, 1_000_000_000  # for the library
_OURS = {
    "bootstrap.servers": "servers=",
    "metadata.broker.list": "servers=",
    "group.id": "group= of sources",
    "transactional.id": "delivery= of sinks",
    "enable.idempotence": "delivery= of sinks",
    "acks": "delivery= of sinks",
    "request.required.acks": "delivery= of sinks",
    "delivery.report.only.error": "delivery= of sinks",
    "on_delivery": "delivery= of sinks",
    "isolation.level": "sources, which read what is committed",
    "message.timeout.ms": "timeout=",
    "delivery.timeout.ms": "timeout=",
    "message.max.bytes": "the topic's own max.message.bytes",
    "auto.offset.reset": "start= of sources",
    "enable.auto.commit": "positions in the checkpoint",
    "enable.auto.offset.store": "positions in the checkpoint",
    "enable.partition.eof": "positions in the checkpoint",
    "error_cb": "timeout=",
    "allow.auto.create.topics": "topics, which must exist",
}
_QUICK = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "socket.nagle.disable": True,
    "log_level": 0,
}
_CONSUMER = {
    "topic.metadata.refresh.interval.ms": 10_000,
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 16_384,
}
_PRODUCER = {"partitioner": "murmur2_random", "linger.ms": 1}
Clock = Callable[[], float]


def confluent() -> ModuleType:
    """The client library."""
    try:
        import confluent_kafka.admin
    except ImportError as error:
        raise InputError(
            "Kafka needs the package confluent-kafka, which is not installed; "
            "pip install 'sojourn[kafka]'"
        ) from error
    return confluent_kafka


@dataclass(frozen=True)
class Cluster:
    """Where Kafka is, how to get in, and how long it may be away."""

    servers: str
    options: Mapping[str, Any] = field(repr=False)
    timeout_s: float

    def consumer(self, trouble: "Trouble", group: str, **settings: Any) -> "Consumer":
        """A consumer that tells `trouble` what ails it. In settings, _ stands for a dot."""
        held = {"group.id": group, "isolation.level": "read_committed", **_dotted(settings)}
        made: Consumer = self._made(confluent().Consumer, _CONSUMER, held, trouble)
        return made

    def producer(self, trouble: "Trouble", **settings: Any) -> "Producer":
        """A producer, likewise. Keys go to the partitions that Java's clients would choose."""
        held = {"enable.idempotence": True, **_dotted(settings)}
        made: Producer = self._made(confluent().Producer, _PRODUCER, held, trouble)
        return made

    def admin(self, trouble: "Trouble") -> "AdminClient":
        """A client that asks about topics."""
        made: AdminClient = self._made(confluent().admin.AdminClient, {}, {}, trouble)
        return made

    def safe(self, text: object) -> str:
        """A text that others wrote, without any secret of ours."""
        told = str(text)
        for name, value in self.options.items():
            if _SECRET.search(name) and str(value):
                told = told.replace(str(value), "…")
        return told

    def _made(
        self, kind: Any, tuned: dict[str, Any], held: dict[str, Any], trouble: "Trouble"
    ) -> Any:
        """A client. The user's options change how it is tuned, not what must hold."""
        own = {
            "bootstrap.servers": self.servers,
            "error_cb": trouble.told,
            "allow.auto.create.topics": False,  # a misspelt one would be made where brokers let us
        }
        try:
            return kind({**_QUICK, **tuned, **self.options, **held, **own})
        except confluent().KafkaException as error:
            raise InputError(
                f"Kafka at {self.servers}: a setting cannot be used: "
                f"{self.safe(error.args[0].str())}; change options="
            ) from None


def checked(
    what: str, servers: object, options: Mapping[str, Any] | None, timeout: float | str
) -> Cluster:
    """A cluster as a user names it."""
    if not isinstance(servers, str) or not re.fullmatch(r"[^\s,]+:\d+(,[^\s,]+:\d+)*", servers):
        raise InputError(
            f"{what}: servers must be HOST:PORT, or several with commas; got {servers!r}"
        )
    if not isinstance(options or {}, Mapping):
        raise InputError(
            f"{what}: options must be a mapping of librdkafka's settings, such as "
            f"{{'client.id': 'us'}}; got {type(options).__name__}"
        )
    for name in options or {}:
        if name in _OURS:
            raise InputError(f"{what}: the option {name!r} belongs to {_OURS[name]}; leave it out")
    limit_s = parse_duration(timeout, f"{what}: timeout")
    if not limit_s > 0:
        raise InputError(f"{what}: timeout must be above zero; got {timeout!r}")
    return Cluster(servers, dict(options or {}), limit_s)


def checked_topic(topic: object, what: str) -> str:
    """A topic's name, as Kafka allows it."""
    if not isinstance(topic, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic):
        raise InputError(
            f"{what}: topic must be 1 to 249 letters, digits, '.', '_' or '-'; got {topic!r}"
        )
    return topic


class Trouble:
    """Since when a client has been unable to do its work, and why. What cannot pass is raised. A
    refused login can pass once we have been let in: brokers that start may not know us yet."""

    def __init__(self, cluster: Cluster, clock: Clock = time.monotonic) -> None:
        self.cluster, self.clock = cluster, clock
        self.since_s: float | None = None
        self.why = ""
        self.let_in = False

    def told(self, error: "KafkaError") -> None:
        """Note what the library says has happened."""
        names = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL")
        if error.name() in names and not self.let_in:
            self.why = self.cluster.safe(error.str())
            raise TopologyFailed(
                f"Kafka at {self.cluster.servers} refuses us: {self.why}; correct options="
            )
        if error.name() != "_ALL_BROKERS_DOWN":
            self.why = self.cluster.safe(error.str())
        self.met(error.str())

    def met(self, why: object) -> None:
        """Note a difficulty. If it lasts too long, give up."""
        now = self.clock()
        self.since_s = now if self.since_s is None else self.since_s
        self.why = self.why or self.cluster.safe(why)
        if now - self.since_s >= self.cluster.timeout_s:
            raise self.gave_up(now - self.since_s)

    def unheard(self, seconds: float) -> None:
        """For so long, nobody has asked the library anything: that does not count."""
        if self.since_s is not None:
            self.since_s += seconds

    def gave_up(self, waited_s: float) -> TopologyFailed:
        """What is raised after so long."""
        return TopologyFailed(
            f"Kafka at {self.cluster.servers} could not be used for {waited_s:.0f} s: {self.why}; "
            "see that it runs, and start again (timeout= says how long to wait)"
        )

    def over(self) -> None:
        """Note that all is well."""
        self.since_s, self.why, self.let_in = None, "", True


def partitions(
    cluster: Cluster, client: "Consumer | Producer | AdminClient", topic: str, trouble: Trouble
) -> list[int]:
    """The partitions of a topic, asked for until somebody answers. A topic that does not exist is
    an error."""
    missing_s: float | None = None  # since when somebody answers, and does not know it
    while True:
        client.poll(0)  # hands over what the library has to say
        found = metadata(client, topic, trouble, min(_LOOK_S, cluster.timeout_s))
        if found is None:
            continue
        known = found.topics.get(topic)
        if known is not None and known.error is None and known.partitions:
            trouble.over()
            return sorted(known.partitions)
        error = None if known is None else known.error
        if error is not None and "AUTHORIZATION" in error.name():
            raise InputError(f"topic {topic!r} at {cluster.servers}: {error.str()}; ask for access")
        missing_s = trouble.clock() if missing_s is None else missing_s
        if trouble.clock() - missing_s > min(_NEW_S, cluster.timeout_s):
            every = metadata(client, None, trouble)
            import difflib  # few need it, and it takes time to load

            there = [name for name in (every.topics if every else ()) if name[:2] != "__"]
            shown = ", ".join(difflib.get_close_matches(topic, there, 10, 0.0)) or "no topics"
            raise InputError(
                f"topic {topic!r}: does not exist at {cluster.servers}, where there are {shown}; "
                "make it, or correct the name"
            )
        time.sleep(0.1)


@dataclass(frozen=True)
class Limits:
    """What a topic takes, as far as we may know it: the size in bytes of its largest batch, how
    many partitions it has, whether each message needs a key, and how far a message's own time may
    be in the past and in the future."""

    size: int
    partitions: int
    keys: bool = False
    before_s: float = math.inf
    after_s: float = math.inf


def limits(cluster: Cluster, topic: str, trouble: Trouble) -> Limits:
    """What a topic takes. It must exist."""
    admin = confluent().admin
    client = cluster.admin(trouble)  # which must live until the answer is there
    count = len(partitions(cluster, client, topic, trouble))
    asked = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic)
    while True:
        try:
            found = client.describe_configs([asked])[asked].result(ASK_S)
            trouble.over()
            return _limits({name: one.value for name, one in found.items()}, count)
        except (confluent().KafkaException, TimeoutError) as error:
            if is_forbidden(error):
                return Limits(_USUAL_BYTES, count)  # not everybody may ask
            trouble.met(reason(error))
            time.sleep(_PAUSE_S)


def _limits(settings: Mapping[str, str], partitions: int) -> Limits:
    """By a topic's settings."""
    most = int(settings.get("max.message.bytes", _USUAL_BYTES))
    keys = "compact" in settings.get("cleanup.policy", "")
    size = min(_MOST_BYTES, max(_LEAST_BYTES, most))
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return Limits(size, partitions, keys)  # whatever a message says of its time
    before_s, after_s = (
        float(settings.get(f"message.timestamp.{side}.max.ms", math.inf)) / 1000
        for side in ("before", "after")
    )
    return Limits(size, partitions, keys, before_s, after_s)


def lacking(
    client: "Consumer | Producer",
    topic: str,
    trouble: Trouble,
    wanted: Iterable[int] | None = None,
    wait_s: float = ASK_S,
) -> str | None:
    """What is to be said of the partitions that are wanted, all unless they are named, and that
    have no leader: nothing if each has one. None if nobody answers now."""
    found = metadata(client, topic, trouble, wait_s)
    known = found.topics.get(topic) if found is not None else None
    if known is None:
        return None
    led = {number for number, one in known.partitions.items() if one.error is None}
    missing = sorted(set(known.partitions if wanted is None else wanted) - led)
    return f"topic {topic!r} lacks partition {', '.join(map(str, missing))}" if missing else ""


def reason(error: Exception) -> str:
    """What an error of the library says."""
    if isinstance(error, TimeoutError):
        return f"no answer within {ASK_S:.0f} s"
    return str(error.args[0].str())


def is_forbidden(error: Exception) -> bool:
    """Whether we may not do what we asked for."""
    return not isinstance(error, TimeoutError) and "AUTHORIZATION" in error.args[0].name()


def metadata(
    client: "Consumer | Producer | AdminClient",
    topic: str | None,
    trouble: Trouble,
    wait_s: float = ASK_S,
) -> Any:
    """What the cluster says about topics; None if it does not answer now."""
    try:
        return client.list_topics(topic, timeout=wait_s)
    except confluent().KafkaException as error:
        trouble.met(error.args[0].str())
        return None


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    calls = {"on_delivery"}  # the Python client's own, which is spelt so
    return {n if n in calls else n.replace("_", "."): value for n, value in settings.items()}
