//! KTR scheduler traces as text: `ktrdump -ct` and FreeBSD's schedgraph.d.
//!
//! The kernel logs state changes thread by thread, not switches. On one CPU a
//! thread's leaving state and the next thread's "running" make one switch;
//! "runq add" is the enqueue, and the load counter behind it names its queue.
//! ktrdump prints the newest entry first.
//!
//! The switch is at the time of the leaving state, or of the next thread's
//! "runq add" if that comes later: other CPUs may queue the thread that left
//! before "running" is logged (mi_switch in kern_synch.c logs it when the switch
//! is over). An exiting thread runs on after the state that says so: its last
//! switch is at the time of "running".
//!
//! KTR is a ring of a fixed number of entries in the kernel, so the file is
//! read whole.

mod bands;
mod text;
mod ticks;

use std::collections::BTreeMap;
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::json;

use crate::Options;
use crate::coverage::MAX_CPUS;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::model::event::{
    Comm, Event, EventSink, Party, PriorityCause, SchedClass, SleepKind, Source, SourceEnd,
    SourceInfo, State, WakeKind,
};
use text::{Fact, Line, ThreadId};
use ticks::{Scale, Tick};

/// A ring of the largest sensible KTR_ENTRIES is far smaller.
const MOST_BYTES: u64 = 1 << 30;

/// Lines at the head of the file in which the first KTRGRAPH one must be.
pub fn recognise(path: &Path, head: &[u8]) -> bool {
    !path.is_dir()
        && String::from_utf8_lossy(head)
            .lines()
            .take(20)
            .any(|line| Line::read(line).is_some())
}

/// Why a thread left its CPU.
#[derive(Debug, Clone, Copy)]
enum Leaving {
    To(State, Option<SleepKind>),
    Idle,
    Exit,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Runs,
    Spins,
    Leaves(Leaving, Comm),
    Queued {
        waker: Option<u32>,
        target: Option<u16>,
    },
    Unqueued,
    Load {
        queue: Option<u16>,
        load: i32,
    },
    Priority {
        to: i16,
        lent: bool,
    },
}

impl What {
    /// By what its lines are counted, as their group and state name them.
    fn name(self) -> &'static str {
        match self {
            Self::Runs => "thread:running",
            Self::Spins => "thread:spinning",
            Self::Leaves(..) => "thread:leaving",
            Self::Queued { .. } => "thread:runq add",
            Self::Unqueued => "thread:runq rem",
            Self::Load { .. } => "load:counter",
            Self::Priority { .. } => "thread:prio",
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    time: u64,
    cpu: u16,
    who: Party,
    what: What,
}

struct KtrSource {
    entries: Vec<Entry>,
    /// In the order of the entries after which they are reported.
    switches: Vec<Switch>,
    scale: Scale,
    base: u64,
    info: SourceInfo,
    strange: u64,
    release_known: bool,
}

pub fn open(path: &Path, options: &Options) -> Result<Box<dyn Source>> {
    let input = Input::open(path)?;
    if input.len() > MOST_BYTES {
        return Err(Error::format(
            format!("{} has {} bytes", input.name(), input.len()),
            format!("at most {MOST_BYTES}: a KTR ring printed once"),
            "for long traces use the DTrace collector",
        ));
    }
    let mut bytes = vec![0; input.len() as usize];
    input.read_exact_at(&mut bytes, 0, "the file")?;
    let text = String::from_utf8_lossy(&bytes);
    let release = match options.get("osreldate") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            Error::usage(
                format!("osreldate is {text:?}"),
                "a number such as 1402000",
                "`sysctl -n kern.osreldate` on the traced host prints it",
            )
        })?),
    };
    let mut reader = Reader {
        release,
        ..Reader::default()
    };
    for (number, line) in (1..).zip(text.lines()) {
        reader.line(line);
        if let Some(cpu) = reader.absurd {
            return Err(Error::format(
                format!("{}, line {number}: CPU {cpu}", input.name()),
                format!("numbers below {MAX_CPUS}"),
                "the file is damaged: copy or print it again",
            ));
        }
    }
    let scale = Scale::find(reader.numbered, &reader.ticks, options, input.name())?;
    Ok(Box::new(reader.source(scale)))
}

