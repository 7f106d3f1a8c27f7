//! What is known of each CPU while a sweep passes: its number and its place in a list.
use crate::states::NOWHERE;

/// CPUs by number, the lane of no known queue last.
pub struct CpuIndex {
    /// Numbers, ascending.
    pub cpus: Vec<u16>,
    of: Vec<u32>,
}

impl CpuIndex {
    /// The CPUs given; others that turn up are `NOWHERE`'s lane.
    pub fn new(mut cpus: Vec<u16>) -> Self {
        cpus.sort_unstable();
        cpus.dedup();
        cpus.retain(|cpu| *cpu != NOWHERE);
        let size = cpus.last().map_or(0, |last| usize::from(*last) + 1);
        let mut of = vec![u32::MAX; size];
        for (lane, cpu) in (0..).zip(&cpus) {
            of[usize::from(*cpu)] = lane;
        }
        Self { cpus, of }
    }

    /// How many there are, that of no known queue included.
    pub fn count(&self) -> usize {
        self.cpus.len() + 1
    }

    pub fn nowhere(&self) -> usize {
        self.cpus.len()
    }

    #[inline]
    pub fn of(&self, cpu: u16) -> usize {
        match self.of.get(usize::from(cpu)) {
            Some(lane) if *lane != u32::MAX => *lane as usize,
            _ => self.nowhere(),
        }
    }

    /// The CPU's number; none for the lane of no known queue.
    pub fn number(&self, lane: usize) -> Option<u16> {
        self.cpus.get(lane).copied()
    }
}
