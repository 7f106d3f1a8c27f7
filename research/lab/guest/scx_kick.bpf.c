/*
 * scx_late.bpf.c without its two faults: an idle CPU that a thread may use is told of it, and every
 * queue is there.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char licence[] SEC("license") = "GPL";

enum { EVERYONE = 1, TIMEOUT_MS = 5000 };
static const u64 slice = 20000000;

s32 scx_bpf_create_dsq(u64 id, s32 node) __ksym;
void scx_bpf_dsq_insert(struct task_struct *p, u64 id, u64 slice, u64 flags) __ksym;
bool scx_bpf_dsq_move_to_local(u64 id) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;

SEC("struct_ops/select_cpu")
s32 BPF_PROG(choose_cpu, struct task_struct *p, s32 prev, u64 flags) {
    return prev;
}

SEC("struct_ops/enqueue")
void BPF_PROG(enqueue, struct task_struct *p, u64 flags) {
    s32 cpu;

    scx_bpf_dsq_insert(p, EVERYONE, slice, flags);
    cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
    if (cpu >= 0)
        scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

SEC("struct_ops/dispatch")
void BPF_PROG(dispatch, s32 cpu, struct task_struct *prev) {
    scx_bpf_dsq_move_to_local(EVERYONE);
}

SEC("struct_ops.s/init")
s32 BPF_PROG(init) {
    return scx_bpf_create_dsq(EVERYONE, -1);
}

SEC(".struct_ops")
struct sched_ext_ops kicks = {
    .select_cpu = (void *)choose_cpu,
    .enqueue = (void *)enqueue,
    .dispatch = (void *)dispatch,
    .init = (void *)init,
    .timeout_ms = TIMEOUT_MS,
    .name = "scx_kick",
};
