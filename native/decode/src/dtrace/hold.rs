//! Events that wait for a later line to complete them, without losing order.
//!
//! FreeBSD reports the CPU of a wakeup only in the load-change that follows, and only the `enqueue`
//! that follows confirms a `wakeup`. Such an event keeps its place in the order; later events wait
//! until it is settled.

use std::collections::VecDeque;

use crate::error::Result;
use crate::model::event::{Event, EventSink};

/// At most so many events wait. What settles an event comes within
/// microseconds; only a lost line leaves one unsettled.
const LIMIT: usize = 1 << 14;

enum Slot {
    Ready(Event),
    /// Not settled; `true`: worth sending as it is.
    Waiting(Event, bool),
    Dropped,
}

/// The name of a place in the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

#[derive(Default)]
pub struct Hold {
    row: VecDeque<Slot>,
    /// Number of the slot at the front.
    first: u64,
}

impl Hold {
    /// Sends `event` after all that came before it.
    #[inline]
    pub fn send(&mut self, event: Event, sink: &mut dyn EventSink) -> Result<()> {
        if self.row.is_empty() {
            return sink.event(&event);
        }
        self.row.push_back(Slot::Ready(event));
        if self.row.len() > LIMIT {
            // Its line never came: go without.
            if let Some(front) = self.row.front_mut() {
                *front = match std::mem::replace(front, Slot::Dropped) {
                    Slot::Waiting(event, true) => Slot::Ready(event),
                    Slot::Waiting(_, false) => Slot::Dropped,
                    other => other,
                };
            }
            self.flush(sink)?;
        }
        Ok(())
    }

    /// Keeps a place for `event` until it is settled. `alone`: it is sent even
    /// if it never is.
    pub fn wait(&mut self, event: Event, alone: bool) -> Ticket {
        self.row.push_back(Slot::Waiting(event, alone));
        Ticket(self.first + self.row.len() as u64 - 1)
    }

    /// Settles a waiting event: `complete` changes it and says whether it is
    /// to be sent at all.
    pub fn settle(
        &mut self,
        ticket: Ticket,
        sink: &mut dyn EventSink,
        complete: impl FnOnce(&mut Event) -> bool,
    ) -> Result<()> {
        let slot = ticket
            .0
            .checked_sub(self.first)
            .and_then(|n| self.row.get_mut(n as usize));
        if let Some(slot) = slot
            && let Slot::Waiting(mut event, _) = *slot
        {
            *slot = if complete(&mut event) {
                Slot::Ready(event)
            } else {
                Slot::Dropped
            };
        }
        self.flush(sink)
    }

    fn flush(&mut self, sink: &mut dyn EventSink) -> Result<()> {
        while let Some(front) = self.row.front() {
            match front {
                Slot::Waiting(..) => break,
                Slot::Ready(event) => sink.event(event)?,
                Slot::Dropped => {}
            }
            self.row.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    /// Sends everything, settled or not.
    pub fn finish(&mut self, sink: &mut dyn EventSink) -> Result<()> {
        while let Some(slot) = self.row.pop_front() {
            self.first += 1;
            if let Slot::Ready(event) | Slot::Waiting(event, true) = slot {
                sink.event(&event)?;
            }
        }
        Ok(())
    }
}
