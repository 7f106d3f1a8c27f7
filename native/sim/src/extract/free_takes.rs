//! Mutexes that were free when taken and never contended: no call shows them.
//!
//! What the kernel did to the threads is a sample of what they were doing. A thread that loses the
//! CPU with a mutex is noticed, because others wait for it; so the part of its losses of the CPU at
//! which it had the mutex is the part of its CPU time for which it has it. Where that is more than
//! the holds that calls show (by 1.645 standard deviations of such a sample: by chance in one of 20
//! cases), the rest was held unnoticed. Those holds are as long as the ones whose length is known,
//! and as many as come to that time; they stand between the known ones at equal distances, but only
//! where they would not have been noticed: the thread neither loses the CPU nor calls nor wakes
//! another in them, and no other thread has the mutex.
//!
//! Only losses that are no consequence of what the thread did count: none within a futex call, none
//! to a thread that it woke since it came onto the CPU, and none so soon after a call for a mutex
//! that it ran for no more than a twentieth of a hold. Threads use a mutex from about its first
//! known use to the last: both ends are as far out as known uses lie apart.
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::cpu_clock::CpuClock;
use super::holds::{ENOUGH, Hold, NEVER};

/// Standard deviations below which 95 % lie.
const CERTAIN: f64 = 1.645;

/// A loss of the CPU so soon after a call is due to it: this part (1 in so many) of a hold.
const SOON: f64 = 20.0;

/// A thread lost the CPU outside of futex calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    pub left: i64,
    pub back: i64,
    /// For how long it had run since its last futex call.
    pub ran: i64,
}

/// What is known of one thread.
pub(super) struct Life<'a> {
    pub clock: &'a CpuClock,
    pub lost: &'a [Loss],
    /// When it called, or woke another thread, in time order.
    pub acts: &'a [i64],
}

/// Stretches of time that do not overlap, by their beginnings.
#[derive(Default)]
struct Taken(BTreeMap<i64, i64>);

impl Taken {
    fn add(&mut self, from: i64, until: i64) {
        let end = self.0.entry(from).or_insert(until);
        *end = (*end).max(until);
    }

    /// The end of the last one that begins before `until`, if that is after `from`.
    fn meets(&self, from: i64, until: i64) -> Option<i64> {
        let (_, end) = self.0.range(..until).next_back()?;
        (*end > from).then_some(*end)
    }
}

/// A stretch of a thread's CPU time between two holds that are known.
struct Gap {
    utid: u32,
    from: i64,
    until: i64,
}

impl Gap {
    fn length(&self) -> i64 {
        self.until - self.from
    }
}

/// A thread and what it is known to have done with the mutex.
struct Use<'a> {
    utid: u32,
    life: &'a Life<'a>,
    holds: Vec<Hold>,
    /// Its CPU time at the first and at the last use that it is taken to have made.
    from: i64,
    until: i64,
}

impl Use<'_> {
    fn has_at(&self, ts: i64) -> bool {
        let next = self.holds.partition_point(|h| h.got <= ts);
        next > 0 && ts < self.holds[next - 1].released
    }

    fn held(&self) -> i64 {
        let used = |ts| self.life.clock.used_at(ts);
        self.holds
            .iter()
            .map(|h| used(h.released) - used(h.got))
            .sum()
    }

    fn gaps(&self, end: i64, into: &mut Vec<Gap>) {
        let mut from = self.from;
        let mut add = |from, until| {
            if from < until {
                let utid = self.utid;
                into.push(Gap { utid, from, until });
            }
        };
        for hold in &self.holds {
            add(from, self.life.clock.used_at(hold.wanted));
            from = self.life.clock.used_at(hold.back.min(end));
        }
        add(from, self.until);
    }
}

