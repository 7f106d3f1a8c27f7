"""ministat: published figures to the printed digit, the program itself, and properties."""

from __future__ import annotations

import csv
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import assume, given, strategies as st
from tools import tool

import schedscope as ss
from schedscope import cli
from schedscope.analysis.comparison.student_t import STUDENT_T
from schedscope.analysis.ministat.ministat import Difference, Summary, difference
from schedscope.analysis.ministat.text import ministat_text

PUBLISHED = Path(__file__).parents[2] / "fixtures" / "published" / "ule-4bsd-builds.csv"
ROWS = list(csv.DictReader(PUBLISHED.open()))

IGUANA = [50, 200, 150, 400, 750, 400, 150]
CHAMELEON = [150, 400, 720, 500, 930]

# One set of a few numbers in the range of timings.
numbers = st.lists(st.floats(1, 1e6), min_size=3, max_size=20)


def published(row: dict[str, str]) -> Difference:
    reference = Summary(3, float(row["4bsd_mean"]), float(row["4bsd_stddev"]))
    return difference(reference, Summary(3, float(row["ule_mean"]), float(row["ule_stddev"])))


def test_fixture_has_all_published_rows() -> None:
    assert len(ROWS) == 35


@pytest.mark.parametrize("row", ROWS, ids=lambda r: "-".join(list(r.values())[:4]).replace(" ", ""))
def test_a_published_row(row: dict[str, str]) -> None:
    """Verdict, difference, margin (old form) and pooled deviation, in the digits printed."""
    found = published(row)
    assert found.proven == (row["faster"] != "none")
    if not found.proven:
        assert (row["difference_pct"], row["margin_pct"], row["pooled_stddev"]) == ("", "", "")
        return
    # Means and deviations are published in eight digits: of a small difference of
    # large means, the sixth printed digit is not certain.
    for value, text, slack in (
        (100 * abs(found.difference_frac), row["difference_pct"], 1e-7 * 100),
        (100 * found.margin_frac("old"), row["margin_pct"], 0),
        (found.pooled, row["pooled_stddev"], 0),
    ):
        digits = len(text.replace(".", "").lstrip("0"))
        unit = 10.0 ** (math.floor(math.log10(float(text))) + 1 - max(digits, 4))
        assert value == pytest.approx(float(text), rel=2e-7, abs=0.51 * unit + slack)
    more_is_faster = row["metric"] == "score"
    ule_is_more = found.difference > 0
    assert row["faster"] == ("ULE" if ule_is_more == more_is_faster else "4BSD")


def test_both_forms_of_the_margin_agree() -> None:
    """Worked out: s1 = s2 = 10, n = 2 * 3, means 100 and 200, t = 2.776.

    pooled 10, margin 2.776 * 10 * sqrt(2/3) = 22.666: 22.666 % in the old form. In the
    new one the reference's variance counts (200/100)^2 = 4 times: sqrt((1 + 4) / 2) as much.
    """
    found = difference(Summary(3, 100, 10), Summary(3, 200, 10))
    assert found.margin == pytest.approx(2.776 * 10 * math.sqrt(2 / 3))
    assert found.margin_frac("old") == pytest.approx(0.22666, abs=1e-5)
    assert found.margin_frac("new") == pytest.approx(0.22666 * math.sqrt(2.5), abs=1e-5)


def test_the_table_is_students_t() -> None:
    """Five levels are exact; the one called 99.5 % is the quantile of 99.8 %."""
    stats = pytest.importorskip("scipy.stats")
    actual = {"80": 0.8, "90": 0.9, "95": 0.95, "98": 0.98, "99": 0.99, "99.5": 0.998}
    assert list(STUDENT_T) == list(actual)
    for name, level in actual.items():
        assert len(STUDENT_T[name]) == 101
        for df, value in enumerate(STUDENT_T[name], 1):
            exact = stats.t.ppf(0.5 + level / 2, df if df <= 100 else math.inf)
            # The source's own entries for 99.8 % and few degrees are off by up to 5 in the last.
            slack = 0.0055 if name == "99.5" and df <= 12 else 0.00051
            assert value == pytest.approx(exact, abs=slack), (name, df)


