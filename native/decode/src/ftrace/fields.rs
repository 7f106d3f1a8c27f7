//! Fields of a record, found once in the format text and then read by offset.

use crate::error::{Error, Result};
use crate::ftrace::format::{EventFormat, Field, Shape};
use crate::model::event::Comm;

/// `N` bytes at `at`, or None where the data ends first.
#[inline(always)]
fn bytes<const N: usize>(data: &[u8], at: usize) -> Option<&[u8; N]> {
    data.get(at..)?.first_chunk::<N>()
}

// Numbers that the data is too short for read as zero. Callers check a record's
// length once against [`Layout::min_len`], so such zeros never surface.
macro_rules! unsigned {
    ($name:ident, $type:ty) => {
        #[inline(always)]
        pub fn $name<const BIG: bool>(data: &[u8], at: usize) -> $type {
            match bytes(data, at) {
                Some(raw) if BIG => <$type>::from_be_bytes(*raw),
                Some(raw) => <$type>::from_le_bytes(*raw),
                None => 0,
            }
        }
    };
}
unsigned!(u8_at, u8);
unsigned!(u16_at, u16);
unsigned!(u32_at, u32);
unsigned!(u64_at, u64);

/// An integer field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Int {
    offset: u32,
    size: u8,
    signed: bool,
}

impl Int {
    #[inline(always)]
    pub fn read<const BIG: bool>(self, data: &[u8]) -> i64 {
        let at = self.offset as usize;
        match (self.size, self.signed) {
            (4, true) => i64::from(u32_at::<BIG>(data, at) as i32),
            (4, false) => i64::from(u32_at::<BIG>(data, at)),
            (8, _) => u64_at::<BIG>(data, at) as i64,
            (2, true) => i64::from(u16_at::<BIG>(data, at) as i16),
            (2, false) => i64::from(u16_at::<BIG>(data, at)),
            (_, true) => i64::from(u8_at::<BIG>(data, at) as i8),
            (_, false) => i64::from(u8_at::<BIG>(data, at)),
        }
    }

    /// Is it a signed number of four bytes? Most fields of the frequent events
    /// are, on every kernel: [`Int::read_as`] then need not look.
    pub fn is_i32(self) -> bool {
        (self.size, self.signed) == (4, true)
    }

    /// The number; `I32` promises [`Int::is_i32`].
    #[inline(always)]
    pub fn read_as<const BIG: bool, const I32: bool>(self, data: &[u8]) -> i64 {
        if I32 {
            i64::from(u32_at::<BIG>(data, self.offset as usize) as i32)
        } else {
            self.read::<BIG>(data)
        }
    }

    /// A thread id: pid_t is signed, tids are not negative.
    #[inline(always)]
    pub fn tid<const BIG: bool, const I32: bool>(self, data: &[u8]) -> u32 {
        self.read_as::<BIG, I32>(data) as u32
    }

    #[inline(always)]
    pub fn prio<const BIG: bool, const I32: bool>(self, data: &[u8]) -> Option<i16> {
        i16::try_from(self.read_as::<BIG, I32>(data)).ok()
    }

    /// A CPU number; negative ones mean "none" (orig_cpu of a new thread).
    #[inline(always)]
    pub fn cpu<const BIG: bool, const I32: bool>(self, data: &[u8]) -> Option<u16> {
        u16::try_from(self.read_as::<BIG, I32>(data)).ok()
    }
}

/// Addresses that fill a record to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    offset: u32,
    size: u8,
}

impl Addresses {
    pub fn read<const BIG: bool>(self, data: &[u8]) -> impl Iterator<Item = u64> {
        let there = data.get(self.offset as usize..).unwrap_or_default();
        there
            .chunks_exact(usize::from(self.size))
            .map(move |one| match self.size {
                4 => u64::from(u32_at::<BIG>(one, 0)),
                _ => u64_at::<BIG>(one, 0),
            })
    }
}

/// A thread's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// 16 bytes in place, as every kernel has them.
    Fixed16 {
        offset: u32,
    },
    Fixed {
        offset: u32,
        size: u32,
    },
    /// Somewhere in the record; `base` is added to the stored offset.
    Dynamic {
        offset: u32,
        base: u32,
    },
}

