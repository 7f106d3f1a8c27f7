//! One machine-wide run queue that respects masks without scanning.
//!
//! Threads with the same mask share a row of lists; a CPU looks only at the rows
//! of masks that contain it and takes the best (level, arrival). Picking costs
//! in the number of *different* masks, not of threads.
use super::machine::Cpu;
use super::queue::{Levels, Links};
use super::workload::Tid;
use super::world::World;
use crate::prefetch::near;

#[derive(Debug, Clone)]
struct Entry {
    level: u8,
    mask: u32,
    order: i64,
}

/// For each CPU the masks that contain it.
pub(super) fn masks_of(w: &World) -> Vec<Vec<u32>> {
    let of = |c| (0..w.nmasks()).filter(|m| w.mask_has(*m, c)).collect();
    w.machine.cpus().map(of).collect()
}

#[derive(Debug, Clone, Default)]
pub struct SharedQueue {
    rows: Vec<Levels>,
    links: Option<Links>,
    entries: Vec<Entry>,
    /// For each CPU the masks that contain it.
    masks_of: Vec<Vec<u32>>,
    newest: i64,
    oldest: i64,
}

impl SharedQueue {
    /// A queue of `levels` (at most 256) for the threads and masks of `w`.
    pub fn new(w: &World, levels: usize) -> Self {
        let blank = Entry {
            level: 0,
            mask: 0,
            order: 0,
        };
        Self {
            rows: vec![Levels::new(levels); w.nmasks() as usize],
            links: Some(Links::new(w.nthreads())),
            entries: vec![blank; w.nthreads()],
            masks_of: masks_of(w),
            newest: 0,
            oldest: 0,
        }
    }

    /// CPUs went offline or came back.
    pub fn online_changed(&mut self, w: &World) {
        self.masks_of = masks_of(w);
    }

    pub fn len(&self) -> usize {
        self.rows.iter().map(Levels::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.iter().all(Levels::is_empty)
    }

    pub fn push_back(&mut self, w: &World, t: Tid, level: u8) {
        self.newest += 1;
        self.insert(w, t, level, self.newest, false);
    }

    pub fn push_front(&mut self, w: &World, t: Tid, level: u8) {
        self.oldest -= 1;
        self.insert(w, t, level, self.oldest, true);
    }

    fn insert(&mut self, w: &World, t: Tid, level: u8, order: i64, front: bool) {
        let Some(links) = self.links.as_mut() else {
            return;
        };
        let mask = w.mask_id(t);
        let row = &mut self.rows[mask as usize];
        if front {
            row.push_front(links, level as usize, t);
        } else {
            row.push_back(links, level as usize, t);
        }
        self.entries[t as usize] = Entry { level, mask, order };
    }

    /// The thread that `c` would take, and its level.
    pub fn front(&self, c: Cpu) -> Option<(u8, Tid)> {
        self.masks_of[c as usize]
            .iter()
            .filter_map(|m| self.rows[*m as usize].front())
            .min_by_key(|(level, t)| (*level, self.entries[*t as usize].order))
            .map(|(level, t)| (level as u8, t))
    }

    pub fn pop(&mut self, c: Cpu) -> Option<(u8, Tid)> {
        let found = self.front(c)?;
        self.remove(found.1);
        Some(found)
    }

    /// `t` will be queued before long: brings its place near.
    pub fn prefetch(&self, t: Tid) {
        near(self.entries[t as usize].mask);
    }

    /// Take `t`, which is queued, out.
    pub fn remove(&mut self, t: Tid) {
        let Some(links) = self.links.as_mut() else {
            return;
        };
        let Entry { level, mask, .. } = self.entries[t as usize];
        self.rows[mask as usize].remove(links, level as usize, t);
    }
}
