//! What every capture folder has, whatever recorder made it: `capture.json`,
//! the threads at the start, the CPUs (docs/capture-format.md).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::model::event::{Comm, CpuInfo, KnownProcess, KnownThread, SchedClass, SourceInfo};
use crate::regular_file::open_regular;

/// Tables and JSON are read whole; no real one comes near.
const MAX_TEXT: u64 = 64 << 20;

/// An opened capture folder.
pub struct CaptureFolder {
    pub path: PathBuf,
    pub json: Value,
}

/// The recorder that made the capture at `path`, if it is one.
pub fn recorder(path: &Path) -> Option<String> {
    let folder = CaptureFolder::open(path).ok()?;
    folder.text(&["recorder", "name"]).map(str::to_string)
}

impl CaptureFolder {
    pub fn open(path: &Path) -> Result<Self> {
        let file = path.join("capture.json");
        let text = read_text(&file)?;
        let json: Value = serde_json::from_str(&text).map_err(|error| {
            let state = if error.is_eof() {
                "cut short"
            } else {
                "damaged"
            };
            Error::format(
                format!("{} is {state} ({error})", file.display()),
                "one JSON object, with its closing brace",
                "copy the capture again from the host that recorded it",
            )
        })?;
        let folder = Self {
            path: path.to_path_buf(),
            json,
        };
        if folder.text(&["format"]) != Some("schedscope-capture") {
            return Err(folder.wrong(
                "no \"format\": \"schedscope-capture\"",
                "a capture's own JSON",
            ));
        }
        match folder.number(&["version"]) {
            Some(1) => Ok(folder),
            found => Err(folder.wrong(
                &format!(
                    "version {}",
                    found.map_or("unknown".into(), |v| v.to_string())
                ),
                "version 1",
            )),
        }
    }

    /// Why the folder at `path`, whose `capture.json` is there, is of no known format.
    pub fn refusal(path: &Path) -> Error {
        match Self::open(path) {
            Err(error) => error,
            Ok(folder) => {
                let recorder = match folder.text(&["recorder", "name"]) {
                    Some(name) => format!("its recorder is {name:?}"),
                    None => "it names no recorder".into(),
                };
                folder.wrong(&recorder, "ftrace, perf, bpftrace or dtrace")
            }
        }
    }

    fn wrong(&self, found: &str, expected: &str) -> Error {
        Error::format(
            format!("{}: {found}", self.path.join("capture.json").display()),
            expected,
            "convert it with the schedscope release that its collectors came with",
        )
    }

    pub fn get(&self, path: &[&str]) -> Option<&Value> {
        path.iter()
            .try_fold(&self.json, |value, key| value.get(key))
    }

    pub fn text(&self, path: &[&str]) -> Option<&str> {
        self.get(path)?.as_str()
    }

    pub fn number(&self, path: &[&str]) -> Option<i64> {
        self.get(path)?.as_i64()
    }

    /// Everything known before the first event; the recorder's decoder adds what its events report.
    pub fn info(&self) -> Result<SourceInfo> {
        let rows = self.table("threads.tsv")?;
        let mut threads = self.threads(&rows);
        // The first of each: a table may name one twice.
        let mut places: FxHashMap<u32, usize> = FxHashMap::default();
        for (place, thread) in threads.iter().enumerate() {
            places.entry(thread.tid).or_insert(place);
        }
        let recorders = self.get(&["recorder_tids"]).and_then(Value::as_array);
        for tid in recorders.into_iter().flatten().filter_map(Value::as_u64) {
            let Ok(tid) = u32::try_from(tid) else {
                continue;
            };
            let place = *places.entry(tid).or_insert(threads.len());
            if place == threads.len() {
                threads.push(KnownThread {
                    tid,
                    ..KnownThread::default()
                });
            }
            threads[place].recorder = true;
        }
        let cpus = self.cpus()?;
        let most = cpus
            .iter()
            .map(|cpu| i64::from(cpu.cpu) + 1)
            .max()
            .unwrap_or(0);
        let ncpu = self.number(&["ncpu"]).unwrap_or(0).max(most);
        Ok(SourceInfo {
            ncpu: u16::try_from(ncpu).unwrap_or(u16::MAX),
            counts_cpus: ncpu > 0,
            cpus,
            threads,
            processes: self.processes()?,
            window: (
                self.number(&["window", "begin"]),
                self.number(&["window", "end"]),
            ),
            unfinished: self.ends_early(),
            linux_priorities: self.text(&["os"]) == Some("Linux"),
            remarks: self.remarks(),
            about: self.about(&rows)?.to_string(),
            ..SourceInfo::default()
        })
    }

