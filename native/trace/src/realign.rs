//! Events of CPUs whose clocks differ, put on one clock and in its order.
//!
//! What a CPU tells stays in its order; its stamps move by a constant. Memory holds the
//! events of as long a time as the clocks are apart.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::error::Result;
use crate::model::event::{Event, EventSink};

/// An event that may have to let others pass, and its new time.
struct Held {
    at: i64,
    number: u64,
    event: Event,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

pub struct Realign<S> {
    sink: S,
    /// By CPU: how much its clock is ahead.
    ahead: Vec<i64>,
    most_ahead: i64,
    /// By CPU, and one for what names none: no event is moved before the last one.
    last: Vec<i64>,
    held: BinaryHeap<Reverse<Held>>,
    number: u64,
    /// Where each thread was last seen to run: for events that name no CPU.
    runs_on: HashMap<u32, u16>,
}

impl<S: EventSink> Realign<S> {
    pub fn new(sink: S, ahead: Vec<i64>) -> Self {
        Self {
            sink,
            most_ahead: ahead.iter().copied().max().unwrap_or(0).max(0),
            last: vec![i64::MIN; ahead.len() + 1],
            ahead,
            held: BinaryHeap::new(),
            number: 0,
            runs_on: HashMap::new(),
        }
    }

    /// Hands on what is left.
    pub fn finish(mut self) -> Result<S> {
        while let Some(Reverse(held)) = self.held.pop() {
            self.sink.event(&held.event)?;
        }
        Ok(self.sink)
    }

    /// The CPU whose clock stamped the event.
    fn stamped_on(&mut self, event: &Event) -> Option<u16> {
        match *event {
            Event::Switch { cpu, ref next, .. } => {
                if next.tid != 0 && !next.idle {
                    self.runs_on.insert(next.tid, cpu);
                }
                Some(cpu)
            }
            Event::QueueLoad { cpu, .. } | Event::Loss { cpu, .. } => cpu,
            Event::Fork { ref parent, .. } => self.runs_on.get(&parent.tid).copied(),
            Event::Exec { tid, .. } | Event::Yield { tid, .. } | Event::Rename { tid, .. } => {
                self.runs_on.get(&tid).copied()
            }
            Event::Exit { ref who, .. } => self.runs_on.get(&who.tid).copied(),
            _ => event.recorded_on(),
        }
    }
}

/// The event `by` ns earlier.
fn earlier(event: &Event, by: i64) -> Event {
    let mut moved = *event;
    match &mut moved {
        Event::Switch { ts, .. }
        | Event::Wakeup { ts, .. }
        | Event::Migrate { ts, .. }
        | Event::Fork { ts, .. }
        | Event::Exec { ts, .. }
        | Event::Exit { ts, .. }
        | Event::Rename { ts, .. }
        | Event::Sleep { ts, .. }
        | Event::Yield { ts, .. }
        | Event::Priority { ts, .. }
        | Event::QueueLoad { ts, .. }
        | Event::QuotaRefill { ts, .. }
        | Event::Lock { ts, .. }
        | Event::DiskRequest { ts, .. }
        | Event::SleepReason { ts, .. }
        | Event::DispatchQueue { ts, .. }
        | Event::Kick { ts, .. }
        | Event::SystemCall { ts, .. }
        | Event::Irq { ts, .. } => *ts = ts.saturating_sub(by),
        Event::Loss {
            ts_begin, ts_end, ..
        } => {
            *ts_begin = ts_begin.saturating_sub(by);
            *ts_end = ts_end.saturating_sub(by);
        }
    }
    moved
}

impl<S: EventSink> EventSink for Realign<S> {
    fn event(&mut self, event: &Event) -> Result<()> {
        let told = match *event {
            // Sent when it ends.
            Event::Irq { ts, dur, .. } => ts.saturating_add(dur),
            _ => event.ts(),
        };
        let cpu = self.stamped_on(event).map(usize::from);
        let cpu = cpu.filter(|&cpu| cpu < self.ahead.len());
        let by = cpu.map_or(0, |cpu| self.ahead[cpu]);
        let last = &mut self.last[cpu.unwrap_or(self.ahead.len())];
        *last = told.saturating_sub(by).max(*last);
        self.held.push(Reverse(Held {
            at: *last,
            number: self.number,
            event: earlier(event, by),
        }));
        self.number += 1;
        // Nothing that comes is moved to an earlier time than this.
        let settled = told.saturating_sub(self.most_ahead);
        while let Some(Reverse(first)) = self.held.peek()
            && first.at < settled
        {
            if let Some(Reverse(held)) = self.held.pop() {
                self.sink.event(&held.event)?;
            }
        }
        Ok(())
    }

