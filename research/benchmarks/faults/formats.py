"""A recording in the formats of other tools, each with what that tool says of lost events.

Losses that a format cannot tell are not in the file: perf and bpftrace have the place of each, and
text may have a count of all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from faults import lines, perfdata, recording as folders, tracedat
from faults.recording import Record, Recording

_LETTERS = {1: "S", 2: "D", 4: "T", 8: "t", 0x10: "X", 0x20: "Z", 0x40: "P", 0x80: "I"}
_WAKES = ("sched_waking", "sched_wakeup", "sched_wakeup_new")
_THREAD = 0x10000


class Event:
    """One record, its fields by name."""

    def __init__(self, made: Recording, cpu: int, record: Record, names: dict[int, str]) -> None:
        self.cpu, self.ts, self.missed = cpu, record.ts, record.missed
        self.name = made.name(record)
        self._fields, self._data, self._names = made.formats[record.event_id], record.data, names

    def __getitem__(self, field: str) -> int:
        return self._fields.get(self._data, field)

    def comm(self, field: str, tid: int) -> str:
        """A thread's name, of this field where it has a fixed place."""
        at, size = self._fields.fields.get(field, (0, 0))
        if size == 16:
            return self._data[at : at + size].split(b"\0")[0].decode(errors="replace")
        return self._names.get(tid, "<...>")


def events(made: Recording) -> Iterator[Event]:
    """In order of time, of the kinds that every format has."""
    names: dict[int, str] = {0: "<idle>"}
    for cpu, record in made.merged():
        event = Event(made, cpu, record, names)
        if event.name == "sched_switch":
            for side in ("prev", "next"):
                tid = event[f"{side}_pid"]
                names[tid] = event.comm(f"{side}_comm", tid)
        yield event


def _state(made: Recording, value: int) -> str:
    letters = "|".join(letter for bit, letter in _LETTERS.items() if value & bit)
    return letters or ("R+" if value else "R")


def _body(made: Recording, event: Event) -> str | None:
    if event.name == "sched_switch":
        sides = [
            f"{side}_comm={event.comm(f'{side}_comm', event[f'{side}_pid'])} "
            f"{side}_pid={event[f'{side}_pid']} {side}_prio={event[f'{side}_prio']}"
            for side in ("prev", "next")
        ]
        return f"{sides[0]} prev_state={_state(made, event['prev_state'])} ==> {sides[1]}"
    if event.name in _WAKES or event.name == "sched_migrate_task":
        who = f"comm={event.comm('comm', event['pid'])} pid={event['pid']} prio={event['prio']}"
        if event.name in _WAKES:
            return f"{who} target_cpu={event['target_cpu']:03}"
        return f"{who} orig_cpu={event['orig_cpu']} dest_cpu={event['dest_cpu']}"
    if event.name == "sched_process_exit":
        return f"comm={event.comm('comm', event['pid'])} pid={event['pid']} prio={event['prio']}"
    if event.name == "sched_process_fork":
        parent, child = event["parent_pid"], event["child_pid"]
        return (
            f"comm={event.comm('parent_comm', parent)} pid={parent} "
            f"child_comm={event.comm('child_comm', child)} child_pid={child}"
        )
    if event.name == "task_newtask":
        return (
            f"pid={event['pid']} comm={event.comm('comm', event['pid'])} "
            f"clone_flags={event['clone_flags']:x} oom_score_adj=0"
        )
    return None


def _lost(made: Recording) -> int:
    return sum(int(lines.get("overrun", 0)) for lines in made.stats.values())


def ftrace_text(made: Recording, folder: Path) -> Path:
    """What `cat trace` prints, with ns as `trace-cmd report -t` has them."""
    text = []
    for event in events(made):
        if event.missed is not None:
            count = f" {event.missed}" if event.missed else ""
            text.append(f"CPU:{event.cpu} [LOST{count} EVENTS]")
        if (body := _body(made, event)) is not None:
            tid = event["common_pid"]
            second, ns = divmod(event.ts, 10**9)
            who = f"{event.comm('', tid)}-{tid}"
            at = f"[{event.cpu:03}] d..2. {second}.{ns:09}"
            text.append(f"{who:>24} {at}: {event.name}: {body}")
    read = sum(not line.startswith("CPU:") for line in text)
    count = f"{read}/{read + _lost(made)}   #P:{made.about['ncpu']}"
    head = f"# tracer: nop\n#\n# entries-in-buffer/entries-written: {count}\n#\n"
    path = folder / "trace.txt"
    path.write_text(head + "\n".join(text) + "\n")
    return path


