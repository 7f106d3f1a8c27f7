//! The bytes of many CPUs in one unnamed file: one descriptor and little memory,
//! however many CPUs there are.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::error::Result;
use crate::spool::Spool;

/// Bytes of one CPU gathered before they are written.
const BLOCK: usize = 16 << 10;

#[derive(Default, Clone)]
struct Lane {
    gathered: Vec<u8>,
    /// Offset and length of what was written.
    blocks: Vec<(u64, u32)>,
}

/// Takes lines, CPU by CPU.
pub struct Writer {
    spool: Spool,
    lanes: Vec<Lane>,
}

impl Writer {
    pub fn new(ncpu: u16) -> Result<Self> {
        Ok(Self {
            spool: Spool::new()?,
            lanes: vec![Lane::default(); usize::from(ncpu)],
        })
    }

    pub fn write(&mut self, cpu: usize, bytes: &[u8]) -> Result<()> {
        let lane = &mut self.lanes[cpu];
        lane.gathered.extend_from_slice(bytes);
        if lane.gathered.len() >= BLOCK {
            lane.flush(&mut self.spool)?;
        }
        Ok(())
    }

    /// A reader for each CPU that has lines, with how many bytes they are.
    pub fn finish(mut self) -> Result<Vec<(u16, Reader, u64)>> {
        for lane in &mut self.lanes {
            lane.flush(&mut self.spool)?;
        }
        let (file, _) = self.spool.finish()?;
        let file = Arc::new(file);
        let filled = (0..=u16::MAX)
            .zip(self.lanes)
            .filter(|(_, lane)| !lane.blocks.is_empty());
        Ok(filled
            .map(|(cpu, lane)| {
                let size = lane
                    .blocks
                    .iter()
                    .map(|&(_, length)| u64::from(length))
                    .sum();
                let reader = Reader {
                    file: Arc::clone(&file),
                    blocks: lane.blocks.into_iter(),
                    at: 0,
                    left: 0,
                };
                (cpu, reader, size)
            })
            .collect())
    }
}

impl Lane {
    fn flush(&mut self, spool: &mut Spool) -> Result<()> {
        if !self.gathered.is_empty() {
            self.blocks.push((spool.len(), self.gathered.len() as u32));
            spool.write(&self.gathered)?;
            self.gathered.clear();
        }
        Ok(())
    }
}

/// One CPU's bytes, in order; a clone of an unread one reads them once more.
#[derive(Clone)]
pub struct Reader {
    file: Arc<File>,
    blocks: std::vec::IntoIter<(u64, u32)>,
    at: u64,
    left: u32,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let Some((at, length)) = self.blocks.next() else {
                return Ok(0);
            };
            (self.at, self.left) = (at, length);
        }
        let wanted = buffer.len().min(self.left as usize);
        let got = self.file.read_at(&mut buffer[..wanted], self.at)?;
        self.at += got as u64;
        self.left -= got as u32;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_gets_its_own_bytes_back_in_order() {
        let mut writer = Writer::new(u16::MAX).unwrap();
        let mut expected = vec![Vec::new(); 3];
        for number in 0..40_000usize {
            let cpu = number % 7 % 3;
            let line = format!("line {number}\n");
            writer.write(cpu, line.as_bytes()).unwrap();
            expected[cpu].extend_from_slice(line.as_bytes());
        }
        let found = writer.finish().unwrap();
        assert_eq!(found.len(), 3);
        for (cpu, mut reader, size) in found {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            assert_eq!(all, expected[usize::from(cpu)]);
            assert_eq!(size, all.len() as u64);
        }
    }
}
