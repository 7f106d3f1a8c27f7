//! What the features of a perf.data file say about host and clock, in the
//! terms of the trace model.

use serde_json::{Value, json};

use super::features::Features;
use super::header::Attr;
use crate::model::event::CpuInfo;

/// The clock's name, as ftrace calls it.
pub fn clock_name(attrs: &[Attr]) -> &'static str {
    match attrs.iter().find_map(Attr::clockid) {
        Some(0) => "realtime",
        Some(1) => "mono",
        Some(4) => "mono_raw",
        Some(7) => "boot",
        Some(11) => "tai",
        Some(_) => "other",
        // perf's own: local_clock(), which is ftrace's "local" too.
        None => "local",
    }
}

pub fn about(features: &Features, attrs: &[Attr]) -> String {
    let pairs: Vec<[i64; 2]> = features
        .clock
        .iter()
        .map(|pair| [pair.clock, pair.wall])
        .collect();
    let text = |text: &str| {
        if text.is_empty() {
            Value::Null
        } else {
            json!(text)
        }
    };
    json!({
        "os": "Linux",
        "release": text(&features.release),
        "machine": text(&features.arch),
        "hostname": text(&features.hostname),
        "cpu_model": text(&features.cpu_model),
        "recorder": {
            "name": "perf",
            "version": text(&features.version),
            "command": text(&features.command.join(" ")),
        },
        "clock": {"name": clock_name(attrs), "pairs": pairs},
    })
    .to_string()
}

/// One row per CPU in the features.
pub fn cpus(features: &Features, ncpu: u16) -> Vec<CpuInfo> {
    let number = |n: u32| u16::try_from(n).ok();
    let last_level = features.caches.iter().map(|cache| cache.level).max();
    (0..ncpu)
        .map(|cpu| {
            let at = usize::from(cpu);
            let (core, package) = match features.cores.get(at) {
                Some(&(core, package)) => (number(core), number(package)),
                None => (None, None),
            };
            let holds = |list: &str| cpu_list(list).contains(&cpu);
            // Caches have no numbers of their own: the first CPU names them.
            let llc = features
                .caches
                .iter()
                .filter(|cache| Some(cache.level) == last_level && holds(&cache.cpus))
                .find_map(|cache| cpu_list(&cache.cpus).first().copied());
            CpuInfo {
                cpu,
                core,
                package,
                llc,
                numa_node: features
                    .nodes
                    .iter()
                    .find(|(_, list)| holds(list))
                    .and_then(|(node, _)| number(*node)),
                smt_siblings: features.threads.iter().find(|list| holds(list)).cloned(),
                capacity: None,
                online: features
                    .cpus
                    .filter(|(online, possible)| online == possible)
                    .map(|_| true),
            }
        })
        .collect()
}

/// "0-3,8" as numbers; what is not a number is left out.
fn cpu_list(list: &str) -> Vec<u16> {
    list.split(',')
        .filter_map(|part| {
            let (first, last) = part
                .trim()
                .split_once('-')
                .unwrap_or((part.trim(), part.trim()));
            Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
        })
        .flatten()
        .collect()
}
