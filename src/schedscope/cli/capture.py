"""Record what this host's scheduler does, then say who waited for a CPU.

Runs the capture program of `schedscope collectors` with the same options, and
converts and summarises what it wrote. Without a COMMAND it records until
Ctrl-C, or for -d SECONDS. The exit code is COMMAND's, or 125 if the capture
itself failed. Recording needs root.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import time
from pathlib import Path

from schedscope.cli import _options, _output
from schedscope.errors import SchedscopeError, StorageError

NAME = "capture"
HELP = "record this host, then summarise"
EXAMPLE = """\
  sudo schedscope capture -o web.capture -d 10
  sudo schedscope capture -o make.capture -- make -j8
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope capture`; the recorder's are handed on."""
    parser.add_argument("-o", "--output", metavar="NAME.capture", help="the folder to write")
    parser.add_argument(
        "-t",
        "--recorder",
        metavar="RECORDER",
        help="ftrace, perf, bpftrace, dtrace (default: the best)",
    )
    parser.add_argument("-d", "--duration", metavar="SECONDS", help="record so long at most")
    parser.add_argument("-b", "--buffer", metavar="KB", help="kernel buffer per CPU")
    parser.add_argument(
        "--with",
        dest="extras",
        metavar="EXTRA,...",
        help="record more, at more cost: what --list names for each recorder",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no messages of the recorder")
    parser.add_argument(
        "--anonymous-host", action="store_true", help="leave out the names of host and user"
    )
    parser.add_argument("--list", action="store_true", help="what this host can record with")
    parser.add_argument(
        "--no-summary", action="store_true", help="only record: do not convert and summarise"
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="rows of the summary")
    _options.add_format(parser)
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="what to run meanwhile")


def run(args: argparse.Namespace) -> int:
    """Record, convert, summarise."""
    from schedscope import collectors

    program = collectors.path()
    if args.list:
        return subprocess.run(["sh", program, "--list"], check=False).returncode
    _options.check_top(args)
    # As the program names it.
    output = (args.output or time.strftime("sched-%Y%m%d-%H%M%S")).rstrip("/")
    output = output if output.endswith(".capture") else f"{output}.capture"
    there = Path(output).exists()
    words = ["sh", str(program), "-o", output]
    options = (("-t", args.recorder), ("-d", args.duration), ("-b", args.buffer))
    for flag, value in (*options, ("--with", args.extras)):
        if value is not None:
            words += [flag, value]
    words += ["-q"] * args.quiet + ["--anonymous-host"] * args.anonymous_host
    if args.command:
        words += ["--", *args.command]
    try:
        code = _record(words)
    except OSError as error:
        raise StorageError(f"cannot run {program}: {error.strerror}") from error
    # What was there before is not what was recorded: the program refused to write over it.
    if there or args.no_summary or not Path(output).is_dir():
        return code
    summary = _summarise(output, args)
    return code or summary


def _record(words: list[str]) -> int:
    """Run the capture program; signals end the recording, not this process."""
    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*ends, signal.SIGCHLD})
    try:
        child = subprocess.Popen(
            words, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)
        )
        while child.poll() is None:
            came = signal.sigwaitinfo({*ends, signal.SIGCHLD})
            # Ctrl-C at the terminal reaches the child without us; a signal
            # that another process (its pid is not 0) sent to us does not.
            if came.si_signo in ends and came.si_pid:
                child.send_signal(came.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _summarise(output: str, args: argparse.Namespace) -> int:
    from schedscope.cli import latency

    words = [output, "--top", str(args.top), "--format", args.format]
    parser = argparse.ArgumentParser()
    latency.add_arguments(parser)
    try:
        code = latency.run(parser.parse_args(words))
    except ImportError as error:
        # Capture works without Polars; analysis may happen elsewhere.
        _output.complain(f"{output} is complete; to analyse it here, install {error.name}")
        return 0
    except SchedscopeError as error:
        _output.complain(f"{output} is written, but: {error}")
        return 1
    _give_to_invoker(Path(output))
    return code


def _give_to_invoker(capture: Path) -> None:
    """Under sudo, what was converted belongs to the one who called, as the capture does."""
    from schedscope.cache import sched_name

    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    folder = capture.absolute().parent / sched_name(capture)
    if os.geteuid() != 0 or not uid or not gid or not folder.is_dir():
        return
    for path in (folder, *folder.iterdir()):
        os.chown(path, int(uid), int(gid), follow_symlinks=False)
