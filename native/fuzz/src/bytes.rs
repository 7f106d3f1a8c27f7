//! Injuries that need no knowledge of a format: bits, bytes, words, stretches.

use crate::chance::Chance;

/// No input grows beyond this: a decoder's time is measured against its size.
pub const LARGEST: usize = 400_000;

pub fn injure(data: &mut Vec<u8>, chance: &mut Chance) {
    if data.is_empty() {
        return;
    }
    // Headers are short and matter: half of the injuries go there.
    let limit = if chance.once_in(2) {
        data.len()
    } else {
        data.len().min(600)
    };
    let at = chance.below(limit);
    match chance.below(8) {
        0 => data[at] ^= 1 << chance.below(8),
        1 => data[at] = chance.next() as u8,
        2 | 3 => word(data, at, chance),
        4 => data.truncate(at),
        5 => {
            let end = (at + 1 + chance.below(64)).min(data.len());
            data.drain(at..end);
        }
        6 => {
            let end = (at + 1 + chance.below(4096)).min(data.len());
            let copy = data[at..end].to_vec();
            if data.len() + copy.len() < LARGEST {
                data.splice(at..at, copy);
            }
        }
        _ => {
            let from = chance.below(data.len());
            let size = (1 + chance.below(64)).min(data.len() - from.max(at));
            data.copy_within(from..from + size, at);
        }
    }
}

/// A number of 1 to 8 bytes becomes another one, mostly where one may stand.
pub fn word(data: &mut [u8], at: usize, chance: &mut Chance) {
    let size = *chance.of(&[1, 2, 4, 4, 8, 8]);
    let at = if chance.once_in(4) {
        at
    } else {
        at / size * size
    };
    let Some(field) = data.get_mut(at..at + size) else {
        return;
    };
    let mut old = [0; 8];
    old[..size].copy_from_slice(field);
    let new = chance.number(i64::from_le_bytes(old));
    if chance.once_in(4) {
        field.copy_from_slice(&new.to_be_bytes()[8 - size..]);
    } else {
        field.copy_from_slice(&new.to_le_bytes()[..size]);
    }
}
