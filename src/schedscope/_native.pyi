"""Types of the native engine (native/python/src/)."""

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, Protocol

SCHEMA_VERSION: int

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

# Threads, the table, whether priorities are Linux's, numbers of the classes fair and realtime.
_Weights = tuple[_ArrowStream, list[int], bool, int, int]

class ArrowTable:
    """A table in memory: give it to `polars.DataFrame`."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...

class StoredTable:
    """Columns of a table in a `.sched` folder, for native code to read."""

    @staticmethod
    def open(
        folder: str | PathLike[str],
        table: str,
        columns: list[str],
        groups: tuple[int, int] | None = None,
    ) -> StoredTable | None: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

def overview(
    states: _ArrowStream,
    window: tuple[int, int],
    cpus: int,
    threads: int,
    idle: int,
    bins: tuple[int, int],
    chunk: int,
) -> tuple[list[bytes], ArrowTable]: ...
def recognise(path: str | PathLike[str]) -> str: ...
def formats() -> list[tuple[str, str, list[tuple[str, str]]]]: ...
def convert(
    path: str | PathLike[str],
    out_dir: str | PathLike[str],
    options: Mapping[str, str] | None = None,
    progress: Callable[[int, int], object] | None = None,
    layout: tuple[int | None, bool] = (None, False),
    jobs: int | None = None,
) -> str: ...
def crc32(path: str | PathLike[str], offset: int = 0, length: int | None = None) -> int: ...
def row_groups(
    path: str | PathLike[str],
) -> tuple[list[tuple[int, int, int, int, int, int]], int] | None: ...
def decode(
    path: str | PathLike[str],
    options: Mapping[str, str] | None = None,
    progress: Callable[[int, int], object] | None = None,
    only: list[str] | None = None,
    jobs: int | None = None,
) -> tuple[dict[str, ArrowTable], str]: ...
def lone_enqueues(wakeups: _ArrowStream) -> int: ...
def quickest_wakeups(
    waits: _ArrowStream, window: tuple[int, int], parts: int, shown: int
) -> ArrowTable: ...
def reconstruct(
    facts: Mapping[str, _ArrowStream],
    ncpu: int,
    window: tuple[int, int] | None = None,
    chunk: int | None = None,
    linux: bool = True,
    clocks: tuple[list[int], int | None, int] | None = None,
    uncounted: bool = False,
    chosen: list[int] | None = None,
    habits: list[int] | None = None,
) -> dict[str, Any]: ...
def definition_figures(
    frames: Mapping[str, _ArrowStream], ncpu: int, names: list[str]
) -> list[dict[str, Any]]: ...
def ledger_figures(waits: _ArrowStream) -> dict[str, Any]: ...
def definition_waits(frames: Mapping[str, _ArrowStream], ncpu: int, name: str) -> ArrowTable: ...
def write_perfetto(
    path: str | PathLike[str],
    host: tuple[str, str, str],
    ncpu: int,
    clock: tuple[int, tuple[int, int] | None],
    blocks: Iterable[tuple[Mapping[str, _ArrowStream], list[str]]],
) -> None: ...
def count_events(
    path: str | PathLike[str], options: Mapping[str, str] | None = None
) -> tuple[dict[str, int], dict[tuple[str, int], int]]: ...
def write_trace_dat(
    blocks: Iterable[Mapping[str, _ArrowStream]],
    path: str | PathLike[str],
    ncpu: int,
    options: Mapping[str, str] | None = None,
) -> dict[str, int]: ...
def synthesize_trace_dat(
    path: str | PathLike[str],
    events: int,
    ncpu: int = 4,
    threads: int = 200,
    seed: int = 1,
    options: Mapping[str, str] | None = None,
) -> None: ...
def derived_columns() -> list[tuple[str, str, str, list[tuple[str, int]]]]: ...
def declared_tables() -> list[tuple[str, str, ArrowTable, list[tuple[bool, str]]]]: ...
def as_table(object: _ArrowStream) -> ArrowTable: ...

class SimWorld:
    """What a policy written in Python sees; answers only inside its hooks."""

    @property
    def now(self) -> int: ...
    @property
    def ncpu(self) -> int: ...
    @property
    def nthreads(self) -> int: ...
    def nice(self, t: int) -> int: ...
    def sched_class(self, t: int) -> str: ...
    def rt_prio(self, t: int) -> int: ...
    def state(self, t: int) -> str: ...
    def cpu_of(self, t: int) -> int: ...
    def last_cpu(self, t: int) -> int | None: ...
    def slept(self, t: int) -> int: ...
    def slept_on_disk(self, t: int) -> bool: ...
    def burst_left(self, t: int) -> int: ...
    def allowed(self, t: int, cpu: int) -> bool: ...
    def cpus_for(self, t: int) -> list[int]: ...
    def idle_for(self, t: int) -> int | None: ...
    def is_idle(self, cpu: int) -> bool: ...
    def running(self, cpu: int) -> int | None: ...
    def nr_queued(self, cpu: int) -> int: ...
    def distance(self, a: int, b: int) -> str: ...
    def take_run(self, cpu: int) -> int: ...
    def resched(self, cpu: int, why: str = "preempted") -> None: ...
    def arm_timer(self, id: int, at: int) -> None: ...
    def disarm_timer(self, id: int) -> None: ...
    def migrate(self, t: int, to: int) -> None: ...
    def random(self, n: int) -> int: ...
    def record(self, series: int, t: int, value: float) -> None: ...
    def record_cpu(self, series: int, cpu: int, value: float) -> None: ...

def policies() -> list[dict[str, Any]]: ...
def simulate(
    threads: _ArrowStream,
    steps: _ArrowStream,
    masks: list[list[int]],
    names: list[str],
    policy: object,
    options: Mapping[str, Any],
    progress: Callable[[int, int], object] | None = None,
) -> tuple[dict[str, ArrowTable], str, dict[str, list[Any]]]: ...
def interactivity(
    scheduler: str,
    given: list[tuple[str, str]],
    frames: Mapping[str, _ArrowStream],
    window: tuple[int, int],
    phase: int | None = None,
    series: bool = False,
    ncpu: int = 1,
) -> tuple[ArrowTable, ArrowTable]: ...
def virtual_lag(
    scheduler: str,
    given: list[tuple[str, str]],
    frames: Mapping[str, _ArrowStream],
    sharing: tuple[_Weights, list[bool]],
    window: tuple[int, int],
    ncpu: int,
    phase: int = 0,
    series: bool = False,
) -> tuple[ArrowTable, ArrowTable, list[tuple[int, bool]]]: ...
def memberships(
    threads: _ArrowStream,
    known: list[str | None],
    moves: list[tuple[int, int, str | None, str]],
) -> list[tuple[int, int | None, str | None]]: ...
def discordance(first: list[int], second: list[int], apart: int) -> tuple[int, int]: ...
def extract(
    facts: Mapping[str, _ArrowStream],
    ncpu: int,
    window: tuple[int, int],
    absolute: bool,
    extend_cut: bool,
    linux_priorities: bool,
    has_waking: bool,
    drop: list[int],
    page: int,
    clock: tuple[int, int] | None,
) -> tuple[
    ArrowTable,
    dict[str, list[int | None]],
    list[tuple[int | None, int, int, int | None]],
    dict[str, Any],
]: ...

class CpuHistory:
    """Who ran on each CPU and who waited for it, read once (analysis/cpus/occupancy.py)."""

    def __init__(
        self,
        states: _ArrowStream,
        window: tuple[int, int],
        idle: int,
        weights: _Weights | None = None,
    ) -> None: ...
    @property
    def cpus(self) -> list[int]: ...
    @property
    def threads(self) -> int: ...
    @property
    def waiting(self) -> tuple[int, int]: ...
    def levels(self, numbers: list[int], machine: bool) -> ArrowTable: ...
    def parts(self, numbers: list[int], machine: bool, step: int) -> ArrowTable: ...
    def depth_sums(
        self, numbers: list[int], step: int
    ) -> list[tuple[int | None, tuple[bytes, bytes, bytes]]]: ...
    def idle(
        self, allowed: Mapping[str, object], least: int, top: int | None
    ) -> tuple[dict[str, int], ArrowTable, ArrowTable, ArrowTable, ArrowTable]: ...
    def episodes(
        self,
        allowed: Mapping[str, object],
        stretches: _ArrowStream,
        waits: _ArrowStream,
        most: int | None,
    ) -> tuple[ArrowTable, ArrowTable, ArrowTable, ArrowTable]: ...
    def interference(
        self,
        asked: _ArrowStream,
        group: list[int],
        ngroups: int,
        numbers: list[int],
        waits: _ArrowStream,
        parts: int,
    ) -> tuple[ArrowTable, ArrowTable]: ...
    def wait_breakdown(
        self,
        asked: _ArrowStream,
        nvictims: int,
        obstacles: Mapping[str, object],
        longest: int,
    ) -> tuple[ArrowTable, ArrowTable]: ...
    def episode_interference(
        self, strict_to: int, episodes: list[tuple[int, int, int, list[int]]]
    ) -> tuple[ArrowTable, ArrowTable, ArrowTable, list[int | None]]: ...
    def due(self, sharing: Mapping[str, object]) -> ArrowTable: ...
    def shortfalls(
        self, sharing: Mapping[str, object], chosen: list[bool], bound: float
    ) -> ArrowTable: ...
    def lag(
        self,
        sharing: Mapping[str, object],
        chosen: list[bool],
        instants: list[int] | None = None,
        most: int = ...,
    ) -> tuple[int, ArrowTable]: ...
    def due_in(
        self,
        sharing: Mapping[str, object],
        more: Callable[[ArrowTable | None], _ArrowStream | None],
    ) -> None: ...

def accounting(
    states: _ArrowStream, window: tuple[int, int], idle: int, own: list[int]
) -> tuple[list[tuple[int | None, int, int]], int, int, ArrowTable, bool, bool]: ...
def levels_of(weights: _Weights, asked: _ArrowStream) -> ArrowTable: ...
def critical_path(
    part: Callable[[int], tuple[_ArrowStream, _ArrowStream, int]],
    interval: tuple[int, int],
    utid: int,
    idle: int,
    parents: list[int | None],
) -> ArrowTable: ...
def migration_agreement(
    waits: _ArrowStream, reports: _ArrowStream, idle: int
) -> dict[str, int] | None: ...
def time_in_parts(
    spans: _ArrowStream,
    window: tuple[int, int],
    step: int,
    only: tuple[int, int] | None = None,
) -> list[int]: ...
def rows_in_parts(rows: _ArrowStream, window: tuple[int, int], step: int) -> list[int]: ...
def sleeps_before(states: _ArrowStream, asked: _ArrowStream) -> ArrowTable: ...

class SleepsBefore:
    """The same, asked as the waits follow each other."""

    def __init__(self, states: _ArrowStream) -> None: ...
    def of(self, asked: _ArrowStream) -> ArrowTable: ...
    def ordered(self) -> bool: ...

def run_sums(states: _ArrowStream, window: tuple[int, int]) -> ArrowTable: ...
def wait_sums(waits: _ArrowStream) -> ArrowTable: ...
def run_lengths(
    states: _ArrowStream,
    switches: _ArrowStream,
    window: tuple[int, int],
    idle: int,
    grouping: Mapping[str, object],
) -> ArrowTable: ...
def group_times(
    batches: Callable[[], Iterable[_ArrowStream]],
    shares: list[tuple[int, int]],
    *,
    ranked: list[str],
    summed: list[str] = ...,
    counted: list[str] = ...,
    first: str | None = None,
) -> ArrowTable: ...
def check_table(
    table: _ArrowStream,
    name: str,
    file: str,
    ncpu: int,
    threads: int = ...,
    window: tuple[int, ...] | None = None,
) -> None: ...
