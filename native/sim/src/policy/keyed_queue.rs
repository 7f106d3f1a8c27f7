//! One machine-wide queue by class and key, respecting masks without scanning.
//!
//! Real-time threads by priority, then fair ones by key, then idle-class ones by
//! key. Threads of one class and mask share a tree.
use super::super::machine::Cpu;
use super::super::shared_queue::{SharedQueue, masks_of};
use super::super::tree::{Nodes, Tree};
use super::super::workload::Tid;
use super::super::world::World;

#[derive(Default)]
pub(super) struct KeyedQueue {
    realtime: SharedQueue,
    nodes: Nodes,
    /// Fair threads of each mask, then idle-class ones of each.
    trees: Vec<Tree>,
    row: Vec<u32>,
    masks_of: Vec<Vec<u32>>,
    nmasks: u32,
}

const REALTIME: u32 = u32::MAX;

impl KeyedQueue {
    pub(super) fn new(w: &World) -> Self {
        Self {
            realtime: SharedQueue::new(w, 99),
            nodes: Nodes::new(w.nthreads()),
            trees: vec![Tree::default(); 2 * w.nmasks() as usize],
            row: vec![0; w.nthreads()],
            masks_of: masks_of(w),
            nmasks: w.nmasks(),
        }
    }

    /// CPUs went offline or came back.
    pub(super) fn online_changed(&mut self, w: &World) {
        self.realtime.online_changed(w);
        self.masks_of = masks_of(w);
    }

    /// Queue `t`; `ahead` puts a real-time thread before its equals.
    pub(super) fn push(&mut self, w: &World, t: Tid, key: i64, ahead: bool) {
        let level = w.thread(t).class.level();
        if level == 0 {
            self.row[t as usize] = REALTIME;
            let level = 99 - w.thread(t).rt_prio;
            if ahead {
                self.realtime.push_front(w, t, level);
            } else {
                self.realtime.push_back(w, t, level);
            }
            return;
        }
        let row = u32::from(level - 1) * self.nmasks + w.mask_id(t);
        self.row[t as usize] = row;
        self.trees[row as usize].insert(&mut self.nodes, t, key, 0);
    }

    pub(super) fn remove(&mut self, t: Tid) {
        match self.row[t as usize] {
            REALTIME => self.realtime.remove(t),
            row => self.trees[row as usize].remove(&mut self.nodes, t),
        }
    }

    /// The thread that `c` would take.
    pub(super) fn front(&self, c: Cpu) -> Option<Tid> {
        if let Some((_, t)) = self.realtime.front(c) {
            return Some(t);
        }
        self.front_of(1, c).or_else(|| self.front_of(2, c))
    }

    /// The one of this class (`Class::level`: 1 fair, 2 idle) that `c` would take first.
    pub(super) fn front_of(&self, level: u8, c: Cpu) -> Option<Tid> {
        let first = u32::from(level - 1) * self.nmasks;
        self.masks_of[c as usize]
            .iter()
            .filter_map(|m| self.trees[(first + m) as usize].first())
            .min_by_key(|t| (self.nodes.key(*t), self.nodes.order(*t)))
    }

    pub(super) fn pop(&mut self, c: Cpu) -> Option<Tid> {
        let t = self.front(c)?;
        self.remove(t);
        Some(t)
    }

    /// The key with which `t` is queued.
    pub(super) fn key(&self, t: Tid) -> i64 {
        self.nodes.key(t)
    }
}
