//! `perf record -z`: the compressed records expanded into an unnamed file.
//!
//! One zstd stream runs through all of them, so there is no jumping about in
//! it; on disk the expanded records take bounded memory to merge.

use std::fs::File;
use std::sync::Arc;

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::bytes::{ByteOrder, Bytes, damaged};
use super::records::{COMPRESSED, COMPRESSED2, Peek, RecordReader};
use super::scan::trailing_len;
use crate::error::{Error, Result};
use crate::spool::Spool;

const WINDOW: usize = 1 << 20;
const CHUNK: usize = 1 << 18;

/// The expanded stream, its length, and where the input was cut (if it was).
pub struct Expanded {
    pub file: File,
    pub len: u64,
    pub truncated_at: Option<u64>,
}

pub fn expand(
    file: &Arc<File>,
    order: ByteOrder,
    name: &str,
    range: (u64, u64),
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Expanded> {
    let mut reader = RecordReader::new(Arc::clone(file), order, range, WINDOW);
    let mut out = Spool::expanding(name, range.1.saturating_sub(range.0))?;
    let mut decoder = Decoder::new().map_err(|error| Error::io("start zstd", &error))?;
    // Expanded bytes that do not yet make a whole record.
    let mut rest: Vec<u8> = Vec::new();
    let mut chunk = vec![0; CHUNK];
    let mut truncated_at = None;
    let mut told = range.0;
    loop {
        let offset = reader.offset();
        let record = match reader.peek()? {
            Peek::End => break,
            Peek::Truncated { at } => {
                truncated_at = Some(at);
                break;
            }
            Peek::Record(record) => record,
        };
        let (kind, size, trailing) = (record.kind(), record.0.len(), trailing_len(record));
        let payload = match kind {
            COMPRESSED => Some(record.body().data),
            COMPRESSED2 => {
                let len = record.0.u64_at(8).and_then(|len| usize::try_from(len).ok());
                let inside = len.and_then(|len| record.0.data.get(16..)?.get(..len));
                Some(inside.ok_or_else(|| {
                    damaged(&format!(
                        "the compressed record at byte {offset} is longer than it is"
                    ))
                })?)
            }
            _ => None,
        };
        match payload {
            Some(payload) => inflate(&mut decoder, payload, &mut chunk, offset, |bytes| {
                rest.extend_from_slice(bytes);
                let records = Bytes { data: &rest, order };
                let whole = whole_records(records, offset)?;
                out.write(&rest[..whole])?;
                rest.drain(..whole);
                Ok(())
            })?,
            None => out.write(record.0.data)?,
        }
        reader.step(size);
        if !copy_trailing(&mut reader, trailing, &mut out)? {
            truncated_at = Some(offset);
            break;
        }
        if offset - told > 16 << 20 {
            told = offset;
            progress(offset)?;
        }
    }
    if !rest.is_empty() && truncated_at.is_none() {
        truncated_at = Some(reader.offset());
    }
    let (file, len) = out.finish()?;
    Ok(Expanded {
        file,
        len,
        truncated_at,
    })
}

fn inflate(
    decoder: &mut Decoder<'_>,
    payload: &[u8],
    chunk: &mut [u8],
    offset: u64,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut input = InBuffer::around(payload);
    loop {
        let mut output = OutBuffer::around(&mut *chunk);
        decoder.run(&mut input, &mut output).map_err(|error| {
            damaged(&format!(
                "the compressed record at byte {offset} does not expand: {error}"
            ))
        })?;
        let made = output.pos();
        take(&chunk[..made])?;
        // Room left in the output means that zstd holds nothing back.
        if made < chunk.len() && input.pos() >= payload.len() {
            return Ok(());
        }
        if made == 0 && input.pos() < payload.len() {
            return Err(damaged(&format!(
                "the compressed record at byte {offset} does not expand"
            )));
        }
    }
}

/// Length of the whole records at the beginning of `bytes`.
fn whole_records(bytes: Bytes<'_>, offset: u64) -> Result<usize> {
    let mut at = 0;
    while let Some(size) = bytes.u16_at(at + 6).map(usize::from) {
        if size < 8 {
            return Err(damaged(&format!(
                "a record inside the compressed one at byte {offset} says it is {size} bytes long"
            )));
        }
        if bytes.len() - at < size {
            break;
        }
        at += size;
    }
    Ok(at)
}

fn copy_trailing(reader: &mut RecordReader, mut len: u64, out: &mut Spool) -> Result<bool> {
    while len > 0 {
        let part = usize::try_from(len.min(CHUNK as u64)).unwrap_or(CHUNK);
        match reader.trailing(part)? {
            Some(bytes) => out.write(bytes)?,
            None => return Ok(false),
        }
        len -= part as u64;
    }
    Ok(true)
}
