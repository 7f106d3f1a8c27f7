//! CPU masks as programs see them: words in memory (include/linux/cpumask.h,
//! kernel/bpf/cpumask.c, Linux 6.12).
use schedscope_sim::machine::{Cpu, CpuSet};

use super::fault::Fault;
use super::memory::{Access, Memory, address, split};

/// Masks that a scheduler may have made and not released.
const MOST: u32 = 1 << 16;

pub struct Masks {
    /// The kernel's: idle, idle cores, possible, online, none.
    kernel: u32,
    /// Where that of the first thread is, and how far on the next.
    threads: (u64, u32),
    /// Made by the scheduler.
    own: u32,
    pub ncpu: u32,
    stride: u32,
    /// How often each is held; 0: free.
    held: Vec<u32>,
    free: Vec<u32>,
    /// Where each CPU last took one of several (distribute_cpu_mask_prev).
    last: Vec<u32>,
}

pub const IDLE: u32 = 0;
pub const IDLE_CORES: u32 = 1;
pub const POSSIBLE: u32 = 2;
pub const ONLINE: u32 = 3;
/// One that stays empty.
pub const NONE: u32 = 4;
const OF_KERNEL: usize = 5;

impl Masks {
    /// `threads`: where that of the first one is, and how far on the next.
    pub fn new(memory: &mut Memory, ncpu: usize, threads: (u64, u32)) -> Result<Self, Fault> {
        let stride = (ncpu.div_ceil(64) * 8) as u32;
        let size = stride as usize * OF_KERNEL;
        Ok(Self {
            threads,
            kernel: memory.add("the kernel's CPU masks", size, Access::ReadOnly)?,
            own: memory.add("its CPU masks", 0, Access::ReadOnly)?,
            ncpu: ncpu as u32,
            stride,
            held: Vec::new(),
            free: Vec::new(),
            last: vec![0; ncpu],
        })
    }

    /// The address of one of the kernel's.
    pub fn of_kernel(&self, which: u32) -> u64 {
        address(self.kernel, which * self.stride)
    }

    pub fn of_thread(&self, t: u32) -> u64 {
        let (first, stride) = self.threads;
        first + u64::from(t * stride)
    }

    pub fn words(&self, memory: &Memory, at: u64) -> Result<Vec<u64>, Fault> {
        let bytes = memory.read(at, self.stride as usize)?;
        let words = bytes.as_chunks::<8>().0.iter();
        Ok(words.map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Writes, where the kernel does.
    fn write(&self, memory: &mut Memory, at: u64, words: &[u64]) {
        let (region, offset) = split(at);
        for (i, word) in words.iter().enumerate() {
            memory.put64(region, offset + 8 * i as u32, *word);
        }
    }

    fn words_of(&self, set: &CpuSet) -> Vec<u64> {
        let mut words = vec![0; self.stride as usize / 8];
        for c in set.iter() {
            words[c as usize / 64] |= 1 << (c % 64);
        }
        words
    }

    pub fn set(&self, memory: &mut Memory, which: u32, set: &CpuSet) {
        self.write(memory, self.of_kernel(which), &self.words_of(set));
    }

    /// Whether it was another one.
    pub fn set_thread(&self, memory: &mut Memory, t: u32, set: &CpuSet) -> bool {
        let (at, words) = (self.of_thread(t), self.words_of(set));
        let changed = self.words(memory, at).is_ok_and(|old| old != words);
        if changed {
            self.write(memory, at, &words);
        }
        changed
    }

    pub fn has(&self, memory: &Memory, which: u32, c: Cpu) -> bool {
        let at = which * self.stride + u32::from(c) / 64 * 8;
        memory.get64(self.kernel, at) >> (c % 64) & 1 == 1
    }

    pub fn put(&self, memory: &mut Memory, which: u32, c: Cpu, there: bool) {
        let at = which * self.stride + u32::from(c) / 64 * 8;
        let word = memory.get64(self.kernel, at);
        let bit = 1 << (c % 64);
        let word = if there { word | bit } else { word & !bit };
        memory.put64(self.kernel, at, word);
    }

    pub fn is_empty(&self, memory: &Memory, which: u32) -> bool {
        let words = (0..self.stride).step_by(8);
        words
            .into_iter()
            .all(|at| memory.get64(self.kernel, which * self.stride + at) == 0)
    }

    /// One of the CPUs in both, another one each time (cpumask_any_and_distribute).
    pub fn any_and(&mut self, here: Cpu, a: &[u64], b: &[u64]) -> Option<Cpu> {
        let n = self.ncpu;
        let last = &mut self.last[here as usize];
        let from = *last + 1;
        let both = |c: u32| {
            let (word, bit) = (c as usize / 64, c % 64);
            (a[word] & b[word]) >> bit & 1 == 1
        };
        let found = (0..n).map(|i| (from + i) % n).find(|c| both(*c))?;
        *last = found;
        Some(found as Cpu)
    }

    // ---- the scheduler's own ----------------------------------------------

    /// 0 if there can be no more.
    pub fn create(&mut self, memory: &mut Memory) -> Result<u64, Fault> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.held.len() as u32 >= MOST => return Ok(0),
            None => {
                let number = self.held.len() as u32;
                memory.grow(self.own, ((number + 1) * self.stride) as usize)?;
                self.held.push(0);
                number
            }
        };
        self.held[number as usize] = 1;
        let at = address(self.own, number * self.stride);
        self.write(memory, at, &vec![0; self.stride as usize / 8]);
        Ok(at)
    }

    fn number(&self, at: u64) -> Result<usize, Fault> {
        let (region, offset) = split(at);
        let number = (offset / self.stride) as usize;
        let there = region == self.own && offset % self.stride == 0;
        if there && self.held.get(number).is_some_and(|n| *n > 0) {
            return Ok(number);
        }
        Err(Fault::new(format!(
            "gives {at:#x} as a CPU mask of its own"
        )))
    }

    pub fn acquire(&mut self, at: u64) -> Result<u64, Fault> {
        let number = self.number(at)?;
        self.held[number] = self.held[number].saturating_add(1);
        Ok(at)
    }

    pub fn release(&mut self, at: u64) -> Result<(), Fault> {
        let number = self.number(at)?;
        self.held[number] -= 1;
        if self.held[number] == 0 {
            self.free.push(number as u32);
        }
        Ok(())
    }

    /// Writes into one that it has made, or that is among its variables.
    pub fn write_own(&self, memory: &mut Memory, at: u64, words: &[u64]) -> Result<(), Fault> {
        if split(at).0 != self.own {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            return memory.write_from(at, &bytes);
        }
        self.number(at)?;
        self.write(memory, at, words);
        Ok(())
    }
}
