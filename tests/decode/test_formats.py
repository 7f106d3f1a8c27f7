"""The index of formats is the decoders' own declaration."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
from pathlib import Path

import pytest

import schedscope as ss

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_each_format_lists_its_writers_and_options() -> None:
    frame = ss.formats()
    assert frame["format"].is_unique().all()
    for row in frame.to_dicts():
        assert len(row["about"]) > 20
        assert all(option["about"] for option in row["options"])


def test_an_unknown_option_is_refused_and_the_known_ones_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ss.UsageError, match='no option "bufer"') as caught:
        ss.open(FIXTURES / "linux-trace-cmd-yield.dat", cache=tmp_path, options={"bufer": "x"})
    options = ss.formats().filter(format="trace.dat")["options"].item()
    assert all(f"{option['name']} ({option['about']})" in str(caught.value) for option in options)
    assert not list(tmp_path.iterdir())


def test_a_value_that_is_neither_yes_nor_no_is_refused(tmp_path: Path) -> None:
    """A mistyped option must not silently disable a check."""
    mixed = FIXTURES / "linux-ftrace-mixed.capture"
    for value in ("nonsense", "ye"):
        with pytest.raises(ss.UsageError, match=f'option clocks="{value}"; expected yes or no'):
            ss.open(mixed, cache=tmp_path, options={"clocks": value})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("packed", "packer", "expand"),
    [
        (bz2.compress(b"x"), "bzip2", "bzip2 -dk"),
        (gzip.compress(b"x", mtime=0), "gzip", "gzip -dk"),
        (lzma.compress(b"x"), "xz", "xz -dk"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "zstd", "zstd -d"),
        (b"\x04\x22\x4d\x18\x64\x40", "lz4", "lz4 -d"),
    ],
)
def test_compressed_file_is_refused_with_the_command_to_expand_it(
    packed: bytes, packer: str, expand: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.packed"
    path.write_bytes(packed)
    with pytest.raises(ss.FormatError, match=f"is compressed with {packer};") as caught:
        ss.open(path, cache=tmp_path)
    assert f"`{expand} FILE`" in str(caught.value)


def test_a_byte_order_mark_before_dtrace_lines_is_named(tmp_path: Path) -> None:
    """An editor saved the file; the capture folder and the single file report the same cause."""
    folder = tmp_path / "marked.capture"
    shutil.copytree(FIXTURES / "freebsd-ule-synthetic.capture", folder)
    lines = folder / "events.txt"
    lines.write_bytes(b"\xef\xbb\xbf" + lines.read_bytes())
    alone = tmp_path / "marked.txt"
    shutil.copy(lines, alone)
    for path in (folder, alone):
        with pytest.raises(ss.FormatError, match=r"txt begins with a byte-order mark"):
            ss.read_tables(path, "switches")


def test_a_hint_names_the_real_option(tmp_path: Path) -> None:
    with pytest.raises(ss.UsageError, match=r"name it with -O buffer=NAME"):
        ss.open(
            FIXTURES / "linux-trace-cmd-yield.dat", cache=tmp_path, options={"buffer": "nosuch"}
        )
