"""`schedscope definitions`: what each tool counts, below the table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope.cli._asking import Words

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


def words(
    args: argparse.Namespace, trace: Trace, frame: pl.DataFrame, shown: pl.DataFrame
) -> Words:
    """A sentence for each tool."""
    sentences = [
        f"{name}: {counts}. Excludes {leaves_out}."
        if not leaves_out.startswith("needs ")
        else f"{name}: {leaves_out}."
        for name, counts, leaves_out in frame.select(
            "definition", "counts", "leaves_out"
        ).iter_rows()
    ]
    return Words(notes=["", *sentences])
