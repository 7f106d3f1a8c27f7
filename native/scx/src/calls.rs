//! Helpers and kfuncs: what programs may call. Each name is that of the kernel; the release is the
//! first that has it. Helpers: kernel/bpf/helpers.c and kernel/trace/bpf_trace.c, Linux 6.12.
use schedscope_sim::machine::Cpu;
use schedscope_sim::world::{State, World};

use super::arena;
use super::core::{Context, Core, Insert};
use super::fault::Fault;
use super::groups::Groups;
use super::iterators::Iterators;
use super::kernel_types as k;
use super::maps::{MapKind, Maps};
use super::masks;
use super::memory::{MAPS, Memory, PER_CPU, address, split};
use super::text::formatted;
use super::timers::SOONEST;
use super::vm::{Answer, Kernel};

macro_rules! kfuncs {
    ($($variant:ident: $($name:literal)|+ , $release:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Kfunc { $($variant),* }
        /// (name, what it does, the first release)
        const KFUNCS: &[(&str, Kfunc, &str)] = &[$($(($name, Kfunc::$variant, $release)),+),*];
    };
}

// kernel/sched/ext.c and ext_idle.c, then kernel/bpf/cpumask.c, bpf_iter.c and helpers.c.
kfuncs! {
    CreateDsq: "scx_bpf_create_dsq", "6.12";
    DestroyDsq: "scx_bpf_destroy_dsq", "6.12";
    DsqNrQueued: "scx_bpf_dsq_nr_queued", "6.12";
    Insert: "scx_bpf_dispatch" | "scx_bpf_dsq_insert" | "scx_bpf_dsq_insert___v2", "6.12";
    InsertVtime: "scx_bpf_dispatch_vtime" | "scx_bpf_dsq_insert_vtime", "6.12";
    InsertVtimeArgs: "__scx_bpf_dsq_insert_vtime", "6.19";
    MoveToLocal: "scx_bpf_consume" | "scx_bpf_dsq_move_to_local", "6.12";
    DsqIterator: "bpf_iter_scx_dsq_new", "6.12";
    DsqNext: "bpf_iter_scx_dsq_next", "6.12";
    DsqDestroy: "bpf_iter_scx_dsq_destroy", "6.12";
    Move: "scx_bpf_dispatch_from_dsq" | "scx_bpf_dsq_move", "6.12";
    MoveVtime: "scx_bpf_dispatch_vtime_from_dsq" | "scx_bpf_dsq_move_vtime", "6.12";
    MoveSetSlice: "scx_bpf_dispatch_from_dsq_set_slice" | "scx_bpf_dsq_move_set_slice", "6.12";
    MoveSetVtime: "scx_bpf_dispatch_from_dsq_set_vtime" | "scx_bpf_dsq_move_set_vtime", "6.12";
    Reenqueue: "scx_bpf_reenqueue_local", "6.12";
    TaskGroup: "scx_bpf_task_cgroup", "6.12";
    Same: "bpf_cgroup_acquire" | "bpf_task_acquire" | "bpf_rdonly_cast", "6.2";
    GroupAncestor: "bpf_cgroup_ancestor", "6.2";
    GroupFromId: "bpf_cgroup_from_id", "6.3";
    GroupIterator: "bpf_iter_css_new", "6.7";
    GroupNext: "bpf_iter_css_next", "6.7";
    DispatchSlots: "scx_bpf_dispatch_nr_slots", "6.12";
    DispatchCancel: "scx_bpf_dispatch_cancel", "6.12";
    SelectDefault: "scx_bpf_select_cpu_dfl", "6.12";
    SelectAnd: "scx_bpf_select_cpu_and", "6.16";
    Kick: "scx_bpf_kick_cpu", "6.12";
    TaskCpu: "scx_bpf_task_cpu", "6.12";
    TaskRunning: "scx_bpf_task_running", "6.12";
    CpuRunqueue: "scx_bpf_cpu_rq", "6.12";
    CpuCurrent: "scx_bpf_cpu_curr", "6.18";
    IdleMask: "scx_bpf_get_idle_cpumask" | "scx_bpf_get_idle_cpumask_node", "6.12";
    IdleCores: "scx_bpf_get_idle_smtmask" | "scx_bpf_get_idle_smtmask_node", "6.12";
    OnlineMask: "scx_bpf_get_online_cpumask", "6.12";
    PossibleMask: "scx_bpf_get_possible_cpumask", "6.12";
    PutMask: "scx_bpf_put_idle_cpumask" | "scx_bpf_put_cpumask", "6.12";
    ClaimIdle: "scx_bpf_test_and_clear_cpu_idle", "6.12";
    PickIdle: "scx_bpf_pick_idle_cpu", "6.12";
    PickIdleNode: "scx_bpf_pick_idle_cpu_node", "6.15";
    PickAny: "scx_bpf_pick_any_cpu", "6.12";
    PickAnyNode: "scx_bpf_pick_any_cpu_node", "6.15";
    NrCpus: "scx_bpf_nr_cpu_ids", "6.12";
    NrNodes: "scx_bpf_nr_node_ids", "6.15";
    CpuNode: "scx_bpf_cpu_node", "6.15";
    Capacity: "scx_bpf_cpuperf_cap" | "scx_bpf_cpuperf_cur", "6.12";
    SetPerformance: "scx_bpf_cpuperf_set", "6.12";
    Now: "scx_bpf_now", "6.14";
    SetSlice: "scx_bpf_task_set_slice", "6.19";
    SetVtime: "scx_bpf_task_set_dsq_vtime", "6.19";
    Error: "scx_bpf_error_bstr", "6.12";
    Exit: "scx_bpf_exit_bstr", "6.12";
    Dump: "scx_bpf_dump_bstr", "6.12";
    MaskCreate: "bpf_cpumask_create", "6.3";
    MaskAcquire: "bpf_cpumask_acquire", "6.3";
    MaskRelease: "bpf_cpumask_release", "6.3";
    MaskFirst: "bpf_cpumask_first", "6.3";
    MaskFirstZero: "bpf_cpumask_first_zero", "6.3";
    MaskFirstAnd: "bpf_cpumask_first_and", "6.3";
    MaskSet: "bpf_cpumask_set_cpu", "6.3";
    MaskClearCpu: "bpf_cpumask_clear_cpu", "6.3";
    MaskTest: "bpf_cpumask_test_cpu", "6.3";
    MaskTestSet: "bpf_cpumask_test_and_set_cpu", "6.3";
    MaskTestClear: "bpf_cpumask_test_and_clear_cpu", "6.3";
    MaskSetAll: "bpf_cpumask_setall", "6.3";
    MaskClear: "bpf_cpumask_clear", "6.3";
    MaskAnd: "bpf_cpumask_and", "6.3";
    MaskOr: "bpf_cpumask_or", "6.3";
    MaskXor: "bpf_cpumask_xor", "6.3";
    MaskEqual: "bpf_cpumask_equal", "6.3";
    MaskIntersects: "bpf_cpumask_intersects", "6.3";
    MaskSubset: "bpf_cpumask_subset", "6.3";
    MaskEmpty: "bpf_cpumask_empty", "6.3";
    MaskFull: "bpf_cpumask_full", "6.3";
    MaskCopy: "bpf_cpumask_copy", "6.3";
    MaskAny: "bpf_cpumask_any_distribute", "6.5";
    MaskAnyAnd: "bpf_cpumask_any_and_distribute", "6.5";
    MaskWeight: "bpf_cpumask_weight", "6.8";
    Nothing: "bpf_rcu_read_lock" | "bpf_rcu_read_unlock" | "bpf_preempt_disable"
        | "bpf_preempt_enable" | "bpf_task_release" | "bpf_cgroup_release", "6.2";
    TaskFromPid: "bpf_task_from_pid", "6.2";
    ObjectNew: "bpf_obj_new_impl", "6.2";
    ObjectDrop: "bpf_obj_drop_impl", "6.2";
    TreeAdd: "bpf_rbtree_add_impl", "6.4";
    TreeRemove: "bpf_rbtree_remove", "6.3";
    TreeFirst: "bpf_rbtree_first", "6.3";
    ArenaTake: "bpf_arena_alloc_pages", "6.9";
    ArenaReserve: "bpf_arena_reserve_pages", "6.17";
    ArenaGiveBack: "bpf_arena_free_pages", "6.9";
    NumberNew: "bpf_iter_num_new", "6.4";
    NumberNext: "bpf_iter_num_next", "6.4";
    NumberDestroy: "bpf_iter_num_destroy" | "bpf_iter_css_destroy", "6.4";
}

/// The number of a kfunc.
pub fn kfunc(name: &str) -> Option<u32> {
    // Of 7.1, with flags as a second argument: not what the name without its end is.
    if name == "scx_bpf_dsq_move_to_local___v2" {
        return None;
    }
    let at = KFUNCS.iter().position(|(own, ..)| *own == name);
    at.map(|at| at as u32)
}

/// Variables of the kernel's that each CPU has.
const PER_CPU_VARIABLES: &[&str] = &["runqueues", "cpufreq_cpu_data"];
const RUNQUEUES: u64 = 0;

pub fn per_cpu(name: &str) -> Option<u32> {
    let at = PER_CPU_VARIABLES.iter().position(|own| *own == name);
    at.map(|at| at as u32)
}

/// (number, name)
const HELPERS: &[(i64, &str)] = &[
    (1, "bpf_map_lookup_elem"),
    (2, "bpf_map_update_elem"),
    (3, "bpf_map_delete_elem"),
    (4, "bpf_probe_read"),
    (5, "bpf_ktime_get_ns"),
    (6, "bpf_trace_printk"),
    (7, "bpf_get_prandom_u32"),
    (8, "bpf_get_smp_processor_id"),
    (14, "bpf_get_current_pid_tgid"),
    (35, "bpf_get_current_task"),
    (42, "bpf_get_numa_node_id"),
    (87, "bpf_map_push_elem"),
    (88, "bpf_map_pop_elem"),
    (89, "bpf_map_peek_elem"),
    (93, "bpf_spin_lock"),
    (94, "bpf_spin_unlock"),
    (113, "bpf_probe_read_kernel"),
    (115, "bpf_probe_read_kernel_str"),
    (118, "bpf_jiffies64"),
    (125, "bpf_ktime_get_boot_ns"),
    (130, "bpf_ringbuf_output"),
    (131, "bpf_ringbuf_reserve"),
    (132, "bpf_ringbuf_submit"),
    (133, "bpf_ringbuf_discard"),
    (134, "bpf_ringbuf_query"),
    (153, "bpf_per_cpu_ptr"),
    (154, "bpf_this_cpu_ptr"),
    (156, "bpf_task_storage_get"),
    (157, "bpf_task_storage_delete"),
    (158, "bpf_get_current_task_btf"),
    (160, "bpf_ktime_get_coarse_ns"),
    (164, "bpf_for_each_map_elem"),
    (165, "bpf_snprintf"),
    (169, "bpf_timer_init"),
    (170, "bpf_timer_set_callback"),
    (171, "bpf_timer_start"),
    (172, "bpf_timer_cancel"),
    (177, "bpf_trace_vprintk"),
    (181, "bpf_loop"),
    (182, "bpf_strncmp"),
    (194, "bpf_kptr_xchg"),
    (195, "bpf_map_lookup_percpu_elem"),
    (210, "bpf_cgrp_storage_get"),
    (211, "bpf_cgrp_storage_delete"),
];

/// Helpers of schedulers that are not there.
const ABSENT: &[(i64, &str)] = &[
    (12, "bpf_tail_call"),
    (25, "bpf_perf_event_output"),
    (55, "bpf_perf_event_read_value"),
    (203, "bpf_dynptr_data"),
    (209, "bpf_user_ringbuf_drain"),
];

pub fn has_helper(id: i64) -> bool {
    HELPERS.iter().any(|(own, _)| *own == id)
}

pub fn helper_name(id: i64) -> String {
    let found = HELPERS.iter().chain(ABSENT).find(|(own, _)| *own == id);
    found.map_or_else(|| format!("{id}"), |(_, name)| (*name).to_string())
}

/// What programs call, in the world in which they run.
pub struct Host<'a> {
    pub core: &'a mut Core,
    pub maps: &'a mut Maps,
    pub groups: &'a mut Groups,
    pub iterators: Iterators,
    pub w: &'a mut World,
}

