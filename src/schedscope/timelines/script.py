"""The timeline's JavaScript: one component, whose files are one module in every home."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

PARTS = (
    "style",
    "colours",
    "pieces",
    "heights",
    "groups",
    "paint",
    "words",
    "picture",
    "strip",
    "timeline",
    "table",
    "finder",
    "panel",
    "keeper",
    "balance",
    "couple",
    "sources",
)
"""In this order; a file may use what stands above it, and functions of any."""

_REMARK = re.compile(r"^[ \t]*(?://.*|/\*\*.*\*/)\n|^[ \t]+|\n(?=\n)", re.MULTILINE)


@cache
def script() -> str:
    """The module, without indentation and remarks on lines of their own: pages carry it."""
    folder = Path(__file__).parent
    whole = "\n".join((folder / f"{part}.js").read_text(encoding="utf-8").strip() for part in PARTS)
    return _REMARK.sub("", whole)
