"""Would a test notice? Mutants of a module, each run against the tests that should.

    pip install --group research
    python -m research.mutants analysis/waits/wait_bounds.py tests/analysis/test_hidden_waits.py \
        --share 40 --seed 1 --write

Cosmic Ray makes the mutants: `<` for `<=`, `+` for `-`, `and` for `or`, a number more by one. They
are made in a second working tree of the commit, so the checkout stays as it is. `--share` of them
are drawn by `--seed`, so that another seed tries others. One that no test notices is printed as a
diff: either a test is missing, or the change makes no difference that anyone could see.
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
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from research.results import keep

ROOT = Path(__file__).parents[1]
TABLE = "mutants"
LIMIT = 300
"""Seconds that the tests may take with one mutant; an endless loop is noticed so."""

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


def tried(tree: Path, module: str, tests: Sequence[str], share: int, seed: int) -> list[Mutant]:
    """Some mutants of a module in the working tree `tree`, each with its tests' verdict."""
    session, config = tree / "mutants.sqlite", tree / "mutants.toml"
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    config.write_text(
        f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = {LIMIT}\nexcluded-modules = []\n'
        f'test-command = "{" ".join(words)}"\n[cosmic-ray.distributor]\nname = "local"\n'
    )
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{tree / 'src'}"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cosmic_ray.cli", *words],
            cwd=tree, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"cosmic-ray {words[0]} failed: {done.stderr.strip()[-500:]}")
        return done.stdout

    whole = subprocess.run(words, cwd=tree, env=environment, capture_output=True, check=False)
    if whole.returncode:
        raise SystemExit(f"the tests fail without a mutant: {whole.stdout.decode()[-500:]}")
    run("init", config.name, session.name)
    _draw(session, _annotated(tree / module), share, seed)
    run("exec", config.name, session.name)
    return sorted(_read(run("dump", session.name)))


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
    parser.add_argument("tests", nargs="+", help="the tests that should notice")
    parser.add_argument("--share", type=int, default=40, help="so many mutants (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="which of them (default: 1)")
    parser.add_argument("--write", action="store_true", help="keep the counts")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), "HEAD"], check=True)
        try:
            for engine in (ROOT / "src" / "schedscope").glob("_native*.so"):
                shutil.copy2(engine, tree / "src" / "schedscope")
            mutants = tried(tree, options.module, options.tests, options.share, options.seed)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    left = [mutant for mutant in mutants if not mutant.noticed]
    for mutant in left:
        print(f"{options.module}:{mutant.line} {mutant.operator}\n{mutant.diff}\n")
    print(f"{len(mutants) - len(left)} of {len(mutants)} mutants of {options.module} were noticed")
    if options.write:
        row = {
            "module": options.module,
            "seed": options.seed,
            "tried": len(mutants),
            "noticed": len(mutants) - len(left),
            "not noticed, lines": " ".join(str(mutant.line) for mutant in left),
            "on": datetime.now(UTC).date().isoformat(),
        }
        keep(TABLE, [{name: str(value) for name, value in row.items()}], key="module")
    return 0


if __name__ == "__main__":
    sys.exit(main())
