"""Summarise many traces, and put what they say into one table."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from schedscope.errors import UsageError
from schedscope.extras import explained
from schedscope.fleets.labels import Labels
from schedscope.units import several

FETCH_LIMIT = 4 << 30
"""Bytes of a trace in a store that a worker fetches at most, and so of its temporary files."""

SELECTIONS = ("comm", "process", "cgroup", "service", "cmdline", "workload")
"""What `select` may name."""

Told = Callable[[int, int], None]
"""Called with the traces done and the traces in all."""


@dataclass(frozen=True)
class Fleet:
    """What was found: the table, the summaries by path, and how many are new."""

    table: pl.DataFrame
    summaries: dict[str, dict[str, Any]]
    computed: int

    @property
    def failed(self) -> list[tuple[str, str]]:
        """Path and reason of every trace without a summary."""
        bad = self.table.filter(pl.col("error").is_not_null())
        return list(bad.select("path", "error").iter_rows())


def fleet(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    labels: Mapping[str, str] | None = None,
    label_table: str | os.PathLike[str] | None = None,
    scheduler: str | None = None,
    jobs: int | None = None,
    keep: bool = False,
    refresh: bool = False,
    options: Mapping[str, str] | None = None,
    fetch_limit: int = FETCH_LIMIT,
    select: Mapping[str, Any] | None = None,
    since: str | float | None = None,
    until: str | float | None = None,
) -> pl.DataFrame:
    """One row per trace: its host, its settings and labels, its waits, and how far to trust it.

    The arguments:

    * `paths`: traces, folders of traces, URLs that fsspec reads;
    * `output`: a folder for the summaries, each of which is reused as long as its trace is the
      same, and for the table as `fleet.parquet`;
    * `labels`: labels of all traces; `label_table`: labels of single traces, a CSV file with a
      column `trace`;
    * `jobs`: how many processes of this host do the work (by default one for each CPU);
      `scheduler`: the address of a Dask cluster whose workers do it instead;
    * `keep` keeps converted traces beside their sources, as `open` does; `refresh` makes all
      summaries again; `options` go to the decoders;
    * `fetch_limit`: a trace of more bytes than this is not fetched from a store;
    * `select`: only the waits of these threads, as in `{"service": "nginx.service"}`: `comm`, or
      arguments of `of_processes` except `tree`, because processes have other ids on each host. A
      trace without such threads has `n` 0;
    * `since`, `until`: only this part of each trace, as in `Trace.between`: seconds from its start,
      or a time of day. A trace without that part has an error.

    The columns:

    * `trace`: the end of its path that distinguishes it from the others; `path`; `host`: null where
      it has none, or a name of every host, such as "(none)" or "localhost"; `os`, `release`,
      `machine`, `cpus`, `scheduler`, `preempt`, `hz`;
    * `label_*`, `setting_*`: a column for each label and each recorded setting of the scheduler;
    * `dur`, `events`; `n`, `n_censored`, `n_excluded`, `total`, `mean`, `p50` ..., `max` of the
      waits for a CPU, as in `latency`, with their upper bounds (`n_high` ...) and `coverage`;
      `waiting_frac`, `waiting_frac_high`: `total` over the CPUs' time;
    * `unknown_frac`, `level` (the most serious of `check`), `verdict`;
    * `error`: why there is no summary; then the numbers are null.

    In a program, call it below `if __name__ == "__main__":`, because the worker processes load the
    program, too.

    Raises `MissingExtraError` without the extra `fleet`, `UsageError` if there is no trace or no
    cluster, `StorageError` if `output` cannot be written.
    """
    return summarised(
        paths,
        output,
        labels=Labels(labels, None if label_table is None else Path(label_table)),
        scheduler=scheduler,
        jobs=jobs,
        keep=keep,
        refresh=refresh,
        options=options,
        fetch_limit=fetch_limit,
        select=select,
        since=since,
        until=until,
    ).table


def summarised(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    labels: Labels,
    scheduler: str | None = None,
    jobs: int | None = None,
    keep: bool = False,
    refresh: bool = False,
    options: Mapping[str, str] | None = None,
    fetch_limit: int = FETCH_LIMIT,
    select: Mapping[str, Any] | None = None,
    since: str | float | None = None,
    until: str | float | None = None,
    told: Told = lambda done, total: None,
) -> Fleet:
    """The same with the summaries; `told` is called after each trace."""
    try:
        from schedscope.fleets import sources, store
        from schedscope.fleets.cluster import workers
        from schedscope.fleets.gathered import gathered
    except ModuleNotFoundError as error:
        raise explained(error) from error
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}", "1 or more")
    if jobs is not None and scheduler is not None:
        raise UsageError(
            "--jobs with --scheduler", "one of them", "the cluster decides how many workers it has"
        )
    if fetch_limit < 1:
        raise UsageError(f"--fetch-limit {fetch_limit}", "1 byte or more")
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    traces = sources.expand([os.fspath(path) for path in given])
    if scheduler is not None:
        # Workers have a current folder of their own.
        traces = [each if sources.is_url(each) else os.path.abspath(each) for each in traces]
    chosen = dict(options or {})
    of = _lists(select or {})
    threads = bool(of)
    of |= {name: at for name, at in (("since", since), ("until", until)) if at is not None}
    folder = store.Folder(Path(output), chosen, of)
    found: dict[str, dict[str, Any]] = {}
    for trace in traces:
        if not refresh and (summary := folder.kept(trace)):
            found[trace] = summary
    errors: dict[str, str] = {}
    missing = [trace for trace in traces if trace not in found]
    done = len(found)
    told(done, len(traces))
    if missing:
        limit = min(jobs or _cpus(), len(missing))
        with folder.scratch() as scratch, workers(scheduler, limit, scratch) as at_work:
            for trace, answer in at_work.summaries(
                missing, keep=keep, options=chosen, limit=fetch_limit, select=of
            ):
                if "summary" in answer:
                    folder.keep(trace, answer["identity"], answer["summary"])
                    found[trace] = answer["summary"]
                elif answer["full"]:
                    raise store.full(answer["error"])
                else:
                    errors[trace] = answer["error"]
                done += 1
                told(done, len(traces))
    if threads and found and not any(map(_waits, found.values())):
        raise UsageError(
            f"no wait of the selected threads in {several(len(found), 'trace')}",
            "threads that a trace has",
            "`schedscope latency TRACE --by process,service` lists them",
        )
    table = gathered(traces, found, errors, labels)
    # Polars' own writer does not say that a disk is full.
    whole = io.BytesIO()
    table.write_parquet(whole)
    store.write_whole(
        folder.path / store.TABLE, lambda to: to.write_bytes(whole.getvalue()), traces
    )
    return Fleet(table, found, len(missing) - len(errors))


def _waits(summary: Mapping[str, Any]) -> int:
    return sum(int(summary["numbers"][name]) for name in ("n", "n_censored", "n_excluded"))


def _lists(select: Mapping[str, Any]) -> dict[str, Any]:
    """The selection in a canonical form, the same however it was given."""
    for name in select:
        if name not in SELECTIONS:
            raise UsageError(
                f"select names {name!r}",
                f"one of {', '.join(SELECTIONS)}",
                "threads and processes have other numbers on each host",
            )
    texts = {name: [value] if isinstance(value, str) else value for name, value in select.items()}
    return {name: True if value is True else list(value) for name, value in texts.items() if value}


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
