"""A published result, and its comparison with the model's.

A claim is one result of a publication; running it gives rows that put a
published number beside the simulated one. Nothing is tuned to a result:
policies are their presets, and whatever else is set (a cost, a tunable) is what
the source names or stands in the claim's `setting`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from schedscope.errors import UsageError

SOURCES = {
    "wiki": "FreeBSD wiki, ULE against 4BSD, 2011 to 2013",
    "bfs": "blog, BFS 304 against CFS, autumn 2009",
    "staircase": "article, Staircase 10.5 against O(1), 2004",
    "jem": "The Jem Report, ULE against 4BSD, 2004",
    "atc": "The Battle of the Schedulers, ATC 2018, approximate",
    "wasted": "The Linux Scheduler: a Decade of Wasted Cores, EuroSys 2016, approximate",
    "freebsd": "recorded for this project, `fixtures/published/ule-4bsd-13.2.csv`",
    "here": "recorded for this project, `research/benchmarks/workloads/counter-linux-6.18.csv`",
    "loop": "recorded for this project, `research/benchmarks/workloads/loop-linux-6.18.csv`",
    "tick": "tick model of 4BSD written for this project",
}


def data(name: str) -> Path:
    """A table of published or recorded numbers, by its place in a checkout of schedscope.

    Raises `UsageError` where there is none: an installed package does not carry them.
    """
    path = Path(__file__).resolve().parents[2] / name
    if not path.is_file():
        raise UsageError(f"no {path}", "a checkout of schedscope, which has the published tables")
    return path


@dataclass(frozen=True)
class Row:
    """One number: its name, as published (None: only in words), and from the model (None: it has no
    such thing)."""

    what: str
    published: float | None
    simulated: float | None
    unit: str = ""
    said: str = ""
    agrees: bool | None = None
    whole: bool = False
    """A count, shown without decimals."""
    why: str = ""
    """Why the model does not have the published number."""

    @property
    def distance(self) -> str:
        """Simulated less published; for words, whether the model does as they say."""
        if self.simulated is None:
            return "not in the model"
        if self.published is not None:
            return f"{self.simulated - self.published:+.3g}"
        if self.agrees is None:
            return ""
        return "as said" if self.agrees else "not as said"

    def cells(self) -> list[str]:
        """What, published, simulated, distance, why."""
        show = whole if self.whole else number
        published = self.said if self.published is None else show(self.published, self.unit)
        simulated = "" if self.simulated is None else show(self.simulated, self.unit)
        return [self.what, published, simulated, self.distance, self.why]


@dataclass(frozen=True)
class Claim:
    """A published result and how it is run here."""

    ids: str
    title: str
    source: str
    setting: str
    limits: str
    rows: Callable[[], list[Row]]


def number(value: float, unit: str = "") -> str:
    """A number as the table shows it."""
    return f"{value:.{_digits(value)}f}{' ' + unit if unit else ''}"


def whole(value: float, unit: str = "") -> str:
    """A count as the table shows it."""
    return f"{value:.0f}{' ' + unit if unit else ''}"


def _digits(value: float) -> int:
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3


def per_cent(new: float, old: float) -> float:
    """By how many per cent `new` is more than `old`."""
    return 100 * (new / old - 1)
