//! Events that Perfetto has no message of its own for: their fields have names. They are rewritten
//! into the messages that we read, or into ones with numbers of ours.
//!
//! A generic event has the names each time; since Perfetto 50 a bundle describes such events once,
//! and they then have numbers as if they had a message.

use rustc_hash::FxHashMap;

use super::wire::{Fields, Value};

/// Field numbers of FtraceEvent that protobuf does not allow.
pub const LOCK_BEGIN: u32 = u32::MAX;
pub const LOCK_END: u32 = u32::MAX - 1;
pub const STAT_IOWAIT: u32 = u32::MAX - 2;
pub const YIELD: u32 = u32::MAX - 3;

/// (name, number) of a message's fields.
type ByName = &'static [(&'static str, u32)];

/// (event, field of FtraceEvent, its fields by name).
const KNOWN: [(&str, u32, ByName); 10] = [
    (
        "sched_switch",
        4,
        &[
            ("prev_comm", 1),
            ("prev_pid", 2),
            ("prev_prio", 3),
            ("prev_state", 4),
            ("next_comm", 5),
            ("next_pid", 6),
            ("next_prio", 7),
        ],
    ),
    ("sched_wakeup", 17, WAKE),
    ("sched_waking", 20, WAKE),
    ("sched_wakeup_new", 114, WAKE),
    (
        "sched_migrate_task",
        491,
        &[
            ("comm", 1),
            ("pid", 2),
            ("prio", 3),
            ("orig_cpu", 4),
            ("dest_cpu", 5),
        ],
    ),
    (
        "sched_process_exit",
        238,
        &[("comm", 1), ("pid", 2), ("prio", 4)],
    ),
    ("sched_stat_iowait", STAT_IOWAIT, &[("pid", 1)]),
    (
        "contention_begin",
        LOCK_BEGIN,
        &[("lock_addr", 1), ("flags", 2)],
    ),
    ("contention_end", LOCK_END, &[("lock_addr", 1), ("ret", 2)]),
    ("sys_enter_sched_yield", YIELD, &[]),
];
const WAKE: ByName = &[("comm", 1), ("pid", 2), ("prio", 3), ("target_cpu", 5)];

fn known(name: &[u8]) -> Option<&'static (&'static str, u32, ByName)> {
    KNOWN.iter().find(|(known, ..)| known.as_bytes() == name)
}

fn number(fields: ByName, name: &[u8]) -> Option<u32> {
    let found = fields.iter().find(|(known, _)| known.as_bytes() == name);
    found.map(|(_, number)| *number)
}

/// The number and bytes of the message that the generic event stands for.
pub fn rewrite(message: &[u8]) -> Option<(u32, Vec<u8>)> {
    let name = Fields::new(message)
        .find(|&(number, _)| number == 1)?
        .1
        .bytes();
    let (_, kind, fields) = known(name)?;
    let mut out = Vec::with_capacity(96);
    for (_, field) in Fields::new(message).filter(|&(number, _)| number == 2) {
        let (mut name, mut value) = (&[][..], None);
        for (number, part) in Fields::new(field.bytes()) {
            match number {
                1 => name = part.bytes(),
                3..=5 => value = Some(part),
                _ => {}
            }
        }
        if let (Some(number), Some(value)) = (number(fields, name), value) {
            put_field(&mut out, number, value);
        }
    }
    Some((*kind, out))
}

/// What the file says of events that it describes itself, of those that we read.
#[derive(Debug, Default)]
pub struct Described(FxHashMap<u32, Description>);

/// The field of FtraceEvent that an event stands for, and of each of its fields the number there.
#[derive(Debug)]
struct Description {
    kind: u32,
    fields: Vec<(u32, u32)>,
}

impl Described {
    /// Takes in a GenericEventDescriptor: the event's number, and its DescriptorProto.
    pub fn add(&mut self, bytes: &[u8]) {
        let (mut event, mut descriptor) = (None, &[][..]);
        for (number, value) in Fields::new(bytes) {
            match number {
                1 => event = u32::try_from(value.number()).ok(),
                2 => descriptor = value.bytes(),
                _ => {}
            }
        }
        let Some(event) = event.filter(|event| !self.0.contains_key(event)) else {
            return;
        };
        let name = Fields::new(descriptor).find(|&(number, _)| number == 1);
        let Some((_, kind, names)) = name.and_then(|(_, name)| known(name.bytes())) else {
            return;
        };
        let of_field = |field: Value<'_>| {
            let (mut name, mut at) = (&[][..], None);
            for (number, value) in Fields::new(field.bytes()) {
                match number {
                    1 => name = value.bytes(),
                    3 => at = u32::try_from(value.number()).ok(),
                    _ => {}
                }
            }
            Some((at?, number(names, name)?))
        };
        let fields = Fields::new(descriptor).filter(|&(number, _)| number == 2);
        let fields = fields.filter_map(|(_, field)| of_field(field)).collect();
        self.0.insert(
            event,
            Description {
                kind: *kind,
                fields,
            },
        );
    }

    /// Is the event of this number described?
    #[inline]
    pub fn any(&self, event: u32) -> bool {
        // A message of Perfetto's own has a lower one.
        event >= 1 << 16 && self.0.contains_key(&event)
    }

    /// The number and bytes of the message that a described event stands for.
    pub fn rewrite(&self, event: u32, message: &[u8]) -> Option<(u32, Vec<u8>)> {
        let Description { kind, fields } = self.0.get(&event)?;
        let mut out = Vec::with_capacity(32);
        for (at, value) in Fields::new(message) {
            if let Some(&(_, number)) = fields.iter().find(|&&(from, _)| from == at) {
                put_field(&mut out, number, value);
            }
        }
        Some((*kind, out))
    }
}

fn put_field(out: &mut Vec<u8>, number: u32, value: Value<'_>) {
    match value {
        Value::Number(value) => {
            put(out, u64::from(number) << 3);
            put(out, value);
        }
        Value::Bytes(bytes) => {
            put(out, u64::from(number) << 3 | 2);
            put(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}
