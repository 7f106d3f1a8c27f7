//! Injuries of ftrace's sub-buffers: headers, record headers, payload words, whole pages.

use crate::bytes::{LARGEST, word};
use crate::chance::Chance;

const HEADER: usize = 16;

/// `data` holds sub-buffers of `size` bytes, at multiples of it or counted from its end.
pub fn injure(data: &mut Vec<u8>, size: usize, chance: &mut Chance) {
    let first = if chance.once_in(2) {
        0
    } else {
        data.len() % size
    };
    let count = (data.len() - first) / size;
    if count == 0 {
        return;
    }
    let page = first + chance.below(count) * size;
    match chance.below(10) {
        0 => word(&mut data[page..page + 8], 0, chance),
        1 => word(&mut data[page + 8..page + 16], 0, chance),
        2 => {
            // Events lost before it, with and without a number.
            let flags = *chance.of(&[0x80u8, 0xc0, 0x40]);
            data[page + 11] |= flags;
        }
        3..=6 => record(&mut data[page..page + size], chance),
        7 => {
            let other = first + chance.below(count) * size;
            let copy = data[other..other + size].to_vec();
            data[page..page + size].copy_from_slice(&copy);
        }
        8 => {
            let copy = data[page..page + size].to_vec();
            if data.len() + size < LARGEST {
                data.splice(page..page, copy);
            }
        }
        _ => {
            data.drain(page..page + size);
        }
    }
}

/// One record of a page gets another header, or another word of payload.
fn record(page: &mut [u8], chance: &mut Chance) {
    let used = u64::from_le_bytes(page[8..16].try_into().unwrap_or_default()) as usize & 0xffff;
    let end = (HEADER + used).min(page.len());
    let mut starts = Vec::new();
    let mut at = HEADER;
    while at + 8 <= end {
        starts.push(at);
        let head = u32::from_le_bytes(page[at..at + 4].try_into().unwrap_or_default());
        let extra = u32::from_le_bytes(page[at + 4..at + 8].try_into().unwrap_or_default());
        at += match head & 31 {
            30 | 31 => 8,
            29 | 0 => 4 + (extra as usize).clamp(4, 1 << 16),
            words => 4 + 4 * words as usize,
        };
    }
    if starts.is_empty() {
        return;
    }
    let at = *chance.of(&starts);
    match chance.below(4) {
        0 => page[at] = page[at] & !31 | chance.below(32) as u8,
        1 => {
            let kind = u32::from(page[at]) & 31;
            let delta = *chance.of(&[0, 1, 0x07ff_ffff, 0x0400_0000]);
            page[at..at + 4].copy_from_slice(&(delta << 5 | kind).to_le_bytes());
        }
        2 => {
            // A time extension or an absolute stamp in its place.
            let kind = *chance.of(&[30u32, 31]);
            let high = *chance.of(&[0, 1, u32::MAX, 1 << 31, 1 << 30]);
            page[at..at + 4].copy_from_slice(&(0x07ff_ffff << 5 | kind).to_le_bytes());
            page[at + 4..at + 8].copy_from_slice(&high.to_le_bytes());
        }
        _ => {
            let end = (at + 4 + 64).min(page.len());
            let from = chance.below(16) * 4;
            word(&mut page[at + 4..end], from, chance);
        }
    }
}
