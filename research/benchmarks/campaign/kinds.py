"""Kinds of change to programs that others wrote, as users make them: `whatif_kinds.py` runs them.

A kind is a few programs side by side, each behind the words that configure it (`nice`, `taskset`,
`chrt`, a control group), the same with other words, and what `whatif` is asked for it. Half of the
kinds are set aside, every second one: they are for validation only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

PROGRAMS = {
    "server": "./work - server 8 500 1500 2000",
    "hogs": "./work - hogs 500 0,0,0",
    "two hogs": "./work - hogs 600 0,0",
    "sleepers": "./work - sleepers 4 10000 800 120 2",
    "pipes": "./work - pipes 5 5000",
    "forks": "./work - forks 4 60 20000",
    "mutex": "./work - mutex 6 200 200 600",
    "xz": "xz -1 -T2 --block-size=512KiB -k -c text",
    "bzip2": "bzip2 -1 -c text",
    "gzip": "sh -c 'cat text | gzip -2 -c | cat'",
    "make": "make -r -s -j3 -f build.mk",
    "mp": "python3 mp.py",
    "sqlite3": "sh -c 'sqlite3 :memory: < rows.sql'",
    "java": "java -XX:+UseG1GC -Xmx256m W",
    "cyclictest": "cyclictest -q -i 2000 -l 600 -t 1",
    "hackbench": "hackbench -g 1 -f 8 -l 300",
    "openssl": "sh -c 'for i in 1 2 3; do openssl prime -generate -bits 1400 & done; wait'",
    "pgbench": "pgbench -h /tmp -p 54329 -U nobody -n -S -c 4 -j 2 -T 2 postgres",
    "awk": "awk 'BEGIN { for (i = 0; i < 6000000; i++) s += i % 7; print s }'",
}

REAL_TIME = {
    policy: f"chrt --{policy} {priority} sh -c 'exec \"$@\" --policy={policy} -p {priority}' sh"
    for policy, priority in (("fifo", 50), ("rr", 20))
}
"""The thread of cyclictest that measures leaves the class it was started in, unless it is told
which to take."""

MAKE = ("make", "sh", "gcc", "cc1", "as")
"""The names of a build's threads."""


@dataclass(frozen=True)
class Kind:
    """Programs with the words before them (`as_is`), the words that change (`then`), and what
    `whatif` is asked: `load` starts so many loops beside, in a session of their own."""

    name: str
    as_is: dict[str, str]
    then: dict[str, str]
    ask: dict[str, Any]
    by: str = "name"
    load: int = 0
    extras: str = ""
    weights: dict[str, int] = field(default_factory=dict)
    """Control groups `@NAME` of the words, and their `cpu.shares` with the change."""


def _make(value: Any) -> dict[str, Any]:
    return dict.fromkeys(MAKE, value)