    /// That the recording was interrupted, and what the recorder noted.
    fn remarks(&self) -> Vec<String> {
        let interrupted = self.text(&["interrupted"]);
        let notes = self.get(&["notes"]).and_then(Value::as_array);
        interrupted
            .map(|how| format!("the recording was interrupted ({how})"))
            .into_iter()
            .chain(
                notes
                    .into_iter()
                    .flatten()
                    .filter_map(|note| note.as_str().map(str::to_string)),
            )
            .collect()
    }

    /// What trace.json says of the recording: `capture.json`, with the control groups, the
    /// kernel's own account of CPU time, and what only some `threads` have.
    fn about(&self, threads: &[Row]) -> Result<Value> {
        let mut about = self.json.clone();
        for (name, rows) in [
            ("groups", self.groups()?),
            ("cpu_time", self.cpu_time()?),
            ("autogroups", self.autogroups()?),
            ("reservations", reservations(threads)),
            ("slices", slices(threads)),
            ("nice", self.nice(threads)),
        ] {
            if !rows.is_empty()
                && let Some(about) = about.as_object_mut()
            {
                about.insert(name.into(), Value::from(rows));
            }
        }
        if let Some((begin, end)) = self.counters_read()?
            && let Some(about) = about.as_object_mut()
        {
            about.insert("counters_read".into(), serde_json::json!([begin, end]));
        }
        Ok(about)
    }

    /// The nice value of threads where it is not 0 and no priority shows it.
    fn nice(&self, threads: &[Row]) -> Vec<Value> {
        if self.text(&["os"]) != Some("FreeBSD") {
            return Vec::new();
        }
        let of = |row: &Row| {
            let (tid, nice) = (row.number::<u32>("tid")?, row.number::<i8>("nice")?);
            (nice != 0).then(|| serde_json::json!({"tid": tid, "nice": nice}))
        };
        threads.iter().filter_map(of).collect()
    }

    /// The interval in which the kernel's counters, whose growth is recorded, certainly counted.
    fn counters_read(&self) -> Result<Option<(i64, i64)>> {
        let rows = self.table("cputime.tsv")?;
        let (first, last) = first_and_last(&rows);
        let at = |row: &&Row| row.number::<i64>("at");
        let begin = first.iter().filter_map(at).max();
        let end = last.iter().filter_map(at).min();
        Ok(begin.zip(end).filter(|(begin, end)| begin <= end))
    }

    /// Each control group as it was when recording ended, or started if that is all there is; its
    /// counters less what they were at the start. Times are in ns.
    fn groups(&self) -> Result<Vec<Value>> {
        let rows = self.table("groups.tsv")?;
        let name = |row: &Row| row.text("cgroup").map(str::to_string);
        let (first, last) = first_and_last(&rows);
        let before: FxHashMap<_, _> = first.iter().map(|row| (name(row), *row)).collect();
        let after: FxHashMap<_, _> = last.iter().map(|row| (name(row), *row)).collect();
        let mut found = Vec::new();
        for row in &first {
            let Some(cgroup) = name(row) else { continue };
            let end = after.get(&Some(cgroup.clone())).copied();
            found.push(group(&cgroup, Some(row), end));
        }
        for row in last.iter().filter(|row| !before.contains_key(&name(row))) {
            // Made while it was recorded: its counters began at 0.
            found.extend(name(row).map(|cgroup| group(&cgroup, None, Some(row))));
        }
        Ok(found)
    }

    /// The session by which each process outside of all groups shares CPU time: its number and its
    /// nice level.
    fn autogroups(&self) -> Result<Vec<Value>> {
        let mut seen = rustc_hash::FxHashSet::default();
        let rows = self.table("processes.tsv")?;
        let found = rows.iter().filter_map(|row| {
            let pid = row.number::<u32>("pid")?;
            let (session, nice) = row.text("autogroup")?.split_once(':')?;
            let (session, nice) = (session.parse::<u64>().ok()?, nice.parse::<i8>().ok()?);
            seen.insert(pid)
                .then(|| serde_json::json!({"pid": pid, "session": session, "nice": nice}))
        });
        Ok(found.collect())
    }

