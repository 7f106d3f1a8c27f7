//! The compressions of trace.dat version 7: zlib, zstd, none.

use std::io::Cursor;

use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    None,
    Zlib,
    Zstd,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// From the name in the file's header.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Zlib, Self::Zstd]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    /// What version the header names beside it; readers ask only for the name.
    pub const fn version(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Zlib => "1.2.13",
            Self::Zstd => "1.5.4",
        }
    }

    /// Refuses sizes that only a damaged file states: (found, expected). What is more
    /// than `room` must be worth it: a few bytes must not claim much memory.
    pub fn check_size(
        self,
        size: u32,
        compressed: u32,
        room: u32,
    ) -> std::result::Result<(), (String, String)> {
        let bound = size.saturating_add(size / 2).saturating_add(1 << 16);
        let most = compressed
            .saturating_mul(MOST_TIMES)
            .max(room)
            .min(MAX_SIZE);
        if size > most || compressed > bound {
            return Err((
                format!("{compressed} compressed bytes for {size}"),
                format!("at most {most} bytes, and not more when compressed"),
            ));
        }
        Ok(())
    }

    pub fn compress(self, bytes: &[u8]) -> Result<Vec<u8>> {
        use std::io::Write;
        match self {
            Self::None => Ok(bytes.to_vec()),
            Self::Zlib => {
                let mut encoder =
                    flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder
                    .write_all(bytes)
                    .and_then(|()| encoder.finish())
                    .map_err(|e| Error::io("compress with zlib", &e))
            }
            Self::Zstd => {
                zstd::bulk::compress(bytes, 3).map_err(|e| Error::io("compress with zstd", &e))
            }
        }
    }
}

/// A decompressor that is used again and again.
pub enum Codec {
    None,
    Zlib(flate2::Decompress),
    Zstd(zstd::bulk::Decompressor<'static>),
}

/// No section or chunk of a real file comes near: kallsyms is 6 MB, the event
/// formats are 2 MB, a chunk is 10 pages.
const MAX_SIZE: u32 = 64 << 20;
/// Sections and chunks above the room they have in any case may grow so far.
const MOST_TIMES: u32 = 10;
/// Room of a section: nearly three times the longest, kallsyms.
pub const SECTION_ROOM: u32 = 16 << 20;

impl Codec {
    pub fn new(kind: Kind) -> Result<Self> {
        Ok(match kind {
            Kind::None => Self::None,
            Kind::Zlib => Self::Zlib(flate2::Decompress::new(true)),
            Kind::Zstd => Self::Zstd(
                zstd::bulk::Decompressor::new().map_err(|e| Error::io("set zstd up", &e))?,
            ),
        })
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::None => Kind::None,
            Self::Zlib(_) => Kind::Zlib,
            Self::Zstd(_) => Kind::Zstd,
        }
    }

    /// Appends to `out` the `size` bytes that `bytes` stand for.
    pub fn decompress(
        &mut self,
        bytes: &[u8],
        size: usize,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), String> {
        let old = out.len();
        out.reserve(size);
        let done = match self {
            Self::None => {
                out.extend_from_slice(&bytes[..bytes.len().min(size)]);
                Ok(bytes.len())
            }
            Self::Zlib(decoder) => {
                decoder.reset(true);
                match decoder.decompress_vec(bytes, out, flate2::FlushDecompress::Finish) {
                    Ok(flate2::Status::StreamEnd) => Ok(decoder.total_out() as usize),
                    Ok(_) => Err("zlib data that does not end where it should".to_string()),
                    Err(error) => Err(format!("damaged zlib data ({error})")),
                }
            }
            Self::Zstd(decoder) => {
                let mut behind = Cursor::new(&mut *out);
                behind.set_position(old as u64);
                decoder
                    .decompress_to_buffer(bytes, &mut behind)
                    .map_err(|error| format!("damaged zstd data ({error})"))
            }
        };
        match done {
            Ok(done) if done == size => Ok(()),
            wrong => {
                out.truncate(old);
                Err(wrong.map_or_else(
                    |found| found,
                    |done| format!("{done} bytes where the header says {size}"),
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compressed_comes_back_and_lies_about_sizes_do_not_pass() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i / 7) as u8).collect();
        for kind in [Kind::None, Kind::Zlib, Kind::Zstd] {
            let packed = kind.compress(&bytes).unwrap();
            let mut codec = Codec::new(kind).unwrap();
            let mut out = vec![1, 2];
            codec.decompress(&packed, bytes.len(), &mut out).unwrap();
            assert_eq!(&out[..2], [1, 2]);
            assert_eq!(&out[2..], bytes);
            assert!(
                codec
                    .decompress(&packed, bytes.len() - 1, &mut Vec::new())
                    .is_err()
            );
            assert!(
                codec
                    .decompress(&packed, bytes.len() + 1, &mut Vec::new())
                    .is_err()
            );
            assert!(
                codec
                    .decompress(&packed[..packed.len() / 2], bytes.len(), &mut Vec::new())
                    .is_err()
            );
            assert!(kind.check_size(u32::MAX, 5, u32::MAX).is_err());
            assert!(kind.check_size(5, u32::MAX, 100).is_err());
            assert!(kind.check_size(100, 5, 100).is_ok());
            assert!(kind.check_size(101, 5, 100).is_err());
            assert!(kind.check_size(101, 11, 100).is_ok());
        }
    }
}
