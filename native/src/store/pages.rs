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

fn width(value: u64) -> u32 {
    64 - value.leading_zeros()
}

/// Appends 32 values, each `width` bits wide, lowest bits first.
#[inline]
fn pack(out: &mut Vec<u8>, values: &[u64; MINIBLOCK], width: u32) {
    PACKERS[width as usize](out, values);
}

/// One function a width: every shift in it is a constant.
fn packed<const WIDTH: usize>(out: &mut Vec<u8>, values: &[u64; MINIBLOCK]) {
    // 32 values of so many bits are as many words of 32 bits.
    let mut words = [0u32; WIDTH];
    macro_rules! place {
        ($($index:literal)+) => {$(
            let (word, bit) = ($index * WIDTH / 32, $index * WIDTH % 32);
            let value = values[$index];
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

type Packer = fn(&mut Vec<u8>, &[u64; MINIBLOCK]);

macro_rules! packers {
    ($($width:literal)+) => { [$(packed::<$width>),+] };
}

const PACKERS: [Packer; 65] = packers!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
);

/// DELTA_BINARY_PACKED.
pub fn deltas(out: &mut Vec<u8>, values: &[i64]) {
    varint(out, BLOCK as u64);
    varint(out, (BLOCK / MINIBLOCK) as u64);
    varint(out, values.len() as u64);
    varint(out, zigzag(values.first().copied().unwrap_or(0)));
    let mut block = [0i64; BLOCK];
    let mut at = 0;
    while at + 1 < values.len() {
        let len = BLOCK.min(values.len() - 1 - at);
        let (before, after) = (&values[at..at + len], &values[at + 1..at + 1 + len]);
        for ((delta, &after), &before) in block.iter_mut().zip(after).zip(before) {
            *delta = after.wrapping_sub(before);
        }
        flush_block(out, &block[..len]);
        at += len;
    }
}

fn flush_block(out: &mut Vec<u8>, block: &[i64]) {
    let least = block.iter().copied().min().unwrap_or(0);
    varint(out, zigzag(least));
    let widths_at = out.len();
    out.extend_from_slice(&[0; BLOCK / MINIBLOCK]);
    for (index, deltas) in block.chunks(MINIBLOCK).enumerate() {
        let mut above = [0u64; MINIBLOCK];
        let mut all = 0;
        for (slot, &delta) in above.iter_mut().zip(deltas) {
            *slot = delta.wrapping_sub(least) as u64;
            all |= *slot;
        }
        let bits = width(all);
        out[widths_at + index] = bits as u8;
        pack(out, &above, bits);
    }
}

/// RLE/bit-packed hybrid: `len` times the one value `code`.
fn repeated(out: &mut Vec<u8>, code: u8, len: usize) {
    varint(out, (len as u64) << 1);
    out.push(code);
}

/// Dictionary codes: the bit width, then the hybrid.
pub fn codes(out: &mut Vec<u8>, codes: &[u8], width: u32) {
    out.push(width as u8);
    let Some(&first) = codes.first() else { return };
    if codes.iter().all(|&code| code == first) {
        return repeated(out, first, codes.len());
    }
    varint(out, ((codes.len().div_ceil(8) as u64) << 1) | 1);
    let mut group = [0u64; MINIBLOCK];
    for chunk in codes.chunks(MINIBLOCK) {
        group[chunk.len()..].fill(0);
        for (slot, &code) in group.iter_mut().zip(chunk) {
            *slot = u64::from(code);
        }
        let at = out.len();
        pack(out, &group, width);
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
        codes(&mut out, &[0, 1, 2, 3, 4, 5, 6, 7], 3);
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
            pack(&mut out, &values, width);
            assert_eq!(out, expected, "{width}");
        }
    }

    #[test]
    fn a_constant_column_costs_a_few_bytes() {
        let mut out = Vec::new();
        deltas(&mut out, &[7; 129]);
        // Header, first value, one block of zero-width miniblocks.
        assert_eq!(out, [0x80, 1, 4, 0x81, 1, 14, 0, 0, 0, 0, 0]);
    }
}
