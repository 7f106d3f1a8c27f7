/*
 * duration.d - ends a recording after a given time; an addition to sched.d.
 *
 * USAGE
 *     dtrace -s duration.d -s sched.d -o events.txt OSRELDATE NCPU 0 0 NS
 *                     capture -d SECONDS adds it by itself
 *
 * WHAT IT DOES
 *     Nothing is recorded once NS nanoseconds have passed since the first line, even
 *     if dtrace, which prints what was recorded, gets no CPU time for seconds.
 *
 * REQUIREMENTS
 *     Those of sched.d, and the profile provider, which dtraceall loads.
 */

/* sched.d has arguments; this script needs the last one. */
#pragma D option argref
#pragma D option defaultargs

BEGIN
{
	began = timestamp;
}

profile:::tick-10ms
/$5 != 0 && timestamp - began >= $5/
{
	/* END comes when dtrace gets to it. */
	ended = timestamp;
	ended_wall = walltimestamp;
	exit(0);
}
