//! Control groups: the recording's, or the root alone, as programs see them, and what a scheduler
//! hears of them (scx_cgroup_init, scx_cgroup_can_attach, scx_cgroup_move_task of
//! kernel/sched/ext.c; the kfuncs of kernel/bpf/helpers.c, Linux 6.12).
use schedscope_sim::workload::{Tid, Workload};
use schedscope_sim::world::{State, World};

use super::core::{Context, Core, Held};
use super::fault::Fault;
use super::kernel_types::KernelTypes;
use super::memory::{Access, Memory, address, split};
use super::operations::Callback;
use super::policy::Scheduler;

/// Of a group: its path.
const NAME: u32 = 256;

pub struct Groups {
    region: u32,
    stride: u32,
    /// Of each, the root first: (parent, level, weight as in cpu.weight).
    all: Vec<(u32, u32, u32)>,
    /// Of each thread.
    of_thread: Vec<u32>,
    tasks: u32,
    /// Where `css_set` and `task_group` of a group are.
    set: u32,
    task_group: u32,
    places: [u32; 2],
    /// All with those below after, and with those below before; of each, where it is in both, and
    /// how many it has below, itself included.
    orders: [Vec<u32>; 2],
    spans: Vec<([u32; 2], u32)>,
}

/// Which way an iterator goes (enum bpf_cgroup_iter_order).
const DOWN: u32 = 2;
const DOWN_AFTER: u32 = 3;
const UP: u32 = 4;

