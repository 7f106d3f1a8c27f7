//! From an event to the bytes of its records.

use std::collections::BTreeMap;

use super::Settings;
use super::formats::{Format, Formats, STATE_PREEMPTED, STATE_UNKNOWN};
use crate::model::event::{Comm, Event, Party, PriorityCause, State, UNKNOWN_TID, WakeKind};

/// Where an event's records go.
pub enum Destination {
    Cpu(u16, i64),
    /// Linux has no such event.
    Nowhere(&'static str),
}

/// TRACE_FLAG_HARDIRQ: a wakeup by an interrupt, not by the running thread.
const HARD_IRQ: u8 = 0x08;
const CLONE_THREAD: u64 = 0x10000;
const CLONE_VM: u64 = 0x100;
/// A priority or CPU that the source did not tell: outside what any field holds.
const UNKNOWN_PRIO: i32 = i32::MIN;
const UNKNOWN_CPU: i32 = -1;
/// What an event cannot tell is zero, as in the kernel's own cleared records.
const EMPTY: Comm = Comm([0; 24]);

pub struct Encoder {
    formats: Formats,
    big_endian: bool,
    long_bytes: usize,
    /// The thread on each CPU, who causes what happens there; -1 until a switch
    /// tells, for a guess here would pass for evidence in the file.
    current: Vec<u32>,
    /// Room for the records of one event, and for their bytes, reused.
    pub records: Vec<Vec<u8>>,
    pub spare: Vec<Vec<u8>>,
}

/// A record being filled.
struct Record<'a> {
    format: &'a Format,
    bytes: Vec<u8>,
    big_endian: bool,
}

impl Record<'_> {
    fn put(&mut self, name: &str, value: i64, size: usize) {
        let at = self.format.offset(name);
        let le = value.to_le_bytes();
        for (index, &byte) in le[..size].iter().enumerate() {
            self.bytes[at
                + if self.big_endian {
                    size - 1 - index
                } else {
                    index
                }] = byte;
        }
    }

    fn int(&mut self, name: &str, value: impl Into<i64>) {
        self.put(name, value.into(), 4);
    }

    fn comm(&mut self, name: &str, comm: Comm) {
        let at = self.format.offset(name);
        let text = comm.as_bytes();
        let n = text.len().min(15);
        self.bytes[at..at + n].copy_from_slice(&text[..n]);
    }

    /// A string behind the fixed fields.
    fn dynamic(&mut self, name: &str, comm: Comm) {
        let start = self.bytes.len();
        let text = &comm.as_bytes()[..comm.as_bytes().len().min(15)];
        self.bytes.extend(text);
        self.bytes.push(0);
        self.put(name, (start | (text.len() + 1) << 16) as i64, 4);
    }
}

fn prio(prio: Option<i16>) -> i32 {
    prio.map_or(UNKNOWN_PRIO, i32::from)
}

fn cpu_number(cpu: Option<u16>) -> i32 {
    cpu.map_or(UNKNOWN_CPU, i32::from)
}

/// Idle threads are Linux's pid 0 whatever their number is elsewhere.
fn tid(who: &Party) -> u32 {
    if who.idle { 0 } else { who.tid }
}

fn prev_state(state: State, preempted: Option<bool>) -> u64 {
    match state {
        State::Running | State::Runnable if preempted == Some(true) => STATE_PREEMPTED,
        State::Running | State::Runnable => 0,
        State::Sleeping => 1,
        State::Blocked => 2,
        State::Stopped => 4,
        State::Dead => 0x10,
        State::Parked => 0x40,
        State::Unknown => STATE_UNKNOWN,
    }
}

impl Encoder {
    pub fn new(settings: &Settings, ncpu: u16) -> Self {
        Self {
            formats: Formats::new(settings.long_bytes),
            big_endian: settings.big_endian,
            long_bytes: settings.long_bytes,
            current: vec![UNKNOWN_TID; usize::from(ncpu)],
            records: Vec::new(),
            spare: Vec::new(),
        }
    }