#[derive(Default)]
struct Reader {
    entries: Vec<Entry>,
    ticks: Vec<Tick>,
    release: Option<u32>,
    numbered: bool,
    cpus: u16,
    /// A CPU's number that no machine has.
    absurd: Option<u16>,
    strange: u64,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let Some(line) = Line::read(line) else {
            self.strange += u64::from(line.contains("KTRGRAPH"));
            return;
        };
        self.numbered |= line.numbered;
        self.cpu(line.cpu);
        let what = match (line.group, line.fact) {
            ("load", Fact::Counter(load)) => {
                let queue = line
                    .id
                    .strip_prefix("CPU ")
                    .and_then(|id| id.split(' ').next());
                let queue = queue.and_then(|cpu| cpu.parse::<u16>().ok());
                if let Some(cpu) = queue {
                    self.cpu(cpu);
                }
                let load = i32::try_from(load).unwrap_or(i32::MAX);
                let (who, what) = (Party::default(), What::Load { queue, load });
                self.entries.push(Entry {
                    time: line.time,
                    cpu: line.cpu,
                    who,
                    what,
                });
                return;
            }
            ("thread", Fact::State(state)) => self.state(&line, state),
            ("thread", Fact::Point("statclock")) => {
                let idle = ThreadId::read(line.id, !self.numbered).is_none_or(|id| id.idle);
                if let Some(hz) = line.number("stathz")
                    && !idle
                {
                    self.ticks.push((line.cpu, line.time, hz));
                }
                return;
            }
            ("thread", Fact::Point(point)) => line.number("new prio").map(|to| What::Priority {
                to,
                lent: point.starts_with("lend"),
            }),
            _ => return,
        };
        let prio = line.number("prio");
        match (what, self.party(line.id, prio)) {
            (Some(what), Some(who)) => {
                self.entries.push(Entry {
                    time: line.time,
                    cpu: line.cpu,
                    who,
                    what,
                });
            }
            // Points such as "wokeup" repeat, from the other side, what is known.
            (None, _) if matches!(line.fact, Fact::Point(_)) => {}
            _ => self.strange += 1,
        }
    }

    fn cpu(&mut self, cpu: u16) {
        if cpu < MAX_CPUS {
            self.cpus = self.cpus.max(cpu + 1);
        } else {
            self.absurd = Some(cpu);
        }
    }

    fn party(&self, id: &str, prio: Option<i16>) -> Option<Party> {
        let id = ThreadId::read(id, !self.numbered)?;
        let class = match prio {
            _ if id.idle => Some(SchedClass::Idle),
            Some(prio) => bands::class(prio, self.release),
            None => None,
        };
        Some(Party {
            tid: id.tid,
            idle: id.idle,
            prio,
            comm: Comm::new(id.name.as_bytes()),
            class: class.filter(|class| *class != SchedClass::Unknown),
            ..Party::default()
        })
    }

    fn state(&self, line: &Line<'_>, state: &str) -> Option<What> {
        let reason = |name: &str| {
            let text = line
                .attribute(name)
                .filter(|text| *text != "(null)")
                .unwrap_or("");
            Comm::new(text.as_bytes())
        };
        let none = Comm::default();
        let to = |state, kind| Leaving::To(state, kind);
        Some(match state {
            "running" => What::Runs,
            "spinning" => What::Spins,
            "idle" => What::Leaves(Leaving::Idle, none),
            "sleep" => What::Leaves(to(State::Sleeping, Some(SleepKind::Sleep)), reason("wmesg")),
            "blocked" => What::Leaves(
                to(State::Blocked, Some(SleepKind::Lock)),
                reason("lockname"),
            ),
            "suspended" => What::Leaves(to(State::Stopped, Some(SleepKind::Suspended)), none),
            "swapped" => What::Leaves(to(State::Blocked, None), none),
            "iwait" => What::Leaves(to(State::Parked, Some(SleepKind::Interrupt)), none),
            "yielding" => What::Leaves(to(State::Runnable, None), none),
            "proc exit" | "thread exit" | "exit" => What::Leaves(Leaving::Exit, none),
            "runq add" => {
                let waker = line.attribute("linkedto");
                let waker = waker.and_then(|id| ThreadId::read(id, !self.numbered));
                let waker = waker.map(|waker| if waker.idle { 0 } else { waker.tid });
                What::Queued {
                    waker,
                    target: None,
                }
            }
            "runq rem" => What::Unqueued,
            _ => return None,
        })
    }

    fn source(mut self, scale: Scale) -> KtrSource {
        let newest_first = match (self.entries.first(), self.entries.last()) {
            (Some(first), Some(last)) => first.time > last.time,
            _ => false,
        };
        if newest_first {
            self.entries.reverse();
        }
        self.entries.sort_by_key(|entry| entry.time);
        let cpus = usize::from(self.cpus);
        name_queues(&mut self.entries, cpus);
        let switches = switches(&self.entries, cpus);
        let base = self.entries.first().map_or(0, |entry| entry.time);
        let info = SourceInfo {
            ncpu: self.cpus.max(1),
            has_enqueued: true,
            about: json!({
                "os": "FreeBSD",
                "recorder": {"name": "ktr"},
                "clock": {"name": "tsc", "hz": scale.hz(), "hz_from": scale.source},
            })
            .to_string(),
            ..SourceInfo::default()
        };
        KtrSource {
            entries: self.entries,
            switches,
            scale,
            base,
            info,
            strange: self.strange,
            release_known: self.release.is_some(),
        }
    }
}

