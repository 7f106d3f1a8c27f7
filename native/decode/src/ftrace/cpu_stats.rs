//! What a CPU's ring buffer counted.

use crate::ftrace::clock::Clock;

/// What `per_cpu/cpuN/stats` counted, as far as it concerns losses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuStats {
    pub cpu: u16,
    /// Which of the recording's buffers of this CPU: the first has the scheduler's events.
    pub buffer: u8,
    /// Overwritten before they were read: sub-buffers mark the place.
    pub overrun: u64,
    /// Never written: interrupted while the sub-buffer filled, or it was full.
    pub never_written: u64,
    /// In the kernel's buffer at that time.
    pub unread: u64,
    /// Taken out of it before.
    pub read: u64,
    /// Stamps, ns of the trace's clock: where what the buffer held then begins, or the last
    /// sub-buffer that was read; and when it was counted.
    pub oldest: Option<u64>,
    pub now: Option<u64>,
    /// The clock counts something else than ns: its stamps have no point.
    pub ticks: bool,
    /// The file was made to hold a part of what was counted: the last seconds of a ring.
    pub of_a_part: bool,
    /// A counter of lost events, or of those that were written, went below zero. It is taken
    /// for 0, and says nothing.
    pub lost_below_zero: bool,
    pub written_below_zero: bool,
}

/// A counter of the kernel, which is a signed long there and printed as an unsigned one.
fn counter(value: u64, below_zero: &mut bool) -> u64 {
    let negative = i64::try_from(value).is_err();
    *below_zero |= negative;
    if negative { 0 } else { value }
}

/// Seconds with six decimals, as `stats` has stamps of a clock of ns.
fn stamp(text: &str) -> Option<u64> {
    let (seconds, micros) = text.split_once('.')?;
    let nanos = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    (micros.len() == 6)
        .then_some(nanos)?
        .checked_add(micros.parse::<u64>().ok()? * 1_000)
}

impl CpuStats {
    /// Reads the text of a `stats` file; None if it is none.
    pub fn parse(cpu: u16, text: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
            Some(value.trim())
        };
        let find = |name: &str| value(name)?.parse::<u64>().ok();
        find("entries").or(find("overrun"))?;
        let (mut lost_below_zero, mut written_below_zero) = (false, false);
        let mut lost = |name| counter(find(name).unwrap_or(0), &mut lost_below_zero);
        let mut written = |name| counter(find(name).unwrap_or(0), &mut written_below_zero);
        Some(Self {
            cpu,
            buffer: 0,
            overrun: lost("overrun"),
            never_written: lost("commit overrun").saturating_add(lost("dropped events")),
            unread: written("entries"),
            read: written("read events"),
            oldest: value("oldest event ts").and_then(stamp),
            now: value("now ts").and_then(stamp),
            ticks: value("now ts").is_some_and(|text| text.parse::<u64>().is_ok()),
            of_a_part: false,
            lost_below_zero,
            written_below_zero,
        })
    }

    /// The counts of a ring, of which the file holds the last events: what was overwritten lies
    /// before its beginning, and gaps between its sub-buffers are marked there.
    pub fn of_a_ring(self) -> Self {
        Self {
            overrun: 0,
            oldest: None,
            of_a_part: true,
            ..self
        }
    }

    /// Events that were written, neither overwritten nor among the `there` of
    /// the file. A recorder that counts before it saves what the buffer holds
    /// finds them unread; one that counts behind itself finds them read.
    pub fn missing(&self, there: u64) -> u64 {
        if self.of_a_part || self.written_below_zero {
            return 0;
        }
        self.read.saturating_add(self.unread).saturating_sub(there)
    }

    /// Are events missing at an unknown place before the last one of the file? The file reaches as
    /// far as what was read: it was not cut, and lacks something inside.
    pub fn missing_inside(&self, there: u64, clock: &Clock, last: Option<i64>) -> bool {
        let reaches = self.oldest.zip(last);
        self.missing(there) > self.unread
            && !self.missing_first(there)
            && reaches.is_some_and(|(oldest, last)| clock.apply(oldest) <= last)
    }

    /// Are those that are missing the first ones? Another reader took them, if the file has all
    /// that the buffer still held then.
    pub fn missing_first(&self, there: u64) -> bool {
        self.unread > 0 && self.unread == there && self.read > 0
    }
}
