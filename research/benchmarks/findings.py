"""Record loads that must produce each finding, and ones that look alike, and count both.

    sudo python3 research/benchmarks/findings.py --rounds 5 --write
    sudo python3 research/benchmarks/findings.py --only quota steal      some findings
    python3 research/benchmarks/findings.py --judge   the recordings again, with new rules

What needs a machine of its own is recorded in the laboratory (`research/lab/README.md` says what it
needs), the rest on this host, whatever else runs there. Where others use the host too, start it in
a scheduling group of its own that outweighs them, or give `--counted`, which takes ten times as
long:

    setsid -w sh -c 'echo -20 >/proc/self/autogroup; exec python3 research/benchmarks/findings.py'

Recordings stay in `--work`, and are not made twice. Exit code 1 if a finding was missed or was
found where it must not be.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from findings import page, places
from findings.cases import cases
from findings.judge import found
from findings.places import Recorded


def main() -> int:
    """Record, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="recordings of each (default: 5)")
    parser.add_argument("--only", nargs="+", metavar="TOPIC", help="only these findings")
    parser.add_argument("--where", nargs="+", choices=["host", *places.APPEND], help="only there")
    parser.add_argument("--fresh", action="store_true", help="record what is there already, too")
    parser.add_argument("--judge", action="store_true", help="record nothing")
    parser.add_argument(
        "--kernel", default="amd64-6.12", help="of the laboratory (research/lab/matrix.toml)"
    )
    parser.add_argument("--counted", action="store_true", help="machines of counted time")
    parser.add_argument("--work", type=Path, default=Path("/tmp/schedscope-findings"))
    parser.add_argument("--write", action="store_true", help="keep the table in research/data")
    args = parser.parse_args()
    chosen = [case for case in cases() if not args.only or case.topic in args.only]
    chosen = [case for case in chosen if not args.where or case.where in args.where]
    asked = [
        Recorded(case, kind, n)
        for case in chosen
        for kind in ("fault", "alike")
        for n in range(1, args.rounds + 1)
    ]
    args.work.mkdir(parents=True, exist_ok=True)
    if not args.judge:
        missing = [one for one in asked if args.fresh or not (args.work / one.name).exists()]
        for place in ("host", *places.APPEND):
            here = [one for one in missing if one.case.where == place]
            if here and place == "host":
                places.on_host(here, args.work, _say)
                continue
            # A machine for each case: a crash costs little.
            for case in dict.fromkeys(one.case for one in here):
                own = [one for one in here if one.case == case]
                places.in_machine(place, own, args.work, args.kernel, _say, counted=args.counted)
    results = []
    for one in asked:
        text = found(one.case, args.work / one.name) if (args.work / one.name).exists() else "?"
        results.append((one, text))
        wrong = text == "?" or (text is None) == (one.kind == "fault")
        if wrong:
            print(f"{one.name}: {text or 'nothing found'}", flush=True)
    for line in page.table(results):
        print(line)
    if args.write:
        page.keep(results, args.work)
    return int(any((text is None) == (one.kind == "fault") for one, text in results))


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    if os.geteuid() and "--judge" not in sys.argv:
        sys.exit("findings.py records with ftrace: run it as root")
    sys.exit(main())
