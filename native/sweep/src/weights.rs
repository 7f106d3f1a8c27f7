//! Class and weight of a thread at each priority, as analysis/weights.py defines them.

/// Positions in the table of weights: 0 to 39 are Linux's prio 100 to 139.
pub const LEVELS: usize = 42;
const FAIR: std::ops::Range<i32> = 0..40;
const IDLE: u16 = 40;
pub const EQUAL: u16 = 41;
const FIRST: i32 = 100;

/// What is known of the threads.
pub struct Weights {
    /// By level.
    pub table: [i64; LEVELS],
    /// Priorities show Linux's nice levels.
    pub linux: bool,
    /// By utid: number of the class, last known priority, and whether it is of SCHED_IDLE;
    /// the last row stands for threads that are not listed.
    pub class: Vec<u8>,
    pub prio: Vec<Option<i16>>,
    pub is_idle: Vec<bool>,
    pub fair: u8,
    pub realtime: u8,
}

/// Classes that a tag can distinguish.
pub const CLASSES: usize = 1 << 7;

/// Class and level as one number.
pub fn tag(class: u8, level: u16) -> u16 {
    (u16::from(class) % CLASSES as u16) << 6 | level
}

pub fn class_of(tag: u16) -> usize {
    usize::from(tag >> 6)
}

pub fn level_of(tag: u16) -> usize {
    usize::from(tag & 63).min(LEVELS - 1)
}

impl Weights {
    #[inline]
    pub fn tag(&self, utid: u32, prio: Option<i16>) -> u16 {
        let who = (utid as usize).min(self.class.len() - 1);
        let class = self.class[who];
        if !self.linux {
            return tag(class, EQUAL);
        }
        match prio.or(self.prio[who]) {
            Some(prio) if FAIR.contains(&(i32::from(prio) - FIRST)) => {
                let level = (i32::from(prio) - FIRST) as u16;
                tag(self.fair, if self.is_idle[who] { IDLE } else { level })
            }
            // A thread may be lent a real-time priority for a while, or change its class.
            Some(_) if class == self.fair => tag(self.realtime, EQUAL),
            _ => tag(class, EQUAL),
        }
    }
}

impl Weights {
    /// All threads are of one class, and weigh the same.
    pub fn equal() -> Self {
        Self {
            table: [1024; LEVELS],
            linux: false,
            class: vec![0],
            prio: vec![None],
            is_idle: vec![false],
            fair: 0,
            realtime: 0,
        }
    }
}
