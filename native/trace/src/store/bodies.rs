//! Bodies of Parquet data pages that `pages` made, taken apart again.
//!
//! Analyses go over columns of ten million rows, which a reader of every encoding there
//! is takes longer to decode than they take to answer. Of bytes that are not as `pages` writes
//! them all functions here say `None`.

use arrow_array::ArrowPrimitiveType;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};

use super::pages::{BLOCK, MINIBLOCK};

/// Bytes that have not been looked at.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        self.take(LEN)?.try_into().ok()
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

/// 32 values, each `WIDTH` bits wide, lowest bits first.
fn unpacked<const WIDTH: usize>(bytes: &[u8], values: &mut [u64; MINIBLOCK]) {
    let mut words = [0u32; WIDTH];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let mask = if WIDTH < 64 {
        (1 << WIDTH) - 1
    } else {
        u64::MAX
    };
    macro_rules! place {
        ($($index:literal)+) => {$(
            let (word, bit) = ($index * WIDTH / 32, $index * WIDTH % 32);
            let mut value = 0;
            if WIDTH > 0 {
                value = u64::from(words[word]) >> bit;
            }
            if bit + WIDTH > 32 {
                value |= u64::from(words[word + 1]) << (32 - bit);
            }
            if bit + WIDTH > 64 {
                value |= u64::from(words[word + 2]) << (64 - bit);
            }
            values[$index] = value & mask;
        )+};
    }
    place!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
}

type Unpacker = fn(&[u8], &mut [u64; MINIBLOCK]);

macro_rules! unpackers {
    ($($width:literal)+) => { [$(unpacked::<$width>),+] };
}

const UNPACKERS: [Unpacker; 65] = unpackers!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
);

/// Integers as `pages` keeps them: those of unsigned 32 bits as their two's complement.
pub trait Narrow: ArrowPrimitiveType {
    fn narrow(value: i64) -> Self::Native;
}
macro_rules! narrow {
    ($($of:ident)+) => {$(
        impl Narrow for $of {
            #[inline(always)]
            fn narrow(value: i64) -> Self::Native { value as Self::Native }
        }
    )+};
}
narrow!(Int16Type Int32Type Int64Type UInt16Type UInt32Type UInt64Type);

/// DELTA_BINARY_PACKED: `len` values.
pub fn deltas<T: Narrow>(body: &[u8], len: usize) -> Option<Vec<T::Native>> {
    let mut body = Rest(body);
    let layout = (body.count()?, body.count()?, body.count()?);
    if layout != (BLOCK, BLOCK / MINIBLOCK, len) {
        return None;
    }
    let mut value = body.zigzag()?;
    let mut out = Vec::with_capacity(len);
    out.extend((len > 0).then(|| T::narrow(value)));
    let mut above = [0; MINIBLOCK];
    while out.len() < len {
        let least = body.zigzag()?;
        for bits in body.array::<{ BLOCK / MINIBLOCK }>()? {
            let count = MINIBLOCK.min(len - out.len());
            if count == 0 {
                break;
            }
            let bits = usize::from(bits);
            UNPACKERS.get(bits)?(body.take(MINIBLOCK / 8 * bits)?, &mut above);
            out.extend(above[..count].iter().map(|above| {
                // Each value waits for the one before: for one addition, not for two.
                value = value.wrapping_add(least.wrapping_add(above.cast_signed()));
                T::narrow(value)
            }));
        }
    }
    Some(out)
}

/// Definition levels of `len` rows: which of them have a value (none: all); and what follows.
pub fn levels(body: &[u8], len: usize) -> Option<(Option<NullBuffer>, &[u8])> {
    let mut body = Rest(body);
    let size = u32::from_le_bytes(body.array()?);
    let mut levels = Rest(body.take(usize::try_from(size).ok()?)?);
    let head = levels.count()?;
    let valid = if head & 1 == 0 {
        let [level] = levels.array()?;
        if head >> 1 != len {
            return None;
        }
        (level == 0).then(|| NullBuffer::new_null(len))
    } else {
        let bits = levels.take(head >> 1)?;
        if bits.len() != len.div_ceil(8) {
            return None;
        }
        Some(NullBuffer::new(BooleanBuffer::new(
            Buffer::from(bits),
            0,
            len,
        )))
    };
    Some((valid, body.0))
}

/// Dictionary codes of `len` rows.
pub fn codes(body: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut body = Rest(body);
    let [width] = body.array()?;
    if len == 0 {
        return Some(Vec::new());
    }
    let head = body.count()?;
    if head & 1 == 0 {
        let [code] = body.array()?;
        return (head >> 1 == len).then(|| vec![code; len]);
    }
    if head >> 1 != len.div_ceil(8) || !(1..=8).contains(&width) {
        return None;
    }
    let width = usize::from(width);
    let unpack = UNPACKERS[width];
    let bytes = body.take((head >> 1) * width)?;
    let mut out = Vec::with_capacity(len);
    let mut group = [0; MINIBLOCK];
    for bytes in bytes.chunks(MINIBLOCK / 8 * width) {
        // The last ones may be fewer than 32.
        let mut whole = [0; MINIBLOCK];
        whole[..bytes.len()].copy_from_slice(bytes);
        unpack(&whole, &mut group);
        let count = MINIBLOCK.min(len - out.len());
        out.extend(group[..count].iter().map(|code| *code as u8));
    }
    Some(out)
}

