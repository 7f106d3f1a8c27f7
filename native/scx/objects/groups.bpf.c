/*
 * Control groups by their weights: a thread's virtual time advances by what it ran over the weight
 * of its group.
 */
#include "scx.h"

#define SHARED 0

struct group {
	u64 weight;
	u64 moved_in;
};

struct {
	UINT(type, 32); /* BPF_MAP_TYPE_CGRP_STORAGE */
	UINT(map_flags, 1); /* BPF_F_NO_PREALLOC */
	TYPE(key, s32);
	TYPE(value, struct group);
} groups SEC(".maps");

static u64 weight_of(struct task_struct *p)
{
	struct cgroup *cgroup = scx_bpf_task_cgroup(p);
	struct group *group = bpf_cgrp_storage_get(&groups, cgroup, 0, 0);
	u64 weight = group ? group->weight : 0;

	bpf_cgroup_release(cgroup);
	if (!weight)
		scx_bpf_error_bstr("no weight for %s", (u64[]){ (u64)p->comm }, 8);
	return weight ? weight : 100;
}

SEC("struct_ops/enqueue")
void groups_enqueue(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);

	scx_bpf_dsq_insert_vtime(p, SHARED, 4000000, p->scx.dsq_vtime, ARG(u64, 1));
}

SEC("struct_ops/dispatch")
void groups_dispatch(u64 *ctx)
{
	scx_bpf_dsq_move_to_local(SHARED);
}

SEC("struct_ops/stopping")
void groups_stopping(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);

	p->scx.dsq_vtime += (4000000 - p->scx.slice) * 100 / weight_of(p);
}

SEC("struct_ops.s/cgroup_init")
s32 groups_cgroup_init(u64 *ctx)
{
	struct cgroup *cgroup = ARG(struct cgroup *, 0), *root, *same;
	struct scx_cgroup_init_args *args = ARG(struct scx_cgroup_init_args *, 1);
	struct group *group =
		bpf_cgrp_storage_get(&groups, cgroup, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	root = bpf_cgroup_ancestor(cgroup, 0);
	same = bpf_cgroup_from_id(cgroup->kn->id);
	if (!group || !root || root->kn->id != 1 || same != cgroup ||
	    bpf_cgroup_ancestor(cgroup, cgroup->level + 1) || bpf_cgroup_from_id(12345))
		return -22;
	group->weight = args->weight;
	return 0;
}

SEC("struct_ops/cgroup_move")
void groups_cgroup_move(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);
	struct cgroup *to = ARG(struct cgroup *, 2);
	struct group *group = bpf_cgrp_storage_get(&groups, to, 0, 0);

	if (!group || scx_bpf_task_cgroup(p) != to)
		scx_bpf_error_bstr("%s came to no group", (u64[]){ (u64)p->comm }, 8);
	else
		group->moved_in++;
}

SEC("struct_ops.s/init_task")
s32 groups_init_task(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);
	struct scx_init_task_args *args = ARG(struct scx_init_task_args *, 1);

	return scx_bpf_task_cgroup(p) == args->cgroup ? 0 : -22;
}

SEC("struct_ops.s/init")
s32 groups_init(u64 *ctx)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops groups_ops = {
	.enqueue = (void *)groups_enqueue,
	.dispatch = (void *)groups_dispatch,
	.stopping = (void *)groups_stopping,
	.cgroup_init = (void *)groups_cgroup_init,
	.cgroup_move = (void *)groups_cgroup_move,
	.init_task = (void *)groups_init_task,
	.init = (void *)groups_init,
	.name = "groups",
};
