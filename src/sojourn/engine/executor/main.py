"""`python -m sojourn.engine.executor.main FD`: the process of an elastic executor. Its spec comes
over standard input from the task that starts it, its listening socket is inherited."""

import os
import pickle
import signal
import socket
import sys


def main() -> None:
    """Read the spec and run."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    spec = pickle.loads(sys.stdin.buffer.read())  # from the task, which got it from the driver
    os.dup2(2, 1)  # what user code prints goes where Spark logs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    from sojourn.engine.executor.executor import ElasticExecutor

    listener.setblocking(False)
    ElasticExecutor(spec, listener).run()


main()