    /// How each CPU spent the time from just before the recording to just after it, as the kernel
    /// counted, and how long that was, in ns; of CPUs that were there both times.
    fn cpu_time(&self) -> Result<Vec<Value>> {
        let rows = self.table("cputime.tsv")?;
        let (first, last) = first_and_last(&rows);
        let before: FxHashMap<_, _> = first
            .iter()
            .map(|row| (row.number::<u16>("cpu"), *row))
            .collect();
        Ok(last
            .iter()
            .filter_map(|row| {
                let cpu = row.number::<u16>("cpu")?;
                let start = before.get(&Some(cpu))?;
                let spent = |name| {
                    let (start, end) = (start.number::<u64>(name)?, row.number::<u64>(name)?);
                    Some(end.saturating_sub(start).saturating_mul(1_000_000))
                };
                let elapsed = || {
                    let (start, end) = (start.number::<u64>("at")?, row.number::<u64>("at")?);
                    end.checked_sub(start)
                };
                Some(serde_json::json!({
                    "cpu": cpu,
                    "user": spent("user"),
                    "system": spent("system"),
                    "idle": spent("idle"),
                    "irq": spent("irq"),
                    "softirq": spent("softirq"),
                    "steal": spent("steal"),
                    "elapsed": elapsed(),
                }))
            })
            .collect())
    }

    /// What was after a CPU's last event is unknown: the capture does not say when recording ended,
    /// or says that it ended before its window did.
    fn ends_early(&self) -> bool {
        let lost = self.get(&["lost"]).and_then(Value::as_array);
        self.number(&["window", "end"]).is_none()
            || lost
                .into_iter()
                .flatten()
                .any(|loss| loss.get("reason").and_then(Value::as_str) == Some("early_end"))
    }

    fn threads(&self, rows: &[Row]) -> Vec<KnownThread> {
        // A flight recorder reads the table when it takes a snapshot.
        let at_end = self.get(&["ring"]).is_some_and(Value::is_object);
        rows.iter()
            .filter_map(|row| {
                let kernel = row.number::<u8>("kernel").map(|kernel| kernel != 0);
                Some(KnownThread {
                    tid: row.number("tid")?,
                    pid: row.number("pid"),
                    ppid: row.number("ppid"),
                    comm: Comm::new(&unescape(row.text("comm").unwrap_or(""))),
                    prio: row.number("prio"),
                    class: row.text("policy").and_then(|policy| class(policy, kernel)),
                    kernel,
                    affinity: row.text("affinity").map(str::to_string),
                    recorder: false,
                    at_end,
                })
            })
            .collect()
    }

    fn processes(&self) -> Result<Vec<KnownProcess>> {
        let rows = self.table("processes.tsv")?;
        let text = |row: &Row, name: &str| {
            let bytes = unescape(row.text(name)?);
            Some(Arc::from(String::from_utf8_lossy(&bytes).into_owned()))
        };
        Ok(rows
            .iter()
            .filter_map(|row| {
                Some(KnownProcess {
                    pid: row.number("pid")?,
                    ppid: row.number("ppid"),
                    created: row.number("created"),
                    cgroup: text(row, "cgroup"),
                    cmdline: text(row, "cmdline"),
                    at_end: row.text("seen") == Some("end"),
                    recorder: false,
                })
            })
            .collect())
    }

    fn cpus(&self) -> Result<Vec<CpuInfo>> {
        let rows = self.table("cpus.tsv")?;
        Ok(rows
            .iter()
            .filter_map(|row| {
                Some(CpuInfo {
                    cpu: row.number("cpu")?,
                    core: row.number("core"),
                    llc: row.number("llc"),
                    package: row.number("package"),
                    numa_node: row.number("numa_node"),
                    smt_siblings: row.text("smt_siblings").map(str::to_string),
                    capacity: row.number("capacity"),
                    online: row.number::<u8>("online").map(|online| online != 0),
                })
            })
            .collect())
    }

    /// The rows of a tab-separated file with a header line; none if the
    /// recorder could not write it.
    fn table(&self, name: &str) -> Result<Vec<Row>> {
        let file = self.path.join(name);
        if !file.exists() {
            return Ok(Vec::new());
        }
        let text = read_text(&file)?;
        let mut lines = text.lines();
        let header: std::sync::Arc<[String]> = lines
            .next()
            .unwrap_or("")
            .split('\t')
            .map(str::to_string)
            .collect();
        Ok(lines
            .map(|line| Row {
                header: std::sync::Arc::clone(&header),
                values: line
                    .splitn(header.len(), '\t')
                    .map(str::to_string)
                    .collect(),
            })
            .collect())
    }
}

