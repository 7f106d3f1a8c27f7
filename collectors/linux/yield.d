/*
 * yield.d - calls of sched_yield on a Linux host; an addition to sched.d.
 *
 * USAGE
 *     dtrace -s yield.d -s sched.d -o events.txt RELEASE NCPU 1
 *                     sh capture adds it by itself where the kernel can tell
 *
 * WHAT IT PRINTS
 *     Y 744162982 1 1740        the thread that calls sched_yield
 * A thread that yields leaves its CPU in state R, as one does that is preempted on
 * its way back to user mode, and the tracepoint of the switch calls both the same.
 * With these lines each R is one or the other.
 *
 * OVERHEAD
 *     One probe per call. While any system call is traced, the kernel takes its slow
 *     path through all of them: some ten nanoseconds each.
 *
 * NO COUNT
 *     sched.d ends with how many lines of each kind it printed. These are not counted:
 *     in a script that is not the last, DTrace 2.0 begins a count with what happens to
 *     lie in memory (seen: 6,578,533).
 *
 * REQUIREMENTS
 *     Those of sched.d, and a kernel with CONFIG_FTRACE_SYSCALLS: without it the
 *     probe does not exist, which is why it is not part of sched.d.
 */

/* sched.d has arguments; this script has no use for them. */
#pragma D option argref

/* As in sched.d: DTrace 2.0 lays out this script's memory with the option it knows
 * by now, and all scripts' memory with the last one. */
#pragma D option strsize=24

/* sched.d says it again, and prints it. */
BEGIN
{
	began = timestamp;
}

syscall::sched_yield:entry
{
	printf("Y% d% d% d\n", (int64_t)(timestamp - began), (int)cpu,
	    ((struct task_struct *)curthread)->pid);
}
