//! Variables of an object that its own user-space half would set.
use super::btf::{Btf, Type};
use super::memory::Memory;
use crate::error::{Error, Result};

/// (region, offset, type)
pub type Variable = (u32, u32, u32);

/// Arrays in arrays.
const MOST_LEVELS: u32 = 4;
/// Elements of an array that settings make longer.
const MOST: usize = 1 << 16;
/// Words of a program's context.
const MOST_ARGUMENTS: usize = 16;

/// The part of a variable that `path` leads to: "member.2.member".
pub fn within(btf: &Btf, place: Variable, name: &str, path: &str) -> Result<Variable> {
    let (region, mut at, mut id) = place;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let next = match btf.resolve(id).1 {
            Type::Struct { .. } => btf.member(id, step),
            Type::Array { of, length } => {
                let index = step.parse().ok().filter(|index| index < length);
                index.map(|index: u32| (index.saturating_mul(btf.size(*of)), *of))
            }
            _ => None,
        };
        let Some((offset, kind)) = next else {
            return Err(Error::usage(
                format!("{name}, of which {step:?} is no part"),
                "members by their names, elements by their numbers: config.limits.2",
                "correct the name",
            ));
        };
        (at, id) = (at.saturating_add(offset), kind);
    }
    Ok((region, at, id))
}

/// Sets a number, a truth value, or an array of them ("1,2,3"); a time becomes ns.
pub fn set_variable(
    btf: &Btf,
    memory: &mut Memory,
    (region, at, id): Variable,
    name: &str,
    value: &str,
) -> Result<()> {
    // An array of arrays is filled row by row.
    let (mut kind, mut length) = (id, 1u32);
    for _ in 0..MOST_LEVELS {
        if let Type::Array { of, length: n } = btf.resolve(kind).1 {
            (kind, length) = (*of, length.saturating_mul(*n));
        }
    }
    let size = btf.size(kind);
    let wrong = |expected: &str| {
        Error::usage(
            format!("{name}={value}"),
            expected.to_string(),
            "correct the value",
        )
    };
    if !matches!(btf.resolve(kind).1, Type::Int { .. } | Type::Enum { .. })
        || !matches!(size, 1 | 2 | 4 | 8)
    {
        return Err(wrong("a variable that is a number or an array of numbers"));
    }
    let words: Vec<&str> = value.split(',').map(str::trim).collect();
    let end = u64::from(at) + u64::from(size) * words.len() as u64;
    // An array alone in a section of its own is one that the scheduler's own half makes longer.
    let held = memory.region(region);
    let alone = !name.contains('.')
        && at == 0
        && length > 0
        && held.bytes.len() as u64 == u64::from(size) * u64::from(length);
    let resized = alone && held.name.matches('.').count() > 1 && words.len() <= MOST;
    if resized && end > held.bytes.len() as u64 {
        let grown = memory.grow(region, end as usize);
        grown.map_err(|fault| wrong(&format!("fewer numbers: it {}", fault.what)))?;
    } else if words.len() > length as usize || end > memory.region(region).bytes.len() as u64 {
        return Err(wrong(&format!("at most {length} numbers")));
    }
    for (i, word) in words.iter().enumerate() {
        let number = number(word).filter(|n| {
            let bits = 8 * size;
            bits == 64 || (*n >= -(1i128 << (bits - 1)) && *n < 1i128 << bits)
        });
        let number = number
            .ok_or_else(|| wrong(&format!("numbers of {} bits, or times as in 5ms", 8 * size)))?;
        let bytes = (number as u64).to_le_bytes();
        let place = at + i as u32 * size;
        memory.put(region, place, &bytes[..size as usize]);
    }
    Ok(())
}

/// The numbers that a program of the scheduler's gets.
pub fn numbers(name: &str, text: &str) -> Result<Vec<i32>> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let found: Option<Vec<i32>> = words
        .iter()
        .map(|word| i32::try_from(number(word)?).ok())
        .collect();
    found
        .filter(|found| found.len() <= MOST_ARGUMENTS)
        .ok_or_else(|| {
            Error::usage(
                format!("{name}={text}"),
                format!("at most {MOST_ARGUMENTS} numbers of 32 bits, and / between calls"),
                "correct the value",
            )
        })
}

fn number(text: &str) -> Option<i128> {
    match text {
        "true" | "on" => return Some(1),
        "false" | "off" => return Some(0),
        _ => {}
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(i128::from);
    }
    for (unit, ns) in [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ] {
        if let Some(count) = text.strip_suffix(unit) {
            let count: i128 = count.trim().parse().ok()?;
            return count.checked_mul(ns).filter(|n| u64::try_from(*n).is_ok());
        }
    }
    let found: i128 = text.parse().ok()?;
    (i64::try_from(found).is_ok() || u64::try_from(found).is_ok()).then_some(found)
}
