//! The fields of the scheduler's events, as the kernel, libtraceevent's plug-in
//! (trace-cmd, perf) and `-R` print them.

use crate::coverage::MAX_CPUS;
use crate::ftrace::states::{StateTable, state_of_letters};
use crate::model::event::{
    CallStep, Comm, DiskStep, Event, Function, GroupMove, IrqKind, LockKind, LockStep, Party,
    PriorityCause, State, ToldBy, WakeKind,
};

use super::kind::Kind;
use super::line::Line;

/// The last field of an event begins no farther from its end.
const NEAR_END: usize = 40;

/// What a line says.
#[derive(Debug, Clone)]
pub enum Said {
    Event(Event),
    Entered(IrqKind, u32),
    Left(IrqKind, u32),
    /// With the number of the hierarchy.
    Moved(i64, GroupMove),
    /// Of what happens in an interrupt, nothing.
    Nothing,
}

/// What the line says, or None when its fields are not as we know them.
pub fn said(kind: Kind, line: &Line<'_>, states: &StateTable) -> Option<Said> {
    let id = |key| value(line.fields, key).and_then(|id| u32::try_from(id).ok());
    Some(match kind {
        Kind::IrqEntry => Said::Entered(IrqKind::Hard, id(b"irq=")?),
        Kind::IrqExit => Said::Left(IrqKind::Hard, id(b"irq=")?),
        Kind::SoftirqEntry => Said::Entered(IrqKind::Soft, id(b"vec=")?),
        Kind::SoftirqExit => Said::Left(IrqKind::Soft, id(b"vec=")?),
        Kind::LockBegin | Kind::LockEnd if line.interrupt => Said::Nothing,
        Kind::GroupAttach | Kind::GroupTransfer => {
            let (hierarchy, one) = group_move(line.ts, line.fields)?;
            Said::Moved(hierarchy, one)
        }
        _ => Said::Event(event(kind, line, states)?),
    })
}

