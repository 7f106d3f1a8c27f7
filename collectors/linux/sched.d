#!/usr/sbin/dtrace -s
/*
 * sched.d - prints every scheduling event of a Linux host, one line each.
 *
 * USAGE
 *     dtrace -x bufsize=16m -x switchrate=20hz -s sched.d -o events.txt \
 *         [RELEASE [NCPU [YIELDS [MARKER]]]]               until Ctrl-C; or with
 *     ... -c 'make -j8'                                    while a command runs
 *     sh capture -t dtrace -d 10       the usual way: adds metadata and keeps
 *                                      dtrace's drop messages
 * RELEASE is the kernel's version as one number (6.18.3 = 61803), NCPU the number
 * of CPUs; both are only printed in the first line. YIELDS=1 says that yield.d runs
 * as well, named before this script with -s: it prints calls of sched_yield, without
 * which a yield looks like a preemption. MARKER is a process whose exit ends the
 * recording: without it dtrace would go on after everything that could end it was
 * killed. Buffer size and switch rate are options because a #pragma would override
 * the command line.
 *
 * A REAL SESSION
 *     #sched  2  linux    1263274549037  1795254517141427832  61800  2
 *     W 263192308 1 18635 14 120
 *     N 263195173 1 14 2 0 2 20 11 rcu_preempt
 *     E 263195173 1 18635 14 120 0 2
 *     S 263515254 0 0 120 0 14 120 5512
 *     #count  S  125
 *     #end    1264325011695  1795254518191890770
 *
 * HOW TO READ IT
 *     The format is the same as the FreeBSD script's; collectors/lines.md describes
 *     every column. Lines are in order per CPU but not across CPUs: DTrace for
 *     Linux prints one CPU's buffer after the other. The reader sorts them.
 *
 * OVERHEAD
 *     Large: 2 to 10 microseconds per event. `perf bench sched pipe` went from
 *     7 to 61 microseconds per round trip on a busy two-CPU machine. For low
 *     overhead on Linux use the ftrace recorder; this script is for comparing
 *     the two systems with one instrument. Starting takes several seconds, so
 *     wait for the first line before starting a workload by hand.
 *     Losses are reported on stderr as "dtrace: N drops on CPU C": keep stderr. The
 *     cause is rarely a small buffer, mostly a consumer that gets too little CPU time.
 *
 * REQUIREMENTS
 *     root, DTrace for Linux 2.0, kernel 5.18 or later with BTF (prev_state came
 *     to sched_switch in 5.18), debugfs mounted at /sys/kernel/debug.
 */
#pragma D option quiet
#pragma D option defaultargs
#pragma D option strsize=24

typedef struct task_struct *thr_t;

/* The kind of a thread: 1 = idle thread, 2 = kernel thread (PF_KTHREAD). */
inline int KTHREAD = 0x200000;

BEGIN
{
	began = timestamp;
	/* Declares its type for clauses that read it before writing it. */
	known[0] = (uint64_t)1;
	printf("#sched\t2\tlinux\t%d\t%d\t%d\t%d\n",
	    began, walltimestamp, $1, $2);
}

/* Tells the reader that yields are recorded, so that none means none. */
BEGIN
/$3 != 0/
{
	printf("#yields\n");
}

/*
 * N: a thread's process, policy, kind, nice (20 is 0) and name. Printed when the thread
 * runs or is woken, unless it was the last one printed among those with the same low
 * bits of their number. Idle threads are left out: their names are known.
 */
rawtp:sched::sched_switch
/((thr_t)arg2)->pid != 0 &&
    known[((thr_t)arg2)->pid & 1023] !=
    (((uint64_t)((thr_t)arg2)->tgid << 40) |
    ((uint64_t)((thr_t)arg2)->pid << 4) | ((thr_t)arg2)->policy)/
{
	this->n = (thr_t)arg2;
	known[this->n->pid & 1023] = ((uint64_t)this->n->tgid << 40) |
	    ((uint64_t)this->n->pid << 4) | this->n->policy;
	printf("N% d% d% d% d% d% d% d% d %s\n", (int64_t)(timestamp - began), (int)cpu,
	    this->n->pid, this->n->tgid, (int)this->n->policy,
	    (this->n->flags & KTHREAD) != 0 ? 2 : 0,
	    (int)this->n->static_prio - 100,
	    (int)strlen(this->n->comm), this->n->comm);
	@n = count();
}

rawtp:sched::sched_wakeup,
rawtp:sched::sched_wakeup_new
/known[((thr_t)arg0)->pid & 1023] !=
    (((uint64_t)((thr_t)arg0)->tgid << 40) |
    ((uint64_t)((thr_t)arg0)->pid << 4) | ((thr_t)arg0)->policy)/
{
	this->n = (thr_t)arg0;
	known[this->n->pid & 1023] = ((uint64_t)this->n->tgid << 40) |
	    ((uint64_t)this->n->pid << 4) | this->n->policy;
	printf("N% d% d% d% d% d% d% d% d %s\n", (int64_t)(timestamp - began), (int)cpu,
	    this->n->pid, this->n->tgid, (int)this->n->policy,
	    (this->n->flags & KTHREAD) != 0 ? 2 : 0,
	    (int)this->n->static_prio - 100,
	    (int)strlen(this->n->comm), this->n->comm);
	@n = count();
}

