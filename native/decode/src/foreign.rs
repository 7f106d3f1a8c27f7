//! Traces of other tools that are not read, and what to open in their place.

use std::path::Path;

use super::read_head;
use crate::error::Error;

/// Of JSON: a word in its first bytes, what it is, and what to do.
const JSON: [(&str, &str, &str); 3] = [
    (
        "\"linux-perf-json-version\"",
        "JSON of `perf data convert --to-json`, whose samples do not name their events",
        "open the perf.data that it was made from",
    ),
    (
        "\"systemTraceEvents\"",
        "a Chrome trace in JSON with the lines of ftrace in a string",
        "take them out, as in `python3 -c 'import json,sys; \
         print(json.load(sys.stdin)[\"systemTraceEvents\"])' <FILE >trace.txt`, and open trace.txt",
    ),
    (
        "\"ph\"",
        "a Chrome trace in JSON",
        "if it has a string systemTraceEvents, take that out and open it as text; else it has no \
         events of the kernel's scheduler: record with `schedscope capture`",
    ),
];

/// Of text: words that its first lines have, what it is, and what to do.
const TEXT: [(&[&str], &str, &str); 5] = [
    (
        &["Attaching ", " probe"],
        "what a script of bpftrace printed",
        "such tables and lines lack events: record with `schedscope capture -t bpftrace`",
    ),
    (
        &["task name", "wait time", "sch delay"],
        "the table of `perf sched timehist`",
        "open the perf.data that it was made from, or the text of `perf script`",
    ),
    (
        &["Task ", "Runtime ms", "Switches"],
        "the table of `perf sched latency`",
        "open the perf.data that it was made from, or the text of `perf script`",
    ),
    (
        &["sched:sched_", "(comm: \""],
        "the text of `perf trace`, which does not name CPUs",
        "record with `perf sched record`, and open its perf.data",
    ),
    (
        &[" secs ", " => "],
        "the map of `perf sched map`",
        "open the perf.data that it was made from, or the text of `perf script`",
    ),
];

/// What a CTF trace's metadata begins with: packets, in either byte order, or text.
const CTF: [&[u8]; 3] = [b"\x57\x1d\xd1\x75", b"\x75\xd1\x1d\x57", b"/* CTF "];

/// The least size of a sub-buffer, and of its head.
const PAGE: u64 = 4096;
const PAGE_HEAD: u64 = 16;

/// Why a trace of a kind that is not read is refused, if it is one.
pub fn refusal(path: &Path, head: &[u8]) -> Option<Error> {
    let shown = path.display().to_string();
    if path.is_dir() {
        ctf(&shown, path)
    } else {
        pages(&shown, path, head).or_else(|| text(&shown, head))
    }
}

/// Tables and reports that other tools print.
fn text(shown: &str, head: &[u8]) -> Option<Error> {
    let head = std::str::from_utf8(&head[..head.len().min(512)]).ok()?;
    let (_, what, hint) = TEXT
        .iter()
        .find(|(words, ..)| words.iter().all(|word| head.contains(word)))?;
    Some(Error::format(
        format!("{shown} is {what}"),
        "a trace of every switch and wakeup",
        *hint,
    ))
}

/// The head of a file of no known format, for a person: its first line if it is text.
pub fn start(head: &[u8]) -> String {
    let line = head.trim_ascii_start().split(|byte| *byte == b'\n').next();
    let line = line.unwrap_or(head).trim_ascii_end();
    let printable = |byte: &u8| *byte == b'\t' || (b' '..=b'~').contains(byte);
    if !line.is_empty() && line.iter().take(64).all(printable) {
        let text = String::from_utf8_lossy(&line[..line.len().min(40)]);
        return format!("{text:?}");
    }
    let bytes = head.iter().take(8).map(|byte| format!("{byte:02x}"));
    format!("bytes {}", bytes.collect::<Vec<_>>().join(" "))
}

/// The same of JSON, whose strings may look like lines of a trace.
pub fn json(shown: &str, head: &[u8]) -> Option<Error> {
    let text = head.trim_ascii_start();
    let object = match text.first()? {
        b'{' => text,
        b'[' => text[1..].trim_ascii_start(),
        _ => return None,
    };
    if object.first() != Some(&b'{') {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let known = JSON.iter().find(|(word, ..)| text.contains(word));
    let (what, hint) = known.map_or(("JSON", "open the trace that it was made from"), |one| {
        (one.1, one.2)
    });
    let found = format!("{shown} is {what}");
    Some(Error::format(
        found,
        "a trace as its recorder wrote it",
        hint,
    ))
}

/// A folder of LTTng, babeltrace or `perf data convert --to-ctf`.
fn ctf(shown: &str, path: &Path) -> Option<Error> {
    let head = read_head(&path.join("metadata")).ok()?;
    CTF.iter().any(|magic| head.starts_with(magic)).then(|| {
        Error::format(
            format!("{shown} is a trace in the Common Trace Format (CTF)"),
            "a trace of ftrace, perf, Perfetto, bpftrace or DTrace",
            "open the perf.data that it was made from; of LTTng, record with another tool",
        )
    })
}

/// Sub-buffers as `trace_pipe_raw` gives them: a time, and how many bytes follow.
fn pages(shown: &str, path: &Path, head: &[u8]) -> Option<Error> {
    let bytes = path.metadata().ok()?.len();
    let word = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let (time, committed) = (word(0)?, word(8)? & 0xffff_ffff_3fff_ffff);
    let whole = bytes > 0 && bytes.is_multiple_of(PAGE);
    let room = (1..=bytes.checked_sub(PAGE_HEAD)?).contains(&committed) && committed < 1 << 16;
    let clock = (1..1 << 62).contains(&time);
    (whole && room && clock && committed.is_multiple_of(4)).then(|| {
        Error::format(
            format!("{shown} seems to be pages of ftrace's trace_pipe_raw, without their formats"),
            "a capture folder or a trace.dat, which have the formats of their events",
            "make a trace.dat of the files of all CPUs with `trace-cmd restore`",
        )
    })
}
