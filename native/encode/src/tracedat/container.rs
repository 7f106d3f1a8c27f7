//! The file around the sub-buffers: headers, formats, options, tables.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Settings;
use super::formats::{Formats, HEADER_EVENT, header_page};
use super::spool::Spool;
use crate::decode::tracedat::compression::Kind;
use crate::decode::tracedat::header::MAGIC;
use crate::decode::tracedat::options::id;
use crate::error::{Error, Result};
use crate::model::event::Comm;

/// Bytes in the file's order.
#[derive(Default)]
struct Bytes {
    big_endian: bool,
    bytes: Vec<u8>,
}

impl Bytes {
    fn new(settings: &Settings) -> Self {
        Self {
            big_endian: settings.big_endian,
            bytes: Vec::new(),
        }
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&if self.big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        })
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&if self.big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        })
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&if self.big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        })
    }

    fn string(&mut self, text: &str) -> &mut Self {
        self.raw(text.as_bytes()).raw(&[0])
    }

    /// A text behind its 8-byte length.
    fn long_text(&mut self, text: &str) -> &mut Self {
        self.u64(text.len() as u64).raw(text.as_bytes())
    }

    fn option(&mut self, id: u16, data: &[u8]) -> &mut Self {
        self.u16(id).u32(data.len() as u32).raw(data)
    }
}

/// The file being written, under another name until it is whole.
struct Output {
    out: BufWriter<File>,
    partial: PathBuf,
    doing: String,
    at: u64,
    done: bool,
}

impl Output {
    fn create(target: &Path) -> Result<Self> {
        let mut partial = target.as_os_str().to_owned();
        partial.push(".partial");
        let doing = format!("write {}", target.display());
        let file = File::create(&partial).map_err(|error| Error::io(doing.clone(), &error))?;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 18, file),
            partial: partial.into(),
            doing,
            at: 0,
            done: false,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out
            .write_all(bytes)
            .map_err(|error| Error::io(self.doing.clone(), &error))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn patch(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.out
            .seek(SeekFrom::Start(at))
            .and_then(|_| self.out.write_all(bytes))
            .and_then(|()| self.out.seek(SeekFrom::Start(self.at)))
            .map(|_| ())
            .map_err(|error| Error::io(self.doing.clone(), &error))
    }

    /// Zeros up to the next multiple of `bytes`.
    fn align(&mut self, bytes: u64) -> Result<()> {
        let gap = self.at.next_multiple_of(bytes) - self.at;
        self.put(&vec![0; gap as usize])
    }

    /// Appends a CPU's data; returns where it begins.
    fn copy(&mut self, spool: &mut Spool, align: u64) -> Result<u64> {
        self.align(align)?;
        let begin = self.at;
        self.at += spool.copy_to(&mut self.out, &self.doing)?;
        Ok(begin)
    }

