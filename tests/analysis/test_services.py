"""Threads by the unit or container that their control group's path names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import hostile
import polars as pl
import pytest
from parsers_of_commands import actions
from scenes import MS, scene

import schedscope as ss
from schedscope import cli
from schedscope.analysis.asking.by import THREADS
from schedscope.analysis.asking.command import THREAD_ROWS
from schedscope.analysis.threads.services import service_of
from schedscope.live.waiting import KEYS
from schedscope.parsers.schema import TABLES
from schedscope.simulator.runs import services

ID = "0123456789ab" + "c" * 52
OTHER = "f" * 64

# Paths as these managers make them, and what they name.
PATHS = [
    ("/system.slice/nginx.service", "nginx.service"),
    ("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"),
    ("/system.slice/run-u7.service/supervisor", "run-u7.service"),
    ("/user.slice/user-7.slice/session-3.scope", "session-3.scope"),
    ("/user.slice/user-7.slice/user@7.service/init.scope", "user@7.service/init.scope"),
    (
        "/user.slice/user-7.slice/user@7.service/session.slice/pipewire.service",
        "user@7.service/pipewire.service",
    ),
    (f"/system.slice/docker-{ID}.scope", "docker-0123456789ab"),
    (f"/docker/{ID}", "docker-0123456789ab"),
    (f"/docker/{ID}/kubelet/kubepods/besteffort/pod1/{OTHER}",
     "docker-0123456789ab/kubelet-ffffffffffff"),
    (f"/docker/{ID}/system.slice/nginx.service", "docker-0123456789ab/nginx.service"),
    (f"/user.slice/user-7.slice/user@7.service/docker/{ID}", "user@7.service/docker-0123456789ab"),
    (f"/machine.slice/libpod-{ID}.scope/container", "libpod-0123456789ab"),
    (f"/machine.slice/libpod-conmon-{ID}.scope", "libpod-conmon-0123456789ab"),
    (f"/libpod_parent/libpod-{ID}", "libpod-0123456789ab"),
    (f"/kubepods/burstable/pod6b1f/{ID}", "kubepods-0123456789ab"),
    (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6b1f.slice/crio-{ID}.scope",
     "crio-0123456789ab"),
    (f"/kubepods.slice/kubepods-pod6b1f.slice/cri-containerd-{ID}.scope",
     "cri-containerd-0123456789ab"),
    (f"/system.slice/containerd.service/kubepods-pod6b1f.slice:cri-containerd:{ID}",
     "containerd.service/cri-containerd-0123456789ab"),
    (f"/ecs/0123456789abcdef0123456789abcdef/{ID}", "ecs-0123456789ab"),
    (f"/{ID}", "container-0123456789ab"),
    ("/machine.slice/machine-web.scope/payload", "machine-web.scope"),
    ("/machine.slice/systemd-nspawn@web.service/payload/system.slice/nginx.service",
     "systemd-nspawn@web.service/nginx.service"),
    ("/lxc.payload.web/system.slice/nginx.service", "lxc.payload.web/nginx.service"),
    ("/lxc/web/ns", "lxc-web"),
    ("/system.slice/tmp.mount", "tmp.mount"),
    # Nothing that names a service: the path itself.
    ("/", "/"),
    ("/batch/night", "/batch/night"),
    ("/user.slice", "/user.slice"),
    ("/.service", "/.service"),
    (f"/web/{ID[:-1]}", f"/web/{ID[:-1]}"),
    (f"/web/{ID.upper()}", f"/web/{ID.upper()}"),
    ("/../..", "/../.."),
    ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("path", "name"), PATHS)
def test_service_name_is_read_from_the_cgroup_path(path: str, name: str) -> None:
    assert service_of(path) == name


@pytest.mark.parametrize("path", [*hostile.NAMES, "/".join(hostile.NAMES), "/" * 5000])
def test_any_path_has_a_name(path: str) -> None:
    """What is no unit or container is left as it is; what is, has nothing that its path has not."""
    assert service_of(path) == path
    assert service_of(f"/a/{path}.service/b") == f"{path}.service".rpartition("/")[2] or "/" in path


def test_a_group_made_within_a_unit_cannot_pass_for_another_unit() -> None:
    """A user may make any group below its own manager's."""
    above = "/user.slice/user-7.slice/user@7.service"
    for made in ("nginx.service", f"docker/{ID}", "system.slice/nginx.service"):
        assert service_of(f"{above}/{made}").startswith("user@7.service/")