fn event(kind: Kind, line: &Line<'_>, states: &StateTable) -> Option<Event> {
    let (ts, cpu, text) = (line.ts, line.cpu, line.fields);
    match kind {
        Kind::Switch => switch(ts, cpu, text, states),
        Kind::Waking | Kind::Wakeup | Kind::WakeupNew => {
            let kind = match kind {
                Kind::Waking => WakeKind::Waking,
                Kind::Wakeup => WakeKind::Enqueued,
                _ => WakeKind::New,
            };
            let (who, target_cpu) = wakeup(text)?;
            let waker = if line.interrupt { None } else { line.tid };
            Some(Event::Wakeup {
                ts,
                cpu,
                kind,
                waker,
                current: line.tid,
                who,
                target_cpu,
            })
        }
        Kind::Migrate => {
            let (who, rest) = comm_pid(text, b"comm=", b" pid=", b" prio=")?;
            let prio = prio(rest)?;
            let from_cpu = u16::try_from(value(rest, b"orig_cpu=")?).ok();
            let to_cpu = u16::try_from(value(rest, b"dest_cpu=")?).ok();
            let who = Party { prio, ..who };
            Some(Event::Migrate {
                ts,
                cpu,
                who,
                from_cpu,
                to_cpu,
            })
        }
        Kind::Fork => {
            // -R prints the names of the fields, the kernel shorter ones.
            let (parent, rest) = comm_pid(text, b"comm=", b" pid=", b" child_comm=")
                .or_else(|| comm_pid(text, b"parent_comm=", b" parent_pid=", b" child_comm="))?;
            let (child_comm, pid) = split_comm(rest, b" child_pid=")?;
            let child = Party {
                tid: tid(pid)?,
                comm: comm(child_comm),
                ..Party::default()
            };
            Some(Event::Fork {
                ts,
                parent,
                child,
                same_process: None,
            })
        }
        Kind::Exec => {
            // The file's name may hold anything: the numbers are at the end.
            let at = find_last(text, b" pid=")?;
            let new = tid(&text[at + 5..])?;
            let old = value(&text[at + 5..], b"old_pid=").and_then(|old| u32::try_from(old).ok());
            Some(Event::Exec {
                ts,
                tid: new,
                old_tid: old.unwrap_or(new),
            })
        }
        Kind::Exit => {
            let (who, rest) = comm_pid(text, b"comm=", b" pid=", b" prio=")?;
            Some(Event::Exit {
                ts,
                who: Party {
                    prio: prio(rest)?,
                    ..who
                },
            })
        }
        Kind::NewTask => {
            let child = tid(text.strip_prefix(b"pid=")?)?;
            let at = find(text, b" comm=")?;
            let (name, flags) = split_comm(&text[at + 6..], b" clone_flags=")?;
            let parent = Party {
                tid: line.tid?,
                ..Party::default()
            };
            let child = Party {
                tid: child,
                comm: comm(name),
                ..Party::default()
            };
            // CLONE_THREAD
            let same_process = hex(flags).map(|flags| flags & 0x1_0000 != 0);
            Some(Event::Fork {
                ts,
                parent,
                child,
                same_process,
            })
        }
        Kind::Rename => {
            let at = find_last(text, b" newcomm=")?;
            let (name, _) = split_comm(&text[at + 9..], b" oom_score_adj=")?;
            let renamed = text.strip_prefix(b"pid=").and_then(tid).or(line.tid)?;
            Some(Event::Rename {
                ts,
                tid: renamed,
                comm: comm(name),
            })
        }
        Kind::SysEnter | Kind::SysExit => {
            // `NR 202 (...)` and `NR 202 = 0`; -R prints `id=202 ...` and `id=202 ret=0`.
            let plain = text.strip_prefix(b"NR ");
            let number = plain.map_or_else(|| value(text, b"id="), number)?;
            let (step, value, args) = if kind == Kind::SysEnter {
                (CallStep::Enter, None, plain.and_then(arguments))
            } else {
                let key: &[u8] = if plain.is_some() { b" = " } else { b" ret=" };
                (CallStep::Exit, returned(text, key), None)
            };
            Some(Event::SystemCall {
                ts,
                cpu,
                tid: line.tid?,
                step,
                number: number as i32,
                value,
                args,
            })
        }
        Kind::BlockedReason => Some(Event::SleepReason {
            ts,
            cpu,
            tid: tid(text.strip_prefix(b"pid=")?)?,
            // -R prints the name of the field.
            io_wait: value(text, b" iowait=").or_else(|| value(text, b" io_wait="))? != 0,
            function: find(text, b" caller=").and_then(|at| Function::of_text(&text[at + 8..])),
            entry: None,
            told_by: ToldBy::Event,
        }),
        Kind::StatIowait => {
            let (who, _) = comm_pid(text, b"comm=", b" pid=", b" delay=")?;
            Some(Event::SleepReason {
                ts,
                cpu,
                tid: who.tid,
                io_wait: true,
                function: None,
                entry: None,
                told_by: ToldBy::Event,
            })
        }
        Kind::LockBegin | Kind::LockEnd => {
            // `0xffff88818a92bf38 (flags=WRITE)`, `... (ret=0)`; -R prints the names of the fields.
            let raw = text.strip_prefix(b"lock_addr=");
            let (step, kind, value) = if kind == Kind::LockBegin {
                let flags = &text[find(text, b"flags=")? + 6..];
                (
                    LockStep::Begin,
                    Some(LockKind::of_flags(lock_flags(flags)?)),
                    None,
                )
            } else {
                (LockStep::End, None, Some(value(text, b"ret=")? as i32))
            };
            Some(Event::Lock {
                ts,
                cpu,
                tid: line.tid?,
                step,
                address: Some(hex(raw.unwrap_or(text))?),
                kind,
                value,
            })
        }
        Kind::Yield => Some(Event::Yield { ts, tid: line.tid? }),
        Kind::IoStart | Kind::RqIssue | Kind::RqComplete => {
            // `254,0 R 4096 () 123456 + 8 none,0,0 [cat]`, or with less behind the sectors.
            let step = match kind {
                Kind::IoStart => DiskStep::Start,
                Kind::RqIssue => DiskStep::Issue,
                _ => DiskStep::Complete,
            };
            let (major, minor) = (number(text)?, number(&text[find(text, b",")? + 1..])?);
            // Behind the command, and before more of what may hold a "+".
            let sector = find(text, b") ")? + 2;
            let length = sector + find(&text[sector..], b" + ")?;
            let done = step == DiskStep::Complete;
            Some(Event::DiskRequest {
                ts,
                cpu,
                tid: line.tid.filter(|_| !done && !line.interrupt),
                step,
                device: u32::try_from(major << 20 | minor).ok()?,
                sector: number(&text[sector..])?.cast_unsigned(),
                sectors: u32::try_from(number(&text[length + 3..])?).ok()?,
            })
        }
        Kind::PiSetprio => {
            let (who, rest) = comm_pid(text, b"comm=", b" pid=", b" oldprio=")?;
            let prio = signed(value(rest, b"newprio=")?)?;
            Some(Event::Priority {
                ts,
                who,
                prio,
                cause: PriorityCause::PiSetprio,
            })
        }
        // Of interrupts and control groups: `said` reads them.
        _ => None,
    }
}

