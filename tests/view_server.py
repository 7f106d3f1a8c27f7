"""The viewer's application behind a real socket, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import schedscope as ss
from schedscope.timelines.questions import Questions

TOKEN = "t0ken"


@contextmanager
def server(trace: ss.Trace, other: ss.Trace | None = None) -> Iterator[int]:
    """Its port."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from schedscope.timelines.server import application, listen, server_of

    door = listen(0)
    app = application(Questions(trace), TOKEN, None if other is None else Questions(other))
    running = server_of(app)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [door]})
    thread.start()
    try:
        yield door.getsockname()[1]
    finally:
        running.should_exit = True
        thread.join()
