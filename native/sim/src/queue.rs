//! FIFO lists of threads without allocation: the run queues of most policies.
use super::workload::Tid;

const NONE: u32 = u32::MAX;

/// The links of all threads; a thread is in at most one list that uses them.
#[derive(Debug, Clone)]
pub struct Links {
    all: Vec<Link>,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    next: u32,
    prev: u32,
}

impl Links {
    pub fn new(nthreads: usize) -> Self {
        Self {
            all: vec![
                Link {
                    next: NONE,
                    prev: NONE,
                };
                nthreads
            ],
        }
    }
}

/// One list; all its methods take the links it uses.
#[derive(Debug, Clone, Copy)]
pub struct Fifo {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for Fifo {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }
}

impl Fifo {
    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn front(&self) -> Option<Tid> {
        (self.head != NONE).then_some(self.head)
    }

    pub fn back(&self) -> Option<Tid> {
        (self.tail != NONE).then_some(self.tail)
    }

    pub fn push_back(&mut self, links: &mut Links, t: Tid) {
        links.all[t as usize].next = NONE;
        links.all[t as usize].prev = self.tail;
        if self.tail == NONE {
            self.head = t;
        } else {
            links.all[self.tail as usize].next = t;
        }
        self.tail = t;
        self.len += 1;
    }

    pub fn push_front(&mut self, links: &mut Links, t: Tid) {
        links.all[t as usize].prev = NONE;
        links.all[t as usize].next = self.head;
        if self.head == NONE {
            self.tail = t;
        } else {
            links.all[self.head as usize].prev = t;
        }
        self.head = t;
        self.len += 1;
    }

    /// Put `t` just before `at`, which is in this list.
    pub fn insert_before(&mut self, links: &mut Links, at: Tid, t: Tid) {
        let before = links.all[at as usize].prev;
        if before == NONE {
            self.push_front(links, t);
            return;
        }
        links.all[before as usize].next = t;
        links.all[t as usize].prev = before;
        links.all[t as usize].next = at;
        links.all[at as usize].prev = t;
        self.len += 1;
    }

    pub fn pop_front(&mut self, links: &mut Links) -> Option<Tid> {
        let t = self.front()?;
        self.remove(links, t);
        Some(t)
    }

    /// Take `t`, which is in this list, out of it.
    pub fn remove(&mut self, links: &mut Links, t: Tid) {
        let (before, after) = (links.all[t as usize].prev, links.all[t as usize].next);
        if before == NONE {
            self.head = after;
        } else {
            links.all[before as usize].next = after;
        }
        if after == NONE {
            self.tail = before;
        } else {
            links.all[after as usize].prev = before;
        }
        self.len -= 1;
    }

    /// Front to back.
    pub fn iter<'a>(&self, links: &'a Links) -> impl Iterator<Item = Tid> + use<'a> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let t = (at != NONE).then_some(at)?;
            at = links.all[t as usize].next;
            Some(t)
        })
    }
}

/// A row of lists with a bitmap of the non-empty ones; level 0 is the best.
#[derive(Debug, Clone)]
pub struct Levels {
    lists: Vec<Fifo>,
    bits: Vec<u64>,
    len: usize,
}

impl Levels {
    pub fn new(n: usize) -> Self {
        Self {
            lists: vec![Fifo::default(); n],
            bits: vec![0; n.div_ceil(64)],
            len: 0,
        }
    }

    /// Threads in all lists.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn list(&self, level: usize) -> &Fifo {
        &self.lists[level]
    }

    pub fn push_back(&mut self, links: &mut Links, level: usize, t: Tid) {
        self.lists[level].push_back(links, t);
        self.mark(level);
    }

    pub fn push_front(&mut self, links: &mut Links, level: usize, t: Tid) {
        self.lists[level].push_front(links, t);
        self.mark(level);
    }

    pub fn insert_before(&mut self, links: &mut Links, level: usize, at: Tid, t: Tid) {
        self.lists[level].insert_before(links, at, t);
        self.mark(level);
    }

    fn mark(&mut self, level: usize) {
        self.bits[level / 64] |= 1 << (level % 64);
        self.len += 1;
    }

    /// Take `t`, which is in list `level`, out.
    pub fn remove(&mut self, links: &mut Links, level: usize, t: Tid) {
        self.lists[level].remove(links, t);
        self.len -= 1;
        if self.lists[level].is_empty() {
            self.bits[level / 64] &= !(1 << (level % 64));
        }
    }

    /// The best level that is not empty.
    pub fn best(&self) -> Option<usize> {
        self.first_from(0)
    }

    /// The first non-empty level at or after `level`.
    pub fn first_from(&self, level: usize) -> Option<usize> {
        let mut word = level / 64;
        let mut bits = self.bits.get(word)? & (u64::MAX << (level % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            word += 1;
            bits = *self.bits.get(word)?;
        }
    }

    /// The head of the best list, and its level.
    pub fn front(&self) -> Option<(usize, Tid)> {
        let level = self.best()?;
        Some((level, self.lists[level].front()?))
    }

    /// The threads of `level` and worse ones, in that order, each list front to back.
    pub fn iter_from<'a>(
        &'a self,
        links: &'a Links,
        level: usize,
    ) -> impl Iterator<Item = Tid> + 'a {
        self.iter_at(links, self.first_from(level)).map(|(_, t)| t)
    }

    /// All threads, best level first, each list front to back.
    pub fn iter<'a>(&'a self, links: &'a Links) -> impl Iterator<Item = (usize, Tid)> + 'a {
        self.iter_at(links, self.best())
    }

    fn iter_at<'a>(
        &'a self,
        links: &'a Links,
        begin: Option<usize>,
    ) -> impl Iterator<Item = (usize, Tid)> + 'a {
        let mut level = begin;
        std::iter::from_fn(move || {
            let at = level?;
            level = self.first_from(at + 1);
            Some(at)
        })
        .flat_map(move |at| self.lists[at].iter(links).map(move |t| (at, t)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn levels_agree_with_a_row_of_deques() {
        let n = 30u32;
        let mut rng = Rng::new(5);
        let mut links = Links::new(n as usize);
        let mut levels = Levels::new(140);
        let mut naive: Vec<VecDeque<u32>> = vec![VecDeque::new(); 140];
        let mut at: Vec<Option<usize>> = vec![None; n as usize];
        for _ in 0..20_000 {
            let t = rng.below(u64::from(n)) as u32;
            if let Some(level) = at[t as usize].take() {
                levels.remove(&mut links, level, t);
                naive[level].retain(|x| *x != t);
            } else {
                let level = rng.below(140) as usize;
                at[t as usize] = Some(level);
                match rng.below(3) {
                    0 => {
                        levels.push_front(&mut links, level, t);
                        naive[level].push_front(t);
                    }
                    1 if !naive[level].is_empty() => {
                        let i = rng.below(naive[level].len() as u64) as usize;
                        levels.insert_before(&mut links, level, naive[level][i], t);
                        naive[level].insert(i, t);
                    }
                    _ => {
                        levels.push_back(&mut links, level, t);
                        naive[level].push_back(t);
                    }
                }
            }
            let all: Vec<u32> = levels.iter(&links).map(|(_, t)| t).collect();
            let want: Vec<u32> = naive.iter().flatten().copied().collect();
            assert_eq!(all, want);
            assert_eq!(levels.len(), want.len());
            assert_eq!(levels.best(), naive.iter().position(|q| !q.is_empty()));
        }
    }
}
