//! How a queue's service is divided where control groups share it first, as Linux's fair class
//! does.
//!
//! A group is one member of its parent's queue, with the group's weight, however many threads it
//! has there; its weight is spread over the CPUs by where its threads are (`calc_group_shares` in
//! kernel/sched/fair.c, which smooths it over some 30 ms: here it is as of the last time that a
//! thread of the CPU came, went, or took turns with another one).

/// The groups of a trace, parents before their children.
pub struct Groups {
    /// The innermost group of each thread, by utid.
    pub of: Vec<Option<u32>>,
    /// By group.
    pub parent: Vec<Option<u32>>,
    pub weight: Vec<f64>,
}

impl Groups {
    /// The group of a thread and those that it lies in, innermost first.
    fn above(&self, group: Option<u32>) -> impl Iterator<Item = usize> {
        std::iter::successors(group, move |&group| {
            self.parent[group as usize].filter(|&parent| parent < group)
        })
        .map(|group| group as usize)
    }

    /// The innermost group of a thread.
    pub fn of(&self, utid: u32) -> Option<u32> {
        let group = self.of.get(utid as usize).copied().flatten()?;
        ((group as usize) < self.parent.len()).then_some(group)
    }
}

/// A group that has threads on a queue.
struct Present {
    group: usize,
    /// Weight of its threads here, those of groups inside it included, and of its own alone.
    here: f64,
    own: f64,
    /// Its part of what the queue gives, for each unit of weight in its own queue.
    rate: f64,
    /// What was due to a unit of weight in its own queue so far.
    due: f64,
}

/// The threads that compete on one queue, by group; in order of the groups, parents first.
#[derive(Default)]
pub struct Queue {
    at: i64,
    present: Vec<Present>,
    /// Those of threads in no group.
    own: f64,
    rate: f64,
    due: f64,
}

/// What queues have in common.
pub struct Shares<'a> {
    groups: &'a Groups,
    /// Weight of all threads that a group has on all queues.
    everywhere: Vec<f64>,
    /// Of the queue that is looked at: what the members of each group's own queue weigh, and the
    /// group's own weight.
    inside: Vec<f64>,
    entity: Vec<f64>,
}

impl<'a> Shares<'a> {
    pub fn new(groups: &'a Groups) -> Self {
        let count = groups.parent.len();
        Self {
            groups,
            everywhere: vec![0.0; count],
            inside: vec![0.0; count],
            entity: vec![0.0; count],
        }
    }

    /// A thread of this group comes, or (by a negative weight) leaves.
    pub fn add(&mut self, queue: &mut Queue, group: Option<u32>, weight: i64) {
        let weight = weight as f64;
        let mut innermost = true;
        for above in self.groups.above(group) {
            self.everywhere[above] += weight;
            let at = match queue.present.binary_search_by_key(&above, |one| one.group) {
                Ok(at) => at,
                Err(at) => {
                    let new = Present {
                        group: above,
                        here: 0.0,
                        own: 0.0,
                        rate: 0.0,
                        due: 0.0,
                    };
                    queue.present.insert(at, new);
                    at
                }
            };
            queue.present[at].here += weight;
            if innermost {
                queue.present[at].own += weight;
            }
            innermost = false;
        }
        if innermost {
            queue.own += weight;
        }
        // Weights are whole numbers: where the sum is 0 there is no thread.
        queue.present.retain(|one| one.here > 0.5);
        self.divide(queue);
    }

    fn divide(&mut self, queue: &mut Queue) {
        for one in &queue.present {
            let of = one.here / self.everywhere[one.group].max(1.0);
            self.entity[one.group] = self.groups.weight[one.group] * of;
            self.inside[one.group] = one.own;
        }
        let mut top = queue.own;
        for one in &queue.present {
            match self.groups.above(Some(one.group as u32)).nth(1) {
                Some(parent) => self.inside[parent] += self.entity[one.group],
                None => top += self.entity[one.group],
            }
        }
        let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        queue.rate = part(1.0, top);
        for at in 0..queue.present.len() {
            let group = queue.present[at].group;
            let over = self.groups.above(Some(group as u32)).nth(1);
            let rate = over.map_or(queue.rate, |parent| {
                let found = queue.present[..at].binary_search_by_key(&parent, |one| one.group);
                found.map_or(0.0, |at| queue.present[at].rate)
            });
            queue.present[at].rate = rate * part(self.entity[group], self.inside[group]);
        }
    }
}

impl Queue {
    /// `serving` CPUs gave to the members since it was last asked.
    pub fn advance(&mut self, t: i64, serving: i64) {
        let given = (t - self.at) as f64 * serving as f64;
        self.at = t;
        if given > 0.0 {
            self.due += given * self.rate;
            for one in &mut self.present {
                one.due += given * one.rate;
            }
        }
    }

