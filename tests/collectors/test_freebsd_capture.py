"""The collectors' FreeBSD side, with FreeBSD's programs replaced by stand-ins, in every shell."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from freebsd.compact import Translator
from freebsd.reading import Decoded
from freebsd.writer import Machine

from schedscope import cli

HERE = Path(__file__).parents[1]
STAND_INS = HERE / "freebsd" / "stand-ins"
COLLECTORS = HERE.parent / "collectors"
SHELLS = [["dash"], ["busybox", "sh"], ["posh"], ["yash"], ["bash", "--posix"]]

TOPOLOGY = """<groups>
 <group level="1" cache-level="3">
  <cpu count="4" mask="f,0,0,0">0, 1, 2, 3</cpu>
  <children>
   <group level="2" cache-level="2">
    <cpu count="2" mask="3,0,0,0">0, 1</cpu>
    <flags><flag name="THREAD">THREAD group</flag><flag name="SMT">SMT group</flag></flags>
   </group>
   <group level="2" cache-level="2">
    <cpu count="2" mask="c,0,0,0">2, 3</cpu>
    <flags><flag name="THREAD">THREAD group</flag><flag name="SMT">SMT group</flag></flags>
   </group>
  </children>
 </group>
</groups>
"""
TWO_NODES = """<groups>
 <group level="1" cache-level="0">
  <cpu count="4" mask="f">0, 1, 2, 3</cpu>
  <children>
   <group level="2" cache-level="3">
    <cpu count="2" mask="5">0, 2</cpu>
    <flags><flag name="NODE">NUMA node</flag></flags>
   </group>
   <group level="2" cache-level="3">
    <cpu count="2" mask="a">1, 3</cpu>
    <flags><flag name="NODE">NUMA node</flag></flags>
   </group>
  </children>
 </group>
