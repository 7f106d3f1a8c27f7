/* Threads that wake in one queue, which comes first, and those whose slice is over in another. */
#include "scx.h"

const volatile u64 slice_ns = 4000000;

enum { WAKING, EXPIRED };
#define SCX_ENQ_WAKEUP 1

SEC("struct_ops/enqueue")
void waking_enqueue(u64 *ctx)
{
	u64 flags = ARG(u64, 1);

	scx_bpf_dsq_insert(ARG(struct task_struct *, 0), flags & SCX_ENQ_WAKEUP ? WAKING : EXPIRED,
			   slice_ns, flags);
}

SEC("struct_ops/dispatch")
void waking_dispatch(u64 *ctx)
{
	if (!scx_bpf_dsq_move_to_local(WAKING))
		scx_bpf_dsq_move_to_local(EXPIRED);
}

SEC("struct_ops.s/init")
s32 waking_init(u64 *ctx)
{
	s32 error = scx_bpf_create_dsq(WAKING, -1);

	return error ? error : scx_bpf_create_dsq(EXPIRED, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops waking = {
	.enqueue = (void *)waking_enqueue,
	.dispatch = (void *)waking_dispatch,
	.init = (void *)waking_init,
	.name = "waking",
};
