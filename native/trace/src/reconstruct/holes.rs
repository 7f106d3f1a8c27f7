//! Where events may be missing, and which threads may have run there unseen.
//!
//! Rule Doubt of docs/trace-model.md. What is stored grows with the holes of the
//! trace, as its table of losses does.

/// Intervals `[begin, end)`, disjoint and in order of time.
#[derive(Debug, Default, Clone)]
struct Spans(Vec<(i64, i64)>);

impl Spans {
    /// An interval without length still holds its one instant.
    fn add(&mut self, begin: i64, end: i64) {
        let end = end.max(begin.saturating_add(1));
        let from = self.0.partition_point(|span| span.1 < begin);
        let to = self.0.partition_point(|span| span.0 <= end);
        if from == to {
            self.0.insert(from, (begin, end));
        } else {
            let joined = (begin.min(self.0[from].0), end.max(self.0[to - 1].1));
            self.0.splice(from..to, [joined]);
        }
    }

    fn last_end(&self) -> i64 {
        self.0.last().map_or(i64::MIN, |span| span.1)
    }

    /// The first instant of `[since, until)` inside one of the intervals.
    fn first_in(&self, since: i64, until: i64) -> Option<i64> {
        let at = self.0.partition_point(|span| span.1 <= since);
        let begin = self.0.get(at)?.0.max(since);
        (begin < until).then_some(begin)
    }
}

/// In a hole of this length a CPU may take a waiting thread from another's queue, run it, and give
/// it back: each of these takes some us. It is the length of the hole, not of the wait.
pub const EXCURSION: i64 = 50_000;

/// A hole that may hide all of an [`EXCURSION`].
fn hides_excursion(begin: i64, end: i64) -> bool {
    end.saturating_sub(begin) >= EXCURSION
}

/// CPUs that a thread may use.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mask(Box<[u64]>);

impl Mask {
    /// From a list such as `0-3,8`; None if it is no such list, or allows all CPUs.
    fn parse(list: &str, ncpu: u32) -> Option<Self> {
        let mut words = vec![0; ncpu.div_ceil(64) as usize];
        for part in list.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            for cpu in first..last.saturating_add(1).min(ncpu) {
                words[cpu as usize / 64] |= 1 << (cpu % 64);
            }
        }
        let mask = Self(words.into());
        let allowed = mask.cpus().count() as u32;
        (0 < allowed && allowed < ncpu).then_some(mask)
    }

    fn has(&self, cpu: u16) -> bool {
        let word = self.0.get(usize::from(cpu) / 64);
        word.is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    fn cpus(&self) -> impl Iterator<Item = usize> {
        let words = self.0.iter().enumerate();
        words.flat_map(|(at, word)| {
            (0..64).filter_map(move |bit| (word >> bit & 1 == 1).then_some(at * 64 + bit))
        })
    }
}

/// The holes of every CPU.
pub struct Holes {
    /// Where any event may be missing, by CPU.
    lost: Vec<Spans>,
    /// The same of all CPUs together.
    lost_anywhere: Spans,
    /// The long ones of these, by CPU.
    long_lost: Vec<Spans>,
    /// CPUs that were not recorded. Nothing was lost there, but threads may have run there.
    unrecorded: Vec<Spans>,
    /// Where switches alone are missing: broken chains, by CPU.
    broken: Vec<Spans>,
    /// The long ones of these, by CPU.
    long_broken: Vec<Spans>,
    /// The same of all CPUs together.
    broken_anywhere: Spans,
    /// Those of them in which events of any kind may be missing, by CPU; empty: nowhere.
    suspected: Vec<Spans>,
    /// The long ones of these, by CPU; empty: nowhere.
    long_suspected: Vec<Spans>,
    /// Where switches are missing again and again, by CPU; empty: nowhere.
    leaking: Vec<Spans>,
    /// By utid; None: every CPU.
    masks: Vec<Option<Mask>>,
    /// The trace has migrations: a thread queued on one CPU does not run on another without one.
    moves_recorded: bool,
}

