//! The addresses that an object's programs see: a number of a region and an offset into it, so
//! that no address leads anywhere else. Every access is checked.
use super::arena::{self, Arena};
use super::fault::Fault;

/// Of the address of a map, of a program, of a kfunc and of a variable that each CPU has: there is
/// nothing to read there.
pub const MAPS: u32 = 0x7fff_0000;
pub const CODE: u32 = 0x7fff_0001;
pub const KFUNCS: u32 = 0x7fff_0002;
pub const PER_CPU: u32 = 0x7fff_0003;

/// What an object may take in all.
pub const LIMIT: usize = 256 << 20;

/// Where programs may write.
#[derive(Debug, Clone)]
pub enum Access {
    ReadOnly,
    Write,
    /// Into these (offset, length) of each element of `stride` bytes.
    Fields {
        stride: u32,
        fields: Vec<(u32, u32)>,
    },
}

#[derive(Debug, Clone)]
pub struct Region {
    pub name: String,
    pub bytes: Vec<u8>,
    pub access: Access,
}

#[derive(Debug, Default)]
pub struct Memory {
    regions: Vec<Region>,
    taken: usize,
    /// Where pointers of 32 bits lead, of objects that have one.
    arena: Option<Arena>,
}

pub fn address(region: u32, offset: u32) -> u64 {
    u64::from(region) << 32 | u64::from(offset)
}

pub fn split(address: u64) -> (u32, u32) {
    ((address >> 32) as u32, address as u32)
}

/// The number of 1, 2, 4 or 8 bytes that `bytes` begin with.
#[inline(always)]
pub fn word(bytes: &[u8], size: usize) -> Option<u64> {
    Some(match size {
        1 => u64::from(*bytes.first()?),
        2 => u64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
        4 => u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
        _ => u64::from_le_bytes(*bytes.first_chunk()?),
    })
}

/// Whether there was room for it.
#[inline(always)]
pub fn put_word(bytes: &mut [u8], size: usize, value: u64) -> bool {
    let Some(to) = bytes.get_mut(..size) else {
        return false;
    };
    match size {
        1 => to[0] = value as u8,
        2 => to.copy_from_slice(&(value as u16).to_le_bytes()),
        4 => to.copy_from_slice(&(value as u32).to_le_bytes()),
        _ => to.copy_from_slice(&value.to_le_bytes()),
    }
    true
}

impl Memory {
    /// Adds a region; its number, from 1: address 0 is none.
    pub fn add(&mut self, name: &str, size: usize, access: Access) -> Result<u32, Fault> {
        self.take(name, size)?;
        self.regions.push(Region {
            name: name.into(),
            bytes: vec![0; size],
            access,
        });
        Ok(self.regions.len() as u32)
    }

    fn take(&mut self, name: &str, size: usize) -> Result<(), Fault> {
        self.taken = self.taken.saturating_add(size);
        if self.taken > LIMIT {
            return Err(Fault::new(format!(
                "wants {size} bytes for {name}, and more than {} MB in all",
                LIMIT >> 20
            )));
        }
        Ok(())
    }

    /// Makes a region longer; addresses stay.
    pub fn grow(&mut self, region: u32, to: usize) -> Result<(), Fault> {
        let (name, now) = {
            let region = self.region(region);
            (region.name.clone(), region.bytes.len())
        };
        if to > now {
            self.take(&name, to - now)?;
            self.bytes_mut(region).resize(to, 0);
        }
        Ok(())
    }

    /// The arena, from now on.
    pub fn arena_mut(&mut self) -> &mut Arena {
        self.arena.get_or_insert_default()
    }

    /// Variables of an arena, whose other pages follow; the page where they begin.
    pub fn add_to_arena(&mut self, bytes: &[u8], size: usize) -> Result<u32, Fault> {
        if size > LIMIT {
            self.take("variables in the arena", size)?;
        }
        let pages = size.div_ceil(arena::PAGE) as u32;
        let arena = self.arena_mut();
        arena.limit(u32::MAX);
        let first = arena.find(0, pages).0.unwrap_or_default();
        self.take_pages(first, pages)?;
        let at = arena::address_of(first) as u32;
        for (n, part) in bytes[..bytes.len().min(size)]
            .chunks(arena::PAGE)
            .enumerate()
        {
            let at = at.wrapping_add((n * arena::PAGE) as u32);
            self.arena_mut().store(at, part);
        }
        Ok(first)
    }

    /// Takes pages of the arena, from `first` on: they are free.
    pub fn take_pages(&mut self, first: u32, pages: u32) -> Result<(), Fault> {
        let room = self.arena_mut().room_for(pages);
        self.take("the arena", room)?;
        self.arena_mut().take(first, pages);
        Ok(())
    }

    pub fn region(&self, region: u32) -> &Region {
        &self.regions[region as usize - 1]
    }

    pub fn bytes_mut(&mut self, region: u32) -> &mut Vec<u8> {
        &mut self.regions[region as usize - 1].bytes
    }

