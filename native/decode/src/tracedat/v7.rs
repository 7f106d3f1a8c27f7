//! Version 7: sections, found through a chain of options.

use crate::error::Result;
use crate::input::Input;
use crate::tracedat::Contents;
use crate::tracedat::compression::{Codec, SECTION_ROOM};
use crate::tracedat::cursor::{Cursor, MAX_BLOCK};
use crate::tracedat::header::{self, Header};
use crate::tracedat::options::{Facts, id};

/// Flag of a section: it is compressed.
const COMPRESSED: u16 = 1;
/// trace-cmd writes one block of options per buffer; a chain that is longer
/// than this goes round in a circle.
const MAX_OPTION_BLOCKS: usize = 4096;

/// What stands before every section.
struct SectionHeader {
    compressed: bool,
    size: u64,
    /// Where its data begins.
    data: u64,
}

pub fn read(input: &Input, header: &Header) -> Result<Contents> {
    let mut facts = Facts::default();
    let mut next = header.options;
    let mut blocks = 0;
    while next != 0 {
        blocks += 1;
        if blocks > MAX_OPTION_BLOCKS {
            return Err(input.wrong(
                next,
                "a chain of options without an end",
                "the last to point to 0",
            ));
        }
        next = options(input, header, next, &mut facts)?;
    }
    let mut cursor = section(input, header, &facts, id::HEADER_INFO)?;
    let header_page = header::header_files(&mut cursor)?;
    let mut formats = Vec::new();
    // ftrace's own events are not needed to read the others.
    if facts.section(id::FTRACE_EVENTS).is_some() {
        let mut cursor = section(input, header, &facts, id::FTRACE_EVENTS)?;
        header::ftrace_formats(&mut cursor, &mut formats)?;
    }
    let mut cursor = section(input, header, &facts, id::EVENT_FORMATS)?;
    header::event_formats(&mut cursor, &mut formats)?;
    let cmdlines = match facts.section(id::CMDLINES) {
        Some(_) => header::cmdlines(&mut section(input, header, &facts, id::CMDLINES)?)?,
        None => String::new(),
    };
    for buffer in &mut facts.buffers {
        if !buffer.cpus.is_empty() {
            let want = if buffer.text {
                id::BUFFER_TEXT
            } else {
                id::BUFFER
            };
            buffer.compressed = section_header(input, header, buffer.section, want)?.compressed;
        }
    }
    Ok(Contents {
        header_page,
        formats,
        cmdlines,
        facts,
    })
}

/// Reads the options at `at`; returns where the next ones are, or 0.
fn options(input: &Input, header: &Header, at: u64, facts: &mut Facts) -> Result<u64> {
    let mut cursor = open_section(input, header, at, id::DONE)?;
    loop {
        let option = cursor.u16("an option's number")?;
        let size = cursor.u32("an option's size")?;
        let data = cursor.block(u64::from(size), "an option")?;
        let mut data = Cursor::memory(input, at, data, header.big_endian);
        if option == id::DONE {
            return data.u64("the offset of the next options");
        }
        facts.add(option, data, header.version)?;
    }
}

fn section<'a>(input: &'a Input, header: &Header, facts: &Facts, want: u16) -> Result<Cursor<'a>> {
    let Some(at) = facts.section(want) else {
        let what = if want == id::HEADER_INFO {
            "ring-buffer layout"
        } else {
            "event formats"
        };
        return Err(input.wrong(
            header.options,
            format!("options without section {want}"),
            format!("the section of the {what}"),
        ));
    };
    open_section(input, header, at, want)
}

fn section_header(input: &Input, header: &Header, at: u64, want: u16) -> Result<SectionHeader> {
    let mut cursor = Cursor::file(input, at, header.big_endian);
    let found = cursor.u16("a section's number")?;
    let flags = cursor.u16("a section's flags")?;
    cursor.skip(4, "a section's description")?;
    let size = cursor.u64("a section's size")?;
    if found != want {
        return Err(input.wrong(at, format!("section {found}"), format!("section {want}")));
    }
    Ok(SectionHeader {
        compressed: flags & COMPRESSED != 0,
        size,
        data: cursor.at(),
    })
}

/// A section's content, decompressed.
fn open_section<'a>(input: &'a Input, header: &Header, at: u64, want: u16) -> Result<Cursor<'a>> {
    let section = section_header(input, header, at, want)?;
    let mut cursor = Cursor::file(input, section.data, header.big_endian);
    if !section.compressed {
        if section.size > MAX_BLOCK {
            let found = format!("a section of {} bytes", section.size);
            return Err(input.wrong(at, found, format!("at most {MAX_BLOCK}")));
        }
        let bytes = cursor.block(section.size, "a section")?;
        return Ok(Cursor::memory(input, at, bytes, header.big_endian));
    }
    let compressed = cursor.u32("a section's compressed size")?;
    let size = cursor.u32("a section's size once decompressed")?;
    header
        .compression
        .check_size(size, compressed, SECTION_ROOM)
        .map_err(|(found, expected)| input.wrong(at, found, expected))?;
    let bytes = cursor.block(u64::from(compressed), "a compressed section")?;
    let mut out = Vec::new();
    Codec::new(header.compression)?
        .decompress(&bytes, size as usize, &mut out)
        .map_err(|found| input.wrong(at, found, "a whole compressed section"))?;
    Ok(Cursor::memory(input, at, out, header.big_endian))
}
