/* First come, first served: every thread through the one queue that the kernel has for all CPUs. */
#include "scx.h"

const volatile u64 slice_ns = 20000000;

SEC("struct_ops/enqueue")
void fifo_enqueue(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);

	if (scx_bpf_dsq_insert)
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, ARG(u64, 1));
	else
		scx_bpf_dispatch(p, SCX_DSQ_GLOBAL, slice_ns, ARG(u64, 1));
}

SEC(".struct_ops.link")
struct sched_ext_ops fifo = {
	.enqueue = (void *)fifo_enqueue,
	.name = "fifo",
};
