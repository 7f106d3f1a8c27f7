"""Damaged input ends in the right answer or in one sentence.

There is never a traceback, a hang, a dead process or an impossible number. Every command is run
over folders and files that `mutate` damaged. A few hundred cases by default;
`SCHEDSCOPE_DOOR_CASES=5000 SCHEDSCOPE_DOOR_SEED=7` for a hunt.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mutate
import pytest
from parsers_of_commands import required, selects

import schedscope as ss
from schedscope.cli import commands

FIXTURES = Path(__file__).parents[2] / "fixtures"
WORKER = Path(__file__).parents[1] / "door_worker.py"
CASES = int(os.environ.get("SCHEDSCOPE_DOOR_CASES", "90"))
SEED = int(os.environ.get("SCHEDSCOPE_DOOR_SEED", "1"))
PATIENCE = 60.0
ROOM_KB = 1_500_000

# What these ask for is in few traces; it serves until Ctrl-C; it needs a change to ask about.
RARE = {"requests", "dispatch-queues", "view", "whatif"}
WRITING = [
    "export --to perfetto -f -o OUT", "export --to trace.dat -f -o OUT",
    "export --to chrome -f -o OUT", "export --to csv -f -o OUT",
    "timeline -f -o OUT", "report -f -o OUT", "convert -f -o OUT",
]  # fmt: skip
# Arguments of each command for a trace, and for a part of one.
ASKED = [
    *(
        name
        for name in sorted(set(commands()) - RARE)
        if required(name) == ["input"] and selects(name)
        # Those would write into the current folder.
        and not any(words.startswith(name) for words in WRITING)
    ),
    "critical-path --utid 5", "wake-chain --utid 5",
    "affinity --returns", "work-conservation --episodes", "virtual-lag --series",
    "latency --by service,cgroup,process", "interference --by service",
    "latency --by tid --kaplan-meier", "latency --definition perf", "latency --since 1ms",
    "queue-depth --every 1ms", "check --since 1ms --until 20ms", "simulate --stop-at 10ms",
]  # fmt: skip


class Worker:
    """A process that runs commands, restarted when one ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, words: list[str]) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).parents[1].joinpath("door_worker.py")),
                    str(PATIENCE),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        process = self._process
        assert None not in (process.stdin, process.stdout, process.stderr)
        process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            process.wait()
            return {"dead": f"exit {process.returncode}: {process.stderr.read()[-1500:]}"}
        answer: dict[str, Any] = json.loads(line)
        if answer["peak_kb"] > ROOM_KB:
            self.close()
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The inputs to be damaged: two traces, the first as tables too, a workload, an rt-app file."""
    place = tmp_path_factory.mktemp("sound")
    source = FIXTURES / "linux-ftrace-mixed.capture"
    whole = ss.convert(source, tmp_path_factory.mktemp("whole") / "one.sched")
    trace = whole.between("10ms", "40ms")
    trace.to_sched(place / "one.sched")
    ss.convert(FIXTURES / "linux-trace-cmd-yield.dat", place / "own.sched")
    ss.convert(FIXTURES / "freebsd-ule-synthetic.capture", place / "other.sched")
    for suffix in ("csv", "parquet"):
        folder = place / suffix
        ss.export(trace, folder, suffix)
        about = json.loads((folder / "trace.json").read_text())
        kept = {key: about[key] for key in ("ncpu", "window", "os", "release", "warnings")}
        (folder / "trace.json").write_text(json.dumps(kept))
        for name in ("states", "waits"):
            (folder / f"{name}.{suffix}").unlink()
    workload = ss.workload.web(3)
    workload.save(place / "web.workload")
    document, _ = ss.workload.to_rtapp(workload)
    document["tasks"]["looping"] = {"loop": 3, "run": 100, "timer": {"period": 1000}}
    (place / "rt.json").write_text(json.dumps(document))
    return {path.name: path for path in place.iterdir()}


def judge(worker: Worker, words: list[str], normal: dict[str, set[str]]) -> list[str]:
    """What is wrong with the answer to a command."""
    result = worker.run(words)
    if "dead" in result:
        return [f"the process died: {result['dead']}"]
    code, out, err = result["code"], result["out"], result["err"]
    found = []
    if code not in (0, 1, 2):
        found.append(f"exit code {code}")
    for sign in ("Traceback", "internal error", "panicked", "RuntimeWarning"):
        if sign in err + out:
            found.append(f"{sign}: {err[-400:]}")
    said = [line for line in err.splitlines() if line]
    # These two exit with 1: the trace is wrong, and the table shows where.
    answers = words[0] == "validate" or (words[0] == "check" and code == 1 and "violated" in out)
    if code and not answers and not (len(said) == 1 and said[0].startswith("schedsc")):
        found.append(f"exit {code} and {len(said)} lines: {err[-400:]!r}")
    if not (out + err).replace("\n", "").isprintable():
        found.append("control characters on their way to the terminal")
    if result["peak_kb"] > ROOM_KB:
        found.append(f"{result['peak_kb'] // 1000} MB")
    if code == 0 and "json" in words:
        try:
            found += implausible(words[0], json.loads(out), normal)
        except ValueError as error:
            found.append(f"not JSON: {error}")
    return found


def rows_of(document: Any) -> list[dict[str, Any]]:
    rows = document.get("rows")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def implausible(command: str, document: Any, normal: dict[str, set[str]]) -> list[str]:
    """Numbers in the rows that must not be negative, or as large."""
    found = []
    for row in rows_of(document):
        for name, value in row.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if value < 0 and name not in normal.get(command, set()):
                found.append(f"{name} is {value}")
            if abs(value) >= 2**62 and not name.startswith("ts"):
                found.append(f"{name} is {value}")
    return found[:3]


def signed(worker: Worker, asked: list[str], source: Path) -> dict[str, set[str]]:
    """Columns of each command with negative values in sound traces."""
    found: dict[str, set[str]] = {"fairness": {"lag", "lag_high", "lag_max", "lag_min"}}
    for words in asked:
        command, *options = words.split()
        result = worker.run([command, str(source), *options, "--format", "json"])
        assert result["code"] == 0, (words, result["err"])
        rows = rows_of(json.loads(result["out"]))
        names = {n for row in rows for n, v in row.items() if isinstance(v, int | float) and v < 0}
        found.setdefault(command, set()).update(names)
    return found


def campaign(
    worker: Worker,
    sound: Path,
    tmp_path: Path,
    cases: int,
    damage: Callable[[random.Random, Path], str],
    ask: Callable[[random.Random, Path], list[list[str]]],
    normal: dict[str, set[str]],
) -> None:
    failures = []
    for case in range(cases):
        rng = random.Random(f"{SEED} {sound.name} {case}")
        target = tmp_path / sound.name
        if sound.is_dir():
            shutil.copytree(sound, target)
        else:
            shutil.copy(sound, target)
        how = damage(rng, target)
        for words in ask(rng, target):
            wrong = judge(worker, words, normal)
            if wrong:
                failures.append(f"case {case} ({how}): {' '.join(words)}: {'; '.join(wrong)}")
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()
        left = [path.name for path in tmp_path.iterdir() if path.name != "out"]
        if left:
            failures.append(f"case {case} ({how}): left behind: {left}")
    assert not failures, f"{len(failures)} of {cases} cases:\n" + "\n".join(failures[:40])


@pytest.mark.parametrize("name", ["one.sched", "own.sched"])
def test_damaged_traces_are_refused_or_answered(
    name: str, worker: Worker, sound: dict[str, Path], tmp_path: Path
) -> None:
    normal = signed(worker, [words for words in ASKED if "simulate" not in words], sound[name])

    def ask(rng: random.Random, folder: Path) -> list[list[str]]:
        chosen = []
        for words in [
            *rng.sample(ASKED, 2),
            *(rng.sample(WRITING, 1) if rng.random() < 0.3 else []),
        ]:
            command, *options = words.split()
            options = [str(tmp_path / "out") if word == "OUT" else word for word in options]
            form = (
                []
                if words in WRITING
                else ["--format", rng.choice(["json", "json", "table", "csv"])]
            )
            chosen.append([command, str(folder), *options, *form])
        return chosen

    other = sound["other.sched"]
    campaign(
        worker, sound[name], tmp_path, CASES // 3, lambda rng, path: mutate.sched(rng, path, other),
        ask, normal,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_damaged_tables_are_refused_or_answered(
    name: str, worker: Worker, sound: dict[str, Path], tmp_path: Path
) -> None:
    def ask(rng: random.Random, folder: Path) -> list[list[str]]:
        command = rng.choice(["latency", "check", "fairness"])
        return [
            ["validate", str(folder), "--format", rng.choice(["table", "json", "csv"])],
            [command, str(folder), "--format", "json"],
        ]

    campaign(
        worker,
        sound[name],
        tmp_path,
        CASES // 8,
        mutate.tables,
        ask,
        {"fairness": {"lag", "lag_high"}},
    )


def test_damaged_workloads_are_refused_or_answered(
    worker: Worker, sound: dict[str, Path], tmp_path: Path
) -> None:
    def ask(rng: random.Random, folder: Path) -> list[list[str]]:
        policy = rng.choice(["eevdf-6.12", "ule-14", "rr"])
        limits = ["--stop-at", "20ms", "--max-events", "100000"]
        return [["simulate", str(folder), "--policy", policy, *limits, "--format", "json"]]

    campaign(worker, sound["web.workload"], tmp_path, CASES // 8, mutate.workload, ask, {})


def test_damaged_rt_app_files_are_refused_or_answered(
    worker: Worker, sound: dict[str, Path], tmp_path: Path
) -> None:
    def ask(rng: random.Random, path: Path) -> list[list[str]]:
        limits = rng.choice([["--stop-at", "20ms", "--max-events", "100000"], []])
        return [["simulate", str(path), "--policy", "rr", *limits, "--format", "json"]]

    campaign(worker, sound["rt.json"], tmp_path, CASES // 16, mutate.json_file(""), ask, {})