/// Holds of one mutex that no call shows; `known` are all others of all mutexes, and `lengths` the
/// CPU times of those of this one whose beginnings are known; `end` is that of the recording.
pub(super) fn of_mutex(
    mutex: u32,
    known: &[Hold],
    lengths: &[i64],
    lives: &FxHashMap<u32, Life>,
    end: i64,
) -> Vec<Hold> {
    if lengths.len() < ENOUGH {
        return Vec::new();
    }
    let uses = uses(mutex, known, lives, end);
    let length = lengths.iter().sum::<i64>() as f64 / lengths.len() as f64;
    let mut losses = (0u64, 0u64);
    for one in &uses {
        let during = one.life.lost.iter().filter(|loss| {
            let used = one.life.clock.used_at(loss.left);
            loss.ran as f64 > length / SOON && one.from <= used && used <= one.until
        });
        for loss in during {
            losses.0 += u64::from(one.has_at(loss.back));
            losses.1 += 1;
        }
    }
    let (with, all) = (losses.0 as f64, losses.1 as f64);
    let part = with / all.max(1.0);
    let doubt = CERTAIN * (part * (1.0 - part) / all.max(1.0)).sqrt();
    let cpu_time: i64 = uses.iter().map(|one| one.until - one.from).sum();
    let held: i64 = uses.iter().map(Use::held).sum();
    if losses.0 < ENOUGH as u64
        || losses.0 == losses.1
        || (part - doubt) * cpu_time as f64 <= held as f64
    {
        return Vec::new();
    }
    let missing = (part * cpu_time as f64 - held as f64) / length;
    let seen: usize = uses.iter().map(|one| one.holds.len()).sum();
    let free = (1.0 - part) * cpu_time as f64 / (seen as f64 + missing);
    let mut gaps = Vec::new();
    uses.iter().for_each(|one| one.gaps(end, &mut gaps));
    let room = |gap: &Gap| ((gap.length() as f64 - free) / (free + length)).max(0.0);
    let all: f64 = gaps.iter().map(room).sum();
    let mut due = 0.5;
    let mut places = Places::new(mutex, known, lengths);
    let mut found = Vec::new();
    for gap in gaps {
        due += missing * room(&gap) / all.max(1.0);
        let n = due.floor();
        due -= n;
        places.fill(&gap, n as usize, &lives[&gap.utid], &mut found);
    }
    found
}

fn uses<'a>(
    mutex: u32,
    known: &[Hold],
    lives: &'a FxHashMap<u32, Life<'a>>,
    end: i64,
) -> Vec<Use<'a>> {
    let mut by_thread: BTreeMap<u32, Vec<Hold>> = BTreeMap::new();
    for hold in known.iter().filter(|h| h.mutex == mutex) {
        by_thread.entry(hold.utid).or_default().push(*hold);
    }
    by_thread
        .into_iter()
        // A thread that holds it, or waits for it, to the end of the recording does nothing else
        // with it.
        .filter_map(|(utid, mut holds)| {
            holds.retain(|h| h.released != NEVER);
            holds.sort_unstable_by_key(|h| h.got);
            let life = &lives[&utid];
            let used = |ts| life.clock.used_at(ts);
            let (first, last) = (used(holds.first()?.wanted), used(holds.last()?.released));
            let apart = (last - first) / (holds.len() as i64 - 1).max(1);
            Some(Use {
                utid,
                life,
                holds,
                from: (first - apart).max(0),
                until: (last + apart).min(used(end)),
            })
        })
        .collect()
}

/// Where holds may stand.
struct Places<'a> {
    mutex: u32,
    lengths: &'a [i64],
    next: usize,
    /// A thread has the mutex; and by thread, it has or wants another one.
    others: Taken,
    own: FxHashMap<u32, Taken>,
}

impl<'a> Places<'a> {
    fn new(mutex: u32, known: &[Hold], lengths: &'a [i64]) -> Self {
        let (mut others, mut own) = (Taken::default(), FxHashMap::<u32, Taken>::default());
        for hold in known {
            if hold.mutex == mutex {
                others.add(hold.got, hold.released);
            }
            own.entry(hold.utid)
                .or_default()
                .add(hold.wanted, hold.back);
        }
        Self {
            mutex,
            lengths,
            next: 0,
            others,
            own,
        }
    }

    /// `n` holds at equal distances in `gap`, or as many as there is room for.
    fn fill(&mut self, gap: &Gap, n: usize, life: &Life, found: &mut Vec<Hold>) {
        let lengths = self.lengths.iter().cycle().skip(self.next).take(n);
        let all: i64 = lengths.clone().sum();
        let between = ((gap.length() - all) / (n as i64 + 1)).max(0);
        let mut from = gap.from;
        for length in lengths {
            let Some(at) = self.place(gap, from + between, *length, life) else {
                return;
            };
            self.next = (self.next + 1) % self.lengths.len();
            from = at + length;
            let got = life.clock.when_used(at);
            let hold = Hold {
                utid: gap.utid,
                mutex: self.mutex,
                wanted: got,
                got,
                released: got + length,
                back: got + length,
            };
            self.others.add(got, hold.released);
            found.push(hold);
        }
    }

