//! Generic ftrace events: fields by name, for tracepoints that the writer had
//! no message for. The scheduler's are rewritten into the messages we read.

use super::wire::{Fields, Value};

/// (name, number) of a message's fields.
type ByName = &'static [(&'static str, u32)];

/// (event, field of FtraceEvent, its fields by name).
const KNOWN: [(&str, u32, ByName); 6] = [
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
];
const WAKE: ByName = &[("comm", 1), ("pid", 2), ("prio", 3), ("target_cpu", 5)];

/// The number and bytes of the message that the generic event stands for.
pub fn rewrite(message: &[u8]) -> Option<(u32, Vec<u8>)> {
    let name = Fields::new(message)
        .find(|&(number, _)| number == 1)?
        .1
        .bytes();
    let (_, kind, fields) = KNOWN.iter().find(|(known, ..)| known.as_bytes() == name)?;
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
        let number = fields
            .iter()
            .find(|(known, _)| known.as_bytes() == name)
            .map(|(_, number)| *number);
        match (number, value) {
            (Some(number), Some(Value::Number(value))) => {
                put(&mut out, u64::from(number) << 3);
                put(&mut out, value);
            }
            (Some(number), Some(Value::Bytes(bytes))) => {
                put(&mut out, u64::from(number) << 3 | 2);
                put(&mut out, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
            _ => {}
        }
    }
    Some((*kind, out))
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}
