/*
 * A queue for each CPU. One that finds its own empty takes from the others, the next CPU first.
 * It counts what it does in maps, which the tests read.
 */
#include "scx.h"

const volatile u64 slice_ns = 5000000;

struct seen {
	u64 first_at;
	u64 enqueued;
};

struct {
	UINT(type, 29); /* BPF_MAP_TYPE_TASK_STORAGE */
	UINT(map_flags, 1); /* BPF_F_NO_PREALLOC */
	TYPE(key, s32);
	TYPE(value, struct seen);
} threads SEC(".maps");

struct {
	UINT(type, 6); /* BPF_MAP_TYPE_PERCPU_ARRAY */
	UINT(max_entries, 2);
	TYPE(key, u32);
	TYPE(value, u64);
} counts SEC(".maps");

struct {
	UINT(type, 1); /* BPF_MAP_TYPE_HASH */
	UINT(max_entries, 512);
	TYPE(key, s32);
	TYPE(value, u64);
} runs_of SEC(".maps");

enum { OWN, STOLEN };

u64 nr_stolen;

/* The kernel takes a format from memory that could be written. */
static char no_room[] = "no room for %s";

static void count(u32 what)
{
	u64 *n = bpf_map_lookup_elem(&counts, &what);

	if (n)
		*n += 1;
}

SEC("struct_ops/select_cpu")
s32 steal_select_cpu(u64 *ctx)
{
	bool is_idle = 0;

	/* An idle CPU is woken; the thread goes to its queue in any case. */
	return scx_bpf_select_cpu_dfl(ARG(struct task_struct *, 0), ARG(s32, 1), ARG(u64, 2),
				      &is_idle);
}

SEC("struct_ops/enqueue")
void steal_enqueue(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);
	struct seen *seen =
		bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!seen) {
		scx_bpf_error_bstr(no_room, (u64[]){ (u64)p->comm }, 8);
		return;
	}
	if (!seen->enqueued++)
		seen->first_at = bpf_ktime_get_ns();
	scx_bpf_dsq_insert(p, scx_bpf_task_cpu(p), slice_ns, ARG(u64, 1));
}

struct search {
	s32 from;
	u32 nr_cpus;
	bool found;
};

static long try_next(u64 i, struct search *search)
{
	s32 cpu = (search->from + 1 + i) % search->nr_cpus;

	search->found = scx_bpf_dsq_nr_queued(cpu) > 0 && scx_bpf_dsq_move_to_local(cpu);
	return search->found;
}

SEC("struct_ops/dispatch")
void steal_dispatch(u64 *ctx)
{
	struct search search = { .from = ARG(s32, 0), .nr_cpus = scx_bpf_nr_cpu_ids() };

	if (scx_bpf_dsq_move_to_local(search.from)) {
		count(OWN);
		return;
	}
	bpf_loop(search.nr_cpus - 1, try_next, &search, 0);
	if (search.found) {
		count(STOLEN);
		__sync_fetch_and_add(&nr_stolen, 1);
	}
}

SEC("struct_ops/running")
void steal_running(u64 *ctx)
{
	s32 pid = ARG(struct task_struct *, 0)->pid;
	u64 *n = bpf_map_lookup_elem(&runs_of, &pid), one = 1;

	if (n)
		*n += 1;
	else
		bpf_map_update_elem(&runs_of, &pid, &one, 0);
}

/* A callback: the verifier follows a loop of unknown length turn by turn. */
static long create(u64 cpu, s32 *error)
{
	*error = scx_bpf_create_dsq(cpu, -1);
	return *error != 0;
}

SEC("struct_ops.s/init")
s32 steal_init(u64 *ctx)
{
	s32 error = 0;

	bpf_loop(scx_bpf_nr_cpu_ids(), create, &error, 0);
	return error;
}

SEC(".struct_ops.link")
struct sched_ext_ops steal = {
	.select_cpu = (void *)steal_select_cpu,
	.enqueue = (void *)steal_enqueue,
	.dispatch = (void *)steal_dispatch,
	.running = (void *)steal_running,
	.init = (void *)steal_init,
	.name = "steal",
};
