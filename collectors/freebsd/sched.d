#!/usr/sbin/dtrace -s
/*
 * sched.d - every scheduling decision of a FreeBSD host, one line each.
 *
 * USAGE
 *     dtrace -x bufsize=16m -x switchrate=20hz -s sched.d -o events.txt \
 *         [OSRELDATE [NCPU [NOLOAD [RING [NS]]]]]          until Ctrl-C; or with
 *     ... -c 'make -j8'                                    while a command runs
 *     sh capture -d 10             the usual way: it loads the module, sizes the
 *                       buffers and adds the metadata that the analyses want
 * OSRELDATE is `sysctl -n kern.osreldate`, NCPU `sysctl -n kern.smp.maxid` plus one;
 * both travel into the first line. NOLOAD=1
 * leaves out the load-change lines, the most frequent ones; without them the CPU
 * that a woken thread was sent to is not known before it runs.
 * RING=1 is for a flight recorder, which keeps only the last of what happened:
 *     dtrace -x bufpolicy=ring -x bufsize=64m -s sched.d -o ring.txt \
 *         OSRELDATE NCPU 0 1                  for hours, until Ctrl-C after the event
 *     { grep '^#sched' ring.txt; grep -v '^#sched' ring.txt; } > events.txt
 * The first line is overwritten like all others, so it is printed again at the end.
 * Each CPU keeps what fits into its buffer, so a busy one reaches back less far.
 * Buffer size and switch rate are options and not in here because a #pragma
 * would win over the command line. More detail costs more and so lives in scripts
 * of its own, to be named before this one with -s: prio.d (priority changes),
 * irq.d (interrupt filters), callout.d (timers), duration.d (ends after NS).
 *
 * WHAT IT PRINTS (docs/dtrace-grammar.md has every column)
 *     #sched  1  freebsd  8213400112  1795254517141427832  1402000  4
 *     W  8213455120  1  100345  0  100402  152  3
 *     E  8213455870  1  100345  0  100402  1190  152  0  3  -1  3  0  4  make
 *     L  8213456310  1  3  1
 *     S  8213461004  3  -1  100006  11  255  2  0  3 ... 100402  1190 ... make make
 *     #count  S  1
 *     #end    8214400112  1795254518141427832
 * One letter per kind of event: S switch, E put on a run queue, W woken, L load of
 * a queue changed, D taken off a queue without running, P about to be preempted,
 * X thread exits, R what runs after an exit. Names come last, each with its length
 * told before, so that no name can break a line.
 *
 * HOW TO READ IT
 *     schedscope convert, then any analysis. By eye: an E and the next S whose
 *     incoming thread (column 13) is the same: the difference is the time that
 *     thread waited for a CPU.
 *
 * OVERHEAD
 *     Two to four lines per switch, each some hundreds of nanoseconds to a
 *     microsecond in the probe plus about 200 bytes of buffer. Expect a few
 *     per cent at 10,000 switches a second per CPU, and tens of per cent in a
 *     benchmark that does nothing but switch. Not measured on FreeBSD yet.
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
	/* duration.d sets them when it ends the recording. */
	ended = (uint64_t)0;
	ended_wall = (int64_t)0;
	printf("#sched\t1\tfreebsd\t%d\t%d\t%d\t%d\n",
	    timestamp, walltimestamp, $1, $2);
}

/*
 * S: one real switch. It fires in the context of the thread that leaves, after
 * the next one was chosen (arg0) and with interrupts off. State and inhibitors
 * are final here; nvcsw or nivcsw has just been counted up, which is the only
 * place that tells a yield from a preemption. td_lastcpu of the incoming thread
 * is still the CPU it left last. `cpu` and not td_oncpu: 4BSD has cleared that.
 */
sched:::off-cpu
{
	this->o = (thr_t)curthread;
	this->n = (thr_t)arg0;
	printf("S\t%d\t%d\t-1\t%d\t%d\t%d\t%x\t%x\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n",
	    timestamp, cpu,
	    this->o->td_tid, this->o->td_proc->p_pid, this->o->td_priority,
	    (int)this->o->td_state, this->o->td_inhibitors,
	    ((this->o->td_flags & TDF_IDLETD_) >> 5) |
	    ((this->o->td_proc->p_flag & P_KPROC_) >> 1) |
	    ((this->o->td_flags & TDF_SINTR_) >> 1),
	    this->o->td_ru.ru_nvcsw, this->o->td_ru.ru_nivcsw,
	    this->n->td_tid, this->n->td_proc->p_pid, this->n->td_priority,
	    this->n->td_pri_class,
	    ((this->n->td_flags & TDF_IDLETD_) >> 5) |
	    ((this->n->td_proc->p_flag & P_KPROC_) >> 1),
	    this->n->td_lastcpu,
	    strlen(this->o->td_name), strlen(this->n->td_proc->p_comm),
	    strlen(this->n->td_name),
	    this->o->td_wmesg != 0 ? stringof(this->o->td_wmesg) :
	    this->o->td_lockname != 0 ? stringof(this->o->td_lockname) : "-",
	    this->o->td_name, this->n->td_proc->p_comm, this->n->td_name);
	@s = count();
}