impl Holes {
    pub fn new(ncpu: u32) -> Self {
        Self {
            lost: vec![Spans::default(); ncpu as usize],
            lost_anywhere: Spans::default(),
            long_lost: vec![Spans::default(); ncpu as usize],
            unrecorded: Vec::new(),
            broken: vec![Spans::default(); ncpu as usize],
            long_broken: vec![Spans::default(); ncpu as usize],
            broken_anywhere: Spans::default(),
            suspected: Vec::new(),
            long_suspected: Vec::new(),
            leaking: Vec::new(),
            masks: Vec::new(),
            moves_recorded: false,
        }
    }

    /// The CPUs that `utid` may use, as a list.
    pub fn allow(&mut self, utid: u32, list: &str) {
        if let Some(mask) = Mask::parse(list, self.lost.len() as u32) {
            self.set(utid, Some(mask));
        }
    }

    fn set(&mut self, utid: u32, mask: Option<Mask>) {
        let index = utid as usize;
        if index >= self.masks.len() {
            self.masks.resize(index + 1, None);
        }
        self.masks[index] = mask;
    }

    fn mask(&self, utid: u32) -> Option<&Mask> {
        self.masks.get(utid as usize)?.as_ref()
    }

    /// The thread ran on `cpu`, or is queued there: a mask that forbids it is out of date.
    #[inline]
    pub fn ran(&mut self, utid: u32, cpu: u16) {
        if self.mask(utid).is_some_and(|mask| !mask.has(cpu)) {
            self.set(utid, None);
        }
    }

    pub fn moved(&mut self) {
        self.moves_recorded = true;
    }

    /// Any event of `cpu` may be missing in `[begin, end)`.
    pub fn lose(&mut self, cpu: usize, begin: i64, end: i64) {
        self.lost[cpu].add(begin, end);
        self.lost_anywhere.add(begin, end);
        if hides_excursion(begin, end) {
            self.long_lost[cpu].add(begin, end);
        }
    }

    /// Nothing of `cpu` was recorded in `[begin, end)`. A thread that is not in a recorded queue
    /// may have run there.
    pub fn leave_out(&mut self, cpu: usize, begin: i64, end: i64) {
        if self.unrecorded.is_empty() {
            self.unrecorded.resize(self.lost.len(), Spans::default());
        }
        self.unrecorded[cpu].add(begin, end);
        self.lost[cpu].add(begin, end);
        self.lost_anywhere.add(begin, end);
    }

    /// Was nothing of `cpu` recorded?
    pub fn is_unrecorded(&self, cpu: u16) -> bool {
        let spans = self.unrecorded.get(usize::from(cpu));
        spans.is_some_and(|spans| !spans.0.is_empty())
    }

    /// At least one switch of `cpu` is missing in `[begin, end)`.
    pub fn break_chain(&mut self, cpu: u16, begin: i64, end: i64) {
        self.add_broken(usize::from(cpu), begin, end);
        self.broken_anywhere.add(begin, end);
    }

    fn add_broken(&mut self, cpu: usize, begin: i64, end: i64) {
        self.broken[cpu].add(begin, end);
        if hides_excursion(begin, end) {
            self.long_broken[cpu].add(begin, end);
        }
    }

    /// At least one switch of a CPU that `utid` may use is missing in `[begin, end)`.
    pub fn break_chains(&mut self, utid: u32, begin: i64, end: i64) {
        let cpus: Vec<usize> = match self.mask(utid) {
            None => (0..self.broken.len()).collect(),
            Some(mask) => mask.cpus().collect(),
        };
        for cpu in cpus {
            self.add_broken(cpu, begin, end);
        }
        self.broken_anywhere.add(begin, end);
    }

