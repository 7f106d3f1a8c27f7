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
const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

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

/// Appends `values`, each `width` bits wide, lowest bits first. The number of
/// values is a multiple of 8, so that whole bytes come out.
fn pack(out: &mut Vec<u8>, values: &[u64], width: u32) {
    if width == 0 {
        return;
    }
    let mut held: u128 = 0;
    let mut bits = 0;
    for &value in values {
        held |= u128::from(value) << bits;
        bits += width;
        if bits >= 64 {
            out.extend_from_slice(&(held as u64).to_le_bytes());
            held >>= 64;
            bits -= 64;
        }
    }
    let rest = (bits as usize).div_ceil(8);
    out.extend_from_slice(&(held as u64).to_le_bytes()[..rest]);
}

/// DELTA_BINARY_PACKED. `narrow` columns (Parquet INT32) hold values that fit
/// 32 bits, so that their differences need no wrapping.
pub fn deltas(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = i64>) {
    varint(out, BLOCK as u64);
    varint(out, (BLOCK / MINIBLOCK) as u64);
    varint(out, values.len() as u64);
    let mut values = values;
    let mut last = values.next().unwrap_or(0);
    varint(out, zigzag(last));
    let mut block = [0i64; BLOCK];
    loop {
        let mut filled = 0;
        for value in values.by_ref().take(BLOCK) {
            block[filled] = value.wrapping_sub(last);
            last = value;
            filled += 1;
        }
        if filled == 0 {
            return;
        }
        flush_block(out, &block[..filled]);
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
    let mut group = [0u64; 64];
    for chunk in codes.chunks(64) {
        let whole = chunk.len().next_multiple_of(8);
        group[chunk.len()..whole].fill(0);
        for (slot, &code) in group.iter_mut().zip(chunk) {
            *slot = u64::from(code);
        }
        pack(out, &group[..whole], width);
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
        pack(&mut out, &[0, 1, 2, 3, 4, 5, 6, 7], 3);
        assert_eq!(out, [0b1000_1000, 0b1100_0110, 0b1111_1010]);
    }

    #[test]
    fn a_constant_column_costs_a_few_bytes() {
        let mut out = Vec::new();
        deltas(&mut out, [7i64; 129].into_iter());
        // Header, first value, one block of zero-width miniblocks.
        assert_eq!(out, [0x80, 1, 4, 0x81, 1, 14, 0, 0, 0, 0, 0]);
    }
}
