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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from research.results import keep

ROOT = Path(__file__).parents[1]
TABLE = "mutants"
LIMITED, HUNG = ["prlimit", "--cpu=300"], 3600
"""CPU seconds of a process of the tests, by which an endless loop is noticed on a busy machine as
well; and seconds after which all of them are."""

BUILT = ROOT / "native" / "target" / "mutants"
"""Where mutants are compiled, so that crates of others need it once."""

ABSURD = re.compile(
    r"RShift|LShift|BitXor|Pow|FloorDiv|Mod|DecoratorRemover|_Is"
    r"|_Bit(Or|And)_(?!Bit)|(Add|Sub|Mul|Div)_Bit"
)
"""Operators that nobody writes by mistake: they only cost time."""

PLAIN = {"()", "Ok(())", "None", "true", "false", "vec![]"}
"""What a Rust function gives instead, if it does nothing: its other values only cost time."""


VARIABLE = "SCHEDSCOPE_MUTANT"
"""Which mutant of an engine that has many acts."""


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
        return [
            *LIMITED,
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            *self.paths,
        ]

    @property
    def environment(self) -> dict[str, str]:
        """That of all programs that run in the tree."""
        return {**os.environ, "PYTHONPATH": f"{self.tree}:{self.tree / 'src'}"}

    def fail(self, command: Sequence[str] | None = None, mutant: int = 0) -> str:
        """Why the tests, or another command, fail with a mutant; empty if they do not."""
        try:
            done = subprocess.run(
                command or self.command, cwd=self.tree, timeout=HUNG,
                env={**self.environment, VARIABLE: str(mutant)},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"they take longer than {HUNG} s"
        return (done.stdout or "failed") if done.returncode else ""


Found = Iterator[tuple[str, list[Mutant]]]


def tried(tests: Tests, modules: Sequence[str], share: int, seed: int) -> Found:
    """Some mutants of each module in the tests' working tree, each with the tests' verdict."""
    if tests.paths and (why := tests.fail()):
        raise SystemExit(f"the tests fail without a mutant: {why[-500:]}")
    if modules[0].endswith(".rs"):
        yield from _of_rust(tests, modules, share, seed)
    else:
        for module in modules:
            yield module, sorted(_of_python(tests, module, share, seed))


def _of_rust(tests: Tests, modules: Sequence[str], share: int, seed: int) -> Found:
    """All mutants are compiled into one engine, and the environment says which of them acts."""
    settings = [f"CARGO_TARGET_DIR={BUILT}", "CARGO_PROFILE_DEV_DEBUG=0"]
    settings += [f"PYO3_PYTHON={sys.executable}", "PYO3_BUILD_EXTENSION_MODULE=1"]

    def cargo(verb: str, crate: str, *words: str) -> list[str]:
        where = ["--manifest-path", "native/Cargo.toml", "--locked", "-q", "-p"]
        return ["env", *settings, "cargo", verb, *where, f"schedscope-{crate}", *words]

    drawn: dict[str, dict[int, Any]] = {}
    for module in modules:
        first = 1 + sum(map(len, drawn.values()))
        drawn[module] = dict(enumerate(_listed(tests.tree, module, share, seed), first))
    crates = sorted({Path(module).parts[1] for module in modules})
    builds = [cargo("test", crate, "--lib", "--no-run", SHORT) for crate in crates]
    builds += [cargo("build", "python", SHORT)] if tests.paths else []
    _make(tests, drawn, builds)
    by_crate: set[int] = set()
    for module, mutants in drawn.items():
        own = [*LIMITED, *cargo("test", Path(module).parts[1], "--lib")]
        if why := tests.fail(own):
            raise SystemExit(f"the crate's tests fail without a mutant: {why[-500:]}")
        by_crate |= {number for number in mutants if tests.fail(own, number)}
    noticed = set(by_crate)
    if tests.paths:
        [library] = (tests.tree / "src" / "schedscope").glob("_native*.so")
        shutil.copy2(BUILT / "debug" / "lib_native.so", library)
        if why := tests.fail():
            raise SystemExit(f"the tests fail in the engine without a mutant: {why[-500:]}")
        left = (number for mutants in drawn.values() for number in mutants)
        noticed |= {n for n in left if n not in by_crate and tests.fail(mutant=n)}
    for module, mutants in drawn.items():
        rows = (
            Mutant(
                one["span"]["start"]["line"], one["genre"], n in noticed, one["diff"], n in by_crate
            )
            for n, one in mutants.items()
        )
        yield module, sorted(rows)


def _listed(tree: Path, module: str, share: int, seed: int) -> list[Any]:
    """So many mutants of a module, drawn from those that cargo-mutants knows."""
    listed = subprocess.run(
        ["cargo", "mutants", "--dir", "native", "--list", "--json", "--diff",
         "--file", str(Path(module).relative_to("native"))],
        cwd=tree, capture_output=True, text=True, check=True,
    )  # fmt: skip
    drawn = [
        one for one in json.loads(listed.stdout)
        if (one["genre"] != "FnValue" or one["replacement"] in PLAIN)
        and one["function"]
        # Each arm of a match would be of another type.
        and not one["function"]["return_type"].startswith("-> impl")
    ]  # fmt: skip
    random.Random(seed).shuffle(drawn)
    return drawn[:share]


def _make(tests: Tests, drawn: Mapping[str, dict[int, Any]], builds: Sequence[list[str]]) -> None:
    """Writes the mutants into the modules' text. What does not compile is drawn no more."""
    whole = {module: (tests.tree / module).read_text() for module in drawn}
    while True:
        for module, mutants in drawn.items():
            (tests.tree / module).write_text(with_all(whole[module], mutants))
        why = next(filter(None, map(tests.fail, builds)), "")
        errors = re.findall(r"^(\S+?\.rs):(\d+):\d+: error", why, re.MULTILINE)
        if not errors:
            if why:
                raise SystemExit(f"the engine does not build: {why[-500:]}")
            return
        broken = set()
        for file, line in errors:
            before = (tests.tree / "native" / file).read_text().splitlines()[: int(line)]
            marks = re.findall(MARK.format(r"(\d+)"), "\n".join(before))
            broken.add(int(marks[-1]))
        if not broken - {0}:
            raise SystemExit(f"the engine does not build: {why[-500:]}")
        for mutants in drawn.values():
            for number in broken & mutants.keys():
                del mutants[number]


SHORT = "--message-format=short"
MARK = "/\\* mutant {} \\*/"
CHOSEN = f'''
fn chosen_mutant() -> u32 {{
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var("{VARIABLE}").map_or(0, |n| n.parse().unwrap()))
}}
'''


def with_all(text: str, mutants: Mapping[int, Any]) -> str:
    """The text of a module in which each function does as the mutant says that is chosen."""
    starts = [0, *accumulate(map(len, text.splitlines(keepends=True)))]

    def at(place: Mapping[str, int]) -> int:
        return starts[place["line"] - 1] + place["column"] - 1

    by_function: dict[tuple[int, int], dict[int, str]] = {}
    for number, one in mutants.items():
        place = one["function"]["span"]
        begin, end = at(place["start"]), at(place["end"])
        first, last = at(one["span"]["start"]), at(one["span"]["end"])
        changed = text[begin:first] + one["replacement"] + text[last:end]
        by_function.setdefault((begin, end), {})[number] = changed
    for (begin, end), changed in sorted(by_function.items(), reverse=True):
        body = _body(text[begin:end])
        arms = {**changed, 0: text[begin:end]}
        text = "".join(
            [
                text[: begin + body],
                "{ match chosen_mutant() {\n",
                *(f"{n or '_'} => /* mutant {n} */ {one[body:]},\n" for n, one in arms.items()),
                "} }",
                text[end:],
            ]
        )
    return text + CHOSEN


def _body(function: str) -> int:
    """Where the body of a function starts: at the first brace outside of parentheses."""
    depth = 0
    for at, letter in enumerate(function):
        depth += (letter in "([") - (letter in ")]")
        if letter == "{" and not depth:
            return at
    raise ValueError(function)


def _of_python(tests: Tests, module: str, share: int, seed: int) -> list[Mutant]:
    tree, environment = tests.tree, tests.environment
    session, config = tree / "mutants.sqlite", tree / "mutants.toml"
    config.write_text(
        f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = {HUNG}\nexcluded-modules = []\n'
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
    parser.add_argument(
        "paths", nargs="+", help="modules of one language, and the tests that should notice"
    )
    parser.add_argument("--share", type=int, default=40, help="so many of each (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="which of them (default: 1)")
    parser.add_argument("--write", action="store_true", help="keep the counts")
    options = parser.parse_args(arguments)
    paths = [path for path in options.paths if path.startswith("tests/")]
    modules = [path for path in options.paths if path not in paths]
    rust = [module.endswith(".rs") for module in modules]
    if not modules or any(rust) != all(rust) or not (paths or any(rust)):
        parser.error("give modules of one language, and, of Python, the tests that should notice")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), "HEAD"], check=True)
        try:
            for engine in (ROOT / "src" / "schedscope").glob("_native*.so"):
                shutil.copy2(engine, tree / "src" / "schedscope")
            for module, mutants in tried(Tests(tree, paths), modules, options.share, options.seed):
                _report(module, mutants)
                if options.write:
                    _keep(module, mutants, paths, options.seed)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    return 0


def _report(module: str, mutants: Sequence[Mutant]) -> None:
    left = [mutant for mutant in mutants if not mutant.noticed]
    for mutant in left:
        print(f"{module}:{mutant.line} {mutant.operator}\n{mutant.diff}\n")
    print(f"{len(mutants) - len(left)} of {len(mutants)} mutants of {module} were noticed")


def _keep(module: str, mutants: Sequence[Mutant], tests: Sequence[str], seed: int) -> None:
    left = [str(mutant.line) for mutant in mutants if not mutant.noticed]
    own = sum(one.by_crate for one in mutants) if module.endswith(".rs") else ""
    row = {
        "module": module,
        "tests": " ".join(tests),
        "seed": seed,
        "tried": len(mutants),
        "noticed": len(mutants) - len(left),
        "by its crate's own tests": own,
        "not noticed, lines": " ".join(left),
        "on": datetime.now(UTC).date().isoformat(),
    }
    keep(TABLE, [{name: str(value) for name, value in row.items()}], key="module")


if __name__ == "__main__":
    sys.exit(main())