@pytest.fixture
def trace() -> ss.Trace:
    """Two workers of one unit, both python3 as the container's; all on one CPU for 90 ms.

    c waits 0..60, behind a for 30 and behind b for 30; b waits 0..30, behind a.
    """
    python = {"comm": "python3", "process_name": "python3"}
    return scene(
        "a running@0 0..30\nb runnable@0 0..30\nb running@0 30..60\nc runnable@0 0..60\n"
        "c running@0 60..90\na sleeping 30..90\nb sleeping 60..90",
        {
            "a": {"cgroup": "/system.slice/web.service/one", **python},
            "b": {"cgroup": "/system.slice/web.service/two", **python},
            "c": {"cgroup": f"/docker/{ID}", **python},
        },
        ncpu=1,
        until=90,
    )


WEB, BOX = "web.service", "docker-0123456789ab"
# With a column that is named twice.
MINE = (pl.col("service") == WEB) | (pl.col("service") == "sshd.service")


def test_processes_of_one_name_are_divided_by_service(trace: ss.Trace) -> None:
    assert ss.latency(trace, by="comm").select("comm", "total").rows() == [("python3", 90 * MS)]
    found = ss.latency(trace, by="service")
    assert found.select("service", "n", "total").rows() == [(BOX, 1, 60 * MS), (WEB, 1, 30 * MS)]
    assert ss.latency(trace, by=["service", "cgroup"]).height == 2
    assert ss.latency(trace, where=MINE)["total"].item() == 30 * MS


def test_every_question_groups_by_service(trace: ss.Trace) -> None:
    """The same 30 and 60 ms of waiting, and 60 and 30 ms of running, whichever is asked."""

    def of(frame: pl.DataFrame, column: str) -> dict[str, int]:
        return dict(frame.select("service", column).iter_rows())

    waiting, running = {WEB: 30 * MS, BOX: 60 * MS}, {WEB: 60 * MS, BOX: 30 * MS}
    assert of(ss.wait_breakdown(trace, by="service"), "wait") == waiting
    assert of(ss.slowdown(trace, by="service"), "cpu") == running
    assert of(ss.run_lengths(trace, by="service"), "total_censored") == running
    assert of(ss.affinity(trace, by="service"), "running") == running
    assert of(ss.residency(trace, by="service"), "running") == running
    assert of(ss.fairness(trace, by="service"), "running") == running
    assert of(ss.work_conservation(trace, by="service"), "waiting") == waiting
    assert of(ss.starvation_summary(trace, by="service", threshold="20ms"), "total") == waiting
    # A sleep that nothing ends is only counted.
    assert of(ss.off_cpu(trace, by="service"), "n_censored") == {WEB: 2}
    assert set(ss.migration_summary(trace, by="service")["service"]) == {WEB, BOX}
    ran = ss.interference(trace, by="service")
    assert ran.select("victim_service", "service", "time").rows() == [
        (BOX, WEB, 60 * MS), (WEB, WEB, 30 * MS),
    ]  # fmt: skip
    replayed = services.services(trace, "service").drop_nulls()
    assert replayed.select("utid", "service").rows() == [(1, WEB), (2, WEB), (3, BOX)]
    # The world's wakeups have no wakers.
    woken = ss.wakers(trace, by="service").select("waker_service", "service", "n").rows()
    assert sorted(woken, key=str) == [(None, BOX, 1), (None, WEB, 1)]


