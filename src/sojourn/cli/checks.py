"""What `sojourn doctor` looks at on this machine, one function and one line each. Nothing here
starts Spark."""

import ctypes
import os
import platform
import re
import resource
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from sojourn import durable
from sojourn.engine.executor.cores import cores as cores_of
from sojourn.engine.spark.java import MIN_VERSION, find_java
from sojourn.errors import InputError

OK, NOTE, WRONG = "ok", "note", "wrong"
MIN_PYTHON = (3, 11)
SPARK = (4, 3)
# Java's heap has 1 GB at most unless Spark is told otherwise; Spark's Python workers and a dozen
# processes of a topology have some 250 MB.
ENOUGH_MEMORY, LEAST_MEMORY = 2 << 30, 1 << 30
# Java's class archive has 170 MB, and three are kept.
ENOUGH_DISK, LEAST_DISK = 2 << 30, 500 << 20
_LEAST_FILES = 1024
_LONGEST_SOCKET = 107
_MANAGER_PORT = 8032  # of YARN, unless its configuration says another
_SOCKET = "/0123456789ab-123456/12-12345"  # of a run and a start, of a level and a partition
_UNSYNCHRONISED = 0x40
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, what was found, and how to mend it."""

    what: str
    state: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        mend = f"; {self.remedy}" if self.remedy else ""
        return f"{self.state:<6}{self.what:<10}{' '.join(self.found.split())}{mend}"


def python() -> Finding:
    """The Python that runs this, which Spark's Python workers on this machine will be."""
    version = platform.python_version()
    if sys.platform != "linux":
        return Finding(
            "Python",
            WRONG,
            f"{version} on {sys.platform}, and Sojourn needs Linux",
            "use a Linux machine, or a container on this one",
        )
    if sys.version_info < MIN_PYTHON:  # pragma: no cover  # pip would have refused
        least = ".".join(map(str, MIN_PYTHON))
        return Finding("Python", WRONG, version, f"install Python {least} or newer")
    return Finding("Python", OK, f"{version} in {sys.executable}")


def java(environ: Mapping[str, str], cache: Path) -> Finding:
    """The Java that Spark would be started with."""
    try:
        found = find_java(environ, cache)
    except InputError as error:
        return Finding("Java", WRONG, str(error))  # which tells the remedy
    return Finding("Java", OK, f"{found.version} in {found.home} (needed: {MIN_VERSION} or newer)")


def spark(home: Path) -> Finding:
    """The Spark whose jars would be used: pip's, or another in SPARK_HOME."""
    wanted = ".".join(map(str, SPARK))
    jars = [path.name for path in (home / "jars").glob("spark-core_*.jar")]
    match = re.search(r"-(\d+)\.(\d+)[^_]*\.jar$", jars[0]) if jars else None
    if match is None:
        return Finding(
            "Spark",
            WRONG,
            f"none in {home}",
            f"unset SPARK_HOME, or have it name a Spark {wanted}",
        )
    version = jars[0].removesuffix(".jar").partition("-")[2].partition("-")[2]
    if (int(match[1]), int(match[2])) != SPARK:
        return Finding(
            "Spark",
            WRONG,
            f"{version} in {home}, and Sojourn needs {wanted}",
            f"pip install 'pyspark>={wanted},<{SPARK[0]}.{SPARK[1] + 1}', and unset SPARK_HOME",
        )
    return Finding("Spark", OK, f"{version} in {home}")


def sockets(temporary: Path, user: int, most_files: int) -> Finding:
    """Whether processes of one machine can reach each other as the engine has them do it."""
    mend = "set TMPDIR to a directory of a local disk with a short name"
    directory = temporary / f"sojourn-{user}"
    room = _LONGEST_SOCKET - len(os.fsencode(f"{directory}{_SOCKET}"))
    if room < 0:
        return Finding(
            "sockets", WRONG, f"{temporary} is {-room} bytes too long for paths of sockets", mend
        )
    try:
        durable.private_directory(directory)
        _connect_in(directory)
    except InputError as error:
        return Finding("sockets", WRONG, str(error))
    except OSError as error:
        return Finding("sockets", WRONG, f"none can be made in {directory}: {error.strerror}", mend)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), 5.0).close()
    except OSError as error:
        return Finding(
            "sockets",
            WRONG,
            f"127.0.0.1 cannot be reached: {error}",
            "bring the loopback interface up (ip link set lo up)",
        )
    if most_files < _LEAST_FILES:
        return Finding(
            "sockets",
            WRONG,
            f"a process may have {most_files} files and sockets open at once",
            f"ulimit -n {_LEAST_FILES} or more",
        )
    return Finding("sockets", OK, f"in {directory} and on 127.0.0.1, {most_files} at once")


