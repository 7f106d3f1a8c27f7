"""The options that select threads, in the commands that are shown."""

from __future__ import annotations

import re

import polars as pl


def narrowed(found: pl.DataFrame, words: str) -> pl.DataFrame:
    """Findings whose commands ask about the threads that the options in `words` select.

    Those about the machine stay as they are, and so does a command with an option of the same
    name: repeated it would select more.
    """
    options = re.findall(r"(?:^| )(--[a-z]+)", words)
    if not options or found.is_empty():
        return found
    own = pl.any_horizontal(
        pl.col("command").str.contains(rf"{option}(?: |$)") for option in options
    )
    asked = pl.when((pl.col("about") == "threads") & ~own)
    more = pl.format("{} {}", "command", pl.lit(words))
    return found.with_columns(asked.then(more).otherwise("command").alias("command"))