/// PLAIN booleans of `len` rows.
pub fn booleans(body: &[u8], len: usize) -> Option<BooleanBuffer> {
    let bits = Rest(body).take(len.div_ceil(8))?;
    Some(BooleanBuffer::new(Buffer::from(bits), 0, len))
}

/// PLAIN texts, each behind its length, as the list of categories in a field's metadata.
pub fn categories(body: &[u8]) -> Option<String> {
    let mut body = Rest(body);
    let mut all = String::new();
    while !body.0.is_empty() {
        let len = u32::from_le_bytes(body.array()?);
        let text = std::str::from_utf8(body.take(usize::try_from(len).ok()?)?).ok()?;
        all += &format!("{len};{text}");
    }
    Some(all)
}

/// The `kept` values at the rows that have one, and any value at the others.
pub fn spread<T: Copy + Default>(mut kept: Vec<T>, valid: &NullBuffer) -> Option<Vec<T>> {
    if kept.len() != valid.len() - valid.null_count() {
        return None;
    }
    // What nulls after the last value get.
    kept.push(T::default());
    let mut out = Vec::with_capacity(valid.len());
    let mut at = 0;
    for mask in valid.inner().bit_chunks().iter_padded() {
        let count = (valid.len() - out.len()).min(64);
        // Read in any case: nulls are as good as random, and a branch on each would be
        // foreseen badly.
        out.extend((0..count).map(|bit| {
            let value = kept[at];
            at += (mask >> bit & 1) as usize;
            value
        }));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::pages;
    use super::*;

    fn numbers(bits: u32) -> Vec<i64> {
        (0..1000u64)
            .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(n as u32) >> (64 - bits))
            .map(u64::cast_signed)
            .collect()
    }

    #[test]
    fn integers_of_any_width_come_back() {
        for bits in 1..=64 {
            for len in [0, 1, 2, 33, 129, 1000] {
                let (values, mut body) = (&numbers(bits)[..len], Vec::new());
                pages::deltas_64(&mut body, values);
                let found = deltas::<Int64Type>(&body, len);
                assert_eq!(found.as_deref(), Some(values), "{bits} {len}");
                let short = body.len() - 1;
                assert_eq!(deltas::<Int64Type>(&body[..short], len), None);
                assert_eq!(deltas::<Int64Type>(&body, len + 1), None);
            }
        }
        let (unsigned, mut body) = ([7u32, u32::MAX, 1 << 31], Vec::new());
        pages::deltas_64(
            &mut body,
            &unsigned.map(|value| i64::from(value.cast_signed())),
        );
        assert_eq!(deltas::<UInt32Type>(&body, 3), Some(unsigned.to_vec()));
    }

    #[test]
    fn codes_of_any_width_come_back() {
        for width in 1..=8 {
            for len in [1, 7, 8, 32, 100] {
                let values: Vec<u8> = (0..len as u8)
                    .map(|n| n % (1 << (width - 1)).max(2))
                    .collect();
                for values in [values, vec![1; len]] {
                    let mut body = Vec::new();
                    pages::codes(&mut body, &values);
                    assert_eq!(codes(&body, len), Some(values), "{width} {len}");
                    assert_eq!(codes(&body, len + 9), None);
                }
            }
        }
    }

    #[test]
    fn rows_without_a_value_stay_without() {
        for len in [1, 63, 64, 65, 200] {
            for kind in 0..4 {
                let rows: Vec<Option<u16>> = (0..len)
                    .map(|n| match kind {
                        0 => None,
                        1 => Some(n),
                        _ => (n * n % 7 < 3).then_some(n + 1),
                    })
                    .collect();
                let valid = NullBuffer::from_iter(rows.iter().map(Option::is_some));
                let kept: Vec<u16> = rows.iter().copied().flatten().collect();
                let (mut body, len) = (Vec::new(), usize::from(len));
                pages::levels(
                    &mut body,
                    Some(&valid).filter(|valid| valid.null_count() > 0),
                    len,
                );
                body.push(99);
                let (told, rest) = levels(&body, len).expect("a body");
                assert_eq!(rest, [99]);
                assert_eq!(told.is_none(), valid.null_count() == 0);
                let values = spread(kept.clone(), &told.unwrap_or(valid.clone())).expect("values");
                let found: Vec<Option<u16>> = (0..len)
                    .map(|row| valid.is_valid(row).then(|| values[row]))
                    .collect();
                assert_eq!(found, rows);
                assert!(levels(&body, len + 8).is_none());
                assert!(spread([kept, vec![1]].concat(), &valid).is_none());
            }
        }
    }
}
