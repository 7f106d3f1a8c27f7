/*
 * The last that was queued comes first: dispatch goes through a DSQ, from its end or by moving all
 * to one in order of a virtual time. On the way it uses maps that are no tables, and errs if they
 * answer what they must not.
 */
#include "scx.h"

const volatile u32 by_vtime;
const volatile u32 nr_limits;

enum { ARRIVED, SORTED };
#define SCX_DSQ_ITER_REV (1 << 16)
#define BPF_EXIST 2

/* Its own half makes it longer. */
u32 limits[1] SEC(".data.limits");

struct {
	UINT(type, 22); /* BPF_MAP_TYPE_QUEUE */
	UINT(max_entries, 2);
	TYPE(value, u32);
} last_two SEC(".maps");

struct {
	UINT(type, 23); /* BPF_MAP_TYPE_STACK */
	UINT(max_entries, 2);
	TYPE(value, u32);
} stack SEC(".maps");

struct {
	UINT(type, 27); /* BPF_MAP_TYPE_RINGBUF */
	UINT(max_entries, 4096);
} events SEC(".maps");

struct counts {
	UINT(type, 2); /* BPF_MAP_TYPE_ARRAY */
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} enqueued SEC(".maps"), moved SEC(".maps");

struct {
	UINT(type, 12); /* BPF_MAP_TYPE_ARRAY_OF_MAPS */
	UINT(max_entries, 3);
	TYPE(key, u32);
	struct counts *values[];
} all_counts SEC(".maps") = {
	.values = { [0] = &enqueued, [2] = &moved },
};

static void check(bool good, u64 what)
{
	if (!good)
		scx_bpf_error_bstr("check %u", (u64[]){ what }, 8);
}

static void count(u32 which)
{
	u32 first = 0, none = 1;
	void *map = bpf_map_lookup_elem(&all_counts, &which);
	u64 *n = map ? bpf_map_lookup_elem(map, &first) : 0;

	check(n && !bpf_map_lookup_elem(&all_counts, &none), 1);
	if (n)
		*n += 1;
}

static void use_queues(u32 pid)
{
	u32 got = 7, more = 1;

	check(bpf_map_pop_elem(&stack, &got) == -2 && got == 0, 2);
	bpf_map_push_elem(&stack, &pid, 0);
	bpf_map_push_elem(&stack, &more, 0);
	check(bpf_map_push_elem(&stack, &more, 0) == -7, 3);
	check(!bpf_map_pop_elem(&stack, &got) && got == 1, 4);
	check(!bpf_map_pop_elem(&stack, &got) && got == pid, 5);
	bpf_map_push_elem(&last_two, &more, BPF_EXIST);
	bpf_map_push_elem(&last_two, &pid, BPF_EXIST);
	bpf_map_push_elem(&last_two, &more, BPF_EXIST);
	check(!bpf_map_peek_elem(&last_two, &got) && got == pid, 6);
}

static void use_ring(u32 pid)
{
	u32 *one = bpf_ringbuf_reserve(&events, 2000, 0);
	u32 *other = bpf_ringbuf_reserve(&events, 2000, 0);

	check(one && other && !bpf_ringbuf_reserve(&events, 200, 0), 7);
	check(bpf_ringbuf_query(&events, 0) == 4016 && bpf_ringbuf_query(&events, 1) == 4096, 8);
	if (one) {
		*one = pid;
		bpf_ringbuf_submit(one, 0);
	}
	if (other)
		bpf_ringbuf_discard(other, 0);
	check(bpf_ringbuf_query(&events, 0) == 0 && bpf_ringbuf_query(&events, 2) % 4016 == 0, 9);
}

SEC("struct_ops/enqueue")
void moves_enqueue(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);

	count(0);
	use_queues(p->pid);
	use_ring(p->pid);
	scx_bpf_dsq_insert(p, ARRIVED, 5000000, ARG(u64, 1));
	scx_bpf_kick_cpu(0, SCX_KICK_IDLE);
}

SEC("struct_ops/dispatch")
void moves_dispatch(u64 *ctx)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u32 n = 0;

	check(bpf_iter_scx_dsq_new(&it, 99, 0) == -2 && !bpf_iter_scx_dsq_next(&it), 10);
	bpf_iter_scx_dsq_destroy(&it);
	bpf_iter_scx_dsq_new(&it, ARRIVED, by_vtime ? 0 : SCX_DSQ_ITER_REV);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		if (!by_vtime) {
			scx_bpf_dsq_move_set_slice(&it, 20000000);
			check(scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0), 11);
			/* It is not in that queue any more. */
			check(!scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0), 12);
			count(2);
			break;
		}
		scx_bpf_dsq_move_set_vtime(&it, 1000 - p->pid);
		if (scx_bpf_dsq_move_vtime(&it, p, SORTED, 0))
			count(2);
		if (++n > 100)
			break;
	}
	bpf_iter_scx_dsq_destroy(&it);
	if (by_vtime)
		scx_bpf_dsq_move_to_local(SORTED);
}

SEC("struct_ops/cpu_release")
void moves_cpu_release(u64 *ctx)
{
	scx_bpf_reenqueue_local();
}

SEC("struct_ops.s/init")
s32 moves_init(u64 *ctx)
{
	s32 error = scx_bpf_create_dsq(ARRIVED, -1);
	volatile u32 last = nr_limits - 1;

	if (nr_limits && *(&limits[0] + last) != 7)
		return -1;
	return error ? error : scx_bpf_create_dsq(SORTED, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops moves = {
	.enqueue = (void *)moves_enqueue,
	.dispatch = (void *)moves_dispatch,
	.cpu_release = (void *)moves_cpu_release,
	.init = (void *)moves_init,
	.name = "moves",
};
