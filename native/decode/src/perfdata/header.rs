//! The head of a perf.data file: which events, where the records lie, and what
//! the features say about the host.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::bytes::{ByteOrder, Bytes, damaged};
use super::features::{Features, FormatText};
use crate::error::{Error, Result};

/// By the byte order of the machine that wrote it.
const MAGIC: [(&[u8], ByteOrder); 2] = [
    (b"PERFILE2", ByteOrder::Little),
    (b"2ELIFREP", ByteOrder::Big),
];
/// No attribute or feature block of a real file comes near this.
const BLOCK_MAX: u64 = 256 << 20;

pub const TYPE_TRACEPOINT: u32 = 2;
pub const SAMPLE_IP: u64 = 1;
pub const SAMPLE_TID: u64 = 1 << 1;
pub const SAMPLE_TIME: u64 = 1 << 2;
pub const SAMPLE_ADDR: u64 = 1 << 3;
pub const SAMPLE_READ: u64 = 1 << 4;
pub const SAMPLE_CALLCHAIN: u64 = 1 << 5;
pub const SAMPLE_ID: u64 = 1 << 6;
pub const SAMPLE_CPU: u64 = 1 << 7;
pub const SAMPLE_PERIOD: u64 = 1 << 8;
pub const SAMPLE_STREAM_ID: u64 = 1 << 9;
pub const SAMPLE_RAW: u64 = 1 << 10;
pub const SAMPLE_BRANCH_STACK: u64 = 1 << 11;
pub const SAMPLE_REGS_USER: u64 = 1 << 12;
pub const SAMPLE_STACK_USER: u64 = 1 << 13;
pub const SAMPLE_WEIGHT: u64 = 1 << 14;
pub const SAMPLE_DATA_SRC: u64 = 1 << 15;
pub const SAMPLE_IDENTIFIER: u64 = 1 << 16;
pub const SAMPLE_TRANSACTION: u64 = 1 << 17;
pub const SAMPLE_REGS_INTR: u64 = 1 << 18;
pub const SAMPLE_PHYS_ADDR: u64 = 1 << 19;
pub const SAMPLE_CGROUP: u64 = 1 << 21;
pub const SAMPLE_WEIGHT_STRUCT: u64 = 1 << 24;

/// One event that was recorded (a `perf_event_attr` with its ids).
#[derive(Debug, Clone, Default)]
pub struct Attr {
    pub kind: u32,
    /// For a tracepoint: the id in its format description.
    pub config: u64,
    pub sample_type: u64,
    pub read_format: u64,
    /// After so many events comes a sample; of a frequency, so many samples a second.
    sample_period: u64,
    flags: u64,
    clockid: i32,
    pub ids: Vec<u64>,
}

impl Attr {
    /// From the bytes of the structure; it grew over the releases, so what an
    /// old recorder did not write counts as zero.
    pub fn parse(bytes: Bytes<'_>) -> Option<Self> {
        let flags = bytes.u64_at(40)?;
        Some(Self {
            kind: bytes.u32_at(0)?,
            config: bytes.u64_at(8)?,
            sample_period: bytes.u64_at(16)?,
            sample_type: bytes.u64_at(24)?,
            read_format: bytes.u64_at(32)?,
            // Compilers give the first bit field the lowest bit, or on big-endian machines the
            // highest.
            flags: match bytes.order {
                ByteOrder::Little => flags,
                ByteOrder::Big => flags.reverse_bits(),
            },
            clockid: bytes.u32_at(92).unwrap_or(0).cast_signed(),
            ids: Vec::new(),
        })
    }

    pub fn sample_id_all(&self) -> bool {
        self.flags & 1 << 18 != 0
    }

    /// For the threads of one program, not for all that CPUs do.
    pub fn inherit(&self) -> bool {
        self.kind == TYPE_TRACEPOINT && self.flags & 1 << 1 != 0
    }

    /// After how many events a sample comes, where that is the same for all of them.
    pub fn fixed_period(&self) -> Option<u64> {
        (self.flags & 1 << 10 == 0).then_some(self.sample_period)
    }

    /// COMM records are written.
    pub fn comm(&self) -> bool {
        self.flags & 1 << 9 != 0
    }

    /// The clock chosen with `-k`; None is perf's own (the scheduler's) clock.
    pub fn clockid(&self) -> Option<i32> {
        (self.flags & 1 << 25 != 0).then_some(self.clockid)
    }
}

/// Where the records are, and what is known before them.
#[derive(Debug)]
pub struct Header {
    pub attrs: Vec<Attr>,
    pub features: Features,
    pub order: ByteOrder,
    /// Byte range of the records.
    pub data: (u64, u64),
    /// Written to a pipe: attributes and features come as records.
    pub pipe: bool,
    /// perf record did not get to finishing the file.
    pub unfinished: bool,
}

/// Is this the beginning of a perf.data file?
pub fn is_perf_data(head: &[u8]) -> bool {
    byte_order(head).is_some() || head.starts_with(b"PERFFILE")
}

fn byte_order(head: &[u8]) -> Option<ByteOrder> {
    let found = MAGIC.iter().find(|(magic, _)| head.starts_with(magic))?;
    Some(found.1)
}