impl Name {
    /// Does the name stand inside the record? One in place always does.
    #[inline(always)]
    pub fn fits<const BIG: bool>(self, data: &[u8]) -> bool {
        match self {
            Self::Fixed16 { .. } | Self::Fixed { .. } => true,
            Self::Dynamic { offset, base } => {
                let (start, len) = location::<BIG>(data, offset, base);
                start + len <= data.len()
            }
        }
    }

    /// Does it stand in place, in as many bytes as on every kernel so far?
    pub fn is_16(self) -> bool {
        matches!(self, Self::Fixed16 { .. })
    }

    /// The name; `IN_PLACE` promises [`Name::is_16`].
    #[inline(always)]
    pub fn read_as<const BIG: bool, const IN_PLACE: bool>(self, data: &[u8]) -> Comm {
        match self {
            Self::Fixed16 { offset } => match bytes(data, offset as usize) {
                Some(raw) => Comm::from_16(raw),
                None => Comm::default(),
            },
            _ if IN_PLACE => Comm::default(),
            _ => self.read::<BIG>(data),
        }
    }

    /// All of a text, however long; empty if the field points outside the record.
    pub fn text<const BIG: bool>(self, data: &[u8]) -> String {
        let (start, len) = match self {
            Self::Fixed16 { offset } => (offset as usize, 16),
            Self::Fixed { offset, size } => (offset as usize, size as usize),
            Self::Dynamic { offset, base } => location::<BIG>(data, offset, base),
        };
        let bytes = data.get(start..start + len).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0);
        String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
    }

    /// Empty if the field points outside the record.
    #[inline(always)]
    pub fn read<const BIG: bool>(self, data: &[u8]) -> Comm {
        match self {
            Self::Fixed16 { offset } => match bytes(data, offset as usize) {
                Some(raw) => Comm::from_16(raw),
                None => Comm::default(),
            },
            Self::Fixed { offset, size } => named(data, offset as usize, size as usize),
            Self::Dynamic { offset, base } => {
                let (start, len) = location::<BIG>(data, offset, base);
                named(data, start, len)
            }
        }
    }
}

/// Start and length that a dynamic field tells.
fn location<const BIG: bool>(data: &[u8], offset: u32, base: u32) -> (usize, usize) {
    let told = u32_at::<BIG>(data, offset as usize);
    ((base + (told & 0xffff)) as usize, (told >> 16) as usize)
}

fn named(data: &[u8], start: usize, len: usize) -> Comm {
    data.get(start..start + len)
        .map(Comm::new)
        .unwrap_or_default()
}

/// So many addresses has the format of a stack (FTRACE_STACK_ENTRIES).
const STACK_ROOM: usize = 8;

/// Looks fields of one event up and keeps how long a record must be.
pub struct Layout<'a> {
    format: &'a EventFormat,
    min_len: usize,
}

impl<'a> Layout<'a> {
    pub fn new(format: &'a EventFormat) -> Self {
        Self { format, min_len: 0 }
    }

    /// The least number of bytes that hold every field looked up so far.
    pub fn min_len(&self) -> usize {
        self.min_len
    }

