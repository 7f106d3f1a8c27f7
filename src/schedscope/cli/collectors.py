"""Get the capture program, for hosts where nothing else can be installed.

It is a POSIX shell program and needs neither Python nor this package. --path prints
where its folder is; --bundle writes all of it as one file to copy to a host.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from schedscope.cli import _output
from schedscope.errors import StorageError, UsageError
from schedscope.outputs import whole

GROUP = "record"
HELP = "the capture program as one file to copy to a host"
EXAMPLE = """\
  schedscope collectors --bundle capture.sh
  scp capture.sh web1: && ssh web1 sudo ./capture.sh -o web.capture -d 10s
  scp -r web1:web.capture . && schedscope latency web.capture
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope collectors`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--bundle", metavar="FILE", help="write one sh file; `-` is stdout")
    what.add_argument("--path", action="store_true", help="print the path of the program")
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing file")


def run(args: argparse.Namespace) -> int:
    """Write or print."""
    from schedscope import collectors

    if args.path:
        _output.say(str(collectors.path()))
        return 0
    text = collectors.bundle()
    if args.bundle == "-":
        sys.stdout.write(text)
        return 0
    target = Path(args.bundle)
    if target.exists() and not args.force:
        raise UsageError(f"{target} exists", "a free name", "give --force to replace it")
    try:
        with whole(target) as made:
            made.write_text(text, encoding="utf-8")
            made.chmod(0o755)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror}") from error
    _output.say(
        f"wrote {target}; copy it to a host and run it there as root: ./{target.name} --help"
    )
    return 0
