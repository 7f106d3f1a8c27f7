"""A viewer in a browser: a server that answers one person's questions about one trace.

It listens on 127.0.0.1 only. It answers only requests that have the token of its address and come
under a name of this machine: a page from elsewhere could reach the port, but does not know the
token, and has another host or origin. It serves the page and the answers about this trace, and no
files. `visitors` limits connections without the token.
"""

from __future__ import annotations

import html
import json
import os
import secrets
import socket
import struct
from importlib import import_module
from threading import Event
from typing import TYPE_CHECKING, Any

from schedscope.errors import StorageError, UsageError
from schedscope.extras import missing
from schedscope.timelines import visitors
from schedscope.timelines.content_policy import policy
from schedscope.timelines.difference import absent, differences
from schedscope.timelines.questions import Questions
from schedscope.timelines.script import script
from schedscope.units import printable

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_asked: set[Event] = set()
"""Set when an answer is no longer waited for."""

_OURS = {"127.0.0.1", "localhost", "[::1]"}
_LONGEST = 4_000_000
"""Bytes of a request; the longest sensible one are a thousand notes."""
_REFUSED = b"Refused: open the address that was printed.\n"
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>:root {{ color-scheme: light dark; scrollbar-gutter: stable; }}
body {{ font: 15px/1.4 system-ui, sans-serif; margin: .6rem 1rem; color: CanvasText; background: Canvas; }}
h1, h2 {{ font-size: 1.1rem; margin: 0 0 .4rem; overflow-wrap: anywhere; }} h2 {{ font-size: 1rem; }}</style></head>
<body data-alone><main><h1>{title}</h1>{roots}</main>
<script type="module">
{script}
mountAll(document);
</script></body></html>
"""  # noqa: E501 - HTML
_ROOT = """{heading}<div class="schedscope-timeline" data-served="{side}">
<noscript>This timeline is drawn by a script, but scripts are disabled here.</noscript>
<script type="application/json">{about}</script></div>
"""


def listen(port: int) -> socket.socket:
    """A socket on 127.0.0.1; port 0 is any free one.

    Raises `UsageError` for a port that is in use or not allowed.
    """
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # A port whose last connections are still being forgotten is free.
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", port))
        door.listen(64)
    except (OSError, OverflowError) as error:
        door.close()
        reason = getattr(error, "strerror", None) or "not a port"
        raise UsageError(
            f"port {port}: {reason.lower()}",
            "a free port",
            "leave out --port to get one",
        ) from error
    return door


def check_installed() -> None:
    """Raises `MissingExtraError` without the packages that serve."""
    for package in ("starlette", "uvicorn"):
        try:
            import_module(package)
        except ImportError as error:
            raise missing(package) from error


def application(
    questions: Questions, token: str, other: Questions | None = None, selected: str = ""
) -> Any:
    """The server as an ASGI application; with `other` of two traces to compare.

    `selected`: in words what it begins with, for the heading.
    """
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response
    from starlette.routing import Route

    sides = [questions] if other is None else [questions, other]
    names = [printable(side.timeline.lanes.trace.name) for side in sides]

    def answer(code: int, body: bytes, kind: str, allowed: str = "default-src 'none'") -> Response:
        headers = {**_HEADERS, "Content-Security-Policy": allowed}
        return Response(body, code, headers, kind)

    def refusal(request: Request) -> Response | None:
        if not secrets.compare_digest(request.path_params["token"].encode(), token.encode()):
            return answer(403, _REFUSED, "text/plain")
        visitors.know(request.scope.get("client"))
        return None

    async def show(request: Request) -> Response:
        if refused := refusal(request):
            return refused
        roots = ""
        for number, side in enumerate(sides):
            about = await run_in_threadpool(side.about)
            # "<" could end the element: a thread chooses its own name.
            text = json.dumps(about, separators=(",", ":")).replace("<", "\\u003c")
            heading = f"<h2>{html.escape(names[number])}</h2>\n" if other else ""
            roots += _ROOT.format(side=number, about=text, heading=heading)
        some = f": {printable(selected)}" if selected else ""
        title = html.escape(f"Timeline of {' and '.join(names)}{some}")
        page = _PAGE.format(title=title, roots=roots, script=script())
        allowed = policy(page, "; connect-src 'self'; frame-ancestors 'none'")
        return answer(200, page.encode(), "text/html; charset=utf-8", allowed)

    async def ask(request: Request) -> Response:
        if refused := refusal(request):
            return refused
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _LONGEST:
                return answer(413, b"Refused: the request is too long.\n", "text/plain")
        try:
            asked: Any = json.loads(bytes(body))
            # Half a surrogate pair is no text: nothing that is asked with it can be written.
            json.dumps(asked, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            return answer(400, b"Refused: the request is no JSON.\n", "text/plain")
        number = asked.get("side", 0) if isinstance(asked, dict) else 0
        kind = asked.get("kind") if isinstance(asked, dict) else None
        if other is not None and kind in ("difference", "absent"):
            answer_both = differences if kind == "difference" else absent
            content, buffers = await run_in_threadpool(answer_both, questions, other, asked)
        else:
            side = sides[1] if number == 1 and other is not None else questions
            content, buffers = await _unless_gone(request, side.reply, asked)
        return answer(200, packed(content, buffers), "application/octet-stream")

    async def nothing(request: Request, _error: Exception) -> Response:
        return answer(403, _REFUSED, "text/plain")

    app = Starlette(
        routes=[
            Route("/{token}/", show, methods=["GET"]),
            Route("/{token}/ask", ask, methods=["POST"]),
        ],
        exception_handlers={404: nothing, 405: nothing},
    )
    app.router.redirect_slashes = False
    return _guarded(app)


async def _unless_gone(request: Request, reply: Any, asked: Any) -> Any:
    """The answer; when the page no longer waits for it, the computation is stopped."""
    import asyncio

    from anyio import to_thread

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        stop.set()

    stop = Event()
    _asked.add(stop)
    waiting = asyncio.ensure_future(gone())
    try:
        return await to_thread.run_sync(reply, asked, stop, abandon_on_cancel=True)
    finally:
        stop.set()
        _asked.discard(stop)
        waiting.cancel()


def _guarded(app: Any) -> Any:
    """Refuse other hosts' names (a name that was made to lead here) and other pages' requests."""

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
            host = headers.get(b"host", "")
            origin = headers.get(b"origin")
            strange = host.rpartition(":")[0] not in _OURS and host not in _OURS
            if strange or (origin is not None and origin != f"http://{host}"):
                fields = [(key.lower().encode(), value.encode()) for key, value in _HEADERS.items()]
                await send({"type": "http.response.start", "status": 403, "headers": fields})
                await send({"type": "http.response.body", "body": _REFUSED})
                return
        elif scope["type"] != "lifespan":
            return  # no websockets
        await app(scope, receive, send)

    return guard


def packed(content: Any, buffers: list[bytes]) -> bytes:
    """The length of the JSON, the JSON with the sizes of the buffers, and the buffers."""
    sizes = [len(data) for data in buffers]
    head = json.dumps({**content, "sizes": sizes}, separators=(",", ":")).encode()
    return b"".join([struct.pack("<I", len(head)), head, *buffers])


def server_of(app: Any) -> Any:
    """The server, to be run on sockets of `listen`."""
    import logging

    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            for stop in list(_asked):
                stop.set()
            super().handle_exit(sig, frame)

    # Errors of one connection concern only that connection; tracebacks would not help.
    level = "error" if os.environ.get("SCHEDSCOPE_DEBUG") else "critical"
    logging.getLogger("asyncio").setLevel(level.upper())
    config = uvicorn.Config(
        app, http=visitors.protocol(), log_level=level, access_log=False, lifespan="off",
        server_header=False, ws="none", timeout_graceful_shutdown=2,
    )  # fmt: skip
    return Server(config)


def serve(app: Any, door: socket.socket) -> None:
    """Answer until Ctrl-C. Raises `StorageError` if it cannot start."""
    server = server_of(app)
    server.run(sockets=[door])
    if not server.started:
        raise StorageError("the server did not start")
