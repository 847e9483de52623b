"""The dashboard as a web application: the page, its stream of ticks, REST and metrics. Reads the
board; changes something only through `Controls`, and only with the token."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sojourn.dashboard import shown
from sojourn.dashboard.board import Board
from sojourn.dashboard.controls import Controls
from sojourn.dashboard.guard import Guard, has_token
from sojourn.dashboard.metrics import exposed
from sojourn.dashboard.whatif import MOST_LOAD, answered
from sojourn.errors import InputError, TopologyFailed
from sojourn.units import parse_duration

STATIC = Path(__file__).parent / "static"
_MOST_BODY = 10_000
_PING_S = 15
_RETRY_MS = 1000  # after which a page asks again when the connection is gone
_MOST_PAGES = 100  # that are open at once
_ANEW = 900  # news, after which a page is told everything anew, so that it never grows
_MOST_PROCESSORS = 100_000


class Json(Response):
    """JSON, made quickly."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


class _Static(StaticFiles):
    """Files that a browser asks for anew with each page, so that none is of an older version."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["cache-control"] = "no-cache"
        return response


def application(board: Board, bound: str, controls: Controls | None = None) -> Starlette:
    """The application of a board that is served at that host."""
    pages = _Pages(board, controls)
    routes = [
        Route("/", _page),
        Route("/metrics", pages.metrics),
        Route("/api/v1/topology", pages.topology),
        Route("/api/v1/allocation", pages.allocation),
        Route("/api/v1/samples", pages.samples),
        Route("/api/v1/decisions", pages.decisions),
        Route("/api/v1/status", pages.status),
        Route("/api/v1/whatif", pages.whatif),
        Route("/api/v1/events", pages.events),
        Route("/api/v1/limits", pages.limits, methods=["POST"]),
        Route("/api/v1/pause", pages.pause, methods=["POST"]),
        Mount("/static", _Static(directory=STATIC)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, bound=bound)],
        exception_handlers={HTTPException: _told, InputError: _told, TopologyFailed: _told},
    )


async def _page(_request: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _told(_request: Request, error: Exception) -> Response:
    """Every refusal is JSON with the reason."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    return JSONResponse({"error": str(error)}, 409 if isinstance(error, TopologyFailed) else 400)


