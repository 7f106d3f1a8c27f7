/* What a scheduler must not do: `deed` says which. The kernel's verifier would refuse it. */
#include "scx.h"

const volatile u32 deed;
const volatile u64 constant = 7;

enum { NOTHING, LOOP, READ_OUTSIDE, WRITE_CONSTANT, RECURSE, DEEP_LOOP, FALSE_THREAD, WRITE_THREAD,
       ERROR, NO_QUEUE, KEEP, TWICE, WRONG_CPU, DIVIDE };

static u64 words[4];

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
