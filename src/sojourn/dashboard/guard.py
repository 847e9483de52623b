"""Who may ask: hosts that the server is meant to have, pages of its own, and for changes whoever
has the token. A web page elsewhere can make a browser ask, but it can neither name the host as its
own (DNS rebinding) nor read or change anything."""

import hmac
import socket

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sojourn.dashboard.hosts import is_address, is_loopback, name_in

_LOCAL = ("localhost", "127.0.0.1", "::1")
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """Stands before the application. `bound` is the host that it was bound to."""

    def __init__(self, app: ASGIApp, bound: str) -> None:
        self.app = app
        self.open = not is_loopback(bound)
        self.names = {*_LOCAL, bound.lower()}
        if self.open:
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def refusal(self, headers: Headers, method: str) -> str:
        """Why a request is refused; empty if it is not."""
        host = headers.get("host", "")
        name = name_in(host)
        if name not in self.names and not (self.open and is_address(name)):
            return f"the host {name!r} is not one of this server"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return "requests from other sites are refused"
        site = headers.get("sec-fetch-site", "none")
        visits = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("none", "same-origin") and not visits:
            return "requests from other sites are refused"
        return ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        why = self.refusal(Headers(scope=scope), scope["method"])
        if why:
            await JSONResponse({"error": why}, 403)(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(key.encode(), value.encode()) for key, value in _HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *more]
            await send(message)

        await self.app(scope, receive, guarded)


def has_token(headers: Headers, token: str) -> bool:
    """Whether a request carries the token that the console printed."""
    kind, _, given = headers.get("authorization", "").partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
