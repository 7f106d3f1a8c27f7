//! The running thread: its progress, its speed, and when its burst ends.
use super::engine::Engine;
use super::machine::Cpu;
use super::world::{Rank, tie};

impl Engine<'_> {
    /// Bring the progress of the thread on `c` up to now.
    pub(super) fn settle(&mut self, c: Cpu) {
        let now = self.world.now;
        let cpu = &mut self.world.cpus[c as usize];
        let Some(t) = cpu.curr else { return };
        let elapsed = now - cpu.settled_at;
        cpu.settled_at = now;
        let th = &mut self.world.threads[t as usize];
        let paid = elapsed.min(th.owed);
        th.owed -= paid;
        th.work = (th.work - (elapsed - paid) * cpu.rate).max(0);
    }

    pub(super) fn owe(&mut self, c: Cpu, ns: i64) {
        self.settle(c);
        if let Some(t) = self.world.cpus[c as usize].curr {
            self.world.threads[t as usize].owed += ns;
            self.arm_completion(c);
        }
    }

    pub(super) fn arm_completion(&mut self, c: Cpu) {
        let cpu = &self.world.cpus[c as usize];
        let Some(t) = cpu.curr else { return };
        let th = &self.world.threads[t as usize];
        let at = cpu.settled_at + th.owed + (th.work + cpu.rate - 1) / cpu.rate;
        self.world
            .cpu_events
            .arm(u32::from(c), (at, tie(Rank::Completion, u64::from(c))));
    }

    /// The speed of `c` now, in work units per ns.
    pub(super) fn speed(&self, c: Cpu) -> i64 {
        let m = &self.world.machine;
        let full = i64::from(m.info(c).capacity);
        let shared = m
            .smt(c)
            .iter()
            .any(|s| *s != c && self.world.cpus[*s as usize].curr.is_some());
        if shared {
            (full * m.costs.smt_speed_permille / 1000).max(1)
        } else {
            full
        }
    }

    /// `c` began or ceased to run something: its siblings' speed changes.
    pub(super) fn siblings_changed(&mut self, c: Cpu) {
        for i in 0..self.world.machine.smt(c).len() {
            let s = self.world.machine.smt(c)[i];
            if s == c || self.world.cpus[s as usize].curr.is_none() {
                continue;
            }
            let rate = self.speed(s);
            if rate != self.world.cpus[s as usize].rate {
                self.settle(s);
                self.world.cpus[s as usize].rate = rate;
                self.arm_completion(s);
            }
        }
    }
}
