"""What can be opened: the formats as their decoders declare them.

A decoder in `native/decode/src` declares name, recogniser and options; two kinds of folders hold
tables already and are read as they are.
"""

from __future__ import annotations

import polars as pl

_FOLDERS = (
    ("tables", "a folder of tables that another program wrote: Parquet, CSV or Arrow files"),
    (".sched", "a folder of tables that schedscope wrote, beside a source or by convert"),
)


def formats() -> pl.DataFrame:
    """One row per format that `open` reads, in the order in which they are recognised.

    A file is recognised by its content, never by its name.

    * `format`; `about`: what wrote it;
    * `options`: what `open(..., options={NAME: VALUE})`, or `-O NAME=VALUE` in the shell, may give
      to its decoder, as a list of `name` and `about`. Any other name is refused.

    >>> formats().filter(pl.col("format") == "trace.dat").select("options").item().to_list()[0]
    {'name': 'buffer', 'about': 'the instance to read; empty for the top one'}
    """
    from schedscope import _native

    rows = [
        {
            "format": name,
            "about": about,
            "options": [{"name": option, "about": meaning} for option, meaning in options],
        }
        for name, about, options in _native.formats()
    ]
    rows += [{"format": name, "about": about, "options": []} for name, about in _FOLDERS]
    option = pl.Struct({"name": pl.String, "about": pl.String})
    return pl.DataFrame(
        rows, schema={"format": pl.String, "about": pl.String, "options": pl.List(option)}
    )