fn switch(ts: i64, cpu: u16, text: &[u8], states: &StateTable) -> Option<Event> {
    let (prev, state, next) = match named_switch(text) {
        Some(found) => found,
        None => {
            let (prev, state, next) = plugin_switch(text)?;
            // libtraceevent before 1.8 has the letters of Linux 3.9 for the bits of
            // every kernel: x is 0x40 (P since 4.14), W is 0x80 (I). It prints R+
            // as R.
            let state: &[u8] = match state {
                b"x" => b"64",
                b"W" => b"128",
                other => other,
            };
            (prev, state, next)
        }
    };
    let (prev_state, preempted) = decode_state(state, states)?;
    Some(Event::Switch {
        ts,
        cpu,
        prev,
        prev_state,
        preempted,
        next,
    })
}
/// `prev_comm=x prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=y next_pid=2 next_prio=120`.
fn named_switch(text: &[u8]) -> Option<(Party, &[u8], Party)> {
    let (prev, rest) = comm_pid(text, b"prev_comm=", b" prev_pid=", b" prev_prio=")?;
    let prev = Party {
        prio: prio(rest)?,
        ..prev
    };
    let at = find(rest, b"prev_state=")? + 11;
    let rest = &rest[at..];
    let end = rest.iter().position(|&byte| byte == b' ')?;
    let state = &rest[..end];
    let rest = rest[end..].trim_ascii_start();
    let rest = rest.strip_prefix(b"==>").unwrap_or(rest).trim_ascii_start();
    let (next, rest) = comm_pid(rest, b"next_comm=", b" next_pid=", b" next_prio=")?;
    let next = Party {
        prio: prio(rest)?,
        ..next
    };
    Some((prev, state, next))
}

/// `perf:22888 [120] D ==> migration/0:18 [0]`; a name may hold the arrow.
fn plugin_switch(text: &[u8]) -> Option<(Party, &[u8], Party)> {
    let mut from = 0;
    while let Some(found) = find(&text[from..], b" ==> ") {
        let at = from + found;
        from = at + 1;
        let left = &text[..at];
        let Some(space) = left.iter().rposition(|&byte| byte == b' ') else {
            continue;
        };
        let (who, state) = (&left[..space], &left[space + 1..]);
        if let (Some((prev, [])), Some((next, _))) =
            (name_pid_prio(who), name_pid_prio(&text[at + 5..]))
        {
            return Some((prev, state, next));
        }
    }
    None
}

