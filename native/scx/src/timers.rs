//! Timers in maps (bpf_timer_init, bpf_timer_set_callback, bpf_timer_start and bpf_timer_cancel of
//! kernel/bpf/helpers.c, Linux 6.12). They fire in simulated time, on the CPU that started them.
use rustc_hash::FxHashMap;
use schedscope_sim::machine::Cpu;

use super::fault::Fault;

/// Bytes of a `struct bpf_timer`.
pub const SIZE: u32 = 16;
/// Timers that a scheduler may have.
const MOST: usize = 1 << 16;
/// One that starts itself again at once would let no time pass.
pub const SOONEST: i64 = 1_000;

const EINVAL: i64 = -22;
const EBUSY: i64 = -16;
const EDEADLK: i64 = -35;

#[derive(Debug, Clone)]
pub struct Timer {
    /// Of its `struct bpf_timer`, and the number of its map.
    pub at: u64,
    pub map: u32,
    pub callback: u64,
    pub cpu: Cpu,
    armed: bool,
}

#[derive(Debug, Default)]
pub struct Timers {
    all: Vec<Timer>,
    by_address: FxHashMap<u64, u32>,
    /// The one whose callback runs.
    pub running: Option<u32>,
    /// Region for the index that the callback of a timer in an array gets.
    pub key: u32,
}

impl Timers {
    pub fn init(&mut self, at: u64, map: u32, flags: u64) -> Result<i64, Fault> {
        // CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME
        if !matches!(flags, 0 | 1 | 7) {
            return Ok(EINVAL);
        }
        if self.by_address.contains_key(&at) {
            return Ok(EBUSY);
        }
        if self.all.len() >= MOST {
            return Err(Fault::new(format!("has more than {MOST} timers")));
        }
        self.by_address.insert(at, self.all.len() as u32);
        self.all.push(Timer {
            at,
            map,
            callback: 0,
            cpu: 0,
            armed: false,
        });
        Ok(0)
    }

    fn get(&mut self, at: u64) -> Option<(u32, &mut Timer)> {
        let number = *self.by_address.get(&at)?;
        Some((number, &mut self.all[number as usize]))
    }

    pub fn set_callback(&mut self, at: u64, callback: u64) -> i64 {
        match self.get(at) {
            Some((_, timer)) => {
                timer.callback = callback;
                0
            }
            None => EINVAL,
        }
    }

    /// The number of the timer, which is to fire; an error of the kernel's else.
    pub fn start(&mut self, at: u64, flags: u64, here: Cpu) -> Result<u32, i64> {
        // BPF_F_TIMER_ABS, BPF_F_TIMER_CPU_PIN
        let Some((number, timer)) = self.get(at).filter(|_| flags <= 3) else {
            return Err(EINVAL);
        };
        if timer.callback == 0 {
            return Err(EINVAL);
        }
        (timer.armed, timer.cpu) = (true, here);
        Ok(number)
    }

    /// The number of the timer if it was to fire.
    pub fn cancel(&mut self, at: u64) -> Result<Option<u32>, i64> {
        let running = self.running;
        match self.get(at) {
            None => Err(EINVAL),
            Some((number, _)) if running == Some(number) => Err(EDEADLK),
            Some((number, timer)) => Ok(std::mem::take(&mut timer.armed).then_some(number)),
        }
    }

    /// Its element is gone.
    pub fn forget(&mut self, at: u64) {
        if let Some(number) = self.by_address.remove(&at) {
            self.all[number as usize].armed = false;
        }
    }

    /// What fires as number `number`.
    pub fn fire(&mut self, number: u32) -> Option<Timer> {
        let timer = self.all.get_mut(number as usize)?;
        std::mem::take(&mut timer.armed).then(|| timer.clone())
    }
}
