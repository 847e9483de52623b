"""`sojourn measure` between the executors of a real standalone cluster."""

import json
import subprocess
import sys
from pathlib import Path

from sojourn.engine.spark.standalone import StandaloneCluster
from sojourn.probing.ping import Ping, Refused


def may_ping() -> bool:
    """Whether the kernel lets us send ICMP."""
    try:
        with Ping("127.0.0.1") as ping:
            return ping.trip() is not None
    except Refused:
        return False


def test_every_machine_measures_its_link_to_the_other(tmp_path: Path) -> None:
    with StandaloneCluster(tmp_path) as cluster:
        for cores in (1, 2):
            cluster.add(cores)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "sojourn", "measure", "--master", cluster.url),
                *("--machines", "2", "--seconds", "0.2", "--json"),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    names = ["127.0.0.1#1", "127.0.0.1#2"]
    assert [(link["sender"], link["receiver"]) for link in found["links"]] == [
        (names[0], names[1]),
        (names[1], names[0]),
    ]
    assert found["failed"] == []
    for link in found["links"]:
        assert link["application"]["count"] >= 1
        assert isinstance(link["network"], dict) == may_ping(), link["network"]
        assert [stream["sent"] for stream in link["streams"]] == [2, 20, 200]
        assert link["throughput_bps"] > 0
    assert [machine["name"] for machine in found["machines"]] == names
    assert sorted(machine["slots"] for machine in found["machines"]) == [1, 2]
    assert [len(machine["capacity"]) for machine in found["machines"]] == [2, 2]  # one a turn
    assert "turn 2 of 2: " in done.stderr
