"""Damage to sub-buffers as bytes: copied twice, out of order, cut off, flipped bits."""

from __future__ import annotations

from faults import tracedat
from faults.mutations import Draw, Mutant, kind
from faults.recording import Recording, stamp

_PAGE = 4096
"""Small sub-buffers, so that a short capture has many."""


def _in_pages(whole: Recording, rng: Draw) -> tuple[Recording, int, list[bytes]]:
    made = whole.copy()
    made.sub_buffer_bytes = made.about["ftrace"]["sub_buffer_bytes"] = _PAGE
    cpu = rng.choice(sorted(made.cpus))
    content = made.pages(cpu)
    pages = [content[at : at + _PAGE] for at in range(0, len(content), _PAGE)]
    _counted_to(made, cpu, pages[-1])
    return made, cpu, pages


def _counted_to(made: Recording, cpu: int, page: bytes) -> None:
    """The kernel's counts name the last sub-buffer that it gave away."""
    if "oldest event ts" in made.stats.get(cpu, {}):
        made.stats[cpu]["oldest event ts"] = stamp(int.from_bytes(page[:8], "little"))


def _changed(made: Recording, cpu: int, pages: list[bytes] | bytes, what: str) -> Mutant:
    made.raw[cpu] = pages if isinstance(pages, bytes) else b"".join(pages)
    return Mutant(made, f"CPU {cpu}: {what}")


@kind("page twice")
def twice(whole: Recording, rng: Draw) -> Mutant:
    made, cpu, pages = _in_pages(whole, rng)
    at = rng.randrange(len(pages))
    to = min(len(pages), at + rng.choice([1, 1, 1, 2, 5]))
    return _changed(made, cpu, [*pages[:to], pages[at], *pages[to:]], f"page {at} again at {to}")


@kind("pages out of order")
def reordered(whole: Recording, rng: Draw) -> Mutant:
    made, cpu, pages = _in_pages(whole, rng)
    at = rng.randrange(max(1, len(pages) - 1))
    to = min(len(pages) - 1, at + rng.choice([1, 1, 2, 5]))
    pages[at], pages[to] = pages[to], pages[at]
    return _changed(made, cpu, pages, f"pages {at} and {to} exchanged")


@kind("page missing, unmarked")
def missing(whole: Recording, rng: Draw) -> Mutant:
    made, cpu, pages = _in_pages(whole, rng)
    at = rng.randrange(len(pages))
    return _changed(made, cpu, pages[:at] + pages[at + 1 :], f"page {at} missing")


@kind("a CPU truncated at a page")
def truncated(whole: Recording, rng: Draw) -> Mutant:
    """At each page in turn."""
    made = whole.copy()
    made.sub_buffer_bytes = made.about["ftrace"]["sub_buffer_bytes"] = _PAGE
    places = [(cpu, at) for cpu in sorted(made.cpus) for at in range(len(made.pages(cpu)) // _PAGE)]
    cpu, at = places[rng.spread(len(places))]
    content = made.pages(cpu)
    _counted_to(made, cpu, content[-_PAGE:])
    return _changed(made, cpu, content[: at * _PAGE], f"truncated to {at} pages")


@kind("a CPU truncated inside a page")
def truncated_inside(whole: Recording, rng: Draw) -> Mutant:
    made, cpu, pages = _in_pages(whole, rng)
    content = b"".join(pages)
    at = rng.randrange(len(content))
    return _changed(made, cpu, content[:at], f"truncated to {at} of {len(content)} bytes")


def _flipped(content: bytes, rng: Draw, first: int) -> tuple[bytes, str]:
    changed, where = bytearray(content), []
    for _ in range(rng.choice([1, 1, 2, 8])):
        at, bit = rng.randrange(first, len(changed)), rng.randrange(8)
        changed[at] ^= 1 << bit
        where.append(f"{at}.{bit}")
    return bytes(changed), "bits flipped: " + " ".join(where)


@kind("bits flipped")
def flipped(whole: Recording, rng: Draw) -> Mutant:
    made, cpu, pages = _in_pages(whole, rng)
    return _changed(made, cpu, *_flipped(b"".join(pages), rng, 0))


@kind("bits flipped, in a capture with checksums")
def flipped_listed(whole: Recording, rng: Draw) -> Mutant:
    made = flipped(whole, rng)
    undamaged = whole.copy()
    undamaged.sub_buffer_bytes = _PAGE
    made.recording.listed = {cpu: undamaged.pages(cpu) for cpu in sorted(undamaged.cpus)}
    return made


@kind("trace.dat truncated")
def file_truncated(whole: Recording, rng: Draw) -> Mutant:
    content = tracedat.encode(whole)
    first = tracedat.data_begins(content)
    at = rng.randrange(first, len(content))
    made = Mutant(whole.copy(), f"trace.dat truncated to {at} of {len(content)} bytes")
    made.file = content[:at]
    return made


@kind("trace.dat, bits flipped")
def file_flipped(whole: Recording, rng: Draw) -> Mutant:
    content = tracedat.encode(whole)
    changed, what = _flipped(content, rng, tracedat.data_begins(content))
    made = Mutant(whole.copy(), what)
    made.file = changed
    return made