def perf_script(made: Recording, folder: Path) -> Path:
    """What `perf script --ns --show-lost-events` prints."""
    text = []
    for event in events(made):
        tid = event["common_pid"]
        who = "swapper" if not tid else event.comm("", tid).replace("<...>", f":{tid}")
        second, ns = divmod(event.ts, 10**9)
        at = f"{who:>16} {tid:>7} [{event.cpu:03}] {second:>6}.{ns:09}:"
        if event.missed is not None:
            text.append(f"{at} PERF_RECORD_LOST lost {event.missed or 1}")
        if (body := _body(made, event)) is not None:
            where = "task" if event.name == "task_newtask" else "sched"
            text.append(f"{at} {where}:{event.name}: {body}")
    path = folder / "script.txt"
    path.write_text("\n".join(text) + "\n")
    return path


def bpftrace(made: Recording, folder: Path) -> Path:
    """A capture folder of bpftrace's lines; a gap in their numbers is a loss."""
    path = folder / "bpftrace.capture"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    counts = dict.fromkeys(made.cpus, 0)
    text = ["#schedscope bpftrace 2 tid=0 clock=mono"]
    for event in events(made):
        if event.missed is not None:
            counts[event.cpu] += event.missed or 1
        if (words := _words(event)) is not None:
            letter, *rest = words
            text.append(f"{letter} {event.ts} {event.cpu} {counts[event.cpu]} {' '.join(rest)}")
            counts[event.cpu] += 1
    text.append(f"#end {made.window[1]}")
    text += [f"@n[{cpu}]: {n}" for cpu, n in counts.items()]
    (path / "events.txt").write_text("\n".join([*text, "@on: 1"]) + "\n")
    about = made.about | {"lost": [], "recorder": {"name": "bpftrace", "version": "0.17.0"}}
    about["clock"] = about["clock"] | {"name": "mono"}
    about.pop("ftrace", None)
    (path / "capture.json").write_text(json.dumps(about))
    for name in ("threads.tsv", "cpus.tsv"):
        if (made.folder / name).exists():
            shutil.copy(made.folder / name, path / name)
    return path


def _words(event: Event) -> list[str] | None:
    if event.name == "sched_switch":
        following = event["next_pid"]
        numbers = [0, event["prev_state"], event["prev_prio"], event["prev_pid"]]
        numbers += [event["next_prio"], following]
        name = event.comm("next_comm", following)
        return ["S", *map(str, numbers), name, str(event.ts)]
    if event.name in _WAKES:
        letter = "KEN"[_WAKES.index(event.name)]
        fields = ("common_pid", "target_cpu", "prio", "pid")
        return [letter, *(str(event[field]) for field in fields)]
    if event.name == "sched_migrate_task":
        return ["M", *(str(event[field]) for field in ("pid", "prio", "orig_cpu", "dest_cpu"))]
    if event.name == "sched_process_exit":
        return ["X", str(event["pid"]), str(event["pid"])]
    if event.name == "task_newtask":
        thread = int(bool(event["clone_flags"] & _THREAD))
        numbers = [event["common_pid"], event["common_pid"], event["pid"], thread]
        return ["F", *map(str, numbers), event.comm("comm", event["pid"]), str(event.ts)]
    return None


_BUNDLE, _STATS, _SYSTEM = 1, 34, 45
_FIELDS: dict[str, tuple[int, tuple[str, ...]]] = {
    "sched_switch": (4, ("prev_comm", "prev_pid", "prev_prio", "prev_state",
                         "next_comm", "next_pid", "next_prio")),
    "sched_waking": (20, ("comm", "pid", "prio", "", "target_cpu")),
    "sched_wakeup": (17, ("comm", "pid", "prio", "", "target_cpu")),
    "sched_wakeup_new": (114, ("comm", "pid", "prio", "", "target_cpu")),
    "task_newtask": (235, ("pid", "comm", "clone_flags", "")),
    "sched_process_exit": (238, ("comm", "pid", "", "prio")),
    "sched_process_fork": (239, ("parent_comm", "parent_pid", "child_comm", "child_pid")),
    "sched_migrate_task": (491, ("comm", "pid", "prio", "orig_cpu", "dest_cpu")),
}  # fmt: skip
"""Perfetto's number of each event, and of its fields from 1 on."""


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _message(fields: list[tuple[int, int | str | bytes]]) -> bytes:
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | 2) + _varint(len(content)) + content
    return bytes(out)