/// `name:pid [prio]` and what follows it. The name may end in the like, so the
/// last bracket counts.
fn name_pid_prio(text: &[u8]) -> Option<(Party, &[u8])> {
    let open = find_last(text, b" [")?;
    let close = open + text[open..].iter().position(|&byte| byte == b']')?;
    let colon = text[..open].iter().rposition(|&byte| byte == b':')?;
    let tid = u32::try_from(whole(&text[colon + 1..open])?).ok()?;
    let prio = whole(&text[open + 2..close]).map(signed)?;
    if too_long(&text[..colon]) {
        return None;
    }
    Some((
        Party {
            tid,
            prio,
            comm: comm(&text[..colon]),
            ..Party::default()
        },
        &text[close + 1..],
    ))
}

/// `comm=x pid=1 prio=120 target_cpu=000` or `x:1 [120] CPU:000`.
fn wakeup(text: &[u8]) -> Option<(Party, Option<u16>)> {
    let named = comm_pid(text, b"comm=", b" pid=", b" prio=");
    if let Some((who, rest)) = named {
        let prio = prio(rest)?;
        let target = value(rest, b"target_cpu=").and_then(|cpu| u16::try_from(cpu).ok());
        return Some((Party { prio, ..who }, target));
    }
    // A name may begin with "comm=".
    let (who, rest) = name_pid_prio(text)?;
    Some((
        who,
        value(rest, b"CPU:").and_then(|cpu| u16::try_from(cpu).ok()),
    ))
}

/// Does the event end before its last fields? Then a thread's name holds the end of a line.
pub fn is_unfinished(kind: Kind, text: &[u8]) -> bool {
    let near = |key: &[u8]| find(&text[text.len().saturating_sub(NEAR_END)..], key).is_some();
    match kind {
        Kind::Switch => !near(b" next_prio=") && !text.ends_with(b"]"),
        Kind::Waking | Kind::Wakeup | Kind::WakeupNew => !near(b" target_cpu=") && !near(b" CPU:"),
        Kind::Migrate => !near(b" dest_cpu="),
        Kind::Fork => !near(b" child_pid="),
        Kind::NewTask | Kind::Rename => !near(b" oom_score_adj="),
        Kind::PiSetprio => !near(b" newprio="),
        Kind::Exit => !near(b" prio="),
        _ => false,
    }
}

/// CPUs that the fields of a wakeup or a migration name, below the most there are.
pub fn cpus_named(kind: Kind, text: &[u8]) -> impl Iterator<Item = u16> {
    let keys: &[&[u8]] = match kind {
        Kind::Waking | Kind::Wakeup | Kind::WakeupNew => &[b"target_cpu=", b" CPU:"],
        Kind::Migrate => &[b"orig_cpu=", b"dest_cpu="],
        _ => &[],
    };
    // They come last; a name may hold the same words.
    keys.iter()
        .filter_map(|key| number(&text[find_last(text, key)? + key.len()..]))
        .filter_map(|cpu| u16::try_from(cpu).ok())
        .filter(|&cpu| cpu < MAX_CPUS)
}

/// The prev thread of a switch, and its state as printed.
pub fn left(text: &[u8]) -> Option<(u32, &[u8])> {
    if !text.starts_with(b"prev_comm=") || find(text, b" prev_state=").is_none() {
        return plugin_switch(text).map(|(prev, state, _)| (prev.tid, state));
    }
    let rest = &text[find(text, b" prev_state=")? + 12..];
    let tid = u32::try_from(value(text, b" prev_pid=")?).ok()?;
    Some((tid, rest.split(|&byte| byte == b' ').next()?))
}

