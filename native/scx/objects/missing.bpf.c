/* What is not simulated, each where a constant rules it in. */
#include "scx.h"

const volatile u32 needs;

enum { NOTHING, KFUNC, WEAK_KFUNC, MAP, HELPER, MEMBER, OWN_HALF };

void scx_bpf_events(void *to, u64 size) KSYM;
void scx_bpf_from_the_future(void) KSYM WEAK;

struct {
	UINT(type, 11); /* BPF_MAP_TYPE_LPM_TRIE */
	UINT(max_entries, 16);
	TYPE(key, u64);
	TYPE(value, u64);
} pages SEC(".maps");

struct {
	UINT(type, 31); /* BPF_MAP_TYPE_USER_RINGBUF */
	UINT(max_entries, 4096);
} decisions SEC(".maps");

static long (*bpf_user_ringbuf_drain)(void *map, void *callback, void *ctx, u64 flags) =
	(void *)209;
static long (*bpf_get_stack)(void *ctx, void *to, u32 size, u64 flags) = (void *)67;

struct mm_struct___own {
	u64 total_vm;
} __attribute__((preserve_access_index));

struct task_struct___own {
	struct mm_struct___own *mm;
} __attribute__((preserve_access_index));

SEC("struct_ops/running")
void missing_running(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);

	if (needs == KFUNC)
		scx_bpf_events(0, 0);
	/* Absent, so that this is never called. */
	if (scx_bpf_from_the_future)
		scx_bpf_from_the_future();
	if (needs == WEAK_KFUNC)
		scx_bpf_from_the_future();
	if (needs == MAP)
		bpf_map_lookup_elem(&pages, &needs);
	if (needs == OWN_HALF)
		bpf_user_ringbuf_drain(&decisions, 0, 0, 0);
	if (needs == HELPER) {
		u64 stack[4];

		bpf_get_stack(ctx, stack, sizeof(stack), 0);
	}
	if (needs == MEMBER && ((struct task_struct___own *)p)->mm)
		scx_bpf_kick_cpu(0, 0);
}

SEC(".struct_ops.link")
struct sched_ext_ops missing = {
	.running = (void *)missing_running,
	.name = "missing",
};
