//! The options of a trace.dat: facts about the recording, and where its
//! buffers are.

use crate::error::Result;
use crate::ftrace::clock::{Sample, Shift};
use crate::ftrace::cpu_stats::CpuStats;
use crate::tracedat::cursor::Cursor;

/// Option numbers of trace-cmd.
pub mod id {
    pub const DONE: u16 = 0;
    pub const DATE: u16 = 1;
    pub const CPUSTAT: u16 = 2;
    pub const BUFFER: u16 = 3;
    pub const TRACECLOCK: u16 = 4;
    pub const UNAME: u16 = 5;
    pub const OFFSET: u16 = 7;
    pub const CPUCOUNT: u16 = 8;
    pub const VERSION: u16 = 9;
    pub const TRACEID: u16 = 11;
    pub const TIME_SHIFT: u16 = 12;
    pub const TSC2NSEC: u16 = 14;
    pub const STRINGS: u16 = 15;
    pub const HEADER_INFO: u16 = 16;
    pub const FTRACE_EVENTS: u16 = 17;
    pub const EVENT_FORMATS: u16 = 18;
    pub const KALLSYMS: u16 = 19;
    pub const PRINTK: u16 = 20;
    pub const CMDLINES: u16 = 21;
    pub const BUFFER_TEXT: u16 = 22;
}

/// One buffer instance.
#[derive(Debug, Clone, Default)]
pub struct Buffer {
    /// Empty for the top instance.
    pub name: String,
    pub clock: Option<String>,
    /// Where its section (version 7) or its table (version 6) is.
    pub section: u64,
    pub page_bytes: Option<u32>,
    /// CPU, offset and size of its data in the file.
    pub cpus: Vec<(u32, u64, u64)>,
    /// Holds the text of `trace` instead of events.
    pub text: bool,
    pub compressed: bool,
}

/// What the options say.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub uname: String,
    pub version: String,
    pub clock: Option<String>,
    /// The clock's text follows the table of CPUs (version 6).
    pub clock_follows: bool,
    pub cpu_count: Option<u32>,
    pub trace_id: Option<u64>,
    /// Added to every time stamp, ns.
    pub offset: i64,
    /// Multiplier and shift from TSC cycles to ns.
    pub tsc: Option<(u32, u32)>,
    /// Corrections by CPU.
    pub shifts: Vec<Shift>,
    /// Counts of `stats` files, with the instance they belong to.
    pub stats: Vec<(String, CpuStats)>,
    pub buffers: Vec<Buffer>,
    /// Where sections are, by option number (version 7).
    pub sections: Vec<(u16, u64)>,
    stats_of: String,
}

/// Flag of TIME_SHIFT: between two samples, the offset changes steadily.
const INTERPOLATE: u32 = 1;
/// The most CPUs any Linux can have.
pub const MAX_CPUS: u32 = 8192;

impl Facts {
    /// Takes the option `id`, whose data is all of `data`.
    pub fn add(&mut self, id: u16, mut data: Cursor, version: u32) -> Result<()> {
        let size = data.left();
        match id {
            id::DATE => {
                // Microseconds between the trace's clock and the time of day.
                let text = data.text(size, "the date option")?;
                let ns = number(&text).unwrap_or(0).saturating_mul(1000);
                self.offset = self.offset.saturating_add(ns);
            }
            id::OFFSET => {
                let text = data.text(size, "the offset option")?;
                self.offset = self.offset.saturating_add(number(&text).unwrap_or(0));
            }
            id::CPUSTAT => {
                let text = data.text(size, "the CPU statistics")?;
                self.stats(&text);
            }
            id::TRACECLOCK => {
                let text = data.text(size, "the trace clock")?;
                self.clock_follows = text.is_empty();
                self.clock = bracketed(&text).or(self.clock.take());
            }
            id::UNAME => self.uname = data.text(size, "the uname option")?,
            id::VERSION => self.version = data.text(size, "the version option")?,
            id::CPUCOUNT => self.cpu_count = Some(data.u32("the CPU count")?),
            id::TRACEID if size >= 8 => self.trace_id = Some(data.u64("the trace id")?),
            id::TSC2NSEC if size >= 16 => {
                self.tsc = Some((data.u32("the TSC multiplier")?, data.u32("the TSC shift")?));
            }
            id::TIME_SHIFT if size >= 16 => self.shifts = shifts(&mut data)?,
            id::BUFFER | id::BUFFER_TEXT => {
                self.buffers
                    .push(buffer(&mut data, id == id::BUFFER_TEXT, version)?);
            }
            id::HEADER_INFO..=id::CMDLINES if size >= 8 => {
                self.sections.push((id, data.u64("a section's offset")?));
            }
            _ => {}
        }
        Ok(())
    }

