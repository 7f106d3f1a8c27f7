//! Recordings of selected threads: rule Filtered of docs/trace-model.md.
//!
//! A recorder's filter leaves out every switch that none of the chosen threads takes part in.
//! What it leaves in shows that: chains break only at other threads, and no switch is between two
//! of those.
//!
//! * no CPU switches between two threads of the kernel, idle ones included (known by name, as
//!   `kworker/...`, where the source does not say);
//! * and chains break, twice or more and at one in eight of the switches to threads that may be
//!   left out; or there are 100 switches over at least 5 s, or over at least 1 s without any
//!   thread of the kernel; or chains break at every second switch, eight times or more, or at each
//!   but the first of a CPU, four times or more; or the source itself says that it was filtered.
//!
//! If one thread takes part in each of 20 switches or more, coming as often as it leaves, and a
//! chain breaks, all others may be left out. Otherwise, those that may be left out are the idle
//! ones, those of the kernel, and those that were not seen to leave eight times as often as their
//! chain broke. If each switch is of at least one other thread (but for one in eight of those
//! breaks), every thread that switches with one of them was *recorded*. Where this does not hold
//! although threads of the kernel are missing for so long, or chains break at every second switch,
//! no thread was recorded whole.
//!
//! A filter by state (`prev_state == 1`, say) leaves out some switches of every thread. If no
//! thread left a CPU to sleep, or none left it runnable, and chains break eight times and at one in
//! eight switches or more, no thread was recorded whole. The same holds if chains break so often,
//! threads of the kernel switch with each other, and no switch has an idle thread. Filters by other
//! properties break chains like lost switches.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::model::event::{Event, EventSink, Party, State};
use crate::reconstruct::CpuTotals;

/// A single chain that breaks at others may be an accident.
const BREAKS: u64 = 2;

/// So many broken chains, and as many as half the switches, are none: as where a filter names only
/// the side of a switch that leaves.
const MANY: u64 = 8;

/// So few are, too, if no chain is whole.
const ALL: u64 = 4;

/// So many switches that have a thread in common, with a broken chain, are a recording of it.
const SOME: u64 = 20;

