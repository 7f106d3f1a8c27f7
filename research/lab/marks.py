"""Tables on a page, between two marks that stay there."""

from __future__ import annotations

from collections.abc import Iterable


def between(text: str, begin: str, end: str, lines: Iterable[str]) -> str:
    """`text` with these lines in place of what stood between the marks.

    Raises `SystemExit` unless both are there.

    >>> between("a\\n<b>\\nold\\n<e>\\nz", "<b>", "<e>", ["", "new"])
    'a\\n<b>\\n\\nnew\\n\\n<e>\\nz'
    """
    before, mark, rest = text.partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise SystemExit(f"the page has no {end if mark else begin}: its tables stand behind it")
    return before + "\n".join([begin, *lines, "", end]) + after