/* A thread is renamed, by itself or by exec: arg1 is its new name. */
rawtp:task::task_rename
{
	this->n = (thr_t)arg0;
	printf("N% d% d% d% d% d% d% d% d %s\n", (int64_t)(timestamp - began), (int)cpu,
	    this->n->pid, this->n->tgid, (int)this->n->policy,
	    (this->n->flags & KTHREAD) != 0 ? 2 : 0,
	    (int)this->n->static_prio - 100,
	    (int)strlen(stringof((char *)arg1)), stringof((char *)arg1));
	@n = count();
}

/* S: a switch. arg0: preempted inside the kernel, arg1: from, arg2: to, arg3: state. */
rawtp:sched::sched_switch
{
	this->o = (thr_t)arg1;
	this->n = (thr_t)arg2;
	printf("S% d% d% d% d% d% d% d% d\n",
	    (int64_t)(timestamp - began), (int)cpu, this->o->pid, this->o->prio,
	    10 * (int)arg3 + (int)arg0, this->n->pid, this->n->prio,
	    (int64_t)(this->o->nvcsw + this->o->nivcsw));
	@s = count();
}

/* W: the decision to wake this thread; its CPU is still the old one. */
rawtp:sched::sched_waking
{
	printf("W% d% d% d% d% d\n", (int64_t)(timestamp - began), (int)cpu,
	    ((thr_t)curthread)->pid, ((thr_t)arg0)->pid, ((thr_t)arg0)->prio);
	@w = count();
}

/* E: the thread is on the queue of the CPU that was chosen. */
rawtp:sched::sched_wakeup
{
	this->w = (thr_t)arg0;
	printf("E% d% d% d% d% d 0% d\n", (int64_t)(timestamp - began), (int)cpu,
	    ((thr_t)curthread)->pid, this->w->pid, this->w->prio,
	    (int)this->w->thread_info.cpu);
	@e = count();
}

/* The same for a thread that has never run. */
rawtp:sched::sched_wakeup_new
{
	this->w = (thr_t)arg0;
	printf("E% d% d% d% d% d 1% d\n", (int64_t)(timestamp - began), (int)cpu,
	    ((thr_t)curthread)->pid, this->w->pid, this->w->prio,
	    (int)this->w->thread_info.cpu);
	@e = count();
}

/* M: the thread moves from one CPU's queue to another's; it has not arrived yet. */
rawtp:sched::sched_migrate_task
{
	printf("M% d% d% d% d% d\n", (int64_t)(timestamp - began), (int)cpu,
	    ((thr_t)arg0)->pid, (int)((thr_t)arg0)->thread_info.cpu, (int)arg1);
	@m = count();
}

/*
 * C: a lock's owner inherits the priority of its highest-priority waiter, or loses it
 * again (arg1 = 0). The kernel computes the same minimum right after this point.
 */
rawtp:sched::sched_pi_setprio
{
	this->w = (thr_t)arg0;
	this->n = (thr_t)arg1;
	this->p = this->w->normal_prio;
	this->p = (this->n != 0 && this->n->prio < this->p) ? this->n->prio : this->p;
	printf("C% d% d% d% d% d% d\n", (int64_t)(timestamp - began), (int)cpu,
	    this->w->pid, this->w->prio, this->p, this->n != 0 ? 1 : 0);
	@c = count();
}

/* X: the thread exits; it keeps running until its last S. */
rawtp:sched::sched_process_exit
{
	this->w = (thr_t)arg0;
	printf("X% d% d% d% d% d %s\n", (int64_t)(timestamp - began), (int)cpu,
	    this->w->pid, this->w->tgid, (int)strlen(this->w->comm), this->w->comm);
	@x = count();
}

rawtp:sched::sched_process_exit
/$4 != 0 && ((thr_t)arg0)->pid == $4/
{
	/* Recording ends here; END runs when dtrace gets to it. */
	ended = timestamp;
	ended_wall = walltimestamp;
	exit(0);
}

END
{
	printa("#count\tN\t%@d\n", @n);
	printa("#count\tS\t%@d\n", @s);
	printa("#count\tW\t%@d\n", @w);
	printa("#count\tE\t%@d\n", @e);
	printa("#count\tM\t%@d\n", @m);
	printa("#count\tC\t%@d\n", @c);
	printa("#count\tX\t%@d\n", @x);
	printf("#end\t%d\t%d\n", ended != 0 ? ended : timestamp,
	    ended != 0 ? ended_wall : walltimestamp);
}
