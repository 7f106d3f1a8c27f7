"""Damage captures whose truth is known, and count what is wrong in the answers about them.

    python research/benchmarks/faults.py   five captures of `fixtures/`
    python research/benchmarks/faults.py --captures A.capture B.capture --mutations 20
    python research/benchmarks/faults.py --kinds hole clock              kinds whose name has a word
    python research/benchmarks/faults.py --again CAPTURE KIND NUMBER  an input again
    python research/benchmarks/faults.py --write                         keep the tables

Every (capture, kind, number) is drawn from `--seed` and its own name, so it is the same whenever
and wherever it is run; only "two captures mixed" depends on the other captures, too. Results go to
a journal in `--work` at once: Ctrl-C ends the campaign, and the same command continues where it
stopped (`--fresh` starts over; do so after a change of the program). Failures are listed in
`failures.txt` beside it, each with what `--again` needs. Exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from faults import campaign, page, peers, story
from faults.mutations import KINDS

ROOT = Path(__file__).parents[2]
LAB = ROOT / "fixtures" / "lab"
CAPTURES = (
    "linux-slice-default-4.capture",
    "linux-ftrace-placement.capture",
    "lab/amd64-6.12-sleepers.tar.xz",
    "lab/amd64-6.1-forks.tar.xz",
    "lab/arm64-6.12-server.tar.xz",
)


def main() -> int:
    """Run the campaign as the arguments say."""
    args = _arguments()
    work: Path = args.work
    work.mkdir(parents=True, exist_ok=True)
    journal = work / "journal.jsonl"
    if args.fresh:
        journal.unlink(missing_ok=True)
    cases = _loaded(args.captures, work)
    if not cases:
        print("no capture whose truth is known", file=sys.stderr)
        return 2
    for case in cases:
        case.recording.others = [other.recording for other in cases if other is not case]
    if args.again:
        print(story.again(cases, tuple(args.again), args.seed, work))
        return 0
    kinds = [name for name in KINDS if not args.kinds or any(word in name for word in args.kinds)]
    show = _progress(time.monotonic())
    results = campaign.run(
        cases, kinds, args.mutations, args.seed, work, journal, show, args.share,
        every_format=args.formats,
    )  # fmt: skip
    print(page.by_damage(results))
    print(page.sums(results))
    laboratory: list[campaign.Result] = []
    if args.laboratory:
        known = {case.name for case in cases}
        others = [
            path for path in sorted(LAB.glob("*.tar.xz")) if campaign.name_of(path) not in known
        ]
        more = _loaded(others, work)
        show = _progress(time.monotonic())
        laboratory = campaign.run(more, kinds, 1, args.seed, work, journal, show, args.share)
        print(page.by_damage(laboratory))
    _failures([*results, *laboratory], work / "failures.txt")
    if args.write:
        said = peers.tables(cases, args.peers, args.seed, work)
        for path in page.keep(results, laboratory, said, _today(), _host()):
            print(f"wrote {path}")
    return 1 if any(map(page.wrong, [*results, *laboratory])) else 0


def _loaded(paths: list[Path], work: Path) -> list[campaign.Case]:
    """The captures whose truth is known; the others are named."""
    cases = []
    for path in paths:
        try:
            cases.append(campaign.load(path, work))
        except campaign.NotComplete as error:
            print(f"left out: {error}", file=sys.stderr)
    return cases


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    fixtures = [ROOT / "fixtures" / name for name in CAPTURES]
    parser.add_argument(
        "--captures",
        nargs="+",
        type=Path,
        default=fixtures,
        metavar="CAPTURE",
        help="folders of ftrace, perf or DTrace, archives of the laboratory with one, or a dump of"
        " KTR (default: five of fixtures/)",
    )
    parser.add_argument("--mutations", type=int, default=3, help="of each kind and capture")
    parser.add_argument(
        "--laboratory",
        action="store_true",
        help="and all other captures of fixtures/lab, one input of each kind",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1, help="of the inputs, drawn by --seed")
    parser.add_argument("--formats", action="store_true", help="each input in every format")
    parser.add_argument("--kinds", nargs="+", metavar="WORD")
    parser.add_argument("--work", type=Path, default=Path("/tmp/schedscope-faults"))
    parser.add_argument("--fresh", action="store_true", help="forget what the journal has")
    parser.add_argument("--peers", type=int, default=1, help="inputs of each kind for other tools")
    parser.add_argument("--again", nargs=3, metavar=("CAPTURE", "KIND", "NUMBER"))
    parser.add_argument("--write", action="store_true", help="keep the tables in research/data")
    return parser.parse_args()


def _progress(began: float) -> Callable[[int, int, campaign.Result], None]:
    def show(done: int, total: int, result: campaign.Result) -> None:
        if sys.stderr.isatty() or done % 50 == 0 or done == total:
            spent = time.monotonic() - began
            line = f"{done}/{total} {spent:.0f} s {result['capture']}: {result['kind']}"
            print(f"\r{line[:100]:100}", end="", file=sys.stderr, flush=True)
        if done == total:
            print(file=sys.stderr)

    return show


def _failures(results: list[campaign.Result], path: Path) -> None:
    """How to repeat each failure, with its thread and wait."""
    with path.open("w") as out:
        for result in filter(page.wrong, results):
            out.write(story.failure(result))
    print(f"failures, with what repeats them: {path}")


def _today() -> str:
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def _host() -> str:
    return f"{platform.system()} {platform.release()} {platform.machine()}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nended; the journal has what was found", file=sys.stderr)
        sys.exit(130)