/// Letters ("S", "R+", "D|K") or the number of `-R`.
fn decode_state(text: &[u8], states: &StateTable) -> Option<(State, Option<bool>)> {
    let (state, plus) = match text.first()? {
        b'0'..=b'9' => states.decode(u64::try_from(whole(text)?).ok()?),
        _ => {
            let has = |letters: &[u8]| text.iter().any(|letter| letters.contains(letter));
            if !text
                .iter()
                .all(|letter| b"RSDTtXZxPINKWwn|+".contains(letter))
            {
                return None;
            }
            // Only what still wants to run is preempted.
            let plus = has(b"+");
            let state = if plus {
                State::Runnable
            } else {
                states
                    .of_letters(text)
                    .unwrap_or_else(|| state_of_letters(has))
            };
            (state, plus)
        }
    };
    Some(match state {
        State::Runnable if plus => (State::Runnable, Some(true)),
        State::Runnable | State::Unknown => (state, None),
        _ => (state, Some(false)),
    })
}

/// `<begin>NAME<middle>PID<end>...`: the thread, and what follows `end`. The
/// name may itself look like a field, so the first reading that fits counts.
fn comm_pid<'a>(
    text: &'a [u8],
    begin: &[u8],
    middle: &[u8],
    end: &[u8],
) -> Option<(Party, &'a [u8])> {
    let text = text.strip_prefix(begin)?;
    let mut from = 0;
    while let Some(found) = find(&text[from..], middle) {
        let at = from + found;
        from = at + 1;
        let rest = &text[at + middle.len()..];
        let digits = rest
            .iter()
            .position(|b| !b.is_ascii_digit())
            .unwrap_or(rest.len());
        if let (Some(tid), Some(rest)) = (tid(&rest[..digits]), rest[digits..].strip_prefix(end)) {
            if too_long(&text[..at]) {
                return None;
            }
            return Some((
                Party {
                    tid,
                    comm: comm(&text[..at]),
                    ..Party::default()
                },
                rest,
            ));
        }
    }
    None
}

/// A name up to `end`, and what follows.
fn split_comm<'a>(text: &'a [u8], end: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = find_last(text, end)?;
    Some((&text[..at], &text[at + end.len()..]))
}

/// Longer than any name of a thread in the kernel: parts of two lines. (A viewer's page or
/// another program may write one byte as several.)
fn too_long(name: &[u8]) -> bool {
    name.len() > 15
        && array(name).is_none()
        && !name.iter().any(|byte| matches!(byte, b'&' | b'\\'))
}

fn comm(name: &[u8]) -> Comm {
    // "<...>": the kernel had forgotten it.
    if name == b"<...>" {
        Comm::default()
    } else {
        array(name).map_or_else(|| Comm::new(name), |bytes| Comm::new(&bytes))
    }
}

/// `ARRAY[c3, a9, 00, 00, ...]`: trace-cmd -R prints all names so once one was not ASCII.
fn array(name: &[u8]) -> Option<Vec<u8>> {
    let list = name.strip_prefix(b"ARRAY[")?.strip_suffix(b"]")?;
    let byte = |part: &[u8]| match part.trim_ascii() {
        digits @ [_, _] => u8::try_from(hex(digits)?).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = list.split(|&byte| byte == b',').map(byte).collect();
    bytes.filter(|bytes| bytes.len() == 16)
}

pub fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn find_last(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).rposition(|window| window == what)
}

/// The number after `key`.
fn value(text: &[u8], key: &[u8]) -> Option<i64> {
    number(&text[find(text, key)? + key.len()..])
}

/// The bits of `SPIN|READ)` (LCB_F_* of include/trace/events/lock.h), or of a number.
fn lock_flags(text: &[u8]) -> Option<i64> {
    const NAMES: [&[u8]; 6] = [b"SPIN", b"READ", b"WRITE", b"RT", b"PERCPU", b"MUTEX"];
    let text = text.strip_suffix(b")").unwrap_or(text);
    let bits = |part: &[u8]| match NAMES.iter().position(|name| *name == part) {
        Some(bit) => Some(1 << bit),
        None if part.is_empty() => Some(0),
        None if part.starts_with(b"0x") => hex(part).map(u64::cast_signed),
        None => whole(part),
    };
    let parts = text.split(|&byte| byte == b'|');
    parts.map(bits).try_fold(0, |all, part| Some(all | part?))
}

