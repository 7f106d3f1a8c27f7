#!/usr/sbin/dtrace -s
/*
 * sched.d - every scheduling decision of a FreeBSD host, one line each.
 *
 * USAGE
 *     dtrace -x bufsize=16m -x switchrate=20hz -x dynvarsize=32m -s sched.d -o events.txt \
 *         [OSRELDATE [NCPU [NOLOAD [RING [NS]]]]]          until Ctrl-C; or with
 *     ... -c 'make -j8'                                    while a command runs
 *     sh capture -d 10             the usual way: it loads the module, sizes the
 *                       buffers and adds the metadata that the analyses want
 * OSRELDATE is `sysctl -n kern.osreldate`, NCPU `sysctl -n kern.smp.maxid` plus one;
 * both travel into the first line. NOLOAD=1
 * leaves out the load-change lines, the most frequent ones; without them the CPU
 * that a woken thread was sent to is not known before it runs.
 * RING=1 is for a flight recorder, which keeps only the last of what happened:
 *     dtrace -x bufpolicy=ring -x bufsize=64m -x dynvarsize=32m -s sched.d -o ring.txt \
 *         OSRELDATE NCPU 0 1                  for hours, until Ctrl-C after the event
 *     { grep '^#sched' ring.txt; grep -v '^#sched' ring.txt; } > events.txt
 * The first line is overwritten like all others, so it is printed again at the end;
 * names are printed at each switch, not only when they are new. Each CPU keeps what
 * fits into its buffer, so a busy one reaches back less far.
 * The sizes and the switch rate are options and not in here because a #pragma
 * would win over the command line. Of dynvarsize DTrace uses only the part of the CPUs
 * that are there out of all that the kernel is built for (256, later 1024).
 * More detail costs more and so lives in scripts of its own, to be named before this
 * one with -s: prio.d (priority changes), irq.d (interrupt filters), callout.d (timers),
 * duration.d (ends after NS).
 *
 * WHAT IT PRINTS (collectors/lines.md has every column)
 *     #sched  2  freebsd  8213400112  1795254517141427832  1402000  4
 *     W 55008 1 100402 152
 *     N 55758 1 100402 1190 3 0 20 4 make
 *     E 55758 1 100345 100402 152 0
 *     L 56198 1 3 1
 *     S 60892 3 100006 255 2 100402 152 412 -
 *     #count  S  1
 *     #end    8214400112  1795254518141427832
 * One letter per kind of event, then the ns since the first line and the CPU. S switch
 * (out, its priority and state, in, its priority), E put on a run queue, W woken,
 * L load of a queue changed, D taken off a queue without running, P was preempted
 * and chosen again, X thread exits, R what runs after an exit, N a thread's process,
 * class, nice value and name, printed when they are new. A name comes last and its length before
 * it, so that no name can break a line.
 *     Few fields, because it is their number that costs: dtrace writes each of them,
 * and each text between two of them, with a system call of its own. "% d" is
 * a number with a blank before it, in one piece, if the number is signed.
 *
 * HOW TO READ IT
 *     schedscope convert, then any analysis. By eye: an E and the next S whose
 *     incoming thread (column 7) is the same: the difference is the time that
 *     thread waited for a CPU.
 *
 * OVERHEAD
 *     Two to four lines per switch, each some hundreds of nanoseconds to a
 *     microsecond in the probe plus about 90 bytes of buffer. Expect a few
 *     per cent at 10,000 switches a second per CPU, and tens of per cent in a
 *     benchmark that does nothing but switch. Not measured on real hardware.
 *     Lost records are reported on stderr ("dtrace: N drops on CPU C"): keep it,
 *     and raise -x bufsize or -x switchrate when it is not empty.
 *
 * REQUIREMENTS
 *     root on the host (not in a jail), FreeBSD 13 or later, the dtraceall module
 *     (dtrace loads it), a kernel with CTF: GENERIC has it. No destructive action.
 *
 * The probes belong to the kernel's sched provider, which is the same for ULE and
 * 4BSD and for the pluggable schedulers of 16-CURRENT; nothing hangs on the name of
 * a kernel function. Raw arguments with casts are used instead of args[], so that
 * the script needs neither sched.d nor psinfo.d of the library.
 */
#pragma D option quiet
#pragma D option defaultargs
/* NS is of use to duration.d alone. */
#pragma D option argref
#pragma D option strsize=32

typedef struct thread *thr_t;

inline int TDF_SINTR_ = 0x8;		/* this sleep can be interrupted */
inline int TDF_IDLETD_ = 0x20;		/* the idle thread of a CPU */
inline int P_KPROC_ = 0x4;		/* a process of the kernel */

BEGIN
{
	began = timestamp;
	began_wall = walltimestamp;
	/* duration.d sets them when it ends the recording. */
	ended = (uint64_t)0;
	ended_wall = (int64_t)0;
	/* What they hold, for the clauses that read before they write. */
	known[0] = (uint64_t)1;
	preempting[0] = 2;
	printf("#sched\t2\tfreebsd\t%d\t%d\t%d\t%d\n",
	    began, began_wall, $1, $2);
}