impl Header {
    /// `formats`: those of the events, as far as they are stored beside the file.
    pub fn read(file: &File, len: u64, formats: Vec<FormatText>) -> Result<Self> {
        let mut head = [0; 104];
        let have = usize::try_from(len.min(104)).unwrap_or(104);
        read_at(file, &mut head[..have], 0)?;
        if head.starts_with(b"PERFFILE") {
            return Err(Error::format(
                "written in the format of before 2010 (magic PERFFILE)",
                "magic PERFILE2",
                "record again with a current perf",
            ));
        }
        let Some(order) = byte_order(&head).filter(|_| have >= 16) else {
            return Err(damaged("it does not begin with the magic PERFILE2"));
        };
        let head = Bytes { data: &head, order };
        let size = head.u64_at(8).unwrap_or(0);
        if size == 16 {
            return Ok(Self {
                attrs: Vec::new(),
                features: Features::default(),
                order,
                data: (16, len),
                pipe: true,
                unfinished: false,
            });
        }
        if have < 104 || size < 104 {
            return Err(damaged(&format!(
                "its header says {size} bytes and {have} are there"
            )));
        }
        let word = |at: usize| head.u64_at(at).unwrap_or(0);
        let (attr_size, attrs, data) = (word(16), (word(24), word(32)), (word(40), word(48)));
        if data.1 == 0 && !formats.is_empty() {
            // The attributes are written at the beginning, and records follow to the end.
            let features = Features {
                formats,
                ..Features::default()
            };
            return Ok(Self {
                attrs: read_attrs(file, attrs, attr_size, len, order)?,
                features,
                order,
                data: (data.0.min(len), len),
                pipe: false,
                unfinished: true,
            });
        }
        if data.1 == 0 {
            return Err(Error::format(
                "its header says 0 bytes of records: perf record was killed, or its disk was full, before it could finish the file",
                "a file that perf record closed",
                "record again and end perf with Ctrl-C or SIGINT; \
                 `perf record -o - ... > FILE` gives a file that survives a kill",
            ));
        }
        let end = data
            .0
            .checked_add(data.1)
            .ok_or_else(|| damaged("the size of its records overflows"))?;
        if end > len {
            // Names and formats of the events are stored behind the records.
            return Err(Error::format(
                format!(
                    "the file ends at byte {len}, its records should go on to byte {end}, and the event descriptions come after them"
                ),
                "a whole file",
                "copy the file again; it cannot be decoded without its last part",
            ));
        }
        let attrs = read_attrs(file, attrs, attr_size, len, order)?;
        let flags = [word(72), word(80), word(88), word(96)];
        let features = read_features(file, end, flags, len, order)?;
        Ok(Self {
            attrs,
            features,
            order,
            data: (data.0, end),
            pipe: false,
            unfinished: false,
        })
    }
}

fn read_attrs(
    file: &File,
    section: (u64, u64),
    size: u64,
    len: u64,
    order: ByteOrder,
) -> Result<Vec<Attr>> {
    let block = read_block(file, section, len, "the list of events")?;
    let size = usize::try_from(size).unwrap_or(0);
    if size < 16 + 64 {
        return Err(damaged(&format!("an event's attributes take {size} bytes")));
    }
    block
        .chunks_exact(size)
        .map(|entry| {
            let (attr, ids) = entry.split_at(size - 16);
            let mut attr = Attr::parse(Bytes { data: attr, order })
                .ok_or_else(|| damaged("an event's attributes are cut"))?;
            let section = section_at(Bytes { data: ids, order });
            let block = read_block(file, section, len, "the ids of an event")?;
            let mut ids = Bytes {
                data: &block,
                order,
            };
            attr.ids = std::iter::from_fn(|| ids.u64()).collect();
            Ok(attr)
        })
        .collect()
}

/// One (offset, size) pair per feature bit, in the order of the bits.
fn read_features(
    file: &File,
    at: u64,
    flags: [u64; 4],
    len: u64,
    order: ByteOrder,
) -> Result<Features> {
    let bits: Vec<u32> = (0..256u32)
        .filter(|&b| flags[(b / 64) as usize] >> (b % 64) & 1 != 0)
        .collect();
    let table = read_block(
        file,
        (at, 16 * bits.len() as u64),
        len,
        "the table of features",
    )?;
    let mut features = Features::default();
    for (bit, entry) in bits.iter().zip(table.chunks_exact(16)) {
        if !Features::wanted(*bit) {
            continue;
        }
        let section = section_at(Bytes { data: entry, order });
        let block = read_block(file, section, len, "a feature")?;
        features.add(
            *bit,
            Bytes {
                data: &block,
                order,
            },
        )?;
    }
    Ok(features)
}

/// Where a part of the file lies: offset and size.
fn section_at(entry: Bytes<'_>) -> (u64, u64) {
    let word = |at| entry.u64_at(at).unwrap_or(0);
    (word(0), word(8))
}

fn read_block(file: &File, (at, size): (u64, u64), len: u64, what: &str) -> Result<Vec<u8>> {
    let fits = at.checked_add(size).is_some_and(|end| end <= len);
    if !fits || size > BLOCK_MAX {
        return Err(damaged(&format!(
            "{what} ({size} bytes at byte {at}) does not fit the file of {len} bytes"
        )));
    }
    let mut block = vec![0; usize::try_from(size).unwrap_or(0)];
    read_at(file, &mut block, at)?;
    Ok(block)
}

pub fn read_at(file: &File, bytes: &mut [u8], at: u64) -> Result<()> {
    file.read_exact_at(bytes, at)
        .map_err(|error| Error::io(format!("read perf.data at byte {at}"), &error))
}
