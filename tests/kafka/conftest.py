"""One real broker for all tests, and topics of their own for each."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from conftest import no_process_is_left_behind, spark
from topics import NewTopics

from sojourn.engine.spark.broker import Broker, free_port

__all__ = ["no_process_is_left_behind", "spark"]  # fixtures of the tests on Spark


CERTIFICATE = Path(__file__).with_name("tests-only.pem")  # signed by itself, for loopback
PASSWORD = "open-sesame"


@pytest.fixture(scope="session")
def secure_port() -> int:
    """Where the broker asks for a password."""
    return free_port()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, secure_port: int) -> Iterator[Broker]:
    port, controller = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure_port}"
    settings = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL"
        ),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_ali="{PASSWORD}";'
        ),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(CERTIFICATE),
    }
    with Broker(tmp_path_factory.mktemp("broker"), port, settings) as broker:
        yield broker


@pytest.fixture
def secure(
    broker: Broker,  # noqa: ARG001  # it is up
    secure_port: int,
) -> tuple[str, dict[str, str]]:
    """Where the broker asks for a password, over TLS; and how to get in."""
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ali",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(CERTIFICATE),
    }
    return f"127.0.0.1:{secure_port}", options


@pytest.fixture(scope="session")
def topics(broker: Broker) -> NewTopics:
    """Makes a new topic with so many partitions, and settings of its own."""
    numbers = itertools.count()

    def make(partitions: int = 1, **settings: str) -> str:
        name = f"topic-{next(numbers)}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = AdminClient({"bootstrap.servers": broker.servers})
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
        return name

    return make
