//! Made-up scheduling, for tests and benchmarks of any length: threads sleep,
//! are woken, queue, run, are preempted and now and then move.

use std::collections::VecDeque;

use crate::error::Result;
use crate::model::event::{Comm, Event, EventSink, Party, State, WakeKind};

/// xorshift64*: the same events from the same seed, everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((self.draw() >> 32) * n) >> 32
    }
}

/// What a CPU does at its next moment.
enum Todo {
    Decide,
    /// The wakeup's second step.
    Enqueue {
        thread: usize,
        target: usize,
        waker: Option<u32>,
    },
    Switch {
        state: State,
        preempted: Option<bool>,
    },
}

struct Cpu {
    time: i64,
    current: Option<usize>,
    queue: VecDeque<usize>,
    todo: Todo,
}

#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Sleeping,
    Waking,
    Busy,
}

struct Thread {
    party: Party,
    doing: Behaviour,
    cpu: usize,
}

const IDLE_PRIO: i16 = 120;
const FIRST_TID: u32 = 1000;

/// One thread in 50 is the kernel's, or the recording would be of chosen programs only.
fn name(index: u32) -> String {
    match index % 50 {
        0 => "kworker/0:0".to_owned(),
        other => format!("worker/{other}"),
    }
}

/// A machine of `ncpu` CPUs and `threads` threads.
pub struct Machine {
    random: Random,
    cpus: Vec<Cpu>,
    threads: Vec<Thread>,
}

impl Machine {
    pub fn new(ncpu: u16, threads: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let cpus = (0..ncpu.max(1))
            .map(|cpu| Cpu {
                time: 1_000_000_000 + i64::from(cpu) * 137,
                current: None,
                queue: VecDeque::new(),
                todo: Todo::Decide,
            })
            .collect();
        let threads = (0..threads.max(1))
            .map(|index| Thread {
                party: Party {
                    tid: FIRST_TID + index,
                    prio: Some(100 + random.below(40) as i16),
                    comm: Comm::new(name(index).as_bytes()),
                    ..Party::default()
                },
                doing: Behaviour::Sleeping,
                cpu: random.below(u64::from(ncpu.max(1))) as usize,
            })
            .collect();
        Self {
            random,
            cpus,
            threads,
        }
    }

    /// Sends at least `events` events and stops.
    pub fn run(&mut self, events: u64, sink: &mut dyn EventSink) -> Result<()> {
        let mut sent = 0;
        while sent < events {
            let Some(cpu) = (0..self.cpus.len()).min_by_key(|&cpu| self.cpus[cpu].time) else {
                break;
            };
            if let Some(event) = self.step(cpu) {
                sink.event(&event)?;
                sent += 1;
            }
        }
        Ok(())
    }

    /// What `cpu` does at its time; None if nothing to be traced.
    fn step(&mut self, cpu: usize) -> Option<Event> {
        let ts = self.cpus[cpu].time;
        let todo = std::mem::replace(&mut self.cpus[cpu].todo, Todo::Decide);
        // Mostly microseconds; now and then a pause that needs a time extend.
        let pause = match self.random.below(4096) {
            0 => 200_000_000,
            _ => 1 + self.random.below(20_000),
        };
        self.cpus[cpu].time = ts + pause as i64;
        match todo {
            Todo::Enqueue {
                thread,
                target,
                waker,
            } => Some(self.enqueue(ts, cpu, thread, target, waker)),
            Todo::Switch { state, preempted } => Some(self.switch(ts, cpu, state, preempted)),
            Todo::Decide => self.decide(ts, cpu),
        }
    }

    fn decide(&mut self, ts: i64, cpu: usize) -> Option<Event> {
        let running = self.cpus[cpu].current.is_some();
        let waiting = !self.cpus[cpu].queue.is_empty();
        let soon = ts + 300 + self.random.below(500) as i64;
        let chance = self.random.below(100);
        if running && chance < 35 || !running && waiting {
            let state = match chance {
                _ if !running => State::Runnable,
                0..5 => State::Blocked,
                _ => State::Sleeping,
            };
            return Some(self.switch(ts, cpu, state, running.then_some(false)));
        }
        if running && waiting && chance < 50 {
            // R+ one time in five, else R: the kernel does not say why.
            let preempted = chance.is_multiple_of(5).then_some(true);
            self.cpus[cpu].todo = Todo::Switch {
                state: State::Runnable,
                preempted,
            };
            self.cpus[cpu].time = soon;
            return None;
        }
        let thread = self.random.below(self.threads.len() as u64) as usize;
        if self.threads[thread].doing != Behaviour::Sleeping {
            return None;
        }
        self.threads[thread].doing = Behaviour::Waking;
        let target = match self.random.below(10) {
            0 => self.random.below(self.cpus.len() as u64) as usize,
            _ => self.threads[thread].cpu,
        };
        let waker = self.cpus[cpu]
            .current
            .map(|thread| self.threads[thread].party.tid);
        self.cpus[cpu].todo = Todo::Enqueue {
            thread,
            target,
            waker,
        };
        self.cpus[cpu].time = soon;
        Some(self.wake(
            ts,
            cpu,
            WakeKind::Waking,
            thread,
            self.threads[thread].cpu,
            waker,
        ))
    }

    fn wake(
        &self,
        ts: i64,
        cpu: usize,
        kind: WakeKind,
        thread: usize,
        target: usize,
        waker: Option<u32>,
    ) -> Event {
        let who = self.threads[thread].party;
        Event::Wakeup {
            ts,
            cpu: cpu as u16,
            kind,
            waker,
            current: waker,
            who,
            target_cpu: Some(target as u16),
        }
    }

    fn enqueue(
        &mut self,
        ts: i64,
        cpu: usize,
        thread: usize,
        target: usize,
        waker: Option<u32>,
    ) -> Event {
        let from = self.threads[thread].cpu;
        if from != target {
            // The move comes first, as in the kernel; then the second step.
            self.threads[thread].cpu = target;
            self.cpus[cpu].todo = Todo::Enqueue {
                thread,
                target,
                waker,
            };
            self.cpus[cpu].time = ts + 200;
            let who = self.threads[thread].party;
            let (from_cpu, to_cpu) = (Some(from as u16), Some(target as u16));
            return Event::Migrate {
                ts,
                cpu: cpu as u16,
                who,
                from_cpu,
                to_cpu,
            };
        }
        self.threads[thread].doing = Behaviour::Busy;
        self.cpus[target].queue.push_back(thread);
        if self.cpus[target].current.is_none() && target != cpu {
            self.cpus[target].time = self.cpus[target].time.min(ts + 1000).max(ts + 1);
        }
        self.wake(ts, cpu, WakeKind::Enqueued, thread, target, waker)
    }

    fn switch(&mut self, ts: i64, cpu: usize, state: State, preempted: Option<bool>) -> Event {
        let idle = Party {
            prio: Some(IDLE_PRIO),
            ..Party::default()
        };
        let next = self.cpus[cpu].queue.pop_front();
        let prev = std::mem::replace(&mut self.cpus[cpu].current, next);
        if let Some(prev) = prev {
            if state == State::Runnable {
                self.cpus[cpu].queue.push_back(prev);
            } else {
                self.threads[prev].doing = Behaviour::Sleeping;
            }
        }
        let party =
            |thread: Option<usize>| thread.map_or(idle, |thread| self.threads[thread].party);
        let preempted = prev.and(preempted);
        Event::Switch {
            ts,
            cpu: cpu as u16,
            prev: party(prev),
            prev_state: if prev.is_none() {
                State::Runnable
            } else {
                state
            },
            preempted,
            next: party(next),
        }
    }
}
