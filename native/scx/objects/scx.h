/*
 * What a scheduler of these tests needs of the kernel's types: only the members used, at
 * no particular place, since CO-RE relocations find them. A real scheduler includes vmlinux.h.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;
typedef _Bool bool;

#define SEC(name) __attribute__((section(name), used))
#define KSYM __attribute__((section(".ksyms")))
#define WEAK __attribute__((weak))
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name
/* The arguments of a callback are words of a context. */
#define ARG(type, n) ((type)ctx[n])

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cpumask {
	u64 bits[1];
};

struct scx_dispatch_q {
	u32 nr;
	u64 id;
};

struct sched_ext_entity {
	struct scx_dispatch_q *dsq;
	u32 flags;
	u32 weight;
	s32 selected_cpu;
	u64 slice;
	u64 dsq_vtime;
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct task_struct {
	u32 flags;
	s32 pid;
	s32 tgid;
	s32 nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	struct sched_entity se;
	struct sched_ext_entity scx;
	char comm[16];
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
};

struct scx_cgroup_init_args {
	u32 weight;
};

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};

struct scx_exit_task_args {
	bool cancelled;
};

struct scx_exit_info {
	s32 kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

#pragma clang attribute pop

/* What the kernel keeps to itself in these. */
struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_rb_root {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_rb_node {
	u64 opaque[4];
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *, s32, u64);
	void (*enqueue)(struct task_struct *, u64);
	void (*dequeue)(struct task_struct *, u64);
	void (*dispatch)(s32, struct task_struct *);
	void (*tick)(struct task_struct *);
	void (*runnable)(struct task_struct *, u64);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, bool);
	void (*quiescent)(struct task_struct *, u64);
	void (*set_weight)(struct task_struct *, u32);
	void (*set_cpumask)(struct task_struct *, const struct cpumask *);
	void (*update_idle)(s32, bool);
	s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
	void (*exit_task)(struct task_struct *, struct scx_exit_task_args *);
	void (*enable)(struct task_struct *);
	void (*disable)(struct task_struct *);
	s32 (*cgroup_init)(struct cgroup *, struct scx_cgroup_init_args *);
	void (*cgroup_move)(struct task_struct *, struct cgroup *, struct cgroup *);
	void (*cpu_release)(s32, void *);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	u32 dispatch_max_batch;
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

#define SCX_DSQ_GLOBAL 0x8000000000000001ULL
#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_DSQ_LOCAL_ON 0xc000000000000000ULL
#define SCX_KICK_IDLE 1
#define SCX_KICK_PREEMPT 2
#define SCX_ENQ_LAST (1ULL << 41)

s32 scx_bpf_create_dsq(u64 id, s32 node) KSYM;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev, u64 flags, bool *idle) KSYM;
void scx_bpf_dsq_insert(struct task_struct *p, u64 id, u64 slice, u64 flags) KSYM WEAK;
void scx_bpf_dispatch(struct task_struct *p, u64 id, u64 slice, u64 flags) KSYM WEAK;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 id, u64 slice, u64 vtime, u64 flags) KSYM;
bool scx_bpf_dsq_move_to_local(u64 id) KSYM WEAK;
bool scx_bpf_consume(u64 id) KSYM WEAK;
s32 scx_bpf_dsq_nr_queued(u64 id) KSYM;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) KSYM;
u32 scx_bpf_nr_cpu_ids(void) KSYM;
s32 scx_bpf_task_cpu(const struct task_struct *p) KSYM;
bool scx_bpf_task_running(const struct task_struct *p) KSYM;
void scx_bpf_error_bstr(char *format, u64 *data, u32 size) KSYM;
u64 scx_bpf_now(void) KSYM WEAK;
u32 scx_bpf_reenqueue_local(void) KSYM;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 id, u64 flags) KSYM;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) KSYM;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) KSYM;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id, u64 flags) KSYM;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id,
			    u64 flags) KSYM;
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) KSYM;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) KSYM;
struct cgroup *scx_bpf_task_cgroup(struct task_struct *p) KSYM;
struct cgroup *bpf_cgroup_ancestor(struct cgroup *group, int level) KSYM;
struct cgroup *bpf_cgroup_from_id(u64 id) KSYM;
void *bpf_obj_new_impl(u64 type, void *meta) KSYM;
void bpf_obj_drop_impl(void *object, void *meta) KSYM;
int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
			bool (*less)(struct bpf_rb_node *, const struct bpf_rb_node *), void *meta,
			u64 offset) KSYM;
struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node) KSYM;
struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) KSYM;
struct task_struct *bpf_task_from_pid(s32 pid) KSYM;
void bpf_task_release(struct task_struct *p) KSYM;
void bpf_cgroup_release(struct cgroup *group) KSYM;

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) =
	(void *)2;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static void *(*bpf_task_storage_get)(void *map, struct task_struct *p, void *value, u64 flags) =
	(void *)156;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static long (*bpf_map_push_elem)(void *map, const void *value, u64 flags) = (void *)87;
static long (*bpf_map_pop_elem)(void *map, void *value) = (void *)88;
static long (*bpf_map_peek_elem)(void *map, void *value) = (void *)89;
static void *(*bpf_ringbuf_reserve)(void *map, u64 size, u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;
static void (*bpf_ringbuf_discard)(void *data, u64 flags) = (void *)133;
static u64 (*bpf_ringbuf_query)(void *map, u64 flags) = (void *)134;
static long (*bpf_timer_init)(struct bpf_timer *timer, void *map, u64 flags) = (void *)169;
static long (*bpf_timer_set_callback)(struct bpf_timer *timer, void *callback) = (void *)170;
static long (*bpf_timer_start)(struct bpf_timer *timer, u64 ns, u64 flags) = (void *)171;
static long (*bpf_timer_cancel)(struct bpf_timer *timer) = (void *)172;
static void *(*bpf_cgrp_storage_get)(void *map, struct cgroup *group, void *value, u64 flags) =
	(void *)210;
static long (*bpf_loop)(u32 n, void *callback, void *context, u64 flags) = (void *)181;
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1

char _license[] SEC("license") = "Dual BSD/GPL";
