"""Kernels of other releases and architectures, booted and recorded: see lab/README.md."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import pytest
from archives import unpack

from schedscope import cli

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from lab import (  # noqa: E402
    __main__ as lab,
    guests,
    packages,
    page,
)
from lab.boots import Cell, Run, earlier  # noqa: E402
from lab.judges import judge  # noqa: E402

KEPT = sorted((ROOT / "fixtures/lab").glob("*.tar.xz"))
COMMANDS = [
    *("check", "latency", "migrations", "queue-depth", "work-conservation", "off-cpu", "wakers"),
    *("events", "info"),
]


@pytest.fixture
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        unpack(archive, tmp_path)
    return tmp_path


def test_every_cell_names_a_kernel_of_the_matrix() -> None:
    kernels, cells = lab.matrix()
    assert {cell.kernel for cell in cells} <= kernels.keys()
    assert len({cell.name for cell in cells}) == len(cells)
    assert sum(cell.ci for cell in cells) == 2


@pytest.mark.parametrize(
    "unpacked", KEPT, ids=lambda path: path.name.split(".tar")[0], indirect=True
)
def test_a_kept_recording_is_what_its_kernel_says(
    unpacked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = judge(unpacked)
    run = json.loads((unpacked / "run.json").read_text())
    assert verdict.events > 300
    # Before Linux 5.18 each trace instance read a thread's state anew (docs/lab.md).
    assert verdict.differing <= ("5.10" in run["kernel"]), verdict.examples
    assert verdict.threads >= 3
    assert verdict.migrations <= 1, verdict.examples
    if "newest" not in run["kernel"]:  # Linux 7.2 counts one or two less, why is not known
        assert verdict.switch_ins <= 1, verdict.examples
    if run["counted"]:  # else time is the host's, and its load counts
        assert abs(verdict.queue_error) < 0.03, verdict
    for command in COMMANDS:
        assert cli.main([command, str(unpacked / "lab.capture"), "--format", "json"]) == 0
        capsys.readouterr()


QUOTAS = [path for path in KEPT if "quota" in path.name]


@pytest.mark.parametrize("unpacked", QUOTAS, ids=lambda path: path.name[:10], indirect=True)
def test_waits_are_throttled_when_the_kernel_throttled(unpacked: Path) -> None:
    """By probes in the kernel, which agree with its cpu.stat; nobody else's wait is."""
    found = judge(unpacked).quota
    assert found is not None
    assert found.ours > 1_000_000_000
    assert abs(found.ours / found.kernels - 1) < 0.001
    assert found.others == 0
    assert abs(found.probed / found.counted - 1) < 0.001
    # One stretch before the thread is first seen; the kernel throttles in the tick before a switch.
    assert found.unseen < 0.05 * found.kernels


@pytest.mark.parametrize("unpacked", QUOTAS[:1], ids=["first"], indirect=True)
def test_the_judge_of_quotas_sees_what_is_wrong(unpacked: Path) -> None:
    """Every other stretch of the kernel's is taken away."""
    lines = (unpacked / "quota.txt").read_text().splitlines(keepends=True)
    kept = [line for i, line in enumerate(lines) if i // 2 % 2]
    (unpacked / "quota.txt").write_text("".join(kept))
    found = judge(unpacked).quota
    assert found is not None
    assert abs(found.ours / found.kernels - 1) > 0.5
    assert abs(found.probed / found.counted - 1) > 0.01


@pytest.mark.parametrize("unpacked", KEPT[:1], ids=["first"], indirect=True)
def test_the_judges_see_what_is_wrong(unpacked: Path) -> None:
    """Another priority, one doubled delay, one switch-in more."""
    text = (unpacked / "trace.txt").read_text()
    (unpacked / "trace.txt").write_text(text.replace("next_prio=120", "next_prio=119"))
    rows = [line.split("\t") for line in (unpacked / "truth.tsv").read_text().splitlines()]
    longest = max(rows, key=lambda row: int(row[5]))
    longest[5], longest[6] = str(2 * int(longest[5])), str(int(longest[6]) + 1)
    (unpacked / "truth.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    verdict = judge(unpacked)
    assert verdict.differing >= 1
    assert verdict.switch_ins >= 1
    assert verdict.worst > 0.4


def test_a_run_counts_again_only_if_nothing_changed(tmp_path: Path) -> None:
    cell = Cell("x", "amd64-6.1", "hogs 1 0")
    assert earlier(tmp_path, cell) is None
    folder = tmp_path / "runs/x"
    folder.mkdir(parents=True)
    for text in (
        "",
        "{}",
        '{"failed": "no end"}',
        '{"failed": "", "name": "x", "work": "hogs 2 0"}',
    ):
        (folder / "run.json").write_text(text)
        assert earlier(tmp_path, cell) is None


def test_what_is_absent_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    kernel = guests.Kernel("6.1", "s390x", "bookworm", ("x",))
    run = lab.one(tmp_path, Cell("a", "b", "hogs 1 0"), kernel, again=True, timeout=1)
    assert run.failed == "qemu-system-s390x is not installed: apt install qemu-system-s390x"
    monkeypatch.setattr(packages.Path, "is_file", lambda _: False)
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    with pytest.raises(packages.Absent, match="set DEBIAN_MIRROR"):
        packages.mirror()


def test_a_machine_that_hangs_is_booted_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boots = [Run("a", tmp_path, failed="no end within 1 s", hung=True), Run("a", tmp_path)]
    monkeypatch.setattr(lab, "boot", lambda *_, **__: boots.pop(0))
    kernel = guests.Kernel("6.1", "amd64", "bookworm", ("x",))
    run = lab.one(tmp_path, Cell("a", "b", "hogs 1 0"), kernel, again=True, timeout=1)
    assert (run.failed, boots) == ("", [])


def test_the_page_keeps_what_is_around_the_table(tmp_path: Path) -> None:
    path = tmp_path / "lab.md"
    kept = "| y | 6.1 | 1 | hogs 1 0 | 5 | 0 | +0% | 0% | 0, 0, 0 of 1 | sound | 2026-01-02 |"
    path.write_text(f"before\n{page.BEGIN}\nold\n| x | 5.10 |\n{kept}\n{page.END}\nafter\n")
    cell = Cell("x", "amd64-6.1", "hogs 1 0")
    page.write(path, [(cell, Run("x", tmp_path, failed="no end within 1 s"), None)])
    text = path.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| x |  | 2 | hogs 1 0 | failed: no end within 1 s |" in text
    assert kept in text
    assert "5.10" not in text, "the last run counts"
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {12}


@pytest.mark.needs(
    "qemu-system-x86_64", "qemu-system-s390x", "s390x-linux-gnu-gcc", "apt-get", "dpkg-deb", "cpio"
)
def test_kernels_booted_here_and_now_are_read_rightly() -> None:
    """One amd64 and one big-endian machine: each event is what that kernel printed of it."""
    kernels, cells = lab.matrix()
    for cell in (cell for cell in cells if cell.ci):
        kernel = kernels[cell.kernel]
        run = lab.one(lab.default_cache(), cell, kernel, again=True, timeout=240)
        assert not run.failed, f"{cell.name}: {run.failed}"
        verdict = judge(run.folder)
        assert verdict.events > 500, verdict
        assert verdict.differing == 0, verdict.examples
        assert verdict.threads >= 16, verdict
        assert verdict.switch_ins <= 1, verdict.examples
