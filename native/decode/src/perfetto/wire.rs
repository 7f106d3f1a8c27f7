//! Protobuf's wire format, checked: damage is `None` or `Field::Bad`, never a panic.

/// A field's value as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Also 32- and 64-bit fixed numbers.
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    #[inline]
    pub fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => 0,
        }
    }

    /// An int32 or int64: negative numbers are ten bytes long on the wire.
    #[inline]
    pub fn signed(self) -> i64 {
        self.number().cast_signed()
    }

    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Number(_) => &[],
            Self::Bytes(bytes) => bytes,
        }
    }

    pub fn text(self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

/// A varint at the beginning of `bytes`; steps over it.
#[inline(always)]
pub fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    longer(bytes)
}

fn longer(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if let Some((&head, _)) = bytes.split_first_chunk::<8>() {
        // All at once: the first byte without its top bit ends the number.
        let word = u64::from_le_bytes(head);
        let stops = !word & 0x8080_8080_8080_8080;
        if stops != 0 {
            *bytes = &bytes[stops.trailing_zeros() as usize / 8 + 1..];
            return Some(squeezed(word & (stops ^ (stops - 1))));
        }
    }
    let mut value = u64::from(first & 0x7f);
    for (index, &byte) in rest.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * (index + 1) as u32).min(63);
        if byte < 0x80 {
            *bytes = &rest[index + 1..];
            return Some(value);
        }
    }
    None
}

/// The lower seven bits of each byte, side by side.
#[inline]
fn squeezed(word: u64) -> u64 {
    let pairs = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    (fours & 0x0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4
}

/// The fields of one message.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    rest: &'a [u8],
    bad: bool,
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            bad: false,
        }
    }

    /// The message ended inside a field.
    pub fn damaged(&self) -> bool {
        self.bad
    }

    #[inline]
    fn field(&mut self) -> Option<(u32, Value<'a>)> {
        let tag = varint(&mut self.rest)?;
        let number = u32::try_from(tag >> 3).ok().filter(|&number| number > 0)?;
        let fixed = |rest: &mut &'a [u8], len: usize| {
            let (head, tail) = rest.split_at_checked(len)?;
            *rest = tail;
            Some(
                head.iter()
                    .rev()
                    .fold(0, |value, &byte| value << 8 | u64::from(byte)),
            )
        };
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut self.rest)?),
            1 => Value::Number(fixed(&mut self.rest, 8)?),
            2 => {
                let len = usize::try_from(varint(&mut self.rest)?).ok()?;
                let (head, tail) = self.rest.split_at_checked(len)?;
                self.rest = tail;
                Value::Bytes(head)
            }
            5 => Value::Number(fixed(&mut self.rest, 4)?),
            _ => return None,
        };
        Some((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.bad {
            return None;
        }
        let field = self.field();
        self.bad = field.is_none();
        field
    }
}

/// The numbers of a packed field, one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Packed<'a>(pub &'a [u8]);

impl Iterator for Packed<'_> {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        varint(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_of_any_length_reads_the_same_with_and_without_bytes_behind_it() {
        for bits in 0..=64u32 {
            let value = if bits == 0 {
                0
            } else {
                u64::MAX >> (64 - bits) ^ 0b101 << (bits / 2)
            };
            let (mut bytes, mut rest) = (Vec::new(), value);
            while rest >= 0x80 {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
            for behind in [0, 1, 7, 12] {
                let whole = [bytes.as_slice(), &vec![0xff; behind]].concat();
                let mut left = whole.as_slice();
                assert_eq!(
                    varint(&mut left),
                    Some(value),
                    "{bits} bits, {behind} behind"
                );
                assert_eq!(left.len(), behind);
            }
            for len in 0..bytes.len() {
                assert_eq!(varint(&mut &bytes[..len]), None);
            }
        }
        assert_eq!(varint(&mut [0xff; 16].as_slice()), None);
    }
}
