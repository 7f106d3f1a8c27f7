/*
 * A scheduler for sched_ext in the manner of the kernel's example scx_simple: threads that wake
 * beside an idle CPU go there at once, all others into one queue of the machine, ordered by virtual
 * time. A witness for the policy scx-simple.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char licence[] SEC("license") = "GPL";

enum { WHOLE_MACHINE = 0, HUNDRED = 100 };
/* SCX_SLICE_DFL and SCX_DSQ_LOCAL are enumerators of the kernel. */
static const u64 slice = 20000000;

s32 scx_bpf_create_dsq(u64 id, s32 node) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev, u64 flags, bool *idle) __ksym;
void scx_bpf_dsq_insert(struct task_struct *p, u64 id, u64 slice, u64 flags) __ksym;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 id, u64 slice, u64 v, u64 flags) __ksym;
bool scx_bpf_dsq_move_to_local(u64 id) __ksym;

static u64 newest;

static bool before(u64 a, u64 b) { return (s64)(a - b) < 0; }

SEC("struct_ops/select_cpu")
s32 BPF_PROG(choose_cpu, struct task_struct *p, s32 prev, u64 flags) {
    bool idle = false;
    s32 cpu = scx_bpf_select_cpu_dfl(p, prev, flags, &idle);
    if (idle)
        scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice, 0);
    return cpu;
}

SEC("struct_ops/enqueue")
void BPF_PROG(enqueue, struct task_struct *p, u64 flags) {
    u64 v = p->scx.dsq_vtime;
    if (before(v, newest - slice))
        v = newest - slice;
    scx_bpf_dsq_insert_vtime(p, WHOLE_MACHINE, slice, v, flags);
}

SEC("struct_ops/dispatch")
void BPF_PROG(dispatch, s32 cpu, struct task_struct *prev) { scx_bpf_dsq_move_to_local(WHOLE_MACHINE); }

SEC("struct_ops/running")
void BPF_PROG(running, struct task_struct *p) {
    if (before(newest, p->scx.dsq_vtime))
        newest = p->scx.dsq_vtime;
}

SEC("struct_ops/stopping")
void BPF_PROG(stopping, struct task_struct *p, bool runnable) {
    p->scx.dsq_vtime += (slice - p->scx.slice) * HUNDRED / p->scx.weight;
}

SEC("struct_ops/enable")
void BPF_PROG(enable, struct task_struct *p) { p->scx.dsq_vtime = newest; }

SEC("struct_ops.s/init")
s32 BPF_PROG(init) { return scx_bpf_create_dsq(WHOLE_MACHINE, -1); }

SEC(".struct_ops")
struct sched_ext_ops simple = {
    .select_cpu = (void *)choose_cpu,
    .enqueue = (void *)enqueue,
    .dispatch = (void *)dispatch,
    .running = (void *)running,
    .stopping = (void *)stopping,
    .enable = (void *)enable,
    .init = (void *)init,
    .name = "scx_simple",
};
