"""Translates version 1 of the DTrace scripts' lines into version 2, as today's sched.d would print
them.
"""

from __future__ import annotations

import re

SLOTS = 1024
# What one slot of sched.d's arrays holds: the thread's constants and its name.
Known = tuple[tuple[int, int, int], str]


class Translator:
    def __init__(self, text: str, *, ring: bool = False) -> None:
        self.lines = text.splitlines(keepends=True)
        self.ring = ring
        self.known: dict[int, Known] = {}
        self.preempting: dict[str, bool] = {}
        self.counts: dict[str, int] = {}
        self.base = 0
        self.out: list[str] = []

    def text(self) -> str:
        for line in self.lines:
            fields = line.rstrip("\n").split("\t")
            if fields[0].startswith("#"):
                self.comment(fields, line)
            elif len(fields) > 2 and re.fullmatch("[A-Z]", fields[0]):
                getattr(self, fields[0])(self.stamp(fields), fields)
            else:
                self.out.append(line)
        return "".join(self.out)

    def stamp(self, fields: list[str]) -> str:
        return f"{int(fields[1]) - self.base} {fields[2]}"

    def comment(self, fields: list[str], line: str) -> None:
        if fields[0] == "#sched":
            if not self.out:
                self.base = int(fields[3])
            line = "\t".join(["#sched", "2", *fields[2:]]) + "\n"
        elif fields[0] == "#count":
            if fields[1] == "S":
                self.out.append(f"#count\tN\t{self.counts.get('N', 0)}\n")
            line = f"#count\t{fields[1]}\t{self.counts.get(fields[1], 0)}\n"
        self.out.append(line)

    def write(self, letter: str, *columns: object) -> None:
        self.counts[letter] = self.counts.get(letter, 0) + 1
        self.out.append(" ".join(str(column) for column in (letter, *columns)) + "\n")

    def name(self, at: str, tid: int, pid: int, class_: int, kind: int, name: str) -> None:
        """Prints N if sched.d would not know the thread."""
        slot: Known = ((pid, tid, class_), name)
        if self.ring or self.known.get(tid % SLOTS) != slot:
            self.known[tid % SLOTS] = slot
            self.write("N", at, tid, pid, class_, kind, 20, len(name.encode()), name)

    def S(self, at: str, f: list[str]) -> None:
        tid, kind = int(f[12]), int(f[16])
        self.name(at, tid, int(f[13]), int(f[15]), kind, f[24])
        state = int(f[7], 16) + 1000 * int(f[8], 16) + 100 * (int(f[9]) >> 2 & 1)
        state += 10 * self.preempting.pop(f[2], False)
        prio = int(f[14]) + 1000 * (kind & 1)
        self.write("S", at, f[4], f[6], state, tid, prio, int(f[10]) + int(f[11]), f[21])

    def W(self, at: str, f: list[str]) -> None:
        self.write("W", at, f[5], f[6])

    def E(self, at: str, f: list[str]) -> None:
        tid = int(f[5])
        known = self.known.get(tid % SLOTS)
        # sched.d does not compare names here.
        if known is None or known[0] != (int(f[6]), tid, int(f[11])):
            self.name(at, tid, int(f[6]), int(f[11]), int(f[12]), f[14])
        self.write("E", at, f[3], tid, f[7], int(f[9] == "-1") + 2 * (int(f[4]) > 0))

    def D(self, at: str, f: list[str]) -> None:
        self.write("D", at, f[4])

    def L(self, at: str, f: list[str]) -> None:
        self.write("L", at, *(f[4:] if f[3] == "-1" else f[3:]))

    def P(self, at: str, f: list[str]) -> None:
        if int(f[3]):
            self.preempting[f[2]] = True
        else:
            self.preempting.pop(f[2], None)
            self.write("P", at)

    def X(self, at: str, f: list[str]) -> None:
        self.write("X", at, f[3], f[4], f[5], f[6])

    def R(self, at: str, f: list[str]) -> None:
        self.preempting.pop(f[2], None)
        tid, kind = int(f[3]), int(f[7])
        self.known.pop(tid % SLOTS, None)
        self.name(at, tid, int(f[4]), int(f[6]), kind, f[12])
        self.write("R", at, tid, int(f[5]) + 1000 * (kind & 1))

    def C(self, at: str, f: list[str]) -> None:
        self.write("C", at, *f[4:8])

    def I(self, at: str, f: list[str]) -> None:  # noqa: E743
        kind = int(f[3] == "callout")
        self.write("I", at, kind, f[4], f[5], f[6], f[7])
