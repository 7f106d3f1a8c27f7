"""Many traces at once: real worker processes, a real S3 server, and what goes wrong with them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import schedscope as ss
from schedscope import cli, units
from schedscope.errors import UsageError
from schedscope.fleets import cluster, fleet as fleets, sources, store
from schedscope.fleets.labels import Labels
from schedscope.fleets.sketch import Sketch
from schedscope.fleets.task import task

FIXTURES = Path(__file__).parents[2] / "fixtures"
CAPTURE = FIXTURES / "linux-ftrace-lossy.capture"
FILE = FIXTURES / "linux-trace-cmd-yield.dat"
LIMIT = 1 << 30


def host(folder: Path, name: str, number: int) -> Path:
    """A capture of a host with this name; its size makes it unique."""
    place = folder / f"{name}-{number}.capture"
    shutil.copytree(CAPTURE, place)
    about = json.loads((place / "capture.json").read_text())
    about |= {"hostname": name, "labels": {"rack": f"r<{number}>"}}
    (place / "capture.json").write_text(json.dumps(about))
    return place


def broken(folder: Path) -> Path:
    place = folder / "broken.dat"
    place.write_bytes(FILE.read_bytes()[:40] + b"\xff" * 5_000)
    return place


class InProcess:
    """Workers without processes, for tests that do not need processes."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def summaries(
        self,
        traces: list[str],
        *,
        keep: bool,
        options: dict[str, str],
        limit: int,
        select: dict[str, Any] | None = None,
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for trace in traces:
            yield trace, task(trace, str(self.scratch), keep, options, limit, select)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def workers(_scheduler: str | None, _jobs: int, scratch: Path) -> Iterator[InProcess]:
        yield InProcess(scratch)

    monkeypatch.setattr(cluster, "workers", workers)


def children() -> dict[int, str]:
    """Child processes and their states."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
            words = (place / "cmdline").read_bytes()
            if int(parent) == os.getpid() and b"spawn_main" in words and state != "Z":
                found[int(place.name)] = state
    return found


def in_session(leader: int) -> list[bytes]:
    """Command lines of the living processes of a session."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append((place / "cmdline").read_bytes())
    return found


def traces_at_work(scratch: Path) -> list[Path]:
    return [place for place in scratch.glob("*") if re.fullmatch("[0-9a-f]{16}", place.name)]


def killed_at_work(output: Path) -> int:
    """Kill workers while at least one of them has a trace; returns how many had one."""
    [scratch] = output.glob(".scratch-*")
    for _ in range(2_000):
        if traces_at_work(scratch):
            pids = children()
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            # While stopped they cannot finish.
            deadline = time.monotonic() + 10
            while set(children().values()) != {"T"} and time.monotonic() < deadline:
                time.sleep(0.01)
            if busy := traces_at_work(scratch):
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                return len(busy)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        time.sleep(0.005)
    return 0


@pytest.mark.needs("linux")
@pytest.mark.release
def test_killed_workers_lose_no_result(tmp_path: Path) -> None:
    """Three processes; when two traces are done, all busy ones are killed by SIGKILL."""
    folder, output = tmp_path / "traces", tmp_path / "fleet"
    paths = [str(host(folder, f"h{number}", number)) for number in range(8)]
    killed: list[int] = []

    def progress(done: int, total: int) -> None:
        assert total == 9
        if done == 2:
            killed.append(killed_at_work(output))

    bad = broken(folder)
    found = fleets.summarised([str(folder)], output, labels=Labels(), jobs=3, told=progress)
    assert len(killed) == 1
    assert killed[0] >= 1, "one was at work"
    assert found.table.height == 9
    assert [path for path, _ in found.failed] == [str(bad)]
    whole = found.table.filter(pl.col("error").is_null())
    assert whole["path"].to_list() == paths
    alone = ss.latency(ss.open(CAPTURE, cache=tmp_path / "cache")).row(0, named=True)
    for name in ("n", "n_censored", "n_excluded", "total", "p50", "p99", "p99.9", "max"):
        assert set(whole[name]) == {alone[name]}, name
    assert whole["host"].to_list() == [f"h{number}" for number in range(8)]
    assert children() == {}, "no worker is left"
    assert sorted(path.name for path in output.iterdir()) == ["fleet.parquet", "summaries"]
    assert not list(folder.glob("*.sched")), "nothing is converted beside the traces"
    merged = Sketch.merged(Sketch.from_json(one["waits"]) for one in found.summaries.values())
    assert merged.n == 8 * alone["n"]
    assert merged.wait_at(0.99) == pytest.approx(alone["p99"], rel=0.01)