    /// What was due so far to a thread of this group and weight, had it been here all along.
    pub fn due(&self, group: Option<u32>, weight: i64) -> f64 {
        let of = group.map(|group| group as usize);
        let found = of.and_then(|of| {
            let at = self.present.binary_search_by_key(&of, |one| one.group);
            Some(self.present[at.ok()?].due)
        });
        weight as f64 * found.unwrap_or(if of.is_some() { 0.0 } else { self.due })
    }
}

/// The queues of all CPUs, and by which group each thread shares the one that it is on.
pub struct Grouped<'a> {
    shares: Shares<'a>,
    queues: Vec<Queue>,
    of: Vec<Option<u32>>,
}

impl<'a> Grouped<'a> {
    pub fn new(groups: &'a Groups, queues: usize, threads: usize) -> Self {
        Self {
            shares: Shares::new(groups),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            of: vec![None; threads],
        }
    }

    /// What was due on this queue up to `t` to the thread, had it been there all along; so many
    /// CPUs gave to its members since it was last asked.
    pub fn due(&mut self, queue: usize, t: i64, serving: i64, utid: u32, weight: i64) -> f64 {
        let queue = &mut self.queues[queue];
        queue.advance(t, serving);
        queue.due(self.of[utid as usize], weight)
    }

    /// The thread comes, and shares by its group if it is of the `fair` class. The queue has been
    /// asked at this instant.
    pub fn enter(&mut self, queue: usize, utid: u32, weight: i64, fair: bool) {
        let group = self.shares.groups.of(utid).filter(|_| fair);
        self.of[utid as usize] = group;
        self.shares.add(&mut self.queues[queue], group, weight);
    }

    /// The thread leaves. The queue has been asked at this instant.
    pub fn leave(&mut self, queue: usize, utid: u32, weight: i64) {
        let group = self.of[utid as usize];
        self.shares.add(&mut self.queues[queue], group, -weight);
    }

    /// Groups divide the queue by what their threads weigh on all CPUs by now.
    pub fn divide(&mut self, queue: usize) {
        self.shares.divide(&mut self.queues[queue]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads 0 and 1 in a group of weight 1024, thread 2 in one of 2048 inside it, 3 in none.
    fn groups() -> Groups {
        Groups {
            of: vec![Some(0), Some(0), Some(1), None],
            parent: vec![None, Some(0)],
            weight: vec![1024.0, 2048.0],
        }
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }

    #[test]
    fn a_group_is_one_member_however_many_threads_it_has() {
        let groups = groups();
        let mut shares = Shares::new(&groups);
        let mut queue = Queue::default();
        let due = |queue: &Queue, utid: u32| queue.due(groups.of(utid), 1024);
        for utid in 0..4 {
            shares.add(&mut queue, groups.of(utid), 1024);
        }
        queue.advance(800, 1);
        // Half to thread 3; of the group's half each thread a quarter, the inner group two.
        for (utid, expected) in [(0, 100.0), (1, 100.0), (2, 200.0), (3, 400.0)] {
            close(due(&queue, utid), expected);
        }
        shares.add(&mut queue, None, -1024);
        queue.advance(1_200, 1);
        close(due(&queue, 2), 400.0);
        close(due(&queue, 0), 200.0);
    }

    #[test]
    fn a_groups_weight_is_spread_over_the_cpus_where_its_threads_are() {
        let groups = groups();
        let mut shares = Shares::new(&groups);
        let (mut one, mut other) = (Queue::default(), Queue::default());
        shares.add(&mut other, Some(0), 1024);
        shares.add(&mut one, Some(0), 1024);
        shares.add(&mut one, None, 1024);
        one.advance(300, 1);
        close(one.due(Some(0), 1024), 100.0);
        close(one.due(None, 1024), 200.0);
    }

    #[test]
    fn without_groups_weights_decide_and_a_damaged_tree_ends() {
        let groups = Groups {
            of: vec![Some(7), Some(0), None],
            parent: vec![Some(0)],
            weight: vec![1024.0],
        };
        let mut shares = Shares::new(&groups);
        let mut queue = Queue::default();
        // Group 7 does not exist: as if in none.
        assert_eq!(groups.of(0), None);
        shares.add(&mut queue, None, 1024);
        shares.add(&mut queue, groups.of(2), 3072);
        queue.advance(400, 1);
        close(queue.due(None, 1024), 100.0);
        close(queue.due(None, 3072), 300.0);
        shares.add(&mut queue, groups.of(1), 1024);
        queue.advance(500, 1);
        close(queue.due(Some(0), 1024), 20.0);
    }
}
