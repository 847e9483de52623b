"""The nursery makes the elastic executors of a machine and its outpost: a process that has loaded
all they need and forks one in milliseconds. Spark's daemon of Python workers begins a nursery, and
the workers it forks inherit the way to it. In a session with another daemon, every task begins its
own. Used by tasks."""

import os
import socket
import subprocess
import sys

_nursery: socket.socket | None = None


def begin() -> socket.socket:
    """Begin a process that waits for requests for as long as anybody can make one."""
    global _nursery
    _nursery, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "sojourn.engine.executor.main", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": without_spark(os.environ.get("PYTHONPATH", ""))},
        )
    return _nursery


def start_executor(listener: socket.socket, spec: bytes) -> None:
    """Start an executor that listens there. Only it gets its spec."""
    _start(b"e", spec, listener)


def start_outpost(spec: bytes) -> socket.socket:
    """Start an outpost. It ends when the socket is closed; and where it ends by itself, the socket
    is closed at the other end."""
    ours, theirs = socket.socketpair()
    with theirs:
        _start(b"o", spec, theirs)
    return ours


def _start(kind: bytes, spec: bytes, end: socket.socket) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ends = [end.fileno(), theirs.fileno()]
        try:
            socket.send_fds(_nursery or begin(), [kind], ends)
        except (BrokenPipeError, ConnectionResetError):
            socket.send_fds(begin(), [kind], ends)  # the nursery was killed
        theirs.close()
        ours.sendall(spec)


def without_spark(path: str) -> str:
    """The path without the archives of itself that Spark puts there for its Python workers. The
    installed package has everything."""
    return os.pathsep.join(p for p in path.split(os.pathsep) if not p.endswith(".zip"))
