//! Bodies of Parquet data pages, encoded for speed per CPU second.
//!
//! The `parquet` crate keeps the container (headers, footer, schema); the page
//! bodies are made here because its general column writer costs more than
//! decoding and reconstruction together. Encodings are those of the Parquet
//! format's Encodings.md: RLE/bit-packed hybrid for levels and dictionary
//! codes, DELTA_BINARY_PACKED for integers, PLAIN for booleans and texts.

use arrow_buffer::{BooleanBuffer, NullBuffer};

/// Deltas in a block, and in a miniblock (the format wants multiples of 128
/// and of 32).
pub const BLOCK: usize = 128;
pub const MINIBLOCK: usize = 32;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Appends 32 values, each `WIDTH` bits wide, lowest bits first. One function a
/// width: every shift in it is a constant.
fn packed<const WIDTH: usize, T: Copy + Into<u64>>(out: &mut Vec<u8>, values: &[T; MINIBLOCK]) {
    // 32 values of so many bits are as many words of 32 bits.
    let mut words = [0u32; WIDTH];
    macro_rules! place {
        ($($index:literal)+) => {$(
            let (word, bit) = ($index * WIDTH / 32, $index * WIDTH % 32);
            let value: u64 = values[$index].into();
            if WIDTH > 0 {
                words[word] |= (value << bit) as u32;
            }
            if bit + WIDTH > 32 {
                words[word + 1] |= (value >> (32 - bit)) as u32;
            }
            if bit + WIDTH > 64 {
                words[word + 2] |= (value >> (64 - bit)) as u32;
            }
        )+};
    }
    place!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    out.extend_from_slice(words.map(u32::to_le_bytes).as_flattened());
}

type Packer<T> = fn(&mut Vec<u8>, &[T; MINIBLOCK]);

macro_rules! packers {
    ($($width:literal)+) => { [$(packed::<$width, _>),+] };
}

const PACKERS_32: [Packer<u32>; 33] = packers!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
);
const PACKERS_64: [Packer<u64>; 65] = packers!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
);

/// DELTA_BINARY_PACKED, of a column of 32 bits.
pub fn deltas_32(out: &mut Vec<u8>, values: &[i32]) {
    header(
        out,
        values.len(),
        values.first().map_or(0, |&first| first.into()),
    );
    let mut block = [0i32; BLOCK];
    blocks(values, |before, after| {
        for ((delta, &after), &before) in block.iter_mut().zip(after).zip(before) {
            *delta = after.wrapping_sub(before);
        }
        block_32(out, &mut block, after.len());
    });
}

/// DELTA_BINARY_PACKED, of a column of 64 bits.
pub fn deltas_64(out: &mut Vec<u8>, values: &[i64]) {
    header(out, values.len(), values.first().copied().unwrap_or(0));
    let mut block = [0i64; BLOCK];
    let mut narrow = [0i32; BLOCK];
    blocks(values, |before, after| {
        for ((delta, &after), &before) in block.iter_mut().zip(after).zip(before) {
            *delta = after.wrapping_sub(before);
        }
        // Nearly all deltas have 32 bits, with which processors without any
        // extension do four at a time.
        let mut above = 0;
        for (narrow, &delta) in narrow.iter_mut().zip(&block) {
            *narrow = delta as i32;
            above |= (delta.wrapping_add(1 << 31) as u64) >> 32;
        }
        if above == 0 {
            block_32(out, &mut narrow, after.len());
        } else {
            block_64(out, &block[..after.len()]);
        }
    });
}

fn header(out: &mut Vec<u8>, len: usize, first: i64) {
    varint(out, BLOCK as u64);
    varint(out, (BLOCK / MINIBLOCK) as u64);
    varint(out, len as u64);
    varint(out, zigzag(first));
}

/// Each block of deltas: what to subtract, and from what.
fn blocks<T>(values: &[T], mut each: impl FnMut(&[T], &[T])) {
    let Some((_, after)) = values.split_first() else {
        return;
    };
    for (before, after) in values.chunks(BLOCK).zip(after.chunks(BLOCK)) {
        each(before, after);
    }
}

