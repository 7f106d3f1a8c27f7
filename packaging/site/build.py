"""The site, into dist/site/: `make site`. Its pages are those of the repository, not copies.

After mkdocs, lychee follows every link within the finished site, the reference and the report
included.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAGED = ROOT / "build" / "site"
SITE = ROOT / "dist" / "site"
CAPTURE = ROOT / "fixtures" / "linux-ftrace-mixed.capture"


def run(*words: object) -> None:
    """A program, whose failure ends this one."""
    if subprocess.run([str(word) for word in words], cwd=ROOT).returncode:
        raise SystemExit(f"failed: {' '.join(map(str, words))}")


def main() -> None:
    """Stage, build, check."""
    python, tools = sys.executable, Path(sys.executable).parent
    shutil.rmtree(STAGED, ignore_errors=True)
    patterns = ("*.md", "*.ipynb", "docs/pictures/*.png", "LICENSE")
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True
    )
    for name in listed.stdout.splitlines():
        target = STAGED / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(ROOT / name)
    run(tools / "mkdocs", "build", "-q", "-f", Path(__file__).with_name("mkdocs.yml"))
    run(python, "docs/build_api.py", SITE / "api")
    run(python, "-m", "schedscope", "report", CAPTURE, "-f", "-o", SITE / "report.html")
    run(
        tools / "lychee",
        "--offline",
        "--include-fragments",
        "--no-progress",
        "--exclude-path=404.html",
        SITE,
    )
    pages = len(list(SITE.rglob("*.html")))
    print(f"wrote {SITE}: {pages} pages. To search: python -m http.server -d {SITE}")


if __name__ == "__main__":
    main()