def _connect_in(directory: Path) -> None:
    with tempfile.TemporaryDirectory(dir=directory) as folder, socket.socket(socket.AF_UNIX) as one:
        one.bind(f"{folder}/doctor")
        one.listen(1)
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(f"{folder}/doctor")


def cores(found: float) -> Finding:
    """What this process may use of the machine's cores."""
    told = f"{found:g}"
    if found < 2:
        return Finding(
            "cores",
            NOTE,
            f"{told}, which Spark and all operators share",
            "operators that compute get slow with fewer than 2",
        )
    return Finding("cores", OK, told)


def memory(free: int | None) -> Finding:
    """What is free for Java, Python and what operators keep."""
    if free is None:
        return Finding("memory", NOTE, "cannot be seen here", f"have {_size(ENOUGH_MEMORY)} free")
    return _enough("memory", free, ENOUGH_MEMORY, LEAST_MEMORY, "free", "end other programs")


def free_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int | None:
    """Bytes that this machine, or this container, can still give."""
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text("ascii"), re.MULTILINE)
    except OSError:
        return None
    found = None if match is None else int(match[1]) << 10
    try:
        most = int((cgroup / "memory.max").read_text("ascii"))
        used = int((cgroup / "memory.current").read_text("ascii"))
        stat = (cgroup / "memory.stat").read_text("ascii")
    except (OSError, ValueError):
        return found  # there is no limit
    cached = re.search(r"^inactive_file (\d+)", stat, re.MULTILINE)
    left = most - used + (0 if cached is None else int(cached[1]))  # which the kernel gives back
    return left if found is None else min(found, left)


def disk(directories: Mapping[str, Path], free: Callable[[Path], int]) -> Finding:
    """Whether Sojourn and Spark can write where they do, and how much."""
    rooms = []
    for name, directory in directories.items():
        try:
            there = next(path for path in (directory, *directory.parents) if path.exists())
            with tempfile.TemporaryFile(dir=there) as file:
                file.write(b"x")
                os.fsync(file.fileno())
            rooms.append((free(there), directory))
        except OSError as error:
            return Finding(
                "disk",
                WRONG,
                f"{directory} cannot be written to: {error.strerror}",
                f"make it writable, or have {name} name another directory",
            )
    least, where = min(rooms)
    return _enough("disk", least, ENOUGH_DISK, LEAST_DISK, f"free for {where}", "make room")


def free_disk(directory: Path) -> int:
    """Bytes that this user can still write there."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def clock(unsynchronised: bool | None) -> Finding:
    """Timers and windows go by the clocks of the machines. Nothing else does."""
    if unsynchronised is None:
        return Finding("clock", NOTE, "does not say whether a time server keeps it")
    if unsynchronised:
        return Finding(
            "clock",
            NOTE,
            "kept by no time server, which matters on clusters alone",
            "run chrony or systemd-timesyncd there",
        )
    return Finding("clock", OK, "kept by a time server")


def is_unsynchronised() -> bool | None:
    """What the kernel says of its clock. None if it does not."""
    state = ctypes.create_string_buffer(512)  # a struct timex that asks and changes nothing
    try:
        answer = ctypes.CDLL(None).adjtimex(state)
    except (OSError, AttributeError):
        return None
    if answer < 0:
        return None
    # modes (int), offset, freq, maxerror, esterror (long each), status (int)
    status = ctypes.c_int.from_buffer(state, 5 * ctypes.sizeof(ctypes.c_long)).value
    return bool(status & _UNSYNCHRONISED)


def reachable(master: str, environ: Mapping[str, str], timeout_s: float = 5.0) -> Finding:
    """Whether somebody listens where a cluster's master should."""
    if master == "yarn":
        return _yarn(environ, timeout_s)
    addresses = re.findall(r"(?:^|[/,])\[?([^/,\[\]]+)\]?:(\d+)", master)
    if not addresses and (found := re.fullmatch(r"k8s://(https?)://([^/:,\[\]]+)/?", master)):
        addresses = [(found[2], "443" if found[1] == "https" else "80")]
    if not addresses:
        raise InputError(
            f"--master {master}: must be spark://HOST:PORT, k8s://https://HOST:PORT or yarn; "
            "without it, doctor looks at this machine"
        )
    return _listens(master, addresses, timeout_s)


