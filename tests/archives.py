"""Unpacking archives that tests made or keep."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Extracts everything as data; Python 3.11 before 3.11.4 has no filters yet."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:
        archive.extractall(folder)


def under_sched_ext(folder: Path, cell: str = "2cpu") -> Path:
    """A recording of dispatch queues, unpacked into the folder unless it is there.

    That of the cell `kick` has kicks.
    """
    if not (folder / "lab.capture").exists():
        archive = Path(__file__).parents[1] / f"fixtures/lab/amd64-newest-scx-{cell}.tar.xz"
        with tarfile.open(archive) as packed:
            unpack(packed, folder)
    return folder / "lab.capture"


def unpacked(archive: Path, folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """The files of a packed recording, under the names in `files`."""
    with tarfile.open(archive) as packed:
        unpack(packed, folder)
    return {name: folder / file for name, file in files.items()}
