/*
 * A scheduler for sched_ext that is wrong on purpose: threads wait in one queue of its own, and no
 * idle CPU is told. A CPU looks into the queue only when it has to choose anyway. After so many
 * wakeups of the workload it names a queue that is not there, for which the kernel ends it.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char licence[] SEC("license") = "GPL";

enum { EVERYONE = 1, NOWHERE = 99, WAKEUPS = 60, TIMEOUT_MS = 5000 };
static const u64 slice = 20000000;
static const char own[] = "sleeper";
u32 wakeups = 0;

s32 scx_bpf_create_dsq(u64 id, s32 node) __ksym;
void scx_bpf_dsq_insert(struct task_struct *p, u64 id, u64 slice, u64 flags) __ksym;
bool scx_bpf_dsq_move_to_local(u64 id) __ksym;

static bool is_own(struct task_struct *p) {
    for (u32 i = 0; i < sizeof own - 1; i++)
        if (p->comm[i] != own[i])
            return false;
    return true;
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(choose_cpu, struct task_struct *p, s32 prev, u64 flags) {
    return prev;
}

SEC("struct_ops/enqueue")
void BPF_PROG(enqueue, struct task_struct *p, u64 flags) {
    if (is_own(p) && __sync_fetch_and_add(&wakeups, 1) == WAKEUPS)
        scx_bpf_dsq_insert(p, NOWHERE, slice, flags);
    else
        scx_bpf_dsq_insert(p, EVERYONE, slice, flags);
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
struct sched_ext_ops late = {
    .select_cpu = (void *)choose_cpu,
    .enqueue = (void *)enqueue,
    .dispatch = (void *)dispatch,
    .init = (void *)init,
    .timeout_ms = TIMEOUT_MS,
    .name = "scx_late",
};
