//! One line of ftrace text: who, where, when, what.
//!
//! ```text
//!           <idle>-0     [001] d.h6.  4836.436159: sched_waking: comm=...       tracefs, systrace
//! name:     <idle>-0     [000]4836436159475: sched_waking:  comm=...           trace-cmd report
//!   <idle>-0       0d.h6.4836436159475: sched_waking:  comm=...                trace-cmd report -l
//!           <idle>-0     [000] d.h6.4836436159475: sched_waking: comm=...       trace-cmd 3.2 on
//!     bash-17972     1..... 4813526302us!: sched_waking: comm=...              tracefs, latency-format
//!   migration/0      18 [000]  2449.680312:  sched:sched_waking: comm=...      perf script
//! ```
//!
//! Names hold spaces, colons and dashes, so a line is taken apart from the
//! time stamp outwards: a name is at most 15 bytes and cannot hold both a time
//! stamp with its colon and an event's name.

/// What stands before the event's own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    pub ts: i64,
    pub cpu: u16,
    /// The thread that was running; None where the text does not say.
    pub tid: Option<u32>,
    /// Raised in an interrupt, where flags are printed.
    pub interrupt: bool,
    pub event: &'a [u8],
    pub fields: &'a [u8],
}

/// A line that names an event at a time, but cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// No CPU that can be read.
    Place,
    /// Flags as a number run into the stamp, and where it begins is unknown:
    /// `[000]-0x951699164020946:` (trace-cmd 3.4 report -R).
    Flags,
}

/// The line's parts; None if no event name follows a time stamp.
pub fn parse(line: &[u8]) -> Option<Result<Line<'_>, Bad>> {
    let mut from = 0;
    while let Some(found) = line[from..].iter().position(|&byte| byte == b':') {
        let colon = from + found;
        from = colon + 1;
        let Some((event, fields)) = event(&line[colon + 1..]) else {
            continue;
        };
        if raw_flags(&line[..colon]) {
            return Some(Err(Bad::Flags));
        }
        if let Some((head, stamp)) = stamp(&line[..colon]) {
            return Some(place(head, stamp, event, fields));
        }
    }
    None
}

/// How the kernel prints a `sys_enter_sched_yield`: as a call, unlike other events.
const YIELD: &[u8] = b"sys_sched_yield()";

/// `  sched:sched_switch: rest`: at least one space, a name, a colon.
fn event(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = rest.trim_ascii_start();
    if text.len() == rest.len() {
        return None;
    }
    if text.trim_ascii_end() == YIELD {
        return Some((b"sys_enter_sched_yield", b""));
    }
    let word = |text: &[u8]| {
        text.iter()
            .position(|&byte| !(byte.is_ascii_alphanumeric() || byte == b'_'))
            .unwrap_or(text.len())
    };
    let mut name = text;
    let mut len = word(name);
    // perf puts the system before the event: sched:sched_switch
    if name.get(len) == Some(&b':') && name.get(len + 1).is_some_and(u8::is_ascii_alphabetic) {
        name = &name[len + 1..];
        len = word(name);
    }
    let fields = name.get(len..)?.strip_prefix(b":")?;
    // Linux before 3.4 names a program's marker by an address that is 0: "0: B|655|draw".
    let named = (len > 2 || &name[..len] == b"0") && !name.starts_with(PERF_RECORD);
    named.then(|| (&name[..len], fields.trim_ascii()))
}

/// How `perf script` begins what it prints of records that are no events.
pub const PERF_RECORD: &[u8] = b"PERF_RECORD_";

/// What stands behind `: PERF_RECORD_`, if the line is of such a record, and before it.
pub fn perf_record(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    while let Some(found) = line[from..].iter().position(|&byte| byte == b':') {
        let colon = from + found;
        from = colon + 1;
        if let Some(record) = line[from..].trim_ascii_start().strip_prefix(PERF_RECORD)
            && let Some((head, _)) = stamp(&line[..colon])
        {
            return Some((head, record));
        }
    }
    None
}

