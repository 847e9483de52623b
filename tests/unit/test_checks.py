"""What `sojourn doctor` finds on machines of every kind, and how it says to mend them."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sojourn.cli import checks
from sojourn.cli.checks import LEAST_DISK, LEAST_MEMORY, NOTE, OK, WRONG, Finding
from sojourn.errors import InputError


def told(finding: Finding, state: str, words: str) -> None:
    assert finding.state == state, finding
    assert words in str(finding)
    assert len(str(finding).splitlines()) == 1


def test_a_line_says_how_it_is_what_was_found_and_what_to_do() -> None:
    told(checks.python(), OK, "ok    Python    3.")
    finding = Finding("disk", WRONG, "3 MB\n  free", "make room")
    assert str(finding) == "wrong disk      3 MB free; make room"


def test_a_java_that_is_missing_is_wrong(tmp_path: Path) -> None:
    finding = checks.java({"JAVA_HOME": str(tmp_path)}, tmp_path)
    told(finding, WRONG, "no working Java there")
    told(finding, WRONG, "pip install 'sojourn[jdk]'")


@pytest.mark.parametrize(
    ("jar", "state", "words"),
    [
        ("spark-core_2.13-4.3.1.jar", OK, "4.3.1 in"),
        ("spark-core_2.13-4.3.0-SNAPSHOT.jar", OK, "in"),
        ("spark-core_2.12-3.5.1.jar", WRONG, "3.5.1 in"),
        ("spark-core_2.13-4.10.0.jar", WRONG, "Sojourn needs 4.3; pip install 'pyspark>=4.3,<4.4'"),
        ("other.jar", WRONG, "unset SPARK_HOME"),
    ],
)
def test_spark_must_be_the_one_that_the_engine_knows(
    tmp_path: Path, jar: str, state: str, words: str
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / jar).touch()
    told(checks.spark(tmp_path), state, words)


def test_a_spark_home_without_spark_is_wrong(tmp_path: Path) -> None:
    told(checks.spark(tmp_path / "none"), WRONG, "unset SPARK_HOME")


def test_sockets_need_a_short_path_that_is_the_users_own(tmp_path: Path) -> None:
    user = os.getuid()
    short = Path("/tmp")
    told(checks.sockets(short, user, 4096), OK, f"in /tmp/sojourn-{user}")
    long = short / ("x" * 100)
    told(checks.sockets(long, user, 4096), WRONG, "bytes too long for paths of sockets; set TMPDIR")
    told(checks.sockets(short, user, 256), WRONG, "256 files and sockets open at once; ulimit -n")
    file = tmp_path / "file"
    file.touch()
    if len(str(file)) < 60:
        told(checks.sockets(file, user, 4096), WRONG, "TMPDIR")
    foreign = tmp_path / f"sojourn-{user}"
    foreign.mkdir(mode=0o777)
    foreign.chmod(0o777)
    finding = checks.sockets(tmp_path, user, 4096)
    assert finding.state == WRONG


def test_cores_and_memory_may_be_few() -> None:
    told(checks.cores(4.0), OK, "cores     4")
    told(checks.cores(1.5), NOTE, "1.5, which Spark and all operators share")
    told(checks.memory(8 << 30), OK, "8.0 GB free")
    told(checks.memory(LEAST_MEMORY + 1), NOTE, "1.0 GB free, and 2.0 GB are better")
    told(checks.memory(LEAST_MEMORY - 1), WRONG, "1023 MB free, and 2.0 GB are better")
    told(checks.memory(None), NOTE, "cannot be seen here")


def test_memory_is_that_of_the_machine_or_of_the_container(tmp_path: Path) -> None:
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "cgroup"
    assert checks.free_memory(meminfo, cgroup) is None
    meminfo.write_text("MemTotal:       9000 kB\nMemAvailable:   2048 kB\n", encoding="ascii")
    assert checks.free_memory(meminfo, cgroup) == 2 << 20
    cgroup.mkdir()
    (cgroup / "memory.max").write_text("max\n", encoding="ascii")
    (cgroup / "memory.current").write_text("500\n", encoding="ascii")
    assert checks.free_memory(meminfo, cgroup) == 2 << 20
    (cgroup / "memory.max").write_text("1500\n", encoding="ascii")
    stat = "anon 90\nfile 400\nactive_file 100\ninactive_file 300\n"
    (cgroup / "memory.stat").write_text(stat, encoding="ascii")
    assert checks.free_memory(meminfo, cgroup) == 1300, "what is only cached can be given back"


def test_the_fullest_of_the_disks_is_told(tmp_path: Path) -> None:
    places = {"TMPDIR": tmp_path, "HOME": tmp_path / "is" / "not" / "yet"}

    def free(count: int) -> Callable[[Path], int]:
        return lambda _directory: count

    told(checks.disk(places, free(5 << 30)), OK, "5.0 GB free")
    told(checks.disk(places, free(LEAST_DISK)), NOTE, f"free for {tmp_path}, and 2.0 GB are better")
    told(checks.disk(places, free(LEAST_DISK - 1)), WRONG, "make room")
    assert checks.free_disk(tmp_path) > 0


def test_a_disk_that_cannot_be_written_to_is_wrong() -> None:
    finding = checks.disk({"SPARK_LOCAL_DIRS": Path("/proc/none")}, checks.free_disk)
    told(finding, WRONG, "/proc/none cannot be written to")
    told(finding, WRONG, "have SPARK_LOCAL_DIRS name another directory")


def test_a_disk_that_cannot_be_looked_at_is_wrong() -> None:
    below = Path("/tmp") / ("d" * 300) / "spark"  # like one within a directory of somebody else
    finding = checks.disk({"SPARK_LOCAL_DIRS": below}, checks.free_disk)
    told(finding, WRONG, "cannot be written to: File name too long")


def test_a_clock_that_nobody_keeps_is_noted() -> None:
    told(checks.clock(False), OK, "kept by a time server")
    told(checks.clock(True), NOTE, "chrony")
    told(checks.clock(None), NOTE, "does not say")
    assert checks.is_unsynchronised() in (True, False, None)


def test_a_cluster_is_reachable_where_one_of_its_masters_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            closed = other.getsockname()[1]
        for master in (
            f"spark://127.0.0.1:{port}",
            f"spark://127.0.0.1:{closed},127.0.0.1:{port}",
            f"k8s://https://127.0.0.1:{port}",
            f"k8s://127.0.0.1:{port}",
        ):
            told(checks.reachable(master, {}), OK, f"{master} answers")
    finding = checks.reachable(f"spark://127.0.0.1:{closed}", {})
    told(finding, WRONG, f"cannot be reached: 127.0.0.1:{closed} (")
    told(finding, WRONG, "start the master")
    told(checks.reachable("spark://a..b:7077", {}), WRONG, "cannot be reached: a..b:7077 (")
    for scheme, port in (("https", 443), ("http", 80)):
        finding = checks.reachable(f"k8s://{scheme}://a..b", {})
        told(finding, WRONG, f"cannot be reached: a..b:{port} (")
    with pytest.raises(InputError, match="--master nowhere: must be spark://HOST:PORT"):
        checks.reachable("nowhere", {})


def yarn(directory: Path, **settings: object) -> Finding:
    each = [
        f"<property><name>yarn.resourcemanager.{key.replace('__', '.').replace('_', '-')}</name>"
        f"<value> {value} </value></property>"
        for key, value in settings.items()
    ]
    (directory / "yarn-site.xml").write_text(f"<configuration>{''.join(each)}</configuration>")
    return checks.reachable("yarn", {"HADOOP_CONF_DIR": str(directory)})


def test_yarn_is_where_the_configuration_of_hadoop_says(tmp_path: Path) -> None:
    told(checks.reachable("yarn", {}), WRONG, "neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set")
    nowhere = {"YARN_CONF_DIR": str(tmp_path)}
    told(checks.reachable("yarn", nowhere), WRONG, f"there is no yarn-site.xml in {tmp_path}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            closed = other.getsockname()[1]
        told(yarn(tmp_path, address=f"127.0.0.1:{port}"), OK, "yarn answers")
        pair = {"address__a": f"127.0.0.1:{closed}", "address__b": f"127.0.0.1:{port}"}
        told(yarn(tmp_path, ha__enabled="true", ha__rm_ids="a, b", **pair), OK, "yarn answers")
        alone = {"address": f"127.0.0.1:{port}", "ha__rm_ids": "a", "hostname": ""}
        told(yarn(tmp_path, **alone), OK, "yarn answers")
        named = f"${{yarn.resourcemanager.hostname}}:{port}"
        told(yarn(tmp_path, hostname="127.0.0.1", address=named), OK, "yarn answers")
    finding = yarn(tmp_path, address=f"127.0.0.1:{closed}")
    told(finding, WRONG, f"cannot be reached: 127.0.0.1:{closed} (")
    told(yarn(tmp_path, hostname="a..b"), WRONG, "cannot be reached: a..b:8032 (")
    told(yarn(tmp_path, address="${env.RM}:8032"), NOTE, "which only Hadoop can tell")
    told(yarn(tmp_path), WRONG, "cannot be reached: 0.0.0.0:8032 (")
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    told(checks.reachable("yarn", nowhere), WRONG, "yarn-site.xml cannot be read: ")