const EINVAL: i64 = -22;
const EBUSY: i64 = -16;
const E2BIG: i64 = -7;
const EFAULT: i64 = -14;
const EAGAIN: i64 = -11;

/// The most turns of bpf_loop (BPF_MAX_LOOPS).
const MOST_TURNS: u64 = 8 << 20;
/// What one call may copy.
const MOST_BYTES: u64 = 1 << 16;

fn value(number: impl Into<i64>) -> Result<Answer, Fault> {
    Ok(Answer::Value(number.into() as u64))
}

fn word(number: u64) -> Result<Answer, Fault> {
    Ok(Answer::Value(number))
}

impl Kernel for Host<'_> {
    fn helper(&mut self, m: &mut Memory, id: u32, args: [u64; 5]) -> Result<Answer, Fault> {
        let [a, b, c, d, _] = args;
        let here = u32::from(self.core.here);
        match id {
            1 => word(self.maps.get(a, MAPS)?.lookup(m, b, here)?),
            2 => word(self.maps.get(a, MAPS)?.update(m, (b, c, d), here)?),
            3 => word(self.maps.delete(m, a, b)?),
            // Of what is not there the kernel's readers say so, and give zeroes.
            4 | 113 => {
                let size = b.min(MOST_BYTES) as usize;
                let found = m.read(c, size).map(<[u8]>::to_vec);
                let there = found.is_ok();
                m.write_from(a, &found.unwrap_or_else(|_| vec![0; size]))?;
                value(if there { 0 } else { EFAULT })
            }
            115 => {
                let Ok(text) = m.text(c) else {
                    return value(EFAULT);
                };
                let most = (b.min(MOST_BYTES) as usize).saturating_sub(1);
                let bytes: Vec<u8> = text.bytes().take(most).chain([0]).collect();
                if b > 0 {
                    m.write_from(a, &bytes)?;
                }
                value(bytes.len() as i64)
            }
            5 | 125 | 160 => value(self.w.now()),
            6 | 177 => value(0),
            7 => word(self.w.rng.next_u64() & 0xffff_ffff),
            8 => word(here.into()),
            14 => {
                let current = self.core.current[here as usize];
                let pid = current.map_or(0, |t| self.core.pids[t as usize]);
                let tgid = current.map_or(0, |t| self.core.tgid(m, t));
                word(u64::from(tgid as u32) << 32 | u64::from(pid as u32))
            }
            35 | 158 => {
                let current = self.core.current[here as usize];
                if let Some(t) = current {
                    self.core.refresh(m, self.w, t);
                }
                word(current.map_or(0, |t| self.core.task(t)))
            }
            42 => value(self.core.node_of(self.w, here as Cpu) as i64),
            87 => word(self.maps.get(a, MAPS)?.push(m, b, c)?),
            88 | 89 => word(self.maps.get(a, MAPS)?.pop(m, b, id == 88)?),
            93 | 94 => value(0),
            118 => value(self.w.now() / self.core.jiffy),
            // Of the CPUs' frequencies nothing is known.
            153 | 154 => {
                let c = if id == 153 { b as u32 } else { here };
                if a != address(PER_CPU, 0) + RUNQUEUES || c >= self.core.masks.ncpu {
                    return word(0);
                }
                word(self.runqueue(m, c as Cpu))
            }
            156 => {
                if b == 0 {
                    return word(0);
                }
                let t = self.core.task_at(b)?;
                let of = (MapKind::TaskStorage, t);
                word(self.maps.get(a, MAPS)?.storage(m, of, c, d & 1 == 1)?)
            }
            210 => {
                let Some(group) = self.groups.at(b)? else {
                    return word(0);
                };
                let of = (MapKind::GroupStorage, group);
                word(self.maps.get(a, MAPS)?.storage(m, of, c, d & 1 == 1)?)
            }
            211 => {
                let Some(group) = self.groups.at(b)? else {
                    return value(EINVAL);
                };
                word(self.maps.get(a, MAPS)?.forget_task(group))
            }
            130 => {
                if c > MOST_BYTES {
                    return value(EAGAIN);
                }
                let bytes = m.read(b, c as usize)?.to_vec();
                let (ring, region, room) = self.maps.get(a, MAPS)?.ring()?;
                let fits = ring.output(m, (region, room), &bytes)?;
                value(if fits { 0 } else { EAGAIN })
            }
            131 => {
                let (ring, region, room) = self.maps.get(a, MAPS)?.ring()?;
                word(ring.reserve(region, room, b))
            }
            132 | 133 => {
                let (region, at) = split(a);
                let Some((_, map)) = self.maps.of_region(region) else {
                    return Err(Fault::new(format!("gives {a:#x} as a record")));
                };
                map.ring()?.0.done(at)?;
                value(0)
            }
            134 => {
                let (ring, _, room) = self.maps.get(a, MAPS)?.ring()?;
                word(ring.query(room, b))
            }
            165 => {
                let text = formatted(m, c, d, args[4])?;
                let bytes: Vec<u8> = text.bytes().chain([0]).collect();
                let fits = bytes.len().min(b.min(MOST_BYTES) as usize);
                if fits > 0 {
                    m.write_from(a, &bytes[..fits - 1])?;
                    m.write_from(a.wrapping_add(fits as u64 - 1), &[0])?;
                }
                value(bytes.len() as i64)
            }
            169 => {
                let map = self.maps.with_timer(a)?;
                value(self.maps.timers.init(a, map, c)?)
            }
            170 => value(self.maps.timers.set_callback(a, b)),
            171 => match self.maps.timers.start(a, c, self.core.here) {
                Ok(number) => {
                    let from = if c & 1 == 1 { 0 } else { self.w.now() };
                    let at = from.saturating_add(i64::try_from(b).unwrap_or(i64::MAX / 2));
                    let id = self.timer_id(number);
                    self.w.arm_timer(id, at.max(self.w.now() + SOONEST));
                    value(0)
                }
                Err(error) => value(error),
            },
            172 => match self.maps.timers.cancel(a) {
                Ok(Some(number)) => {
                    let id = self.timer_id(number);
                    self.w.disarm_timer(id);
                    value(1)
                }
                Ok(None) => value(0),
                Err(error) => value(error),
            },
            157 => {
                let t = self.core.task_at(b)?;
                word(self.maps.get(a, MAPS)?.forget_task(t))
            }
            164 => Ok(Answer::ForEach {
                code: b,
                map: a,
                elements: self.maps.get(a, MAPS)?.elements(here)?,
                context: c,
            }),
            181 if a > MOST_TURNS => value(E2BIG),
            181 if d != 0 => value(EINVAL),
            181 => Ok(Answer::Loop {
                code: b,
                times: a & 0xffff_ffff,
                context: c,
            }),
            182 => {
                let size = b.min(MOST_BYTES) as usize;
                let (one, other) = (m.read(a, size)?, m.text(c)?);
                let end = one.iter().position(|x| *x == 0).unwrap_or(size);
                let other = other.as_bytes();
                let other = &other[..other.len().min(size)];
                value(one[..end].cmp(other) as i64)
            }
            194 => {
                let old = m.load(a, 8)?;
                m.store(a, 8, b)?;
                word(old)
            }
            195 => word(self.maps.get(a, MAPS)?.lookup(m, b, c as u32)?),
            other => Err(Fault::new(format!(
                "calls the helper {}",
                helper_name(other.into())
            ))),
        }
    }

    fn sorted(&mut self, root: u64, node: u64, at: usize) {
        self.maps.trees.put(root, node, at);
    }

    fn kfunc(&mut self, m: &mut Memory, number: u32, args: [u64; 5]) -> Result<Answer, Fault> {
        let Some((name, which, _)) = KFUNCS.get(number as usize) else {
            return Err(Fault::new("calls a kfunc that is not there"));
        };
        let [a, b, c, d, e] = args;
        use Kfunc as K;
        match which {
            K::CreateDsq => match self.core.queues.create(a) {
                Ok(queue) => {
                    self.core.new_dsq(m, queue)?;
                    value(0)
                }
                Err(error) => value(error),
            },
            K::DestroyDsq => {
                if let Err(n) = self.core.queues.destroy(a) {
                    let what = format!("attempting to destroy in-use dsq {a:#018x} (nr={n})");
                    self.core.error(self.w, what);
                }
                value(0)
            }
            K::DsqNrQueued => {
                let queue = match a {
                    k::DSQ_LOCAL => Some(self.core.queues.local(self.core.here)),
                    on if on & k::DSQ_LOCAL_ON == k::DSQ_LOCAL_ON => {
                        let c = on & 0xffff_ffff;
                        (c < self.w.ncpu() as u64).then(|| self.core.queues.local(c as Cpu))
                    }
                    id => self.core.queues.find(id),
                };
                match queue {
                    Some(queue) => value(self.core.queues.len(queue) as i64),
                    None => value(-2),
                }
            }
            K::Insert => self.insert(m, a, b, c, d, None),
            K::InsertVtime => self.insert(m, a, b, c, e, Some(d)),
            K::InsertVtimeArgs => {
                let at = |i: u64| m.load(b.wrapping_add(8 * i), 8);
                let (queue, slice, vtime, flags) = (at(0)?, at(1)?, at(2)?, at(3)?);
                self.insert(m, a, queue, slice, flags, Some(vtime))
            }
            K::MoveToLocal => self.move_to_local(m, a),
            K::DsqIterator => self.new_iterator(m, a, b, c),
            K::DsqNext => self.next_of_dsq(m, a),
            K::DsqDestroy => {
                self.iterators.destroy(m, a)?;
                value(0)
            }
            K::Move => self.move_from_dsq(m, a, b, c, d, false),
            K::MoveVtime => self.move_from_dsq(m, a, b, c, d, true),
            K::MoveSetSlice => {
                self.iterators.get(m, a)?.slice = Some(b);
                value(0)
            }
            K::MoveSetVtime => {
                self.iterators.get(m, a)?.vtime = Some(b);
                value(0)
            }
            K::Reenqueue => self.reenqueue(m),
            K::TaskGroup => {
                let t = self.core.task_at(a)?;
                word(self.groups.of_thread(t))
            }
            K::GroupAncestor => match self.groups.at(a)? {
                Some(group) => word(self.groups.ancestor(group, b as i32)),
                None => word(0),
            },
            K::GroupFromId => word(self.groups.with_id(a)),
            K::GroupIterator => match self.groups.iterate(m, a, b, c as u32)? {
                true => value(0),
                false => value(EINVAL),
            },
            K::GroupNext => word(self.groups.next_of(m, a)?),
            K::DispatchSlots => match self.core.context {
                Context::Dispatch => value((self.core.batch - self.core.buffer.len()) as i64),
                _ => value(0),
            },
            K::DispatchCancel => {
                self.core.buffer.pop();
                value(0)
            }
            K::SelectDefault => {
                let t = self.core.task_at(a)?;
                if !self.idle_is_kept(name) {
                    m.store(d, 1, 0)?;
                    return value(EBUSY);
                }
                let prev = self.cpu(b)?;
                // A thread of one CPU has no choice, but may find it idle.
                let found = self.core.select_default(m, self.w, t, prev, c, None)?;
                m.store(d, 1, found.is_some().into())?;
                value(found.unwrap_or(prev))
            }
            K::SelectAnd => {
                let t = self.core.task_at(a)?;
                if !self.idle_is_kept(name) {
                    return value(EBUSY);
                }
                let prev = self.cpu(b)?;
                let cpus = self.core.masks.words(m, d)?;
                let found = self
                    .core
                    .select_default(m, self.w, t, prev, c, Some(&cpus))?;
                value(found.map_or(EBUSY, i64::from))
            }
            K::Kick => {
                match Cpu::try_from(a as i32) {
                    Ok(cpu) if usize::from(cpu) < self.w.ncpu() => self.core.kicks.push((cpu, b)),
                    _ => self.core.error(self.w, format!("invalid CPU {}", a as i32)),
                }
                value(0)
            }
            K::TaskCpu => value(self.w.thread(self.core.task_at(a)?).cpu),
            K::TaskRunning => {
                let t = self.core.task_at(a)?;
                let c = self.w.thread(t).cpu;
                value(i64::from(self.core.current[usize::from(c)] == Some(t)))
            }
            K::CpuRunqueue | K::CpuCurrent => {
                let Ok(c) = self.cpu(a) else {
                    self.core.error(self.w, format!("invalid CPU {}", a as i32));
                    return value(0);
                };
                match which {
                    K::CpuCurrent => word(self.current(m, c)),
                    _ => word(self.runqueue(m, c)),
                }
            }
            K::IdleMask | K::IdleCores if !self.idle_is_kept(name) => {
                word(self.core.masks.of_kernel(masks::NONE))
            }
            K::IdleMask => word(self.core.masks.of_kernel(masks::IDLE)),
            K::IdleCores if self.core.has_smt() => {
                word(self.core.masks.of_kernel(masks::IDLE_CORES))
            }
            K::IdleCores => word(self.core.masks.of_kernel(masks::IDLE)),
            K::OnlineMask => word(self.core.masks.of_kernel(masks::ONLINE)),
            K::PossibleMask => word(self.core.masks.of_kernel(masks::POSSIBLE)),
            K::ClaimIdle => match self.cpu(a) {
                Ok(c) if self.idle_is_kept(name) => value(i64::from(self.core.claim(m, self.w, c))),
                _ => value(0),
            },
            K::PickIdle | K::PickIdleNode | K::PickAny | K::PickAnyNode => {
                let flags = match which {
                    K::PickIdle | K::PickAny => b,
                    _ => c,
                };
                let any = matches!(which, K::PickAny | K::PickAnyNode);
                let allowed = self.core.masks.words(m, a)?;
                if self.core.builtin_idle {
                    if let Some(c) = self.core.pick_idle(m, self.w, &allowed, flags)? {
                        return value(c);
                    }
                } else if !any {
                    self.idle_is_kept(name);
                }
                let here = self.core.here;
                let found = any.then(|| self.core.masks.any_and(here, &allowed, &allowed));
                value(found.flatten().map_or(EBUSY, i64::from))
            }
            K::NrCpus => value(self.w.ncpu() as i64),
            K::NrNodes => value(self.w.machine.node_groups().len() as i64),
            K::CpuNode => {
                let c = self.cpu(a)?;
                value(self.core.node_of(self.w, c) as i64)
            }
            // SCX_CPUPERF_ONE is 1024, and a CPU always runs at its capacity.
            K::Capacity => {
                let c = self.cpu(a)?;
                value(i64::from(self.w.machine.info(c).capacity))
            }
            K::Now => value(self.w.now()),
            K::SetSlice => {
                let t = self.core.task_at(a)?;
                self.core.set_slice(m, t, b);
                value(1)
            }
            K::SetVtime => {
                let t = self.core.task_at(a)?;
                self.core.set_vtime(m, t, b);
                value(1)
            }
            K::Error => {
                let text = formatted(m, a, b, c)?;
                self.core.end(self.w, k::EXIT_ERROR_BPF, 0, text);
                value(0)
            }
            K::Exit => {
                let text = formatted(m, b, c, d)?;
                self.core.end(self.w, k::EXIT_UNREG_BPF, a as i64, text);
                value(0)
            }
            K::PutMask | K::SetPerformance | K::Dump | K::Nothing | K::NumberDestroy => value(0),
            K::Same => word(a),
            K::TaskFromPid => {
                let found = self.core.pids.iter().position(|pid| *pid == a as i32);
                let there = found.filter(|t| {
                    let state = self.w.thread(*t as u32).state;
                    !matches!(state, State::Unborn | State::Dead)
                });
                word(there.map_or(0, |t| self.core.task(t as u32)))
            }
            K::ObjectNew => match self.maps.sizes.get(&a).copied() {
                Some(size) => word(self.maps.trees.create(m, size)?),
                None => Err(Fault::new(format!("makes an object of the type {a}"))),
            },
            K::ObjectDrop => {
                self.maps.trees.drop(a)?;
                value(0)
            }
            K::TreeAdd => match self.maps.trees.add(a, b)? {
                Some(others) => Ok(Answer::Sorted {
                    code: c,
                    root: a,
                    node: b,
                    others,
                }),
                None => value(EINVAL),
            },
            K::TreeRemove => word(self.maps.trees.remove(a, b)),
            K::TreeFirst => word(self.maps.trees.first(a)),
            K::ArenaTake | K::ArenaReserve => {
                let pages = c as u32;
                let found = match self.maps.get(a, MAPS)?.is_arena() && pages > 0 && e == 0 {
                    true => m.arena_mut().find(b, pages),
                    false => (None, 0),
                };
                let (Some(first), searched) = found else {
                    let none = if *which == K::ArenaTake { 0 } else { EBUSY };
                    return Ok(Answer::Work(none as u64, found.1));
                };
                if *which == K::ArenaReserve {
                    m.arena_mut().reserve(first, pages);
                    return Ok(Answer::Work(0, searched));
                }
                m.take_pages(first, pages)?;
                // Each page is noted, some at a time.
                let work = searched + u64::from(pages) / 8;
                Ok(Answer::Work(arena::address_of(first), work))
            }
            K::ArenaGiveBack => {
                if self.maps.get(a, MAPS)?.is_arena() {
                    m.arena_mut().give_back(b, c as u32);
                }
                value(0)
            }
            // struct bpf_iter_num: the number before the next, and the end.
            K::NumberNew => {
                let (from, to) = (b as i32, c as i32);
                let wrong = from > to || i64::from(to) - i64::from(from) > MOST_TURNS as i64;
                let (from, to) = if wrong { (0, 0) } else { (from, to) };
                m.store(a, 4, u64::from(from.wrapping_sub(1) as u32))?;
                m.store(a.wrapping_add(4), 4, u64::from(to as u32))?;
                value(match wrong {
                    true if from > to => EINVAL,
                    true => E2BIG,
                    false => 0,
                })
            }
            K::NumberNext => {
                let now = m.load(a, 4)? as i32;
                let end = m.load(a.wrapping_add(4), 4)? as i32;
                let next = i64::from(now) + 1;
                if next >= i64::from(end) {
                    m.store(a, 8, 0)?;
                    return word(0);
                }
                m.store(a, 4, next as u64)?;
                word(a)
            }
            _ => self.cpumask(m, *which, args),
        }
    }
}