/// The CPU of a record of perf that says how many events were lost, and their number.
pub fn perf_loss(line: &[u8]) -> Option<(u16, u64)> {
    let (head, record) = perf_record(line)?;
    let count = record.strip_prefix(b"LOST lost ")?.trim_ascii_end();
    let head = head.trim_ascii_end().strip_suffix(b"]")?;
    let open = head.iter().rposition(|&byte| byte == b'[')?;
    let count = std::str::from_utf8(count).ok()?.parse().ok()?;
    Some((cpu(&head[open + 1..])?, count))
}

/// Is it "...]-0x", hexadecimal digits and the stamp's in one?
fn raw_flags(text: &[u8]) -> bool {
    let hex = |byte: &u8| byte.is_ascii_hexdigit();
    let Some(last) = text.iter().rposition(|byte| !hex(byte)) else {
        return false;
    };
    // Most lines end here: a point or a space is in front of the digits.
    text[last] == b'x' && text[..last].ends_with(b"]-0") && last + 1 < text.len()
}

#[derive(Debug, Clone, Copy)]
struct Stamp<'a> {
    ns: i64,
    /// CPU and flags, where they are one word with the stamp (trace-cmd report -l).
    glued: Option<(&'a [u8], &'a [u8])>,
}

/// The time stamp at the end of `text`, and what stands before it.
fn stamp(text: &[u8]) -> Option<(&[u8], Stamp<'_>)> {
    // latency-format: "4813526302us!" with a mark for long gaps.
    if let Some(micro) = latency_micro(text) {
        return Some(micro);
    }
    let begin = text
        .iter()
        .rposition(|b| matches!(b, b' ' | b']' | b'\t'))
        .map_or(0, |at| at + 1);
    let (head, word) = text.split_at(begin);
    if let Some(ns) = nanoseconds(word) {
        return Some((head, Stamp { ns, glued: None }));
    }
    // CPU, five flags (the last two may be digits), stamp.
    const FLAGS: usize = 5;
    let digits = word.iter().position(|b| !b.is_ascii_digit())?;
    let (cpu, rest) = word.split_at(digits);
    let (flags, digits) = rest.split_at_checked(FLAGS)?;
    // No flag is a comma: "4836,43.6159" is no CPU with flags.
    let flag = |&byte: &u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'#';
    if !flags.iter().all(flag) {
        return None;
    }
    let ns = nanoseconds(digits)?;
    if cpu.is_empty() {
        // trace-cmd 3.4: "[000] d.h6.4836436159475"
        return Some((&text[..begin + FLAGS], Stamp { ns, glued: None }));
    }
    Some((
        head,
        Stamp {
            ns,
            glued: Some((cpu, flags)),
        },
    ))
}

fn latency_micro(text: &[u8]) -> Option<(&[u8], Stamp<'_>)> {
    let text = text.trim_ascii_end();
    let text = match text.last()? {
        b'+' | b'!' | b'#' | b'*' | b'@' | b'$' => &text[..text.len() - 1],
        _ => text,
    };
    let digits = text.strip_suffix(b"us")?;
    let begin = digits.iter().rposition(|b| !b.is_ascii_digit())? + 1;
    let micro: i64 = std::str::from_utf8(&digits[begin..]).ok()?.parse().ok()?;
    Some((
        &digits[..begin],
        Stamp {
            ns: micro.checked_mul(1000)?,
            glued: None,
        },
    ))
}

