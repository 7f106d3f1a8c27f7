/*
 * callout.d - time in timer callbacks on a FreeBSD host; an addition to sched.d.
 *
 * USAGE
 *     dtrace -x dynvarsize=64m -s callout.d -s sched.d -o events.txt
 *     or: sh capture --with callout
 *
 * WHAT IT PRINTS
 *     I 61004 3 1 0 1840 0 kernel`tcp_timer_rexmt
 * ended, CPU, 1, no number, ns, no length, and the function. Callbacks run in the clock's
 * software interrupt thread or, if registered so, inside the timer interrupt of
 * whatever thread was running: that time sched.d books on the thread.
 *
 * OVERHEAD
 *     Two probes per callback; some thousand a second on a busy host.
 *
 * REQUIREMENTS
 *     Those of sched.d, and the callout_execute provider (13 and later).
 *
 * A callback may be interrupted by another one, so what belongs together is told by
 * the callout and not by the CPU. Its memory may be gone when it ends: the function
 * is remembered, not read again.
 */

/* sched.d has arguments; this script has no use for them. */
#pragma D option argref

/* There are too many callouts to keep an element for each, so elements are freed; freed ones
 * can be used again only after some hundredths of a second: give -x dynvarsize (sched.d). */

/* sched.d says it again, and prints it. */
BEGIN
{
	began = timestamp;
}

callout_execute:::callout-start
{
	callout_since[arg0] = timestamp;
	callout_func[arg0] = (uintptr_t)((struct callout *)arg0)->c_func;
}

callout_execute:::callout-end
/callout_since[arg0] != 0/
{
	printf("I% d% d 1 0% d 0 %a\n", (int64_t)(timestamp - began), (int)cpu,
	    (int64_t)(timestamp - callout_since[arg0]), callout_func[arg0]);
	callout_since[arg0] = 0;
	callout_func[arg0] = 0;
	@i = count();
}

END
{
	printa("#count\tI\t%@d\n", @i);
}