/// The first load counter behind a "runq add" on the same CPU is that of the
/// queue it went to; on 4BSD it is the machine's.
fn name_queues(entries: &mut [Entry], cpus: usize) {
    let mut added: Vec<Option<usize>> = vec![None; cpus];
    for index in 0..entries.len() {
        let waiting = &mut added[usize::from(entries[index].cpu)];
        match entries[index].what {
            What::Queued { .. } => *waiting = Some(index),
            What::Load { queue, .. } => {
                if let Some(add) = waiting.take()
                    && let What::Queued { target, .. } = &mut entries[add].what
                {
                    *target = queue;
                }
            }
            What::Runs | What::Leaves(..) => *waiting = None,
            _ => {}
        }
    }
}

/// One thread leaves a CPU, which runs another one: the two entries that say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Switch {
    leaves: usize,
    runs: usize,
    /// The entry whose time is the switch's.
    at: usize,
}

/// The switches in the entries, in the order of their times.
fn switches(entries: &[Entry], cpus: usize) -> Vec<Switch> {
    let mut left: Vec<Option<usize>> = vec![None; cpus];
    let mut spinning = FxHashSet::default();
    // By thread: where it was put on a queue last.
    let mut queued: FxHashMap<u32, usize> = FxHashMap::default();
    let mut found = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let left = &mut left[usize::from(entry.cpu)];
        match entry.what {
            What::Leaves(..) => *left = Some(index),
            What::Queued { .. } => {
                queued.insert(entry.who.tid, index);
            }
            What::Spins => {
                spinning.insert(entry.who.tid);
            }
            // A thread that has its lock goes on: it had not left.
            What::Runs if entry.who.prio.is_none() && spinning.remove(&entry.who.tid) => {}
            What::Runs => {
                // Without one, its predecessor is before the ring's oldest entry; the same thread
                // was chosen again.
                if let Some(leaves) = left.take()
                    && entries[leaves].who.tid != entry.who.tid
                {
                    let at = match entries[leaves].what {
                        What::Leaves(Leaving::Exit, _) => index,
                        _ => queued
                            .get(&entry.who.tid)
                            .map_or(leaves, |&queued| queued.max(leaves)),
                    };
                    found.push(Switch {
                        leaves,
                        runs: index,
                        at,
                    });
                }
            }
            _ => {}
        }
    }
    found.sort_by_key(|switch| switch.at);
    found
}

