//! Compressed packets (deflate or zstd), expanded into an unnamed file.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use flate2::read::ZlibDecoder;

use super::input::{Next, Packets};
use super::scan::field;
use super::wire::Fields;
use crate::error::{Error, Result};
use crate::spool::Spool;

/// The expanded file, its length, and where the input was cut (if it was).
pub fn expand(
    file: &Arc<File>,
    (name, len): (&str, u64),
    progress: &mut dyn FnMut() -> Result<()>,
) -> Result<(File, u64, Option<u64>)> {
    let mut packets = Packets::new(Arc::clone(file), len);
    let mut spool = Spool::expanding(name, len)?;
    let mut told = 0;
    let mut cut = None;
    loop {
        match packets.next()? {
            Next::End => break,
            Next::Truncated(at) => {
                cut = Some(at);
                break;
            }
            Next::Packet(span, bytes) => {
                let compressed = Fields::new(bytes)
                    .find(|&(n, _)| n == field::COMPRESSED || n == field::ZSTD_COMPRESSED);
                match compressed {
                    Some((field::COMPRESSED, value)) => {
                        copy(ZlibDecoder::new(value.bytes()), span.at, &mut spool)?;
                    }
                    Some((_, value)) => {
                        let decoder = zstd::stream::read::Decoder::with_buffer(value.bytes())
                            .map_err(|error| Error::io("start zstd", &error))?;
                        copy(decoder, span.at, &mut spool)?;
                    }
                    None => {
                        let mut head = vec![0x0a];
                        let mut len = bytes.len();
                        while len >= 0x80 {
                            head.push(len.to_le_bytes()[0] | 0x80);
                            len >>= 7;
                        }
                        head.push(len.to_le_bytes()[0]);
                        spool.write(&head)?;
                        spool.write(bytes)?;
                    }
                }
            }
        }
        if packets.offset() - told > 4 << 20 {
            told = packets.offset();
            progress()?;
        }
    }
    let (file, len) = spool.finish()?;
    Ok((file, len, cut))
}

fn copy(mut reader: impl Read, at: u64, spool: &mut Spool) -> Result<()> {
    let mut chunk = vec![0; 1 << 16];
    loop {
        let got = reader
            .read(&mut chunk)
            .map_err(|error| bad(at, &error.to_string()))?;
        if got == 0 {
            return Ok(());
        }
        spool.write(&chunk[..got])?;
    }
}

fn bad(at: u64, why: &str) -> Error {
    Error::format(
        format!("Perfetto trace: the compressed packet at byte {at} does not expand: {why}"),
        "a deflate or zstd stream of packets",
        "copy the file again; it was damaged on the way",
    )
}
