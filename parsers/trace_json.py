"""What trace.json may contain: the types of its keys, checked once when a trace is opened.

Keys that nothing here names are kept as they are: other programs may add their own.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from schedscope.errors import FormatError

FAR = 2**62
"""No time is farther from 0, ns: 146 years."""
MOST_CPUS = 2**14


def _whole(least: int, most: int, what: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        return "" if type(value) is int and least <= value <= most else what

    return check


_count = _whole(0, 2**63 - 1, "a whole number of 0 or more")
_stamp = _whole(-FAR, FAR, "a time in ns, within 2^62 ns of 0")
_cpu = _whole(0, MOST_CPUS - 1, f"the number of a CPU, below {MOST_CPUS}")
_number = _whole(-(2**63), 2**63 - 1, "a whole number")
_tid = _whole(0, 2**32 - 1, "the number of a thread or process")
_nice = _whole(-20, 19, "a nice level, -20 to 19")
_freebsd_nice = _whole(-20, 20, "a nice level, -20 to 20")


def _text(value: Any) -> str:
    return "" if isinstance(value, str) else "a text"


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "true or false"


def _any(_value: Any) -> str:
    return ""


def _object(value: Any) -> str:
    return "" if isinstance(value, dict) else "an object"


def _window(value: Any) -> str:
    what = "[start, end] in ns, within 2^62 ns of 0, the start first"
    if not (isinstance(value, list) and len(value) == 2 and not any(map(_stamp, value))):
        return what
    return "" if value[0] <= value[1] else what


def _span(value: Any) -> str:
    whole = isinstance(value, list) and len(value) == 2 and not any(map(_stamp, value))
    return "" if whole and value[0] <= value[1] else "the least and the most, in ns"


def _pair(value: Any) -> str:
    whole = isinstance(value, list) and len(value) == 2 and not any(map(_number, value))
    return "" if whole else "two times in ns"


class _Each:
    """A list of one shape, or an object whose values are; `digits`: whose keys are numbers.

    `needed`: keys without which one of them says nothing.
    """

    def __init__(
        self, kind: type, shape: Any, *, digits: bool = False, needed: tuple[str, ...] = ()
    ) -> None:
        self.kind: Any = kind
        self.shape, self.digits, self.needed = shape, digits, needed


_SHAPE: Mapping[str, Any] = {
    "ncpu": _whole(0, MOST_CPUS - 1, f"a number of CPUs, below {MOST_CPUS}"),
    "window": _window,
    "counters_read": _window,
    "origin": _stamp,
    "events": _Each(dict, _Each(dict, _count, digits=True)),
    "rows": _Each(dict, _count),
    "per_cpu": _Each(
        list,
        {
            "cpu": _cpu,
            "switches": _count,
            "running": _number,
            "idle": _number,
            "unknown": _number,
            "first_ts": _stamp,
            "last_ts": _stamp,
        },
        needed=("cpu", "running", "idle", "unknown"),
    ),
    "reconstruction": _Each(dict, _count),
    "groups": _Each(
        list,
        {
            "cgroup": _text,
            **dict.fromkeys(("weight", "quota", "period", "usage", "pressure"), _count),
            **dict.fromkeys(("n_periods", "n_throttled", "throttled", "phase"), _count),
        },
        needed=("cgroup",),
    ),
    "group_moves": _Each(
        list,
        {"ts": _stamp, "tid": _tid, "from": _text, "cgroup": _text},
        needed=("ts", "tid", "cgroup"),
    ),
    "autogroups": _Each(
        list,
        {"pid": _tid, "session": _count, "nice": _nice},
        needed=("pid", "session", "nice"),
    ),
    "reservations": _Each(
        list,
        {"tid": _tid, "runtime": _count, "deadline": _count, "period": _count},
        needed=("tid", "runtime", "deadline", "period"),
    ),
    "slices": _Each(list, {"tid": _tid, "slice": _count}, needed=("tid", "slice")),
    "nice": _Each(list, {"tid": _tid, "nice": _freebsd_nice}, needed=("tid", "nice")),
    "cpu_time": _Each(
        list,
        {
            "cpu": _cpu,
            **dict.fromkeys(("user", "system", "idle", "irq", "softirq", "steal"), _count),
            "elapsed": _count,
        },
        needed=("cpu",),
    ),
    "clock_offsets": _Each(
        list,
        {"cpu": _cpu, "ahead": _span, "breaks": _count, "breaks_left": _count},
        needed=("cpu", "breaks", "breaks_left"),
    ),
    "offline": _Each(
        list, {"cpu": _cpu, "begin": _count, "end": _count}, needed=("cpu", "begin", "end")
    ),
    "unplaced_losses": _Each(list, {"cpu": _cpu, "count": _count, "reason": _text}),
    "filtered": {"utids": _Each(list, _count)},
    "warnings": _Each(list, _text),
    "notes": _Each(list, _text),
    "source": {"name": _text, "format": _text, "bytes": _count},
    "files": _Each(dict, {"bytes": _count, "crc32": _text, "metadata": _text}),
    "checksums": {"files": _count, "damaged": _Each(list, _text)},
    "clock": {
        "name": _text,
        "resolution_ns": _count,
        "pairs": _Each(list, _pair),
    },
    "recorder": {
        "name": _text,
        "version": _text,
        "why": _text,
        "command": _any,
        "quota_refills": _flag,
    },
    "scheduler": {
        "name": _text,
        "models": _text,
        "priorities": _text,
        "tunables": _Each(dict, _text),
    },
    "workload": _object,
    "simulation": _object,
    "priorities": _Each(dict, _Each(list, _any), digits=True),
    "hz": _whole(1, 10**9, "a number of ticks per second"),
    "stathz": _whole(1, 10**9, "a number of ticks per second"),
    **dict.fromkeys(("os", "release", "machine", "hostname", "preempt", "generator"), _text),
    **dict.fromkeys(("has_waking", "has_enqueued", "complete", "unreported_losses"), _flag),
}
# Some formats know only a name, as in "clock": "boot".
_NAMES = ("clock", "recorder", "scheduler", "workload")
# Without these there is no trace.
_NEEDED = ("ncpu",)


SUM = "crc32"
"""The key of the checksum, the last one."""
# Valid only in the form of `written`: a program that rewrites the object formats it differently.
_LAST = re.compile(rb',\n "crc32": "([0-9a-f]{8})"\n\}\n\Z')


def written(info: Mapping[str, Any]) -> str:
    """The text of trace.json. Its last line is the checksum of what stands before."""
    facts = {key: value for key, value in info.items() if key != SUM}
    text = json.dumps(facts, ensure_ascii=False, indent=1).removesuffix("\n}")
    return f'{text},\n "{SUM}": "{zlib.crc32(text.encode()):08x}"\n}}\n'


def parse(text: bytes, where: str) -> dict[str, Any]:
    """The object in `text`; raises `FormatError` if it is not one or a key has the wrong type.

    `where` is how errors call the file.
    """
    last = _LAST.search(text)
    if last and zlib.crc32(text[: last.start()]) != int(last[1], 16):
        raise FormatError(
            f"{where} is not as it was written: its checksum differs",
            "what `schedscope convert` wrote",
            f"convert the capture again; or, if you changed it yourself, remove its line {SUM}",
        )
    try:
        info = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise FormatError(
            f"{where} is not JSON: {reason[:200]}",
            "what `schedscope convert` wrote",
            "convert the capture again",
        ) from error
    if not isinstance(info, dict):
        raise FormatError(f"{where} is not an object", "what `schedscope convert` wrote")
    info.pop(SUM, None)
    return info


def check(info: Mapping[str, Any], where: str) -> None:
    """Raises `FormatError` naming the first key of a trace's facts that has a wrong value."""
    for key in _NEEDED:
        if info.get(key) is None:
            raise FormatError(f"{where} has no {key}", "what `schedscope convert` wrote")
    found = wrong(info)
    if found:
        path, value, expected = found
        raise FormatError(
            f"{where}: {path} is {shown(value)}",
            expected,
            "convert the capture again; if that does not help, the recording itself is wrong",
        )
    begin, end = info.get("window") or (0, 0)
    if (end - begin) * max(1, info["ncpu"]) >= 2**63:
        raise FormatError(
            f"{where}: a window of {end - begin} ns on {info['ncpu']} CPUs",
            "less than 2^63 ns, that is 292 years, of all CPUs' time",
        )


