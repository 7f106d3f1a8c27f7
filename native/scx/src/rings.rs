//! Ring buffers (kernel/bpf/ringbuf.c, Linux 6.12). The scheduler's own half is not run: a record
//! counts as read as soon as all those before it are handed over, and what it says goes nowhere.
use super::fault::Fault;
use super::memory::{Memory, address};

/// BPF_RINGBUF_HDR_SZ
const HEAD: u32 = 8;

#[derive(Debug, Default)]
pub struct Ring {
    /// Records that a program has reserved and not handed over: where their data begin.
    open: Vec<u32>,
    /// Bytes taken since the last time that none was open, and before that.
    taken: u32,
    before: u64,
}

impl Ring {
    /// Room for `size` bytes in the ring of `room` bytes; 0 if it has none.
    pub fn reserve(&mut self, region: u32, room: u32, size: u64) -> u64 {
        let Some(size) = u32::try_from(size).ok().filter(|size| *size <= room - HEAD) else {
            return 0;
        };
        let needs = (size + HEAD).next_multiple_of(8);
        if needs > room - self.taken {
            return 0;
        }
        let at = self.taken + HEAD;
        self.taken += needs;
        self.open.push(at);
        address(region, at)
    }

    /// Hands over or discards the record at `at`.
    pub fn done(&mut self, at: u32) -> Result<(), Fault> {
        let Some(found) = self.open.iter().position(|open| *open == at) else {
            return Err(Fault::new("hands over what is no record of a ring buffer"));
        };
        self.open.swap_remove(found);
        if self.open.is_empty() {
            self.before += u64::from(self.taken);
            self.taken = 0;
        }
        Ok(())
    }

    /// bpf_ringbuf_output
    pub fn output(
        &mut self,
        m: &mut Memory,
        (region, room): (u32, u32),
        bytes: &[u8],
    ) -> Result<bool, Fault> {
        let to = self.reserve(region, room, bytes.len() as u64);
        if to == 0 {
            return Ok(false);
        }
        m.write_from(to, bytes)?;
        self.done(to as u32)?;
        Ok(true)
    }

    /// bpf_ringbuf_query
    pub fn query(&self, room: u32, what: u64) -> u64 {
        match what {
            0 => self.taken.into(),
            1 => room.into(),
            2 => self.before,
            3 => self.before + u64::from(self.taken),
            _ => 0,
        }
    }
}
