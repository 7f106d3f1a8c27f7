/*
 * A scheduler for sched_ext without any queue of its own: a thread that wakes beside an idle CPU
 * goes there, and else waits for its CPU in the order of arrival, for slices of 5 ms. A witness
 * for research/lab/policies.py.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char licence[] SEC("license") = "GPL";

static const u64 slice = 5000000;

s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev, u64 flags, bool *idle) __ksym;
void scx_bpf_dsq_insert(struct task_struct *p, u64 id, u64 slice, u64 flags) __ksym;

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
    scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice, flags);
}

SEC(".struct_ops")
struct sched_ext_ops local_fifo = {
    .select_cpu = (void *)choose_cpu,
    .enqueue = (void *)enqueue,
    .name = "scx_local",
};