</groups>
"""
SYSCTLS = {
    "hw.ncpu": "4",
    "hw.pagesize": "4096",
    "hw.byteorder": "1234",
    "hw.physmem": "17179869184",
    "kern.dtrace.bufsize_max": "128",
    "kern.clockrate": "{ hz = 1000, tick = 1000, profhz = 8128, stathz = 127 }",
    "kern.osreldate": "1402000",
    "kern.smp.maxid": "3",
    "kern.smp.threads_per_core": "2",
    "kern.sched.name": "ULE",
    "kern.sched.slice": "12",
    "kern.sched.preemption": "1",
    "kern.sched.preempt_thresh": "80",
    "kern.sched.topology_spec": TOPOLOGY,
    "machdep.tsc_freq": "2394454000",
    "security.jail.jailed": "0",
    "kern.securelevel": "-1",
    "vm.ndomains": "1",
    "vm.stats.sys.v_swtch": "123456",
}


class Host:
    """A FreeBSD host made of stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.sysctls = folder / "sysctls"
        self.state.mkdir()
        self.sysctls.mkdir()
        for name, value in SYSCTLS.items():
            (self.sysctls / name).write_text(value + "\n")
        (folder / "dtraceall.ko").touch()
        (folder / "dmesg").write_text(
            "FreeBSD/SMP: Multiprocessor System Detected: 4 CPUs\n"
            "FreeBSD/SMP: 1 package(s) x 2 core(s) x 2 hardware threads\n"
        )
        world = Machine(4, begin=5_000_000_000)
        world.thread(100402, "two words")
        world.wake(5_000_001_000, 0, 100402, target=3)
        world.switch(5_000_002_000, 3, 100402, "preempt")
        world.switch(5_000_003_000, 3, None, "sleep", "piperd")
        head, _, tail = Translator(world.text(6_000_000_000)).text().partition("#count")
        (self.state / "head").write_text(head)
        (self.state / "tail").write_text("#count" + tail)
        (self.state / "messages").write_text("")

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{STAND_INS}:/usr/bin:/bin",
            "STAND_IN_STATE": str(self.state),
            "STAND_IN_SYSCTLS": str(self.sysctls),
            "SCHEDSCOPE_DTRACE_MODULE": str(self.folder / "dtraceall.ko"),
            "SCHEDSCOPE_DMESG": str(self.folder / "dmesg"),
            # The rate at which dtrace can print does not depend on the test host.
            "SCHEDSCOPE_DTRACE_LINES_PER_SECOND": "1000000",
        }

    def words(self, shell: list[str], *arguments: str) -> list[str]:
        path = shutil.which(shell[0])
        if path is None:
            pytest.skip(f"needs {shell[0]}")
        return [path, *shell[1:], str(COLLECTORS / "capture"), *arguments]

    def capture(
        self, shell: list[str], *arguments: str, status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.words(shell, *arguments),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == status, done.stderr
        return done

    def json(self) -> dict[str, Any]:
        return self.json_of(self.folder / "x.capture")

    def json_of(self, capture: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((capture / "capture.json").read_text())
        return found

    def table(self, name: str) -> list[dict[str, str]]:
        header, *rows = (self.folder / "x.capture" / name).read_text().splitlines()
        return [dict(zip(header.split("\t"), row.split("\t"), strict=True)) for row in rows]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_capture_records_the_host_and_its_threads(host: Host, shell: list[str]) -> None:
    (host.state / "messages").write_text(
        "dtrace: 1 drop on CPU 3\ndtrace: 40 drops on CPU 0\ndtrace: 2 drops on CPU 3\n"
        "dtrace: 7 aggregation drops on CPU 1\n"
        "dtrace: 1 dynamic variable drop with non-empty rinsing list\n"
        "dtrace: 12 dynamic variable drops\n"
        "dtrace: error on enabled probe ID 3 (ID 99: sched:::off-cpu): invalid address (0x0)\n"
    )
    done = host.capture(shell, "-o", "x.capture", "--", "sleep", "0.3")
    about = host.json()
    assert (about["os"], about["release"], about["complete"]) == ("FreeBSD", "14.2-RELEASE", True)
    assert (about["ncpu"], about["hz"], about["stathz"]) == (4, 1000, 127)
    assert about["preempt"] == "on, threshold 80"
    assert about["scheduler"]["name"] == "ULE"
    tunables = about["scheduler"]["tunables"]
    assert tunables["kern.sched.slice"] == "12"
    assert tunables["kern.osreldate"] == "1402000"
    assert tunables["cpuset -g"].startswith("pid -1 mask: 0, 1, 2, 3")
    assert about["recorder"]["name"] == "dtrace"
    assert about["clock"]["pairs"] == [
        [5_000_000_000, 1_795_254_517_000_000_000],
        [6_000_000_000, 1_795_254_518_000_000_000],
    ]
    assert about["window"] == {"begin": 5_000_000_000, "end": 6_000_000_000}
    lost = {(loss["cpu"], loss["count"], loss["reason"]) for loss in about["lost"]}
    assert lost == {(3, 3, "overrun"), (0, 40, "overrun"), (None, 14, "overrun")}
    assert "kldunload dtraceall" in done.stderr
    assert not any("dtraceall" in text for text in about["notes"])
    assert any("7 updates" in text for text in about["notes"])
    assert any("invalid address" in text for text in about["notes"])
    threads = {row["tid"]: row for row in host.table("threads.tsv")}
    assert threads["100010"] == {
        "tid": "100010", "pid": "12", "ppid": "0", "policy": "interrupt", "prio": "48",
        "nice": "0", "affinity": "", "kernel": "1", "comm": "swi4: clock (0)",
    }  # fmt: skip
    assert threads["100402"]["comm"] == "two words"
    assert threads["100402"]["affinity"] == "2,3"
    assert threads["100403"]["policy"] == "realtime"
    assert threads["100403"]["comm"] == r"worker\t\\x"
    assert (threads["100003"]["kernel"], threads["100402"]["kernel"]) == ("1", "0")
    got = Decoded(host.folder / "x.capture")
    # Lines of both CPUs were dropped, at unknown times: the only wait is not measured.
    waits = got.rows("waits", "utid", "wait", "queue_cpu", "censored")
    assert waits == [
        (100402, 0, 3, "right"), (100402, None, None, "left"),
    ]  # fmt: skip
    # Four idle threads and no fifth: 100003 is that of CPU 0.
    assert [tid for (tid,) in got.rows("threads", "tid")] == [
        0,
        0,
        0,
        100006,
        100010,
        100402,
        100403,
    ]


# FreeBSD's date has no %N before 14.1, and its sed and awk know what POSIX asks for.
VARIANTS = {
    "mawk": ("awk", 'exec mawk "$@"'),
    "gawk": ("awk", 'exec gawk --posix "$@"'),
    "original-awk": ("awk", 'exec original-awk "$@"'),
    "busybox awk": ("awk", 'exec busybox awk "$@"'),
    "posix sed": ("sed", 'exec /usr/bin/sed --posix "$@"'),
    "busybox sed": ("sed", 'exec busybox sed "$@"'),
    "date without %N": ("date", 'exec /usr/bin/date "$(echo "$1" | /usr/bin/sed s/%N/N/)"'),
}


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_every_awk_writes_the_same_capture(host: Host, variant: str) -> None:
    """One-true-awk is FreeBSD's own."""
    name, text = VARIANTS[variant]
    if shutil.which(text.split()[1]) is None:
        pytest.skip(f"needs {text.split()[1]}")
    host.capture(["dash"], "-o", "y.capture", "--", "sleep", "0.2")
    bin_folder = host.folder / "bin"
    bin_folder.mkdir()
    (bin_folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (bin_folder / name).chmod(0o755)
    environment = host.environment()
    environment["PATH"] = f"{bin_folder}:{environment['PATH']}"
    done = subprocess.run(
        host.words(["dash"], "-o", "x.capture", "--", "sleep", "0.2"),
        cwd=host.folder, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for file in ("threads.tsv", "cpus.tsv", "events.txt"):
        usual, other = (host.folder / x / file for x in ("y.capture", "x.capture"))
        assert usual.read_bytes() == other.read_bytes(), file
    usual, other = (
        json.loads((host.folder / x / "capture.json").read_text())
        for x in ("y.capture", "x.capture")
    )
    for about in (usual, other):
        for varying in ("workload", "recorder_tids", "notes"):
            about.pop(varying)
    assert usual == other


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_the_topology_becomes_the_cpus(host: Host, shell: list[str]) -> None:
    host.capture(shell, "-o", "x.capture", "--", "true")
    columns = ("cpu", "online", "core", "llc", "package", "numa_node", "smt_siblings")
    rows = [tuple(row[name] for name in columns) for row in host.table("cpus.tsv")]
    assert rows == [
        ("0", "1", "0", "0", "0", "0", "0-1"),
        ("1", "1", "0", "0", "0", "0", "0-1"),
        ("2", "1", "2", "0", "0", "0", "2-3"),
        ("3", "1", "2", "0", "0", "0", "2-3"),
    ]


def test_numa_nodes_without_hyperthreads(host: Host) -> None:
    (host.sysctls / "kern.sched.topology_spec").write_text(TWO_NODES)
    (host.sysctls / "kern.smp.threads_per_core").write_text("1\n")
    (host.sysctls / "vm.ndomains").write_text("2\n")
    (host.folder / "dmesg").write_text("FreeBSD/SMP: 2 package(s) x 2 core(s)\n")
    host.capture(["dash"], "-o", "x.capture", "--", "true")
    columns = ("cpu", "core", "llc", "package", "numa_node", "smt_siblings")
    assert [tuple(row[name] for name in columns) for row in host.table("cpus.tsv")] == [
        ("0", "0", "0", "", "0", "0"),
        ("1", "1", "1", "", "1", "1"),
        ("2", "2", "0", "", "0", "2"),
        ("3", "3", "1", "", "1", "3"),
    ]


def test_hyperthreads_that_are_switched_off_leave_gaps(host: Host) -> None:
    """CPUs 0 and 2 of four; each is a core."""
    cpus = '<cpu count="2" mask="5">0, 2</cpu>'
    spec = f'<groups><group level="1" cache-level="3">{cpus}</group></groups>'
    (host.sysctls / "kern.sched.topology_spec").write_text(spec + "\n")
    for name, value in {"hw.ncpu": 2, "kern.smp.maxid": 2, "kern.smp.threads_per_core": 1}.items():
        (host.sysctls / name).write_text(f"{value}\n")
    host.capture(["dash"], "-o", "x.capture", "--", "true")
    columns = ("cpu", "online", "core", "llc")
    assert [tuple(row[name] for name in columns) for row in host.table("cpus.tsv")] == [
        ("0", "1", "0", "0"),
        ("1", "0", "", ""),
        ("2", "1", "2", "0"),
    ]
    (host.sysctls / "kern.sched.topology_spec").unlink()
    host.capture(["dash"], "-o", "y.capture", "--", "true")
    rows = (host.folder / "y.capture/cpus.tsv").read_text().splitlines()
    assert [row.split("\t")[:2] for row in rows[1:]] == [["0", ""], ["1", ""], ["2", ""]]


def test_capture_without_root_is_refused(host: Host) -> None:
    """Before anything is created or loaded."""
    plain = host.folder / "bin"
    plain.mkdir()
    (plain / "id").write_text("#!/bin/sh\necho 1001\n")
    (plain / "id").chmod(0o755)
    environment = host.environment()
    environment["PATH"] = f"{plain}:{environment['PATH']}"
    done = subprocess.run(
        host.words(["dash"], "-o", "x.capture", "--", "true"),
        cwd=host.folder, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 125
    assert "needs root" in done.stderr
    assert not list(host.folder.glob("x.capture*"))


@pytest.mark.needs("root", "linux")
@pytest.mark.parametrize("shell", SHELLS[:2], ids=lambda shell: shell[0])
def test_full_disk_keeps_what_fits_and_is_reported(host: Host, shell: list[str]) -> None:
    """dtrace's output does not fit; the metadata, for which space was reserved, does."""
    disk = host.folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        line = (host.state / "head").read_text().splitlines(keepends=True)[-1]
        (host.state / "more").write_text(line * (4_000_000 // len(line)))
        done = subprocess.run(
            host.words(shell, "-o", str(disk / "x.capture"), "-d", "12"),
            cwd=host.folder, env=host.environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 125
        assert (disk / "x.capture").exists(), done.stderr
        about = json.loads((disk / "x.capture/capture.json").read_text())
        assert about["complete"] is False
        assert "space" in about["interrupted"]
        # The part before can be analysed.
        got = Decoded(disk / "x.capture")
        assert len(got.tables["switches"]) >= 2
        assert any("#end" in text for text in got.about["warnings"])
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.needs("root", "linux")
def test_full_disk_ends_a_recording_whose_dtrace_does_not_notice(host: Host) -> None:
    """FreeBSD's dtrace ignores that its lines cannot be written, and would record without end."""
    disk = host.folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        line = (host.state / "head").read_text().splitlines(keepends=True)[-1]
        (host.state / "more").write_text(line * (4_000_000 // len(line)))
        done = host.capture(["dash"], "--min-free", "0", "-o", str(disk / "x.capture"), status=125)
        assert "no space left for the recording; " in done.stderr
        assert "No space" not in done.stderr
        assert host.json_of(disk / "x.capture")["complete"] is False
        assert len(Decoded(disk / "x.capture").tables["switches"]) >= 2
        assert not [path for path in disk.iterdir() if path.name != "x.capture"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_lines_that_could_not_be_written_count_as_lost(host: Host) -> None:
    """As where a full disk got room again: dtrace had counted them."""
    tail = (host.state / "tail").read_text()
    (host.state / "tail").write_text(re.sub(r"(#count\tS\t)(\d+)", r"\g<1>7", tail))
    done = host.capture(["dash"], "-o", "x.capture", "--", "true")
    assert "events were LOST" in done.stderr
    assert [(row["cpu"], row["count"], row["reason"]) for row in host.json()["lost"]] == [
        (None, 5, "output")
    ]


def test_capture_of_4bsd_has_no_topology(host: Host) -> None:
    (host.sysctls / "kern.sched.topology_spec").unlink()
    (host.sysctls / "kern.sched.name").write_text("4BSD\n")
    host.capture(["dash"], "-o", "x.capture", "--", "true")
    assert [row["cpu"] for row in host.table("cpus.tsv")] == ["0", "1", "2", "3"]
    assert {row["core"] + row["llc"] for row in host.table("cpus.tsv")} == {""}
    assert host.json()["scheduler"]["name"] == "4BSD"


@pytest.mark.parametrize(
    ("arguments", "switches", "expected"),
    [((), 0, "bufsize=16384k"), (("-b", "2048K"), 0, "bufsize=2048k"), ((), 400_000, "")],
)
def test_buffer_size_follows_the_load_by_default(
    host: Host, arguments: tuple[str, ...], switches: int, expected: str
) -> None:
    if switches:
        (host.sysctls / "hw.physmem").write_text(f"{32 << 30}\n")
        # A counter that moves: 100,000 switches a second and CPU.
        bin_folder = host.folder / "bin"
        bin_folder.mkdir()
        moving = bin_folder / "sysctl"
        moving.write_text(
            "#!/bin/sh\n"
            'if [ "$2" = vm.stats.sys.v_swtch ]; then\n'
            '    n=$(cat "$STAND_IN_STATE/n" 2>/dev/null || echo 0)\n'
            '    echo "$n"\n'
            f'    echo $((n + {switches} / 4)) >"$STAND_IN_STATE/n"\n'
            "    exit\n"
            "fi\n"
            f'exec {STAND_INS}/sysctl "$@"\n'
        )
        moving.chmod(0o755)
    environment = host.environment()
    environment["PATH"] = f"{host.folder}/bin:{environment['PATH']}"
    subprocess.run(
        host.words(["dash"], *arguments, "-o", "x.capture", "--", "true"),
        cwd=host.folder, env=environment, check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    words = (host.state / "dtrace.arguments").read_text().split("\n")
    (size,) = [word for word in words if word.startswith("bufsize=")]
    if switches:
        # 100,000 switches/s x 20 x 400 bytes / 20 Hz = 40 MB.
        assert size == "bufsize=39062k"
    else:
        assert size == expected
    assert words[words.index(next(w for w in words if w.endswith("sched.d"))) + 1 :][:3] == [
        "1402000", "4", "0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("physmem", "fraction", "most"),
    [(2 << 30, 128, 4096), (512 << 20, 128, 1024), (2 << 30, 16, 32_768), (997 << 20, 128, 1994)],
    ids=str,
)
def test_buffer_size_is_what_the_kernel_grants(
    host: Host, physmem: int, fraction: int, most: int
) -> None:
    """memory / kern.dtrace.bufsize_max / CPUs: dtrace refuses more."""
    (host.sysctls / "hw.physmem").write_text(f"{physmem}\n")
    (host.sysctls / "kern.dtrace.bufsize_max").write_text(f"{fraction}\n")
    done = host.capture(["dash"], "-o", "x.capture", "--", "true")
    assert (
        f"each CPU gets two buffers of {min(most, 16_384)} KiB; -b changes that, up to {most} here"
        in done.stderr
    )
    assert host.json()["buffer_kb"] == min(most, 16_384)
    done = host.capture(["dash"], "-b", f"{most + 1}K", "-o", "y.capture", "--", "true", status=125)
    assert f"-b {most + 1} is more than this kernel allows, {most} KiB per CPU" in done.stderr
    allowed = re.search(r"kern.dtrace.bufsize_max=(\d+)", done.stderr)
    if fraction > 16:
        assert allowed is not None
        # The advised size is enough, and no larger than needed.
        assert physmem // int(allowed[1]) // 4 >= (most + 1) * 1024
    host.capture(["dash"], "-b", f"{most}K", "-o", "z.capture", "--", "true")


@pytest.mark.parametrize("extras", [(), ("--with", "callout")], ids=str)
@pytest.mark.parametrize(("ncpu", "most_cpus"), [(1, 256), (2, 256), (64, 1024)], ids=str)
def test_arrays_of_the_scripts_fit_into_the_share_of_the_present_cpus(
    host: Host, ncpu: int, most_cpus: int, extras: tuple[str, ...]
) -> None:
    """DTrace makes a share for each CPU the kernel is built for, and uses those of CPUs present."""
    (host.sysctls / "hw.ncpu").write_text(f"{ncpu}\n")
    (host.sysctls / "kern.smp.maxcpus").write_text(f"{most_cpus}\n")
    host.capture(["dash"], *extras, "-o", "x.capture", "--", "true")
    words = (host.state / "dtrace.arguments").read_text().split("\n")
    (size,) = [word for word in words if word.startswith("dynvarsize=")]
    chunk, bucket = 96, 64
    total = int(size.removeprefix("dynvarsize=").removesuffix("k")) * 1024
    buckets = total // (chunk + bucket)
    share = (total - buckets * bucket) // most_cpus // chunk
    # `known`, `preempting` and `leaving` of each CPU, and for callouts what is freed in 10 ms.
    assert share * ncpu >= 512 + 2 * ncpu + (1000 if extras else 0)
    assert total <= (17179869184 >> 4)


def test_a_slow_host_gets_buffers_that_dtrace_can_print_in_time(host: Host) -> None:
    """4000 lines/s x 10 s x 200 bytes on 4 CPUs: one pass of 30 s, and dtrace is taken for dead."""
    environment = host.environment() | {"SCHEDSCOPE_DTRACE_LINES_PER_SECOND": "4000"}
    subprocess.run(
        host.words(["dash"], "-o", "x.capture", "--", "true"),
        cwd=host.folder, env=environment, check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    assert host.json()["dtrace"]["bufsize"] == "1953k"


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_the_pace_of_the_host_is_measured(host: Host, shell: list[str]) -> None:
    """Every shell's `times` is parsed; how large the number is depends on the host."""
    environment = host.environment()
    del environment["SCHEDSCOPE_DTRACE_LINES_PER_SECOND"]
    subprocess.run(
        host.words(shell, "-o", "x.capture", "--", "true"),
        cwd=host.folder, env=environment, check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    assert 512 <= host.json()["buffer_kb"] <= 16_384


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_bundle_captures_from_one_file(host: Host, shell: list[str]) -> None:
    """The bundle includes FreeBSD's part, and its scripts reach dtrace."""
    file = host.folder / "capture"
    assert cli.main(["collectors", "--bundle", str(file)]) == 0
    words = host.words(shell, "--with", "prio", "-o", "x.capture", "--", "true")
    words[words.index(str(COLLECTORS / "capture"))] = str(file)
    done = subprocess.run(
        words, cwd=host.folder, env=host.environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert len(Decoded(host.folder / "x.capture").tables["switches"]) == 2
    scripts = [Path(word).name for word in (host.state / "dtrace.arguments").read_text().split()]
    assert [name for name in scripts if name.endswith(".d")] == ["prio.d", "sched.d"]


def test_additions_come_before_the_script_that_ends_the_file(host: Host) -> None:
    host.capture(["dash"], "--with", "prio,irq", "-o", "x.capture", "--", "true")
    words = (host.state / "dtrace.arguments").read_text().split("\n")
    assert [Path(word).name for word in words if word.endswith(".d")] == [
        "prio.d",
        "irq.d",
        "sched.d",
    ]
    done = host.capture(["dash"], "--with", "disk", "-o", "y.capture", "--", "true", status=125)
    assert "--with disk is unknown to dtrace; it knows: prio irq callout" in done.stderr


@pytest.mark.parametrize(
    ("sysctl", "value", "complaint"),
    [
        ("security.jail.jailed", "1", "this is a jail"),
        ("kern.securelevel", "1", "dtraceall_load=YES"),
    ],
)
def test_setting_that_forbids_tracing_is_named(
    host: Host, sysctl: str, value: str, complaint: str
) -> None:
    (host.sysctls / sysctl).write_text(value + "\n")
    done = host.capture(["dash"], "-o", "x.capture", "--", "true", status=125)
    assert complaint in done.stderr
    assert not list(host.folder.glob("x.capture*"))


def test_missing_dtraceall_module_names_what_to_install(host: Host) -> None:
    (host.folder / "dtraceall.ko").unlink()
    done = host.capture(["dash"], "-o", "x.capture", "--", "true", status=125)
    assert (
        "there is no module /boot/kernel/dtraceall.ko; install the kernel's modules" in done.stderr
    )
    assert not list(host.folder.glob("x.capture*"))


def test_the_module_dtrace_alone_is_not_enough(host: Host) -> None:
    """The scheduler's probes are in the module sdt; dtraceall, which needs it, is loaded."""
    (host.state / "module-dtrace").touch()
    host.capture(["dash"], "-o", "x.capture", "--", "true")
    assert (host.state / "dtraceall").exists()


def test_no_module_is_loaded_with_sdt_present(host: Host) -> None:
    """Even where securelevel forbids it."""
    (host.state / "module-sdt").touch()
    (host.sysctls / "kern.securelevel").write_text("2\n")
    host.capture(["dash"], "-o", "x.capture", "--", "true")
    assert not (host.state / "dtraceall").exists()


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("no-module", "kldload dtraceall failed"),
        ("no-probes", "no probes of the provider sched; it needs options KDTRACE_HOOKS"),
    ],
)
def test_a_dtrace_that_cannot_start_leaves_nothing(host: Host, flag: str, complaint: str) -> None:
    (host.state / flag).touch()
    done = host.capture(["dash"], "-o", "x.capture", "--", "true", status=125)
    assert complaint in done.stderr
    assert not list(host.folder.glob("x.capture*"))


FAILED = "dtrace: failed to compile script"


@pytest.mark.parametrize(
    ("extra", "said", "complaint"),
    [
        (
            "prio",
            f"{FAILED} /tmp/freebsd/sched.d: line 9: td_nope is not a member of struct thread",
            "has no member td_nope of struct thread, which sched.d reads: nothing but a release",
        ),
        (
            "prio",
            f"{FAILED} prio.d: line 9: td_nope is not a member of struct thread",
            "no member td_nope of struct thread, which prio.d reads: record without --with prio",
        ),
        (
            "irq",
            f"{FAILED} irq.d: line 3: probe description fbt::x:entry does not match any probes",
            "has no probe fbt::x:entry, which irq.d reads: record without --with irq",
        ),
        ("irq", "dtrace: something else", "something else"),
    ],
)
def test_unsupported_kernel_is_reported_in_one_sentence(
    host: Host, extra: str, said: str, complaint: str
) -> None:
    (host.state / "dtrace-fails").write_text(said + "\n")
    arguments = ["-o", "x.capture", "--with", extra, "--", "true"]
    done = host.capture(["dash"], *arguments, status=125)
    assert complaint in done.stderr.splitlines()[-1]
    assert not list(host.folder.glob("x.capture*"))


@pytest.mark.parametrize("flag", ["no-module", "no-probes"])
def test_list_reports_no_where_capture_would_fail(host: Host, flag: str) -> None:
    (host.state / flag).touch()
    done = host.capture(["dash"], "--list")
    assert done.stdout.startswith("dtrace: no: ")


def test_option_inter_needs_ule(host: Host) -> None:
    host.capture(["dash"], "-o", "x.capture", "--with", "inter", "--", "true")
    assert (host.state / "dtrace.arguments").read_text().count("inter.d") == 1
    (host.sysctls / "kern.sched.name").write_text("4BSD\n")
    done = host.capture(["dash"], "-o", "y.capture", "--with", "inter", "--", "true", status=125)
    assert "this kernel runs 4BSD" in done.stderr


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_ring_keeps_the_last_events(host: Host, shell: list[str]) -> None:
    """DTrace prints the ring at its end, with the first line after all others."""
    host.capture(shell, "--ring", "64M", "-o", "x.capture", "--", "sleep", "0.3")
    words = (host.state / "dtrace.arguments").read_text().split()
    assert ("bufpolicy=ring" in words, "bufsize=16384k" in words) == (True, True)
    assert words[words.index("1402000") :][:4] == ["1402000", "4", "0", "1"]
    text = (host.folder / "x.capture" / "events.txt").read_text()
    assert text.startswith("#sched\t2\t")
    assert text.count("#sched") == text.count("#ring") == 1
    about = host.json()
    assert about["complete"] is True
    assert about["window"] == {"begin": 5_000_000_000, "end": 6_000_000_000}
    assert any("a time of its own" in note for note in about["notes"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--ring", "20s"], "--ring takes a size"),
        (["--ring", "64M", "--until", "exit != 0"], "one snapshot"),
    ],
)
def test_unsupported_ring_arguments_are_refused(
    host: Host, arguments: list[str], complaint: str
) -> None:
    done = host.capture(["dash"], *arguments, "-o", "x", "--", "true", status=125)
    assert complaint in done.stderr


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_dying_dtrace_ends_the_capture_with_its_reason(host: Host, shell: list[str]) -> None:
    (host.state / "dtrace-dies").touch()
    done = host.capture(shell, "-o", "x.capture", "-d", "8", status=125)
    assert "systemic unresponsiveness" in done.stderr
    assert "x.capture holds what came before" in done.stderr
    assert "use a smaller -b (it was 16384)" in done.stderr
    assert host.json()["complete"] is False


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_interrupting_keeps_what_was_recorded(host: Host, shell: list[str]) -> None:
    process = subprocess.Popen(
        host.words(shell, "-o", "x.capture"),
        cwd=host.folder, env=host.environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    stream = process.stderr
    assert stream is not None
    deadline = time.monotonic() + 60
    while "Ctrl-C ends" not in (line := stream.readline()) and time.monotonic() < deadline:
        assert line or process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 0
    stream.close()
    assert host.json()["complete"] is True
    assert len(Decoded(host.folder / "x.capture").tables["switches"]) == 2


def test_dtrace_gets_one_signal_however_long_it_prints(host: Host) -> None:
    """At a second signal it drops what it has not printed yet."""
    (host.state / "slow").touch()
    done = host.capture(["dash"], "-o", "x.capture", "--", "true")
    assert (host.state / "signals").read_text() == "USR1\n"
    assert host.json()["complete"] is True
    assert "none lost" in done.stderr


@pytest.mark.parametrize("name", ["INT", "TERM", "PIPE"])
def test_signal_to_the_process_group_loses_nothing(host: Host, name: str) -> None:
    """FreeBSD has no setsid: a signal from a terminal or timeout(1) reaches dtrace, too."""
    (host.state / "slow").touch()
    process = subprocess.Popen(
        host.words(["dash"], "-o", "x.capture"),
        cwd=host.folder, env=host.environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    stream = process.stderr
    assert stream is not None
    while "Ctrl-C ends" not in (line := stream.readline()):
        assert line or process.poll() is None
    dtrace = [
        int(pid)
        for pid in host.json_of(host.folder / "x.capture.partial")["recorder_tids"]
        if b"stand-ins/dtrace" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(dtrace) == 1
    number = getattr(signal, f"SIG{name}")
    os.kill(dtrace[0], number)
    os.kill(process.pid, number)
    assert process.wait(timeout=60) == 0
    stream.close()
    assert (host.state / "signals").read_text() == "USR1\n"
    assert host.json()["complete"] is True


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_dtrace_ends_the_recording_on_time(host: Host, shell: list[str]) -> None:
    host.capture(shell, "-o", "x.capture", "-d", "0.5")
    assert host.json()["complete"] is True
    # On a busy host the time is up for capture, too, before dtrace gets to its own end.
    signals = host.state / "signals"
    assert not signals.exists() or signals.read_text() == "USR1\n"
    words = (host.state / "dtrace.arguments").read_text().split("\n")
    assert [Path(word).name for word in words if word.endswith(".d")] == ["duration.d", "sched.d"]
    assert words[words.index(next(w for w in words if w.endswith("sched.d"))) + 1 :][:5] == [
        "1402000", "4", "0", "0", "500000000",
    ]  # fmt: skip


def test_capture_ends_on_time_without_the_profile_provider(host: Host) -> None:
    (host.state / "no-profile").touch()
    host.capture(["dash"], "-o", "x.capture", "-d", "0.5")
    assert host.json()["complete"] is True
    assert (host.state / "signals").read_text() == "USR1\n"


def test_recording_ended_early_by_another_process_is_reported(host: Host) -> None:
    """The stand-in's recording has 1 s, and ends after 1.5 s as if on time."""
    done = host.capture(["dash"], "-o", "x.capture", "-d", "1.5", status=125)
    assert "dtrace was told to end by somebody else, after 1.0 s" in done.stderr
    assert host.json()["complete"] is False


def test_next_capture_names_leftovers_of_a_killed_one(host: Host) -> None:
    """Unless it still records: one of its processes lives."""
    for name, pids in (("dead", None), ("killed", "999999999"), ("alive", str(os.getpid()))):
        left = host.folder / f"{name}.capture.partial"
        left.mkdir()
        (left / "capture.json").write_text("{}\n")
        if pids is not None:
            (left / ".scratch").mkdir()
            (left / ".scratch/pids").write_text(f"{pids}\n")
    done = host.capture(["dash"], "-o", "x.capture", "--", "true")
    said = [line for line in done.stderr.splitlines() if "was killed" in line]
    assert sorted(re.findall(r"(\w+)\.capture\.partial", " ".join(said))) == ["dead", "killed"]


@pytest.mark.needs("shellcheck")
def test_shellcheck_finds_nothing() -> None:
    files = [COLLECTORS / "dtrace-session.sh", *(COLLECTORS / "freebsd").glob("*.sh")]
    files.append(COLLECTORS / "linux" / "dtrace.sh")
    subprocess.run(["shellcheck", "-s", "sh", *map(str, files)], check=True)
