"""Connections to the viewer that have not shown its token yet: few, and not for long.

Every user of the machine can connect. The owner must be able to, whatever the others do: a new
connection is always taken, and if there are too many without the token, the oldest of them ends.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

SECONDS = 5.0
"""How long a connection may take to show the token."""
MOST = 256
"""Connections that have not shown it."""

_strangers: dict[tuple[str, int], tuple[Any, asyncio.TimerHandle]] = {}
"""By the client's address, the oldest first."""


def protocol() -> type[asyncio.Protocol]:
    """The server's protocol, which closes connections that do not show the token."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if self.client is not None:
                _arrived(self.client, transport)

        def connection_lost(self, exc: Exception | None) -> None:
            know(self.client)
            super().connection_lost(exc)

    return Protocol


def know(client: tuple[str, int] | None) -> None:
    """This connection has shown the token, or has ended."""
    if client is not None and (found := _strangers.pop((client[0], client[1]), None)):
        found[1].cancel()


def _arrived(client: tuple[str, int], transport: Any) -> None:
    timer = asyncio.get_running_loop().call_later(SECONDS, transport.abort)
    _strangers[client] = (transport, timer)
    if len(_strangers) > _most():
        oldest = next(iter(_strangers))
        _strangers[oldest][0].abort()
        know(oldest)


def _most() -> int:
    """Fewer where the limit of open files is low."""
    return min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
