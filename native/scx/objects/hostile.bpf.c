/* What a scheduler must not do: `deed` says which. The kernel's verifier would refuse it. */
#include "scx.h"

const volatile u32 deed;
const volatile u64 constant = 7;

enum { NOTHING, LOOP, READ_OUTSIDE, WRITE_CONSTANT, RECURSE, DEEP_LOOP, FALSE_THREAD, WRITE_THREAD,
       ERROR, NO_QUEUE, KEEP, TWICE, WRONG_CPU, DIVIDE, FALSE_TIMER, FALSE_RECORD,
       FALSE_ITERATOR, FALSE_GROUP, FALSE_CALLBACK, FAST_TIMER, MANY_ITERATORS, MOVE_HERE,
       FALSE_NODE, DROP_TWICE };

static u64 words[4];

struct {
	UINT(type, 2); /* BPF_MAP_TYPE_ARRAY */
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct bpf_timer);
} timers SEC(".maps");

struct {
	UINT(type, 32); /* BPF_MAP_TYPE_CGRP_STORAGE */
	UINT(map_flags, 1); /* BPF_F_NO_PREALLOC */
	TYPE(key, s32);
	TYPE(value, u64);
} of_groups SEC(".maps");

static int again(void *map, u32 *key, struct bpf_timer *timer)
{
	return bpf_timer_start(timer, 0, 0);
}

static long open_one(u64 i, struct bpf_iter_scx_dsq *it)
{
	bpf_iter_scx_dsq_new(it, 77, 0);
	return 0;
}

__attribute__((noinline)) u64 recurse(u64 n)
{
	volatile u64 more = n;

	return recurse(more + 1) + more;
}

static long turn(u64 i, void *context)
{
	return bpf_loop(1 << 23, turn, context, 0) == 0;
}

SEC("struct_ops/enqueue")
void hostile_enqueue(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);
	volatile u64 index = 1000000, zero = 0;
	struct bpf_iter_scx_dsq it = {};
	struct bpf_timer *timer;
	u32 first = 0;

	switch (deed) {
	case LOOP:
		for (;;)
			index = index + 1;
	case READ_OUTSIDE:
		words[0] = words[index];
		break;
	case WRITE_CONSTANT: {
		u64 *to = (u64 *)&constant;

		asm volatile("" : "+r"(to));
		*to = 8;
		break;
	}
	case RECURSE:
		words[0] = recurse(1);
		break;
	case DEEP_LOOP:
		bpf_loop(1 << 23, turn, 0, 0);
		break;
	case FALSE_TIMER:
		bpf_timer_init((struct bpf_timer *)words, &timers, 1);
		break;
	case FALSE_RECORD:
		bpf_ringbuf_submit(words, 0);
		break;
	case FALSE_ITERATOR:
		bpf_iter_scx_dsq_next(&it);
		break;
	case FALSE_GROUP:
		bpf_cgrp_storage_get(&of_groups, (struct cgroup *)words, 0, 1);
		break;
	case FALSE_CALLBACK:
	case FAST_TIMER:
		timer = bpf_map_lookup_elem(&timers, &first);
		if (!timer)
			break;
		bpf_timer_init(timer, &timers, 1);
		bpf_timer_set_callback(timer, deed == FAST_TIMER ? (void *)again : (void *)words);
		bpf_timer_start(timer, 0, 0);
		break;
	case FALSE_NODE:
		bpf_rbtree_add_impl((struct bpf_rb_root *)words, (struct bpf_rb_node *)words, 0, 0, 0);
		break;
	case DROP_TWICE:
		bpf_obj_drop_impl(words, 0);
		break;
	case MANY_ITERATORS:
		bpf_loop(1000, open_one, &it, 0);
		break;
	case MOVE_HERE:
		bpf_iter_scx_dsq_new(&it, 77, 0);
		scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0);
		break;
	case FALSE_THREAD:
		p = (struct task_struct *)words;
		break;
	case WRITE_THREAD:
		p->pid = 1;
		break;
	case ERROR:
		scx_bpf_error_bstr("cannot go on with %s[%d]", (u64[]){ (u64)p->comm, p->pid }, 16);
		break;
	case NO_QUEUE:
		scx_bpf_dsq_insert(p, 77, 0, 0);
		return;
	case KEEP:
		return;
	case TWICE:
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, 0, 0);
		break;
	case WRONG_CPU:
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | 900, 0, 0);
		return;
	case DIVIDE:
		words[0] = index / zero + index % zero;
		break;
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, 0, 0);
}

SEC(".struct_ops.link")
struct sched_ext_ops hostile = {
	.enqueue = (void *)hostile_enqueue,
	.timeout_ms = 1000,
	.name = "hostile",
};
