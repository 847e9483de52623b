"""Where workers on other machines come in: a socket on which their outposts connect. It is there
only once a worker elsewhere is wanted. Used by the executor."""

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from sojourn.engine.executor.loop import Loop
from sojourn.engine.wire.bundle import Link, encode
from sojourn.engine.wire.sealed import Knock, SealedLink, answer

_WAITING = 64  # connections that nobody has looked at


class Entrance:
    """Lets in those who know the secret, and hands on the link to each with its machine."""

    def __init__(
        self, loop: Loop, secret: bytes, driver: str, joined: Callable[[SealedLink, str], None]
    ) -> None:
        self.loop, self.secret, self.joined = loop, secret, joined
        host = _own_address(driver)
        self.listener = socket.create_server((host, 0), backlog=_WAITING)
        self.listener.setblocking(False)
        self.address = (host, int(self.listener.getsockname()[1]))
        loop.add(self.listener, self._accept)

    def close(self) -> None:
        """Let in nobody any more."""
        self.loop.remove(self.listener)
        self.listener.close()

    def _accept(self) -> None:
        link = Link(self.listener.accept()[0])
        self.loop.add(link, lambda: self._read_knock(link))

    def _read_knock(self, link: Link) -> None:
        frames = link.receive()
        if frames == []:
            return
        self.loop.remove(link)
        found = answer(self.secret, frames[0]) if frames and len(frames) == 1 else None
        if found is None:
            link.close()
            return
        knocked, told = found
        link.send(encode(told))
        sealed = SealedLink(link.sock, self.secret, knocked, told, connects=False)
        self.loop.add(sealed, lambda: self._read_first(sealed, knocked))

    def _read_first(self, link: SealedLink, knocked: Knock) -> None:
        """The first sealed frame shows that this is no repetition of what was overheard."""
        frames = link.receive()
        if frames == []:
            return
        self.loop.remove(link)
        if frames is None or frames != [b""]:
            link.close()
            return
        self.joined(link, knocked.machine)


def _own_address(driver: str) -> str:
    """The address of this machine towards the driver."""
    parts = urlsplit(driver)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname or "127.0.0.1", parts.port or 1))  # sends nothing
        return str(probe.getsockname()[0])