    #[cold]
    fn missing(&self, at: u64, size: usize, doing: &str) -> Fault {
        let (region, offset) = split(at);
        let found = (region as usize).checked_sub(1);
        match found.and_then(|region| self.regions.get(region)) {
            None => Fault::new(format!("{doing} {size} bytes at {at:#x}, where nothing is")),
            Some(found) => Fault::new(format!(
                "{doing} {size} bytes at offset {} of {}, which has {} bytes",
                i64::from(offset as i32),
                found.name,
                found.bytes.len()
            )),
        }
    }

    fn find(&self, at: u64, size: usize, doing: &str) -> Result<(usize, usize), Fault> {
        let (region, start) = (split(at).0 as usize, split(at).1 as usize);
        let number = region.wrapping_sub(1);
        match self.regions.get(number) {
            Some(found) if start + size <= found.bytes.len() => Ok((number, start)),
            _ => Err(self.missing(at, size, doing)),
        }
    }

    /// What programs read. Through a pointer that is null they read 0, as the kernel has it for
    /// pointers of the kernel's own (BPF_PROBE_MEM); others its verifier has programs check.
    #[inline]
    pub fn load(&self, at: u64, size: usize) -> Result<u64, Fault> {
        let (region, start) = split(at);
        let found = self.regions.get((region as usize).wrapping_sub(1));
        let found = found.and_then(|found| found.bytes.get(start as usize..));
        match found.and_then(|bytes| word(bytes, size)) {
            Some(word) => Ok(word),
            None => self.load_elsewhere(at, size),
        }
    }

    fn load_elsewhere(&self, at: u64, size: usize) -> Result<u64, Fault> {
        if at >> 32 == 0 {
            if let Some(arena) = &self.arena {
                return Ok(arena.load(at as u32, size));
            }
            if at < 1 << 16 {
                return Ok(0);
            }
        }
        self.find(at, size, "reads").map(|_| 0)
    }

    /// What programs write.
    #[inline]
    pub fn store(&mut self, at: u64, size: usize, value: u64) -> Result<(), Fault> {
        let (region, start) = split(at);
        let found = self.regions.get_mut((region as usize).wrapping_sub(1));
        if let Some(found) = found
            && matches!(found.access, Access::Write)
            && let Some(bytes) = found.bytes.get_mut(start as usize..)
            && put_word(bytes, size, value)
        {
            return Ok(());
        }
        self.store_elsewhere(at, size, value)
    }

    fn store_elsewhere(&mut self, at: u64, size: usize, value: u64) -> Result<(), Fault> {
        let bytes = &value.to_le_bytes()[..size];
        match &mut self.arena {
            Some(arena) if at >> 32 == 0 => {
                arena.store(at as u32, bytes);
                Ok(())
            }
            _ => self.write_from(at, bytes),
        }
    }

    /// Bytes that a program hands over.
    pub fn read(&self, at: u64, size: usize) -> Result<&[u8], Fault> {
        let (region, start) = self.find(at, size, "reads")?;
        Ok(&self.regions[region].bytes[start..start + size])
    }

    /// The text at `at` up to its end, or 256 bytes of it.
    pub fn text(&self, at: u64) -> Result<String, Fault> {
        let (region, start) = self.find(at, 1, "reads")?;
        let bytes = &self.regions[region].bytes[start..];
        let end = bytes.iter().take(256).position(|b| *b == 0);
        let text = &bytes[..end.unwrap_or(bytes.len().min(256))];
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Writes for a program, where it may.
    pub fn write_from(&mut self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let size = bytes.len();
        let (number, start) = self.find(at, size, "writes")?;
        let region = &mut self.regions[number];
        let may = match &region.access {
            Access::Write => true,
            Access::ReadOnly => false,
            Access::Fields { stride, fields } => {
                let within = start % *stride as usize;
                let inside = |(from, length): &(u32, u32)| {
                    within >= *from as usize && within + size <= (*from + *length) as usize
                };
                fields.iter().any(inside)
            }
        };
        if !may {
            return Err(Fault::new(format!(
                "writes {size} bytes at offset {start} of {}, which it may only read",
                region.name
            )));
        }
        region.bytes[start..start + size].copy_from_slice(bytes);
        Ok(())
    }

    // The kernel's own side: to places that are there.

    pub fn get32(&self, region: u32, at: u32) -> u32 {
        let bytes = &self.region(region).bytes[at as usize..at as usize + 4];
        bytes.try_into().map_or(0, u32::from_le_bytes)
    }

    pub fn get64(&self, region: u32, at: u32) -> u64 {
        let bytes = &self.region(region).bytes[at as usize..at as usize + 8];
        bytes.try_into().map_or(0, u64::from_le_bytes)
    }

    pub fn put(&mut self, region: u32, at: u32, bytes: &[u8]) {
        self.bytes_mut(region)[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    pub fn put32(&mut self, region: u32, at: u32, value: u32) {
        self.put(region, at, &value.to_le_bytes());
    }

    pub fn put64(&mut self, region: u32, at: u32, value: u64) {
        self.put(region, at, &value.to_le_bytes());
    }
}