/*
 * N: what is constant of a thread: process, class, kind, nice (20 is 0), name. Printed when the thread
 * is chosen to run or queued, and is not the one that was printed last of those with
 * the same low bits of their number. `known` holds a hash of what is printed, one number
 * instead of that and the name: there is little memory for arrays (capture's dynvarsize).
 * It never grows beyond 512 elements and none is freed. td_name is 20 bytes, five words,
 * and follows a number in struct thread, so it is aligned. Where a line is
 * dropped its clause is not run: the next one prints the name.
 */
sched:::off-cpu,
sched:::enqueue
/this->n = (thr_t)arg0,
    this->k = (((uint64_t)this->n->td_proc->p_pid << 42) ^
    ((uint64_t)(this->n->td_proc->p_nice + 20) << 36) ^
    ((uint64_t)this->n->td_tid << 4) ^ this->n->td_pri_class) +
    (uint64_t)((uint32_t *)this->n->td_name)[0] * 0x9e3779b97f4a7c15 +
    (uint64_t)((uint32_t *)this->n->td_name)[1] * 0xc2b2ae3d27d4eb4f +
    (uint64_t)((uint32_t *)this->n->td_name)[2] * 0x165667b19e3779f9 +
    (uint64_t)((uint32_t *)this->n->td_name)[3] * 0x27d4eb2f165667c5 +
    (uint64_t)((uint32_t *)this->n->td_name)[4] * 0x85ebca77c2b2ae63 | 1,
    this->n != (thr_t)curthread && (($4 != 0 && probename == "off-cpu") ||
    known[this->n->td_tid & 511] != this->k)/
{
	known[this->n->td_tid & 511] = this->k;
	printf("N% d% d% d% d% d% d% d% d %s\n", (int64_t)(timestamp - began), (int)cpu,
	    this->n->td_tid, this->n->td_proc->p_pid, (int)this->n->td_pri_class,
	    (int)(((this->n->td_flags & TDF_IDLETD_) >> 5) |
	    ((this->n->td_proc->p_flag & P_KPROC_) >> 1)),
	    (int)this->n->td_proc->p_nice + 20,
	    (int)strlen(this->n->td_name), this->n->td_name);
	@n = count();
}

/*
 * S: one real switch. It fires in the context of the thread that leaves, after
 * the next one was chosen (arg0) and with interrupts off. State and inhibitors
 * are final here; nvcsw or nivcsw has just been counted up: their sum shows what
 * was not printed. preempting tells a preemption from a yield. `cpu` and not
 * td_oncpu: 4BSD has cleared that.
 */
sched:::off-cpu
{
	this->o = (thr_t)curthread;
	this->n = (thr_t)arg0;
	printf("S% d% d% d% d% d% d% d% d %s\n",
	    (int64_t)(timestamp - began), (int)cpu, this->o->td_tid, (int)this->o->td_priority,
	    (int)this->o->td_state + (preempting[cpu] == 1 ? 10 : 0) +
	    ((this->o->td_flags & TDF_SINTR_) != 0 ? 100 : 0) +
	    1000 * (int)this->o->td_inhibitors,
	    this->n->td_tid, (int)this->n->td_priority +
	    ((this->n->td_flags & TDF_IDLETD_) != 0 ? 1000 : 0),
	    (int64_t)(this->o->td_ru.ru_nvcsw + this->o->td_ru.ru_nivcsw),
	    this->o->td_wmesg != 0 ? stringof(this->o->td_wmesg) :
	    this->o->td_lockname != 0 ? stringof(this->o->td_lockname) : "-");
	/* The arrays hold 1 and 2: storing 0 frees an element, the next store allocates it
	 * anew, and when the freed ones have not been collected in time DTrace discards
	 * the whole record of the clause. */
	preempting[cpu] = 2;
	@s = count();
}

/*
 * W: a sleeper is taken off its sleep queue or turnstile. It also fires for a
 * thread that had not gone to sleep yet, so it is a wakeup only when an E of the
 * same thread follows on the CPU. A thread that removes itself never slept: left out.
 */
sched:::wakeup
/(thr_t)arg0 != (thr_t)curthread/
{
	printf("W% d% d% d% d\n", (int64_t)(timestamp - began), (int)cpu,
	    ((thr_t)arg0)->td_tid, (int)((thr_t)arg0)->td_priority);
	@w = count();
}

/*
 * E: the scheduler is asked to queue a thread: sleepers, lock hand-over, fork,
 * thr_new, interrupt threads, resumption. It fires before the CPU is picked (the
 * next L on this CPU tells it) and, on ULE, before the priority is computed anew.
 * 4BSD also sends a thread through here that is only being switched out; that is
 * not a wakeup, and the S beside it tells all of it: left out. The agent is 0
 * when it is an idle thread. td_lastcpu -1 (NOCPU): the thread has never run.
 */
sched:::enqueue
/(thr_t)arg0 != (thr_t)curthread/
{
	this->w = (thr_t)arg0;
	printf("E% d% d% d% d% d% d\n", (int64_t)(timestamp - began), (int)cpu,
	    (((thr_t)curthread)->td_flags & TDF_IDLETD_) != 0 ? 0 :
	    ((thr_t)curthread)->td_tid,
	    this->w->td_tid, (int)this->w->td_priority,
	    (this->w->td_lastcpu == -1 ? 1 : 0) +
	    (((thr_t)curthread)->td_intr_nesting_level > 0 ? 2 : 0));
	@e = count();
}

