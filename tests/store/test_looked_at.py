"""Notes about tables that were checked are bounded in number."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedscope.store import looked_at


def test_the_oldest_notes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note outlives its folder, and only another note removes it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(looked_at, "_MOST", 10)
    for number in range(25):
        folder = tmp_path / f"{number}.sched"
        folder.mkdir()
        for name in ("trace.json", "threads.parquet", "waits.parquet"):
            (folder / name).touch()
        looked_at.written(folder, ["waits.parquet"])
        notes = list((tmp_path / "home").rglob("*.json"))
        assert len(notes) <= 10
        assert looked_at.known(looked_at.identity(folder, "waits.parquet"), folder)
    first = tmp_path / "0.sched"
    assert not looked_at.known(looked_at.identity(first, "waits.parquet"), first)
