"""Look at a trace in a browser: search, select, follow, and ask SQL.

Starts a server that listens on 127.0.0.1 only, prints its address, and opens a browser
there. Anyone who has the address can see the trace, but nothing else on this machine. Two
traces are shown one below the other, aligned at their starts or at an instant of each.
For a trace on another host, run it there with --no-browser --port 8118, forward the port
with `ssh -L 8118:127.0.0.1:8118 HOST`, and open the printed address here. Ctrl-C ends it.

With a selection the picture begins with the lanes of these threads beside those of the CPUs, and
its keys step through their longest waits and the findings that affect them; with --cpu it begins
with these CPUs. All other threads and CPUs can still be searched and added. One trace opens where
its first finding is worst.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from schedscope.cli import _options, _output
from schedscope.outputs import user_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schedscope.store.trace import Trace

GROUP = "everything on one page"
HELP = "look at a trace in a browser: search, select, follow"
EXAMPLE = """\
  schedscope view web.capture
  schedscope view web.capture --service nginx.service
  schedscope view before.capture after.capture
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope view`."""
    _options.add_input(parser)
    parser.add_argument(
        "other", nargs="?", metavar="OTHER", help="a second trace, shown below to compare"
    )
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="the port to listen on (default: any)"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address, and open nothing"
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="the time to show first (default: the first finding): seconds from the start, as"
        " printed, or a time of day; or `view=...`, as the viewer's button `link` copies it",
    )
    _options.add_selection(
        parser, what="lanes and longest waits of these threads and CPUs, at first"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    import secrets

    from schedscope.timelines.server import application, check_installed, listen, serve

    check_installed()
    # Report errors in the request before a long conversion.
    door = listen(args.port)
    with door:
        since, until = args.since, args.until
        args.since = args.until = None
        from schedscope.timelines.places import view_at
        from schedscope.timelines.questions import opened

        paths = [args.input, args.other] if args.other else [args.input]
        traces = [_options.open_path(args, path) for path in paths]
        at = view_at(traces[0], args.at) if args.at is not None else ""
        sides, views = [], []
        for trace, chosen, cpus in zip(traces, *_chosen(args, traces), strict=True):
            side, view = opened(trace, since, until, chosen, cpus)
            sides.append(side)
            views.append(view)
        token = secrets.token_urlsafe(24)
        other = sides[1] if args.other else None
        app = application(sides[0], token, other, _options.words(args, cpus=True))
        address = f"http://127.0.0.1:{door.getsockname()[1]}/{token}/"
        if at := at or views[0]:
            address += f"#{at}"
        _output.say(f"{address}", "Ctrl-C ends it.")
        if any(views):
            _output.say("That part is long: the whole trace is shown, zoomed to that part.")
        sys.stdout.flush()
        with nullcontext() if args.no_browser else _opened(address), suppress(KeyboardInterrupt):
            serve(app, door)
    return 0


def _chosen(
    args: argparse.Namespace, traces: list[Trace]
) -> tuple[list[list[int] | None], list[list[int]]]:
    """The selected threads and CPUs of each trace; one of two may have none of them."""
    from schedscope.analysis.threads.of_threads import chosen_threads

    wheres = _options.where_of_each(args, traces, _options.where_threads)
    chosen = [
        None if not _options.selects_threads(args) else []
        if where is None else chosen_threads(trace, where).to_list()
        for trace, where in zip(traces, wheres, strict=True)
    ]  # fmt: skip
    cpus = _options.where_of_each(args, traces, _options.known_cpus)
    return chosen, [one or [] for one in cpus]


@contextmanager
def _opened(address: str) -> Iterator[None]:
    """Show it in a window; a browser in the terminal would take the terminal.

    The browser is given a page that only this user can read and that leads to the address: every
    user of the machine sees the words of its command line. The page is in the home folder, since a
    browser in a sandbox may have another /tmp.
    """
    import html
    import tempfile
    import threading
    import webbrowser

    if sys.platform != "darwin" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        yield
        return
    to = html.escape(address)
    text = f'<!DOCTYPE html><meta http-equiv="refresh" content="0;url={to}"><a href="{to}">view</a>'
    home = Path.home()
    folder = home if os.access(home, os.W_OK) and user_of(home) is None else None
    with tempfile.NamedTemporaryFile(
        "w", prefix="schedscope-view-", suffix=".html", dir=folder, encoding="utf-8"
    ) as page:
        page.write(text)
        page.flush()
        uri = Path(page.name).absolute().as_uri()
        threading.Thread(target=webbrowser.open, args=(uri,), daemon=True).start()
        yield
