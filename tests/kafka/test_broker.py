"""The broker that tests and users bring up."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from topics import NewTopics, held, send

from sojourn.engine.spark.broker import Broker
from sojourn.errors import InputError


def test_topics_hold_what_is_sent(broker: Broker, topics: NewTopics) -> None:
    topic = topics(2)
    send(broker.servers, topic, b"a", b"b")
    send(broker.servers, topic, b"c", to=1)
    assert sorted(held(broker.servers, topic)) == [(0, b"a"), (0, b"b"), (1, b"c")]


def test_a_port_in_use_is_refused(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"port {broker.port}: the broker cannot listen there"):
        Broker(tmp_path, broker.port)


def test_a_directory_that_another_broker_uses_is_refused(broker: Broker) -> None:
    with pytest.raises(InputError, match="another broker uses it; stop that one"):
        Broker(broker.directory)


@pytest.mark.parametrize("under", ["", "below"])
def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path, under: str) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, match="must be a directory that can be made and written to"):
        Broker(file / under)


@pytest.mark.parametrize("topic", ["a b", "a b:3", "orders:0", ":3", "orders:x"])
def test_a_topic_that_cannot_be_made_is_refused(topic: str) -> None:
    command = [sys.executable, "-m", "sojourn", "broker", "--topic", topic]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: --topic '{topic}': ")


def test_one_command_brings_a_broker_up(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sojourn", "broker", "--port", "0", "--topic", "orders:3"]
    with subprocess.Popen(
        [*command, "--directory", str(tmp_path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        servers = re.search(r"127\.0\.0\.1:\d+", said)
        assert servers is not None, said
        assert "orders (3 partitions)" in process.stdout.readline()
        send(servers[0], "orders", b"one", to=2)
        assert held(servers[0], "orders") == [(2, b"one")]
        process.terminate()
    assert process.returncode == 0
