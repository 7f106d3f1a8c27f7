"""Which columns of an answer a table shows: chosen by name, all else comes from the registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schedscope.present.bounds import upper_bounds
from schedscope.present.registry import Kind, Meaning, counts, is_quantile, meaning

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Column:
    """How one column of a frame appears in a table.

    `rank` decides what goes first when the terminal is narrow: the highest rank; 0 never goes.
    `origin` is subtracted from instants.
    """

    name: str
    heading: str = ""
    kind: Kind = "text"
    rank: int = 0
    origin: int = 0

    @property
    def title(self) -> str:
        """The word above the column."""
        return self.heading or self.name


def choose(
    frame: pl.DataFrame,
    names: Iterable[str],
    *,
    question: str = "",
    narrow: str = "",
    origin: int | None = None,
) -> list[Column]:
    """Those columns of `names` that `frame` has, in this order, as the registry declares them.

    `name?` is left out where it says nothing: all null, or all zero if it is a quantity. `p*` is
    every quantile. `narrow` lists what a narrow terminal leaves out, the first one first. Instants
    are shown from `origin` on, without which there must not be any.

    >>> import polars as pl
    >>> frame = pl.DataFrame({"comm": ["web"], "n": [3], "n_censored": [0], "p50": [1]})
    >>> [c.title for c in choose(frame, ["comm", "n", "n_censored?", "p*"], question="latency")]
    ['comm', 'waits', 'p50']
    """
    order = narrow.split()
    found = []
    for name in _expanded(frame, names, question):
        declared = meaning(name, question)
        if declared is None:
            raise KeyError(f"column {name!r} is not declared in present/registry.py")
        rank = len(order) - order.index(name) if name in order else 0
        # Words in place of numbers are aligned as the numbers would be.
        worded = declared.kind != "text" and not frame.schema[name].is_numeric()
        kind = "right" if worded else declared.kind
        if kind == "at" and origin is None:
            raise ValueError(f"column {name!r} has instants, but nobody said from when they count")
        found.append(Column(name, declared.heading, kind, rank, origin or 0))
    return found


def _expanded(frame: pl.DataFrame, names: Iterable[str], question: str) -> list[str]:
    found: list[str] = []
    for name in names:
        if name == "p*":
            found += [each for each in frame.columns if is_quantile(each)]
        elif not name.endswith("?"):
            found += [name] if name in frame.columns else []
        elif (name := name[:-1]) in frame.columns:
            declared = meaning(name, question)
            # An upper bound says something of what may be zero.
            if any(
                _says_something(frame[each], declared)
                for each in (name, *({f"{name}_high"} & upper_bounds(frame.columns)))
            ):
                found.append(name)
    return found


def _says_something(values: pl.Series, declared: Meaning | None) -> bool:
    if declared and declared.kind in ("count", "time") and values.dtype.is_numeric():
        return bool((values != 0).any())
    return values.null_count() < len(values)


def conventional(frame: pl.DataFrame, *, question: str = "", origin: int = 0) -> list[Column]:
    """All columns under their own names: declared ones as declared, others by their type.

    For notebooks and step-by-step tables, where the next line of code uses these names. A name
    whose meaning depends on the question is shown by its type unless `question` is given.
    """
    kinds = {name: _kind(name, dtype, question) for name, dtype in frame.schema.items()}
    kinds |= dict.fromkeys(_times_by_sums(frame, kinds), "time")
    return [Column(name, kind=kind, origin=origin) for name, kind in kinds.items()]


def _times_by_sums(frame: pl.DataFrame, kinds: Mapping[str, Kind]) -> set[str]:
    """Columns that are ns, as columns of whole ns beside them prove.

    A mean may be of anything, and a user may have converted a column to milliseconds under its old
    name.
    """
    import polars as pl

    col = pl.col
    sums = (
        (("mean",), ("n",), "total", col("mean") * col("n")),
        (("due", "lag"), (), "running", col("due") - col("lag")),
        (("due", "lag"), (), "received", col("due") - col("lag")),
        (("cpu",), ("slowdown",), "waiting", col("cpu") * (col("slowdown") - 1)),
    )
    found: set[str] = set()
    for names, others, whole, value in sums:
        there = all(name in kinds and frame.schema[name].is_numeric() for name in (*names, *others))
        if there and kinds.get(whole) == "time":
            near = (value - col(whole)).abs() <= 1e-6 * col(whole).abs() + 1
            if frame.select(near.all() & (near.sum() > 0)).item():
                found |= set(names)
    return found


def _kind(name: str, dtype: pl.DataType, question: str) -> Kind:
    import polars as pl

    declared = meaning(name, question)
    if declared is not None and _fits(declared.kind, dtype, bool(question)):
        return declared.kind
    if name.endswith(("_cpu", "_utid", "_tid", "_pid")):
        return "id"
    if (
        name.startswith("n_")
        or dtype.is_unsigned_integer()
        or (counts(name) and dtype.is_integer())
    ):
        return "count"
    if name.startswith("ts_") or name.endswith("_ts"):
        return "at"
    if name.endswith("_frac"):
        return "share"
    if dtype.is_float():
        return "number"
    if dtype.is_integer():
        return "time" if dtype == pl.Int64 else "count"
    return "text"


def _fits(kind: Kind, dtype: pl.DataType, asked: bool) -> bool:
    """Whether a column of this type can be of this kind: a user's own frames may use names
    differently.
    """
    import polars as pl

    if not dtype.is_numeric():
        return kind in ("text", "right")
    # Durations are numbers of 64 bits, and a mean may be of anything.
    if kind == "time" and not asked:
        return dtype == pl.Int64
    return kind != "text"