def test_the_frame() -> None:
    """The manual's example at 80 %: 240 +/- 212.215, pooled s = 264.159."""
    frame = ss.ministat({"iguana": IGUANA, "chameleon": CHAMELEON}, confidence=80)
    first, second = frame.iter_rows(named=True)
    assert (first["n"], first["min"], first["max"], first["median"], first["mean"]) == (
        7, 50, 750, 200, 300,
    )  # fmt: skip
    assert first["different"] is None
    assert second["different"] is True
    assert (second["difference"], second["df"], second["t"]) == (240, 10, 1.372)
    assert second["margin"] == pytest.approx(212.215, abs=5e-4)
    assert second["pooled_stddev"] == pytest.approx(264.159, abs=5e-4)
    assert second["margin_frac_old"] == pytest.approx(0.707384, abs=5e-7)
    assert second["margin_frac"] == pytest.approx(1.023, abs=5e-4)


def test_page_prints_plot_and_table() -> None:
    """The manual's example, character by character."""
    text = ministat_text(
        {"iguana": IGUANA, "chameleon": CHAMELEON},
        separate=True, width=60, confidence=80, relative="old",
    )  # fmt: skip
    assert text.splitlines() == [
        "x iguana",
        "+ chameleon",
        "+------------------------------------------------------------+",
        "|x      *  x            *      +              + x           +|",
        "| |________M______A_______________|                          |",
        "|             |________________M__A___________________|      |",
        "+------------------------------------------------------------+",
        "    N           Min           Max        Median           Avg        Stddev",
        "x   7            50           750           200           300     238.04761",
        "+   5           150           930           500           540     299.08193",
        "Difference at 80.0% confidence",
        "\t240 +/- 212.215",
        "\t80% +/- 70.7384%",
        "\t(Student's t, pooled s = 264.159)",
    ]


SPREAD, MIDDLE = [0, 0, 5, 10, 10], [0, 5, 5, 5, 10]


def test_overlapping_points_share_a_symbol() -> None:
    """x and + make *; a pile is as high as the number of points in it."""
    lines = ministat_text({"a": SPREAD, "b": MIDDLE}, width=11).splitlines()
    assert lines[3:6] == ["|     +     |", "|x    +    x|", "|*    *    *|"]


def test_height_of_the_plot_is_that_of_the_last_set() -> None:
    """As in ministat, points of an earlier set above that height are not drawn."""
    lines = ministat_text({"b": MIDDLE, "a": SPREAD}, width=11).splitlines()
    assert lines[2:5] == ["+-----------+", "|+    x    +|", "|*    *    *|"]


def test_numbers_without_spread_have_no_plot() -> None:
    lines = ministat_text({"a": [5, 5, 5], "b": [5, 5, 5]}).splitlines()
    assert lines[2] == "[no plot, span is zero width]"
    assert lines[-1] == "No difference proven at 95.0% confidence"


def test_identical_numbers_show_no_difference() -> None:
    """A difference of 0 with a margin of 0 proves nothing."""
    assert ss.ministat({"a": [5, 5, 5], "b": [5, 5, 5]})["different"].to_list() == [None, False]


@given(numbers, numbers)
def test_order_and_roles(a: list[float], b: list[float]) -> None:
    """Order within a set makes no difference; swapping the sets only changes the sign."""
    there = difference(*map(_summary, (a, b)))
    back = difference(*map(_summary, (b, a)))
    shuffled = difference(_summary(a[::-1]), _summary(sorted(b)))
    assert there.difference == -back.difference
    assert there.margin == pytest.approx(back.margin)
    assert there.difference == pytest.approx(shuffled.difference, abs=1e-6)
    assert there.margin == pytest.approx(shuffled.margin, rel=1e-6, abs=1e-6)


@given(numbers, numbers, st.sampled_from([0.001, 0.5, 2.0, 1000.0]))
def test_units_do_not_matter(a: list[float], b: list[float], unit: float) -> None:
    """Another unit scales difference and margin; verdict and relative figures stay."""
    here = difference(_summary(a), _summary(b))
    there = difference(_summary([x * unit for x in a]), _summary([x * unit for x in b]))
    assume(abs(abs(here.difference) - here.margin) > 1e-6 * here.margin)
    assert there.proven == here.proven
    assert there.difference == pytest.approx(here.difference * unit, abs=1e-6 * unit)
    assert there.margin_frac() == pytest.approx(here.margin_frac(), rel=1e-6, abs=1e-9)


