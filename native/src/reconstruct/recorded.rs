//! Recordings of chosen threads: rule Filtered of docs/trace-model.md.
//!
//! A recorder's filter leaves out every switch that none of the chosen threads takes part in.
//! What it leaves in shows that: chains break only at other threads, and no switch is between two
//! of those.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::hooks::check_interrupt;
use crate::model::event::{Event, EventSink, Party};
use crate::reconstruct::CpuTotals;

/// A single chain that breaks at others may be an accident.
const BREAKS: u64 = 2;

/// So many broken chains, and as many as half the switches, are none: as where a filter names only
/// the side of a switch that leaves.
const MANY: u64 = 8;

/// A thread that was seen to leave so many times as often as its chain broke is not left out.
/// And so many chains must break for each switch that a filter would have left out.
const OFTEN: u64 = 8;

/// The broken chains of one reading, by the threads at them: the one that was believed to run and
/// the one that was found.
#[derive(Debug, Default)]
pub struct Clues {
    pairs: FxHashMap<(u32, u32), u64>,
    /// How often each left or came unseen.
    unseen: FxHashMap<u32, u64>,
}

impl Clues {
    pub fn broken(&mut self, believed: u32, found: u32) {
        *self.pairs.entry((believed, found)).or_default() += 1;
        self.unseen(believed);
        self.unseen(found);
    }

    pub fn unseen(&mut self, utid: u32) {
        *self.unseen.entry(utid).or_default() += 1;
    }

    /// Do chains break at every second of so many switches, or more often?
    pub fn nothing_fits(&self, switches: u64) -> bool {
        let breaks: u64 = self.pairs.values().sum();
        breaks >= MANY && breaks.saturating_mul(2) >= switches
    }

    /// Who may have been left out, beside the idle threads, and how many chains broke between two
    /// of these. `seen`: how often a thread was seen to leave a CPU.
    pub fn left_out(
        &self,
        is_idle: impl Fn(u32) -> bool,
        seen: impl Fn(u32) -> u64,
    ) -> (Vec<u32>, u64) {
        let out = |utid: u32| {
            let unseen = self.unseen.get(&utid).copied().unwrap_or(0);
            is_idle(utid) || unseen > 0 && seen(utid) < OFTEN.saturating_mul(unseen)
        };
        let threads = self.unseen.keys().copied();
        let mut threads: Vec<_> = threads.filter(|&one| !is_idle(one) && out(one)).collect();
        threads.sort_unstable();
        let both = self.pairs.iter().filter(|((a, b), _)| out(*a) && out(*b));
        (threads, both.map(|(_, n)| n).sum())
    }
}

/// In complete recordings, the kernel's threads and the idle ones switched with each other again
/// within 314 ms at most.
const ALONE: i64 = 1_000_000_000;

/// Of so few switches nothing is concluded.
const FEW: u64 = 100;

/// Does a CPU switch between threads of the kernel, idle ones included? It does in every recording
/// of all threads, and never in one of chosen programs.
#[derive(Debug, Default)]
pub struct KernelAlone(bool);

impl KernelAlone {
    #[inline]
    pub fn switch(&mut self, prev: &Party, next: &Party) {
        if !self.0 {
            self.0 = [prev, next].into_iter().all(Self::may_be);
        }
    }

    /// Is it one of the kernel, or of unknown name?
    #[cold]
    fn may_be(who: &Party) -> bool {
        let unknown = || who.comm.is_empty() || who.comm.is_of_kernel();
        who.tid == 0 || who.idle || who.kernel.unwrap_or_else(unknown)
    }

    /// It did: no filter chose threads of programs alone.
    pub fn happened(&self) -> bool {
        self.0
    }

    /// Long enough for it to have been?
    pub fn is_never_alone(&self, cpus: &[CpuTotals]) -> bool {
        let first = cpus.iter().filter_map(|cpu| cpu.first_ts).min();
        let last = cpus.iter().filter_map(|cpu| cpu.last_ts).max();
        let long = first.zip(last).is_some_and(|(first, last)| last - first >= ALONE);
        !self.0 && long && cpus.iter().map(|cpu| cpu.switches).sum::<u64>() >= FEW
    }
}

/// Who is left out of a recording if it is of chosen threads only.
#[derive(Debug, Clone)]
pub struct Suspicion {
    pub left_out: FxHashSet<u32>,
    /// Chains that broke between two of these.
    pub breaks: u64,
    /// A filter was used: the source says so, no thread of the kernel was alone for long, or
    /// nothing fits.
    pub certain: bool,
}

impl Suspicion {
    /// None where too little breaks.
    pub fn of(left_out: FxHashSet<u32>, breaks: u64, certain: bool) -> Option<Self> {
        (certain || breaks >= BREAKS).then_some(Self {
            left_out,
            breaks,
            certain,
        })
    }
}

/// Reads a trace to see whether each of its switches has a thread that is not left out.
pub struct Chosen<'a> {
    suspicion: &'a Suspicion,
    tids: FxHashSet<u32>,
    /// Switches between two threads that are left out.
    uncovered: u64,
}

impl<'a> Chosen<'a> {
    pub fn new(suspicion: &'a Suspicion) -> Self {
        Self {
            suspicion,
            tids: FxHashSet::default(),
            uncovered: 0,
        }
    }

    /// The threads that were recorded, by tid: none where a filter left out some switches of each.
    /// None if no filter was used.
    pub fn threads(self) -> Option<FxHashSet<u32>> {
        if self.uncovered <= self.suspicion.breaks / OFTEN {
            return Some(self.tids);
        }
        self.suspicion.certain.then(FxHashSet::default)
    }

    fn is_out(&self, who: &Party) -> bool {
        who.tid == 0 || who.idle || self.suspicion.left_out.contains(&who.tid)
    }
}

impl EventSink for Chosen<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        if let Event::Switch { prev, next, .. } = event {
            match (self.is_out(prev), self.is_out(next)) {
                (true, true) => self.uncovered += 1,
                (true, false) => _ = self.tids.insert(next.tid),
                (false, true) => _ = self.tids.insert(prev.tid),
                // One of them is recorded; another switch says which.
                (false, false) => {}
            }
        }
        Ok(())
    }

    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        check_interrupt()
    }
}