/* D: a runnable thread leaves its queue without running: stolen, balanced away
 * (two L follow: from, to), or about to be queued again (an E follows). */
sched:::dequeue
{
	printf("D% d% d% d\n", (int64_t)(timestamp - began), (int)cpu, ((thr_t)arg0)->td_tid);
	@d = count();
}

/* L: ULE: queue arg0 now holds arg1 threads, the running one included.
 * 4BSD: arg0 is -1 and not printed, arg1 the load of the whole machine. */
sched:::load-change
/$3 == 0 && (int)arg0 >= 0/
{
	printf("L% d% d% d% d\n", (int64_t)(timestamp - began), (int)cpu, (int)arg0, (int)arg1);
	@l = count();
}

sched:::load-change
/$3 == 0 && (int)arg0 < 0/
{
	printf("L% d% d% d\n", (int64_t)(timestamp - began), (int)cpu, (int)arg1);
	@l = count();
}

/* This thread is about to be preempted, or its slice is over: its S tells, or, when it
 * is chosen again and goes on, P. An idle thread giving way is not news. */
sched:::preempt
/(((thr_t)curthread)->td_flags & TDF_IDLETD_) == 0/
{
	preempting[cpu] = 1;
}

sched:::remain-cpu
/preempting[cpu] == 1/
{
	preempting[cpu] = 2;
	printf("P% d% d\n", (int64_t)(timestamp - began), (int)cpu);
	@p = count();
}

/*
 * X and R: a thread that exits leaves its CPU without off-cpu. lwp-exit fires with
 * a spin lock held, so the next on-cpu on the same CPU is its successor. The arrays
 * hold one int per CPU, written by that CPU alone.
 */
proc:::lwp-exit
{
	leaving[cpu] = 1;
	this->o = (thr_t)curthread;
	printf("X% d% d% d% d% d %s\n", (int64_t)(timestamp - began), (int)cpu,
	    this->o->td_tid, this->o->td_proc->p_pid,
	    (int)strlen(this->o->td_name), this->o->td_name);
	@x = count();
}

sched:::on-cpu
/leaving[cpu] == 1/
{
	leaving[cpu] = 2;
	preempting[cpu] = 2;
	this->n = (thr_t)curthread;
	known[this->n->td_tid & 511] =
	    (((uint64_t)this->n->td_proc->p_pid << 42) ^
	    ((uint64_t)(this->n->td_proc->p_nice + 20) << 36) ^
	    ((uint64_t)this->n->td_tid << 4) ^ this->n->td_pri_class) +
	    (uint64_t)((uint32_t *)this->n->td_name)[0] * 0x9e3779b97f4a7c15 +
	    (uint64_t)((uint32_t *)this->n->td_name)[1] * 0xc2b2ae3d27d4eb4f +
	    (uint64_t)((uint32_t *)this->n->td_name)[2] * 0x165667b19e3779f9 +
	    (uint64_t)((uint32_t *)this->n->td_name)[3] * 0x27d4eb2f165667c5 +
	    (uint64_t)((uint32_t *)this->n->td_name)[4] * 0x85ebca77c2b2ae63 | 1;
	printf("N% d% d% d% d% d% d% d% d %s\nR% d% d% d% d\n", (int64_t)(timestamp - began), (int)cpu,
	    this->n->td_tid, this->n->td_proc->p_pid, (int)this->n->td_pri_class,
	    (int)(((this->n->td_flags & TDF_IDLETD_) >> 5) |
	    ((this->n->td_proc->p_flag & P_KPROC_) >> 1)),
	    (int)this->n->td_proc->p_nice + 20,
	    (int)strlen(this->n->td_name), this->n->td_name,
	    (int64_t)(timestamp - began), (int)cpu, this->n->td_tid, (int)this->n->td_priority +
	    ((this->n->td_flags & TDF_IDLETD_) != 0 ? 1000 : 0));
	@n = count();
	@r = count();
}

/* Of a ring, whose first line is gone. */
END
/$4 != 0/
{
	printf("#sched\t2\tfreebsd\t%d\t%d\t%d\t%d\n#ring\n",
	    began, began_wall, $1, $2);
}

/* How many lines of each kind were recorded: fewer in the file means a cut file. */
END
{
	printa("#count\tN\t%@d\n", @n);
	printa("#count\tS\t%@d\n", @s);
	printa("#count\tW\t%@d\n", @w);
	printa("#count\tE\t%@d\n", @e);
	printa("#count\tD\t%@d\n", @d);
	printa("#count\tL\t%@d\n", @l);
	printa("#count\tP\t%@d\n", @p);
	printa("#count\tX\t%@d\n", @x);
	printa("#count\tR\t%@d\n", @r);
	printf("#end\t%d\t%d\n", ended != 0 ? ended : timestamp,
	    ended != 0 ? ended_wall : walltimestamp);
}