    /// The first place from the CPU time `at` on, in `gap`.
    fn place(&self, gap: &Gap, mut at: i64, length: i64, life: &Life) -> Option<i64> {
        let clock = life.clock;
        while at + length <= gap.until {
            let from = clock.when_used(at);
            let until = from + length;
            let act = life.acts.partition_point(|ts| *ts <= from);
            let own = self.own.get(&gap.utid);
            if clock.used_at(until) < at + length {
                // It would have lost the CPU, and comes back with as much CPU time.
                at = clock.used_at(until);
            } else if let Some(ts) = life.acts.get(act).filter(|ts| **ts < until) {
                at = clock.used_at(*ts);
            } else if let Some(end) = self.others.meets(from, until) {
                at = clock.used_at(end).max(at + 1);
            } else if let Some(end) = own.and_then(|own| own.meets(from, until)) {
                at = clock.used_at(end).max(at + 1);
            } else {
                return Some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs for 100 of every 200.
    fn clock() -> CpuClock {
        let mut clock = CpuClock::default();
        for at in (0i64..4000).step_by(200) {
            clock.comes(at);
            clock.leaves(at + 100);
        }
        clock
    }

    fn losses() -> Vec<Loss> {
        let lost = |at| Loss {
            left: at + 100,
            back: at + 200,
            ran: 100,
        };
        (0i64..3800).step_by(200).map(lost).collect()
    }

    fn hold(utid: u32, got: i64, released: i64) -> Hold {
        Hold {
            utid,
            mutex: 0,
            wanted: got,
            got,
            released,
            back: released + 1,
        }
    }

    /// Each of `every` losses of the CPU was one with the mutex, for 30 of CPU time.
    fn known(every: usize) -> Vec<Hold> {
        let with = (0..3800).step_by(200 * every);
        with.map(|at| hold(7, at + 80, at + 210)).collect()
    }

    fn found(known: &[Hold], acts: &[i64]) -> Vec<Hold> {
        let (clock, lost) = (clock(), losses());
        let life = Life {
            clock: &clock,
            lost: &lost,
            acts,
        };
        let other = CpuClock::default();
        let elsewhere = Life {
            clock: &other,
            lost: &[],
            acts: &[],
        };
        let lives = FxHashMap::from_iter([(7, life), (8, elsewhere)]);
        let lengths = vec![30; known.iter().filter(|h| h.utid == 7).count()];
        of_mutex(0, known, &lengths, &lives, 4000)
    }

    #[test]
    fn losses_of_the_cpu_are_a_sample_of_what_a_thread_had() {
        // 5 of 19 losses, but 150 of 2000 ns.
        let holds = found(&known(4), &[]);
        let missing = 5.0 / 19.0 * 1940.0 / 30.0 - 5.0;
        assert!((holds.len() as f64 - missing).abs() < 2.0, "{holds:?}");
        // 5 of 10 losses and 5 of 10 times are no such sign, nor are 4 of 19 losses.
        assert!(found(&known(5), &[]).is_empty());
    }

    #[test]
    fn nobody_would_have_noticed_them() {
        let mut others = known(4);
        others.push(hold(8, 1100, 1380));
        let acts: Vec<i64> = (0..4000).step_by(50).collect();
        let holds = found(&others, &acts);
        assert!(!holds.is_empty());
        others.extend(&holds);
        others.sort_by_key(|h| h.got);
        for (one, next) in others.iter().zip(&others[1..]) {
            assert!(one.released <= next.got, "{one:?} {next:?}");
        }
        for one in holds {
            // The thread runs from its beginning to its end, and does nothing else meanwhile.
            assert_eq!(clock().used_at(one.released) - clock().used_at(one.got), 30);
            assert_eq!(one.released - one.got, 30);
            assert_eq!(one.got / 50, (one.released - 1) / 50);
        }
    }

    #[test]
    fn what_calls_show_is_all_if_losses_tell_of_no_more() {
        // Held for half of each turn, and lost in a sixth of them.
        let mut holds = known(3);
        holds.extend((0..4000).step_by(200).map(|at| hold(7, at + 20, at + 70)));
        assert!(found(&holds, &[]).is_empty());
    }
}
