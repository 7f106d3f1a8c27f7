//! From a raw record of a known event to [`Event`]s. Also used for perf.data,
//! whose tracepoint samples carry the same records.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::ftrace::fields::{Int, Name};
use crate::ftrace::interrupts::OpenInterrupts;
use crate::ftrace::plan::{Action, Plan, Switch};
use crate::ftrace::stacks::{Stacks, Symbols};
use crate::group_moves::GroupMoves;
use crate::model::event::{
    DiskStep, Dispatch, Event, EventSink, GroupMove, LockKind, Party, PriorityCause, QueueKind,
    State, ToldBy,
};

/// How long the watchdog of sched_ext lets a thread wait, ns, if the scheduler asks for so many ms: 0
/// is SCX_WATCHDOG_MAX_TIMEOUT, and no more is granted.
fn watchdog_limit(ms: u64) -> i64 {
    const MOST: u64 = 30_000;
    let ms = if ms == 0 { MOST } else { ms.min(MOST) };
    ms as i64 * 1_000_000
}

/// Lines of a dump that are kept; the others list threads and stacks.
const DUMP_LINES: usize = 16;

/// TRACE_FLAG_HARDIRQ | TRACE_FLAG_SOFTIRQ | TRACE_FLAG_NMI of common_flags.
const IN_INTERRUPT: i64 = 0x08 | 0x10 | 0x40;
/// CLONE_THREAD of clone(2).
const CLONE_THREAD: i64 = 0x10000;

/// What one record needs to know of those before it: forks reported twice, yields before switches,
/// interrupts still open.
#[derive(Default)]
pub struct Mapper {
    /// Children announced by task_newtask whose sched_process_fork is still to come.
    announced: FxHashSet<u32>,
    cpus: Vec<CpuMemory>,
    /// sched_yield is recorded: at least one was seen.
    yields_recorded: bool,
    pub group_moves: GroupMoves,
    /// When, and what: the first lines of each dump tell why a scheduler of sched_ext ended.
    pub scheduler_dump: Vec<(i64, String)>,
    stacks: Stacks,
}

#[derive(Default, Clone)]
struct CpuMemory {
    /// The thread that called sched_yield since the last switch.
    yielding: Option<u32>,
    interrupts: OpenInterrupts,
}

/// Did the record make sense?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapped {
    Done,
    /// A dynamic field points outside the record.
    BadName,
    /// No kernel writes this thread or state.
    CannotBe,
}

/// task_newtask without sched_process_fork fills `announced`; a fork follows
/// its newtask within microseconds, so old entries are of no use.
const ANNOUNCED_MAX: usize = 4096;

impl Mapper {
    /// One that knows the kernel's functions.
    pub fn with_symbols(symbols: Arc<Symbols>) -> Self {
        Self {
            stacks: Stacks::new(symbols),
            ..Self::default()
        }
    }

    /// Sends what `data`, a record of at least `plan.min_len` bytes, says.
    #[inline]
    pub fn map<const BIG: bool>(
        &mut self,
        plan: &Plan,
        ts: i64,
        cpu: u16,
        data: &[u8],
        sink: &mut dyn EventSink,
    ) -> Result<Mapped> {
        let fit = match plan.usual {
            true => plan.action.can_be::<BIG, true>(data),
            false => plan.action.can_be::<BIG, false>(data),
        };
        if !fit {
            return Ok(Mapped::CannotBe);
        }
        if plan.usual {
            self.send::<BIG, true>(&plan.action, ts, cpu, data, sink)?;
        } else if plan.action.names_fit::<BIG>(data) {
            self.send::<BIG, false>(&plan.action, ts, cpu, data, sink)?;
        } else {
            return Ok(Mapped::BadName);
        }
        Ok(Mapped::Done)
    }

