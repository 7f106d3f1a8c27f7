//! ULE's statistics clock: what a tick charges, ages, turns and ends.
//!
//! An idle CPU's clock stands still; it catches up when the CPU is woken, and the
//! balancer, which lives on the first CPU's clock, with it.
use super::super::machine::Cpu;
use super::super::world::{RescheduleReason, World};
use super::ule::{Balance, Ule};

impl Ule {
    pub(super) fn slice_of(&self, c: Cpu) -> i64 {
        if !self.by_load {
            return self.slice;
        }
        let load = i64::from(self.seen.load[c as usize]) - 1;
        if load >= 6 {
            (self.slice / 6).max(1)
        } else if load <= 1 {
            self.slice
        } else {
            (self.slice / load).max(1)
        }
    }

    /// `n` ticks of the statistics clock of `c`.
    fn clock(&mut self, w: &mut World, c: Cpu, n: i64) {
        if c == 0 && self.balancer != Balance::Off && w.ncpu() > 1 {
            self.balance_in -= n;
            if self.balance_in <= 0 {
                self.balance_in = self.next_balance(w);
                self.balance(w);
            }
        }
        self.cpus[c as usize].turn(self.seen.load[c as usize]);
    }

    pub(super) fn next_balance(&self, w: &mut World) -> i64 {
        let chance = if self.random {
            w.rng.below(self.interval as u64) as i64
        } else {
            0
        };
        (self.interval / 2).max(1) + chance
    }

    /// Ticks of the statistics clock at or before `ns`.
    pub(super) fn ticks_until(&self, w: &World, ns: i64) -> i64 {
        let since = i128::from(ns - w.machine.costs.tick_phase_ns);
        (since * i128::from(self.scale.stathz)).div_euclid(1_000_000_000) as i64
    }

    /// `c` is woken from idling: its clock catches up with what it missed.
    pub(super) fn catch_up(&mut self, w: &mut World, c: Cpu) {
        let ticks = self.ticks_until(w, w.now());
        let missed = ticks - self.cpus[c as usize].ticks;
        if missed > 0 {
            self.cpus[c as usize].ticks = ticks;
            self.clock(w, c, missed);
        }
    }

    /// A tick of the statistics clock while `cpu` runs, with what it may have missed.
    pub(super) fn tick_of(&mut self, w: &mut World, cpu: Cpu) {
        let ticks = self.ticks_until(w, w.now());
        let n = ticks - std::mem::replace(&mut self.cpus[cpu as usize].ticks, ticks);
        if n == 0 {
            // It was woken at this very instant and has caught up with this tick.
            return;
        }
        self.clock(w, cpu, n);
        let Some(t) = w.cpu(cpu).curr else {
            if self.polls {
                w.resched(cpu, RescheduleReason::Preempted);
            }
            return;
        };
        let ticks = self.ticks(w);
        self.scale
            .age(&mut self.threads[t as usize].history, ticks, true);
        if w.thread(t).class.runs_on() {
            return;
        }
        if Self::is_timeshare(w, t) {
            let run = self.scale.per_stat_tick() * n;
            self.scale
                .add_run(&mut self.threads[t as usize].history, run);
            self.renew(w, t);
        }
        self.td(t).used += n as i32;
        if i64::from(self.threads[t as usize].used) >= self.slice_of(cpu) {
            self.td(t).used = 0;
            let asked = &mut self.cpus[cpu as usize].asked;
            asked.at_return = true;
            asked.slice_end = true;
            w.resched(cpu, RescheduleReason::SliceEnd);
        }
    }
}