    /// Any event of `cpu` may be missing in `[begin, end)`, although nothing says so: a broken
    /// chain was found there. Threads that are queued are in doubt for that already.
    pub fn suspect(&mut self, cpu: u16, begin: i64, end: i64) {
        if self.suspected.is_empty() {
            self.suspected.resize(self.lost.len(), Spans::default());
            self.long_suspected.clone_from(&self.suspected);
        }
        self.suspected[usize::from(cpu)].add(begin, end);
        if hides_excursion(begin, end) {
            self.long_suspected[usize::from(cpu)].add(begin, end);
        }
    }

    pub fn any_suspected(&self) -> bool {
        !self.suspected.is_empty()
    }

    /// In `[begin, end)` switches of `cpu` are missing again and again: its events are not
    /// reliable, and any thread may have run there.
    pub fn leak(&mut self, cpu: u16, begin: i64, end: i64) {
        if self.leaking.is_empty() {
            self.leaking.resize(self.lost.len(), Spans::default());
        }
        self.leaking[usize::from(cpu)].add(begin, end);
        self.lose(usize::from(cpu), begin, end);
    }

    /// The first instant of `[since, until)` at which switches of `cpu` are missing again and
    /// again.
    #[inline]
    pub fn leaks_from(&self, cpu: u16, since: i64, until: i64) -> Option<i64> {
        self.leaking.get(usize::from(cpu))?.first_in(since, until)
    }

    /// Where chains are broken, by CPU: the arguments of `break_chain`.
    pub fn breaks(&self) -> Vec<(u16, i64, i64)> {
        let spans = (0..).zip(&self.broken);
        spans
            .flat_map(|(cpu, spans)| spans.0.iter().map(move |span| (cpu, span.0, span.1)))
            .collect()
    }

    /// No hole reaches beyond `since`: a thread that has not moved since cannot be in doubt.
    #[inline]
    pub fn none_after(&self, since: i64) -> bool {
        self.lost_anywhere.last_end() <= since && self.broken_anywhere.last_end() <= since
    }

    /// The first instant of `[since, until)` inside an interval of a CPU that `utid` may use.
    fn first_of(&self, spans: &[Spans], utid: u32, since: i64, until: i64) -> Option<i64> {
        let first = |cpu: usize| spans.get(cpu)?.first_in(since, until);
        match self.mask(utid) {
            None => (0..spans.len()).filter_map(first).min(),
            Some(mask) => mask.cpus().filter_map(first).min(),
        }
    }

    /// Whether events of that CPU may be missing in `[since, until)`.
    pub fn any_on(&self, cpu: u16, since: i64, until: i64) -> bool {
        let first = |spans: &[Spans]| spans.get(usize::from(cpu))?.first_in(since, until);
        first(&self.lost).or_else(|| first(&self.broken)).is_some()
    }

    /// The first instant of `[since, until)` from which on `utid`, on no CPU, must have run if it
    /// ran: events of a CPU that it may use are missing.
    pub fn lost_from(&self, utid: u32, since: i64, until: i64) -> Option<i64> {
        match self.mask(utid) {
            None => self.lost_anywhere.first_in(since, until),
            Some(_) => self.first_of(&self.lost, utid, since, until),
        }
    }

    /// The first instant of `[since, until)` from which on `utid`, asleep, may have run where
    /// events of a CPU that it may use are missing.
    pub fn doubt_of_absent(&self, utid: u32, since: i64, until: i64) -> Option<i64> {
        let any = self.any_suspected() && self.broken_anywhere.last_end() > since;
        let suspected = any.then(|| self.first_of(&self.suspected, utid, since, until));
        let lost = self.lost_from(utid, since, until);
        [suspected.flatten(), lost].into_iter().flatten().min()
    }