def wrong(info: Mapping[str, Any]) -> tuple[str, Any, str] | None:
    """The first key with a wrong value, the value, and what it should have been."""
    for key, shape in _SHAPE.items():
        value = info.get(key)
        if value is None or (key in _NAMES and isinstance(value, str)):
            continue
        if found := _wrong(key, value, shape):
            return found
    return None


def _wrong(path: str, value: Any, shape: Any) -> tuple[str, Any, str] | None:
    if isinstance(shape, _Each):
        if not isinstance(value, shape.kind):
            return path, value, "an object" if shape.kind is dict else "a list"
        if shape.kind is list:
            parts = [(f"{path}[{i}]", part) for i, part in enumerate(value)]
        else:
            strange = [key for key in value if shape.digits and not _is_number(key)]
            if strange:
                return f"a key of {path}", strange[0], "a number"
            parts = [(f"{path}.{key}", part) for key, part in value.items()]
        for where, part in parts:
            if found := _wrong(where, part, shape.shape) or _lacking(where, part, shape.needed):
                return found
        return None
    if isinstance(shape, Mapping):
        if not isinstance(value, dict):
            return path, value, "an object"
        for key, inner in shape.items():
            part = value.get(key)
            if part is not None and (found := _wrong(f"{path}.{key}", part, inner)):
                return found
        return None
    expected = shape(value)
    return (path, value, expected) if expected else None


def _lacking(path: str, value: Any, needed: tuple[str, ...]) -> tuple[str, Any, str] | None:
    absent = [key for key in needed if value.get(key) is None]
    return (path, value, f"a value for {' and '.join(absent)}") if absent else None


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 12


def shown(value: Any) -> str:
    """A value in a sentence: not all of it, if it is long.

    >>> shown([1, 2]), shown("x" * 100)
    ('[1, 2]', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...")
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # digits without end; lists in lists
        return "too large to print"
    return text if len(text) <= 41 else text[:38] + "..."