/// A thread that was seen to leave so many times as often as its chain broke is not left out.
/// So many chains must break for each switch that a filter would have left out, and one in so many
/// switches to those that are left out.
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

    fn breaks(&self) -> u64 {
        self.pairs.values().sum()
    }

    /// Do chains break as often as some of all threads' switches are left out?
    pub fn of_all_break(&self, switches: u64) -> bool {
        let breaks = self.breaks();
        breaks >= MANY && breaks.saturating_mul(OFTEN) >= switches
    }

    /// Does a chain break, in so many switches?
    pub fn any_breaks(&self, switches: u64) -> bool {
        self.breaks() > 0 && switches >= SOME
    }

    /// Do chains break at every second of so many switches, or more often? Or at each but the
    /// first of these CPUs?
    pub fn nothing_fits(&self, switches: u64, cpus: u64) -> bool {
        let breaks = self.breaks();
        breaks >= MANY && breaks.saturating_mul(2) >= switches
            || breaks >= ALL && breaks.saturating_add(cpus) >= switches
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

/// In complete recordings, a thread of the kernel ran again within 314 ms at most,
const ABSENT: i64 = 1_000_000_000;

/// and two of them, or one and an idle one, switched with each other within 1.65 s.
const APART: i64 = 5_000_000_000;

/// Of so few switches nothing is concluded.
const FEW: u64 = 100;

/// Do threads of the kernel run, and do CPUs switch between two of them, idle ones included? They
/// do in every recording of all threads that is long enough. In one of chosen programs they do not
/// switch with each other.
#[derive(Debug, Default)]
pub struct KernelThreads {
    seen: bool,
    together: bool,
    /// How long events of any CPU may be missing, and until when.
    unrecorded: i64,
    until: Option<i64>,
}

impl KernelThreads {
    #[inline]
    pub fn switch(&mut self, prev: &Party, next: &Party) {
        if !self.together {
            self.look_at(prev, next);
        }
    }

    /// Events of any CPU may be missing from `begin` to `end`; sorted by start.
    pub fn unrecorded(&mut self, begin: i64, end: i64) {
        let begin = self.until.map_or(begin, |until| until.max(begin));
        self.unrecorded += (end - begin).max(0);
        self.until = Some(end.max(begin));
    }

    #[cold]
    fn look_at(&mut self, prev: &Party, next: &Party) {
        let idle = |who: &Party| who.tid == 0 || who.idle;
        // One of unknown name may be of the kernel.
        let named = |who: &Party| who.comm.is_empty() || who.comm.is_of_kernel();
        let kernel = |who: &Party| !idle(who) && who.kernel.unwrap_or_else(|| named(who));
        self.seen |= kernel(prev) || kernel(next);
        self.together = [prev, next].into_iter().all(|who| idle(who) || kernel(who));
    }

    /// No filter chose threads of programs alone.
    pub fn together(&self) -> bool {
        self.together
    }

    /// One did: in so long a time they would have been seen.
    pub fn are_left_out(&self, cpus: &[CpuTotals]) -> bool {
        let first = cpus.iter().filter_map(|cpu| cpu.first_ts).min();
        let last = cpus.iter().filter_map(|cpu| cpu.last_ts).max();
        let time = first.zip(last).map_or(0, |(first, last)| last - first) - self.unrecorded;
        let long = time >= if self.seen { APART } else { ABSENT };
        !self.together && long && cpus.iter().map(|cpu| cpu.switches).sum::<u64>() >= FEW
    }
}

/// What threads went on to do when they left a CPU: some wait again, at least the idle ones, and
/// some sleep, in every recording that a filter by state has not cut down; and whose CPUs idle,
/// if they do, for an idle thread.
#[derive(Debug, Default)]
pub struct Departures {
    waits: bool,
    sleeps: bool,
    idles: bool,
}

impl Departures {
    #[inline]
    pub fn switch(&mut self, prev: &Party, prev_state: State, next: &Party) {
        self.idles |= prev.tid == 0 || prev.idle || next.tid == 0 || next.idle;
        match prev_state {
            State::Running | State::Runnable => self.waits = true,
            // Idle threads never sleep.
            State::Sleeping | State::Blocked => self.sleeps |= prev.tid != 0 && !prev.idle,
            State::Stopped | State::Parked | State::Dead => {}
            // It may have been either.
            State::Unknown => (self.waits, self.sleeps) = (true, true),
        }
    }

    /// No thread did one of the two.
    pub fn are_one_sided(&self) -> bool {
        self.waits != self.sleeps
    }

    /// No CPU was seen to idle.
    pub fn are_to_no_idle_thread(&self) -> bool {
        !self.idles
    }
}

/// The threads that take part in every switch: two after the first, soon none in a recording of
/// all threads.
#[derive(Debug, Default)]
pub struct InEverySwitch {
    of_first: Option<[Option<Seen>; 2]>,
}

/// How often a thread came and left.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    tid: u32,
    came: u64,
    left: u64,
}

impl InEverySwitch {
    #[inline]
    pub fn switch(&mut self, prev: &Party, next: &Party) {
        if self.of_first != Some([None, None]) {
            self.narrow(prev, next);
        }
    }

    #[cold]
    fn narrow(&mut self, prev: &Party, next: &Party) {
        let new = |who: &Party| {
            (who.tid != 0 && !who.idle).then_some(Seen {
                tid: who.tid,
                came: 0,
                left: 0,
            })
        };
        let before = self.of_first.unwrap_or_else(|| [prev, next].map(new));
        self.of_first = Some(before.map(|one| {
            let one = one?;
            let (left, came) = (prev.tid == one.tid, next.tid == one.tid);
            (left || came).then_some(Seen {
                came: one.came + u64::from(came),
                left: one.left + u64::from(left),
                ..one
            })
        }));
    }

    /// Its tid, if there is one such thread, which came as often as it left: a filter that names
    /// one side of a switch leaves out the other.
    pub fn one(&self) -> Option<u32> {
        match self.of_first {
            Some([Some(one), None] | [None, Some(one)]) => {
                (one.came.abs_diff(one.left) <= 1).then_some(one.tid)
            }
            _ => None,
        }
    }
}

/// Who is left out of a recording if it is of chosen threads only.
#[derive(Debug, Clone)]
pub struct Suspicion {
    pub left_out: FxHashSet<u32>,
    /// All but this one are.
    pub all_but: Option<u32>,
    /// Chains that broke between two of these.
    pub breaks: u64,
    /// The source says that a filter was used, which need not have left out threads.
    pub told: bool,
    /// One did: threads of the kernel are missing, or nothing fits.
    pub certain: bool,
    /// Some switches of every thread are missing: no thread was recorded whole.
    pub of_all: bool,
}