def test_every_question_selects_by_service(trace: ss.Trace) -> None:
    """`where` with `service` is the same as with the utids of its threads."""
    utids = pl.col("utid").is_in([1, 2])
    questions = [
        ss.latency, ss.survival, ss.worst_waits, ss.wait_breakdown,
        ss.off_cpu, ss.slowdown, ss.run_lengths, ss.affinity, ss.residency, ss.cpu_returns,
        ss.fairness, ss.lag, ss.interference, ss.migration_summary, ss.migrations, ss.events,
        ss.preemption_loss, ss.starvation_summary, ss.definitions, ss.wakers, ss.idle_episodes,
    ]  # fmt: skip
    for question in questions:
        assert question(trace, where=MINE).equals(question(trace, where=utids)), question.__name__
        every = question(trace)
        if every.height and question not in (ss.cpu_returns, ss.off_cpu, ss.idle_episodes):
            assert not question(trace, where=MINE).equals(every), question.__name__
    chosen = ss.work_conservation(trace, by="comm", where=MINE)
    assert chosen["waiting"].item() == 30 * MS
    assert ss.interactivity(trace, scheduler="ule", where=MINE)["utid"].to_list() == [1, 2]


@pytest.mark.parametrize(
    ("pattern", "pids"),
    [(WEB, [100, 101]), ("web*", [100, 101]), ("docker-*", [102]), ([WEB, BOX], [100, 101, 102])],
)
def test_processes_of_a_service(trace: ss.Trace, pattern: str | list[str], pids: list[int]) -> None:
    rows = trace.threads.filter(ss.of_processes(trace, service=pattern)).collect()
    assert rows["pid"].to_list() == pids
    with pytest.raises(ss.UsageError, match="no process of scene matches service web"):
        ss.of_processes(trace, service="web")


def test_service_is_in_no_stored_table(trace: ss.Trace, tmp_path: Path) -> None:
    """It follows from another column, so it cannot be contradicted."""
    folder = trace.to_sched(tmp_path / "x.sched").path
    assert folder is not None
    assert "service" not in pl.read_parquet(folder / "threads.parquet").columns
    assert "service" not in TABLES["threads"].schema
    assert ss.latency(ss.open(folder), by="service").equals(ss.latency(trace, by="service"))


def test_traces_without_groups_have_no_services() -> None:
    trace = scene("a running@0 0..30\nb runnable@0 0..30", ncpu=1, until=30)
    assert ss.latency(trace, by="service")["service"].to_list() == [None]
    with pytest.raises(ss.UsageError, match="scene has no service of any thread"):
        ss.of_processes(trace, service="*")


def test_commands_group_by_service_like_questions() -> None:
    assert set(THREAD_ROWS) == set(THREADS)
    assert "service" in KEYS
    assert set(services.BY) >= {"cgroup", "service"}


def test_every_command_with_by_or_selection_has_service(
    trace: ss.Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever has `--by` with cgroup or process has service, and answers by it."""
    folder = str(trace.to_sched(tmp_path / "x.sched").path)
    asked = []
    for name in cli.commands():
        options = {action.dest: action for action in actions(name)}
        if {"comm", "pid", "cgroup"} <= set(options):
            assert "service" in options, name
        by = options.get("by")
        known = f"{by.help} {' '.join(by.choices or ())}" if by else ""
        if re.search(r"cgroup|process", known):
            assert re.search(r"\bservice\b", known), name
            asked.append(name)
    assert len(asked) >= 14
    for name in sorted({*asked} - {"top", "whatif", "requests", "dispatch-queues"}):
        words = [name, folder, "--by", "service", "--format", "json"]
        words += ["--threshold", "20ms"] if name == "starvation" else []
        assert cli.main(words) == 0, name
        key = "victim_service" if name == "interference" else "service"
        found = {row[key] for row in json.loads(capsys.readouterr().out)["rows"]}
        assert found, name
        assert found <= {WEB, BOX}, name
        assert cli.main([*words, "--service", WEB]) == 0, name
        found = {row[key] for row in json.loads(capsys.readouterr().out)["rows"]}
        assert found <= {WEB}, name
