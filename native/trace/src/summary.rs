//! What `trace.json` says of one conversion.

use std::collections::BTreeMap;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use crate::model::event::{GroupMove, SourceEnd, SourceInfo};
use crate::model::tables::SCHEMA_VERSION;
use crate::pipeline::Summary;
use crate::reconstruct::clocks::Offset;
use crate::reconstruct::{Counters, Reconstructor};

pub struct TraceJson(Map<String, Value>);

impl TraceJson {
    pub fn new(
        path: &Path,
        format: &str,
        info: &SourceInfo,
        end: &SourceEnd,
        summary: &Summary,
        offsets: &[Offset],
        unreported_losses: bool,
    ) -> Self {
        // The decoder's own facts (release, clock, recorder, ...) come first;
        // what the pass measured is not theirs to overwrite.
        let mut map = match serde_json::from_str(&info.about) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let mut events: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
        for (name, cpu, count) in &end.counts {
            *events
                .entry(name)
                .or_default()
                .entry(cpu.to_string())
                .or_default() += count;
        }
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let set = [
            ("schema_version", json!(SCHEMA_VERSION)),
            (
                "generator",
                json!(concat!("schedscope ", env!("CARGO_PKG_VERSION"))),
            ),
            ("source", json!({"name": name, "format": format})),
            ("ncpu", json!(info.ncpu)),
            (
                "window",
                json!(summary.window.map(|(begin, end)| [begin, end])),
            ),
            ("has_waking", json!(info.has_waking)),
            ("has_enqueued", json!(info.has_enqueued)),
            ("events", json!(events)),
            (
                "unplaced_losses",
                end.unplaced_losses
                    .iter()
                    .map(|(cpu, count, reason)| {
                        // Beyond, sums of all CPUs and readers of JSON would go wrong.
                        let count = (*count).min(1 << 53);
                        json!({"cpu": cpu, "count": count, "reason": reason.text()})
                    })
                    .collect(),
            ),
            ("unreported_losses", json!(unreported_losses)),
            (
                "warnings",
                json!([&info.remarks[..], &end.warnings[..]].concat()),
            ),
            ("clock_offsets", offsets.iter().map(offset).collect()),
            (
                "per_cpu",
                summary
                    .reconstruction
                    .as_ref()
                    .map_or_else(|| json!([]), cpus),
            ),
            (
                "reconstruction",
                match &summary.reconstruction {
                    Some(reconstruction) => counters(&reconstruction.counters),
                    // An empty trace has nothing to count; of others nothing was asked.
                    None if summary.window.is_none() => counters(&Counters::default()),
                    None => Value::Null,
                },
            ),
        ];
        for (key, value) in set {
            map.insert(key.to_string(), value);
        }
        if let Some(chosen) = &summary.chosen {
            map.insert("filtered".to_string(), json!({"utids": chosen}));
        }
        map.remove("scheduler_dump");
        if !end.scheduler_dump.is_empty() {
            map.insert("scheduler_dump".to_string(), json!(end.scheduler_dump));
        }
        map.remove("group_moves");
        if !end.group_moves.is_empty() {
            map.insert("group_moves".to_string(), moves(info, &end.group_moves));
        }
        Self(map)
    }

    /// The text of trace.json, with the number of rows of each table.
    pub fn text(mut self, rows: &BTreeMap<&'static str, u64>) -> String {
        self.0.insert("rows".to_string(), json!(rows));
        format!("{:#}", Value::Object(self.0))
    }
}

/// Moves into control groups, with the group that was left where the recorder knew it.
fn moves(info: &SourceInfo, moves: &[GroupMove]) -> Value {
    let at_start = info.processes.iter().filter(|process| !process.at_end);
    let mut now: FxHashMap<u32, Option<&str>> = at_start
        .map(|process| (process.pid, process.cgroup.as_deref()))
        .collect();
    moves
        .iter()
        .map(|one| {
            let from = now.insert(one.tid, Some(&one.cgroup)).flatten();
            json!({"ts": one.ts, "tid": one.tid, "from": from, "cgroup": one.cgroup})
        })
        .collect()
}

/// A CPU whose clock differs from those of the others: by how many ns it was ahead of them.
fn offset(found: &Offset) -> Value {
    json!({
        "cpu": found.cpu,
        "ahead": found.ahead.map(|(least, most)| [least, most]),
        "breaks": found.breaks,
        "breaks_left": found.left,
    })
}

/// Per CPU, ns: running + idle + unknown is the window.
pub fn cpus(reconstruction: &Reconstructor) -> Value {
    reconstruction
        .cpus()
        .iter()
        .enumerate()
        .map(|(cpu, totals)| {
            json!({
                "cpu": cpu,
                "switches": totals.switches,
                "first_ts": totals.first_ts,
                "last_ts": totals.last_ts,
                "running": totals.running,
                "idle": totals.idle,
                "unknown": totals.unknown,
            })
        })
        .collect()
}

pub fn counters(counters: &Counters) -> Value {
    json!({
        "spurious_wakeups": counters.spurious_wakeups,
        "missing_wakeups": counters.missing_wakeups,
        "wakes_before_switch_out": counters.wakes_before_switch_out,
        "contradictions": counters.contradictions,
        "chain_breaks": counters.chain_breaks,
        "unreported_leavings": counters.unreported_leavings,
        "unseen_switch_ins": counters.unseen_switch_ins,
        "unseen_moves": counters.unseen_moves,
        "first_sights": counters.first_sights,
        "switch_ins": counters.switch_ins,
        "right_censored": counters.right_censored,
        "waits": counters.waits,
        "thread_running": counters.thread_running,
    })
}
