//! A checked walk over little-endian bytes: past the end is `None`, never a panic.

use crate::error::Error;

/// What is left of a block.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|b| u32_at(b, 0))
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|b| u64_at(b, 0))
    }

    /// A count of bytes that must still be there.
    pub fn len32(&mut self) -> Option<usize> {
        self.u32()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|&n| n <= self.0.len())
    }

    pub fn len64(&mut self) -> Option<usize> {
        self.u64()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|&n| n <= self.0.len())
    }

    /// Bytes up to a NUL, which is skipped.
    pub fn c_str(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&b| b == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }

    /// perf's own string: u32 length with padding, then text ending at a NUL.
    pub fn perf_string(&mut self) -> Option<String> {
        let len = self.len32()?;
        let bytes = self.take(len)?;
        Some(text(bytes))
    }
}

/// The text before the first NUL.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u16::from_le_bytes(*b))
}

#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u32::from_le_bytes(*b))
}

#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u64::from_le_bytes(*b))
}

pub fn damaged(what: &str) -> Error {
    Error::format(
        what,
        "a file as perf record writes it",
        "copy the file again; if it is whole, try `perf report --header-only -i FILE` on it",
    )
}