/// "4836.436159" (µs), "4836.436159475" (ns) or "4836436159475" (ns), with a point or, where
/// a program of another language printed the lines again, a comma.
fn nanoseconds(digits: &[u8]) -> Option<i64> {
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0i64, |sum, &digit| {
            digit
                .is_ascii_digit()
                .then(|| sum.checked_mul(10)?.checked_add(i64::from(digit - b'0')))?
        })
    };
    let Some(dot) = digits.iter().position(|byte| b".,".contains(byte)) else {
        return if digits.is_empty() {
            None
        } else {
            number(digits)
        };
    };
    let (seconds, fraction) = (&digits[..dot], &digits[dot + 1..]);
    let scale = match fraction.len() {
        6 => 1000,
        9 => 1,
        _ => return None,
    };
    if seconds.is_empty() {
        return None;
    }
    number(seconds)?
        .checked_mul(1_000_000_000)?
        .checked_add(number(fraction)? * scale)
}

/// Seconds, as a header has them.
pub fn seconds(text: &str) -> Option<i64> {
    nanoseconds(text.as_bytes()).filter(|_| text.contains('.'))
}

fn place<'a>(
    head: &'a [u8],
    stamp: Stamp<'a>,
    event: &'a [u8],
    fields: &'a [u8],
) -> Result<Line<'a>, Bad> {
    if let Some((number, flags)) = stamp.glued {
        let cpu = cpu(number).ok_or(Bad::Place)?;
        return Ok(Line {
            ts: stamp.ns,
            cpu,
            tid: tid(head),
            interrupt: interrupt(flags),
            event,
            fields,
        });
    }
    let text = head.trim_ascii_end();
    // "... [001] d..2." or "... [001]": at most one word behind the CPU.
    if let Some(close) = text.iter().rposition(|&byte| byte == b']') {
        let flags = text[close + 1..].trim_ascii();
        let open = text[..close]
            .iter()
            .rposition(|&byte| byte == b'[')
            .ok_or(Bad::Place)?;
        let plain = !flags.contains(&b' ') && flags.len() <= 8;
        if let (Some(cpu), true) = (cpu(&text[open + 1..close]), plain) {
            let tid = tid(&text[..open]);
            return Ok(Line {
                ts: stamp.ns,
                cpu,
                tid,
                interrupt: interrupt(flags),
                event,
                fields,
            });
        }
    }
    // latency-format: "comm-pid   1d..2."
    let word = text
        .iter()
        .rposition(|&byte| byte == b' ')
        .map_or(0, |at| at + 1);
    let (word, before) = (&text[word..], &text[..word]);
    let digits = word
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(word.len());
    let (number, flags) = word.split_at(digits);
    match (cpu(number), (4..=8).contains(&flags.len())) {
        (Some(cpu), true) => Ok(Line {
            ts: stamp.ns,
            cpu,
            tid: tid(before),
            interrupt: interrupt(flags),
            event,
            fields,
        }),
        _ => Err(Bad::Place),
    }
}

fn cpu(digits: &[u8]) -> Option<u16> {
    let cpu: u16 = std::str::from_utf8(digits.trim_ascii())
        .ok()?
        .parse()
        .ok()?;
    (cpu < 1 << 14).then_some(cpu)
}

/// Third flag: h hard, s soft, H and Z nested or NMI.
fn interrupt(flags: &[u8]) -> bool {
    matches!(flags.get(2), Some(b'h' | b'H' | b's' | b'z' | b'Z'))
}

/// `comm-123`, `comm-123 (tgid)`, `comm 123` or `comm 120/123` at the end.
fn tid(text: &[u8]) -> Option<u32> {
    let mut text = text.trim_ascii_end();
    if text.last() == Some(&b')') {
        let open = text.iter().rposition(|&byte| byte == b'(')?;
        text = text[..open].trim_ascii_end();
    }
    let begin = text.iter().rposition(|b| !b.is_ascii_digit())? + 1;
    match text[begin - 1] {
        b'-' | b' ' => {}
        // "ksoftirqd/0" without a tid is a name.
        b'/' if begin > 1 && text[begin - 2].is_ascii_digit() => {}
        _ => return None,
    }
    std::str::from_utf8(&text[begin..]).ok()?.parse().ok()
}
