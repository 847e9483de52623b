"""`python -m sojourn.engine.executor.main FD`: the nursery, which forks a process for every request
that comes over the socket it inherits: for `e` an elastic executor, for `o` an outpost. A request
holds the socket that the executor listens on, or that the outpost ends with, and one from which the
new process reads its spec. The nursery ends when nobody is left to make requests."""

import gc
import os
import pickle
import signal
import socket
import sys

from sojourn.engine.executor.executor import ElasticExecutor
from sojourn.engine.executor.outpost import run_outpost
from sojourn.engine.wire.spec import own_code


def main() -> None:
    """Fork executors and outposts; in each, read the spec and run."""
    os.dup2(2, 1)  # what user code prints goes where Spark logs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    requests = socket.socket(fileno=int(sys.argv[1]))
    own_code()  # once for all
    gc.freeze()
    while True:
        kind, ends, _, _ = socket.recv_fds(requests, 1, 2)
        if not ends:
            return
        if not os.fork():
            break
        for end in ends:
            os.close(end)
    requests.close()
    os.setsid()
    held, told = (socket.socket(fileno=end) for end in ends)
    with told, told.makefile("rb") as file:
        pickled = file.read()
    spec = pickle.loads(pickled)  # from the task, which got it from the driver
    if kind == b"o":
        run_outpost(spec, held)
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    held.setblocking(False)
    ElasticExecutor(spec, held, pickled).run()


main()