/// `dst_root=0 dst_id=25 dst_level=1 dst_path=/a pid=7 comm=x`; with -R, the path stands behind
/// the pid. A path may hold anything: the first reading that fits counts.
fn group_move(ts: i64, text: &[u8]) -> Option<(i64, GroupMove)> {
    const PATH: &[u8] = b" dst_path=";
    const NAME_MAX: usize = 15;
    let hierarchy = value(text, b"dst_root=")?;
    let at = find(text, PATH)?;
    let (before, rest) = (&text[..at], &text[at + PATH.len()..]);
    let named = |rest: &[u8]| {
        let name = rest.strip_prefix(b" comm=");
        name.is_some_and(|name| name.len() <= NAME_MAX)
    };
    let moved = |tid, path: &[u8]| {
        let cgroup = String::from_utf8_lossy(path).into_owned();
        Some((hierarchy, GroupMove { ts, tid, cgroup }))
    };
    if let Some(pid) = find_last(before, b" pid=") {
        let end = (0..rest.len()).find(|&end| named(&rest[end..]))?;
        return moved(tid(&before[pid + 5..])?, &rest[..end]);
    }
    let fits = |end: usize| {
        let pid = rest[end..].strip_prefix(b" pid=")?;
        let digits = pid.iter().position(|byte| !byte.is_ascii_digit())?;
        named(&pid[digits..]).then(|| tid(&pid[..digits]))?
    };
    let (end, tid) = (0..rest.len()).find_map(|end| Some((end, fits(end)?)))?;
    moved(tid, &rest[..end])
}

/// A number behind `key`, in decimal or hexadecimal.
fn returned(text: &[u8], key: &[u8]) -> Option<i64> {
    let text = &text[find(text, key)? + key.len()..];
    if text.starts_with(b"0x") {
        hex(text).map(u64::cast_signed)
    } else {
        number(text)
    }
}

/// The first three of `(7ffc, 80, 2, 0, 0, 0)`, in hexadecimal.
fn arguments(text: &[u8]) -> Option<[u64; 3]> {
    let text = &text[find(text, b" (")? + 2..];
    let mut parts = text
        .split(|&byte| byte == b',')
        .map(|part| hex(part.trim_ascii()));
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// The priority at the beginning; within, None where it is none of Linux's.
fn prio(text: &[u8]) -> Option<Option<i16>> {
    number(text).map(signed)
}

/// A priority as it is printed: -1, of deadline threads, is 4294967295 in libtraceevent's
/// print-out of wakeups, and 0xffffffff with -R.
fn signed(prio: i64) -> Option<i16> {
    let wrapped = u32::try_from(prio).map(u32::cast_signed);
    i16::try_from(wrapped.map_or(prio, i64::from)).ok()
}

/// The number at the beginning. Linux prints 64 bits with a sign or without: those above the
/// largest signed number stand for the negative one of the same bits.
fn number(text: &[u8]) -> Option<i64> {
    let end = text
        .iter()
        .position(|b| !(b.is_ascii_digit() || *b == b'-'))
        .unwrap_or(text.len());
    whole(&text[..end])
}

fn whole(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = |_| text.parse().map(u64::cast_signed);
    text.parse().or_else(unsigned).ok()
}

fn tid(text: &[u8]) -> Option<u32> {
    number(text).and_then(|tid| u32::try_from(tid).ok())
}

fn hex(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    let end = text
        .iter()
        .position(|b| !b.is_ascii_hexdigit())
        .unwrap_or(text.len());
    u64::from_str_radix(std::str::from_utf8(&text[..end]).ok()?, 16).ok()
}
