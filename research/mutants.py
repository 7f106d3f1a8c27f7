"""Would a test notice? Mutants of a module, each run against the tests that should.

    pip install --group research
    python -m research.mutants analysis/waits/wait_bounds.py tests/analysis/test_hidden_waits.py \
        --share 40 --seed 1 --write
    cargo install --locked cargo-mutants
    python -m research.mutants native/trace/src/reconstruct/holes.rs tests/reconstruct --share 20

Cosmic Ray makes the mutants of Python: `<` for `<=`, `+` for `-`, `and` for `or`, a number more by
one. cargo-mutants makes those of Rust, and `cargo test` of the crate runs first; only what that
does not notice is built into the engine for the tests in Python. Without any, the crate's own are
all. Mutants are made in a second working tree of the commit, so the checkout stays as it is.
`--share` of them are drawn by `--seed`, so that another seed tries others. One that no test notices
is printed as a diff: either a test is missing, or the change makes no difference that anyone could
see.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from research.results import keep

ROOT = Path(__file__).parents[1]
TABLE = "mutants"
LIMIT = 300
"""Seconds that the tests may take with one mutant; an endless loop is noticed so."""

BUILT = ROOT / "native" / "target" / "mutants"
"""Where mutants are compiled, so that crates of others need it once."""

ABSURD = re.compile(
    r"RShift|LShift|BitXor|Pow|FloorDiv|Mod|DecoratorRemover|_Is"
    r"|_Bit(Or|And)_(?!Bit)|(Add|Sub|Mul|Div)_Bit"
)
"""Operators that nobody writes by mistake: they only cost time."""


class Mutant(NamedTuple):
    """One change of the source, and whether the tests failed with it."""

    line: int
    operator: str
    noticed: bool
    diff: str
    by_crate: bool = False
    """The tests of its own crate noticed it."""


class Tests(NamedTuple):
    """Tests in Python, which may be none, and the working tree in which they run."""

    tree: Path
    paths: Sequence[str]

    @property
    def command(self) -> list[str]:
        """What runs them until one fails."""
        return [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *self.paths]

    @property
    def environment(self) -> dict[str, str]:
        """That of all programs that run in the tree."""
        return {**os.environ, "PYTHONPATH": f"{self.tree}:{self.tree / 'src'}"}

    def fail(self, command: Sequence[str] | None = None) -> str:
        """Why the tests, or another command, fail; empty if they do not."""
        try:
            done = subprocess.run(
                command or self.command, cwd=self.tree, env=self.environment, timeout=LIMIT,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"they take longer than {LIMIT} s"
        return (done.stdout[-500:] or "failed") if done.returncode else ""


def tried(tests: Tests, module: str, share: int, seed: int) -> list[Mutant]:
    """Some mutants of a module in the tests' working tree, each with the tests' verdict."""
    if tests.paths and (why := tests.fail()):
        raise SystemExit(f"the tests fail without a mutant: {why}")
    of_language = _of_rust if module.endswith(".rs") else _of_python
    return sorted(of_language(tests, module, share, seed))


def _of_rust(tests: Tests, module: str, share: int, seed: int) -> list[Mutant]:
    """Those that build, each tried in the order in which it was drawn."""
    package = Path(module).parts[1]
    listed = subprocess.run(
        ["cargo", "mutants", "--dir", "native", "--list", "--json", "--diff",
         "--file", str(Path(module).relative_to("native"))],
        cwd=tests.tree, capture_output=True, text=True, check=True,
    )  # fmt: skip
    drawn = json.loads(listed.stdout)
    random.Random(seed).shuffle(drawn)
    cargo = ["env", "CARGO_INCREMENTAL=1", f"CARGO_TARGET_DIR={BUILT}", "cargo"]
    quick = ["--locked", "--profile", "quick", "--manifest-path", "native/Cargo.toml", "-p"]
    own = [*cargo, "test", *quick, f"schedscope-{package}", "--lib"]
    engine = [
        *("env", f"PYO3_PYTHON={sys.executable}", "PYO3_BUILD_EXTENSION_MODULE=1"),
        *(*cargo, "build", *quick, "schedscope-python"),
    ]
    if why := tests.fail(own):
        raise SystemExit(f"the crate's tests fail without a mutant: {why}")
    source = tests.tree / module
    whole = source.read_text()
    [library] = (tests.tree / "src" / "schedscope").glob("_native*.so")
    found: list[Mutant] = []
    for one in drawn:
        if len(found) == share:
            break
        source.write_text(_changed(whole, one["span"], one["replacement"]))
        if not tests.fail([*own, "--no-run"]):
            by_crate = noticed = bool(tests.fail(own))
            if not by_crate and tests.paths:
                if why := tests.fail(engine):
                    raise SystemExit(f"the engine does not build: {why}")
                shutil.copy2(BUILT / "quick" / "lib_native.so", library)
                noticed = bool(tests.fail())
            line = one["span"]["start"]["line"]
            found.append(Mutant(line, one["genre"], noticed, one["diff"], by_crate))
        source.write_text(whole)
    return found


def _changed(text: str, span: Mapping[str, Mapping[str, int]], replacement: str) -> str:
    """The text with what is between two places replaced; lines and columns count from 1."""
    starts = [0, *accumulate(map(len, text.splitlines(keepends=True)))]
    first, last = (
        starts[span[edge]["line"] - 1] + span[edge]["column"] - 1 for edge in ("start", "end")
    )
    return text[:first] + replacement + text[last:]


def _of_python(tests: Tests, module: str, share: int, seed: int) -> list[Mutant]:
    tree, environment = tests.tree, tests.environment
    session, config = tree / "mutants.sqlite", tree / "mutants.toml"
    config.write_text(
        f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = {LIMIT}\nexcluded-modules = []\n'
        f'test-command = "{" ".join(tests.command)}"\n'
        '[cosmic-ray.distributor]\nname = "local"\n'
    )

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cosmic_ray.cli", *words],
            cwd=tree, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"cosmic-ray {words[0]} failed: {done.stderr.strip()[-500:]}")
        return done.stdout

    run("init", config.name, session.name)
    _draw(session, _annotated(tree / module), share, seed)
    run("exec", config.name, session.name)
    return _read(run("dump", session.name))


def _annotated(source: Path) -> set[int]:
    """Lines of annotations, of which `X & None` for `X | None` means nothing."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        notes = [getattr(node, name, None) for name in ("annotation", "returns")]
        for note in filter(None, notes):
            lines |= set(range(note.lineno, (note.end_lineno or note.lineno) + 1))
    return lines