/// A block of which the first `len` deltas count.
fn block_32(out: &mut Vec<u8>, block: &mut [i32; BLOCK], len: usize) {
    // What stands behind them is written too, as far as the miniblock goes.
    let last = block[len - 1];
    block[len..].fill(last);
    let least = block.iter().copied().fold(last, i32::min);
    varint(out, zigzag(least.into()));
    let widths_at = out.len();
    out.extend_from_slice(&[0; BLOCK / MINIBLOCK]);
    let (miniblocks, _) = block.as_chunks::<MINIBLOCK>();
    for (index, deltas) in miniblocks.iter().take(len.div_ceil(MINIBLOCK)).enumerate() {
        let above = deltas.map(|delta| delta.wrapping_sub(least).cast_unsigned());
        let bits = u32::BITS
            - above
                .iter()
                .fold(0, |all, above| all | above)
                .leading_zeros();
        out[widths_at + index] = bits as u8;
        PACKERS_32[bits as usize](out, &above);
    }
}

fn block_64(out: &mut Vec<u8>, block: &[i64]) {
    let least = block.iter().copied().min().unwrap_or(0);
    varint(out, zigzag(least));
    let widths_at = out.len();
    out.extend_from_slice(&[0; BLOCK / MINIBLOCK]);
    for (index, deltas) in block.chunks(MINIBLOCK).enumerate() {
        let mut above = [0u64; MINIBLOCK];
        for (above, &delta) in above.iter_mut().zip(deltas) {
            *above = delta.wrapping_sub(least) as u64;
        }
        let bits = u64::BITS
            - above
                .iter()
                .fold(0, |all, above| all | above)
                .leading_zeros();
        out[widths_at + index] = bits as u8;
        PACKERS_64[bits as usize](out, &above);
    }
}

/// RLE/bit-packed hybrid: `len` times the one value `code`.
fn repeated(out: &mut Vec<u8>, code: u8, len: usize) {
    varint(out, (len as u64) << 1);
    out.push(code);
}

/// Dictionary codes: the bits that the page's highest needs, then the hybrid.
pub fn codes(out: &mut Vec<u8>, codes: &[u8]) {
    let highest = codes.iter().fold(1, |highest, &code| code.max(highest));
    let width = u8::BITS - highest.leading_zeros();
    out.push(width as u8);
    let Some(&first) = codes.first() else { return };
    if codes.iter().all(|&code| code == first) {
        return repeated(out, first, codes.len());
    }
    varint(out, ((codes.len().div_ceil(8) as u64) << 1) | 1);
    let mut group = [0u32; MINIBLOCK];
    for chunk in codes.chunks(MINIBLOCK) {
        group[chunk.len()..].fill(0);
        for (slot, &code) in group.iter_mut().zip(chunk) {
            *slot = u32::from(code);
        }
        let at = out.len();
        PACKERS_32[width as usize](out, &group);
        out.truncate(at + chunk.len().div_ceil(8) * width as usize);
    }
}

/// Definition levels of a flat nullable column of `len` rows, length first.
pub fn levels(out: &mut Vec<u8>, valid: Option<&NullBuffer>, len: usize) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    match valid {
        None => repeated(out, 1, len),
        Some(valid) if valid.null_count() == len => repeated(out, 0, len),
        Some(valid) => {
            varint(out, ((len.div_ceil(8) as u64) << 1) | 1);
            bits(out, valid.inner());
        }
    }
    let size = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&size.to_le_bytes());
}

/// A bitmap as packed bits, the last byte filled up with zeros.
fn bits(out: &mut Vec<u8>, bits: &BooleanBuffer) {
    let whole = bits.sliced();
    let bytes = bits.len().div_ceil(8);
    out.extend_from_slice(&whole.as_slice()[..bytes]);
    if !bits.len().is_multiple_of(8)
        && let Some(last) = out.last_mut()
    {
        *last &= (1 << (bits.len() % 8)) - 1;
    }
}

/// PLAIN booleans: one bit a value, those of null rows left out.
pub fn booleans(out: &mut Vec<u8>, values: &BooleanBuffer, valid: Option<&NullBuffer>) {
    match valid {
        None => bits(out, values),
        Some(valid) => {
            let kept: BooleanBuffer = valid.valid_indices().map(|row| values.value(row)).collect();
            bits(out, &kept);
        }
    }
}