def _yarn(environ: Mapping[str, str], timeout_s: float) -> Finding:
    """Whether a resource manager listens where Hadoop's configuration says."""
    mend = "set HADOOP_CONF_DIR to the directory that has the cluster's yarn-site.xml"
    found = [environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if environ.get(name)]
    if not found:
        told = "yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set"
        return Finding("cluster", WRONG, told, mend)
    paths = [Path(directory) / "yarn-site.xml" for directory in found]
    path = next((path for path in paths if path.exists()), None)  # Hadoop reads the first alone
    if path is None:
        told = f"yarn, and there is no yarn-site.xml in {' or '.join(found)}"
        return Finding("cluster", WRONG, told, mend)
    try:
        each = ElementTree.parse(path).iter("property")
    except (OSError, ElementTree.ParseError) as error:
        return Finding("cluster", WRONG, f"yarn, and {path} cannot be read: {error}", mend)
    pairs = [(one.findtext("name", "").strip(), one.findtext("value", "").strip()) for one in each]
    settings = {name: value for name, value in pairs if value}
    manager = "yarn.resourcemanager."
    several = settings.get(f"{manager}ha.enabled") == "true"
    ids = settings.get(f"{manager}ha.rm-ids", "").split(",") if several else [""]
    addresses = []
    for suffix in [f".{one.strip()}" if one else "" for one in ids]:
        host = settings.get(f"{manager}hostname{suffix}", "0.0.0.0")
        address = settings.get(f"{manager}address{suffix}", f"{host}:{_MANAGER_PORT}")
        host, _, port = address.replace(f"${{{manager}hostname{suffix}}}", host).rpartition(":")
        if not port.isdigit() or "${" in host:
            told = f"yarn at {address}, which only Hadoop can tell"
            return Finding("cluster", NOTE, told, "see in its own UI whether it is up")
        addresses.append((host, port))
    return _listens("yarn", addresses, timeout_s)


def _listens(master: str, addresses: Sequence[tuple[str, str]], timeout_s: float) -> Finding:
    failed = []
    for host, port in addresses:
        try:
            socket.create_connection((host, int(port)), timeout_s).close()
        except (OSError, OverflowError, UnicodeError) as error:
            failed.append(f"{host}:{port} ({error})")
        else:
            return Finding("cluster", OK, f"{master} answers")
    return Finding(
        "cluster",
        WRONG,
        f"cannot be reached: {', '.join(failed)}",
        "start the master, or mend the address, the name service or the firewall",
    )


def of_this_machine(environ: Mapping[str, str], spark_home: Path) -> list[Finding]:
    """All that needs no Spark."""
    cache = Path.home() / ".cache" / "sojourn"
    temporary = Path(tempfile.gettempdir())
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    local = environ.get("SPARK_LOCAL_DIRS", str(temporary)).split(",")[0]
    places = {"TMPDIR": temporary, "HOME": cache, "SPARK_LOCAL_DIRS": Path(local)}
    return [
        python(),
        java(environ, cache),
        spark(spark_home),
        sockets(temporary, os.getuid(), files),
        cores(cores_of()),
        memory(free_memory()),
        disk(places, free_disk),
        clock(is_unsynchronised()),
    ]


def _enough(what: str, found: int, enough: int, least: int, told: str, mend: str) -> Finding:
    text = f"{_size(found)} {told}"
    if found >= enough:
        return Finding(what, OK, text)
    state = WRONG if found < least else NOTE
    return Finding(what, state, f"{text}, and {_size(enough)} are better", mend)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GB" if count >= 1 << 30 else f"{count >> 20} MB"