/*
 * W: a sleeper is taken off its sleep queue or turnstile. It also fires for a
 * thread that had not gone to sleep yet, so it is a wakeup only when an E of the
 * same thread follows. A thread that removes itself never slept: left out. The
 * agent, here and in E and D, is 0 when it is an idle thread.
 */
sched:::wakeup
/(thr_t)arg0 != (thr_t)curthread/
{
	this->w = (thr_t)arg0;
	printf("W\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", timestamp, cpu,
	    (((thr_t)curthread)->td_flags & TDF_IDLETD_) != 0 ? 0 :
	    ((thr_t)curthread)->td_tid, ((thr_t)curthread)->td_intr_nesting_level,
	    this->w->td_tid, this->w->td_priority, this->w->td_lastcpu);
	@w = count();
}

/*
 * E: the scheduler is asked to queue a thread: sleepers, lock hand-over, fork,
 * thr_new, interrupt threads, resumption. It fires before the CPU is picked (the
 * next L on this CPU tells it) and, on ULE, before the priority is computed anew.
 * 4BSD also sends a thread through here that is only being switched out; that is
 * not a wakeup, and the S beside it tells all of it: left out. td_lastcpu -1
 * (NOCPU) means that the thread has never run.
 */
sched:::enqueue
/(thr_t)arg0 != (thr_t)curthread/
{
	this->w = (thr_t)arg0;
	printf("E\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t-1\t%d\t%d\t%d\t%s\n",
	    timestamp, cpu,
	    (((thr_t)curthread)->td_flags & TDF_IDLETD_) != 0 ? 0 :
	    ((thr_t)curthread)->td_tid, ((thr_t)curthread)->td_intr_nesting_level,
	    this->w->td_tid, this->w->td_proc->p_pid, this->w->td_priority,
	    (int)arg3, this->w->td_lastcpu, this->w->td_pri_class,
	    ((this->w->td_flags & TDF_IDLETD_) >> 5) |
	    ((this->w->td_proc->p_flag & P_KPROC_) >> 1),
	    strlen(this->w->td_name), this->w->td_name);
	@e = count();
}

/* D: a runnable thread leaves its queue without running: stolen, balanced away
 * (two L follow: from, to), or about to be queued again (an E follows). */
sched:::dequeue
{
	printf("D\t%d\t%d\t%d\t%d\n", timestamp, cpu,
	    (((thr_t)curthread)->td_flags & TDF_IDLETD_) != 0 ? 0 :
	    ((thr_t)curthread)->td_tid, ((thr_t)arg0)->td_tid);
	@d = count();
}

/* L: ULE: queue arg0 now holds arg1 threads, the running one included.
 * 4BSD: arg0 is -1 and arg1 the load of the whole machine. */
sched:::load-change
/$3 == 0/
{
	printf("L\t%d\t%d\t%d\t%d\n", timestamp, cpu, (int)arg0, (int)arg1);
	@l = count();
}

/* P: this thread is about to be preempted, or its slice is over; with tid 0, that
 * it was chosen again and goes on. An idle thread giving way is not news. */
sched:::preempt
/(((thr_t)curthread)->td_flags & TDF_IDLETD_) == 0/
{
	preempting[cpu] = 1;
	printf("P\t%d\t%d\t%d\n", timestamp, cpu, ((thr_t)curthread)->td_tid);
	@p = count();
}

/* It was not chosen again: a later remain-cpu is of somebody else. The arrays hold 1 and 2:
 * storing 0 frees an element, the next store allocates it anew, and when the freed ones have
 * not been collected in time DTrace discards the whole record of the clause. */
sched:::off-cpu
/preempting[cpu] == 1/
{
	preempting[cpu] = 2;
}

sched:::remain-cpu
/preempting[cpu] == 1/
{
	preempting[cpu] = 2;
	printf("P\t%d\t%d\t0\n", timestamp, cpu);
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
	printf("X\t%d\t%d\t%d\t%d\t%d\t%s\n", timestamp, cpu,
	    this->o->td_tid, this->o->td_proc->p_pid,
	    strlen(this->o->td_name), this->o->td_name);
	@x = count();
}

sched:::on-cpu
/leaving[cpu] == 1/
{
	leaving[cpu] = 2;
	this->n = (thr_t)curthread;
	printf("R\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", timestamp, cpu,
	    this->n->td_tid, this->n->td_proc->p_pid, this->n->td_priority,
	    this->n->td_pri_class,
	    ((this->n->td_flags & TDF_IDLETD_) >> 5) |
	    ((this->n->td_proc->p_flag & P_KPROC_) >> 1),
	    this->n->td_lastcpu,
	    strlen(this->n->td_proc->p_comm), strlen(this->n->td_name),
	    this->n->td_proc->p_comm, this->n->td_name);
	@r = count();
}

END
/$4 != 0/
{
	printf("#sched\t1\tfreebsd\t%d\t%d\t%d\t%d\n",
	    timestamp, walltimestamp, $1, $2);
}

/* How many lines of each kind were recorded: fewer in the file means a cut file. */
END
{
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