impl Groups {
    pub fn new(m: &mut Memory, load: &Workload, core: &Core) -> Result<Self, Fault> {
        let kernel = KernelTypes::new();
        let size = |name| kernel.size(name).unwrap_or(8);
        let depth = |mut group: u32| {
            let mut levels = 1;
            while let Some(up) = load.groups.get(group as usize).and_then(|spec| spec.parent) {
                (group, levels) = (up, levels + 1);
            }
            levels
        };
        let deepest = (0..load.groups.len() as u32).map(depth).max().unwrap_or(0);
        let node = size("cgroup") + 8 * deepest;
        let set = node + size("kernfs_node");
        let task_group = set + size("css_set");
        let name = task_group + size("task_group");
        let stride = name + NAME;
        let room = stride as usize * (load.groups.len() + 1);
        let region = m.add("the control groups", room, Access::ReadOnly)?;
        let mut own = Self {
            region,
            stride,
            all: vec![(0, 0, 100)],
            of_thread: Vec::with_capacity(load.threads.len()),
            tasks: core.tasks,
            set,
            task_group,
            places: [
                kernel.offset("task_struct", &["cgroups"]),
                kernel.offset("task_struct", &["sched_task_group"]),
            ],
            orders: [Vec::new(), Vec::new()],
            spans: Vec::new(),
        };
        for spec in &load.groups {
            let parent = spec.parent.map_or(0, |parent| parent + 1);
            let level = own.all.get(parent as usize).map_or(1, |up| up.1 + 1);
            let weight = (spec.shares * 100 / 1024).clamp(1, 10_000) as u32;
            own.all.push((parent, level, weight));
        }
        own.order();
        let names = load.groups.iter().map(|spec| spec.name.as_str());
        for (i, called) in [""].into_iter().chain(names).enumerate() {
            let i = i as u32;
            let (parent, level, _) = own.all[i as usize];
            let base = i * stride;
            let at = |of, path: &[&'static str]| base + kernel.offset(of, path);
            let up = if i == 0 { 0 } else { own.address(parent) };
            let up_node = if i == 0 { 0 } else { up + u64::from(node) };
            m.put32(region, at("cgroup", &["level"]), level);
            let mut above = i;
            for level in (0..=level).rev() {
                let ancestors = at("cgroup", &["ancestors"]);
                m.put64(region, ancestors + 8 * level, own.address(above));
                above = own.all[above as usize].0;
            }
            m.put64(region, at("cgroup", &["kn"]), address(region, base + node));
            m.put64(region, at("cgroup", &["self", "cgroup"]), own.address(i));
            m.put64(region, at("cgroup", &["self", "parent"]), up);
            m.put64(region, node + at("kernfs_node", &["id"]), u64::from(i) + 1);
            let text = address(region, base + name);
            m.put64(region, node + at("kernfs_node", &["name"]), text);
            m.put64(region, node + at("kernfs_node", &["parent"]), up_node);
            m.put64(region, node + at("kernfs_node", &["__parent"]), up_node);
            m.put64(region, set + at("css_set", &["dfl_cgrp"]), own.address(i));
            let css = task_group + at("task_group", &["css", "cgroup"]);
            m.put64(region, css, own.address(i));
            // The last part of a path is the name (kernfs_node.name).
            let last = called.rsplit('/').next().unwrap_or("");
            let last: Vec<u8> = last.bytes().take(NAME as usize - 1).collect();
            m.put(region, base + name, &last);
        }
        for (t, spec) in load.threads.iter().enumerate() {
            own.of_thread.push(0);
            own.put(m, core, t as Tid, spec.group.map_or(0, |group| group + 1));
        }
        Ok(own)
    }

    /// Notes the orders in which iterators go.
    fn order(&mut self) {
        let mut below = vec![Vec::new(); self.all.len()];
        for (group, (parent, ..)) in self.all.iter().enumerate().skip(1) {
            below[*parent as usize].push(group as u32);
        }
        self.spans = vec![([0; 2], 1); self.all.len()];
        let mut ahead = vec![(0u32, false)];
        while let Some((group, seen)) = ahead.pop() {
            let which = usize::from(seen);
            self.spans[group as usize].0[which] = self.orders[which].len() as u32;
            self.orders[which].push(group);
            if seen {
                let span: u32 = below[group as usize]
                    .iter()
                    .map(|at| self.spans[*at as usize].1)
                    .sum();
                self.spans[group as usize].1 += span;
            } else {
                ahead.push((group, true));
                ahead.extend(below[group as usize].iter().rev().map(|at| (*at, false)));
            }
        }
    }

    /// bpf_iter_css_new: into three words, the way, how many are ahead, and which is next.
    pub fn iterate(&self, m: &mut Memory, at: u64, from: u64, way: u32) -> Result<bool, Fault> {
        let known = (DOWN..=UP).contains(&way);
        let start = self.at(from)?.filter(|_| known);
        let (ahead, next) = match start {
            None => (0, 0),
            Some(group) if way == UP => (self.all[group as usize].1 + 1, group),
            Some(group) => {
                let ([first, last], span) = self.spans[group as usize];
                (span, if way == DOWN { first } else { last + 1 - span })
            }
        };
        for (word, at) in
            [way, ahead, next]
                .iter()
                .zip([at, at.wrapping_add(8), at.wrapping_add(16)])
        {
            m.store(at, 8, u64::from(*word))?;
        }
        Ok(known)
    }

    /// bpf_iter_css_next
    pub fn next_of(&self, m: &mut Memory, at: u64) -> Result<u64, Fault> {
        let word = |n: u64| m.load(at.wrapping_add(8 * n), 8);
        let [way, ahead, next] = [word(0)?, word(1)?, word(2)?];
        let Some(left) = ahead.checked_sub(1) else {
            return Ok(0);
        };
        let (group, after) = if way == u64::from(UP) {
            let parent = self.all.get(next as usize).map(|group| group.0);
            (Some(next as u32), parent.unwrap_or(0).into())
        } else {
            let order = &self.orders[usize::from(way == u64::from(DOWN_AFTER))];
            (order.get(next as usize).copied(), next.wrapping_add(1))
        };
        m.store(at.wrapping_add(8), 8, left)?;
        m.store(at.wrapping_add(16), 8, after)?;
        // A program that has written into its iterator is at its end.
        let there = group.filter(|group| (*group as usize) < self.all.len());
        Ok(there.map_or(0, |group| self.address(group)))
    }

    fn put(&mut self, m: &mut Memory, core: &Core, t: Tid, group: u32) {
        self.of_thread[t as usize] = group;
        let base = core.task(t) as u32;
        let at = group * self.stride;
        m.put64(
            self.tasks,
            base + self.places[0],
            address(self.region, at + self.set),
        );
        let task_group = address(self.region, at + self.task_group);
        m.put64(self.tasks, base + self.places[1], task_group);
    }

    fn address(&self, group: u32) -> u64 {
        address(self.region, group * self.stride)
    }

    /// The group at an address; none at 0.
    pub fn at(&self, at: u64) -> Result<Option<u32>, Fault> {
        if at == 0 {
            return Ok(None);
        }
        let (region, offset) = split(at);
        let group = offset / self.stride;
        if region == self.region && offset % self.stride == 0 && (group as usize) < self.all.len() {
            return Ok(Some(group));
        }
        Err(Fault::new(format!("gives {at:#x} as a control group")))
    }

    pub fn of_thread(&self, t: Tid) -> u64 {
        self.address(self.of_thread[t as usize])
    }

    /// bpf_cgroup_ancestor
    pub fn ancestor(&self, group: u32, level: i32) -> u64 {
        let mut group = group;
        let Ok(level) = u32::try_from(level) else {
            return 0;
        };
        if level > self.all[group as usize].1 {
            return 0;
        }
        while self.all[group as usize].1 > level {
            group = self.all[group as usize].0;
        }
        self.address(group)
    }

    /// bpf_cgroup_from_id
    pub fn with_id(&self, id: u64) -> u64 {
        let group = id.wrapping_sub(1);
        if group < self.all.len() as u64 {
            self.address(group as u32)
        } else {
            0
        }
    }
}

impl Scheduler {
    /// Parents before their children.
    pub(crate) fn init_groups(&mut self, w: &mut World) {
        if !self.has(Callback::GroupInit) {
            return;
        }
        for group in 0..self.groups.all.len() as u32 {
            let weight = self.groups.all[group as usize].2;
            let args = self.core.group_args(&mut self.machine.memory, weight);
            let args = [self.groups.address(group), args];
            let answer = self.call(w, Callback::GroupInit, 0, Context::Other, &args);
            self.must_be_zero(w, Callback::GroupInit, answer);
        }
    }