@given(numbers, st.floats(-1e5, 1e5))
def test_shift_does_not_change_the_margin(a: list[float], shift: float) -> None:
    b = [x + shift for x in a]
    assert _summary(b).stddev == pytest.approx(_summary(a).stddev, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("level", "share"), [(80, 0.2), (95, 0.05), (99, 0.01)])
def test_equal_populations_differ_as_often_as_the_level_says(level: float, share: float) -> None:
    """4,000 pairs of five normal numbers each: the share proven is near the level."""
    chance = random.Random(7)
    trials = 4000
    proven = 0
    for _ in range(trials):
        a, b = ([chance.gauss(100, 5) for _ in range(5)] for _ in range(2))
        proven += difference(_summary(a), _summary(b), confidence=level).proven
    # Four standard errors of a share.
    assert abs(proven / trials - share) < 4 * math.sqrt(share * (1 - share) / trials)


def _summary(values: list[float]) -> Summary:
    from schedscope.analysis.ministat.ministat import summary

    return summary(values)


@pytest.mark.parametrize(
    ("data", "confidence", "words"),
    [
        ({"a": [1, 2]}, 95, "a has 2 numbers; expected 3 or more"),
        ({"a": [1, 2, math.nan]}, 95, "a has nan; expected finite"),
        ({"a": ["1", "2", "3"]}, 95, "a has '1'; expected finite"),
        ({"a": [1, 2, 1e300]}, 95, "a has 1e\\+300; expected numbers up to"),
        ([1, 2, 3], 95, "ministat of a list; expected sets of numbers by their names"),
        ({"a": [1, 2, 3]}, 97, "confidence 97 %"),
        ({}, 95, "0 sets"),
        ({str(i): [1, 2, 3] for i in range(8)}, 95, "8 sets"),
    ],
)
def test_invalid_input_is_refused(
    data: dict[str, list[float]], confidence: float, words: str
) -> None:
    with pytest.raises(ss.UsageError, match=words):
        ss.ministat(data, confidence=confidence)


# The program itself, where there is one: the present edition and one of 2015 print
# different relative margins, and medians of even sets.


def _sets(seed: int) -> list[list[float]]:
    chance = random.Random(seed)
    kinds: list[Callable[[], float]] = [
        lambda: chance.randrange(20),
        lambda: round(chance.gauss(100, 5), 3),
        lambda: round(chance.expovariate(1e-3), 1),
    ]
    kind = chance.choice(kinds)
    return [
        [kind() for _ in range(chance.choice([3, 5, 7, 15, 31]))]
        for _ in range(chance.choice([1, 2, 2, 3, 7]))
    ]


@pytest.mark.needs("ministat")
@pytest.mark.parametrize("seed", range(60))
def test_the_page_is_what_ministat_prints(seed: int, tmp_path: Path) -> None:
    """Equal to the character, with either of its two forms of the relative margin."""
    words = tool("ministat")
    assert words
    sets = _sets(seed)
    names = []
    for i, values in enumerate(sets):
        path = tmp_path / f"set{i}"
        path.write_text("".join(f"{value!r}\n" for value in values))
        names.append(str(path))
    level = ["80", "90", "95", "98", "99", "99.5"][seed % 6]
    options = ["-c", level, "-w", str(20 + seed)]
    if seed % 2:
        options.append("-s")
    # Through a pipe: it reopens its stdout and would overwrite a file.
    done = subprocess.run([*words, *options, *names], capture_output=True, text=True, check=True)
    pairs = list(zip(names, sets, strict=True))
    pages = {
        form: ministat_text(
            pairs, confidence=float(level), width=20 + seed, separate=bool(seed % 2), relative=form
        )
        for form in ("new", "old")
    }
    assert done.stdout in pages.values()


# The command


def run(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "schedscope", "ministat", *words],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, values in (("iguana", IGUANA), ("chameleon", CHAMELEON)):
        Path(name).write_text("# kg\n" + "".join(f"{value}\n" for value in values))
    Path("table").write_text("a,10,x\nb,20\n\n# none\nc,30\nd\n")
    Path("two").write_text("1\n2\n")
    Path("words").write_text("1\n2\nthree\n")
    Path("endless").write_text("1\n2\ninf\n")
    return tmp_path