    fn progress(&mut self, done: u64, total: u64) -> Result<()> {
        self.sink.progress(done, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::LossReason;

    /// What arrives: CPU, time.
    #[derive(Default)]
    struct Heard(Vec<(u16, i64)>);

    impl EventSink for Heard {
        fn event(&mut self, event: &Event) -> Result<()> {
            let cpu = match *event {
                Event::QueueLoad { cpu, .. } | Event::Loss { cpu, .. } => cpu,
                _ => None,
            };
            self.0.push((cpu.unwrap_or(9), event.ts()));
            Ok(())
        }
        fn progress(&mut self, _: u64, _: u64) -> Result<()> {
            Ok(())
        }
    }

    fn load(cpu: u16, ts: i64) -> Event {
        Event::QueueLoad {
            ts,
            cpu: Some(cpu),
            load: 0,
        }
    }

    fn heard(ahead: &[i64], events: &[Event]) -> Vec<(u16, i64)> {
        let mut realign = Realign::new(Heard::default(), ahead.to_vec());
        for event in events {
            realign.event(event).unwrap();
        }
        realign.finish().unwrap().0
    }

    #[test]
    fn a_clock_that_is_ahead_is_set_back_and_its_events_come_earlier() {
        let events = [
            load(0, 100),
            load(0, 150),
            load(1, 205),
            load(0, 210),
            load(1, 400),
        ];
        assert_eq!(
            heard(&[0, 100], &events),
            [(0, 100), (1, 105), (0, 150), (0, 210), (1, 300)]
        );
        // Behind is ahead the other way.
        assert_eq!(
            heard(&[-100, 0], &events),
            [(0, 200), (1, 205), (0, 250), (0, 310), (1, 400)]
        );
    }

    #[test]
    fn what_one_cpu_tells_stays_in_its_order_whatever_three_clocks_say() {
        let events = [
            load(0, 0),
            load(1, 0),
            load(2, 0),
            load(2, 0),
            load(1, 7),
            load(0, 7),
        ];
        let expected = [(2, -9), (2, -9), (0, 0), (1, 5), (0, 7), (1, 12)];
        assert_eq!(heard(&[0, -5, 9], &events), expected);
    }

    #[test]
    fn a_loss_moves_at_both_ends() {
        let mut realign = Realign::new(Losses::default(), vec![0, 30]);
        let loss = Event::Loss {
            cpu: Some(1),
            ts_begin: 50,
            ts_end: 90,
            count: None,
            reason: LossReason::Overrun,
        };
        realign.event(&loss).unwrap();
        assert_eq!(realign.finish().unwrap().0, [(20, 60)]);
    }

    /// Begin and end of each.
    #[derive(Default)]
    struct Losses(Vec<(i64, i64)>);

    impl EventSink for Losses {
        fn event(&mut self, event: &Event) -> Result<()> {
            if let Event::Loss {
                ts_begin, ts_end, ..
            } = *event
            {
                self.0.push((ts_begin, ts_end));
            }
            Ok(())
        }
        fn progress(&mut self, _: u64, _: u64) -> Result<()> {
            Ok(())
        }
    }
}
