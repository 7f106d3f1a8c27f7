//! Dispatch queues: a local one of each CPU, a global one of each NUMA node, and the scheduler's
//! own (`dispatch_enqueue`, `task_unlink_from_dsq`, `find_dsq_for_dispatch`, `create_dsq` and
//! `destroy_dsq` of kernel/sched/ext.c, Linux 6.12).
use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use schedscope_sim::machine::Cpu;
use schedscope_sim::workload::Tid;

use super::kernel_types as k;

/// Queues that a scheduler may make.
const MOST: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Any,
    Arrival,
    Vtime,
}

#[derive(Debug)]
pub struct Queue {
    pub id: u64,
    order: Order,
    /// (virtual time, thread), in the order in which they are taken.
    threads: VecDeque<(u64, Tid)>,
}

pub struct Queues {
    all: Vec<Queue>,
    own: FxHashMap<u64, u32>,
    free: Vec<u32>,
    ncpu: usize,
}

/// How a thread is put into a queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct Insertion {
    pub vtime: Option<u64>,
    pub ahead: bool,
}

fn is_before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

impl Queues {
    pub fn new(ncpu: usize, nodes: usize) -> Self {
        let queue = |id| Queue {
            id,
            order: Order::Any,
            threads: VecDeque::new(),
        };
        let local = (0..ncpu).map(|_| queue(k::DSQ_LOCAL));
        let global = (0..nodes).map(|_| queue(k::DSQ_GLOBAL));
        Self {
            all: local.chain(global).collect(),
            own: FxHashMap::default(),
            free: Vec::new(),
            ncpu,
        }
    }

    pub fn local(&self, c: Cpu) -> u32 {
        c.into()
    }

    pub fn global(&self, node: usize) -> u32 {
        (self.ncpu + node) as u32
    }

    /// The CPU whose local queue it is.
    pub fn cpu_of(&self, queue: u32) -> Option<Cpu> {
        ((queue as usize) < self.ncpu).then_some(queue as Cpu)
    }

    pub fn find(&self, id: u64) -> Option<u32> {
        self.own.get(&id).copied()
    }

    /// A negative error number of the kernel's if there can be none.
    pub fn create(&mut self, id: u64) -> Result<u32, i64> {
        if id & k::DSQ_BUILTIN != 0 {
            return Err(-22);
        }
        if self.own.contains_key(&id) {
            return Err(-17);
        }
        if self.own.len() >= MOST {
            return Err(-12);
        }
        let made = Queue {
            id,
            order: Order::Any,
            threads: VecDeque::new(),
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = made;
                number
            }
            None => {
                self.all.push(made);
                self.all.len() as u32 - 1
            }
        };
        self.own.insert(id, number);
        Ok(number)
    }

    /// `Err` with its length if it is in use.
    pub fn destroy(&mut self, id: u64) -> Result<(), usize> {
        let Some(number) = self.find(id) else {
            return Ok(());
        };
        match self.len(number) {
            0 => {
                self.own.remove(&id);
                self.free.push(number);
                Ok(())
            }
            n => Err(n),
        }
    }

    pub fn get(&self, queue: u32) -> &Queue {
        &self.all[queue as usize]
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    pub fn len(&self, queue: u32) -> usize {
        self.get(queue).threads.len()
    }

    /// Refused with a sentence where the kernel raises an error.
    pub fn insert(&mut self, queue: u32, t: Tid, how: Insertion) -> Result<(), String> {
        let found = &mut self.all[queue as usize];
        if found.threads.is_empty() {
            found.order = Order::Any;
        }
        match how.vtime {
            Some(_) if found.id & k::DSQ_BUILTIN != 0 => {
                return Err("cannot use vtime ordering for built-in DSQs".into());
            }
            Some(vtime) => {
                if found.order == Order::Arrival {
                    return Err(format!(
                        "DSQ ID {:#018x} already had FIFO-enqueued tasks",
                        found.id
                    ));
                }
                found.order = Order::Vtime;
                let at = found
                    .threads
                    .partition_point(|(v, _)| !is_before(vtime, *v));
                found.threads.insert(at, (vtime, t));
            }
            None => {
                if found.order == Order::Vtime {
                    return Err(format!(
                        "DSQ ID {:#018x} already had PRIQ-enqueued tasks",
                        found.id
                    ));
                }
                found.order = Order::Arrival;
                if how.ahead {
                    found.threads.push_front((0, t));
                } else {
                    found.threads.push_back((0, t));
                }
            }
        }
        Ok(())
    }

    pub fn remove(&mut self, queue: u32, t: Tid) {
        let threads = &mut self.all[queue as usize].threads;
        if threads.front().is_some_and(|(_, first)| *first == t) {
            threads.pop_front();
        } else if let Some(at) = threads.iter().position(|(_, held)| *held == t) {
            threads.remove(at);
        }
    }

    pub fn first(&self, queue: u32) -> Option<Tid> {
        self.get(queue).threads.front().map(|(_, t)| *t)
    }

    pub fn iter(&self, queue: u32) -> impl Iterator<Item = Tid> + '_ {
        self.get(queue).threads.iter().map(|(_, t)| *t)
    }
}
