/*
 * What sched.d and its additions read of a FreeBSD kernel: the names and the kinds of the
 * members, so that a D compiler on another system can check the scripts. Neither the order nor
 * the sizes of the structures are FreeBSD's, and nothing else of them is here.
 * A line that ends in a release is there from that one on: tests take it out for an older one.
 * The scripts read none of these, nor the flags and inhibitors that came and went between them.
 */
#pragma D option argref

struct rusage_of_freebsd {
	long ru_nvcsw;
	long ru_nivcsw;
};

struct proc {
	int p_pid;
	int p_flag;
	signed char p_nice;
	char p_comm[20];
};

enum td_states_of_freebsd {
	FREEBSD_TDS_INACTIVE, FREEBSD_TDS_INHIBITED, FREEBSD_TDS_CAN_RUN,
	FREEBSD_TDS_RUNQ, FREEBSD_TDS_RUNNING
};

struct thread {
	struct proc *td_proc;
	int td_tid;
	int td_flags;
	int td_ast;			/* 14 */
	int td_inhibitors;
	const char *td_wmesg;
	struct lock_object *td_wantedlock;	/* 16 */
	const char *td_lockname;
	int td_intr_nesting_level;
	struct rusage_of_freebsd td_ru;
	char td_name[20];
	unsigned char td_priority;
	unsigned char td_pri_class;
	enum td_states_of_freebsd td_state;
	int td_lastcpu;
};

struct td_sched {
	unsigned int ts_runtime;
	unsigned int ts_slptime;
};

struct intr_event {
	char ie_name[20];
	int ie_irq;
};

struct callout {
	void (*c_func)(void *);
};

/* A D program needs a clause. */
BEGIN
{
}