    /// Sends the event that a record is; `USUAL` promises [`Plan::usual`]. Each
    /// is sent where it is made: a way out in common would copy it.
    #[inline(always)]
    fn send<const BIG: bool, const USUAL: bool>(
        &mut self,
        action: &Action,
        ts: i64,
        cpu: u16,
        data: &[u8],
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        match action {
            Action::Switch(switch) => sink.event(&self.switch::<BIG, USUAL>(switch, ts, cpu, data)),
            Action::Wake {
                kind,
                common,
                who,
                target,
            } => {
                let current = common.running::<BIG, USUAL>(data);
                sink.event(&Event::Wakeup {
                    ts,
                    cpu,
                    kind: *kind,
                    waker: match common.flags.read::<BIG>(data) & IN_INTERRUPT {
                        0 => current,
                        _ => None,
                    },
                    current,
                    who: who.read::<BIG, USUAL>(data),
                    target_cpu: target.and_then(|target| target.cpu::<BIG, USUAL>(data)),
                })
            }
            Action::Migrate { who, from, to } => sink.event(&Event::Migrate {
                ts,
                cpu,
                who: who.read::<BIG, USUAL>(data),
                from_cpu: from.cpu::<BIG, USUAL>(data),
                to_cpu: to.cpu::<BIG, USUAL>(data),
            }),
            Action::SystemCall {
                common,
                step,
                id,
                value,
                args,
            } => match common.running::<BIG, false>(data) {
                Some(tid) => sink.event(&Event::SystemCall {
                    ts,
                    cpu,
                    tid,
                    step: *step,
                    // A long of which the kernel itself uses an int.
                    number: id.read::<BIG>(data) as i32,
                    value: value.map(|value| value.read::<BIG>(data)),
                    args: args.map(|args| args.map(|arg| arg.read::<BIG>(data) as u64)),
                }),
                None => Ok(()),
            },
            other => match self.rare::<BIG>(other, ts, cpu, data) {
                Some(event) => sink.event(&event),
                None => Ok(()),
            },
        }
    }

    #[inline(always)]
    fn switch<const BIG: bool, const USUAL: bool>(
        &mut self,
        plan: &Switch,
        ts: i64,
        cpu: u16,
        data: &[u8],
    ) -> Event {
        let (prev_state, plus) = plan.states.decode(plan.prev_state.read::<BIG>(data) as u64);
        let prev = Party {
            tid: plan.prev_pid.tid::<BIG, USUAL>(data),
            comm: plan.prev_comm.read_as::<BIG, USUAL>(data),
            prio: plan.prev_prio.prio::<BIG, USUAL>(data),
            ..Party::default()
        };
        let next = Party {
            tid: plan.next_pid.tid::<BIG, USUAL>(data),
            comm: plan.next_comm.read_as::<BIG, USUAL>(data),
            prio: plan.next_prio.prio::<BIG, USUAL>(data),
            ..Party::default()
        };
        let yielded = self
            .yields_recorded
            .then(|| self.cpu(cpu).yielding.take() == Some(prev.tid));
        let preempted = match prev_state {
            State::Runnable if plus => Some(true),
            // The idle thread always leaves in R, without being asked.
            State::Runnable if prev.tid == 0 => None,
            State::Runnable => yielded.map(|yielded| !yielded),
            State::Unknown => None,
            _ => Some(false),
        };
        Event::Switch {
            ts,
            cpu,
            prev,
            prev_state,
            preempted,
            next,
        }
    }

