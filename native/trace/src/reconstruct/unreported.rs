//! What is missing although the source does not say so: rules Unreported and Leaking of
//! docs/trace-model.md.
//!
//! The habit is established, on the whole recording, by a thread that left unseen three times or
//! more and more than eight times as often as seen, if one switch each explains at least seven in
//! eight of those breaks (idle threads count as one, with more than three). It then also covers
//! threads never seen to leave of which every break is explained, unless chains broke at others,
//! too. It is no habit if threads also ran unseen where no chain broke, more than once in eight
//! such breaks.
//!
//! A CPU is leaking if it has six broken chains or more, with at most 50 of its switches from each
//! to the next, and three threads or more that were believed to run there (not counting those that
//! left unseen three times or more and hardly ever seen).

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

/// Breaks belong together if there are no more switches than this from one to the next.
const NEAR: u64 = 50;

/// So many breaks of one kind are not caused by one hole,
const FEW: usize = 6;

/// nor the doing of a kernel that does not report how some threads leave: they are of so many.
const THREADS: usize = 3;

/// Of more breaks than these at which a CPU was believed to be idle, holes are not the reason.
const IDLE_LEAVE: usize = 3;

/// A thread whose switch-out is recorded so often, and so many times as often as missing, is not
/// one that the kernel does not report; the other way round, it is.
const OFTEN: u64 = 8;

/// A thread that left unseen so often, and hardly ever seen, shows a habit of the kernel, if one
/// missing switch explains at least [`OFTEN`] - 1 in [`OFTEN`] of those breaks.
pub const HABIT: u64 = 3;

/// Breaks that are looked at to find one that explains an unseen run.
const LOOKED_AT: usize = 256;

/// A CPU, a first instant, and an end.
type Span = (u16, i64, i64);

/// Where switches are missing that the source does not report, as one reading finds them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Unreported {
    /// Broken chains: at least one switch is missing.
    pub breaks: Vec<Span>,
    /// Those of them in which any event may be missing.
    pub holes: Vec<Span>,
    pub leaks: Vec<Leak>,
    /// Threads, idle ones among them, whose leaving the kernel does not report.
    pub habits: Arc<FxHashSet<u32>>,
    /// The reading took these for such threads, and no others.
    pub as_presumed: bool,
}

/// Whose leaving is not reported, as far as is known while a trace is read.
#[derive(Debug, Default, Clone)]
pub enum Habits {
    /// No thread's: every broken chain is in doubt.
    #[default]
    Nobodys,
    /// That of threads which were hardly ever seen to leave. Whether that stands shows at the end.
    Presumed,
    /// An earlier reading has found whose.
    Of(Arc<FxHashSet<u32>>),
}

/// How a thread's leaving went.
#[derive(Debug, Default, Clone, Copy)]
struct Leaving {
    unseen: u64,
    /// Of the missing ones, those that one missing switch explains,
    explained: u64,
    /// and those that were taken for the kernel's habit.
    presumed: u64,
}

impl Unreported {
    /// Is it more than what the habits of some kernels explain?
    pub fn shows_loss(&self) -> bool {
        !self.holes.is_empty() || !self.leaks.is_empty()
    }

    /// Need the trace not be read again?
    pub fn is_settled(&self) -> bool {
        self.breaks.is_empty() && self.as_presumed
    }
}

/// A stretch in which one switch in [`NEAR`], or more of them, is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leak {
    pub cpu: u16,
    pub begin: i64,
    pub end: i64,
    /// How often the chain breaks in it: at least so many switches are missing.
    pub breaks: u64,
}

/// A broken chain of a CPU.
#[derive(Debug, Clone, Copy)]
pub struct Break {
    pub cpu: u16,
    /// The thread that was believed to run.
    pub believed: u32,
    pub begin: i64,
    pub end: i64,
    /// How many switches the CPU has had.
    pub switches: u64,
    /// One missing switch is enough to explain it.
    pub explained: bool,
}