/// PLAIN texts: each with its length before it.
pub fn texts<'a>(out: &mut Vec<u8>, values: impl Iterator<Item = &'a str>) {
    for text in values {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_values_lie_lowest_bits_first() {
        let mut out = Vec::new();
        // The example of the format's own page: 0..8 in three bits.
        codes(&mut out, &[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(out, [3, 0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
    }

    #[test]
    fn every_width_packs_as_one_bit_after_another_would() {
        for width in 0..=64u32 {
            let mask = if width == 0 {
                0
            } else {
                u64::MAX >> (64 - width)
            };
            let values: [u64; MINIBLOCK] =
                std::array::from_fn(|i| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask);
            let mut expected = vec![0u8; MINIBLOCK / 8 * width as usize];
            for bit in 0..MINIBLOCK * width as usize {
                let (value, of) = (values[bit / width as usize], bit % width as usize);
                expected[bit / 8] |= ((value >> of & 1) as u8) << (bit % 8);
            }
            let mut out = Vec::new();
            PACKERS_64[width as usize](&mut out, &values);
            assert_eq!(out, expected, "{width}");
            if width <= 32 {
                out.clear();
                PACKERS_32[width as usize](&mut out, &values.map(|value| value as u32));
                assert_eq!(out, expected, "{width}");
            }
        }
    }

    #[test]
    fn a_constant_column_costs_a_few_bytes() {
        let mut out = Vec::new();
        deltas_32(&mut out, &[7; 129]);
        // Header, first value, one block of zero-width miniblocks.
        let expected = [0x80, 1, 4, 0x81, 1, 14, 0, 0, 0, 0, 0];
        assert_eq!(out, expected);
        out.clear();
        deltas_64(&mut out, &[7; 129]);
        assert_eq!(out, expected);
    }

    /// Reads DELTA_BINARY_PACKED bit by bit, as the format's page describes it.
    fn read_deltas(bytes: &[u8]) -> Vec<i64> {
        let mut at = 0;
        let varint = |at: &mut usize| {
            let mut value = 0u64;
            for shift in (0..).step_by(7) {
                let byte = bytes[*at];
                *at += 1;
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    return value;
                }
            }
            unreachable!()
        };
        let zigzag = |value: u64| (value >> 1) as i64 ^ -((value & 1) as i64);
        let (block, miniblocks) = (varint(&mut at) as usize, varint(&mut at) as usize);
        let len = varint(&mut at) as usize;
        let mut values = vec![zigzag(varint(&mut at))];
        while values.len() < len {
            let least = zigzag(varint(&mut at));
            let widths = at..at + miniblocks;
            at = widths.end;
            for &width in &bytes[widths] {
                if values.len() == len {
                    break;
                }
                let width = usize::from(width);
                for index in 0..block / miniblocks {
                    let bits = index * width..(index + 1) * width;
                    let bit = |bit: usize| u64::from(bytes[at + bit / 8] >> (bit % 8) & 1);
                    let above = bits.rev().fold(0, |above, at| above << 1 | bit(at));
                    let last = values[values.len() - 1];
                    values.push(last.wrapping_add(least).wrapping_add(above as i64));
                    if values.len() == len {
                        break;
                    }
                }
                at += block / miniblocks * width / 8;
            }
        }
        assert_eq!(at, bytes.len());
        values
    }

    #[test]
    fn deltas_of_any_size_and_number_come_back() {
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
            state
        };
        for len in [1, 2, 31, 32, 33, 128, 129, 130, 161, 257, 1000] {
            for bits in [0, 1, 7, 31, 32, 33, 63, 64] {
                // Now and then a value of any size: blocks of 32 bits beside wide ones.
                let mut value = || {
                    let wide = random() >> 57 == 0;
                    random()
                        .checked_shr(if wide { 0 } else { 64 - bits })
                        .unwrap_or(0) as i64
                };
                let values: Vec<i64> = (0..len).map(|_| value()).collect();
                let mut out = Vec::new();
                deltas_64(&mut out, &values);
                assert_eq!(read_deltas(&out), values, "{len} of {bits} bits");
                let narrow: Vec<i32> = values.iter().map(|&value| value as i32).collect();
                out.clear();
                deltas_32(&mut out, &narrow);
                let read: Vec<i32> = read_deltas(&out)
                    .iter()
                    .map(|&value| value as i32)
                    .collect();
                assert_eq!(read, narrow, "{len} of {bits} bits");
            }
        }
    }
}