    /// The events that come once in a thousand; None if nothing is to be sent.
    #[cold]
    fn rare<const BIG: bool>(
        &mut self,
        action: &Action,
        ts: i64,
        cpu: u16,
        data: &[u8],
    ) -> Option<Event> {
        let party = |tid, comm: Name| Party {
            tid,
            comm: comm.read::<BIG>(data),
            ..Party::default()
        };
        Some(match *action {
            Action::Fork {
                parent_comm,
                parent,
                child_comm,
                child,
            } => {
                let child = party(child.tid::<BIG, false>(data), child_comm);
                if self.announced.remove(&child.tid) {
                    return None;
                }
                let parent = party(parent.tid::<BIG, false>(data), parent_comm);
                Event::Fork {
                    ts,
                    parent,
                    child,
                    same_process: None,
                }
            }
            // Comes just before sched_process_fork and has more fields.
            Action::NewTask {
                common,
                child,
                comm,
                flags,
            } => {
                let child = party(child.tid::<BIG, false>(data), comm);
                if self.announced.len() >= ANNOUNCED_MAX {
                    self.announced.clear();
                }
                self.announced.insert(child.tid);
                let parent = Party {
                    tid: common.pid.tid::<BIG, false>(data),
                    ..Party::default()
                };
                let same_process = Some(flags.read::<BIG>(data) & CLONE_THREAD != 0);
                Event::Fork {
                    ts,
                    parent,
                    child,
                    same_process,
                }
            }
            Action::Exec { pid, old_pid } => {
                let tid = pid.tid::<BIG, false>(data);
                Event::Exec {
                    ts,
                    tid,
                    old_tid: old_pid.map_or(tid, |old| old.tid::<BIG, false>(data)),
                }
            }
            Action::Exit { who } => Event::Exit {
                ts,
                who: who.read::<BIG, false>(data),
            },
            Action::Rename { pid, comm } => Event::Rename {
                ts,
                tid: pid.tid::<BIG, false>(data),
                comm: comm.read::<BIG>(data),
            },
            Action::Priority { who, new } => {
                let prio = new.prio::<BIG, false>(data)?;
                Event::Priority {
                    ts,
                    who: who.read::<BIG, false>(data),
                    prio,
                    cause: PriorityCause::PiSetprio,
                }
            }
            Action::Yield { common } => {
                let tid = common.pid.tid::<BIG, false>(data);
                self.yields_recorded = true;
                self.cpu(cpu).yielding = Some(tid);
                Event::Yield { ts, tid }
            }
            Action::IrqEntry { kind, id } => {
                let id = id.tid::<BIG, false>(data);
                self.cpu(cpu).interrupts.enter(kind, id, ts);
                return None;
            }
            Action::IrqExit { kind, id } => {
                let id = id.tid::<BIG, false>(data);
                return self.cpu(cpu).interrupts.leave(kind, id, ts, cpu);
            }
            Action::QuotaRefill { timer } => Event::QuotaRefill {
                ts,
                cpu,
                timer: timer.read::<BIG>(data) as u64,
            },
            Action::GroupMove {
                hierarchy,
                pid,
                path,
            } => {
                let one = GroupMove {
                    ts,
                    tid: pid.tid::<BIG, false>(data),
                    cgroup: path.text::<BIG>(data),
                };
                let hierarchy = hierarchy.map(|hierarchy| hierarchy.read::<BIG>(data));
                self.group_moves.push(hierarchy, one);
                return None;
            }
            Action::SchedulerDump { line } => {
                if self.scheduler_dump.len() < DUMP_LINES {
                    self.scheduler_dump.push((ts, line.text::<BIG>(data)));
                }
                return None;
            }
            // What an interrupt's handler waits for is not the thread's.
            Action::Lock { common, .. } if common.flags.read::<BIG>(data) & IN_INTERRUPT != 0 => {
                return None;
            }
            Action::Lock {
                common,
                step,
                address,
                flags,
                value,
            } => Event::Lock {
                ts,
                cpu,
                tid: common.running::<BIG, false>(data)?,
                step,
                address: Some(address.read::<BIG>(data) as u64),
                kind: flags.map(|flags| LockKind::of_flags(flags.read::<BIG>(data))),
                value: value.map(|value| value.read::<BIG>(data) as i32),
            },
            // The interrupted thread has requested nothing: a completed request may interrupt any
            // thread.
            Action::DiskRequest {
                common,
                step,
                device,
                sector,
                sectors,
            } => Event::DiskRequest {
                ts,
                cpu,
                tid: if step == DiskStep::Complete
                    || common.flags.read::<BIG>(data) & IN_INTERRUPT != 0
                {
                    None
                } else {
                    common.running::<BIG, false>(data)
                },
                step,
                device: device.read::<BIG>(data) as u32,
                sector: sector.read::<BIG>(data) as u64,
                sectors: sectors.read::<BIG>(data) as u32,
            },
            Action::DispatchQueue(ref of) => {
                let read = |field: Int| field.read::<BIG>(data) as u64;
                let kind = QueueKind::of_id(read(of.id));
                Event::DispatchQueue {
                    ts,
                    cpu,
                    tid: of.pid.tid::<BIG, false>(data),
                    step: of.step,
                    kind,
                    queue_cpu: of
                        .cpu
                        .cpu::<BIG, false>(data)
                        .filter(|_| matches!(kind, QueueKind::Local | QueueKind::Bypass)),
                    queue_id: (kind == QueueKind::User).then(|| read(of.id)),
                    queued: read(of.queued) as u32,
                    given: of.given.map(|[slice, vtime, flags]| Dispatch {
                        slice: read(slice),
                        vtime: read(vtime),
                        flags: read(flags),
                        limit: of.timeout_ms.map(|ms| watchdog_limit(read(ms))),
                    }),
                }
            }
            Action::Kick { target, flags } => Event::Kick {
                ts,
                cpu,
                target: target.cpu::<BIG, false>(data),
                flags: flags.read::<BIG>(data) as u64,
            },
            Action::SleepReason { pid, io_wait } => Event::SleepReason {
                ts,
                cpu,
                tid: pid.tid::<BIG, false>(data),
                io_wait: io_wait.is_none_or(|io_wait| io_wait.read::<BIG>(data) != 0),
                function: None,
                entry: None,
                told_by: ToldBy::Event,
            },
            Action::SleepStack {
                common,
                depth,
                callers,
            } => {
                let depth = usize::try_from(depth.read::<BIG>(data)).unwrap_or(0);
                let sleep = self.stacks.sleep(callers.read::<BIG>(data).take(depth))?;
                Event::SleepReason {
                    ts,
                    cpu,
                    tid: common.running::<BIG, false>(data)?,
                    io_wait: sleep.io_wait,
                    function: sleep.function,
                    entry: sleep.entry,
                    told_by: ToldBy::Stack,
                }
            }
            Action::Ignore
            | Action::Switch(_)
            | Action::Wake { .. }
            | Action::Migrate { .. }
            | Action::SystemCall { .. } => return None,
        })
    }

