"""The page that FreeBSD's ministat prints: names, plot in characters, table, verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from schedscope.analysis.ministat.ministat import (
    MOST_SETS,
    Relative,
    check_sets,
    difference,
    level_name,
    median,
    summary,
)
from schedscope.errors import UsageError

# The symbol of a set is that of its number. Where sets meet, their numbers are or-ed
# as bits: of x (1) and + (2) comes *, which is the third set's symbol as well.
_SYMBOLS = " x+*%#@O"

WIDTH = 74


def ministat_text(
    data: Mapping[str, Sequence[float]] | Sequence[tuple[str, Sequence[float]]],
    *,
    confidence: float = 95,
    width: int = WIDTH,
    plot: bool = True,
    separate: bool = False,
    tests: bool = True,
    headings: bool = True,
    relative: Relative = "new",
) -> str:
    """What ministat prints for sets of numbers, by name, to the character.

    `width`: columns of the plot between its borders; `separate`: a bar for each set
    (ministat's -s); without `plot` no plot (-A); without `tests` neither plot nor
    verdicts (-n); without `headings` neither names nor the table's head (-q). `relative`:
    the form of the second margin, see `Difference.margin_frac`.

    Raises `UsageError` as `schedscope.ministat` does, and for a width below 2.

    >>> a, b = [50, 200, 150], [400, 720, 500]
    >>> print(ministat_text({"a": a, "b": b}, width=30, separate=True).expandtabs(4), end="")
    x a
    + b
    +------------------------------+
    |x   x x        +   +         +|
    ||___A__|                      |
    |              |____M_A______| |
    +------------------------------+
        N           Min           Max        Median           Avg        Stddev
    x   3            50           200           150     133.33333     76.376262
    +   3           400           720           500           540     163.70706
    Difference at 95.0% confidence
        406.667 +/- 289.527
        305% +/- 420.683%
        (Student's t, pooled s = 127.737)
    """
    level = level_name(confidence)
    if width < 2:
        raise UsageError(f"width {width}", "2 columns or more", f"ministat's own is {WIDTH}")
    # Pairs, because the same file may be given twice.
    sets = list(data.items()) if isinstance(data, Mapping) else list(data)
    if len(sets) > MOST_SETS:
        raise UsageError(f"{len(sets)} sets of numbers", f"1 to {MOST_SETS}")
    for pair in sets:
        check_sets(dict([pair]))
    lines = []
    if headings:
        lines += [f"{_SYMBOLS[i]} {name}" for i, (name, _) in enumerate(sets, 1)]
    if plot and tests:
        lines += _plot([sorted(numbers) for _, numbers in sets], width, separate)
    if headings:
        lines.append("    N           Min           Max        Median           Avg        Stddev")
    reference = summary(sets[0][1])
    for i, (_, numbers) in enumerate(sets, 1):
        about = summary(numbers)
        values = (min(numbers), max(numbers), median(numbers), about.mean, about.stddev)
        lines.append(
            f"{_SYMBOLS[i]} {about.n:>3} " + " ".join(f"{value:13.8g}" for value in values)
        )
        if i == 1 or not tests:
            continue
        found = difference(reference, about, confidence=confidence)
        at = f"{float(level):.1f}% confidence"
        if not found.proven:
            lines.append(f"No difference proven at {at}")
            continue
        part, margin = 100 * found.difference_frac, 100 * found.margin_frac(relative)
        lines += [
            f"Difference at {at}",
            f"\t{found.difference:g} +/- {found.margin:g}",
            f"\t{part:g}% +/- {margin:g}%",
            f"\t(Student's t, pooled s = {found.pooled:g})",
        ]
    return "\n".join(lines) + "\n"


def _plot(sets: list[list[float]], width: int, separate: bool) -> list[str]:
    about = [summary(numbers) for numbers in sets]
    low = min(min(s[0], a.mean - a.stddev) for s, a in zip(sets, about, strict=True))
    high = max(max(s[-1], a.mean + a.stddev) for s, a in zip(sets, about, strict=True))
    if not high > low:
        return ["[no plot, span is zero width]"]
    # The first and the last column are centred on the ends of the range.
    step = (high - low) / (width - 1)
    origin = low - 0.5 * step

    def column(value: float) -> int:
        return min(max(math.floor((value - origin) / step), 0), width - 1)

    piles: list[list[int]] = [[] for _ in range(width)]
    for number, values in enumerate(sets, 1):
        heights = [0] * width
        for value in values:
            x = column(value)
            if heights[x] == len(piles[x]):
                piles[x].append(0)
            piles[x][heights[x]] |= number
            heights[x] += 1
        # ministat's plot is as high as the last set's piles are: what other sets
        # pile higher is not drawn. Its table has them all.
        piles = [pile[: max(heights)] for pile in piles]
    rows = [
        "".join(_SYMBOLS[pile[level]] if level < len(pile) else " " for pile in piles)
        for level in reversed(range(max(map(len, piles))))
    ]
    bars = [[" "] * width for _ in (sets if separate else sets[:1])]
    for number, (values, known) in enumerate(zip(sets, about, strict=True)):
        bar = bars[number if separate else 0]
        left, right = column(known.mean - known.stddev), column(known.mean + known.stddev)
        bar[left] = bar[right] = "|"
        for x in range(left + 1, right):
            if bar[x] == " ":
                bar[x] = "_"
        bar[column(median(values))] = "M"
        bar[column(known.mean)] = "A"
    border = "+" + "-" * width + "+"
    return [border, *(f"|{row}|" for row in [*rows, *map("".join, bars)]), border]
