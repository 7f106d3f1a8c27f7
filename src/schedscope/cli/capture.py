"""Record what this host's scheduler does, then say who waited for a CPU.

Runs the capture program of `schedscope collectors` with the same options, and
converts and summarises what it wrote. Without a COMMAND it records until
Ctrl-C, or for -d DURATION. The exit code is COMMAND's; 125 if the capture itself
failed, 126 or 127 if COMMAND cannot be run or found. Recording needs root; under
sudo, doas or pkexec, COMMAND and the summary run as the invoking user.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from schedscope.cli import _complaints, _options, _output, _quantities
from schedscope.errors import SchedscopeError, StorageError
from schedscope.invoking_user import invoking_user, run_as

GROUP = "record"
FAILED = 125
HELP = "record this host, then summarise"
EXAMPLE = """\
  sudo schedscope capture -o web.capture -d 10s
  sudo schedscope capture -o make.capture -- make -j8
  sudo schedscope capture --self-test > report.txt
  sudo schedscope capture --ring 20s --trigger 'wait > 50ms' --keep 2G -o incident.ring
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope capture`; the recorder's are handed on."""

    def error(message: str) -> NoReturn:
        parser.exit(FAILED, f"schedscope: {_complaints.of(parser, message)}\n")

    # Not argparse's 2, which could be COMMAND's.
    parser.error = error  # type: ignore[method-assign]
    parser.add_argument("-o", "--output", metavar="NAME.capture", help="the folder to write")
    parser.add_argument(
        "-t",
        "--recorder",
        metavar="RECORDER",
        help="ftrace, perf, bpftrace, dtrace (default: the best)",
    )
    parser.add_argument(
        "-d",
        "--duration",
        metavar="DURATION",
        type=_quantities.seconds,
        help="record at most this long, as in 2m (a bare number: seconds)",
    )
    parser.add_argument("-b", "--buffer", metavar="SIZE", help="kernel buffer per CPU, as in 8M")
    parser.add_argument(
        "--with",
        dest="extras",
        metavar="EXTRA,...",
        help="record more, at a higher overhead: --list names what each recorder offers",
    )
    parser.add_argument(
        "--of",
        metavar="WHOM",
        help="whose system calls, locks and stacks to record: those of the processes of COMMAND"
        " (command, the default with a COMMAND), of all processes (all), or of running processes"
        " and those that they start (PID,...)",
    )
    parser.add_argument(
        "--max-size", metavar="SIZE", help="end the recording at about this size, as in 500M or 20G"
    )
    parser.add_argument(
        "--min-free",
        metavar="SIZE",
        help="end the recording when less than this is free on the disk"
        " (default: 5 %% or 512M, whichever is less)",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="suppress the recorder's messages"
    )
    parser.add_argument(
        "--anonymous-host",
        action="store_true",
        help="do not record host name, user name and command lines",
    )
    parser.add_argument(
        "--ring",
        metavar="DURATION|SIZE",
        help="flight recorder: keep the last DURATION or SIZE in memory, as in 20s or 64M, and"
        " write it as a capture folder when a trigger comes",
    )
    parser.add_argument(
        "--trigger",
        action="append",
        metavar="TRIGGER",
        help="with --ring: write a snapshot at 'exit != 0', 'file PATH', 'log PATH TEXT',"
        " 'wait > 50ms', 'p99 > 5ms for 2s'",
    )
    parser.add_argument(
        "--keep",
        metavar="SIZE",
        help="go on after a snapshot; all snapshots take this size at most",
    )
    parser.add_argument(
        "--then",
        metavar="COMMAND",
        help="with --ring: a line for sh, run as the invoking user when a snapshot is complete, for"
        " at most 5 minutes; $SNAPSHOT is its path, $REASON and $TRIGGER say why it was taken",
    )
    parser.add_argument(
        "--pause",
        metavar="DURATION",
        type=_quantities.seconds,
        help="shortest time between two snapshots of --trigger (default: 10s)",
    )
    parser.add_argument(
        "--snapshot", action="store_true", help="ask the running flight recorder for a snapshot"
    )
    parser.add_argument(
        "--systemd-unit",
        action="store_true",
        help="print a systemd unit for a flight recorder with these options",
    )
    _quantities.older(parser, "--until", "--trigger")
    _quantities.older(parser, "--service", "--systemd-unit")
    parser.add_argument("--list", action="store_true", help="what this host can record with")
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="record a known load and compare the recording with the kernel's own counts;"
        " exit code 0 if all checks pass",
    )
    parser.add_argument(
        "--judge",
        metavar="FOLDER",
        help="repeat the comparison on a FOLDER that --self-test -o FOLDER kept",
    )
    parser.add_argument(
        "--no-summary", action="store_true", help="only record: do not convert and summarise"
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="rows of the summary")
    _options.add_format(parser)
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="command to record")


def run(args: argparse.Namespace) -> int:
    """Record, convert, summarise."""
    try:
        return _run(args)
    except SchedscopeError as error:
        _output.complain(str(error))
        return FAILED


def _run(args: argparse.Namespace) -> int:
    from schedscope import collectors

    program = collectors.path()
    if args.list:
        return subprocess.run(["sh", program, "--list"], check=False).returncode
    if args.self_test or args.judge:
        return _record(_self_test(args, program))[0]
    if args.ring or args.snapshot or args.systemd_unit or args.trigger or args.keep or args.then:
        return _record(_flight(args, program))[0]
    _options.check_top(args)
    # The name that the program gives it.
    output = (args.output or time.strftime("sched-%Y%m%d-%H%M%S")).rstrip("/")
    output = output if output.endswith(".capture") else f"{output}.capture"
    there = Path(output).exists()
    words = ["sh", str(program), "-o", output]
    options = (("-t", args.recorder), ("-d", args.duration), ("-b", args.buffer))
    limits = (("--max-size", args.max_size), ("--min-free", args.min_free))
    for flag, value in (*options, *limits, ("--with", args.extras), ("--of", args.of)):
        if value is not None:
            words += [flag, value]
    words += ["-q"] * args.quiet + ["--anonymous-host"] * args.anonymous_host
    if args.command:
        words += ["--", *args.command]
    try:
        code, hung_up = _record(words)
    except OSError as error:
        raise StorageError(f"cannot run {program}: {error.strerror}") from error
    # A folder that existed before is not the recording: the program refused to write over it.
    # Without a terminal a summary has no reader.
    if there or args.no_summary or hung_up or not Path(output).is_dir():
        return code
    if args.command and args.format == "table":
        if not (summary := _summarise(output, args, "--workload")):
            _output.say("", f"above: {shlex.join(args.command)} alone; below: the whole host", "")
        else:
            return code or summary
    summary = _summarise(output, args)
    if not summary and args.format == "table":
        more = " --workload" if args.command else ""
        next_one = f"schedscope findings {shlex.quote(output)}{more}"
        _output.say("", f"What was wrong, and what to try: {next_one}")
    return code or summary


def _flight(args: argparse.Namespace, program: Path) -> list[str]:
    """The program's arguments for a flight recorder, which writes its snapshots by itself."""
    words = ["sh", str(program)]
    options = {"--ring": args.ring, "-o": args.output, "-t": args.recorder, "-d": args.duration}
    options |= {"-b": args.buffer, "--with": args.extras, "--of": args.of}
    options |= {"--min-free": args.min_free}
    options |= {"--max-size": args.max_size, "--keep": args.keep, "--pause": args.pause}
    options |= {"--then": args.then}
    for flag, value in options.items():
        if value is not None:
            words += [flag, value]
    for trigger in args.trigger or []:
        words += ["--trigger", trigger]
    words += ["--snapshot"] * args.snapshot + ["--systemd-unit"] * args.systemd_unit
    words += ["-q"] * args.quiet + ["--anonymous-host"] * args.anonymous_host
    return words + (["--", *args.command] if args.command else [])


def _self_test(args: argparse.Namespace, program: Path) -> list[str]:
    """The program's arguments for `--self-test` and `--judge`."""
    words = ["sh", str(program)]
    words += ["--self-test"] * args.self_test
    options = {"--judge": args.judge, "-o": args.output, "-t": args.recorder}
    options |= {"-d": args.duration, "-b": args.buffer}
    for flag, value in options.items():
        if value is not None:
            words += [flag, value]
    return words + ["-q"] * args.quiet


def _record(words: list[str]) -> tuple[int, bool]:
    """Run the capture program; signals end the recording, not this process.

    Its exit code, and whether the terminal was lost meanwhile.
    """
    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    # The program sees the end of this pipe when this process ends, kill -9 included.
    reading, writing = os.pipe()

    def prepare() -> None:
        os.dup2(reading, 4)
        os.set_inheritable(4, True)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*ends, signal.SIGCHLD})
    hung_up = False
    try:
        child = subprocess.Popen(
            [*words[:2], "--lifeline", *words[2:]], preexec_fn=prepare, close_fds=False
        )
        os.close(reading)
        while child.poll() is None:
            came = signal.sigwaitinfo({*ends, signal.SIGCHLD})
            hung_up = hung_up or came.si_signo == signal.SIGHUP
            # Ctrl-C and Ctrl-\\ at the terminal come from the kernel (pid 0) and reach the child
            # directly. A hang-up comes from the kernel, too, but to the leader of the session
            # alone, which we may be.
            typed = came.si_signo in (signal.SIGINT, signal.SIGQUIT) and not came.si_pid
            if came.si_signo in ends and not typed:
                child.send_signal(came.si_signo)
    finally:
        os.close(writing)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return (child.returncode if child.returncode >= 0 else 128 - child.returncode), hung_up


def _summarise(output: str, args: argparse.Namespace, *more: str) -> int:
    """As the invoking user: converted traces go where that user can write."""
    words = [output, "--top", str(args.top), "--format", args.format, *more]
    if (user := invoking_user()) is None:
        return _summarise_here(output, words)
    # Without -P, modules would also be looked for in the current folder.
    command = [sys.executable, "-P", "-m", "schedscope", "latency", *words]
    try:
        done = subprocess.run(command, **run_as(user), check=False)
    except (OSError, subprocess.SubprocessError):
        _output.complain(
            f"{output} is complete; open it as its owner: schedscope latency {shlex.quote(output)}"
        )
        return 0
    return done.returncode


def _summarise_here(output: str, words: list[str]) -> int:
    from schedscope.cli import latency

    parser = argparse.ArgumentParser()
    latency.add_arguments(parser)
    try:
        args = parser.parse_args(words)
        _output.emit(latency.run(args), args.format)
        return 0
    except ImportError as error:
        # Capture works without Polars; analysis may happen elsewhere.
        _output.complain(f"{output} is complete; to analyse it here, install {error.name}")
        return 0
    except SchedscopeError as error:
        if "--workload" not in words:  # else the table of the whole host shows the problem
            _output.complain(f"{output} is written, but: {error}")
        return 1