/// The broken chains that a reading has found.
///
/// Some kernels do not report how CPUs leave their idle threads, or how one thread of a hypervisor
/// leaves a CPU. Such a thread is believed to run at several breaks, where that one switch alone is
/// missing; and then other breaks may be of this kind, too, but for those of threads that are seen
/// to leave as a rule. Else, any event may be missing there.
///
/// `seen`, below: how often a thread was seen to leave a CPU. An idle thread is one of its CPU.
#[derive(Debug, Default)]
pub struct Breaks {
    /// Of threads, in order of time.
    of_threads: Vec<Break>,
    /// Of idle threads, but not all of those whose leaving is not reported.
    of_idle: Vec<Break>,
    /// How each thread with a missing switch-out left.
    unseen: FxHashMap<u32, Leaving>,
    habits: Habits,
    /// Breaks that were taken for the kernel's habit, with the thread.
    presumed: Vec<(u32, Span)>,
    idle: usize,
    /// Who runs last when a CPU is taken down; when it is back, another chain begins.
    stoppers: Vec<u32>,
}

impl Breaks {
    /// Returns whether it is one missing switch by the kernel's habit.
    pub fn add(&mut self, found: Break, idle: bool, seen: u64) -> bool {
        let leaving = self.unseen.entry(found.believed).or_default();
        leaving.unseen += 1;
        leaving.explained += u64::from(found.explained);
        let unseen = leaving.unseen;
        let habit = found.explained
            && match &self.habits {
                Habits::Nobodys => false,
                Habits::Presumed => seen == 0 || unseen > OFTEN * seen,
                Habits::Of(threads) => threads.contains(&found.believed),
            };
        if habit {
            leaving.presumed += 1;
            let span = (found.cpu, found.begin, found.end);
            if matches!(self.habits, Habits::Presumed) {
                self.presumed.push((found.believed, span));
            }
        }
        if !idle {
            self.of_threads.push(found);
            return habit;
        }
        self.idle += 1;
        if unseen <= IDLE_LEAVE as u64 || seen >= OFTEN * unseen {
            self.of_idle.push(found);
        }
        habit
    }

    pub fn set_habits(&mut self, habits: Habits) {
        self.habits = habits;
    }

    /// The threads whose leaving the kernel does not report.
    ///
    /// The habit is established by a thread that left unseen [`HABIT`] times or more, and hardly
    /// ever seen, where one missing switch each explains that; idle threads count as one. Then it is
    /// taken to be that of every thread that was never seen to leave, if all their breaks are
    /// explained in that way and no others are left: otherwise switches of other kinds are missing.
    /// So they are if threads ran again and again without being seen (`unseen_runs`) where no chain
    /// broke.
    pub fn habits(
        &self,
        seen: impl Fn(u32) -> u64,
        idle: impl Fn(u32) -> bool,
        unseen_runs: u64,
    ) -> Arc<FxHashSet<u32>> {
        let explained: u64 = self.unseen.values().map(|leaving| leaving.explained).sum();
        if unseen_runs * OFTEN > explained {
            return Arc::default();
        }
        let mut of_idle = (Leaving::default(), 0);
        for (&utid, leaving) in self.unseen.iter().filter(|(utid, _)| idle(**utid)) {
            of_idle.0.unseen += leaving.unseen;
            of_idle.0.explained += leaving.explained;
            of_idle.1 += seen(utid);
        }
        let shows = |leaving: &Leaving, seen: u64, least: u64| {
            leaving.explained >= least
                && leaving.unseen > OFTEN * seen
                && leaving.explained * OFTEN >= leaving.unseen * (OFTEN - 1)
        };
        let idle_leave = shows(&of_idle.0, of_idle.1, IDLE_LEAVE as u64 + 1);
        let mut threads = FxHashSet::default();
        let mut others = Vec::new();
        let mut all = true;
        for (&utid, leaving) in &self.unseen {
            if self.stoppers.contains(&utid) {
                continue;
            }
            let often = leaving.unseen > OFTEN * seen(utid);
            let shown = shows(leaving, seen(utid), HABIT) && !idle(utid);
            if shown || idle(utid) && idle_leave && often {
                threads.insert(utid);
            } else if seen(utid) == 0 && leaving.explained == leaving.unseen {
                others.push(utid);
            } else {
                all = false;
            }
        }
        if all && !threads.is_empty() {
            threads.extend(others);
        }
        Arc::new(threads)
    }