impl Suspicion {
    /// None where too little breaks.
    pub fn of(left_out: FxHashSet<u32>, breaks: u64, told: bool, certain: bool) -> Option<Self> {
        (told || certain || breaks >= BREAKS).then_some(Self {
            left_out,
            all_but: None,
            breaks,
            told,
            certain,
            of_all: false,
        })
    }

    /// All but this thread are left out.
    pub fn of_all_but(tid: u32) -> Self {
        Self {
            all_but: Some(tid),
            of_all: false,
            ..Self::by_state()
        }
    }

    /// Switches are missing according to the next events of threads or CPUs, for any thread.
    pub fn by_state() -> Self {
        Self {
            left_out: FxHashSet::default(),
            all_but: None,
            breaks: 0,
            told: false,
            certain: true,
            of_all: true,
        }
    }
}

/// Reads a trace to see whether each of its switches has a thread that is not left out.
pub struct Chosen<'a> {
    suspicion: &'a Suspicion,
    tids: FxHashSet<u32>,
    /// Switches between two threads that are left out.
    uncovered: u64,
    /// Switches to one of those from one that is not.
    passages: u64,
}

impl<'a> Chosen<'a> {
    pub fn new(suspicion: &'a Suspicion) -> Self {
        Self {
            suspicion,
            tids: FxHashSet::default(),
            uncovered: 0,
            passages: 0,
        }
    }

    /// The threads that were recorded, by tid: none where a filter left out some switches of each.
    /// None if no filter was used.
    pub fn threads(self) -> Option<FxHashSet<u32>> {
        let Suspicion {
            breaks,
            told,
            certain,
            ..
        } = *self.suspicion;
        let broken = breaks >= BREAKS && breaks.saturating_mul(OFTEN) >= self.passages;
        if !self.has_enough() && (broken || told || certain) {
            return Some(self.tids);
        }
        certain.then(FxHashSet::default)
    }

    /// More events would change nothing: too many switches are between two that are left out.
    pub fn has_enough(&self) -> bool {
        self.uncovered > self.suspicion.breaks / OFTEN
    }

    fn is_out(&self, who: &Party) -> bool {
        let Suspicion {
            left_out, all_but, ..
        } = self.suspicion;
        who.tid == 0
            || who.idle
            || left_out.contains(&who.tid)
            || all_but.is_some_and(|tid| tid != who.tid)
    }
}