KINDS = [
    # The fifteen of which an outside audit measured how often ranges hold.
    Kind(
        "weight 25 for xz",
        {"server": "@b", "xz": "@a"},
        {},
        {"set_weight": {"/wi-a": 25}},
        weights={"a": 256},
    ),
    Kind("xz batch", {"server": "", "xz": ""}, {"xz": "chrt -b 0"}, {"set_class": {"xz": "batch"}}),
    Kind(
        "make idle", {"server": "", "make": ""}, {"make": "chrt -i 0"}, {"set_class": _make("idle")}
    ),
    Kind(
        "a CPU each: server, make",
        {"server": "", "make": ""},
        {"server": "taskset -c 0", "make": "taskset -c 1"},
        {"pin": {"work": "0", "worker*": "0", "dispatcher*": "0", **_make("1")}},
    ),
    Kind(
        "server nice -10 beside hogs",
        {"server": "", "hogs": ""},
        {"server": "nice -n -10"},
        {"set_nice": {"worker*": -10, "dispatcher*": -10}},
    ),
    Kind(
        "multiprocessing nice 10",
        {"server": "", "mp": ""},
        {"mp": "nice -n 10"},
        {"set_nice": {"python3": 10}},
    ),
    Kind(
        "sqlite3 on CPU 1",
        {"sqlite3": "", "hogs": ""},
        {"sqlite3": "taskset -c 1"},
        {"pin": {"sqlite3": "1"}},
    ),
    Kind(
        "JVM nice 5",
        {"java": "", "server": ""},
        {"java": "nice -n 5"},
        {"set_nice": {"process:java": 5}},
        by="process_name",
    ),
    Kind(
        "cyclictest FIFO 50",
        {"cyclictest": "", "hogs": ""},
        {"cyclictest": REAL_TIME["fifo"]},
        {"set_class": {"cyclictest": "fifo:50"}},
    ),
    Kind("two more hogs beside make", {"make": ""}, {}, {"add_load": 2}, load=2),
    Kind("quota 50% for xz", {"server": "", "xz": ""}, {"xz": "@q"}, {"quota": {"xz": "50%"}}),
    Kind(
        "own slice 0.3 ms for the server",
        {"server": "", "xz": ""},
        {"server": "./sliced 300000"},
        {"set_slice": {"worker*": "300us", "dispatcher*": "300us"}},
    ),
    Kind(
        "hackbench on CPU 0",
        {"hackbench": ""},
        {"hackbench": "taskset -c 0"},
        {"pin": {"hackbench": "0"}},
    ),
    Kind(
        "xz RR 10",
        {"server": "", "awk": "", "xz": ""},
        {"xz": "chrt -r 10"},
        {"set_class": {"xz": "rr:10"}},
    ),
    Kind(
        "pgbench beside xz at nice 19",
        {"pgbench": "", "xz": ""},
        {"xz": "nice -n 19"},
        {"set_nice": {"xz": 19}},
    ),
    # Others.
    Kind(
        "awk nice 5 beside hogs",
        {"two hogs": "", "awk": ""},
        {"awk": "nice -n 5"},
        {"set_nice": {"awk": 5, "mawk": 5}},
    ),
    Kind(
        "awk nice 19 beside sleepers",
        {"sleepers": "", "awk": ""},
        {"awk": "nice -n 19"},
        {"set_nice": {"awk": 19, "mawk": 19}},
    ),
    Kind(
        "cyclictest RR 20 beside xz",
        {"cyclictest": "", "xz": ""},
        {"cyclictest": REAL_TIME["rr"]},
        {"set_class": {"cyclictest": "rr:20"}},
    ),
    Kind(
        "hogs idle",
        {"server": "", "hogs": ""},
        {"hogs": "chrt -i 0"},
        {"set_class": {"hog*": "idle"}},
    ),
    Kind(
        "pipes on CPU 0",
        {"pipes": ""},
        {"pipes": "taskset -c 0"},
        {"pin": {"writer*": "0", "reader*": "0", "work": "0"}},
    ),
    Kind(
        "quota 50% for the hogs",
        {"server": "", "hogs": ""},
        {"hogs": "@q"},
        {"quota": {"hog*": "50%"}},
    ),
    Kind(
        "mutex threads nice 10 beside awk",
        {"mutex": "", "awk": ""},
        {"mutex": "nice -n 10"},
        {"set_nice": {"long*": 10, "short*": 10}},
        extras="locks",
    ),
    Kind(
        "forks on CPU 0",
        {"forks": "", "awk": ""},
        {"forks": "taskset -c 0"},
        {"pin": {"job*": "0", "part*": "0", "work": "0"}},
    ),
    Kind("three more hogs beside hogs", {"hogs": ""}, {}, {"add_load": 3}, load=3),
    Kind(
        "gzip pipeline on CPU 0",
        {"gzip": "", "awk": ""},
        {"gzip": "taskset -c 0"},
        {"pin": {"gzip": "0", "cat": "0"}},
    ),
    Kind(
        "openssl on CPU 1",
        {"openssl": "", "server": ""},
        {"openssl": "taskset -c 1"},
        {"pin": {"openssl": "1"}},
    ),
    Kind(
        "bzip2 nice 10 beside sleepers",
        {"sleepers": "", "bzip2": ""},
        {"bzip2": "nice -n 10"},
        {"set_nice": {"bzip2": 10}},
    ),
    Kind(
        "weight 400 for the server",
        {"server": "@b", "hogs": "@a"},
        {},
        {"set_weight": {"/wi-b": 400}},
        weights={"b": 4096},
    ),
    Kind("quota lifted", {"xz": "@q", "server": ""}, {"xz": "@a"}, {"quota": {"/wi-q": "none"}}),
    Kind(
        "unpinned",
        {"xz": "taskset -c 0", "server": "taskset -c 0"},
        {"xz": "", "server": ""},
        {"pin": {"xz": "0-1", "worker*": "0-1", "dispatcher*": "0-1", "work": "0-1"}},
    ),
    Kind(
        "nice 10 taken back",
        {"make": "nice -n 10", "server": ""},
        {"make": ""},
        {"set_nice": _make(0)},
    ),
    Kind(
        "cyclictest nice -15",
        {"cyclictest": "", "hogs": ""},
        {"cyclictest": "nice -n -15"},
        {"set_nice": {"cyclictest": -15}},
    ),
    Kind(
        "slices of 12 ms for hogs",
        {"hogs": "", "server": ""},
        {"hogs": "./sliced 12000000"},
        {"set_slice": {"hog*": "12ms"}},
    ),
    Kind(
        "JVM on CPU 0",
        {"java": "", "awk": ""},
        {"java": "taskset -c 0"},
        {"pin": {"process:java": "0"}},
        by="process_name",
    ),
    Kind(
        "make in a group of weight 50",
        {"make": "@a", "server": "@b"},
        {},
        {"set_weight": {"/wi-a": 50}},
        weights={"a": 512},
    ),
    Kind(
        "xz FIFO 10 on CPU 1",
        {"xz": "", "sqlite3": ""},
        {"xz": "taskset -c 1 chrt -f 10"},
        {"set_class": {"xz": "fifo:10"}, "pin": {"xz": "1"}},
    ),
]


def aside(number: int) -> bool:
    """Whether no rule may be tuned on the kind of this number."""
    return number % 2 == 1


def sides(kind: Kind) -> Iterator[tuple[str, dict[str, str], bool]]:
    """The two configurations of a kind: the label of recordings, the words of each program, and
    whether it is the changed one. Kinds of the same programs share those without the change."""
    words = [f"{one} {kind.as_is[one]}".strip() for one in sorted(kind.as_is)]
    yield " + ".join([*words, *[kind.extras] * bool(kind.extras)]), kind.as_is, False
    yield kind.name, {**kind.as_is, **kind.then}, True
