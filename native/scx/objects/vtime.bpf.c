/*
 * One queue for the machine, ordered by the CPU time that each thread has had, divided by its
 * weight: what scx_simple does. A thread that wakes beside an idle CPU goes straight there.
 */
#include "scx.h"

enum { SHARED = 0 };

const volatile u64 slice_ns = 20000000;
const volatile bool fifo_order;
/* Of the thread that has most recently started. */
static u64 newest;

static bool is_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

SEC("struct_ops/select_cpu")
s32 vtime_select_cpu(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);
	bool is_idle = 0;
	s32 cpu = scx_bpf_select_cpu_dfl(p, ARG(s32, 1), ARG(u64, 2), &is_idle);

	if (is_idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

SEC("struct_ops/enqueue")
void vtime_enqueue(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);
	u64 vtime = p->scx.dsq_vtime;

	if (fifo_order) {
		scx_bpf_dsq_insert(p, SHARED, slice_ns, ARG(u64, 1));
		return;
	}
	/* A sleeper keeps at most one slice. */
	if (is_before(vtime, newest - slice_ns))
		vtime = newest - slice_ns;
	scx_bpf_dsq_insert_vtime(p, SHARED, slice_ns, vtime, ARG(u64, 1));
}

SEC("struct_ops/dispatch")
void vtime_dispatch(u64 *ctx)
{
	scx_bpf_dsq_move_to_local(SHARED);
}

SEC("struct_ops/running")
void vtime_running(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);

	if (is_before(newest, p->scx.dsq_vtime))
		newest = p->scx.dsq_vtime;
}

SEC("struct_ops/stopping")
void vtime_stopping(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);

	p->scx.dsq_vtime += (slice_ns - p->scx.slice) * 100 / p->scx.weight;
}

SEC("struct_ops/enable")
void vtime_enable(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);

	p->scx.dsq_vtime = newest;
}

SEC("struct_ops.s/init")
s32 vtime_init(u64 *ctx)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops vtime = {
	.select_cpu = (void *)vtime_select_cpu,
	.enqueue = (void *)vtime_enqueue,
	.dispatch = (void *)vtime_dispatch,
	.running = (void *)vtime_running,
	.stopping = (void *)vtime_stopping,
	.enable = (void *)vtime_enable,
	.init = (void *)vtime_init,
	.name = "vtime",
};
