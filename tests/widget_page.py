"""A page with the real widget whose messages go over a real socket, as in a notebook."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schedscope.timelines.script import script


@contextmanager
def kernel(widget: Any) -> Iterator[str]:
    """A websocket that serves a widget, as a notebook's kernel would."""
    from websockets.sync.server import ServerConnection, serve

    def talk(connection: ServerConnection) -> None:
        def send(content: Any, buffers: list[bytes] | None = None) -> None:
            connection.send(json.dumps({**content, "count": len(buffers or [])}))
            for data in buffers or []:
                connection.send(bytes(data))

        widget.send = send
        for text in connection:
            widget._handle_custom_msg(json.loads(text), [])

    with serve(talk, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


_MODEL = """
const socket = new WebSocket("%s");
socket.binaryType = "arraybuffer";
const hears = [];
let message = null, buffers = [];
const give = () => { for (const hear of hears) hear(message, buffers); };
socket.onmessage = ({ data }) => {
  if (typeof data === "string") { message = JSON.parse(data); buffers = []; }
  else buffers.push(new DataView(data));
  if (buffers.length === message.count) give();
};
const model = {
  get: (name) => (%s)[name],
  on: (name, hear) => { if (name === "msg:custom") hears.push(hear); },
  off: (name, hear) => hears.splice(hears.indexOf(hear), 1),
  send: (content) => socket.send(JSON.stringify(content)),
};
socket.onopen = () => render({ model, el: %s });
"""
_SHADOW = 'document.body.appendChild(document.createElement("p")).attachShadow({mode: "open"})'
_IN_SHADOW = f'{_SHADOW}.appendChild(document.createElement("div"))'


def widget_page(widget: Any, url: str, *, shadow: bool = False) -> str:
    """HTML with the widget in it, which calls the kernel at `url`.

    In a shadow tree, as Marimo has it, or in the page itself, as JupyterLab does.
    """
    traits = {"about": dict(widget.about), "cards": widget.cards}
    text = json.dumps(traits).replace("<", "\\u003c")
    model = _MODEL % (url, text, _IN_SHADOW if shadow else "document.body")
    return f'<script type="module">{script()}\n{model}</script>'
