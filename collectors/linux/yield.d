/*
 * yield.d - prints calls of sched_yield on a Linux host; an addition to sched.d.
 *
 * USAGE
 *     dtrace -s yield.d -s sched.d -o events.txt RELEASE NCPU 1
 *                     sh capture adds it by itself where the kernel can tell
 *
 * WHAT IT PRINTS
 *     Y 744162982 1 1740        the thread that calls sched_yield
 * A thread that yields leaves its CPU in state R, and so does one that is preempted on
 * its way back to user mode; sched_switch does not tell them apart. With these lines
 * each R is one or the other.
 *
 * OVERHEAD
 *     One probe per call. While any system call is traced, all of them take the
 *     kernel's slow path: about ten nanoseconds more each.
 *
 * NO COUNT
 *     sched.d ends with the number of lines of each kind. These are not counted: in a
 *     script that is not the last, DTrace 2.0 starts a count from uninitialised memory
 *     (seen: 6,578,533).
 *
 * REQUIREMENTS
 *     Those of sched.d, and a kernel with CONFIG_FTRACE_SYSCALLS: without it the
 *     probe does not exist, which is why it is not part of sched.d.
 */

/* sched.d has arguments; this script has no use for them. */
#pragma D option argref

/* As in sched.d: DTrace 2.0 lays out this script's memory with the value set so far,
 * and the memory of all scripts together with the last value. */
#pragma D option strsize=24

/* sched.d sets it as well, and prints it. */
BEGIN
{
	began = timestamp;
}

syscall::sched_yield:entry
{
	printf("Y% d% d% d\n", (int64_t)(timestamp - began), (int)cpu,
	    ((struct task_struct *)curthread)->pid);
}
