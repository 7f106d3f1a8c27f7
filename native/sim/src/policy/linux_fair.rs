//! What CFS and EEVDF share: weights, and virtual time from real time.
use super::super::machine::Cpu;
use super::super::workload::{Class, Tid};
use super::super::world::World;

/// Weight of nice -20..=19: 1024 at 0, a factor of 1.25 a step.
const WEIGHTS: [i64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];
pub(crate) const NICE_0: i64 = 1024;
const IDLE_WEIGHT: i64 = 3;

pub fn weight_of(w: &World, t: Tid) -> i64 {
    let th = w.thread(t);
    match th.class {
        Class::Idle => IDLE_WEIGHT,
        _ => WEIGHTS[(i64::from(th.nice) + 20).clamp(0, 39) as usize],
    }
}

/// Virtual ns that `ns` of running are for weight `weight`.
pub(crate) fn virtual_ns(ns: i64, weight: i64) -> i64 {
    if weight == NICE_0 {
        ns
    } else {
        ns * NICE_0 / weight
    }
}

/// 1 + log2 of the CPUs: how the kernels scale their slices.
pub(crate) fn log2_factor(ncpu: usize, most: usize) -> i64 {
    i64::from(1 + ncpu.min(most).max(1).ilog2())
}

/// The first idle CPU among those that share a cache with `near`.
pub(super) fn idle_in_cache(w: &World, t: Tid, near: Cpu) -> Option<Cpu> {
    if w.n_idle() == 0 {
        return None;
    }
    let good = |c: &Cpu| w.is_idle(*c) && w.allowed(t, *c);
    w.machine.llc(near).iter().copied().find(good)
}
