//! Exact timelines of each policy's characteristic move, worked out by hand.
//!
//! Each test draws what must happen as a comment and compares it with the run,
//! switch by switch. Numbers are chosen round: clocks of 100 or 1000 Hz.
mod bsd;
mod linux_balance;
mod linux_cfs;
mod linux_groups;
mod linux_old;
mod linux_realtime;
mod linux_today;
mod references;

use super::machine::{Cpu, CpuSet, Machine};
use super::testing::{Build, MS, Ran, simulate};
use super::workload::{Class, Past, Step};

/// `steps` over and over.
fn repeat(mut steps: Vec<Step>) -> Vec<Step> {
    steps.push(Step::Repeat {
        to: 0,
        times: None,
        counter: 0,
    });
    steps
}

fn sleep(ms: i64) -> Step {
    Step::Sleep {
        ns: ms * MS,
        disk: false,
    }
}

fn run(ms: i64) -> Step {
    Step::Run(ms * MS)
}

/// A hog of each nice value, named a, b, c.., that runs for `ms`.
fn hogs(nices: &[i8], ms: i64) -> Build {
    let mut b = Build::new(1);
    for (i, nice) in nices.iter().enumerate() {
        let name = char::from(b'a' + i as u8).to_string();
        b.add(&name, &[run(ms)]).nice = *nice;
    }
    b
}

fn on_one_cpu(b: &Build, policy: &str, set: &[(&str, &str)], until_ms: i64) -> Ran {
    let machine = Machine::flat(1).unwrap();
    simulate(&b.load, machine, policy, set, Some(until_ms * MS)).unwrap()
}

/// The first `n` stretches.
fn first(ran: &Ran, n: usize) -> Vec<String> {
    ran.drawn().into_iter().take(n).collect()
}

/// CPU time of each thread, in ms, in what is complete of the run.
fn shares(ran: &Ran, threads: usize) -> Vec<f64> {
    let mut total = vec![0.0; threads];
    for (_, t, from, to) in &ran.timeline.runs {
        total[*t as usize] += (to - from) as f64 / MS as f64;
    }
    total
}

/// Values of series number `series` of thread `t`: (ms, value).
fn series(ran: &Ran, series: u16, t: u32) -> Vec<(f64, f64)> {
    let head = format!("series: {series}, ");
    let who = format!("thread: Some({t})");
    let field = |row: &str, name: &str| -> f64 {
        let from = row.find(name).unwrap() + name.len();
        let rest = &row[from..];
        let to = rest.find([',', ' ', '}']).unwrap();
        rest[..to].parse().unwrap()
    };
    ran.timeline
        .rows
        .iter()
        .filter(|r| r.starts_with("Record") && r.contains(&head) && r.contains(&who))
        .map(|r| (field(r, "ts: ") / MS as f64, field(r, "value: ")))
        .collect()
}