impl EventSink for Chosen<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        if let Event::Switch { prev, next, .. } = event {
            match (self.is_out(prev), self.is_out(next)) {
                (true, true) => self.uncovered += 1,
                (true, false) => _ = self.tids.insert(next.tid),
                (false, true) => {
                    self.passages += 1;
                    self.tids.insert(prev.tid);
                }
                // One of them is recorded; another switch says which.
                (false, false) => {}
            }
        }
        Ok(())
    }

    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        if self.has_enough() {
            return Err(Error::enough());
        }
        check_interrupt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::Comm;

    fn who(tid: u32) -> Party {
        let name: &[u8] = if tid < 10 { b"kworker/0:1" } else { b"program" };
        Party {
            tid,
            comm: Comm::new(name),
            ..Party::default()
        }
    }

    fn chosen(switches: &[(u32, u32)], suspicion: &Suspicion) -> Option<Vec<u32>> {
        let mut reading = Chosen::new(suspicion);
        for &(prev, next) in switches {
            let event = Event::Switch {
                ts: 0,
                cpu: 0,
                prev: who(prev),
                prev_state: State::Sleeping,
                preempted: None,
                next: who(next),
            };
            reading.event(&event).expect("nothing to refuse");
        }
        let mut tids: Vec<u32> = reading.threads()?.into_iter().collect();
        tids.sort_unstable();
        Some(tids)
    }

    #[test]
    fn who_switches_with_those_left_out_was_chosen() {
        let left_out: FxHashSet<u32> = [7, 20].into_iter().collect();
        let sure = |breaks, certain| Suspicion::of(left_out.clone(), breaks, false, certain);
        assert!(sure(1, false).is_none());
        let few = sure(2, false).expect("two breaks are enough");
        let switches = [(0, 30), (30, 7), (20, 30), (30, 40), (40, 30)];
        // Of 40 nothing shows that it was.
        assert_eq!(chosen(&switches, &few), Some(vec![30]));
        // Too few breaks for so many switches to those that are left out.
        let again = switches.repeat(17);
        assert_eq!(chosen(&again, &few), None);
        // A switch between two that are left out: an accident, if it is one in many breaks.
        let with = [&switches[..], &[(7, 20)]].concat();
        assert_eq!(chosen(&with, &few), None);
        let many = sure(8, false).expect("eight breaks");
        assert_eq!(chosen(&with, &many), Some(vec![30]));
        let mut reading = Chosen::new(&few);
        let idle = |tid| Event::Switch {
            ts: 0,
            cpu: 0,
            prev: who(tid),
            prev_state: State::Sleeping,
            preempted: None,
            next: who(0),
        };
        reading.event(&idle(30)).expect("nothing to refuse");
        assert!(reading.progress(0, 0).is_ok() && !reading.has_enough());
        reading.event(&idle(7)).expect("nothing to refuse");
        assert!(reading.progress(0, 0).is_err() && reading.has_enough());
        let certain = sure(0, true).expect("nothing need break");
        assert_eq!(chosen(&with, &certain), Some(vec![]));
    }

    #[test]
    fn chains_that_break_at_the_same_threads_as_a_rule() {
        let mut clues = Clues::default();
        for (believed, found) in [(5, 6), (5, 7), (0, 5), (6, 8)] {
            clues.broken(believed, found);
        }
        let seen = |utid| if utid == 8 { 8 } else { 0 };
        assert_eq!(clues.left_out(|utid| utid < 2, seen), (vec![5, 6, 7], 3));
        assert!(!clues.nothing_fits(7, 2) && clues.nothing_fits(6, 2));
        for _ in 0..4 {
            clues.broken(5, 6);
        }
        assert!(clues.nothing_fits(16, 2) && !clues.nothing_fits(17, 2));
    }

    #[test]
    fn one_thread_may_take_part_in_every_switch() {
        let one = |switches: &[(u32, u32)]| {
            let mut every = InEverySwitch::default();
            for &(prev, next) in switches {
                every.switch(&who(prev), &who(next));
            }
            every.one()
        };
        assert_eq!(one(&[(30, 40), (40, 30)]), None);
        assert_eq!(one(&[(30, 40), (40, 31), (7, 40), (40, 0)]), Some(40));
        assert_eq!(one(&[(30, 40), (40, 0), (0, 31)]), None);
        assert_eq!(one(&[(40, 30), (40, 31), (40, 0)]), None);
        let alone = Suspicion::of_all_but(40);
        assert_eq!(
            chosen(&[(30, 40), (40, 31), (7, 40)], &alone),
            Some(vec![40])
        );
        let mut clues = Clues::default();
        assert!(!clues.any_breaks(100));
        clues.broken(30, 31);
        assert!(clues.any_breaks(20) && !clues.any_breaks(19));
    }

    #[test]
    fn threads_leave_to_wait_and_to_sleep() {
        let seen = |switches: &[(u32, State)]| {
            let mut departures = Departures::default();
            for &(tid, state) in switches {
                departures.switch(&who(tid), state, &who(31));
            }
            departures.are_one_sided()
        };
        assert!(!seen(&[]));
        assert!(seen(&[(30, State::Sleeping), (31, State::Dead)]));
        assert!(!seen(&[(30, State::Sleeping), (0, State::Runnable)]));
        assert!(seen(&[
            (30, State::Runnable),
            (0, State::Runnable),
            (31, State::Dead)
        ]));
        assert!(!seen(&[(30, State::Runnable), (30, State::Unknown)]));
        let mut departures = Departures::default();
        departures.switch(&who(30), State::Runnable, &who(31));
        assert!(departures.are_to_no_idle_thread());
        departures.switch(&who(31), State::Runnable, &who(0));
        assert!(!departures.are_to_no_idle_thread());
    }

    #[test]
    fn threads_of_the_kernel_switch_with_each_other() {
        let mut kernel = KernelThreads::default();
        kernel.switch(&who(0), &who(30));
        assert!(!kernel.seen);
        for (prev, next) in [(30, 7), (7, 40), (30, 40)] {
            kernel.switch(&who(prev), &who(next));
        }
        assert!(kernel.seen && !kernel.together());
        kernel.switch(&who(7), &who(0));
        assert!(kernel.together());
        // Where names are not known, they may have.
        let mut nameless = KernelThreads::default();
        let program = Party {
            tid: 30,
            ..Party::default()
        };
        nameless.switch(&who(0), &program);
        assert!(nameless.together());
    }
}
