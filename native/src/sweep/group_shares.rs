//! How a queue's service is divided where control groups share it first, as Linux's fair class does.
//!
//! A group is one member of its parent's queue, with the group's weight, however many threads it
//! has there; its weight is spread over the CPUs by where its threads are (`calc_group_shares` in
//! kernel/sched/fair.c, which smooths it over some 30 ms: here it is as of the last change on
//! the CPU).

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
        let known = |group: u32| ((group as usize) < self.parent.len()).then_some(group);
        std::iter::successors(group.and_then(known), move |&group| {
            self.parent[group as usize].filter(|&parent| parent < group)
        })
        .map(|group| group as usize)
    }

    pub fn of(&self, utid: u32) -> Option<u32> {
        self.of.get(utid as usize).copied().flatten()
    }
}

struct Member {
    utid: u32,
    group: Option<u32>,
    weight: f64,
    /// Of what the queue gives.
    share: f64,
    due: f64,
}

/// The threads that compete on one queue.
#[derive(Default)]
pub struct Queue {
    at: i64,
    members: Vec<Member>,
}

/// What queues have in common.
pub struct Shares<'a> {
    groups: &'a Groups,
    /// Weight of all threads that a group has on all queues.
    everywhere: Vec<f64>,
    /// For the queue that is looked at, by group: the weight of its threads there, and what the
    /// members of its own queue weigh; the last one is the CPU's.
    here: Vec<f64>,
    inside: Vec<f64>,
}

impl<'a> Shares<'a> {
    pub fn new(groups: &'a Groups) -> Self {
        let count = groups.parent.len();
        Self {
            groups,
            everywhere: vec![0.0; count],
            here: vec![0.0; count],
            inside: vec![0.0; count + 1],
        }
    }

    pub fn add(&mut self, queue: &mut Queue, utid: u32, weight: i64, grouped: bool) {
        let group = self.groups.of(utid).filter(|_| grouped);
        let weight = weight as f64;
        for above in self.groups.above(group) {
            self.everywhere[above] += weight;
        }
        queue.members.push(Member {
            utid,
            group,
            weight,
            share: 0.0,
            due: 0.0,
        });
        self.divide(queue);
    }

    pub fn remove(&mut self, queue: &mut Queue, utid: u32) {
        let Some(at) = queue.members.iter().position(|one| one.utid == utid) else {
            return;
        };
        let gone = queue.members.swap_remove(at);
        for above in self.groups.above(gone.group) {
            self.everywhere[above] -= gone.weight;
        }
        self.divide(queue);
    }

    /// What a group weighs in its parent's queue here.
    fn entity(&self, group: usize) -> f64 {
        self.groups.weight[group] * self.here[group] / self.everywhere[group].max(1.0)
    }

    fn divide(&mut self, queue: &mut Queue) {
        let cpu = self.here.len();
        for member in &queue.members {
            for group in self.groups.above(member.group) {
                (self.here[group], self.inside[group]) = (0.0, 0.0);
            }
        }
        self.inside[cpu] = 0.0;
        for member in &queue.members {
            let own = member.group.map_or(cpu, |group| group as usize);
            self.inside[own.min(cpu)] += member.weight;
            for group in self.groups.above(member.group) {
                self.here[group] += member.weight;
            }
        }
        // Each group counts once in its parent's queue, for the first member that it has.
        let mut counted = Vec::new();
        for member in &queue.members {
            for group in self.groups.above(member.group) {
                if counted.contains(&group) {
                    break;
                }
                counted.push(group);
                let over = self.groups.above(Some(group as u32)).nth(1).unwrap_or(cpu);
                self.inside[over] += self.entity(group);
            }
        }
        for member in &mut queue.members {
            let mut weight = member.weight;
            let mut share = 1.0;
            for group in self.groups.above(member.group) {
                share *= weight / self.inside[group];
                weight =
                    self.groups.weight[group] * self.here[group] / self.everywhere[group].max(1.0);
            }
            share *= weight / self.inside[cpu];
            member.share = if share.is_finite() { share } else { 0.0 };
        }
    }
}

impl Queue {
    /// `serving` CPUs gave to the members since it was last asked.
    pub fn advance(&mut self, t: i64, serving: i64) {
        let given = (t - self.at) as f64 * serving as f64;
        self.at = t;
        if given > 0.0 {
            for member in &mut self.members {
                member.due += given * member.share;
            }
        }
    }

    /// What was due to a member since it came.
    pub fn due(&self, utid: u32) -> f64 {
        let member = self.members.iter().find(|member| member.utid == utid);
        member.map_or(0.0, |member| member.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }

    /// Threads 0 and 1 in a group of weight 1024, thread 2 in one of 2048 inside it, 3 in none.
    fn groups() -> Groups {
        Groups {
            of: vec![Some(0), Some(0), Some(1), None],
            parent: vec![None, Some(0)],
            weight: vec![1024.0, 2048.0],
        }
    }

    #[test]
    fn a_group_is_one_member_however_many_threads_it_has() {
        let groups = groups();
        let mut shares = Shares::new(&groups);
        let mut queue = Queue::default();
        for utid in 0..4 {
            shares.add(&mut queue, utid, 1024, true);
        }
        queue.advance(800, 1);
        // Half to thread 3; of the group's half each thread a quarter, the inner group two.
        for (utid, due) in [(0, 100.0), (1, 100.0), (2, 200.0), (3, 400.0)] {
            close(queue.due(utid), due);
        }
        shares.remove(&mut queue, 3);
        queue.advance(1_200, 1);
        close(queue.due(2), 400.0);
        close(queue.due(0), 200.0);
    }

    #[test]
    fn a_groups_weight_is_spread_over_the_cpus_where_its_threads_are() {
        let groups = groups();
        let mut shares = Shares::new(&groups);
        let (mut one, mut other) = (Queue::default(), Queue::default());
        shares.add(&mut other, 1, 1024, true);
        shares.add(&mut one, 0, 1024, true);
        shares.add(&mut one, 3, 1024, true);
        one.advance(300, 1);
        close(one.due(0), 100.0);
        close(one.due(3), 200.0);
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
        shares.add(&mut queue, 0, 1024, false);
        shares.add(&mut queue, 2, 3072, true);
        queue.advance(400, 1);
        close(queue.due(0), 100.0);
        close(queue.due(2), 300.0);
        shares.add(&mut queue, 1, 1024, true);
        queue.advance(500, 1);
        close(queue.due(1), 20.0);
    }
}
