"""`python -m sojourn.engine.executor.main FD`: the nursery, which forks an elastic executor for
every request that comes over the socket it inherits. A request holds the socket that the executor
listens on, and one from which it reads its spec. The nursery ends when nobody is left to make
requests."""

import gc
import os
import pickle
import signal
import socket
import sys

from sojourn.engine.executor.executor import ElasticExecutor


def main() -> None:
    """Fork executors; in each, read the spec and run."""
    os.dup2(2, 1)  # what user code prints goes where Spark logs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for executors
    requests = socket.socket(fileno=int(sys.argv[1]))
    gc.freeze()
    while True:
        _, ends, _, _ = socket.recv_fds(requests, 1, 2)
        if not ends:
            return
        if not os.fork():
            break
        for end in ends:
            os.close(end)
    requests.close()
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    listener, told = (socket.socket(fileno=end) for end in ends)
    with told, told.makefile("rb") as file:
        pickled = file.read()
    spec = pickle.loads(pickled)  # from the task, which got it from the driver
    listener.setblocking(False)
    ElasticExecutor(spec, listener, pickled).run()


main()