    /// The same of a thread on the queue of `queue`, and still there at `until`. Holes of that CPU
    /// may hide a run of it. Of other CPUs, those may that are long enough for an excursion: the CPU
    /// that is not seen may itself have pulled the thread, and put it back. Of broken chains there,
    /// the suspected ones may, or, where losses are not reported `anywhere`, all; the others are one
    /// switch. CPUs that were not recorded are no holes: without a sign of it, the thread did not
    /// run there.
    pub fn doubt_of_queued(
        &self,
        utid: u32,
        queue: u16,
        since: i64,
        until: i64,
        anywhere: bool,
    ) -> Option<i64> {
        let first = |spans: &[Spans]| spans.get(usize::from(queue))?.first_in(since, until);
        let here = [first(&self.lost), first(&self.broken)];
        let unreported = if anywhere {
            &self.long_broken
        } else {
            &self.long_suspected
        };
        let there = [&self.long_lost, unreported];
        let there = there.map(|spans| self.first_of(spans, utid, since, until));
        here.into_iter().chain(there).flatten().min()
    }

    /// The same for a thread that waits on an unknown queue: broken chains count, for a missing
    /// switch alone may have put it on a CPU.
    pub fn doubt_of_runnable(&self, utid: u32, since: i64, until: i64) -> Option<i64> {
        let broken = match self.mask(utid) {
            _ if self.broken_anywhere.last_end() <= since => None,
            Some(_) => self.first_of(&self.broken, utid, since, until),
            None => self.broken_anywhere.first_in(since, until),
        };
        let lost = self.lost_from(utid, since, until);
        [broken, lost].into_iter().flatten().min()
    }

    /// The same of a thread that waits on a queue and is found there again, where moves are not
    /// recorded: CPUs that were not recorded are no holes.
    pub fn doubt_of_found_again(&self, utid: u32, since: i64, until: i64) -> Option<i64> {
        if self.unrecorded.is_empty() {
            return self.doubt_of_runnable(utid, since, until);
        }
        let cpus = 0..self.lost.len() as u16;
        let recorded = cpus.filter(|&cpu| {
            let may_use = self.mask(utid).is_none_or(|mask| mask.has(cpu));
            may_use && !self.is_unrecorded(cpu)
        });
        let first = |cpu: u16| {
            let cpu = usize::from(cpu);
            let both = [&self.lost[cpu], &self.broken[cpu]];
            both.into_iter()
                .filter_map(|spans| spans.first_in(since, until))
                .min()
        };
        recorded.filter_map(first).min()
    }

    pub fn moves_recorded(&self) -> bool {
        self.moves_recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_join_where_they_touch() {
        let mut spans = Spans::default();
        for (begin, end) in [(10, 20), (40, 50), (60, 60), (20, 30), (45, 55), (0, 5)] {
            spans.add(begin, end);
        }
        assert_eq!(spans.0, [(0, 5), (10, 30), (40, 55), (60, 61)]);
        spans.add(4, 100);
        assert_eq!(spans.0, [(0, 100)]);
    }

    #[test]
    fn the_first_instant_inside() {
        let mut spans = Spans::default();
        spans.add(10, 20);
        spans.add(30, 40);
        assert_eq!(spans.first_in(0, 10), None);
        assert_eq!(spans.first_in(0, 11), Some(10));
        assert_eq!(spans.first_in(15, 16), Some(15));
        assert_eq!(spans.first_in(20, 30), None);
        assert_eq!(spans.first_in(20, 99), Some(30));
        assert_eq!(spans.first_in(40, 99), None);
    }

    #[test]
    fn lists_of_cpus() {
        let has = |list, ncpu| Mask::parse(list, ncpu).map(|mask| mask.cpus().collect::<Vec<_>>());
        assert_eq!(has("0", 2), Some(vec![0]));
        assert_eq!(has("1-2,65", 70), Some(vec![1, 2, 65]));
        // All of them, none of them, and what is no list.
        assert_eq!(has("0-1", 2), None);
        assert_eq!(has("0-9", 2), None);
        assert_eq!(has("5", 2), None);
        assert_eq!(has("", 2), None);
        assert_eq!(has("3-4294967295", 5), Some(vec![3, 4]));
    }
}
