//! Clocks of a Perfetto trace. Ours is the boot clock, which traced makes
//! ftrace use; older kernels' ftrace clocks are brought to it.

use super::wire::Fields;

pub const REALTIME: u32 = 1;
pub const MONOTONIC: u32 = 3;
pub const MONOTONIC_RAW: u32 = 5;
pub const BOOTTIME: u32 = 6;

/// Readings of several clocks at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot(Vec<(u32, i64)>);

impl Snapshot {
    pub fn get(&self, clock: u32) -> Option<i64> {
        self.0
            .iter()
            .find(|(id, _)| *id == clock)
            .map(|(_, ts)| *ts)
    }
}

#[derive(Debug, Default)]
pub struct Clocks {
    pub first: Option<Snapshot>,
    pub last: Option<Snapshot>,
}

impl Clocks {
    /// ClockSnapshot: clocks = 1 {clock_id = 1, timestamp = 2, unit = 4}.
    pub fn snapshot(&mut self, bytes: &[u8]) {
        let mut snapshot = Snapshot::default();
        for (_, clock) in Fields::new(bytes).filter(|&(number, _)| number == 1) {
            let (mut id, mut ts, mut unit) = (0, 0, 1);
            for (number, value) in Fields::new(clock.bytes()) {
                match number {
                    1 => id = value.number(),
                    2 => ts = value.signed(),
                    4 => unit = value.signed().max(1),
                    _ => {}
                }
            }
            if let Ok(id) = u32::try_from(id) {
                snapshot.0.push((id, ts.saturating_mul(unit)));
            }
        }
        if snapshot.get(BOOTTIME).is_some() {
            self.first.get_or_insert_with(|| snapshot.clone());
            self.last = Some(snapshot);
        }
    }

    /// What must be added to `clock` to get boot time.
    pub fn to_boot(&self, clock: u32) -> Option<i64> {
        let snapshot = self.first.as_ref()?;
        snapshot.get(BOOTTIME)?.checked_sub(snapshot.get(clock)?)
    }
}