    fn record<'a>(
        &'a self,
        spare: &mut Vec<Vec<u8>>,
        format: &'a Format,
        flags: u8,
        pid: u32,
    ) -> Record<'a> {
        let mut bytes = spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(format.size(), 0);
        let mut record = Record {
            format,
            bytes,
            big_endian: self.big_endian,
        };
        record.put("common_type", i64::from(format.id), 2);
        record.put("common_flags", i64::from(flags), 1);
        record.put("common_pid", i64::from(pid), 4);
        record
    }

    /// Where a thread runs; CPU 0 for one that runs nowhere.
    fn cpu_of(&self, tid: u32) -> u16 {
        self.current
            .iter()
            .position(|&current| current == tid)
            .unwrap_or(0) as u16
    }

    /// Events are missing: who runs where is open again.
    pub fn lost(&mut self, cpu: Option<u16>) {
        for (index, current) in self.current.iter_mut().enumerate() {
            if cpu.is_none_or(|cpu| usize::from(cpu) == index) {
                *current = UNKNOWN_TID;
            }
        }
    }

    fn current(&self, cpu: u16) -> u32 {
        self.current
            .get(usize::from(cpu))
            .copied()
            .unwrap_or(UNKNOWN_TID)
    }

    /// Appends the event's records to `out` and notes the names it tells.
    pub fn encode(
        &mut self,
        event: &Event,
        out: &mut Vec<Vec<u8>>,
        names: &mut BTreeMap<u32, Comm>,
    ) -> Destination {
        let mut spare = std::mem::take(&mut self.spare);
        spare.append(out);
        let place = self.place(event, out, names, &mut spare);
        self.spare = spare;
        place
    }

    fn place(
        &mut self,
        event: &Event,
        out: &mut Vec<Vec<u8>>,
        names: &mut BTreeMap<u32, Comm>,
        spare: &mut Vec<Vec<u8>>,
    ) -> Destination {
        let mut note = |who: &Party| {
            // Most events name a thread as it is known.
            if tid(who) != 0 && !who.comm.is_empty() && names.get(&who.tid) != Some(&who.comm) {
                names.insert(who.tid, who.comm);
            }
        };
        match *event {
            Event::Switch {
                ts,
                cpu,
                ref prev,
                prev_state: state,
                preempted,
                ref next,
            } => {
                note(next);
                let mut record = self.record(spare, &self.formats.switch, 0, tid(prev));
                record.comm("prev_comm", idle_name(prev, cpu));
                record.int("prev_pid", tid(prev));
                record.int("prev_prio", prio(prev.prio));
                record.put(
                    "prev_state",
                    prev_state(state, preempted) as i64,
                    self.long_bytes,
                );
                record.comm("next_comm", idle_name(next, cpu));
                record.int("next_pid", tid(next));
                record.int("next_prio", prio(next.prio));
                out.push(record.bytes);
                if let Some(current) = self.current.get_mut(usize::from(cpu)) {
                    *current = tid(next);
                }
                Destination::Cpu(cpu, ts)
            }
            Event::Wakeup {
                ts,
                cpu,
                kind,
                waker,
                current,
                ref who,
                target_cpu,
            } => {
                note(who);
                let format = match kind {
                    WakeKind::Waking => &self.formats.waking,
                    WakeKind::Enqueued => &self.formats.wakeup,
                    WakeKind::New => &self.formats.wakeup_new,
                };
                let (flags, pid) = match waker {
                    Some(waker) => (0, waker),
                    None => (HARD_IRQ, current.unwrap_or_else(|| self.current(cpu))),
                };
                let mut record = self.record(spare, format, flags, pid);
                record.comm("comm", who.comm);
                record.int("pid", tid(who));
                record.int("prio", prio(who.prio));
                record.int("target_cpu", cpu_number(target_cpu));
                out.push(record.bytes);
                Destination::Cpu(cpu, ts)
            }
            Event::Migrate {
                ts,
                cpu,
                ref who,
                from_cpu,
                to_cpu,
            } => {
                let mut record = self.record(spare, &self.formats.migrate, 0, self.current(cpu));
                record.comm("comm", who.comm);
                record.int("pid", tid(who));
                record.int("prio", prio(who.prio));
                record.int("orig_cpu", cpu_number(from_cpu));
                record.int("dest_cpu", cpu_number(to_cpu));
                out.push(record.bytes);
                Destination::Cpu(cpu, ts)
            }
            Event::Fork {
                ts,
                ref parent,
                ref child,
                same_process,
            } => {
                note(child);
                if let Some(same) = same_process {
                    let mut record = self.record(spare, &self.formats.newtask, 0, tid(parent));
                    record.int("pid", child.tid);
                    record.comm("comm", child.comm);
                    let flags = if same { CLONE_VM | CLONE_THREAD } else { 0 };
                    record.put("clone_flags", flags as i64, self.long_bytes);
                    out.push(record.bytes);
                }
                let mut record = self.record(spare, &self.formats.fork, 0, tid(parent));
                record.dynamic("parent_comm", parent.comm);
                record.int("parent_pid", tid(parent));
                record.dynamic("child_comm", child.comm);
                record.int("child_pid", child.tid);
                out.push(record.bytes);
                Destination::Cpu(self.cpu_of(tid(parent)), ts)
            }
            Event::Exec { ts, tid, old_tid } => {
                let mut record = self.record(spare, &self.formats.exec, 0, tid);
                record.dynamic("filename", EMPTY);
                record.int("pid", tid);
                record.int("old_pid", old_tid);
                out.push(record.bytes);
                Destination::Cpu(self.cpu_of(old_tid), ts)
            }
            Event::Exit { ts, ref who } => {
                let mut record = self.record(spare, &self.formats.exit, 0, tid(who));
                record.comm("comm", who.comm);
                record.int("pid", tid(who));
                record.int("prio", prio(who.prio));
                out.push(record.bytes);
                Destination::Cpu(self.cpu_of(tid(who)), ts)
            }
            Event::Rename { ts, tid, comm } => {
                let mut record = self.record(spare, &self.formats.rename, 0, tid);
                record.int("pid", tid);
                record.comm("oldcomm", names.get(&tid).copied().unwrap_or(EMPTY));
                record.comm("newcomm", comm);
                out.push(record.bytes);
                names.insert(tid, comm);
                Destination::Cpu(self.cpu_of(tid), ts)
            }
            Event::Yield { ts, tid } => {
                out.push(self.record(spare, &self.formats.sched_yield, 0, tid).bytes);
                Destination::Cpu(self.cpu_of(tid), ts)
            }
            Event::Priority {
                ts,
                ref who,
                prio: new,
                cause: PriorityCause::PiSetprio,
            } => {
                let mut record = self.record(spare, &self.formats.pi_setprio, 0, UNKNOWN_TID);
                record.comm("comm", who.comm);
                record.int("pid", tid(who));
                record.int("oldprio", prio(who.prio));
                record.int("newprio", new);
                out.push(record.bytes);
                Destination::Cpu(self.cpu_of(tid(who)), ts)
            }
            Event::Priority { .. } => Destination::Nowhere("priority changes"),
            Event::QueueLoad { .. } => Destination::Nowhere("queue lengths"),
            Event::Sleep { .. } => Destination::Nowhere("reasons for sleeping"),
            // Entered before events that are written already.
            Event::Irq { .. } => Destination::Nowhere("interrupts"),
            Event::QuotaRefill { .. } => Destination::Nowhere("refills of CPU quotas"),
            Event::SystemCall { .. } => Destination::Nowhere("system calls"),
            Event::Lock { .. } => Destination::Nowhere("waits for locks of the kernel"),
            Event::DiskRequest { .. } => Destination::Nowhere("requests to disks"),
            Event::SleepReason { .. } => Destination::Nowhere("the kernel's reasons for sleeps"),
            Event::DispatchQueue { .. } => Destination::Nowhere("steps through dispatch queues"),
            Event::Kick { .. } => Destination::Nowhere("kicks of CPUs"),
            Event::Loss { .. } => Destination::Nowhere("losses"),
        }
    }
}

fn idle_name(who: &Party, cpu: u16) -> Comm {
    if tid(who) == 0 && who.comm.is_empty() {
        Comm::new(format!("swapper/{cpu}").as_bytes())
    } else {
        who.comm
    }
}