def _draw(session: Path, besides: set[int], share: int, seed: int) -> None:
    """Leaves so many mutants in the session, but none on lines `besides`."""
    with closing(sqlite3.connect(session)) as file, file:
        # The job's number is random: the order is that of the source.
        rows = file.execute(
            "select job_id, operator_name, start_pos_row from mutation_specs"
            " order by start_pos_row, start_pos_col, operator_name, occurrence"
        ).fetchall()
        jobs = [job for job, name, line in rows if line not in besides and not ABSURD.search(name)]
        random.Random(seed).shuffle(jobs)
        chosen = set(jobs[:share])
        for job, *_ in rows:
            if job not in chosen:
                file.execute("delete from mutation_specs where job_id = ?", (job,))
                file.execute("delete from work_items where job_id = ?", (job,))


def _read(dump: str) -> list[Mutant]:
    mutants = []
    for item, result in map(json.loads, dump.splitlines()):
        [mutation] = item["mutations"]
        mutants.append(
            Mutant(
                line=mutation["start_pos"][0],
                operator=mutation["operator_name"].removeprefix("core/"),
                noticed=result["test_outcome"] != "survived",
                diff=result["diff"] or "",
            )
        )
    return mutants


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries mutants of one module, prints those that survive, and keeps the counts if asked."""
    parser = argparse.ArgumentParser(description="Would a test notice?")
    parser.add_argument("module", help="the file, from the top of the checkout")
    parser.add_argument("tests", nargs="*", help="the tests that should notice")
    parser.add_argument("--share", type=int, default=40, help="so many mutants (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="which of them (default: 1)")
    parser.add_argument("--write", action="store_true", help="keep the counts")
    options = parser.parse_args(arguments)
    rust = options.module.endswith(".rs")
    if not (options.tests or rust):
        parser.error("only a crate has tests of its own: name the tests of this module")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), "HEAD"], check=True)
        try:
            for engine in (ROOT / "src" / "schedscope").glob("_native*.so"):
                shutil.copy2(engine, tree / "src" / "schedscope")
            tests = Tests(tree, options.tests)
            mutants = tried(tests, options.module, options.share, options.seed)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    left = [mutant for mutant in mutants if not mutant.noticed]
    for mutant in left:
        print(f"{options.module}:{mutant.line} {mutant.operator}\n{mutant.diff}\n")
    print(f"{len(mutants) - len(left)} of {len(mutants)} mutants of {options.module} were noticed")
    if options.write:
        row = {
            "module": options.module,
            "tests": " ".join(options.tests),
            "seed": options.seed,
            "tried": len(mutants),
            "noticed": len(mutants) - len(left),
            "by its crate's own tests": sum(one.by_crate for one in mutants) if rust else "",
            "not noticed, lines": " ".join(str(mutant.line) for mutant in left),
            "on": datetime.now(UTC).date().isoformat(),
        }
        keep(TABLE, [{name: str(value) for name, value in row.items()}], key="module")
    return 0


if __name__ == "__main__":
    sys.exit(main())
