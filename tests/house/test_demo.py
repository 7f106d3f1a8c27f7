"""`make demo` and the build before it print what a user needs, and no more."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def demo(tmp_path: Path, tracefs: Path) -> str:
    """Runs everything except schedscope's own commands, whose arguments are printed."""
    done = make("-o", "build", "demo", "SCHEDSCOPE=echo", f"DEMO={tmp_path / 'out'}",
                f"TRACEFS={tracefs}", "MAKE=echo recording with")  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.needs("make")
@pytest.mark.parametrize("code", [0, 1])
def test_a_build_is_quiet_and_its_log_is_shown_if_it_fails(tmp_path: Path, code: int) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    lines = ["     Running `rustc --crate-name one`", "error: expected one of", "x" * 5000]
    said = "\n".join(f"echo '{line}'" for line in lines)
    python.write_text(f"#!/bin/sh\n{said}\nexit {code}\n")
    python.chmod(0o755)
    stamps = [str(tmp_path / f"{name}.stamp") for name in ("python", "native")]
    (tmp_path / "python.stamp").touch()
    done = make("-o", stamps[0], stamps[1], f"VENV={tmp_path}")
    assert (done.returncode != 0) == bool(code)
    assert Path(stamps[1]).exists() == (not code)
    assert len(done.stdout.splitlines()) == 1
    assert str(tmp_path / "build.log") in done.stdout
    assert ("error: expected one of" in done.stderr) == bool(code)
    assert "rustc" not in done.stderr
    assert max(map(len, done.stderr.splitlines()), default=0) <= 300
    assert (tmp_path / "build.log").read_text().splitlines() == lines


@pytest.mark.needs("make", "linux", "root")
def test_demo_as_root_reports_a_tracefs_that_cannot_be_mounted(tmp_path: Path) -> None:
    said = demo(tmp_path, tmp_path / "nowhere")
    assert "recording with" not in said
    assert "needs tracefs, which could not be mounted" in said
    assert "sudo make demo" not in said


@pytest.mark.needs("make", "linux", "root", "tracefs", "umount")
def test_demo_as_root_mounts_tracefs(tmp_path: Path) -> None:
    place = tmp_path / "tracing"
    place.mkdir()
    try:
        said = demo(tmp_path, place)
        assert (place / "events" / "sched").is_dir()
    finally:
        subprocess.run(["umount", place], check=False)
    assert "recording with --no-print-directory demo-live" in said
