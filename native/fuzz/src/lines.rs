//! Injuries of text: numbers, names and letters within lines; lines swapped, cut,
//! doubled, and repeated with a number that grows.

use std::ops::Range;

use crate::bytes::LARGEST;
use crate::chance::{Chance, NAMES};

/// Repeated lines end here: as much text as ought to be read within a second.
const REPEATED: usize = 60_000;

pub fn injure(data: &mut Vec<u8>, chance: &mut Chance) {
    let lines = lines(data);
    if lines.is_empty() {
        return;
    }
    let at = chance.below(lines.len());
    let line = lines[at].clone();
    match chance.below(16) {
        0..=5 => number(data, line, chance),
        6 => name(data, line, chance),
        7 => data[line.start] = *chance.of(b"SKENMFCRPXDEILWY#@ \t"),
        8 => column(data, &lines, chance),
        9 => repeat(data, line, chance),
        10 => {
            let other = lines[chance.below(lines.len())].clone();
            let (first, second) = if other.start < line.start {
                (other, line)
            } else {
                (line, other)
            };
            if first.end <= second.start {
                let swapped = [
                    &data[second.clone()],
                    &data[first.end..second.start],
                    &data[first.clone()],
                ]
                .concat();
                data.splice(first.start..second.end, swapped);
            }
        }
        11 => {
            let last = (at + chance.below(10)).min(lines.len() - 1);
            data.drain(line.start..lines[last].end);
        }
        12 => {
            let last = (at + chance.below(30)).min(lines.len() - 1);
            let block = data[line.start..lines[last].end].to_vec();
            let to = lines[chance.below(lines.len())].start;
            if data.len() + block.len() < LARGEST {
                data.splice(to..to, block);
            }
        }
        13 => data.truncate(line.start + chance.below(line.len())),
        14 => {
            // Two lines become one.
            data.remove(line.end - 1);
        }
        _ => {
            let to = line.start + chance.below(line.len());
            data.splice(to..to, chance.of(&NAMES).bytes());
        }
    }
}

/// Where the lines are, each with its newline.
fn lines(data: &[u8]) -> Vec<Range<usize>> {
    let mut start = 0;
    data.split_inclusive(|&byte| byte == b'\n')
        .map(|line| {
            start += line.len();
            start - line.len()..start
        })
        .collect()
}

/// Where the whole numbers of a line are.
fn numbers(data: &[u8], line: Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = line.start;
    while at < line.end {
        if !data[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = (at..line.end)
            .find(|&at| !data[at].is_ascii_digit())
            .unwrap_or(line.end);
        found.push(at..end);
        at = end;
    }
    found
}

fn value(data: &[u8], number: &Range<usize>) -> i64 {
    let text = std::str::from_utf8(&data[number.clone()]).unwrap_or("");
    text.parse().unwrap_or(0)
}

fn number(data: &mut Vec<u8>, line: Range<usize>, chance: &mut Chance) {
    let numbers = numbers(data, line);
    if numbers.is_empty() {
        return;
    }
    let number = chance.of(&numbers).clone();
    let new = chance.number(value(data, &number));
    data.splice(number, new.to_string().into_bytes());
}

fn name(data: &mut Vec<u8>, line: Range<usize>, chance: &mut Chance) {
    let is_word = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'/' | b'_' | b'-');
    let text = &data[line.clone()];
    let starts: Vec<usize> = (1..text.len())
        .filter(|&at| is_word(text[at]) && !is_word(text[at - 1]))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = *chance.of(&starts);
    let length = text[start..].iter().take_while(|&&b| is_word(b)).count();
    let range = line.start + start..line.start + start + length;
    data.splice(range, chance.of(&NAMES).bytes());
}

/// The same number of every line (or of many) changes.
fn column(data: &mut Vec<u8>, lines: &[Range<usize>], chance: &mut Chance) {
    let (index, rarely) = (chance.below(8), 1 + chance.below(4));
    let new = chance.number(0);
    let mut out = Vec::with_capacity(data.len());
    for line in lines {
        let numbers = numbers(data, line.clone());
        match numbers.get(index) {
            Some(number) if chance.once_in(rarely) => {
                out.extend_from_slice(&data[line.start..number.start]);
                out.extend_from_slice(new.to_string().as_bytes());
                out.extend_from_slice(&data[number.end..line.end]);
            }
            _ => out.extend_from_slice(&data[line.clone()]),
        }
    }
    if out.len() < LARGEST {
        *data = out;
    }
}

/// One line again and again, with some of its numbers growing or shrinking: many
/// CPUs, many threads, time that runs backwards.
fn repeat(data: &mut Vec<u8>, line: Range<usize>, chance: &mut Chance) {
    let numbers = numbers(data, line.clone());
    let text = data[line.clone()].to_vec();
    let chosen: Vec<(usize, i64)> = (0..1 + chance.below(3))
        .filter(|_| !numbers.is_empty())
        .map(|_| {
            let step = *chance.of(&[1, -1, 2, 64, -64, 1000, -1000, 1 << 20, -(1 << 20)]);
            (chance.below(numbers.len()), step)
        })
        .collect();
    let room = REPEATED.saturating_sub(data.len()) / text.len().max(1);
    let mut more = Vec::new();
    for turn in 1..=chance.below(room + 1) as i64 {
        let mut from = line.start;
        for (index, number) in numbers.iter().enumerate() {
            more.extend_from_slice(&data[from..number.start]);
            let steps: i64 = chosen
                .iter()
                .filter(|(chosen, _)| *chosen == index)
                .fold(0, |sum, (_, step)| sum.wrapping_add(*step));
            if steps == 0 {
                more.extend_from_slice(&data[number.clone()]);
            } else {
                let new = value(data, number).wrapping_add(steps.wrapping_mul(turn));
                more.extend_from_slice(new.to_string().as_bytes());
            }
            from = number.end;
        }
        more.extend_from_slice(&data[from..line.end]);
    }
    data.splice(line.end..line.end, more);
}
