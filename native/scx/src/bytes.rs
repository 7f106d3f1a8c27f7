//! Numbers out of bytes; `None` past their end.

pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn skip(&mut self, n: usize) -> Option<()> {
        self.rest = self.rest.get(n..)?;
        Some(())
    }

    pub fn u16(&mut self) -> Option<u16> {
        let (found, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u16::from_le_bytes(*found))
    }

    pub fn u32(&mut self) -> Option<u32> {
        let (found, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*found))
    }

    pub fn u32s<const N: usize>(&mut self) -> Option<[u32; N]> {
        let mut found = [0; N];
        for one in &mut found {
            *one = self.u32()?;
        }
        Some(found)
    }
}
