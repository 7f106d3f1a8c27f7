"""The FreeBSD port, as far as it can be tested without FreeBSD."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from archives import unpack

ROOT = Path(__file__).resolve().parents[2]
PORT = ROOT / "packaging" / "freebsd"
# The ports framework itself is not run; this shows its input.
FRAMEWORK = """
show:
	@echo "${PORTNAME} ${DISTVERSION} ${LICENSE} ${USES}"
	@for crate in ${CARGO_CRATES}; do echo "crate $$crate"; done
	@for file in ${PLIST_FILES}; do echo "file $$file"; done
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, built from a copy of the files in git."""
    if importlib.util.find_spec("setuptools_rust") is None:
        pytest.skip("needs setuptools_rust")
    folder = tmp_path_factory.mktemp("sdist")
    copy = folder / "schedscope"
    skip = shutil.ignore_patterns(
        "target", "*.so", ".venv", ".git", "*.egg-info", "dist", "build", "__pycache__", ".*_cache"
    )
    shutil.copytree(ROOT, copy, symlinks=True, ignore=skip)
    build = "import setuptools.build_meta as b, sys; print(b.build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=copy, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def port(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("port") / "py-schedscope"
    subprocess.run([sys.executable, str(PORT / "port.py"), str(archive), str(folder)], check=True)
    return folder


def lock() -> list[tuple[str, str, str]]:
    packages = tomllib.loads((ROOT / "native" / "Cargo.lock").read_text())["package"]
    return [(one["name"], one["version"], one["checksum"]) for one in packages if "source" in one]


def test_the_archive_has_what_a_build_needs(archive: Path, tmp_path: Path) -> None:
    """Both crate and Python sources, and the recorders with all the files that they read."""
    with tarfile.open(archive) as tar:
        unpack(tar, tmp_path)
    (top,) = tmp_path.iterdir()
    for file in ("LICENSE", "pyproject.toml", "native/Cargo.lock", "native/python/src/lib.rs"):
        assert (top / file).is_file(), file
    package = top / "src" / "schedscope" / "collectors"
    ours = {path.relative_to(ROOT / "collectors") for path in (ROOT / "collectors").rglob("*.sh")}
    theirs = {path.relative_to(package) for path in package.rglob("*.sh")}
    assert ours == theirs
    assert (package / "capture").is_file()


@pytest.mark.needs("bmake")
def test_bsd_make_reads_the_port(port: Path, tmp_path: Path) -> None:
    (tmp_path / "bsd.port.mk").write_text(FRAMEWORK)
    (tmp_path / "sys.mk").touch()
    done = subprocess.run(
        ["bmake", "-m", str(tmp_path), "show"], cwd=port, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    lines = done.stdout.splitlines()
    assert lines[0] == f"schedscope {version} BSD2CLAUSE cargo python:3.11+"
    printed = [line.split()[1] for line in lines if line.startswith("crate ")]
    assert printed == [f"{name}-{version}" for name, version, _ in lock()]
    assert "file sbin/schedscope-capture" in lines


def test_the_checksums_are_those_of_archive_and_lock(port: Path, archive: Path) -> None:
    lines = (port / "distinfo").read_text().splitlines()
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert lines[0].startswith("TIMESTAMP = ")
    assert lines[1] == f"SHA256 ({archive.name}) = {digest}"
    assert lines[2] == f"SIZE ({archive.name}) = {archive.stat().st_size}"
    expected = [f"SHA256 (rust/crates/{n}-{v}.crate) = {c}" for n, v, c in lock()]
    assert lines[3:] == expected


@pytest.fixture
def made(port: Path, archive: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs a target of the port with the archive as work directory; returns its output."""
    with tarfile.open(archive) as tar:
        unpack(tar, tmp_path)
    (work,) = tmp_path.iterdir()
    framework = tmp_path / "framework"
    framework.mkdir()
    (framework / "bsd.port.mk").touch()
    (framework / "sys.mk").touch()
    stage = tmp_path / "stage"
    (stage / "usr/local/sbin").mkdir(parents=True)
    words = [f"WRKSRC={work}", f"PYTHON_CMD={sys.executable}", f"STAGEDIR={stage}"]
    words += ["PREFIX=/usr/local", "CHMOD=chmod", "BINMODE=755", "SH=sh", f"WRKDIR={tmp_path}"]

    def run(target: str, *more: str, failing: str = "") -> str:
        done = subprocess.run(
            ["bmake", "-m", str(framework), *words, *more, target],
            cwd=port, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0 or (failing and failing in done.stdout), done.stderr
        return done.stdout

    return run


@pytest.mark.needs("bmake")
def test_the_port_installs_a_recorder_that_runs(made: Callable[..., str], tmp_path: Path) -> None:
    made("post-install")
    program = tmp_path / "stage/usr/local/sbin/schedscope-capture"
    shown = subprocess.run([str(program), "--version"], capture_output=True, text=True)
    assert shown.stdout == "capture 1\n"


@pytest.mark.records
@pytest.mark.needs("bmake", "root", "tracefs", "linux")
def test_make_test_runs_the_recorders_self_test(made: Callable[..., str], tmp_path: Path) -> None:
    made("post-install")
    # A busy host's kernel may omit a switch from its events, which is no fault of the port.
    report = made("do-test", "SELF_TEST_FLAGS=-t ftrace -d 3", failing="result: FAILED")
    for check in ("every probe fired", "the load ran to its end", "hog: involuntary switches"):
        assert f"ok      {check}" in report
    assert (tmp_path / "self-test" / "ftrace.capture").is_dir()


def test_the_description_fits_its_page() -> None:
    lines = (PORT / "pkg-descr").read_text().splitlines()
    assert max(map(len, lines)) <= 80
    comment = next(
        line for line in (PORT / "Makefile").read_text().splitlines() if line.startswith("COMMENT")
    )
    assert len(comment.split("\t")[1]) <= 70