def test_the_command(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = {"iguana": IGUANA, "chameleon": CHAMELEON}
    assert cli.main(["ministat", "iguana", "chameleon"]) == 0
    assert capsys.readouterr().out == ministat_text(sets)
    assert cli.main(["ministat", "-s", "-c", "80", "-w", "60", *sets]) == 0
    assert capsys.readouterr().out == ministat_text(sets, separate=True, confidence=80, width=60)
    assert cli.main(["ministat", "-nq", *sets]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert cli.main(["ministat", "-A", "--relative", "old", "-c", "80", *sets]) == 0
    out = capsys.readouterr().out
    assert "+---" not in out
    assert "80% +/- 70.7384%" in out


def test_columns(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines without the column, and comments, are skipped."""
    assert cli.main(["ministat", "-n", "-d", ",", "-C", "2", "table"]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row == ["x", "3", "10", "30", "20", "20", "10"]


def test_standard_input(files: Path) -> None:
    """Standard input is read without a file, or as - beside a file."""
    alone = run("-n", text="1\n2\n3\n")
    assert alone.stdout.splitlines()[0] == "x <stdin>"
    both = run("-A", "-", "iguana", text="1e2\n0x64\n+100.5\n")
    assert both.returncode == 0
    assert both.stdout.splitlines()[3].split()[:4] == ["x", "3", "100", "100.5"]


def test_command_writes_json_and_csv(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ministat", "--format", "json", "-c", "80", "iguana", "chameleon"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["confidence"] == 80
    assert [row["different"] for row in document["rows"]] == [None, True]
    assert cli.main(["ministat", "--format", "csv", "iguana", "chameleon"]) == 0
    frame = pl.read_csv(capsys.readouterr().out.encode())
    assert frame["set"].to_list() == ["iguana", "chameleon"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["two", "iguana"], 2, "two has 2 numbers"),
        (["words"], 1, "'three' in line 3 of words"),
        (["endless"], 1, "'inf' in line 3 of endless; expected a finite number"),
        (["/dev/zero"], 1, "line 1 of /dev/zero has more than 1048576 characters"),
        (["nowhere"], 1, "cannot read nowhere: No such file"),
        (["."], 1, "cannot read .: Is a directory"),
        (["-c", "97", "iguana"], 2, "one of 80, 90, 95, 98, 99, 99.5"),
        (["-w", "1", "iguana"], 2, "width 1"),
        (["-C", "0", "iguana"], 2, "-C 0"),
        (["-C", "9", "iguana"], 2, "iguana has 0 numbers"),
        (["-d", "", "iguana"], 2, "-d with no characters"),
        (["-", "-"], 2, "- given twice"),
        (["iguana"] * 8, 2, "8 files"),
        (["--format", "csv", "iguana", "iguana"], 2, "given twice"),
    ],
)
def test_unreadable_input_is_refused(
    files: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    """One sentence that names the place; nothing on stdout."""
    assert cli.main(["ministat", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


def test_bounded_sets_differ_only_if_they_do_at_every_value_within_the_bounds() -> None:
    """Between 10 and 11 against 20 to 30, 11 to 30, and 10 to 11 again."""
    near = [(10.0, 11.0), (10.1, 11.1), (9.9, 10.9)]
    sets = {
        "a": near,
        "apart": [(20.0, 30.0), (20.1, 30.1), (19.9, 29.9)],
        "perhaps": [(10.9, 30.0), (11.0, 30.1), (11.1, 29.9)],
        "alike": [10.0, 10.1, 9.9],
    }
    frame = ss.ministat(sets)
    assert frame["different"].to_list() == [None, True, None, None]
    assert frame["mean_high"].to_list() == pytest.approx([11, 30, 30, 10])
    assert ss.ministat({"a": [1, 2, 3], "b": [1, 2, 3]})["different"].to_list() == [None, False]
    with pytest.raises(ss.UsageError, match="finite"):
        ss.ministat({"a": [(1.0, float("nan")), 2, 3]})