    pub(crate) fn init_args(&mut self, parent: Option<Tid>, child: Tid) -> u64 {
        let group = self.groups.of_thread(child);
        let memory = &mut self.machine.memory;
        self.core.init_args(memory, parent, child, group)
    }

    /// A thread changes its group: it is taken out and enqueued again around that (sched_move_task
    /// of kernel/sched/core.c). One that ran was put back just before.
    pub(crate) fn move_to_group(&mut self, w: &mut World, t: Tid, group: Option<u32>) {
        let to = group.map_or(0, |group| group + 1);
        let from = self.groups.of_thread[t as usize];
        if from == to {
            return;
        }
        let here = w.thread(t).cpu;
        let state = w.thread(t).state;
        let fair = !w.thread(t).class.is_realtime();
        let ways = [self.groups.address(from), self.groups.address(to)];
        let told = fair && state != State::Unborn;
        let args = [self.core.task(t), ways[0], ways[1]];
        if told {
            let answer = self.call(w, Callback::GroupPrepMove, here, Context::Other, &args);
            self.must_be_zero(w, Callback::GroupPrepMove, answer);
        }
        // One that has just left its CPU is not back yet: its CPU chooses next.
        let back = self.previous[here as usize] != Some(t);
        let waits = state == State::Queued && self.core.held[t as usize] != Held::Realtime;
        let queued = told && back && waits;
        if queued {
            self.take_out(w, t, 0);
            self.of_thread(w, Callback::Quiescent, here, t, Some(0));
        }
        let memory = &mut self.machine.memory;
        self.groups.put(memory, &self.core, t, to);
        if told {
            self.call(w, Callback::GroupMove, here, Context::Other, &args);
        }
        if queued {
            self.of_thread(w, Callback::Runnable, here, t, Some(0));
            self.do_enqueue(w, here, t, 0);
        }
    }
}