def _number(request: Request, name: str, least: float, most: float) -> float | None:
    """A number in the query, or None without one."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise InputError(f"{name} must be a number from {least:g} to {most:g}; got {text[:80]!r}")
    return value


class _Pages:
    """What is answered to each address."""

    def __init__(self, board: Board, controls: Controls | None) -> None:
        self.board, self.controls = board, controls
        self.open = 0

    async def metrics(self, request: Request) -> Response:
        body, kind = exposed(self.board, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": kind})

    async def topology(self, _request: Request) -> Response:
        return Json(shown.topology(self.board))

    async def allocation(self, _request: Request) -> Response:
        with self.board.lock:
            return Json(shown.allocation(self.board))

    async def status(self, _request: Request) -> Response:
        with self.board.lock:
            return Json(shown.status(self.board))

    async def samples(self, request: Request) -> Response:
        """The history as columns with the newest tick; with `number`, that tick, as long as it is
        among those remembered."""
        board = self.board
        number = _number(request, "number", 0, 1e12)
        since_s = _number(request, "since", 0, 1e12)
        with board.lock:
            if number is not None:
                ticks = [one.tick for one in board.decisions]
                ticks += [] if board.tick is None else [board.tick]
                found = [tick for tick in ticks if tick.number == int(number)]
                if not found:
                    raise HTTPException(404, f"tick {int(number)} is not remembered any more")
                return Json(shown.latest(found[0]))
            rows = board.history.rows()
            kept = [row for row in rows if since_s is None or row.time_s > since_s]
            return Json(
                {
                    "history": shown.columns(kept, board.names),
                    "latest": None if board.tick is None else shown.latest(board.tick),
                }
            )

    async def decisions(self, request: Request) -> Response:
        limit = int(_number(request, "limit", 1, 10_000) or 100)
        acting = request.query_params.get("acting") in ("1", "true")
        with self.board.lock:
            entries = list(reversed(self.board.decisions))
            found = [one for one in entries if one.tick.decision.acts or not acting]
            return Json([shown.decision(one) for one in found[:limit]])

    async def whatif(self, request: Request) -> Response:
        """The model's answer. Nothing is changed."""
        text = request.query_params.get("target")
        target_s = None if text is None else parse_duration(text, "target")
        if target_s is not None and not target_s > 0:
            raise InputError(f"target must be above zero; got {text!r}")
        load = _number(request, "load", 0.01, MOST_LOAD)
        count = _number(request, "processors", 1, _MOST_PROCESSORS)
        model = await run_in_threadpool(self.board.model)
        if isinstance(model, str):
            return Json({"reason": f"the model says nothing yet: {model}", "present": {}})
        answer = await run_in_threadpool(
            answered, model, target_s, load or 1.0, None if count is None else int(count)
        )
        found = {
            name: shown.short(value) if isinstance(value, float) else value
            for name, value in asdict(answer).items()
        }
        return Json(found)

    async def events(self, _request: Request) -> Response:
        if self.open >= _MOST_PAGES:
            raise HTTPException(503, f"{self.open} pages are open; close some")
        return EventSourceResponse(self._stream(), ping=_PING_S)

    async def _stream(self) -> AsyncIterator[ServerSentEvent]:
        """All that there is, and then what comes."""
        board, loop, fresh = self.board, asyncio.get_running_loop(), asyncio.Event()

        def heard() -> None:
            loop.call_soon_threadsafe(fresh.set)

        board.listeners.add(heard)
        self.open += 1
        try:
            seen, count, last = None, 0, False
            while not last:
                fresh.clear()
                told = shown.told(board, seen)
                count = count + 1 if told.kind == "news" else 0
                seen, last = None if count >= _ANEW else told.seen, told.last
                text = msgspec.json.encode(told.data).decode()
                yield ServerSentEvent(text, event=told.kind, retry=_RETRY_MS)
                if not last:
                    await fresh.wait()
        finally:
            self.open -= 1
            board.listeners.discard(heard)

    async def limits(self, request: Request) -> Response:
        """Other limits from the next tick on."""
        given = await self._given(request)
        known = {"max_sojourn", "min_sojourn", "max_processors"}
        if not given or not given.keys() <= known:
            raise InputError(
                f"the body must have some of {', '.join(sorted(known))}; got "
                f"{', '.join(map(repr, given)) or 'none'}"
            )
        assert self.controls is not None
        await run_in_threadpool(self.controls.change, given)
        return Json({"changed": sorted(given)})

    async def pause(self, request: Request) -> Response:
        """Change nothing until told otherwise; decisions go on."""
        given = await self._given(request)
        paused = given.get("paused")
        if given.keys() != {"paused"} or not isinstance(paused, bool):
            raise InputError('the body must be {"paused": true} or {"paused": false}')
        assert self.controls is not None
        await run_in_threadpool(self.controls.pause, paused)
        return Json({"paused": paused})

    async def _given(self, request: Request) -> dict[str, Any]:
        if self.controls is None:
            raise HTTPException(
                403, "changes are off; start with the setting dashboardChanges=token"
            )
        if not has_token(request.headers, self.controls.token):
            raise HTTPException(
                401,
                "give the token that the console printed, as Authorization: Bearer TOKEN",
                {"www-authenticate": "Bearer"},
            )
        if not request.headers.get("content-type", "").startswith("application/json"):
            raise HTTPException(415, "the body must be application/json")
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_BODY:
                raise HTTPException(413, f"the body must have at most {_MOST_BODY} bytes")
        try:
            given = json.loads(body)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise InputError("the body must be a JSON object")
        return given