    /// Forgets what a hole in the trace of `cpu` makes doubtful.
    pub fn lost(&mut self, cpu: u16) {
        if let Some(memory) = self.cpus.get_mut(usize::from(cpu)) {
            *memory = CpuMemory::default();
        }
    }

    fn cpu(&mut self, cpu: u16) -> &mut CpuMemory {
        let index = usize::from(cpu);
        if self.cpus.len() <= index {
            self.cpus.resize(index + 1, CpuMemory::default());
        }
        &mut self.cpus[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftrace::format::EventFormat;
    use crate::model::event::{CallStep, IrqKind, LockStep, QueueStep, SourceEnd};

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";

    fn plan(system: &str, name: &str, fields: &str) -> Plan {
        let text = format!("name: {name}\nID: 9\nformat:\n{COMMON}{fields}");
        Plan::compile(system, &EventFormat::parse(&text, name).unwrap(), "6.18").unwrap()
    }

    #[derive(Default)]
    struct Heard(Vec<Event>);

    impl EventSink for Heard {
        fn event(&mut self, event: &Event) -> Result<()> {
            self.0.push(*event);
            Ok(())
        }
        fn progress(&mut self, _: u64, _: u64) -> Result<()> {
            Ok(())
        }
    }

    fn record(pid: u32, rest: &[u32]) -> Vec<u8> {
        let mut data = vec![9, 0, 0, 0];
        data.extend(pid.to_le_bytes());
        data.extend(rest.iter().flat_map(|word| word.to_le_bytes()));
        data
    }

    #[test]
    fn a_child_told_twice_is_one_fork_and_the_flags_say_whether_it_is_a_thread() {
        let newtask = plan(
            "task",
            "task_newtask",
            "\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\
             \tfield:char comm[16];\toffset:12;\tsize:16;\tsigned:0;\n\
             \tfield:unsigned long clone_flags;\toffset:28;\tsize:4;\tsigned:0;\n",
        );
        let fork = plan(
            "sched",
            "sched_process_fork",
            "\tfield:char parent_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
             \tfield:pid_t parent_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
             \tfield:char child_comm[16];\toffset:28;\tsize:16;\tsigned:0;\n\
             \tfield:pid_t child_pid;\toffset:44;\tsize:4;\tsigned:1;\n",
        );
        let (mut mapper, mut heard) = (Mapper::default(), Heard::default());
        let told = record(7, &[8, 0, 0, 0, 0, CLONE_THREAD as u32]);
        let forked = record(7, &[0, 0, 0, 0, 7, 0, 0, 0, 0, 8]);
        mapper
            .map::<false>(&newtask, 10, 0, &told, &mut heard)
            .unwrap();
        mapper
            .map::<false>(&fork, 11, 0, &forked, &mut heard)
            .unwrap();
        mapper
            .map::<false>(&fork, 20, 0, &forked, &mut heard)
            .unwrap();
        let forks: Vec<_> = heard
            .0
            .iter()
            .map(|event| match event {
                Event::Fork {
                    ts,
                    parent,
                    child,
                    same_process,
                } => (*ts, parent.tid, child.tid, *same_process),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(forks, [(10, 7, 8, Some(true)), (20, 7, 8, None)]);
    }

    #[test]
    fn a_move_into_a_control_group_is_kept_and_sends_nothing() {
        let attach = plan(
            "group",
            "cgroup_attach_task",
            "\tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;\n\
             \tfield:__data_loc char[] dst_path;\toffset:12;\tsize:4;\tsigned:0;\n",
        );
        let (mut mapper, mut heard) = (Mapper::default(), Heard::default());
        let mut data = record(7, &[42, 16 | 33 << 16]);
        let long = "/a-name-longer-than-a-thread's-is";
        data.extend(long.as_bytes());
        mapper
            .map::<false>(&attach, 5, 1, &data, &mut heard)
            .unwrap();
        assert!(heard.0.is_empty());
        let (ts, tid, cgroup) = (5, 42, long.to_string());
        let mut end = SourceEnd::default();
        mapper.group_moves.finish(None, &mut end);
        assert_eq!(end.group_moves, [GroupMove { ts, tid, cgroup }]);
    }

    #[test]
    fn the_first_lines_of_a_dump_are_kept_and_send_nothing() {
        let dump = plan(
            "sched_ext",
            "sched_ext_dump",
            "\tfield:__data_loc char[] line;\toffset:8;\tsize:4;\tsigned:0;\n",
        );
        let (mut mapper, mut heard) = (Mapper::default(), Heard::default());
        for ts in 0..=DUMP_LINES as i64 {
            let mut data = record(7, &[12 | 9 << 16]);
            data.extend(format!("line {ts:>3}\0").as_bytes());
            mapper
                .map::<false>(&dump, ts, 1, &data, &mut heard)
                .unwrap();
        }
        assert!(heard.0.is_empty());
        assert_eq!(mapper.scheduler_dump.len(), DUMP_LINES);
        assert_eq!(mapper.scheduler_dump[1], (1, "line   1".to_string()));
    }

    #[test]
    fn a_rename_without_pid_is_the_running_threads_own() {
        let rename = plan(
            "task",
            "task_rename",
            "\tfield:char newcomm[16];\toffset:8;\tsize:16;\tsigned:0;\n",
        );
        let mut heard = Heard::default();
        let data = record(42, &[u32::from_le_bytes(*b"new\0"), 0, 0, 0]);
        Mapper::default()
            .map::<false>(&rename, 1, 0, &data, &mut heard)
            .unwrap();
        assert!(
            matches!(heard.0[..], [Event::Rename { ts: 1, tid: 42, comm }] if comm.as_bytes() == b"new")
        );
    }

    #[test]
    fn a_system_call_has_two_ends_and_its_number_is_a_long() {
        let long =
            |name: &str, at| format!("\tfield:long {name};\toffset:{at};\tsize:8;\tsigned:1;\n");
        let args = "\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n";
        let enter = plan("raw_syscalls", "sys_enter", &(long("id", 8) + args));
        let exit = plan(
            "raw_syscalls",
            "sys_exit",
            &(long("id", 8) + &long("ret", 16)),
        );
        let (mut mapper, mut heard) = (Mapper::default(), Heard::default());
        let minus = u32::MAX;
        for (plan, ts, rest) in [
            (
                &enter,
                10,
                vec![202, 0, 0x10002, 0x7000, 0x80, 0, 2, 0, 0, 0, 0, 0, 0, 0],
            ),
            (&exit, 15, vec![202, 0, 11u32.wrapping_neg(), minus]),
            // What a tracer refused.
            (&exit, 20, vec![minus, minus, 38u32.wrapping_neg(), minus]),
        ] {
            mapper
                .map::<false>(plan, ts, 1, &record(7, &rest), &mut heard)
                .unwrap();
        }
        let found: Vec<_> = heard
            .0
            .iter()
            .map(|event| match event {
                Event::SystemCall {
                    ts,
                    cpu: 1,
                    tid: 7,
                    step,
                    number,
                    value,
                    args,
                } => (*ts, *step, *number, *value, *args),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            found,
            [
                (
                    10,
                    CallStep::Enter,
                    202,
                    None,
                    Some([0x7000_0001_0002, 0x80, 2])
                ),
                (15, CallStep::Exit, 202, Some(-11), None),
                (20, CallStep::Exit, -1, Some(-38), None),
            ]
        );
    }

    #[test]
    fn a_request_to_a_disk_is_the_threads_unless_an_interrupt_made_it() {
        let fields = "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
                      \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
                      \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n";
        let [start, issue, complete] = ["block_io_start", "block_rq_issue", "block_rq_complete"]
            .map(|name| plan("block", name, fields));
        let (mut mapper, mut heard) = (Mapper::default(), Heard::default());
        let plain = record(7, &[0xfe_00001, 0, 4096, 1, 8]);
        let mut within = plain.clone();
        within[2] = IN_INTERRUPT as u8 & 0x10;
        for (plan, ts, data) in [
            (&start, 10, &plain),
            (&issue, 11, &within),
            (&complete, 20, &plain),
        ] {
            mapper.map::<false>(plan, ts, 1, data, &mut heard).unwrap();
        }
        let found: Vec<_> = heard
            .0
            .iter()
            .map(|event| match event {
                Event::DiskRequest {
                    ts,
                    cpu: 1,
                    tid,
                    step,
                    device: 0xfe_00001,
                    sector: 0x1_0000_1000,
                    sectors: 8,
                } => (*ts, *tid, *step),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            found,
            [
                (10, Some(7), DiskStep::Start),
                (11, None, DiskStep::Issue),
                (20, None, DiskStep::Complete),
            ]
        );
    }

    #[test]
    fn a_step_through_a_dispatch_queue_says_whose_the_queue_is() {
        let field = |ty: &str, name: &str, at: u32, size: u32, signed: u8| {
            format!("\tfield:{ty} {name};\toffset:{at};\tsize:{size};\tsigned:{signed};\n")
        };
        let queue = field("s32", "cpu", 8, 4, 1)
            + &field("u64", "dsq", 12, 8, 0)
            + &field("u32", "nr", 20, 4, 0)
            + &field("s32", "pid", 24, 4, 1);
        let given = field("u64", "slice", 28, 8, 0)
            + &field("u64", "vtime", 36, 8, 0)
            + &field("u64", "flags", 44, 8, 0);
        let insert = plan(
            "scx",
            "insert",
            &(queue.clone() + &given + &field("u32", "timeout_ms", 52, 4, 0)),
        );
        let remove = plan("scx", "remove", &queue);
        let (mut mapper, mut heard) = (Mapper::default(), Heard::default());
        let user = record(1, &[3, 9, 0, 4, 77, 5, 0, 6, 0, 7, 0, 0]);
        let local = record(1, &[3, 2, 1 << 31, 0, 77]);
        mapper
            .map::<false>(&insert, 10, 1, &user, &mut heard)
            .unwrap();
        mapper
            .map::<false>(&remove, 11, 2, &local, &mut heard)
            .unwrap();
        let found: Vec<_> = heard
            .0
            .iter()
            .map(|event| match *event {
                Event::DispatchQueue {
                    ts,
                    cpu,
                    tid: 77,
                    step,
                    kind,
                    queue_cpu,
                    queue_id,
                    queued,
                    given,
                } => (ts, cpu, step, kind, queue_cpu, queue_id, queued, given),
                ref other => panic!("{other:?}"),
            })
            .collect();
        let given = Dispatch {
            slice: 5,
            vtime: 6,
            flags: 7,
            limit: Some(30_000_000_000),
        };
        let (insert, remove) = (QueueStep::Insert, QueueStep::Remove);
        assert_eq!(
            found,
            [
                (
                    10,
                    1,
                    insert,
                    QueueKind::User,
                    None,
                    Some(9),
                    4,
                    Some(given)
                ),
                (11, 2, remove, QueueKind::Local, Some(3), None, 0, None),
            ]
        );
    }

    #[test]
    fn a_kick_names_its_cpu_if_there_can_be_one() {
        let field = |ty: &str, name: &str, at: u32, size: u32, signed: u8| {
            format!("\tfield:{ty} {name};\toffset:{at};\tsize:{size};\tsigned:{signed};\n")
        };
        let kick = plan(
            "scx",
            "kick",
            &(field("s32", "cpu", 8, 4, 1) + &field("u64", "flags", 12, 8, 0)),
        );
        let (mut mapper, mut heard) = (Mapper::default(), Heard::default());
        for (ts, told) in [(10, 3), (11, u32::MAX)] {
            mapper
                .map::<false>(&kick, ts, 1, &record(77, &[told, 2, 0]), &mut heard)
                .unwrap();
        }
        let found: Vec<_> = heard
            .0
            .iter()
            .map(|event| match *event {
                Event::Kick {
                    ts,
                    cpu: 1,
                    target,
                    flags: 2,
                } => (ts, target),
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, [(10, Some(3)), (11, None)]);
    }

    #[test]
    fn a_wait_for_a_lock_has_two_ends_unless_an_interrupt_waited() {
        let address = "\tfield:void * lock_addr;\toffset:8;\tsize:8;\tsigned:0;\n";
        let int = |name: &str| format!("\tfield:int {name};\toffset:16;\tsize:4;\tsigned:1;\n");
        let begin = plan(
            "lock",
            "contention_begin",
            &(address.to_owned() + &int("flags")),
        );
        let end = plan(
            "lock",
            "contention_end",
            &(address.to_owned() + &int("ret")),
        );
        let (mut mapper, mut heard) = (Mapper::default(), Heard::default());
        for (plan, ts, last) in [(&begin, 10, 0x20), (&end, 15, 0), (&begin, 20, 0x5)] {
            mapper
                .map::<false>(plan, ts, 1, &record(7, &[5, 0xffff_0000, last]), &mut heard)
                .unwrap();
        }
        let mut within = record(7, &[5, 0xffff_0000, 1]);
        within[2] = IN_INTERRUPT as u8 & 0x10;
        mapper
            .map::<false>(&begin, 30, 1, &within, &mut heard)
            .unwrap();
        let found: Vec<_> = heard
            .0
            .iter()
            .map(|event| match event {
                Event::Lock {
                    ts,
                    cpu: 1,
                    tid: 7,
                    step,
                    address: Some(0xffff_0000_0000_0005),
                    kind,
                    value,
                } => (*ts, *step, *kind, *value),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            found,
            [
                (10, LockStep::Begin, Some(LockKind::Mutex), None),
                (15, LockStep::End, None, Some(0)),
                (20, LockStep::Begin, Some(LockKind::Rwlock), None),
            ]
        );
    }

    #[test]
    fn nested_interrupts_end_in_their_own_order_and_a_hole_forgets_them() {
        let field = |name: &str| format!("\tfield:int {name};\toffset:8;\tsize:4;\tsigned:1;\n");
        let soft_in = plan("irq", "softirq_entry", &field("vec"));
        let soft_out = plan("irq", "softirq_exit", &field("vec"));
        let hard_in = plan("irq", "irq_handler_entry", &field("irq"));
        let hard_out = plan("irq", "irq_handler_exit", &field("irq"));
        let (mut mapper, mut heard) = (Mapper::default(), Heard::default());
        let steps = [
            (&soft_in, 10, 1),
            (&hard_in, 12, 33),
            (&hard_out, 15, 33),
            (&soft_out, 20, 1),
        ];
        for (plan, ts, id) in steps {
            mapper
                .map::<false>(plan, ts, 0, &record(0, &[id]), &mut heard)
                .unwrap();
        }
        mapper
            .map::<false>(&soft_in, 30, 0, &record(0, &[1]), &mut heard)
            .unwrap();
        mapper.lost(0);
        mapper
            .map::<false>(&soft_out, 90, 0, &record(0, &[1]), &mut heard)
            .unwrap();
        let found: Vec<_> = heard
            .0
            .iter()
            .map(|event| match event {
                Event::Irq {
                    ts, kind, id, dur, ..
                } => (*ts, *kind, *id, *dur),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            found,
            [(12, IrqKind::Hard, 33, 3), (10, IrqKind::Soft, 1, 10)]
        );
    }
}