/// Taken off a queue just now, by CPU: put back by the same hand it is no wakeup.
type Unqueued = Option<u32>;

impl KtrSource {
    fn switch(&self, switch: Switch, sink: &mut dyn EventSink) -> Result<()> {
        let (prev, next) = (&self.entries[switch.leaves], &self.entries[switch.runs]);
        let What::Leaves(leaving, reason) = prev.what else {
            return Ok(());
        };
        let ts = self.scale.ns(self.base, self.entries[switch.at].time);
        let (prev_state, kind) = match leaving {
            Leaving::To(state, kind) => (state, kind),
            Leaving::Idle => (State::Runnable, None),
            Leaving::Exit => (State::Dead, None),
        };
        // Preempted threads and yielding ones are both "yielding".
        let preempted = (prev_state != State::Runnable || prev.who.idle).then_some(false);
        sink.event(&Event::Switch {
            ts,
            cpu: next.cpu,
            prev: prev.who,
            prev_state,
            preempted,
            next: next.who,
        })?;
        if let Some(kind) = kind {
            sink.event(&Event::Sleep {
                ts,
                cpu: next.cpu,
                tid: prev.who.tid,
                kind,
                reason,
            })?;
        }
        Ok(())
    }

    fn entry(
        &self,
        entry: &Entry,
        unqueued: &mut Unqueued,
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        let ts = self.scale.ns(self.base, entry.time);
        let (who, at) = (entry.who, entry.cpu);
        match entry.what {
            What::Leaves(Leaving::Exit, _) => sink.event(&Event::Exit { ts, who })?,
            What::Leaves(..) | What::Runs | What::Spins => {}
            What::Queued { waker, target } => {
                let again = unqueued.take() == Some(who.tid);
                // 4BSD queues a thread that is being switched out by itself.
                if !again && waker != Some(who.tid) {
                    sink.event(&Event::Wakeup {
                        ts,
                        cpu: at,
                        kind: WakeKind::Enqueued,
                        waker,
                        // schedgraph's rows name the agent only.
                        current: None,
                        who,
                        target_cpu: target,
                    })?;
                }
            }
            What::Unqueued => *unqueued = Some(who.tid),
            What::Load { queue, load } => {
                sink.event(&Event::QueueLoad {
                    ts,
                    cpu: queue,
                    load,
                })?;
            }
            What::Priority { to, lent } => {
                let cause = if lent {
                    PriorityCause::LendPri
                } else {
                    PriorityCause::ChangePri
                };
                sink.event(&Event::Priority {
                    ts,
                    who,
                    prio: to,
                    cause,
                })?;
            }
        }
        Ok(())
    }
}

impl Source for KtrSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let mut unqueued = vec![Unqueued::default(); usize::from(self.info.ncpu)];
        let mut switches = self.switches.iter().peekable();
        let total = self.entries.len() as u64;
        let mut counts: BTreeMap<(&str, u16), u64> = BTreeMap::new();
        for (done, entry) in self.entries.iter().enumerate() {
            self.entry(entry, &mut unqueued[usize::from(entry.cpu)], sink)?;
            *counts.entry((entry.what.name(), entry.cpu)).or_default() += 1;
            while let Some(switch) = switches.next_if(|switch| switch.at == done) {
                self.switch(*switch, sink)?;
            }
            if done.is_multiple_of(1 << 16) {
                sink.progress(done as u64, total)?;
            }
        }
        let counted = counts.into_iter();
        let mut end = SourceEnd {
            counts: counted
                .map(|((name, cpu), n)| (name.into(), cpu, n))
                .collect(),
            ..SourceEnd::default()
        };
        end.warnings.extend(self.scale.doubt.map(String::from));
        if !self.release_known {
            end.warnings.push(
                "the release is not known, so that only idle threads have a class: give the option osreldate with the number that `sysctl -n kern.osreldate` prints on the traced host".into(),
            );
        }
        if self.strange > 0 {
            end.warnings.push(format!(
                "{} KTRGRAPH lines are not of a known kind",
                self.strange
            ));
        }
        Ok(end)
    }
}
