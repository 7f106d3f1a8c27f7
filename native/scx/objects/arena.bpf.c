/*
 * A FIFO whose queue is a list in an arena, set up as the arena library of sched-ext/scx is. `deed`
 * says what it does with the arena beside that.
 */
#include "scx.h"

#define __arena __attribute__((address_space(1)))

const volatile u32 deed;
const volatile u64 slice_ns = 4000000;
const volatile u32 want_nodes, want_cpus;

enum { NOTHING, OUTSIDE, TAKE_ALL, TOO_MANY, LOOP, GIVE_BACK, NO_ARENA_POINTER, LOCK,
       KICK };

struct {
	UINT(type, 33); /* BPF_MAP_TYPE_ARENA */
	UINT(map_flags, 1 << 10); /* BPF_F_MMAPABLE */
	UINT(max_entries, 1 << 18);
	enum { WHERE = 1ULL << 44 } map_extra;
} arena SEC(".maps");

void __arena *bpf_arena_alloc_pages(void *map, void __arena *at, u32 pages, int node, u64 flags) KSYM;
void bpf_arena_free_pages(void *map, void __arena *at, u32 pages) KSYM;

struct node {
	struct node __arena *next;
	s32 pid;
};

struct task_ctx {
	u64 words[3];
};

struct task_ctx kept;
struct node __arena *first, *last, *spare;
u64 __arena enqueued;
u64 pages_given, size_given, nodes, cpus;
static u64 __arena *masks;
static u64 word;
/* The CPUs of each thread that ops.set_cpumask was told of. */
static u64 told[8];

#define can_loop                                                                  \
	({                                                                        \
		__label__ over, on;                                               \
		bool go = 1;                                                      \
		asm volatile goto("may_goto %l[over]" :::: over);                 \
		goto on;                                                          \
	over:                                                                     \
		go = 0;                                                           \
	on:;                                                                      \
		go;                                                               \
	})

struct arena_init_args {
	u64 static_pages, task_ctx_size;
};

struct arena_alloc_mask_args {
	u64 bitmap;
};

struct arena_topology_node_init_args {
	u64 bitmap, data_size, id;
};

SEC("syscall")
int arena_init(struct arena_init_args *args)
{
	pages_given = args->static_pages;
	size_given = args->task_ctx_size;
	masks = bpf_arena_alloc_pages(&arena, 0, 1, -1, 0);
	return masks ? 0 : -12;
}

SEC("syscall")
int arena_alloc_mask(struct arena_alloc_mask_args *args)
{
	args->bitmap = (u64)masks++;
	return 0;
}

SEC("syscall")
int arena_topology_node_init(struct arena_topology_node_init_args *args)
{
	u64 __arena *mask = (u64 __arena *)args->bitmap;
	u64 left = *mask;

	for (nodes++; left && can_loop; left &= left - 1)
		cpus++;
	return 0;
}

static void fail(u64 what)
{
	scx_bpf_error_bstr("deed %llu", &what, 8);
}

SEC("struct_ops/init")
int arena_ops_init(u64 *ctx)
{
	u64 nr;

	if (want_nodes && (pages_given != 8 || size_given != sizeof(struct task_ctx) ||
			   nodes != want_nodes || cpus != want_cpus))
		return -1;
	spare = bpf_arena_alloc_pages(&arena, 0, 1, -1, 0);
	if (!spare)
		return -12;
	for (nr = 0; nr < 255 && can_loop; nr++)
		spare[nr].next = &spare[nr + 1];
	return 0;
}

static void misuse(void)
{
	volatile u64 __arena *at = (u64 __arena *)0x70000000;
	volatile u64 nr;

	switch (deed) {
	case OUTSIDE:
		for (nr = 0; nr < 8 && can_loop; nr++) {
			at[nr << 24] = 5;
			if (at[nr << 24])
				fail(nr);
		}
		/* Across the end of all that 32 bits reach. */
		at = (u64 __arena *)0xfffffffcULL;
		*at = 5;
		if (*at)
			fail(100);
		break;
	case TAKE_ALL:
		for (nr = 0; nr < 100 && can_loop; nr++)
			if (!bpf_arena_alloc_pages(&arena, 0, 1 << 14, -1, 0))
				fail(nr);
		break;
	case TOO_MANY:
		if (bpf_arena_alloc_pages(&arena, 0, (1 << 18) + 1, -1, 0))
			fail(1);
		if (bpf_arena_alloc_pages(&arena, 0, 1, -1, 1))
			fail(2);
		break;
	case LOOP:
		for (nr = 0; can_loop; nr++)
			enqueued++;
		break;
	case GIVE_BACK:
		at = bpf_arena_alloc_pages(&arena, 0, 2, -1, 0);
		at[0] = at[512] = 7;
		bpf_arena_free_pages(&arena, (void __arena *)at, 1);
		bpf_arena_free_pages(&arena, (void __arena *)at, 1);
		if (at[0] || at[512] != 7)
			fail(1);
		if (bpf_arena_alloc_pages(&arena, (void __arena *)at, 1, -1, 0) != (void __arena *)at || at[0])
			fail(2);
		bpf_arena_free_pages(&arena, (void __arena *)at, 2);
		break;
	case NO_ARENA_POINTER:
		at = (u64 __arena *)(u64)&word;
		*at = 5;
		if (word)
			fail(1);
		break;
	case LOCK:
		if (__sync_val_compare_and_swap(&enqueued, enqueued, 40) == 40 ||
		    __sync_fetch_and_add(&enqueued, 2) != 40 || enqueued != 42)
			fail(1);
		break;
	}
}

SEC("struct_ops/enqueue")
void arena_enqueue(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);
	struct node __arena *node = spare;

	misuse();
	if (told[p->pid & 7] != p->cpus_ptr->bits[0])
		fail(200);
	enqueued++;
	spare = node->next;
	node->next = 0;
	node->pid = p->pid;
	if (first)
		last->next = node;
	else
		first = node;
	last = node;
	/* Who loses its CPU kicks the other one. */
	if (deed == KICK)
		scx_bpf_kick_cpu(!scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
}

SEC("struct_ops/set_cpumask")
void arena_set_cpumask(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);

	told[p->pid & 7] = ARG(struct cpumask *, 1)->bits[0];
}

SEC("struct_ops/dispatch")
void arena_dispatch(u64 *ctx)
{
	struct node __arena *node = first;
	struct task_struct *p;

	if (!node)
		return;
	first = node->next;
	node->next = spare;
	spare = node;
	p = bpf_task_from_pid(node->pid);
	if (!p)
		return;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	bpf_task_release(p);
}

SEC(".struct_ops.link")
struct sched_ext_ops arena_ops = {
	.enqueue = (void *)arena_enqueue,
	.dispatch = (void *)arena_dispatch,
	.set_cpumask = (void *)arena_set_cpumask,
	.init = (void *)arena_ops_init,
	.name = "arena",
};
