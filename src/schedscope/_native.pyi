"""Types of the native engine (native/src/python.rs)."""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Protocol

SCHEMA_VERSION: int

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class ArrowTable:
    """A table in memory: give it to `polars.DataFrame`."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...

def recognise(path: str | PathLike[str]) -> str: ...
def convert(
    path: str | PathLike[str],
    out_dir: str | PathLike[str],
    options: Mapping[str, str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> str: ...
def decode(
    path: str | PathLike[str],
    options: Mapping[str, str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[dict[str, ArrowTable], str]: ...
def reconstruct(
    facts: Mapping[str, _ArrowStream],
    ncpu: int,
    window: tuple[int, int] | None = None,
    chunk: int | None = None,
) -> dict[str, Any]: ...
def write_perfetto(
    path: str | PathLike[str],
    host: tuple[str, str, str],
    ncpu: int,
    clock: tuple[int, tuple[int, int] | None],
    frames: Mapping[str, _ArrowStream],
    names: list[str],
) -> None: ...
def empty_tables() -> dict[str, ArrowTable]: ...
def as_table(object: _ArrowStream) -> ArrowTable: ...
