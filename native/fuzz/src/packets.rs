//! Injuries of protobuf (Perfetto): a message is taken apart, one of its fields
//! changed, and put together with lengths that are right again.

use crate::chance::{Chance, NAMES};

enum Value {
    Number(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

struct Field {
    number: u64,
    value: Value,
}

/// Deeper messages are bytes.
const DEEPEST: usize = 8;
/// Fields of a packet.
const EVENTS: u64 = 1;
const COMPRESSED: u64 = 50;
const ZSTD_COMPRESSED: u64 = 133;
/// Packets without events that a small input does without.
const LONG: usize = 2000;

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in 0..10 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(7 * shift)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn parse(bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let tag = varint(bytes, &mut at)?;
        let mut take = |length: usize| {
            let taken = bytes.get(at..at.checked_add(length)?)?.to_vec();
            at += length;
            Some(taken)
        };
        let value = match tag & 7 {
            0 => Value::Number(varint(bytes, &mut at)?),
            1 => Value::Fixed(take(8)?),
            5 => Value::Fixed(take(4)?),
            2 => {
                let length = usize::try_from(varint(bytes, &mut at)?).ok()?;
                let inner = bytes.get(at..at.checked_add(length)?)?;
                at += length;
                let message = (depth < DEEPEST && length > 1)
                    .then(|| parse(inner, depth + 1))
                    .flatten();
                message.map_or_else(|| Value::Bytes(inner.to_vec()), Value::Message)
            }
            _ => return None,
        };
        if tag >> 3 == 0 {
            return None;
        }
        fields.push(Field {
            number: tag >> 3,
            value,
        });
    }
    Some(fields)
}

fn put(fields: &[Field], out: &mut Vec<u8>) {
    for field in fields {
        let tag = field.number << 3;
        let bytes = match &field.value {
            Value::Number(number) => {
                put_varint(out, tag);
                put_varint(out, *number);
                continue;
            }
            Value::Fixed(bytes) => {
                put_varint(out, tag | if bytes.len() == 8 { 1 } else { 5 });
                out.extend_from_slice(bytes);
                continue;
            }
            Value::Bytes(bytes) => bytes.clone(),
            Value::Message(fields) => {
                let mut inner = Vec::new();
                put(fields, &mut inner);
                inner
            }
        };
        put_varint(out, tag | 2);
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }
}

/// Every packet of the file, those expanded that are compressed with zlib.
fn packets(data: &[u8]) -> Option<Vec<Field>> {
    let mut all = Vec::new();
    for field in parse(data, 0)? {
        let Value::Message(fields) = &field.value else {
            all.push(field);
            continue;
        };
        match fields.as_slice() {
            [
                Field {
                    number: COMPRESSED,
                    value: Value::Bytes(bytes),
                },
            ] => {
                use std::io::Read;
                let mut expanded = Vec::new();
                flate2::read::ZlibDecoder::new(bytes.as_slice())
                    .take(1 << 20)
                    .read_to_end(&mut expanded)
                    .ok()?;
                all.extend(parse(&expanded, 0)?);
            }
            _ => all.push(field),
        }
    }
    Some(all)
}

/// Keeps the first `most` packets with events, and the small ones of other kinds: a
/// smaller file that is whole.
pub fn thin_out(data: &mut Vec<u8>, most: usize) {
    let Some(mut all) = packets(data) else { return };
    let mut bundles = 0;
    all.retain(|packet| {
        let Value::Message(fields) = &packet.value else {
            return true;
        };
        if fields.iter().any(|field| field.number == EVENTS) {
            bundles += 1;
            return bundles <= most;
        }
        let mut bytes = Vec::new();
        put(fields, &mut bytes);
        bytes.len() < LONG || fields.iter().any(|field| field.number == ZSTD_COMPRESSED)
    });
    data.clear();
    put(&all, data);
}

pub fn injure(data: &mut Vec<u8>, chance: &mut Chance) {
    let Some(mut all) = packets(data) else {
        return crate::bytes::injure(data, chance);
    };
    for _ in 0..1 + chance.below(3) {
        field(&mut all, chance, 0);
    }
    let mut out = Vec::new();
    put(&all, &mut out);
    if chance.once_in(4) {
        out = compressed(&out).unwrap_or(out);
    }
    *data = out;
}

/// The whole in one compressed packet.
fn compressed(bytes: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).ok()?;
    let inner = Field {
        number: COMPRESSED,
        value: Value::Bytes(encoder.finish().ok()?),
    };
    let packet = Field {
        number: 1,
        value: Value::Message(vec![inner]),
    };
    let mut out = Vec::new();
    put(&[packet], &mut out);
    Some(out)
}

fn field(fields: &mut Vec<Field>, chance: &mut Chance, depth: usize) {
    if fields.is_empty() {
        return;
    }
    let at = chance.below(fields.len());
    let stay = chance.once_in(6);
    match &mut fields[at].value {
        Value::Message(inner) if !stay && !inner.is_empty() => {
            return field(inner, chance, depth + 1);
        }
        Value::Number(number) if !stay => {
            *number = chance.number(number.cast_signed()).cast_unsigned();
            return;
        }
        Value::Fixed(bytes) if !stay => {
            let new = chance.number(0).to_le_bytes();
            let length = bytes.len();
            bytes.copy_from_slice(&new[..length]);
            return;
        }
        Value::Bytes(bytes) if !stay => {
            if chance.once_in(2) {
                *bytes = chance.of(&NAMES).as_bytes().to_vec();
            } else {
                packed(bytes, chance);
            }
            return;
        }
        _ => {}
    }
    match chance.below(4) {
        0 => {
            fields.remove(at);
        }
        1 => fields[at].number = 1 + chance.below(140) as u64,
        2 => {
            let other = chance.below(fields.len());
            fields.swap(at, other);
        }
        _ => {
            // The field many times over.
            let mut one = Vec::new();
            put(std::slice::from_ref(&fields[at]), &mut one);
            let most = (60_000 / one.len().max(1)).min(2000);
            for _ in 0..chance.below(most + 1) {
                if let Some(copy) = parse(&one, depth) {
                    fields.extend(copy);
                }
            }
        }
    }
}

/// Bytes that may be packed numbers: one of them becomes another.
fn packed(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let mut starts = vec![0];
    starts.extend((1..bytes.len()).filter(|&at| bytes[at - 1] < 0x80));
    let start = *chance.of(&starts);
    let end = (start..bytes.len())
        .find(|&at| bytes[at] < 0x80)
        .map_or(bytes.len(), |at| at + 1);
    let mut new = Vec::new();
    put_varint(&mut new, chance.number(0).cast_unsigned());
    bytes.splice(start..end, new);
}
