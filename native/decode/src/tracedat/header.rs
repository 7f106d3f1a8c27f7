//! How a trace.dat begins, and the texts that both versions keep alike:
//! header_page, event formats, saved command lines.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ftrace::format::name_and_id;
use crate::ftrace::plan::Plan;
use crate::input::Input;
use crate::tracedat::compression::Kind;
use crate::tracedat::cursor::{Cursor, text_of};

pub const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// The first bytes of the file.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    pub version: u32,
    pub big_endian: bool,
    /// The recording program's long, which the kernel's need not be.
    pub long_bytes: usize,
    pub page_bytes: usize,
    pub compression: Kind,
    /// Where the first options are (version 7).
    pub options: u64,
    /// Where the header ends.
    pub end: u64,
}

impl Header {
    pub fn read(input: &Input) -> Result<Self> {
        let mut cursor = Cursor::file(input, 0, false);
        cursor.expect(MAGIC, "the magic of a trace.dat")?;
        let text = cursor.string("the file's version")?;
        let version = match text.parse::<u32>() {
            Ok(version @ (6 | 7)) => version,
            _ => {
                return Err(Error::format(
                    format!("{}, byte {}: version {text:?}", input.name(), MAGIC.len()),
                    "version 6 or 7",
                    "convert it with `trace-cmd convert --file-version 7`",
                ));
            }
        };
        let big_endian = match cursor.u8("the byte order")? {
            0 => false,
            1 => true,
            other => {
                return Err(cursor.wrong(format!("byte order {other}"), "0 (little) or 1 (big)"));
            }
        };
        let long_bytes = match cursor.u8("the long size")? {
            size @ (4 | 8) => usize::from(size),
            other => return Err(cursor.wrong(format!("a long of {other} bytes"), "4 or 8")),
        };
        let mut cursor = Cursor::file(input, cursor.at(), big_endian);
        let page_bytes = cursor.u32("the page size")? as usize;
        let mut compression = Kind::None;
        let mut options = 0;
        if version >= 7 {
            let name = cursor.string("the name of the compression")?;
            cursor.string("the version of the compression")?;
            compression = Kind::from_name(&name).ok_or_else(|| {
                Error::format(
                    format!("{}: compressed with {name:?}", input.name()),
                    "none, zlib or zstd",
                    "convert it with `trace-cmd convert --compression zstd`",
                )
            })?;
            options = cursor.u64("the offset of the options")?;
        }
        Ok(Self {
            version,
            big_endian,
            long_bytes,
            page_bytes,
            compression,
            options,
            end: cursor.at(),
        })
    }
}

/// An event format's text; of an event that is only counted, its first lines.
pub struct FormatText {
    pub system: Arc<str>,
    pub text: String,
    at: u64,
}

/// Its place, for errors.
impl fmt::Display for FormatText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system, at, .. } = self;
        write!(f, "the event format at byte {at} of system {system:?}")
    }
}

/// `header_page` (returned) and `header_event`.
pub fn header_files(cursor: &mut Cursor) -> Result<String> {
    cursor.expect(b"header_page\0", "the start of header_page")?;
    let size = cursor.u64("the size of header_page")?;
    let page = cursor.text(size, "header_page")?;
    cursor.expect(b"header_event\0", "the start of header_event")?;
    let size = cursor.u64("the size of header_event")?;
    cursor.skip(size, "header_event")?;
    Ok(page)
}

/// Formats of ftrace's own events.
pub fn ftrace_formats(cursor: &mut Cursor, formats: &mut Vec<FormatText>) -> Result<()> {
    let count = cursor.u32("the number of ftrace event formats")?;
    events(cursor, "ftrace", count, formats)
}

/// Formats of all other events, system by system.
pub fn event_formats(cursor: &mut Cursor, formats: &mut Vec<FormatText>) -> Result<()> {
    let systems = cursor.u32("the number of event systems")?;
    for _ in 0..systems {
        let system = cursor.string("an event system's name")?;
        let count = cursor.u32("the number of a system's events")?;
        events(cursor, &system, count, formats)?;
    }
    Ok(())
}

fn events(
    cursor: &mut Cursor,
    system: &str,
    count: u32,
    formats: &mut Vec<FormatText>,
) -> Result<()> {
    let system: Arc<str> = system.into();
    for _ in 0..count {
        let size = cursor.u64("the size of an event format")?;
        let at = cursor.at();
        let text = cursor.bytes(size, "an event format")?;
        formats.push(FormatText {
            text: text_of(needed(&system, &text)),
            system: Arc::clone(&system),
            at,
        });
    }
    Ok(())
}

/// All of a format that matters. A trace describes some 2,000 events in 2 MB of
/// text and records a dozen; what is only counted needs no more than a name
/// and a number.
fn needed<'a>(system: &str, format: &'a [u8]) -> &'a [u8] {
    const LAYOUT: &[u8] = b"\nformat:";
    let head = format
        .windows(LAYOUT.len())
        .position(|bytes| bytes == LAYOUT);
    let head = &format[..head.unwrap_or(format.len())];
    match name_and_id(&String::from_utf8_lossy(head), "") {
        Ok((name, _)) if !Plan::wants(system, name) => head,
        _ => format,
    }
}

/// `saved_cmdlines` behind its 8-byte size.
pub fn cmdlines(cursor: &mut Cursor) -> Result<String> {
    let size = cursor.u64("the size of the saved command lines")?;
    cursor.text(size, "the saved command lines")
}
