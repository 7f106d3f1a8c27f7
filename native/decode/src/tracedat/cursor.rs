//! Numbers, strings and blocks one after another, from the file or from a
//! section that was decompressed; every length is checked before it is used.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::input::Input;

/// No text or table in a real file is as long; a damaged length may say so.
pub const MAX_BLOCK: u64 = 64 << 20;

enum Bytes<'a> {
    File(&'a Input),
    /// The section at byte `section` of the file, decompressed.
    Memory {
        bytes: Vec<u8>,
        section: u64,
    },
}

pub struct Cursor<'a> {
    input: &'a Input,
    bytes: Bytes<'a>,
    at: u64,
    big_endian: bool,
}

impl<'a> Cursor<'a> {
    pub fn file(input: &'a Input, at: u64, big_endian: bool) -> Self {
        Self {
            input,
            bytes: Bytes::File(input),
            at,
            big_endian,
        }
    }

    pub fn memory(input: &'a Input, section: u64, bytes: Vec<u8>, big_endian: bool) -> Self {
        Self {
            input,
            bytes: Bytes::Memory { bytes, section },
            at: 0,
            big_endian,
        }
    }

    pub fn at(&self) -> u64 {
        self.at
    }

    pub fn seek(&mut self, at: u64) {
        self.at = at;
    }

    fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::File(input) => input.len(),
            Bytes::Memory { bytes, .. } => bytes.len() as u64,
        }
    }

    pub fn left(&self) -> u64 {
        self.len().saturating_sub(self.at)
    }

    /// The error of something wrong where the cursor stands.
    pub fn wrong(&self, found: impl std::fmt::Display, expected: impl Into<String>) -> Error {
        match &self.bytes {
            Bytes::File(_) => self.input.wrong(self.at, found, expected),
            Bytes::Memory { section, .. } => self.input.wrong(
                *section,
                format!(
                    "in the section that begins here, {} bytes in: {found}",
                    self.at
                ),
                expected,
            ),
        }
    }

    /// Skips `n` bytes that must be there.
    pub fn skip(&mut self, n: u64, what: &str) -> Result<()> {
        self.check(n, what)?;
        self.at += n;
        Ok(())
    }

    fn check(&self, n: u64, what: &str) -> Result<()> {
        if n <= self.left() {
            return Ok(());
        }
        match &self.bytes {
            Bytes::File(input) => Err(input.ends_early(self.at, n, what)),
            Bytes::Memory { .. } => {
                Err(self.wrong(format!("the end, inside {what}"), format!("{n} bytes")))
            }
        }
    }

    pub fn block(&mut self, n: u64, what: &str) -> Result<Vec<u8>> {
        self.bytes(n, what).map(Cow::into_owned)
    }

    /// A block that is not copied where it is in memory already.
    pub fn bytes(&mut self, n: u64, what: &str) -> Result<Cow<'_, [u8]>> {
        self.check(n, what)?;
        if n > MAX_BLOCK {
            return Err(self.wrong(
                format!("{what} of {n} bytes"),
                format!("at most {MAX_BLOCK}"),
            ));
        }
        let (from, n) = (self.at, n as usize);
        self.at += n as u64;
        Ok(match &self.bytes {
            Bytes::File(input) => {
                let mut out = vec![0; n];
                input.read_exact_at(&mut out, from, what)?;
                Cow::Owned(out)
            }
            Bytes::Memory { bytes, .. } => Cow::Borrowed(&bytes[from as usize..][..n]),
        })
    }

    fn read(&mut self, out: &mut [u8], what: &str) -> Result<()> {
        self.check(out.len() as u64, what)?;
        match &self.bytes {
            Bytes::File(input) => input.read_exact_at(out, self.at, what)?,
            Bytes::Memory { bytes, .. } => {
                let at = self.at as usize;
                out.copy_from_slice(&bytes[at..at + out.len()]);
            }
        }
        self.at += out.len() as u64;
        Ok(())
    }

    pub fn u8(&mut self, what: &str) -> Result<u8> {
        let mut raw = [0; 1];
        self.read(&mut raw, what)?;
        Ok(raw[0])
    }

    pub fn u16(&mut self, what: &str) -> Result<u16> {
        let mut raw = [0; 2];
        self.read(&mut raw, what)?;
        Ok(if self.big_endian {
            u16::from_be_bytes(raw)
        } else {
            u16::from_le_bytes(raw)
        })
    }

    pub fn u32(&mut self, what: &str) -> Result<u32> {
        let mut raw = [0; 4];
        self.read(&mut raw, what)?;
        Ok(if self.big_endian {
            u32::from_be_bytes(raw)
        } else {
            u32::from_le_bytes(raw)
        })
    }

    pub fn u64(&mut self, what: &str) -> Result<u64> {
        let mut raw = [0; 8];
        self.read(&mut raw, what)?;
        Ok(if self.big_endian {
            u64::from_be_bytes(raw)
        } else {
            u64::from_le_bytes(raw)
        })
    }

    /// A text that a zero ends.
    pub fn string(&mut self, what: &str) -> Result<String> {
        let mut out = Vec::new();
        loop {
            let n = self.left().min(64);
            if n == 0 || out.len() > 4096 {
                return Err(self.wrong(
                    format!("{what} without an end"),
                    "at most 4096 bytes that a zero byte ends",
                ));
            }
            let mut part = vec![0; n as usize];
            let start = self.at;
            self.read(&mut part, what)?;
            match part.iter().position(|&byte| byte == 0) {
                Some(end) => {
                    out.extend(&part[..end]);
                    self.at = start + end as u64 + 1;
                    return Ok(String::from_utf8_lossy(&out).into_owned());
                }
                None => out.extend(part),
            }
        }
    }

    /// A text of known length; what stands behind a zero is not part of it.
    pub fn text(&mut self, n: u64, what: &str) -> Result<String> {
        self.bytes(n, what).map(|block| text_of(&block))
    }

    /// Demands certain bytes.
    pub fn expect(&mut self, bytes: &[u8], what: &str) -> Result<()> {
        let start = self.at;
        let found = self.block(bytes.len() as u64, what)?;
        if found == bytes {
            return Ok(());
        }
        self.at = start;
        Err(self.wrong(
            format!("{:?}", String::from_utf8_lossy(&found)),
            format!("{what}, {:?}", String::from_utf8_lossy(bytes)),
        ))
    }
}

/// The text before the first zero.
pub fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