def ends_over_one(
    trace: str,
    scratch: str | None,
    keep: bool,
    options: dict[str, str],
    limit: int,
    select: dict[str, Any] | None,
) -> dict[str, Any]:
    """Runs in a worker, instead of its own function."""
    if "deadly" in trace:
        os.kill(os.getpid(), signal.SIGKILL)
    return task(trace, str(scratch), keep, options, limit, select)


@pytest.mark.needs("linux")
@pytest.mark.release
def test_trace_that_kills_every_worker_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker, so that the other trace is on the same one; two attempts instead of four."""
    import cloudpickle

    # The workers cannot import this file.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(cluster, "_on_worker", ends_over_one)
    monkeypatch.setitem(cluster._CONFIG, "distributed.scheduler.allowed-failures", 1)
    deadly, other = (host(tmp_path, name, 1) for name in ("deadly", "other"))
    found = fleets.summarised([deadly, other], tmp_path / "fleet", labels=Labels(), jobs=1)
    [(path, error)] = found.failed
    assert path == str(deadly)
    assert "4 workers ended while they summarised it" in error
    assert found.table["n"].to_list()[1] > 0
    assert children() == {}


@pytest.mark.needs("linux")
@pytest.mark.release
def test_ctrl_c_prints_one_sentence_and_the_next_run_resumes(tmp_path: Path) -> None:
    """The signal goes to the whole group, as from a terminal."""
    folder, output = tmp_path / "traces", tmp_path / "fleet"
    paths = [host(folder, f"h{number}", number) for number in range(40)]
    words = [sys.executable, "-m", "schedscope", "fleet", str(folder), "-o", str(output)]
    run = subprocess.Popen(
        [*words, "--jobs", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        kept = output / "summaries"
        deadline = time.monotonic() + 100
        # The first was counted before the second started.
        while len(list(kept.glob("*.json"))) < 2 and time.monotonic() < deadline:
            assert run.poll() is None, run.communicate()
            time.sleep(0.01)
        os.killpg(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=100)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert (run.returncode, out) == (130, ""), err
    sentence = re.fullmatch(
        r"schedscope: interrupted after (\d+) of 40 traces: the summaries are kept in (\S+),"
        r" and the next run continues from there\n",
        err,
    )
    assert sentence, err
    done = len(list(kept.glob("*.json")))
    assert 1 <= int(sentence[1]) <= done < 40
    assert [path.name for path in output.iterdir()] == ["summaries"], "no scratch, no halves"
    deadline = time.monotonic() + 10
    while in_session(run.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert in_session(run.pid) == [], "no worker is left"
    again = store.Folder(output, {})
    assert sum(again.kept(str(path)) is not None for path in paths) == done


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty bucket of an S3 server on this host."""
    import boto3
    import fsspec
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="traces")
    yield client
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    server.stop()


def uploaded(client: Any, path: Path, key: str) -> None:
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            name = key if file == path else f"{key}/{file.relative_to(path)}"
            client.upload_file(str(file), "traces", name)


