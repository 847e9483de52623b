"""Serves a board from a thread of its own, as long as whoever started it wants."""

import logging
import secrets
import socket
import threading

from sojourn.dashboard.board import Board
from sojourn.dashboard.controls import Controls
from sojourn.dashboard.hosts import is_loopback
from sojourn.errors import InputError

_log = logging.getLogger("sojourn")
_ENDS_S = 5.0


def new_token() -> str:
    """What changes need."""
    return secrets.token_urlsafe(24)


class Server:
    """The dashboard of a board. `url` is where it is, `option` what names another address."""

    def __init__(
        self,
        board: Board,
        address: str,
        controls: Controls | None = None,
        option: str = "--dashboard",
    ) -> None:
        try:
            import uvicorn

            from sojourn.dashboard.app import application
        except ImportError as error:
            raise InputError(
                f"the dashboard needs {error.name}; pip install 'sojourn[dashboard]' brings it"
            ) from None
        host, _, text = address.rpartition(":")
        host, port = host.strip("[]"), int(text)
        self.board = board
        self.socket = _bound(host, port, option)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.socket.getsockname()[1]}/"
        if not is_loopback(host):
            _log.warning("the dashboard at %s can be read by all who reach this machine", self.url)
        config = uvicorn.Config(
            application(board, host, controls),
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self._serve, name="sojourn-dashboard", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        try:
            self.server.run(sockets=[self.socket])
        except Exception:  # noqa: BLE001  # the topology goes on, whoever cannot follow
            _log.exception("the dashboard failed")

    def close(self) -> None:
        """Stop serving, once the pages have the last news."""
        self.board.close()
        self.server.should_exit = True
        self.thread.join(_ENDS_S)
        self.socket.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bound(host: str, port: int, option: str) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(128)
        except OSError:
            found.close()
            raise
    except (OSError, UnicodeError) as error:  # the latter of names that no host can have
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"the dashboard cannot be served at {host}:{port}: {why}; name another address, as in "
            f"{option} 127.0.0.1:4191, or :0 for any free port"
        ) from None
    return found