def perfetto(made: Recording, folder: Path) -> Path:
    """Full events, a bundle for as many of a CPU's as are not cut by a gap."""
    about = made.about
    uname = _message([(1, "Linux"), (2, "#1"), (3, about["release"]), (4, about["machine"])])
    packets = [_message([(_SYSTEM, _message([(1, uname)]))]), _counts(made, 1)]
    bundles: dict[int, list[tuple[int, int | str | bytes]]] = {}
    for event in events(made):
        bundle = bundles.setdefault(event.cpu, [(1, event.cpu)])
        if event.missed is not None and len(bundle) > 1:
            packets.append(_message([(_BUNDLE, _message(bundle))]))
            bundle = bundles[event.cpu] = [(1, event.cpu)]
        if event.missed is not None:
            bundle.append((3, 1))
        if (body := _fields(event)) is not None:
            number, message = body
            fields: list[tuple[int, int | str | bytes]] = [
                (1, event.ts),
                (2, event["common_pid"]),
                (number, message),
            ]
            bundle.append((2, _message(fields)))
    packets += [_message([(_BUNDLE, _message(bundle))]) for bundle in bundles.values()]
    packets.append(_counts(made, 2))
    path = folder / "mutant.pftrace"
    path.write_bytes(_message([(1, packet + _message([(10, 1)])) for packet in packets]))
    return path


def _counts(made: Recording, phase: int) -> bytes:
    """Of the kernel, at the beginning and at the end."""
    cpus: list[tuple[int, int | str | bytes]] = [
        (2, _message([(1, cpu), (3, int(lines.get("overrun", 0)) if phase == 2 else 0)]))
        for cpu, lines in made.stats.items()
    ]
    return _message([(_STATS, _message([(1, phase), *cpus]))])


def _fields(event: Event) -> tuple[int, bytes] | None:
    if event.name not in _FIELDS:
        return None
    number, names = _FIELDS[event.name]
    fields: list[tuple[int, int | str | bytes]] = []
    for at, name in enumerate(names, 1):
        if name.endswith("comm"):
            fields.append((at, event.comm(name, event[name.removesuffix("comm") + "pid"])))
        elif name:
            fields.append((at, event[name]))
    return number, _message(fields)


def _trace_dat(made: Recording, folder: Path) -> Path:
    path = folder / "mutant.dat"
    path.write_bytes(tracedat.encode(made))
    return path


Writer = Callable[[Recording, Path], Path]

OF_FTRACE: dict[str, Writer] = {
    "capture": lambda made, folder: folders.write(made, folder / "mutant.capture"),
    "trace.dat": _trace_dat,
    "ftrace text": ftrace_text,
    "perf script": perf_script,
    "bpftrace": bpftrace,
    "Perfetto": perfetto,
}
OF_OTHERS: dict[str, Writer] = {
    "perf": perfdata.write,
    "dtrace": lines.write_dtrace,
    "ktr": lines.write_ktr,
}
"""By the recorder's name."""


def read(path: Path) -> Recording:
    """A capture folder of ftrace, perf or DTrace, or a dump of KTR; ValueError for others."""
    if path.is_file():
        return lines.ktr(path)
    about = json.loads((path / "capture.json").read_text())
    if about["recorder"]["name"] == "perf":
        return perfdata.recording(path, about)
    if about["recorder"]["name"] == "dtrace":
        return lines.dtrace(path, about)
    return folders.read(path)


def formats_of(made: Recording) -> dict[str, Writer]:
    """Those that a recording can be written in, its own first."""
    name = made.about["recorder"]["name"]
    return {name: OF_OTHERS[name]} if name in OF_OTHERS else OF_FTRACE
