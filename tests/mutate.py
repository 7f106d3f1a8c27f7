"""Damage of every kind to folders and files that schedscope reads, following their structure.

A mutation depends only on its seed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from schedscope.store import stored

Mutation = Callable[[random.Random, Path], str]
"""Damages what lies at the path; says how."""

_ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**32, 2**62, 2**63, -(2**63), 2**70, 10**400, 0.5, -1.5,
    1e308, float("nan"), float("inf"), "", "x", "7", "\x1b[2J\u202e", "=1+1", "\ud800", "é" * 5000,
    [], {}, [[]], [None], [-1, 2], [2**63, 2**64], [5, 3], {"": {}}, {"x": -1}, {"0": "1"},
    [[[[[[1]]]]]], {"cpu": 70000}, [{"cpu": "zero"}], [{}],
]  # fmt: skip


def odd_json(rng: random.Random, value: Any) -> tuple[Any, str]:
    """The document with one key changed, removed or of another type."""
    value = json.loads(json.dumps(value))
    places = list(_places(value))
    parent, key, path = rng.choice(places)
    kind = rng.random()
    if kind < 0.15:
        del parent[key]
        return value, f"without {path}"
    if kind < 0.2:
        parent[key] = _deep(rng.choice([40, 900, 100_000]))
        return value, f"{path} nested deeply"
    parent[key] = rng.choice(_ODD)
    return value, f"{path} = {str(parent[key])[:30]!r}"


def _places(value: Any, path: str = "") -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        yield value, key, f"{path}/{key}"
        if isinstance(part, dict | list):
            yield from _places(part, f"{path}/{key}")


def _deep(depth: int) -> Any:
    return f"@@{depth}@@"


def write_json(path: Path, document: Any) -> None:
    text = json.dumps(document)
    for depth in (40, 900, 100_000):
        text = text.replace(f'"@@{depth}@@"', "[" * depth + "]" * depth)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")


def json_file(name: str) -> Mutation:
    def mutate(rng: random.Random, folder: Path) -> str:
        path = folder / name if name else folder
        if rng.random() < 0.15:
            return bytes_of(rng, path)
        document = json.loads(path.read_bytes())
        how = []
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            try:
                document, said = odd_json(rng, document)
            except (IndexError, TypeError, AttributeError):
                break
            how.append(said)
        write_json(path, document)
        return f"{path.name}: {'; '.join(how)}"

    return mutate


def bytes_of(rng: random.Random, path: Path) -> str:
    """Damage that ignores the meaning of the bytes."""
    data = bytearray(path.read_bytes())
    kind = rng.choice(["cut", "flip", "flip", "flip", "empty", "zero", "insert", "noise", "head"])
    at = rng.randrange(len(data)) if data else 0
    match kind:
        case "cut":
            del data[at:]
        case "flip":
            for _ in range(rng.choice([1, 1, 3, 20])):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case "empty":
            data.clear()
        case "zero":
            data[at : at + 64] = bytes(len(data[at : at + 64]))
        case "insert":
            data[at:at] = rng.randbytes(rng.choice([1, 8, 500]))
        case "noise":
            data[:] = rng.randbytes(len(data))
        case "head":
            del data[:at]
    path.write_bytes(data)
    return f"{path.name}: {kind} at {at}"


def odd_kind(rng: random.Random, path: Path) -> str:
    """Something else under that name."""
    kind = rng.choice(["gone", "folder", "pipe", "loop", "device"])
    path.unlink()
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path.name)
        case "device":
            path.symlink_to("/dev/zero")
    return f"{path.name}: {kind}"


def odd_values(rng: random.Random, frame: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """A table with a column or some values of it changed."""
    name = rng.choice(frame.columns)
    dtype = frame.schema[name]
    row = rng.randrange(max(1, frame.height))
    kind = rng.choice(["value"] * 6 + ["column"] * 2 + ["rows"] * 2)
    if dtype.is_nested():  # changed before
        kind = "rows"
    if kind == "value" and frame.height:
        if dtype.is_integer():
            top, bottom = dtype.max(), dtype.min()  # type: ignore[attr-defined]
            limits = pl.select(top.alias("top"), bottom.alias("bottom")).row(0)
            value = rng.choice([*limits, limits[0] // 2, 0, 1, None, 65535, 16384, 2**31])
            value = min(limits[0], value) if value is not None else None
        elif dtype == pl.String:
            value = rng.choice(["\x1b[2J\u202ex", "=cmd|'/C calc'!A0", None, "x" * 70_000, "a\nb"])
        elif isinstance(dtype, pl.Enum):
            value = rng.choice([*dtype.categories.to_list(), None])
        else:
            value = rng.choice([True, False, None])
        many = rng.random() < 0.2
        chosen = pl.int_range(pl.len()) >= row if many else pl.int_range(pl.len()) == row
        changed = pl.when(chosen).then(pl.lit(value, dtype)).otherwise(pl.col(name)).alias(name)
        return frame.with_columns(changed), f"{name}[{row}{':' * many}] = {str(value)[:30]!r}"
    if kind == "column":
        change = rng.choice(["drop", "text", "float", "narrow", "list", "null", "rename", "extra"])
        column = pl.col(name)
        number = column.to_physical() if isinstance(dtype, pl.Enum) else column
        match change:
            case "drop":
                return frame.drop(name), f"without {name}"
            case "text":
                return frame.with_columns(column.cast(pl.String)), f"{name} as text"
            case "float":
                return (
                    frame.with_columns(number.cast(pl.Float64, strict=False)),
                    f"{name} as float",
                )
            case "narrow":
                return (
                    frame.with_columns(number.cast(pl.Int8, strict=False)),
                    f"{name} as 8 bits",
                )
            case "list":
                lists = pl.Series(name, [[v] for v in frame[name].to_list()], dtype=pl.List(dtype))
                return frame.with_columns(lists), f"{name} as lists"
            case "null":
                return frame.with_columns(pl.lit(None, dtype).alias(name)), f"{name} null"
            case "rename":
                return frame.rename({name: name.upper()}), f"{name} renamed"
            case _:
                return frame.with_columns(more=pl.lit(1)), "a column more"
    change = rng.choice(["shuffle", "reverse", "none", "twice", "some", "one"])
    match change:
        case "shuffle":
            return frame.sample(fraction=1, shuffle=True, seed=rng.randrange(2**32)), "shuffled"
        case "reverse":
            return frame.reverse(), "reversed"
        case "none":
            return frame.clear(), "without rows"
        case "twice":
            return pl.concat([frame, frame]), "twice"
        case "some":
            return frame.gather_every(2), "every second row"
        case _:
            return frame.slice(row, 1), f"row {row} only"


def sched(rng: random.Random, folder: Path, other: Path) -> str:
    """Damage to a `.sched` folder; `other` is of another trace."""
    tables = sorted(folder.glob("*.parquet"))
    path = rng.choice(tables)
    if rng.random() < 0.5:  # where most commands look
        path = folder / rng.choice(["states.parquet", "waits.parquet", "threads.parquet"])
    match rng.choice(["json"] * 3 + ["values"] * 6 + ["bytes"] * 2 + ["kind", "swap", "other"]):
        case "json":
            return json_file("trace.json")(rng, folder)
        case "values":
            how = []
            for _ in range(rng.choice([1, 1, 1, 3])):
                frame, said = odd_values(rng, pl.read_parquet(path, glob=False))
                frame.write_parquet(path)
                how.append(said)
            forged = rng.random() < 0.4
            _trust(folder, forged)
            return f"{path.name}: {'; '.join(how)}{' (checksum forged)' * forged}"
        case "bytes":
            said = bytes_of(rng, path)
            forged = rng.random() < 0.5
            _trust(folder, forged)
            return said + " (checksum forged)" * forged
        case "kind":
            return odd_kind(rng, rng.choice([path, folder / "trace.json"]))
        case "swap":
            one, two = rng.sample(tables, 2)
            hold = one.read_bytes()
            one.write_bytes(two.read_bytes())
            two.write_bytes(hold)
            _trust(folder, rng.random() < 0.5)
            return f"{one.name} and {two.name} swapped"
        case _:
            shutil.copy(other / path.name, path)
            _trust(folder, forged := rng.random() < 0.5)
            return f"{path.name} of another trace" + " (checksum forged)" * forged


def _trust(folder: Path, forged: bool) -> None:
    """Removes the checksums, as if another program wrote the folder, or computes new ones."""
    path = folder / "trace.json"
    about = json.loads(path.read_bytes())
    about.pop("files", None)
    if forged:
        about["files"] = stored.record(folder)
    path.write_text(json.dumps(about))


def tables(rng: random.Random, folder: Path) -> str:
    """Damage to a folder of tables from another program."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".csv", ".parquet"))
    path = rng.choice(files)
    match rng.choice(["json", "bytes", "values", "values", "values", "kind"]):
        case "json":
            return json_file("trace.json")(rng, folder)
        case "bytes":
            return bytes_of(rng, path)
        case "kind":
            return odd_kind(rng, path)
    if path.suffix == ".parquet":
        frame, said = odd_values(rng, pl.read_parquet(path, glob=False))
        frame.write_parquet(path)
        return f"{path.name}: {said}"
    lines = path.read_text().split("\n")
    row = rng.randrange(len(lines))
    cells = lines[row].split(",")
    at = rng.randrange(len(cells))
    cells[at] = rng.choice(
        ["", "-1", "9" * 30, "1.5", "x", '"', "'=1", "4294967295", "70000", "\x1b", "1e9", "NaN",
         "9223372036854775807", "-9223372036854775808", "a,b", "\x00", "\ud800"]
    )  # fmt: skip
    lines[row] = ",".join(cells)
    path.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
    return f"{path.name}: {cells[at][:20]!r} in row {row}"


def workload(rng: random.Random, folder: Path) -> str:
    """Damage to a workload folder."""
    steps = folder / "steps.parquet"
    match rng.choice(["json"] * 3 + ["values"] * 3 + ["bytes", "kind"]):
        case "json":
            return json_file("workload.json")(rng, folder)
        case "values":
            frame, said = odd_values(rng, pl.read_parquet(steps, glob=False))
            frame.write_parquet(steps)
            return f"steps: {said}"
        case "bytes":
            return bytes_of(rng, steps)
        case _:
            return odd_kind(rng, rng.choice([steps, folder / "workload.json"]))