    fn finish(mut self, target: &Path) -> Result<()> {
        self.out
            .flush()
            .and_then(|()| std::fs::rename(&self.partial, target))
            .map_err(|error| Error::io(self.doing.clone(), &error))?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.done {
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// Writes the whole file.
pub fn write(
    target: &Path,
    settings: &Settings,
    names: &BTreeMap<u32, Comm>,
    spools: &mut [Spool],
) -> Result<()> {
    let mut out = Output::create(target)?;
    let mut head = Bytes::new(settings);
    head.raw(MAGIC).string(&settings.version.to_string());
    head.raw(&[u8::from(settings.big_endian), settings.long_bytes as u8]);
    head.u32(settings.page_bytes as u32);
    if settings.version == 6 {
        version_6(&mut out, settings, names, spools, head)?;
    } else {
        version_7(&mut out, settings, names, spools, head)?;
    }
    out.finish(target)
}

fn header_files(settings: &Settings) -> Bytes {
    let mut part = Bytes::new(settings);
    part.raw(b"header_page\0")
        .long_text(&header_page(settings.long_bytes, settings.page_bytes));
    part.raw(b"header_event\0").long_text(HEADER_EVENT);
    part
}

fn event_formats(settings: &Settings) -> Bytes {
    let formats = Formats::new(settings.long_bytes);
    let systems = formats.systems();
    let mut part = Bytes::new(settings);
    part.u32(systems.len() as u32);
    for (system, events) in systems {
        part.string(system).u32(events.len() as u32);
        for event in events {
            part.long_text(&event.text());
        }
    }
    part
}

fn cmdlines(settings: &Settings, names: &BTreeMap<u32, Comm>) -> Bytes {
    let mut text = Vec::new();
    for (tid, comm) in names {
        text.extend(format!("{tid} ").bytes());
        // A line ends the name.
        text.extend(
            comm.as_bytes()
                .iter()
                .map(|&b| if b == b'\n' { b'?' } else { b }),
        );
        text.push(b'\n');
    }
    let mut part = Bytes::new(settings);
    part.u64(text.len() as u64).raw(&text);
    part
}

fn clock_list(settings: &Settings) -> String {
    format!("[{}]", settings.clock)
}

fn version_option() -> Vec<u8> {
    format!("schedscope {}\0", env!("CARGO_PKG_VERSION")).into_bytes()
}

fn version_6(
    out: &mut Output,
    settings: &Settings,
    names: &BTreeMap<u32, Comm>,
    spools: &mut [Spool],
    mut head: Bytes,
) -> Result<()> {
    head.raw(&header_files(settings).bytes);
    head.u32(0); // formats of ftrace's own events
    head.raw(&event_formats(settings).bytes);
    head.u32(0).u32(0); // kallsyms, printk formats
    head.raw(&cmdlines(settings, names).bytes);
    head.u32(spools.len() as u32);
    head.raw(b"options  \0");
    head.option(id::UNAME, format!("{}\0", settings.uname).as_bytes());
    head.option(id::VERSION, &version_option());
    // Empty: the clock's name follows the table of CPUs.
    head.option(id::TRACECLOCK, &[]);
    let mut instance = 0;
    if !settings.buffer.is_empty() {
        let mut data = Bytes::new(settings);
        data.u64(0).string(&settings.buffer);
        head.u16(id::BUFFER).u32(data.bytes.len() as u32);
        instance = head.bytes.len() as u64;
        head.raw(&data.bytes);
    }
    head.u16(id::DONE);
    out.put(&head.bytes)?;

    // The top instance's table; empty if the events belong to another one.
    if !settings.buffer.is_empty() {
        table(out, settings, &vec![(0, 0); spools.len()])?;
        let mut at = Bytes::new(settings);
        at.u64(out.at);
        out.patch(instance, &at.bytes)?;
    }
    let table_at = out.at;
    table(out, settings, &vec![(0, 0); spools.len()])?;
    let mut places = Vec::new();
    for spool in spools.iter_mut() {
        let begin = out.copy(spool, settings.page_bytes as u64)?;
        places.push((begin, spool.len()));
    }
    let mut filled = Bytes::new(settings);
    for (begin, len) in places {
        filled.u64(begin).u64(len);
    }
    out.patch(table_at + 10, &filled.bytes)
}

fn table(out: &mut Output, settings: &Settings, places: &[(u64, u64)]) -> Result<()> {
    let mut part = Bytes::new(settings);
    part.raw(b"flyrecord\0");
    for &(begin, len) in places {
        part.u64(begin).u64(len);
    }
    part.long_text(&clock_list(settings));
    out.put(&part.bytes)
}

/// The texts that sections are described by, one after another.
struct Strings(Bytes);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        let at = self.0.bytes.len() as u32;
        self.0.string(text);
        at
    }
}

fn section(
    out: &mut Output,
    settings: &Settings,
    strings: &mut Strings,
    (id, name): (u16, &str),
    bytes: &[u8],
    compress: bool,
) -> Result<u64> {
    let begin = out.at;
    let mut body = Bytes::new(settings);
    let compress = compress && settings.compression != Kind::None;
    if compress {
        let packed = settings.compression.compress(bytes)?;
        body.u32(packed.len() as u32)
            .u32(bytes.len() as u32)
            .raw(&packed);
    } else {
        body.raw(bytes);
    }
    let mut head = Bytes::new(settings);
    head.u16(id)
        .u16(u16::from(compress))
        .u32(strings.add(name))
        .u64(body.bytes.len() as u64);
    out.put(&head.bytes)?;
    out.put(&body.bytes)?;
    Ok(begin)
}

fn version_7(
    out: &mut Output,
    settings: &Settings,
    names: &BTreeMap<u32, Comm>,
    spools: &mut [Spool],
    mut head: Bytes,
) -> Result<()> {
    let mut strings = Strings(Bytes::new(settings));
    head.string(settings.compression.name())
        .string(settings.compression.version());
    let first_options = head.bytes.len() as u64;
    head.u64(0);
    out.put(&head.bytes)?;

    let mut options = Bytes::new(settings);
    let parts = [
        (id::HEADER_INFO, "headers", header_files(settings).bytes),
        (id::FTRACE_EVENTS, "ftrace events", vec![0; 4]),
        (
            id::EVENT_FORMATS,
            "events format",
            event_formats(settings).bytes,
        ),
        (id::KALLSYMS, "kallsyms", vec![0; 4]),
        (id::PRINTK, "printk", vec![0; 4]),
        (
            id::CMDLINES,
            "command lines",
            cmdlines(settings, names).bytes,
        ),
    ];
    for (id, name, bytes) in parts {
        let begin = section(out, settings, &mut strings, (id, name), &bytes, true)?;
        let mut data = Bytes::new(settings);
        data.u64(begin);
        options.option(id, &data.bytes);
    }
    let mut cpus = Bytes::new(settings);
    cpus.u32(spools.len() as u32);
    options.option(
        id::TRACECLOCK,
        format!("{}\0", clock_list(settings)).as_bytes(),
    );
    options.option(id::UNAME, format!("{}\0", settings.uname).as_bytes());
    options.option(id::VERSION, &version_option());
    options.option(id::CPUCOUNT, &cpus.bytes);
    let buffer = buffer_section(out, settings, &mut strings, spools)?;
    options.option(id::BUFFER, &buffer.bytes);
    let mut end = Bytes::new(settings);
    end.u64(0);
    options.option(id::DONE, &end.bytes);
    let begin = section(
        out,
        settings,
        &mut strings,
        (id::DONE, "options"),
        &options.bytes,
        false,
    )?;
    let mut at = Bytes::new(settings);
    at.u64(begin);
    out.patch(first_options, &at.bytes)?;
    let mut last = Strings(Bytes::new(settings));
    std::mem::swap(&mut last, &mut strings);
    let name = last.add("strings");
    let mut head = Bytes::new(settings);
    head.u16(id::STRINGS)
        .u16(0)
        .u32(name)
        .u64(last.0.bytes.len() as u64);
    out.put(&head.bytes)?;
    out.put(&last.0.bytes)
}

/// The events; returns the option that locates them.
fn buffer_section(
    out: &mut Output,
    settings: &Settings,
    strings: &mut Strings,
    spools: &mut [Spool],
) -> Result<Bytes> {
    let begin = out.at;
    let name = strings.add(&format!("buffer flyrecord {}", settings.buffer));
    let compressed = u16::from(settings.compression != Kind::None);
    let mut head = Bytes::new(settings);
    head.u16(id::BUFFER).u16(compressed).u32(name).u64(0);
    out.put(&head.bytes)?;
    let mut option = Bytes::new(settings);
    option
        .u64(begin)
        .string(&settings.buffer)
        .string(&settings.clock);
    option.u32(settings.page_bytes as u32);
    option.u32(spools.iter().filter(|spool| spool.len() > 0).count() as u32);
    for (cpu, spool) in spools.iter_mut().enumerate() {
        if spool.len() == 0 {
            continue;
        }
        let data = out.copy(spool, settings.page_bytes as u64)?;
        option.u32(cpu as u32).u64(data).u64(spool.len());
    }
    let mut size = Bytes::new(settings);
    size.u64(out.at - begin - 16);
    out.patch(begin + 8, &size.bytes)?;
    Ok(option)
}
