"""What the pages of the repository, which are read on their own, need to be pages of a site."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.structure.nav import Link

TITLES = {"Docs": "Pages", "Notebooks": "Chapters", "Fixtures": "Recordings"}


def on_page_markdown(markdown: str, page: Any, files: Any, **_: object) -> str:
    """A link to a source file, which the site does not have, becomes its text."""
    here = page.file.src_uri.rpartition("/")[0]

    def kept(match: re.Match[str]) -> str:
        text, link = match[1], match[2]
        path = link.partition("#")[0]
        if not path or "://" in link:
            return match[0]
        parts: list[str] = here.split("/") if here else []
        for part in path.rstrip("/").split("/"):
            parts = parts[:-1] if part == ".." else parts + [part] * (part != ".")
        return match[0] if files.get_file_from_path("/".join(parts)) else text

    return re.sub(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)", kept, markdown)


def on_nav(nav: Any, **_: object) -> Any:
    """Sections are called by what they hold, not by their folder."""
    for item in nav.items:
        if item.is_section:
            item.title = TITLES.get(item.title, item.title)
    # Made by build.py after the pages.
    nav.items.append(Link("Python reference", "api/schedscope.html"))
    nav.items.append(Link("A report", "report.html"))
    return nav