impl Host<'_> {
    fn cpu(&self, number: u64) -> Result<Cpu, Fault> {
        match Cpu::try_from(number as i32) {
            Ok(c) if usize::from(c) < self.w.ncpu() => Ok(c),
            _ => Err(Fault::new(format!("gives {} as a CPU", number as i32))),
        }
    }

    /// The thread that a CPU runs.
    fn current(&self, m: &mut Memory, c: Cpu) -> u64 {
        let current = self.core.current[usize::from(c)];
        if let Some(t) = current {
            self.core.refresh(m, self.w, t);
        }
        current.map_or(0, |t| self.core.task(t))
    }

    /// `struct rq` of a CPU.
    fn runqueue(&self, m: &mut Memory, c: Cpu) -> u64 {
        let current = self.current(m, c);
        self.core.refresh_queue(m, self.w, c, current)
    }

    /// check_builtin_idle_enabled
    fn idle_is_kept(&mut self, name: &str) -> bool {
        if !self.core.builtin_idle {
            self.core.error(
                self.w,
                format!("{name}: built-in idle tracking is disabled"),
            );
        }
        self.core.builtin_idle
    }

    /// scx_bpf_dsq_insert, scx_bpf_dsq_insert_vtime
    fn insert(
        &mut self,
        m: &mut Memory,
        task: u64,
        queue: u64,
        slice: u64,
        flags: u64,
        vtime: Option<u64>,
    ) -> Result<Answer, Fault> {
        let t = self.core.task_at(task)?;
        let pid = self.core.pids[t as usize];
        if flags & (0xff << 56) != 0 {
            self.core
                .error(self.w, format!("invalid enq_flags {flags:#x}"));
            return value(0);
        }
        match self.core.context {
            Context::Enqueue(own) if own != t => {
                self.core.error(
                    self.w,
                    format!("scheduling for [{pid}] but trying to direct-dispatch another"),
                );
                return value(0);
            }
            Context::Enqueue(_) if self.core.direct.is_some() => {
                self.core
                    .error(self.w, format!("[{pid}] already direct-dispatched"));
                return value(0);
            }
            Context::Dispatch if self.core.buffer.len() >= self.core.batch => {
                self.core.error(self.w, "dispatch buffer overflow".into());
                return value(0);
            }
            Context::Other | Context::Release | Context::Timer => {
                return Err(Fault::new(
                    "inserts into a DSQ, which only select_cpu, enqueue and dispatch may",
                ));
            }
            Context::Enqueue(_) | Context::Dispatch => {}
        }
        let old = self.core.slice(m, t);
        let slice = match slice {
            0 => old.max(1),
            slice => slice,
        };
        self.core.set_slice(m, t, slice);
        if let Some(vtime) = vtime {
            self.core.set_vtime(m, t, vtime);
        }
        let one = Insert {
            t,
            queue,
            flags,
            vtime,
        };
        self.record(t, queue, slice, vtime);
        if self.core.context == Context::Dispatch {
            self.core.buffer.push(one);
        } else {
            self.core.direct = Some(one);
        }
        value(1)
    }

    /// Timers of the engine: the watchdog's, one of each CPU, then the scheduler's own.
    fn timer_id(&self, number: u32) -> u32 {
        1 + self.w.ncpu() as u32 + number
    }

    /// The decision, for who asked for the policy's own series: dsq, slice, vtime.
    pub(super) fn record(&mut self, t: u32, queue: u64, slice: u64, vtime: Option<u64>) {
        if !self.w.recording() {
            return;
        }
        let queue = match queue {
            k::DSQ_GLOBAL => -2.0,
            id if id & k::DSQ_BUILTIN != 0 => -1.0,
            id => id as f64,
        };
        self.w.record(0, t, queue);
        self.w.record(1, t, slice as f64);
        if let Some(vtime) = vtime {
            self.w.record(2, t, vtime as f64);
        }
    }

    fn move_to_local(&mut self, m: &mut Memory, id: u64) -> Result<Answer, Fault> {
        if self.core.context != Context::Dispatch {
            return Err(Fault::new("takes from a DSQ, which only dispatch may"));
        }
        self.core.flush(m, self.w);
        let Some(queue) = self.core.queues.find(id) else {
            self.core
                .error(self.w, format!("invalid DSQ ID {id:#018x}"));
            return value(0);
        };
        let here = self.core.here;
        let moved = self.core.consume(m, self.w, here, queue);
        self.core.dispatched += u32::from(moved);
        value(i64::from(moved))
    }

    fn cpumask(&mut self, m: &mut Memory, which: Kfunc, args: [u64; 5]) -> Result<Answer, Fault> {
        use Kfunc as K;
        let [a, b, c, ..] = args;
        let n = self.core.masks.ncpu;
        let first = |words: &[u64]| {
            let set = (0..n).find(|c| words[*c as usize / 64] >> (c % 64) & 1 == 1);
            value(i64::from(set.unwrap_or(n)))
        };
        let all = |words: &mut [u64]| {
            words.fill(0);
            (0..n).for_each(|c| words[c as usize / 64] |= 1 << (c % 64));
        };
        let masks = &mut self.core.masks;
        match which {
            K::MaskCreate => word(masks.create(m)?),
            K::MaskAcquire => word(masks.acquire(a)?),
            K::MaskRelease => {
                masks.release(a)?;
                value(0)
            }
            K::MaskFirst => first(&masks.words(m, a)?),
            K::MaskFirstZero => {
                let words = masks.words(m, a)?;
                first(&words.iter().map(|w| !w).collect::<Vec<u64>>())
            }
            K::MaskFirstAnd => {
                let (one, other) = (masks.words(m, a)?, masks.words(m, b)?);
                first(
                    &one.iter()
                        .zip(&other)
                        .map(|(x, y)| x & y)
                        .collect::<Vec<u64>>(),
                )
            }
            K::MaskTest | K::MaskSet | K::MaskClearCpu | K::MaskTestSet | K::MaskTestClear => {
                let c = a as u32;
                if c >= n {
                    return value(0);
                }
                let mut words = masks.words(m, b)?;
                let (at, bit) = (c as usize / 64, 1u64 << (c % 64));
                let was = words[at] & bit != 0;
                match which {
                    K::MaskSet | K::MaskTestSet => words[at] |= bit,
                    K::MaskClearCpu | K::MaskTestClear => words[at] &= !bit,
                    _ => return value(i64::from(was)),
                }
                masks.write_own(m, b, &words)?;
                value(i64::from(was))
            }
            K::MaskSetAll | K::MaskClear => {
                let mut words = masks.words(m, a)?;
                words.fill(0);
                if which == K::MaskSetAll {
                    all(&mut words);
                }
                masks.write_own(m, a, &words)?;
                value(0)
            }
            K::MaskAnd | K::MaskOr | K::MaskXor => {
                let (one, other) = (masks.words(m, b)?, masks.words(m, c)?);
                let both = one.iter().zip(&other);
                let words: Vec<u64> = match which {
                    K::MaskAnd => both.map(|(x, y)| x & y).collect(),
                    K::MaskOr => both.map(|(x, y)| x | y).collect(),
                    _ => both.map(|(x, y)| x ^ y).collect(),
                };
                masks.write_own(m, a, &words)?;
                value(i64::from(words.iter().any(|w| *w != 0)))
            }
            K::MaskCopy => {
                let words = masks.words(m, b)?;
                masks.write_own(m, a, &words)?;
                value(0)
            }
            K::MaskEqual | K::MaskIntersects | K::MaskSubset => {
                let (one, other) = (masks.words(m, a)?, masks.words(m, b)?);
                let mut both = one.iter().zip(&other);
                value(i64::from(match which {
                    K::MaskEqual => one == other,
                    K::MaskIntersects => both.any(|(x, y)| x & y != 0),
                    _ => both.all(|(x, y)| x & !y == 0),
                }))
            }
            K::MaskEmpty => value(i64::from(masks.words(m, a)?.iter().all(|w| *w == 0))),
            K::MaskFull => {
                let words = masks.words(m, a)?;
                let mut whole = words.clone();
                all(&mut whole);
                value(i64::from(words == whole))
            }
            K::MaskAny | K::MaskAnyAnd => {
                let one = masks.words(m, a)?;
                let other = match which {
                    K::MaskAny => one.clone(),
                    _ => masks.words(m, b)?,
                };
                let found = masks.any_and(self.core.here, &one, &other);
                value(found.map_or(i64::from(n), i64::from))
            }
            K::MaskWeight => {
                let ones: u32 = masks.words(m, a)?.iter().map(|w| w.count_ones()).sum();
                value(i64::from(ones))
            }
            other => Err(Fault::new(format!("calls {other:?}"))),
        }
    }
}
