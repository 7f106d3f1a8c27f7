//! What a CPU's ring buffer counted.

/// What `per_cpu/cpuN/stats` counted, as far as it concerns losses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuStats {
    pub cpu: u16,
    /// Overwritten before they were read: sub-buffers mark the place.
    pub overrun: u64,
    /// Never written: interrupted while the sub-buffer filled, or it was full.
    pub never_written: u64,
    /// In the kernel's buffer at that time.
    pub unread: u64,
    /// Taken out of it before.
    pub read: u64,
}

impl CpuStats {
    /// Reads the text of a `stats` file; None if it is none.
    pub fn parse(cpu: u16, text: &str) -> Option<Self> {
        let find = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| key.trim() == name)
                .and_then(|(_, value)| value.trim().parse::<u64>().ok())
        };
        let count = |name| find(name).unwrap_or(0);
        find("entries").or(find("overrun"))?;
        Some(Self {
            cpu,
            overrun: count("overrun"),
            never_written: count("commit overrun").saturating_add(count("dropped events")),
            unread: count("entries"),
            read: count("read events"),
        })
    }

    /// Events that were written, neither overwritten nor among the `there` of
    /// the file. A recorder that counts before it saves what the buffer holds
    /// finds them unread; one that counts behind itself finds them read.
    pub fn missing(&self, there: u64) -> u64 {
        self.read.saturating_add(self.unread).saturating_sub(there)
    }

    /// Are those that are missing the first ones? Somebody else has read them,
    /// if what the buffer still held then is all in the file.
    pub fn missing_first(&self, there: u64) -> bool {
        self.unread > 0 && self.unread == there && self.read > 0
    }
}
