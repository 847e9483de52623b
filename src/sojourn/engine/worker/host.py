"""The process that holds an executor's user code and makes its workers. It forks them, so a new one
starts within milliseconds with everything loaded; or it makes threads, which share state. The
executor feeds it sockets; it ends with the executor."""

import array
import os
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any

import cloudpickle

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FrameReader, send_frame
from sojourn.engine.wire.spec import HostSpec
from sojourn.engine.worker import values
from sojourn.engine.worker.code import OperatorCode, Shared, SinkCode
from sojourn.engine.worker.feeder import Feeder
from sojourn.engine.worker.moving import shared_memory
from sojourn.engine.worker.parent import die_with
from sojourn.engine.worker.worker import serve
from sojourn.errors import InputError, TopologyFailed
from sojourn.sinks import Sink
from sojourn.sources import Source

_BUFFER_BYTES = 1 << 20


def start_host(spec: HostSpec, listener: socket.socket) -> tuple[int, socket.socket]:
    """Fork a host. Returns its process id and the socket on which to ask it for workers. Call this
    before the executor has threads, or any socket except the one it listens on."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    ours.close()
    listener.close()
    code = 1
    try:
        die_with(parent)
        run_host(spec, theirs)
        code = 0
    except Exception:  # noqa: BLE001  # a forked process has nobody above it to tell
        traceback.print_exc()
    finally:
        os._exit(code)


def run_host(spec: HostSpec, control: socket.socket) -> None:
    """Make workers for as long as somebody can ask for them."""
    _Host(spec, control).run()


def ask_for_worker(control: socket.socket) -> socket.socket:
    """Have the host start a worker at the other end of a new socket."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    rights = array.array("i", [theirs.fileno()])
    control.sendmsg([b"w"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    theirs.close()
    return ours


class _Host:
    def __init__(self, spec: HostSpec, control: socket.socket) -> None:
        self.spec = spec
        self.control = control
        self.shared = Shared(in_threads=spec.threads)
        self.memory = shared_memory() if spec.key and not spec.threads else None
        self.code: Any = None
        self.key: Any = None
        self.broken = ""
        try:
            values.register(list(spec.classes))
            self.code = cloudpickle.loads(spec.code)
            self.key = cloudpickle.loads(spec.key) if spec.key else None
        except Exception:  # noqa: BLE001  # whatever importing user code raises is told by workers
            self.broken = f"its code cannot be loaded\n{traceback.format_exc()}"

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers
        while True:
            data, fds, _, _ = socket.recv_fds(self.control, 1, 1)
            if not data:
                return
            sock = socket.socket(fileno=fds[0])
            if self.broken:
                send_frame(sock, m.encode(m.Fatal(self.broken)))
                sock.close()
            else:
                self._start(sock)

    def _start(self, sock: socket.socket) -> None:
        if self.spec.threads:
            threading.Thread(target=self._work, args=(sock,), daemon=True).start()
            return
        parent = os.getpid()
        if os.fork():
            sock.close()
            return
        try:
            self.control.close()
            die_with(parent)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._work(sock)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def _work(self, sock: socket.socket) -> None:
        spec = self.spec
        try:
            seed = os.getpid() ^ threading.get_ident() ^ time.time_ns()
            reader = FrameReader(sock)
            first = reader.read()
            if first is None:
                return
            begin = m.decode_to_worker(first)
            assert isinstance(begin, m.Open)
            if isinstance(self.code, Source):
                feeder = Feeder(
                    self.code,
                    spec.routes,
                    begin.position,
                    spec.tracked_per_s,
                    spec.queue_bytes,
                    begin.share,
                    spec.keep_going,
                )
                send_frame(sock, m.encode(m.Ready(os.getpid())))
                feeder.run(sock, reader)
                return
            code: SinkCode | OperatorCode
            if isinstance(self.code, Sink):
                code = SinkCode(
                    self.code, spec.executor, spec.run, spec.epoch, begin.held, spec.room
                )
            else:
                code = OperatorCode(
                    self.code,
                    spec.vertex,
                    self.shared,
                    spec.keep_going,
                    spec.emits,
                    self.key,
                    spec.ttl_s,
                    broadcast=spec.broadcast,
                    zero_s=spec.zero_s,
                )
            send_frame(sock, m.encode(m.Ready(os.getpid())))
            serve(
                sock,
                reader,
                code,
                spec.routes,
                seed,
                spec.keep_going,
                spec.timed_every,
                self.memory,
            )
        except (BrokenPipeError, ConnectionResetError):
            return  # the executor is gone, so there is no reason to go on
        except (InputError, TopologyFailed) as error:  # which say all there is to say
            send_frame(sock, m.encode(m.Fatal(str(error))))
        except Exception:  # noqa: BLE001  # told to the driver, who decides
            send_frame(sock, m.encode(m.Fatal(traceback.format_exc())))
        finally:
            sock.close()
