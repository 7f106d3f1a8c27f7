//! A checked walk over bytes in the order of the machine that wrote them: past the end is `None`,
//! never a panic.

use crate::error::Error;

/// Which byte of a number comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ByteOrder {
    #[default]
    Little,
    Big,
}

/// What is left of a block.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a> {
    pub data: &'a [u8],
    pub order: ByteOrder,
}

macro_rules! number_at {
    ($name:ident, $type:ty) => {
        #[inline]
        pub fn $name(self, at: usize) -> Option<$type> {
            let raw = *self.data.get(at..)?.first_chunk()?;
            Some(match self.order {
                ByteOrder::Little => <$type>::from_le_bytes(raw),
                ByteOrder::Big => <$type>::from_be_bytes(raw),
            })
        }
    };
}

impl<'a> Bytes<'a> {
    number_at!(u16_at, u16);
    number_at!(u32_at, u32);
    number_at!(u64_at, u64);

    #[inline]
    pub fn len(self) -> usize {
        self.data.len()
    }

    /// What comes after the first `skipped` bytes.
    #[inline]
    pub fn after(self, skipped: usize) -> Option<Self> {
        let data = self.data.get(skipped..)?;
        Some(Self { data, ..self })
    }

    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.data.split_at_checked(len)?;
        self.data = rest;
        Some(head)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    pub fn u32(&mut self) -> Option<u32> {
        let number = self.u32_at(0)?;
        self.take(4).map(|_| number)
    }

    pub fn u64(&mut self) -> Option<u64> {
        let number = self.u64_at(0)?;
        self.take(8).map(|_| number)
    }

    /// A count of bytes that must still be there.
    pub fn len32(&mut self) -> Option<usize> {
        self.u32()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|&n| n <= self.len())
    }

    pub fn len64(&mut self) -> Option<usize> {
        self.u64()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|&n| n <= self.len())
    }

    /// Bytes up to a NUL, which is skipped.
    pub fn c_str(&mut self) -> Option<&'a [u8]> {
        let end = self.data.iter().position(|&b| b == 0)?;
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

pub fn damaged(what: &str) -> Error {
    Error::format(
        what,
        "a file as perf record writes it",
        "copy the file again; if it is whole, try `perf report --header-only -i FILE` on it",
    )
}
