"""The HTML document around sections: the report's, and that of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from schedscope import units
from schedscope.report.look import CSS
from schedscope.report.section import Section
from schedscope.timelines.content_policy import content_policy


def document(
    name: str, what: str, header: str, sections: Sequence[Section], body: str, footer: str
) -> str:
    """The whole document; its title says `what` the page shows about `name`.

    `header` (below the heading), `body` (that of the `sections`, listed at the end) and `footer`
    are HTML.
    """
    title = escape(name)
    contents = "".join(
        f'<li><a href="#{section.anchor}">{escape(section.title)}</a></li>' for section in sections
    )
    whole = (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"{content_policy(body)}"
        f"<title>{title}: {what}</title><style>{CSS}</style></head><body><main>\n"
        f"<header><h1>{title}</h1>{header}</header>\n"
        f"{body}<nav><h2>On this page</h2><ol>{contents}</ol></nav>"
        f"<footer>{footer}</footer></main></body></html>\n"
    )
    # Escape invisible characters in any name. `prose` has its own spaces, and the script has no
    # such characters: its digest is known already.
    return units.printable(whole, keep="\n\u00a0")
