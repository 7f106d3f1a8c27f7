/* Threads are kept by the scheduler itself: in a tree, the one with the highest number first. */
#include "scx.h"

struct waiting {
	struct bpf_rb_node node;
	s32 pid;
};

#define NEW(type) bpf_obj_new_impl(__builtin_btf_type_id(*(type *)0, 0), 0)

struct bpf_rb_root all;

static bool before(struct bpf_rb_node *one, const struct bpf_rb_node *other)
{
	return ((struct waiting *)one)->pid > ((const struct waiting *)other)->pid;
}

SEC("struct_ops/enqueue")
void trees_enqueue(u64 *ctx)
{
	struct task_struct *p = ARG(struct task_struct *, 0);
	struct waiting *one = NEW(struct waiting);

	if (!one) {
		scx_bpf_error_bstr("no room for %s", (u64[]){ (u64)p->comm }, 8);
		return;
	}
	one->pid = p->pid;
	if (bpf_rbtree_add_impl(&all, &one->node, before, 0, 0) ||
	    !bpf_rbtree_add_impl(&all, &one->node, before, 0, 0))
		scx_bpf_error_bstr("%s is in the tree", (u64[]){ (u64)p->comm }, 8);
	scx_bpf_kick_cpu(0, SCX_KICK_IDLE);
}

SEC("struct_ops/dispatch")
void trees_dispatch(u64 *ctx)
{
	struct bpf_rb_node *first = bpf_rbtree_first(&all);
	struct waiting *one;
	struct task_struct *p;

	if (!first || !(one = (struct waiting *)bpf_rbtree_remove(&all, first)))
		return;
	if (bpf_rbtree_remove(&all, first))
		scx_bpf_error_bstr("%u is still there", (u64[]){ one->pid }, 8);
	p = bpf_task_from_pid(one->pid);
	bpf_obj_drop_impl(one, 0);
	if (!p)
		return;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, 20000000, 0);
	bpf_task_release(p);
}

SEC(".struct_ops.link")
struct sched_ext_ops trees = {
	.enqueue = (void *)trees_enqueue,
	.dispatch = (void *)trees_dispatch,
	.name = "trees",
};
