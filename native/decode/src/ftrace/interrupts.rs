//! Interrupt handlers of one CPU, from where they are entered to where they are left.

use crate::model::event::{Event, IrqKind};

/// More than a few deep is damage.
const DEPTH_MAX: usize = 16;

/// Handlers entered and not left, the innermost last.
#[derive(Debug, Default, Clone)]
pub struct OpenInterrupts(Vec<(IrqKind, u32, i64)>);

impl OpenInterrupts {
    pub fn enter(&mut self, kind: IrqKind, id: u32, ts: i64) {
        if self.0.len() >= DEPTH_MAX {
            self.0.remove(0);
        }
        self.0.push((kind, id, ts));
    }

    /// The handler's time, if its entry was seen. What was entered within it
    /// and not left is forgotten.
    pub fn leave(&mut self, kind: IrqKind, id: u32, ts: i64, cpu: u16) -> Option<Event> {
        let at = self.0.iter().rposition(|&(k, i, _)| (k, i) == (kind, id))?;
        let begin = self.0[at].2;
        self.0.truncate(at);
        // A clock that went back is no time in a handler.
        let dur = ts.checked_sub(begin).filter(|&dur| dur >= 0)?;
        Some(Event::Irq {
            ts: begin,
            cpu,
            kind,
            id,
            dur,
        })
    }

    /// Is a handler running, of those that count?
    pub fn any(&self, counts: impl Fn(IrqKind) -> bool) -> bool {
        self.0.iter().any(|&(kind, ..)| counts(kind))
    }

    /// A hole in the trace: who left in it is not known.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}
