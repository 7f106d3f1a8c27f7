/*
 * Two layers: threads whose name begins with b are the second. A timer gives the CPUs to the one
 * and the other in turn; a layer that has nothing to run leaves them to the other.
 */
#include "scx.h"

const volatile u64 turn_ns = 10000000;

enum { FRONT, BATCH };

struct turn {
	u64 layer;
	struct bpf_timer timer;
};

struct {
	UINT(type, 2); /* BPF_MAP_TYPE_ARRAY */
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct turn);
} turns SEC(".maps");

u64 own_turn_ns;

static u64 length(void)
{
	return own_turn_ns ? own_turn_ns : turn_ns;
}

static int next_turn(void *map, u32 *key, struct turn *turn)
{
	u32 cpu, nr = scx_bpf_nr_cpu_ids();

	if (*key != 0) {
		scx_bpf_error_bstr("the timer of %u", (u64[]){ *key }, 8);
		return 0;
	}
	turn->layer = !turn->layer;
	for (cpu = 0; cpu < nr; cpu++)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	bpf_timer_start(&turn->timer, length(), 0);
	return 0;
}

SEC("struct_ops/enqueue")
void layers_enqueue(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);

	scx_bpf_dsq_insert(p, p->comm[0] == 'b' ? BATCH : FRONT, 1000000000, ARG(u64, 1));
}

SEC("struct_ops/dispatch")
void layers_dispatch(u64 *ctx)
{
	u32 first = 0;
	struct turn *turn = bpf_map_lookup_elem(&turns, &first);

	if (turn && !scx_bpf_dsq_move_to_local(turn->layer))
		scx_bpf_dsq_move_to_local(!turn->layer);
}

/* For the scheduler's own half, which runs it before the scheduler begins. */
SEC("syscall")
s32 set_turn(s32 *ms)
{
	if (*ms <= 0)
		return -22;
	own_turn_ns = *ms * 1000000ULL;
	return 0;
}

SEC("struct_ops.s/init")
s32 layers_init(u64 *ctx)
{
	u32 first = 0;
	struct turn *turn = bpf_map_lookup_elem(&turns, &first), other = { .layer = FRONT };
	s32 error;

	error = scx_bpf_create_dsq(FRONT, -1);
	if (!error)
		error = scx_bpf_create_dsq(BATCH, -1);
	if (error || !turn)
		return error;
	/* Not before it has a callback, not twice, and no update forgets it. */
	if (bpf_timer_start(&turn->timer, 1, 0) != -22)
		return -1;
	bpf_timer_init(&turn->timer, &turns, 1);
	if (bpf_timer_init(&turn->timer, &turns, 1) != -16)
		return -1;
	if (bpf_timer_start(&turn->timer, 1, 0) != -22)
		return -1;
	bpf_timer_set_callback(&turn->timer, next_turn);
	bpf_timer_start(&turn->timer, 1000, 0);
	if (bpf_timer_cancel(&turn->timer) != 1 || bpf_timer_cancel(&turn->timer) != 0)
		return -1;
	bpf_map_update_elem(&turns, &first, &other, 0);
	return bpf_timer_start(&turn->timer, length(), 0);
}

SEC(".struct_ops.link")
struct sched_ext_ops layers = {
	.enqueue = (void *)layers_enqueue,
	.dispatch = (void *)layers_dispatch,
	.init = (void *)layers_init,
	.name = "layers",
};
