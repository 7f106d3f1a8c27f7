//! Version 6: one part after another, nothing compressed.

use crate::error::Result;
use crate::input::Input;
use crate::tracedat::Contents;
use crate::tracedat::cursor::Cursor;
use crate::tracedat::header::{self, Header};
use crate::tracedat::options::{Buffer, Facts, MAX_CPUS, bracketed, id};

pub fn read(input: &Input, header: &Header) -> Result<Contents> {
    let mut cursor = Cursor::file(input, header.end, header.big_endian);
    let header_page = header::header_files(&mut cursor)?;
    let mut formats = Vec::new();
    header::ftrace_formats(&mut cursor, &mut formats)?;
    header::event_formats(&mut cursor, &mut formats)?;
    let size = cursor.u32("the size of kallsyms")?;
    cursor.skip(u64::from(size), "kallsyms")?;
    let size = cursor.u32("the size of the printk formats")?;
    cursor.skip(u64::from(size), "the printk formats")?;
    let cmdlines = header::cmdlines(&mut cursor)?;

    let mut facts = Facts::default();
    let cpus = cursor.u32("the number of CPUs")?;
    let mut top = table(input, &mut cursor, header, cpus, &mut facts)?;
    if facts.clock_follows && facts.clock.is_none() {
        // Early releases of trace-cmd wrote this text wrongly: do without it.
        facts.clock = cursor
            .u64("the size of the trace clock")
            .and_then(|size| cursor.text(size, "the trace clock"))
            .ok()
            .and_then(|text| bracketed(&text));
    }
    top.name = String::new();
    for index in 0..facts.buffers.len() {
        let (section, name) = (
            facts.buffers[index].section,
            facts.buffers[index].name.clone(),
        );
        if section == 0 {
            // trace-cmd split names the instances that it left out.
            continue;
        }
        // An instance's table is like the top one's; its options, if any, too.
        let mut cursor = Cursor::file(input, section, header.big_endian);
        let mut ignored = Facts::default();
        ignored.cpu_count = facts.cpu_count;
        let buffer = table(input, &mut cursor, header, cpus, &mut ignored)?;
        facts.buffers[index] = Buffer {
            section,
            name,
            ..buffer
        };
    }
    facts.buffers.insert(0, top);
    facts.cpu_count = Some(facts.cpu_count.unwrap_or(cpus));
    Ok(Contents {
        header_page,
        formats,
        cmdlines,
        facts,
    })
}

/// Options, then what kind of data there is, then where each CPU's is.
fn table(
    input: &Input,
    cursor: &mut Cursor,
    header: &Header,
    cpus: u32,
    facts: &mut Facts,
) -> Result<Buffer> {
    let mut kind = cursor.block(10, "the kind of data")?;
    if kind.starts_with(b"options") {
        loop {
            let option = cursor.u16("an option's number")?;
            if option == id::DONE {
                break;
            }
            let size = cursor.u32("an option's size")?;
            let start = cursor.at();
            let data = cursor.block(u64::from(size), "an option")?;
            let data = Cursor::memory(input, start, data, header.big_endian);
            facts.add(option, data, header.version)?;
        }
        kind = cursor.block(10, "the kind of data")?;
    }
    let mut buffer = Buffer {
        section: cursor.at(),
        ..Buffer::default()
    };
    if kind.starts_with(b"latency") {
        buffer.text = true;
        return Ok(buffer);
    }
    if !kind.starts_with(b"flyrecord") {
        cursor.seek(cursor.at() - 10);
        return Err(cursor.wrong(
            format!("{:?}", String::from_utf8_lossy(&kind)),
            "\"flyrecord\", \"latency\" or \"options\"",
        ));
    }
    // An option may correct the count that the header gives.
    let cpus = facts.cpu_count.unwrap_or(cpus);
    if cpus > MAX_CPUS {
        return Err(cursor.wrong(
            format!("data of {cpus} CPUs"),
            format!("at most {MAX_CPUS}"),
        ));
    }
    for cpu in 0..cpus {
        buffer.cpus.push((
            cpu,
            cursor.u64("a CPU's offset")?,
            cursor.u64("a CPU's size")?,
        ));
    }
    Ok(buffer)
}