    fn find(&mut self, name: &str) -> Option<&'a Field> {
        let field = self.format.field(name)?;
        self.min_len = self.min_len.max(field.offset + field.size);
        Some(field)
    }

    pub fn int_if_present(&mut self, name: &str) -> Option<Int> {
        let field = self.find(name)?;
        let whole = field.shape == Shape::Plain && matches!(field.size, 1 | 2 | 4 | 8);
        whole.then_some(Int {
            offset: field.offset as u32,
            size: field.size as u8,
            signed: field.signed,
        })
    }

    pub fn int(&mut self, name: &str) -> Result<Int> {
        self.int_if_present(name)
            .ok_or_else(|| self.missing(name, "a number"))
    }

    /// The first three numbers of an array of six longs.
    pub fn three_of_six(&mut self, name: &str) -> Option<[Int; 3]> {
        let field = self.find(name)?;
        let size = match (field.shape, field.size) {
            (Shape::Array, 48) => 8,
            (Shape::Array, 24) => 4,
            _ => return None,
        };
        Some([0, 1, 2].map(|nth| Int {
            offset: field.offset as u32 + nth * size,
            size: size as u8,
            signed: false,
        }))
    }

    /// An array of addresses, of which the format gives the number that it has room for at least:
    /// a record may have fewer, or more.
    pub fn addresses(&mut self, name: &str) -> Result<Addresses> {
        let field = self.format.field(name);
        let found = field.filter(|field| field.shape == Shape::Array);
        let found = found.and_then(|field| {
            self.min_len = self.min_len.max(field.offset);
            Some(Addresses {
                offset: field.offset as u32,
                size: u8::try_from(field.size / STACK_ROOM).ok()?,
            })
        });
        found
            .filter(|found| matches!(found.size, 4 | 8))
            .ok_or_else(|| self.missing(name, "eight addresses"))
    }

    pub fn name(&mut self, name: &str) -> Result<Name> {
        let field = self
            .find(name)
            .ok_or_else(|| self.missing(name, "a name"))?;
        let offset = field.offset as u32;
        match field.shape {
            Shape::Array if field.size == 16 => Ok(Name::Fixed16 { offset }),
            Shape::Array => Ok(Name::Fixed {
                offset,
                size: field.size as u32,
            }),
            Shape::DataLoc if field.size == 4 => Ok(Name::Dynamic { offset, base: 0 }),
            Shape::RelLoc if field.size == 4 => Ok(Name::Dynamic {
                offset,
                base: offset + 4,
            }),
            _ => Err(self.missing(name, "a name")),
        }
    }

    fn missing(&self, name: &str, kind: &str) -> Error {
        Error::format(
            format!(
                "the format of {} has no field `{name}` that is {kind}",
                self.format.name
            ),
            "the event as Linux describes it in events/*/format",
            "the trace is damaged, or of a kernel this version does not know: please report it",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(fields: &str) -> EventFormat {
        EventFormat::parse(&format!("name: x\nID: 1\nformat:\n{fields}"), "test").unwrap()
    }

    #[test]
    fn numbers_are_read_in_either_byte_order_with_their_sign() {
        let format = format(
            "\tfield:int a;\toffset:0;\tsize:4;\tsigned:1;\n\
             \tfield:short b;\toffset:4;\tsize:2;\tsigned:1;\n\
             \tfield:unsigned char c;\toffset:6;\tsize:1;\tsigned:0;\n",
        );
        let mut layout = Layout::new(&format);
        let (a, b, c) = (
            layout.int("a").unwrap(),
            layout.int("b").unwrap(),
            layout.int("c").unwrap(),
        );
        assert_eq!(layout.min_len(), 7);
        let little = [0xfe, 0xff, 0xff, 0xff, 0x01, 0x80, 0xff];
        assert_eq!(a.read::<false>(&little), -2);
        assert_eq!(b.read::<false>(&little), -32767);
        assert_eq!(c.read::<false>(&little), 255);
        let big = [0xff, 0xff, 0xff, 0xfe, 0x80, 0x01, 0xff];
        assert_eq!(a.read::<true>(&big), -2);
        assert_eq!(b.read::<true>(&big), -32767);
        assert!(layout.int("d").is_err());
    }

    #[test]
    fn names_are_read_in_place_by_data_loc_and_by_rel_loc() {
        let format = format(
            "\tfield:__data_loc char[] abs;\toffset:0;\tsize:4;\tsigned:0;\n\
             \tfield:__rel_loc char[] rel;\toffset:4;\tsize:4;\tsigned:0;\n",
        );
        let mut layout = Layout::new(&format);
        let (abs, rel) = (layout.name("abs").unwrap(), layout.name("rel").unwrap());
        let mut data = vec![8, 0, 3, 0, 3, 0, 3, 0];
        data.extend(b"ab\0cd\0");
        assert_eq!(abs.read::<false>(&data).to_text(), "ab");
        assert_eq!(rel.read::<false>(&data).to_text(), "cd");
        assert_eq!(
            (abs.text::<false>(&data), rel.text::<false>(&data)),
            ("ab".into(), "cd".into())
        );
        assert!(rel.fits::<false>(&data));
        data.truncate(13);
        assert!(abs.fits::<false>(&data) && !rel.fits::<false>(&data));
        assert!(rel.read::<false>(&data).is_empty() && rel.text::<false>(&data).is_empty());
    }
}
