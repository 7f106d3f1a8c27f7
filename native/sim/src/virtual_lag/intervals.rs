//! The table of states, row by row: what each says that its thread does.
use super::FairThread;
use crate::error::{Error, Result};
use crate::model::event::End;
use crate::states::{NOWHERE, RUNNABLE, Want, each};
use crate::store::Source;
use crate::sweep::weights::{EQUAL, Weights, class_of, level_of};

/// Codes of what a row says that its thread does; `QueueState` has the words. The two lowest bits
/// are never both set: `sweep::list` asks for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Running = 0,
    Waiting = 1,
    Unplaced = 2,
    Elsewhere = 4,
    Asleep = 5,
    Off = 6,
    Unknown = 8,
    /// Nothing that is known: the window closed the row before.
    Closed = 9,
}

impl What {
    /// By the code of `State`, in the order of the trace model, of a fair thread whose CPU is
    /// known.
    const FAIR: [Self; 8] = [
        Self::Running,
        Self::Waiting,
        Self::Asleep,
        Self::Asleep,
        Self::Off,
        Self::Off,
        Self::Off,
        Self::Unknown,
    ];

    /// By its code, in four bits.
    const CODES: [Self; 16] = {
        let mut codes = [Self::Closed; 16];
        let all = [
            Self::Running,
            Self::Waiting,
            Self::Unplaced,
            Self::Elsewhere,
            Self::Asleep,
            Self::Off,
            Self::Unknown,
        ];
        let mut i = 0;
        while i < all.len() {
            codes[all[i] as usize] = all[i];
            i += 1;
        }
        codes
    };

    /// A state is as good as random from row to row: no branch depends on it alone, which
    /// would be foreseen badly.
    #[inline]
    pub fn new(state: u8, fair: bool, cpu: u16) -> Self {
        let competes = state <= RUNNABLE;
        if competes & !fair {
            Self::Elsewhere
        } else if competes & (cpu == NOWHERE) {
            Self::Unplaced
        } else {
            Self::FAIR[usize::from(state.min(7))]
        }
    }
}

/// What a thread does, on whose queue, and the level of its weight.
#[derive(Debug, Clone, Copy)]
pub struct Does {
    pub cpu: u16,
    pub level: u8,
    pub what: What,
}

impl Does {
    pub fn nothing(what: What) -> Self {
        Self {
            cpu: NOWHERE,
            level: 0,
            what,
        }
    }

    /// As the word of a change.
    #[inline]
    pub fn pack(self) -> u32 {
        self.what as u32 | u32::from(self.level) << 8 | u32::from(self.cpu) << 16
    }

    #[inline]
    pub fn unpack(word: u32) -> Self {
        Self {
            cpu: (word >> 16) as u16,
            level: (word >> 8) as u8,
            what: What::CODES[(word & 15) as usize],
        }
    }

    /// It is on a queue.
    #[inline]
    pub fn is_placed(self) -> bool {
        matches!(self.what, What::Running | What::Waiting)
    }
}

/// The table of states, and what is needed to read it.
pub struct Table<'a> {
    pub rows: &'a Source<'a>,
    pub known: &'a [FairThread],
    pub weights: &'a Weights,
    /// By the number of a class, whether it shares by weight as the fair one does.
    pub fair: &'a [bool],
    /// Threads below are left out.
    pub idle: u32,
}

/// One row of it.
pub struct Interval {
    pub ts: i64,
    pub end: i64,
    pub utid: u32,
    pub does: Does,
    /// The window closed it, nothing that happened.
    pub open: bool,
    /// Its weight is an assumption.
    pub assumed: bool,
}

/// What its priority makes of a thread; few ever change it.
#[derive(Debug, Clone, Copy)]
struct Rank {
    prio: Option<i16>,
    level: u8,
    fair: bool,
}

impl Table<'_> {
    fn rank(&self, utid: u32, prio: Option<i16>) -> Rank {
        let tag = self.weights.tag(utid, prio);
        Rank {
            prio,
            level: level_of(tag) as u8,
            fair: self.fair.get(class_of(tag)).copied().unwrap_or(false),
        }
    }

    /// Calls `take` with every row but those of idle threads, in the order of the table.
    #[inline]
    pub fn each(&self, mut take: impl FnMut(Interval) -> Result<()>) -> Result<()> {
        let known = (0..).zip(self.known);
        let mut ranks: Vec<Option<Rank>> = known
            .map(|(utid, known)| known.listed.then(|| self.rank(utid, None)))
            .collect();
        let want = Want {
            prio: true,
            end: true,
            ..Want::CPU
        };
        for batch in self.rows.batches() {
            let batch = batch?;
            each(&batch, 0, want, |row| {
                if row.utid < self.idle {
                    return Ok(());
                }
                let Some(Some(rank)) = ranks.get_mut(row.utid as usize) else {
                    return Err(stranger(row.utid));
                };
                if rank.prio != row.prio {
                    *rank = self.rank(row.utid, row.prio);
                }
                take(Interval {
                    ts: row.ts,
                    end: row.until,
                    utid: row.utid,
                    does: Does {
                        cpu: row.cpu,
                        level: rank.level,
                        what: What::new(row.state, rank.fair, row.cpu),
                    },
                    open: row.end == End::Window as u8,
                    assumed: u16::from(rank.level) == EQUAL,
                })
            })?;
        }
        Ok(())
    }
}

#[cold]
fn stranger(utid: u32) -> Error {
    Error::format(
        format!("a state of thread {utid}, which the table of threads does not have"),
        "every thread in that table",
        "convert the trace again",
    )
}
