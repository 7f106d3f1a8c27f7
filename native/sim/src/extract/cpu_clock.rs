//! The CPU time of one thread, and the instants at which it had used so much.

/// Fed by the thread's switches, in time order.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuClock {
    running: Option<i64>,
    used: i64,
    /// When it came onto a CPU, and what it had used by then.
    came: Vec<(i64, i64)>,
}

impl CpuClock {
    pub(super) fn comes(&mut self, ts: i64) {
        self.running = Some(ts);
        self.came.push((ts, self.used));
    }

    pub(super) fn leaves(&mut self, ts: i64) {
        if let Some(since) = self.running.take() {
            self.used += ts - since;
        }
    }

    /// What it has used at `ts`, which is not before the last switch.
    pub(super) fn now(&self, ts: i64) -> i64 {
        self.used + self.running.map_or(0, |since| ts - since)
    }

    /// What it had used at `ts`, whenever that was.
    pub(super) fn used_at(&self, ts: i64) -> i64 {
        let at = self.came.partition_point(|(since, _)| *since <= ts);
        let Some((since, had)) = at.checked_sub(1).map(|i| self.came[i]) else {
            return 0;
        };
        let until = self.came.get(at).map(|(_, had)| *had).or_else(|| {
            // Its last stay on a CPU.
            self.running.is_none().then_some(self.used)
        });
        until.map_or(had + ts - since, |most| most.min(had + ts - since))
    }

    /// The instant at which it had used so much.
    pub(super) fn when_used(&self, used: i64) -> i64 {
        let at = self.came.partition_point(|(_, had)| *had <= used);
        at.checked_sub(1)
            .map_or(i64::MIN, |i| self.came[i].0 + used - self.came[i].1)
    }
}

#[cfg(test)]
mod tests {
    use super::CpuClock;

    /// On a CPU from 10 to 15, and from 30 on.
    fn clock() -> CpuClock {
        let mut clock = CpuClock::default();
        clock.comes(10);
        clock.leaves(15);
        clock.comes(30);
        clock
    }

    #[test]
    fn time_off_a_cpu_does_not_count() {
        let clock = clock();
        let at = [5, 10, 12, 15, 29, 30, 34];
        assert_eq!(at.map(|ts| clock.used_at(ts)), [0, 0, 2, 5, 5, 5, 9]);
        assert_eq!(clock.now(34), 9);
        let mut left = clock;
        left.leaves(34);
        assert_eq!([33, 34, 50].map(|ts| left.used_at(ts)), [8, 9, 9]);
    }

    #[test]
    fn the_instant_of_so_much_is_on_a_cpu() {
        let clock = clock();
        assert_eq!(
            [0, 3, 5, 9].map(|used| clock.when_used(used)),
            [10, 13, 30, 34]
        );
        assert_eq!(CpuClock::default().when_used(0), i64::MIN);
    }
}
