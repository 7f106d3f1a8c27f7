//! Injuries of perf.data: its header's offsets and sizes, and its records.

use std::ops::Range;

use crate::bytes::{LARGEST, word};
use crate::chance::Chance;

const MAGIC: &[u8] = b"PERFILE2";

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

/// Where the records are: of a file, in its data section; of a pipe, behind 16 bytes.
fn section(data: &[u8]) -> Option<Range<usize>> {
    if !data.starts_with(MAGIC) {
        return None;
    }
    if u64_at(data, 8)? == 16 {
        return Some(16..data.len());
    }
    let begin = usize::try_from(u64_at(data, 40)?).ok()?;
    let end = begin.checked_add(usize::try_from(u64_at(data, 48)?).ok()?)?;
    (end <= data.len()).then_some(begin..end)
}

fn records(data: &[u8]) -> Vec<Range<usize>> {
    let Some(section) = section(data) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut at = section.start;
    while at + 8 <= section.end {
        let size = usize::from(u16::from_le_bytes([data[at + 6], data[at + 7]]));
        let trailing = match data[at] {
            // Tracing data follow their record.
            66 => u64_at(data, at + 8).unwrap_or(0) as u32 as usize,
            _ => 0,
        };
        let end = at
            .saturating_add(size)
            .saturating_add(trailing.next_multiple_of(8));
        if size < 8 || end > section.end {
            break;
        }
        found.push(at..end);
        at = end;
    }
    found
}

/// Keeps `most` records that are not the first ones, for a smaller file that is whole.
pub fn thin_out(data: &mut Vec<u8>, most: usize) {
    let records = records(data);
    // Kinds above 63 describe the session; MMAP, COMM and FORK come before the samples.
    let kind = |record: &Range<usize>| data[record.start];
    let samples: Vec<Range<usize>> = records
        .into_iter()
        .filter(|record| matches!(kind(record), 1 | 3 | 7 | 9 | 10))
        .collect();
    let Some(cut) = samples.get(most) else { return };
    let Some(last) = samples.last() else { return };
    let (begin, end) = (cut.start, last.end);
    remove(data, begin..end);
}

/// Removes bytes of the data section and puts the header and the features right.
fn remove(data: &mut Vec<u8>, range: Range<usize>) {
    let gone = range.len() as u64;
    if u64_at(data, 8) != Some(16) {
        let size = u64_at(data, 48).unwrap_or(0).saturating_sub(gone);
        let behind = section(data).map_or(0, |section| section.end);
        data[48..56].copy_from_slice(&size.to_le_bytes());
        // Offset and size of each feature stand behind the data.
        let features: u32 = (0..4)
            .filter_map(|word| u64_at(data, 72 + 8 * word))
            .map(u64::count_ones)
            .sum();
        for feature in 0..features as usize {
            let at = behind + 16 * feature;
            if let Some(offset) = u64_at(data, at) {
                data[at..at + 8].copy_from_slice(&offset.saturating_sub(gone).to_le_bytes());
            }
        }
    }
    data.drain(range);
}

pub fn injure(data: &mut Vec<u8>, chance: &mut Chance) {
    let records = records(data);
    if records.is_empty() || chance.once_in(8) {
        let at = chance.below(data.len().min(104));
        return word(data, at, chance);
    }
    let record = chance.of(&records).clone();
    match chance.below(9) {
        0 => {
            data[record.start] =
                *chance.of(&[1, 2, 3, 4, 5, 7, 9, 10, 13, 64, 66, 69, 71, 80, 81, 83])
        }
        1 => word(&mut data[record.start + 6..record.start + 8], 0, chance),
        2..=4 => {
            let from = 8 + chance.below(record.len().min(160) - 7);
            word(&mut data[record.clone()], from, chance);
        }
        5 => {
            // The time of the sample, at its usual place.
            let at = record.start + *chance.of(&[16, 24, 32, 40]);
            if at + 8 <= record.end {
                let new = chance.number(u64_at(data, at).unwrap_or(0).cast_signed());
                data[at..at + 8].copy_from_slice(&new.to_le_bytes());
            }
        }
        6 => remove(data, record),
        7 => {
            let copy = data[record.clone()].to_vec();
            let times = 1 + chance.below(200);
            let copies = copy.repeat(times);
            if data.len() + copies.len() < LARGEST {
                // The header's size stays: the file then ends in what was behind the data.
                data.splice(record.start..record.start, copies);
            }
        }
        _ => {
            let other = chance.of(&records).clone();
            if other.len() == record.len() {
                let copy = data[other.clone()].to_vec();
                let here = data[record.clone()].to_vec();
                data[record].copy_from_slice(&copy);
                data[other].copy_from_slice(&here);
            }
        }
    }
}
