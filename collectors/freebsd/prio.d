/*
 * prio.d - priority changes of a FreeBSD host; an addition to sched.d.
 *
 * USAGE
 *     dtrace -s prio.d -s sched.d -o events.txt      or: sh capture --with prio
 *
 * WHAT IT PRINTS
 *     C 61004 3 100377 152 120 0      100377 goes from 152 to 120
 *     C 61190 3 100377 152 120 1      ... by a loan of the thread that runs here
 * A loan prints two lines, the plain one first; the reader joins them. On 4BSD no
 * loan can be told from another change.
 *
 * OVERHEAD
 *     High on ULE, which recomputes the priority at most wakeups: about as many
 *     lines again as sched.d. Changes from a value to the same value are left out.
 *
 * REQUIREMENTS
 *     Those of sched.d. Does not see the write of the user priority on the way
 *     back to user mode, for which the kernel has no probe.
 */

/* sched.d has arguments; this script has no use for them. */
#pragma D option argref

/* sched.d says it again, and prints it. */
BEGIN
{
	began = timestamp;
}

sched:::change-pri
/((struct thread *)arg0)->td_priority != (int)arg2/
{
	printf("C% d% d% d% d% d 0\n", (int64_t)(timestamp - began), (int)cpu,
	    ((struct thread *)arg0)->td_tid,
	    (int)((struct thread *)arg0)->td_priority,
	    (int)arg2);
	@c = count();
}

/* A loan makes the priority better, that is lower.  4BSD fires lend-pri the other way round,
 * when somebody else makes it worse: that is no loan, and its plain line tells it. */
sched:::lend-pri
/((struct thread *)arg0)->td_priority > (int)arg2/
{
	printf("C% d% d% d% d% d 1\n", (int64_t)(timestamp - began), (int)cpu,
	    ((struct thread *)arg0)->td_tid,
	    (int)((struct thread *)arg0)->td_priority,
	    (int)arg2);
	@c = count();
}

END
{
	printa("#count\tC\t%@d\n", @c);
}