@pytest.mark.release
def test_traces_in_an_object_store_are_read(
    bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real workers fetch from a real server; fetched files are removed afterwards."""
    uploaded(bucket, CAPTURE, "day/a.capture")
    uploaded(bucket, FILE, "day/b.dat")
    uploaded(bucket, broken(tmp_path), "day/broken.dat")
    uploaded(bucket, FIXTURES / "text.md", "day/notes.md")
    output = tmp_path / "fleet"
    words = ["fleet", "s3://traces/day", "-o", str(output), "--format", "json"]
    assert cli.main([*words, "--jobs", "2", "--label", "day=1"]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["traces"], document["failed"], document["computed"]) == (3, 1, 2)
    rows = {row["path"]: row for row in document["rows"]}
    assert list(rows) == [f"s3://traces/day/{n}" for n in ("a.capture", "b.dat", "broken.dat")]
    assert err.count("\n") == 2
    assert "broken.dat" in err.splitlines()[0]
    assert "1 of 3 traces could not be summarised" in err
    for path, local in (("a.capture", CAPTURE), ("b.dat", FILE)):
        row = rows[f"s3://traces/day/{path}"]
        alone = ss.latency(ss.open(local, cache=tmp_path / "cache")).row(0, named=True)
        assert {name: row[name] for name in ("n", "total", "p99")} == {
            name: alone[name] for name in ("n", "total", "p99")
        }
        assert (row["label_day"], row["trace"]) == ("1", path)
    assert sorted(p.name for p in output.iterdir()) == ["fleet.parquet", "index.html", "summaries"]
    # Again, in this process: only the changed one is fetched.
    kept = store.Folder(output, {})
    assert kept.kept("s3://traces/day/a.capture") is not None
    uploaded(bucket, FIXTURES / "linux-trace-cmd-overrun.dat", "day/b.dat")
    assert kept.kept("s3://traces/day/b.dat") is None
    # A limit of the fetched size, and an empty address.
    answer = task("s3://traces/day/b.dat", str(tmp_path), False, {}, 1_000)
    assert "has more than 1000 B" in answer["error"]
    answer = task("s3://traces/night.dat", str(tmp_path), False, {}, LIMIT)
    assert "cannot read s3://traces/night.dat: no such file" in answer["error"]
    assert not list(tmp_path.glob("????????????????")), "nothing fetched is left"
    assert sources.expand(["s3://traces/day/*.dat"]) == [
        "s3://traces/day/b.dat",
        "s3://traces/day/broken.dat",
    ]
    with pytest.raises(UsageError, match=r"s3://traces/nothing/\*"):
        sources.expand(["s3://traces/nothing/*"])


def test_selection_applies_to_each_host_and_is_cached_separately(
    in_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The processes of each recording; a host without such threads has no waits and no error."""
    first = host(tmp_path / "traces", "h1", 1)
    other = FIXTURES / "linux-requests.capture"
    output = tmp_path / "fleet"
    words = ["fleet", str(first), str(other), "-o", str(output), "--format", "json"]

    def rows(*more: str) -> tuple[int, list[dict[str, Any]]]:
        assert cli.main([*words, *more]) == 0
        document = json.loads(capsys.readouterr().out)
        return int(document["computed"]), document["rows"]

    computed, whole = rows()
    assert computed == 2
    computed, some = rows("--process", "nightly")
    assert computed == 2
    trace = ss.open(other, cache=tmp_path / "cache")
    mine = ss.of_processes(trace, process="nightly")
    alone = ss.latency(trace, where=mine).row(0, named=True)
    assert {name: some[1][name] for name in ("n", "p99", "max", "total")} == {
        name: alone[name] for name in ("n", "p99", "max", "total")
    }
    assert (some[0]["n"], some[0]["p99"], some[0]["error"]) == (0, None, None)
    page = (output / "index.html").read_text()
    assert "selected: --process nightly (no wait of such threads in 1)" in page
    assert "linux-requests.capture --process nightly</code>" in page
    # Both are cached: neither is computed again, and neither replaces the other.
    assert rows() == (0, whole)
    assert rows("--process", "nightly") == (0, some)
    table = ss.fleet([other], tmp_path / "alone", select={"process": ["nightly"], "comm": "*"})
    assert table["n"].item() == alone["n"]


def test_rows_have_the_shortest_unique_path(in_process: None, tmp_path: Path) -> None:
    """And unnamed hosts are not taken for one host."""
    for rack in ("a", "b"):
        host(tmp_path / rack, "(none)", 1).rename(tmp_path / rack / "web.capture")
    host(tmp_path / "b", "named", 2).rename(tmp_path / "b" / "db.capture")
    table = ss.fleet([tmp_path / "a", tmp_path / "b"], tmp_path / "fleet")
    assert table["trace"].to_list() == ["a/web.capture", "db.capture", "b/web.capture"]
    assert table["host"].to_list() == [None, "named", None]
    named = ss.fleet(tmp_path / "a", tmp_path / "fleet", labels={"host": "h7"})
    assert named["host"].to_list() == ["h7"]


def test_since_and_until_apply_to_each_trace(
    in_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = ss.open(CAPTURE, cache=tmp_path / "cache")
    half = trace.seconds(trace.window[1]) / 2
    output = tmp_path / "fleet"
    words = ["fleet", str(CAPTURE), "-o", str(output), "--format", "json"]
    rows = []
    for more in ([], ["--since", str(half)], ["--until", str(half)]):
        assert cli.main([*words, *more]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["computed"] == 1
        rows.append(document["rows"][0])
    assert [row["n"] for row in rows] == [
        ss.latency(part, by="all")["n"].item()
        for part in (trace, trace.between(half), trace.between(None, half))
    ]
    assert f"--until {half}" in (output / "index.html").read_text()
    assert cli.main([*words, "--since", "1h"]) == 1
    assert "lies outside the trace" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["latency", "report", "convert", "view --no-browser"])
def test_other_commands_refuse_a_url(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command.split(), "s3://bucket/web.capture"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("schedscope: s3://bucket/web.capture is a URL; expected a file")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--comm", "nobody"], "no wait of the selected threads in 1 trace"),
        (["--pid", "7"], "a name, which is the same on every host"),
        (["--tree", "7"], "a name, which is the same on every host"),
        (["--cpu", "0"], "fleet with --cpu"),
    ],
)
def test_selection_matching_no_host_is_refused(
    in_process: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    said: str,
) -> None:
    assert cli.main(["fleet", str(CAPTURE), "-o", str(tmp_path / "fleet"), *options]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert said in err
    with pytest.raises(UsageError, match="select names 'tree'"):
        ss.fleet(CAPTURE, tmp_path / "fleet", select={"tree": 7})


def test_second_run_computes_only_what_changed(
    in_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = tmp_path / "traces", tmp_path / "fleet"
    first, second = host(folder, "h1", 1), host(folder, "h2", 2)
    (folder / "copy").mkdir()
    words = ["fleet", str(first), str(second), "-o", str(output), "--format", "json"]

    def made(*more: str) -> int:
        assert cli.main([*words, *more]) == 0
        document = json.loads(capsys.readouterr().out)
        assert [row["host"] for row in document["rows"]] == ["h1", "h2"]
        return int(document["computed"])

    assert made() == 2
    assert made() == 0
    assert cli.main([*words, "--scheduler", "tcp://nowhere:1"]) == 0
    said = capsys.readouterr()
    assert "no connection to tcp://nowhere:1 was made" in said.err
    assert json.loads(said.out)["computed"] == 0
    os.utime(first / "capture.json")
    assert made() == 0, "the content is the same"
    about = (second / "capture.json").read_text()
    (second / "capture.json").write_text(about.replace('"rack"', '"rock"'))
    assert made() == 1
    assert made("--refresh") == 2
    for place in (output / "summaries").iterdir():
        # Half a file, and one of another version.
        text = place.read_text()
        other = re.sub(r'"format": \d+', '"x": 1', text)
        assert other != text
        place.write_text(text[:100] if place.name < "8" else other)
    assert made() == 2
    table = pl.read_parquet(output / "fleet.parquet")
    assert table["label_rock"].to_list() == [None, "r<2>"]
    assert ss.fleet(str(first), output)["n"].to_list() == table["n"].to_list()[:1]


def test_the_page_is_whole_and_shows_names_as_text(
    in_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = tmp_path / "tra ces", tmp_path / "fleet"
    path = host(folder, "<script>alert(1)</script>\u202e", 1)
    bad = broken(folder)
    assert cli.main(["fleet", str(folder), "-o", str(output)]) == 1
    out, err = capsys.readouterr()
    assert "1 of 2 summaries made now" in out
    text = (output / "index.html").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in text
    assert "script-src 'none'" in text
    assert "r&lt;1&gt;" in text
    command = f"schedscope report {shlex.quote(str(path))}"
    assert escape(units.printable(command)) in text
    assert str(bad) in text
    assert not re.search(r'(?:src|href)="(?!#)', text), "it fetches nothing"
    assert "\u202e" not in out + err
    assert f"{bad}" in err


def test_labels_come_from_the_trace_a_table_and_the_command(
    in_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = tmp_path / "traces", tmp_path / "fleet"
    paths = [host(folder, "h", number) for number in (1, 2, 3)]
    labels = tmp_path / "labels.csv"
    labels.write_text(f"trace,host,rack,team\nh-1,web1,,a\n{paths[1]},web2,b7,\n")
    words = ["fleet", str(folder), "-o", str(output), "--labels", str(labels)]
    assert cli.main([*words, "--label", "site=x"]) == 0
    table = pl.read_parquet(output / "fleet.parquet")
    assert table["host"].to_list() == ["web1", "web2", "h"]
    assert table["label_rack"].to_list() == ["r<1>", "b7", "r<3>"]
    assert table["label_team"].to_list() == ["a", None, None]
    assert set(table["label_site"]) == {"x"}
    assert "not among these" not in capsys.readouterr().err
    labels.write_text("trace,rack\nh-1,b1\nh-9,b9\nh-8,b8\n")
    assert cli.main(words) == 0
    message = f"{labels} labels traces that are not among these in 2 lines: h-9, h-8"
    assert message in capsys.readouterr().err
    for text, wrong in (
        ("path;x\n", "has no column `trace`"),
        ("trace,a,a\n", "two columns of one name"),
        ("trace,a\nx\n", "line 2 of .* has 1 cells"),
        ("trace,a\nx,1\nx,2\n", "names x twice"),
        ('trace,a\n"x,1\n', "is not a table"),
    ):
        labels.write_text(text)
        assert cli.main(words) == 2
        assert re.search(wrong, capsys.readouterr().err), text
    labels.write_bytes(b"trace,\xff\n")
    assert cli.main(words) == 2
    assert "is not a table" in capsys.readouterr().err
    for more, wrong in (
        (["--label", "x"], "--label x; expected KEY=VALUE"),
        (["--jobs", "0"], "--jobs 0"),
        (["--jobs", "2", "--scheduler", "tcp://x:1"], "one of them"),
        (["--fetch-limit", "0"], "--fetch-limit 0"),
        (["--top", "0"], "--top 0"),
        (["--by", "label_row"], "--by label_row"),
    ):
        labels.write_text("trace\n")
        assert cli.main([*words, *more]) == 2
        err = capsys.readouterr().err
        assert wrong in err
        assert err.count("\n") == 1


def test_empty_folder_and_missing_path_are_refused(
    in_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert cli.main(["fleet", str(tmp_path / "empty"), "-o", str(tmp_path / "f")]) == 2
    assert "no trace in" in capsys.readouterr().err
    assert cli.main(["fleet", str(tmp_path / "none"), "-o", str(tmp_path / "f")]) == 1
    err = capsys.readouterr().err
    assert "none: No such file or directory" in err
    assert "1 of 1 trace could not be summarised" in err
    assert cli.main(["fleet", "nostore://x/y", "-o", str(tmp_path / "f")]) == 2
    assert "nostore://x/y is not an address" in capsys.readouterr().err


def test_pipe_is_refused_without_blocking(in_process: None, tmp_path: Path) -> None:
    """As `trace.dat`, and in the place of an already summarised trace."""
    place = Path(shutil.copy(FILE, tmp_path / "trace.dat"))
    assert ss.fleet(tmp_path, tmp_path / "f")["error"].to_list() == [None]
    place.unlink()
    os.mkfifo(place)
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for the pipe"))
    signal.alarm(20)
    try:
        (error,) = ss.fleet(tmp_path, tmp_path / "f")["error"].to_list()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert "trace.dat is a pipe or device" in error


@pytest.mark.needs("root", "linux")
def test_full_disk_prints_one_sentence_and_keeps_finished_results(
    in_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    paths = [host(tmp_path / "traces", f"h{number}", number) for number in range(3)]
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    words = ["fleet", *map(str, paths), "-o", str(small / "fleet")]
    try:
        assert cli.main([*words[:2], *words[-2:]]) == 0
        capsys.readouterr()
        (small / "filler").write_bytes(bytes(0))
        with contextlib.suppress(OSError), (small / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(4096))
                filler.flush()
        assert cli.main(words) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1), err
        assert os.strerror(errno.ENOSPC) in err
        assert "what is finished is kept" in err
        left = sorted(path.name for path in (small / "fleet").iterdir())
        assert left == ["fleet.parquet", "index.html", "summaries"]
        assert len(list((small / "fleet" / "summaries").iterdir())) == 1
        (small / "filler").unlink()
        assert cli.main([*words, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["computed"] == 2
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_fleet_uses_a_given_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers at an address, with their own folders; and an address without a cluster."""
    from distributed import LocalCluster

    host(tmp_path / "traces", "h", 1)
    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=False,
        protocol="tcp://",
        dashboard_address="127.0.0.1:0",
        local_directory=str(tmp_path / "own"),
    ) as theirs:
        table = ss.fleet(
            tmp_path / "traces", tmp_path / "fleet", scheduler=theirs.scheduler_address
        )
    assert table["host"].to_list() == ["h"]
    assert table["error"].to_list() == [None]
    monkeypatch.setattr(cluster, "WAIT_S", 1)
    with pytest.raises(UsageError, match=r"no scheduler at tcp://127\.0\.0\.1:1"):
        ss.fleet(tmp_path / "traces", tmp_path / "new", scheduler="tcp://127.0.0.1:1")


def test_fleet_uses_a_cluster_over_tls(tmp_path: Path) -> None:
    """With keys that Dask's settings name; without them one sentence says how to name them."""
    import dask
    from distributed import LocalCluster, Security

    host(tmp_path / "traces", "h", 1)
    keys = Security.temporary()
    client = keys.get_tls_config_for_role("client")
    with LocalCluster(
        n_workers=1,
        processes=False,
        protocol="tls://",
        security=keys,
        dashboard_address="127.0.0.1:0",
        local_directory=str(tmp_path / "own"),
    ) as theirs:
        where, tls = theirs.scheduler_address, "distributed.comm.tls"
        named = {f"{tls}.ca-file": client["ca_file"], f"{tls}.client.cert": client["cert"]}
        with dask.config.set(named | {f"{tls}.client.key": client["key"]}):
            table = ss.fleet(tmp_path / "traces", tmp_path / "fleet", scheduler=where)
        assert table["error"].to_list() == [None]
    words = [sys.executable, "-m", "schedscope", "fleet", str(tmp_path / "traces")]
    words += ["-o", str(tmp_path / "new"), "--scheduler", where]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "TLS__CLIENT__KEY" in done.stderr
