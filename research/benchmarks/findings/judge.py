"""Is the finding there?"""

from __future__ import annotations

import re
from pathlib import Path

import schedscope as ss
from findings.cases import Case


def found(case: Case, capture: Path) -> str | None:
    """The sentence of the case's finding, if it is there and about threads of ours."""
    frame = ss.findings(ss.open(capture))
    for row in frame.iter_rows(named=True):
        if row["topic"] == case.topic and re.search(case.names, row["text"]):
            return str(row["text"])
    return None