    /// Breaks that were taken for the kernel's habit and are not.
    pub fn presumed_wrongly(&self, habits: &FxHashSet<u32>) -> Vec<Span> {
        let wrong = |one: &&(u32, Span)| !habits.contains(&one.0);
        self.presumed
            .iter()
            .filter(wrong)
            .map(|one| one.1)
            .collect()
    }

    /// Was every break taken as what it is?
    pub fn as_presumed(&self, habits: &FxHashSet<u32>) -> bool {
        self.unseen.iter().all(|(utid, leaving)| {
            let right = if habits.contains(utid) {
                leaving.explained
            } else {
                0
            };
            leaving.presumed == right
        })
    }

    pub fn stopper(&mut self, utid: u32) {
        self.stoppers.push(utid);
    }

    fn unseen(&self, utid: u32) -> u64 {
        self.unseen.get(&utid).map_or(0, |leaving| leaving.unseen)
    }

    /// The kernel reports how this thread leaves: where that was not seen, it is missing.
    fn reported(&self, utid: u32, seen: u64) -> bool {
        seen >= OFTEN * self.unseen(utid).max(1)
    }

    /// It does not, as a rule.
    fn hidden(&self, utid: u32, seen: u64) -> bool {
        let unseen = self.unseen(utid);
        unseen >= IDLE_LEAVE as u64 && unseen > OFTEN * seen
    }

    /// The kernel takes some threads off a CPU without reporting it.
    pub fn leaves_unreported(&self, seen: impl Fn(u32) -> u64) -> bool {
        let again = |one: &Break| {
            self.unseen(one.believed) > 1
                && !self.stoppers.contains(&one.believed)
                && !self.reported(one.believed, seen(one.believed))
        };
        let idle = self.of_idle.iter();
        let reported = idle.filter(|one| self.reported(one.believed, seen(one.believed)));
        self.idle - reported.count() > IDLE_LEAVE || self.of_threads.iter().any(again)
    }

    /// Where any event may be missing.
    pub fn holes(&self, seen: impl Fn(u32) -> u64) -> Vec<Span> {
        let habit = self.leaves_unreported(&seen);
        let all = self.of_threads.iter().chain(&self.of_idle);
        let all = all.filter(|one| !self.stoppers.contains(&one.believed));
        let all = all.filter(|one| !habit || self.reported(one.believed, seen(one.believed)));
        all.map(|one| (one.cpu, one.begin, one.end)).collect()
    }

    /// Whether a hole of `cpu` ended in `(since, until]`.
    pub fn explain(&self, cpu: u16, since: i64, until: i64, seen: impl Fn(u32) -> u64) -> bool {
        let ended = |one: &&Break| since < one.end;
        let holes = |all: &[Break]| {
            let late = all.iter().rev().take_while(ended).take(LOOKED_AT);
            let mut here = late.filter(|one| one.cpu == cpu && one.end <= until);
            here.any(|one| self.reported(one.believed, seen(one.believed)))
        };
        holes(&self.of_threads) || holes(&self.of_idle)
    }

