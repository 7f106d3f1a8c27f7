/*
 * inter.d - ULE's own account of each thread's running and sleeping; an addition to sched.d.
 *
 * USAGE
 *     dtrace -s inter.d -s sched.d -o events.txt     or: sh capture --with inter
 *
 * WHAT IT PRINTS
 *     V 61004 3 100402 5120 40960       the two sums of the thread that leaves
 * ts_runtime and ts_slptime of its struct td_sched, from which ULE computes its score
 * (schedscope interactivity). They count samples of the statistics clock and include
 * what the thread inherited, neither of which can be known from switches.
 *
 * OVERHEAD
 *     A line for each switch of a thread of a user's process.
 *
 * REQUIREMENTS
 *     Those of sched.d, and ULE (13 and 14: read; 15: the names are the same). On 4BSD
 *     the structure has no such members. Where a kernel has both schedulers it has two
 *     structures of this name.
 */

/* sched.d has arguments; this script has no use for them. */
#pragma D option argref

/* sched.d says it again, and prints it. */
BEGIN
{
	began = timestamp;
}

/* 3 is the class timeshare, 0x4 marks a process of the kernel. */
sched:::off-cpu
/(((struct thread *)curthread)->td_pri_class & 7) == 3 &&
    (((struct thread *)curthread)->td_proc->p_flag & 0x4) == 0/
{
	this->s = (struct td_sched *)((struct thread *)curthread + 1);
	printf("V% d% d% d% d% d\n", (int64_t)(timestamp - began), (int)cpu,
	    ((struct thread *)curthread)->td_tid,
	    (int64_t)this->s->ts_runtime, (int64_t)this->s->ts_slptime);
	@v = count();
}

END
{
	printa("#count\tV\t%@d\n", @v);
}