struct Row {
    header: std::sync::Arc<[String]>,
    values: Vec<String>,
}

impl Row {
    fn text(&self, column: &str) -> Option<&str> {
        let at = self.header.iter().position(|name| name == column)?;
        self.values
            .get(at)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    fn number<T: std::str::FromStr>(&self, column: &str) -> Option<T> {
        self.text(column)?.parse().ok()
    }
}

/// What each thread of SCHED_DEADLINE has, ns: `3000000/10000000/10000000` in the table.
fn reservations(threads: &[Row]) -> Vec<Value> {
    let of = |row: &Row| {
        let tid = row.number::<u32>("tid")?;
        let given = row.text("reservation")?.split('/').map(str::parse::<u64>);
        let [Ok(runtime), Ok(deadline), Ok(period)] = given.collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(serde_json::json!({
            "tid": tid, "runtime": runtime, "deadline": deadline, "period": period,
        }))
    };
    threads.iter().filter_map(of).collect()
}

/// The slices, ns, of threads that asked for one of their own.
fn slices(threads: &[Row]) -> Vec<Value> {
    let of = |row: &Row| {
        let (tid, slice) = (row.number::<u32>("tid")?, row.number::<u64>("slice")?);
        Some(serde_json::json!({"tid": tid, "slice": slice}))
    };
    threads.iter().filter_map(of).collect()
}

/// What was seen when recording started, and when it had ended.
fn first_and_last(rows: &[Row]) -> (Vec<&Row>, Vec<&Row>) {
    rows.iter()
        .partition(|row| row.text("seen") == Some("start"))
}

fn group(cgroup: &str, first: Option<&Row>, last: Option<&Row>) -> Value {
    let now = last.or(first);
    let setting = |name| now.and_then(|row| row.number::<u64>(name));
    let counted = |name, unit: u64| {
        let end = last?.number::<u64>(name)?;
        let start = first.map_or(Some(0), |row| row.number::<u64>(name))?;
        Some(end.saturating_sub(start).saturating_mul(unit))
    };
    serde_json::json!({
        "cgroup": cgroup,
        "weight": setting("weight"),
        "quota": setting("quota").map(|us| us.saturating_mul(1000)),
        "period": setting("period").map(|us| us.saturating_mul(1000)),
        "usage": counted("usage", 1000),
        "n_periods": counted("periods", 1),
        "n_throttled": counted("n_throttled", 1),
        "throttled": counted("throttled", 1000),
        "pressure": counted("pressure", 1000),
    })
}

/// The class of a thread whose `policy` the collector wrote so: Linux's
/// SCHED_*, or what FreeBSD's ps calls the kind of a real-time priority.
fn class(policy: &str, kernel: Option<bool>) -> Option<SchedClass> {
    Some(match policy {
        "other" | "ext" => SchedClass::Fair,
        "batch" => SchedClass::Batch,
        "idle" => SchedClass::Idle,
        "fifo" | "rr" | "realtime" => SchedClass::Realtime,
        "deadline" => SchedClass::Deadline,
        "interrupt" => SchedClass::Interrupt,
        // Threads of kernel processes have priorities of a band of their own.
        "timeshare" if kernel == Some(true) => SchedClass::Kernel,
        "timeshare" => SchedClass::Timeshare,
        _ => return None,
    })
}

/// Names carry tab, newline and backslash as two characters.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(b't') => out.push(b'\t'),
                Some(b'n') => out.push(b'\n'),
                Some(other) => out.push(other),
                None => out.push(b'\\'),
            },
            byte => out.push(byte),
        }
    }
    out
}

/// A whole text file; bytes that are no UTF-8 (names) become U+FFFD.
pub fn read_text(path: &Path) -> Result<String> {
    use std::io::Read;
    let doing = || format!("read {}", path.display());
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_TEXT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io(doing(), &error))?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(Error::format(
            format!("{} is longer than {MAX_TEXT} bytes", path.display()),
            "a small text file",
            "the capture is damaged: copy it again",
        ));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_from_their_escapes() {
        assert_eq!(unescape(r"a\tb\nc\\d"), b"a\tb\nc\\d");
    }
}