    /// The leaks of a window. One that begins or ends within [`NEAR`] switches of the CPU's first
    /// or last one reaches to the window's border. `switches`: of each CPU.
    pub fn leaks(
        &self,
        window: (i64, i64),
        switches: &[u64],
        seen: impl Fn(u32) -> u64,
    ) -> Vec<Leak> {
        let mut all = Vec::new();
        for (cpu, &total) in (0..).zip(switches) {
            let of_cpu = self.of_threads.iter().filter(|one| one.cpu == cpu);
            let lost = of_cpu.filter(|one| !self.hidden(one.believed, seen(one.believed)));
            let of_cpu: Vec<_> = lost.collect();
            let near = |one: &&Break, next: &&Break| next.switches - one.switches <= NEAR;
            for stretch in of_cpu.chunk_by(near) {
                let (first, last) = (stretch[0], stretch[stretch.len() - 1]);
                let mut believed: Vec<u32> = stretch.iter().map(|one| one.believed).collect();
                believed.sort_unstable();
                believed.dedup();
                if stretch.len() < FEW || believed.len() < THREADS {
                    continue;
                }
                let (early, late) = (first.switches <= NEAR, total - last.switches <= NEAR);
                all.push(Leak {
                    cpu,
                    begin: if early { window.0 } else { first.begin },
                    end: if late { window.1 } else { last.end },
                    breaks: stretch.len() as u64,
                });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(at: u64, believed: u32) -> Break {
        Break {
            cpu: 0,
            believed,
            begin: at as i64 * 10,
            end: at as i64 * 10 + 5,
            switches: at,
            explained: true,
        }
    }

    fn found(breaks: &[u64], switches: u64) -> Vec<Leak> {
        let mut all = Breaks::default();
        for &at in breaks {
            all.add(broken(at, 7 + at as u32 % 3), false, 0);
        }
        all.leaks((-7, 1_000_000), &[switches], |_| 4)
    }

    #[test]
    fn who_leaves_unreported_again_leaves_no_hole() {
        let mut all = Breaks::default();
        for (at, believed, idle) in [(10, 7, false), (20, 8, false), (30, 0, true), (40, 0, true)] {
            all.add(broken(at, believed), idle, 0);
        }
        let never = |_| 0;
        let holes = [(0, 100, 105), (0, 200, 205), (0, 300, 305), (0, 400, 405)];
        assert_eq!(all.holes(never), holes);
        all.add(broken(50, 0), true, 0);
        assert!(!all.leaves_unreported(never));
        all.add(broken(60, 1), true, 0);
        assert!(all.leaves_unreported(never) && all.holes(never).is_empty());
        let mut down = Breaks::default();
        down.add(broken(10, 7), false, 0);
        down.add(broken(20, 7), false, 0);
        down.stopper(7);
        assert!(!down.leaves_unreported(never) && down.holes(never).is_empty());
        let mut again = Breaks::default();
        again.add(broken(10, 7), false, 0);
        again.add(broken(90, 7), false, 0);
        assert!(again.leaves_unreported(never));
    }

    #[test]
    fn beside_who_always_leaves_unreported_a_hole_shows_by_who_never_does() {
        let mut all = Breaks::default();
        for at in 0..40 {
            all.add(broken(10 * at, 0), true, 0);
            all.add(broken(10 * at + 1, 7), false, 0);
        }
        all.add(broken(500, 8), false, 0);
        all.add(broken(600, 9), false, 0);
        let seen = |utid| if utid == 8 { 8 } else { 0 };
        assert!(all.leaves_unreported(seen));
        // Of thread 9 nothing is known.
        assert_eq!(all.holes(seen), [(0, 5000, 5005)]);
        assert!(all.explain(0, 4999, 5005, seen));
        assert!(!all.explain(0, 5005, 9999, seen) && !all.explain(1, 4999, 5005, seen));
        assert!(!all.explain(0, 5990, 6005, seen));
        // The same for one that left unseen as often.
        all.add(broken(700, 8), false, 8);
        assert_eq!(all.holes(seen), []);
        // An idle thread that left seen, too, and three that never did but whose leaving is no
        // leak.
        let mut idle = Breaks::default();
        for at in 1..=5 {
            idle.add(broken(at, 0), true, 100);
        }
        assert_eq!(idle.holes(|_| 40).len(), 5);
        assert!(idle.holes(|_| 39).is_empty());
        let mut hidden = Breaks::default();
        for at in 0..9 {
            hidden.add(broken(at, 7 + at as u32 % 3), false, 0);
        }
        assert!(hidden.leaks((0, 100), &[50], |_| 0).is_empty());
        assert_eq!(hidden.leaks((0, 100), &[50], |_| 1).len(), 1);
    }

    /// The threads of the habit, where each of `unseen` left so often, and 20 was seen to leave
    /// `seen` times. Threads below 2 are idle.
    fn habit(unseen: &[(u32, u64)], seen: u64) -> Vec<u32> {
        let mut all = Breaks::default();
        for &(believed, times) in unseen {
            for at in 0..times {
                all.add(broken(at, believed), believed < 2, 0);
            }
        }
        let left = |utid| if utid == 20 { seen } else { 0 };
        let found = all.habits(left, |utid| utid < 2, 0);
        let mut threads: Vec<_> = found.iter().copied().collect();
        threads.sort_unstable();
        threads
    }

    #[test]
    fn a_habit_is_established_by_one_thread_and_covers_those_never_seen_to_leave() {
        assert!(habit(&[(7, 2), (8, 2)], 0).is_empty());
        assert_eq!(habit(&[(7, 3)], 0), [7]);
        assert_eq!(habit(&[(7, 3), (8, 1)], 0), [7, 8]);
        // A switch of another kind is missing as well: 8 may be of that.
        assert_eq!(habit(&[(7, 3), (8, 1), (20, 1)], 1), [7]);
        // It left seen nearly as often.
        assert_eq!(habit(&[(20, 9)], 1), [20]);
        assert!(habit(&[(20, 8)], 1).is_empty());
        // Idle threads are one kind.
        assert!(habit(&[(0, 2), (1, 1)], 0).is_empty());
        assert_eq!(habit(&[(0, 2), (1, 2)], 0), [0, 1]);
    }

    #[test]
    fn what_one_switch_does_not_explain_is_no_habit() {
        let mut all = Breaks::default();
        for at in 0..8 {
            let explained = at < 6;
            all.add(
                Break {
                    explained,
                    ..broken(at, 7)
                },
                false,
                0,
            );
        }
        assert!(all.habits(|_| 0, |_| false, 0).is_empty());
        // The same where threads also ran unseen.
        let mut all = Breaks::default();
        for at in 0..16 {
            all.add(broken(at, 7), false, 0);
        }
        assert_eq!(all.habits(|_| 0, |_| false, 2).len(), 1);
        assert!(all.habits(|_| 0, |_| false, 3).is_empty());
    }

    #[test]
    fn a_reading_is_settled_if_it_presumed_what_the_whole_shows() {
        let reading = |habits, times| {
            let mut all = Breaks::default();
            all.set_habits(habits);
            let taken = (0..times).map(|at| all.add(broken(at, 7), false, 0));
            let taken = taken.filter(|&habit| habit).count() as u64;
            let found = all.habits(|_| 0, |_| false, 0);
            (taken, all.as_presumed(&found), all.presumed_wrongly(&found))
        };
        assert_eq!(reading(Habits::Presumed, 3), (3, true, vec![]));
        let wrong = vec![(0, 0, 5), (0, 10, 15)];
        assert_eq!(reading(Habits::Presumed, 2), (2, false, wrong));
        assert_eq!(reading(Habits::Nobodys, 3), (0, false, vec![]));
        assert_eq!(reading(Habits::Nobodys, 2), (0, true, vec![]));
        let known = Arc::new(FxHashSet::from_iter([7]));
        assert_eq!(reading(Habits::Of(known), 3), (3, true, vec![]));
    }

    #[test]
    fn breaks_close_together_are_a_leak() {
        let leak = |begin, end, breaks| Leak {
            cpu: 0,
            begin,
            end,
            breaks,
        };
        let six = [101, 150, 160, 170, 180, 230];
        assert_eq!(found(&six, 300), [leak(1010, 2305, 6)]);
        assert_eq!(found(&six[1..], 300), []);
        // Of two threads.
        assert_eq!(found(&[102, 105, 150, 160, 171, 231], 300), []);
        // One that is too far from the last starts a new group.
        assert_eq!(found(&[99, 150, 160, 170, 180, 190], 300), []);
        let twice: Vec<u64> = six.iter().chain(&six.map(|at| at + 200)).copied().collect();
        assert_eq!(
            found(&twice, 600),
            [leak(1010, 2305, 6), leak(3010, 4305, 6)]
        );
    }

    #[test]
    fn a_leak_near_a_border_reaches_to_it() {
        let all = found(&[50, 60, 70, 80, 90, 100], 150);
        assert_eq!((all[0].begin, all[0].end), (-7, 1_000_000));
        let inside = found(&[51, 60, 70, 80, 90, 100], 151);
        assert_eq!((inside[0].begin, inside[0].end), (510, 1005));
    }
}