    /// `Buffer: NAME` changes the instance that the following CPUs belong to.
    fn stats(&mut self, text: &str) {
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("Buffer:") {
                self.stats_of = name.trim().to_string();
            }
        }
        let cpu = text
            .lines()
            .find_map(|line| line.strip_prefix("CPU:")?.trim().parse().ok());
        if let Some(stats) = cpu.and_then(|cpu| CpuStats::parse(cpu, text)) {
            self.stats.push((self.stats_of.clone(), stats));
        }
    }

    pub fn section(&self, id: u16) -> Option<u64> {
        self.sections
            .iter()
            .find(|(known, _)| *known == id)
            .map(|&(_, at)| at)
    }
}

/// The word in brackets of `local global [mono]`.
pub fn bracketed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(name, _)| name.to_string())
}

/// A number as strtoll reads it: decimal, or hexadecimal behind 0x.
fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let value = match digits.strip_prefix("0x") {
        // Written from a signed number: the top bit is a sign.
        Some(hex) => u64::from_str_radix(hex, 16).ok()? as i64,
        None => digits.parse().ok()?,
    };
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

fn buffer(data: &mut Cursor, text: bool, version: u32) -> Result<Buffer> {
    let mut buffer = Buffer {
        section: data.u64("a buffer's offset")?,
        name: data.string("a buffer's name")?,
        text,
        ..Buffer::default()
    };
    if version < 7 {
        return Ok(buffer);
    }
    buffer.clock = Some(data.string("a buffer's clock")?);
    if text {
        return Ok(buffer);
    }
    buffer.page_bytes = Some(data.u32("a buffer's page size")?);
    let cpus = data.u32("a buffer's number of CPUs")?;
    if cpus > MAX_CPUS {
        return Err(data.wrong(
            format!("a buffer of {cpus} CPUs"),
            format!("at most {MAX_CPUS}"),
        ));
    }
    for _ in 0..cpus {
        let cpu = data.u32("a CPU's number")?;
        if cpu >= MAX_CPUS || buffer.cpus.iter().any(|&(known, ..)| known == cpu) {
            return Err(data.wrong(
                format!("data of CPU {cpu}"),
                format!("each CPU once, with a number below {MAX_CPUS}"),
            ));
        }
        buffer
            .cpus
            .push((cpu, data.u64("a CPU's offset")?, data.u64("a CPU's size")?));
    }
    Ok(buffer)
}

fn shifts(data: &mut Cursor) -> Result<Vec<Shift>> {
    data.skip(8, "the peer's trace id")?;
    let flags = data.u32("the time shift's flags")?;
    let cpus = data.u32("the time shift's number of CPUs")?;
    if cpus > MAX_CPUS {
        return Err(data.wrong(format!("{cpus} CPUs"), format!("at most {MAX_CPUS}")));
    }
    let mut shifts = Vec::new();
    for _ in 0..cpus {
        let count = u64::from(data.u32("a CPU's number of corrections")?);
        if count > data.left() / 24 {
            return Err(data.wrong(
                format!("{count} corrections"),
                format!("at most {}, for which there is room", data.left() / 24),
            ));
        }
        let mut samples = vec![
            Sample {
                scaling: 1,
                ..Sample::default()
            };
            count as usize
        ];
        for sample in &mut samples {
            sample.time = data.u64("a correction's time")? as i64;
        }
        for sample in &mut samples {
            sample.offset = data.u64("a correction's offset")? as i64;
        }
        for sample in &mut samples {
            sample.scaling = data.u64("a correction's scaling")?;
        }
        shifts.push(Shift {
            interpolate: flags & INTERPOLATE != 0,
            samples,
        });
    }
    // Older files end here: their scaling has no fraction.
    if data.left() > 0 {
        for sample in shifts.iter_mut().flat_map(|shift| &mut shift.samples) {
            sample.fraction = data.u64("a correction's fraction")?.min(127) as u32;
        }
    }
    for shift in &mut shifts {
        shift.samples.sort_by_key(|sample| sample.time);
        shift.samples.dedup_by_key(|sample| sample.time);
    }
    Ok(shifts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_clocks_are_read_from_their_texts() {
        assert_eq!(number("0x10"), Some(16));
        assert_eq!(number("-0x10"), Some(-16));
        assert_eq!(number("0xffffffffffffffff"), Some(-1));
        assert_eq!(number("-12\n"), Some(-12));
        assert_eq!(number("x"), None);
        assert_eq!(bracketed("local [mono] boot\n").as_deref(), Some("mono"));
        assert_eq!(bracketed("local"), None);
    }

    #[test]
    fn statistics_belong_to_the_buffer_named_before_them() {
        let mut facts = Facts::default();
        facts.stats("CPU: 0\nentries: 0\noverrun: 1\n");
        facts.stats("\nBuffer: sub\n\n");
        facts.stats("CPU: 1\noverrun: 2\ndropped events: 3\n");
        let expected = [
            (
                String::new(),
                CpuStats {
                    overrun: 1,
                    ..CpuStats::default()
                },
            ),
            (
                "sub".to_string(),
                CpuStats {
                    cpu: 1,
                    overrun: 2,
                    never_written: 3,
                    ..CpuStats::default()
                },
            ),
        ];
        assert_eq!(facts.stats, expected);
    }
}
