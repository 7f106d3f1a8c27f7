"""Perfetto traces by hand: enough of protobuf to write packets in round numbers."""

from __future__ import annotations


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def packed(number: int, values: list[int]) -> bytes:
    return field(number, b"".join(map(varint, values)))


def bundle(cpu: int, *parts: bytes) -> bytes:
    """A packet with a bundle of ftrace events."""
    return field(1, field(1, field(1, cpu) + b"".join(parts)))


def event(ts: int, tid: int, number: int, *parts: bytes, flags: int = 0) -> bytes:
    return field(2, field(1, ts) + field(2, tid) + field(5, flags) + field(number, b"".join(parts)))


def switch(
    ts: int, prev: tuple[str, int, int], state: int, following: tuple[str, int, int]
) -> bytes:
    before = field(1, prev[0]) + field(2, prev[1]) + field(3, prev[2]) + field(4, state)
    after = field(5, following[0]) + field(6, following[1]) + field(7, following[2])
    return event(ts, prev[1], 4, before, after)


def waking(ts: int, waker: int, who: tuple[str, int, int], cpu: int, flags: int = 0) -> bytes:
    parts = field(1, who[0]) + field(2, who[1]) + field(3, who[2]) + field(5, cpu)
    return event(ts, waker, 20, parts, flags=flags)


IDLE, A, B = ("swapper/0", 0, 120), ("a", 11, 120), ("b", 22, 100)
RELEASE = field(1, field(45, field(1, field(1, "Linux") + field(3, "6.18.0"))))


def compact(switches_: list[tuple[int, int, int, int]], names: list[str]) -> bytes:
    """(time step, prev_state, next tid, name index) of each switch, in columns."""
    steps, states, tids, indices = zip(*switches_, strict=True)
    return field(
        4,
        b"".join(field(5, name) for name in names)
        + packed(1, list(steps))
        + packed(2, list(states))
        + packed(3, list(tids))
        + packed(4, [120] * len(steps))
        + packed(6, list(indices)),
    )


def service_stats(*, overwritten: int = 0, discarded: int = 0, flushed: bool = True) -> bytes:
    """Perfetto's counts for its own buffer."""
    buffer = field(1, field(3, overwritten) + field(18, discarded))
    return field(1, field(35, buffer + field(15, 1 if flushed else 2)))
