/*
 * A scheduler for sched_ext with two queues of its own: threads that wake go into the first, in the
 * order of arrival, and threads whose slice is over into the second, by virtual time. A CPU takes
 * from the first as long as it holds any. Each decision is printed: a witness for `--with scx`.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char licence[] SEC("license") = "GPL";

enum { WAKING = 1, EXPIRED = 2, HUNDRED = 100, TIMEOUT_MS = 5000 };
static const u64 slice = 4000000;

s32 scx_bpf_create_dsq(u64 id, s32 node) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev, u64 flags, bool *idle) __ksym;
void scx_bpf_dsq_insert(struct task_struct *p, u64 id, u64 slice, u64 flags) __ksym;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 id, u64 slice, u64 v, u64 flags) __ksym;
bool scx_bpf_dsq_move_to_local(u64 id) __ksym;

SEC("struct_ops/select_cpu")
s32 BPF_PROG(choose_cpu, struct task_struct *p, s32 prev, u64 flags) {
    bool idle = false;
    s32 cpu = scx_bpf_select_cpu_dfl(p, prev, flags, &idle);
    if (idle) {
        bpf_printk("insert %d local %d", p->pid, cpu);
        scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice, 0);
    }
    return cpu;
}

SEC("struct_ops/enqueue")
void BPF_PROG(enqueue, struct task_struct *p, u64 flags) {
    if (flags & SCX_ENQ_WAKEUP) {
        bpf_printk("insert %d user %d", p->pid, WAKING);
        scx_bpf_dsq_insert(p, WAKING, slice, flags);
    } else {
        bpf_printk("insert %d user %d %llu", p->pid, EXPIRED, p->scx.dsq_vtime);
        scx_bpf_dsq_insert_vtime(p, EXPIRED, slice, p->scx.dsq_vtime, flags);
    }
}

SEC("struct_ops/dispatch")
void BPF_PROG(dispatch, s32 cpu, struct task_struct *prev) {
    if (scx_bpf_dsq_move_to_local(WAKING) || scx_bpf_dsq_move_to_local(EXPIRED))
        bpf_printk("move %d", cpu);
}

SEC("struct_ops/stopping")
void BPF_PROG(stopping, struct task_struct *p, bool runnable) {
    p->scx.dsq_vtime += (slice - p->scx.slice) * HUNDRED / p->scx.weight;
}

SEC("struct_ops.s/init")
s32 BPF_PROG(init) {
    s32 failed = scx_bpf_create_dsq(WAKING, -1);
    return failed ? failed : scx_bpf_create_dsq(EXPIRED, -1);
}

SEC(".struct_ops")
struct sched_ext_ops layers = {
    .select_cpu = (void *)choose_cpu,
    .enqueue = (void *)enqueue,
    .dispatch = (void *)dispatch,
    .stopping = (void *)stopping,
    .init = (void *)init,
    .timeout_ms = TIMEOUT_MS,
    .name = "scx_layers",
};
