//! One line of the grammar: letters, tab-separated integers, names last.
//!
//! collectors/lines.md lists the columns. Fields are read in place; a name is preceded by its
//! length, so tabs and newlines in it do no harm.

use crate::model::event::Comm;

/// The longest line the scripts can print is below 400 bytes; what is longer
/// is not theirs.
pub const LONGEST: usize = 1024;

/// As many digits as the wall clock has fit an u64.
const MOST_DIGITS: usize = 19;

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = LOW << 7;

const ZEROS: u64 = LOW * b'0' as u64;

const POWERS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Bytes that must follow so that the ends in the next 64 can be looked up and a
/// number that starts at any of these be read.
const AHEAD: usize = 72;

/// The number that the digits make; None if there are none, or others.
#[cold]
#[inline(never)]
fn number(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > MOST_DIGITS {
        return None;
    }
    let value = text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| value.wrapping_mul(10).wrapping_add(u64::from(digit)))
    })?;
    i64::try_from(value).ok()
}

/// A bit for each byte below 0x20.
#[inline(always)]
fn controls(bytes: &[u8; 64]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let mut found = 0;
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The high bit of each byte says: 0x20 or more, or above 0x7f.
        let printable = (word & !HIGH).wrapping_add(LOW * 0x60) | word;
        let here = !printable & HIGH;
        // The eight high bits come together in the highest byte.
        let bits = (here >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        found |= bits << (8 * index);
    }
    found
}

/// How many of the bytes, from the lowest, are 0 to 9.
#[inline(always)]
fn digits(bytes: u64) -> usize {
    let others = ((bytes & !HIGH).wrapping_add(LOW * 0x76) | bytes) & HIGH;
    (others.trailing_zeros() / 8) as usize
}

/// The number that eight digits make, one a byte (0 to 9), the first one lowest.
#[inline(always)]
fn eight_digits(digits: u64) -> u64 {
    // Neighbours become pairs, pairs fours, fours the whole: each multiplication
    // adds ten (a hundred, ten thousand) times the left one to the right one.
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000 << 32 | 1) >> 32
}

/// Reads fields from left to right; a copy is a place to come back to. `None`
/// means: not a line of the grammar.
///
/// How long a number is cannot be foreseen, and a wrong guess costs as much as
/// reading a few of them. So the ends of the fields in the next 64 bytes are
/// looked up all at once, and each number is read in one piece.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Control characters (ends of fields) still ahead, a bit for each byte from
    /// `base` on; 0 where not looked up.
    ends: u64,
    base: usize,
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self {
            bytes,
            at,
            ends: 0,
            base: 0,
        }
    }

    /// Where the next field starts; after the last one, where the next line does.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Goes to `at`, which is not the end of a number.
    #[inline(always)]
    fn jump(&mut self, at: usize) {
        self.at = at;
        self.ends = 0;
    }

    /// Passes a field and what ends it; answers where the field ends.
    #[inline(always)]
    fn pass(&mut self) -> Option<usize> {
        if self.ends == 0 {
            let Some(ahead) = self.bytes.get(self.at..self.at + AHEAD) else {
                return self.crawl();
            };
            self.base = self.at;
            self.ends = controls(ahead.first_chunk()?);
            if self.ends == 0 {
                return None;
            }
        }
        let end = self.base + self.ends.trailing_zeros() as usize;
        self.ends &= self.ends - 1;
        self.at = end + 1;
        matches!(self.bytes[end], b'\t' | b'\n').then_some(end)
    }

    /// `pass` near the end of the bytes.
    #[cold]
    fn crawl(&mut self) -> Option<usize> {
        let rest = self.bytes.get(self.at..)?;
        let end = self.at + rest.iter().position(|&byte| byte < b' ')?;
        self.jump(end + 1);
        matches!(self.bytes[end], b'\t' | b'\n').then_some(end)
    }

    /// A decimal integer and the tab or newline behind it.
    #[inline(always)]
    pub fn int(&mut self) -> Option<i64> {
        let start = self.at;
        let end = self.pass()?;
        let negative = self.bytes[start] == b'-';
        let first = start + usize::from(negative);
        let length = end.wrapping_sub(first);
        let value = match self.bytes.get(first..first + 8) {
            Some(eight) if (1..=8).contains(&length) => {
                let word = u64::from_le_bytes(eight.try_into().ok()?) ^ ZEROS;
                let word = word << (64 - 8 * length);
                if digits(word) < 8 {
                    return None;
                }
                eight_digits(word) as i64
            }
            _ => number(&self.bytes[first..end])?,
        };
        Some(if negative { -value } else { value })
    }

    /// The same where one or two digits are likely, and not worth looking ahead.
    #[inline(always)]
    pub fn few_digits(&mut self) -> Option<i64> {
        let negative = *self.bytes.get(self.at)? == b'-';
        let first = self.at + usize::from(negative);
        let mut at = first;
        let mut value = 0u64;
        loop {
            let byte = *self.bytes.get(at)?;
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                self.jump(at + 1);
                let right =
                    (1..=MOST_DIGITS).contains(&(at - first)) && matches!(byte, b'\t' | b'\n');
                let value = i64::try_from(value).ok().filter(|_| right)?;
                return Some(if negative { -value } else { value });
            }
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            at += 1;
        }
    }

    /// The same for a time, which is long: eight digits at once where they are.
    #[inline(always)]
    pub fn time(&mut self) -> Option<i64> {
        if let Some(sixteen) = self.bytes.get(self.at..self.at + 16) {
            let (words, _) = sixteen.as_chunks::<8>();
            let high = u64::from_le_bytes(words[0]) ^ ZEROS;
            let low = u64::from_le_bytes(words[1]) ^ ZEROS;
            let more = digits(low);
            if digits(high) == 8 && (1..8).contains(&more) && words[1][more] == b'\t' {
                self.jump(self.at + 8 + more + 1);
                let low = eight_digits(low << (64 - 8 * more));
                return Some((eight_digits(high) * POWERS[more] + low) as i64);
            }
        }
        self.int()
    }

    #[inline(always)]
    pub fn small<T: TryFrom<i64>>(&mut self) -> Option<T> {
        T::try_from(self.int()?).ok()
    }

    /// An integer where -1 or below means "unknown".
    #[inline(always)]
    pub fn maybe<T: TryFrom<i64>>(&mut self) -> Option<Option<T>> {
        let value = self.int()?;
        if value < 0 {
            Some(None)
        } else {
            T::try_from(value).ok().map(Some)
        }
    }

    /// A hexadecimal integer without 0x.
    #[inline(always)]
    pub fn hex(&mut self) -> Option<u32> {
        let start = self.at;
        let end = self.pass()?;
        let text = self
            .bytes
            .get(start..end)
            .filter(|text| (1..=8).contains(&text.len()))?;
        text.iter().try_fold(0, |value, byte| {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ => return None,
            };
            Some(value << 4 | u32::from(digit))
        })
    }

    /// Text without tabs, up to the next tab or newline.
    pub fn word(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest
            .iter()
            .take(LONGEST)
            .position(|&b| b == b'\t' || b == b'\n')?;
        self.jump(self.at + length + 1);
        Some(&rest[..length])
    }

    /// A name of so many bytes. Where its end is not there (renamed between the
    /// reading of length and text), the name ends at the next tab or newline.
    #[inline(always)]
    pub fn name(&mut self, length: usize) -> Option<Comm> {
        let end = self.at + length;
        match self.bytes.get(end) {
            Some(b'\t' | b'\n') if length <= LONGEST => {
                let name = match self.bytes[self.at..].first_chunk() {
                    Some(padded) => Comm::from_padded(padded, length),
                    None => Comm::new(&self.bytes[self.at..end]),
                };
                self.jump(end + 1);
                Some(name)
            }
            _ => self.word().map(Comm::new),
        }
    }

    /// True at the end of a line: the last field was followed by a newline.
    pub fn ended(&self) -> bool {
        self.at > 0 && self.bytes[self.at - 1] == b'\n'
    }
}

/// Offset of the first newline at or after `from`.
#[inline]
pub fn newline(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let mut chunks = rest.chunks_exact(8);
    let mut at = from;
    for chunk in &mut chunks {
        // A byte of `word` is zero where the text has a newline; the lowest
        // such byte is found exactly, those above it may be false.
        let word = u64::from_le_bytes(chunk.try_into().ok()?) ^ (LOW * b'\n' as u64);
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros != 0 {
            return Some(at + (zeros.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    chunks
        .remainder()
        .iter()
        .position(|&b| b == b'\n')
        .map(|offset| at + offset)
}

/// Is this the letter of an event line?
#[inline]
pub fn is_letter(byte: u8) -> bool {
    matches!(
        byte,
        b'C' | b'D'
            | b'E'
            | b'I'
            | b'L'
            | b'M'
            | b'N'
            | b'P'
            | b'R'
            | b'S'
            | b'V'
            | b'W'
            | b'X'
            | b'Y'
    )
}

/// The two threads of a switch, as in the S line.
pub struct SwitchLine<'a> {
    /// 1 preempted inside the kernel, 0 not, -1 the system does not say here.
    pub how: i64,
    pub prev: Thread,
    pub state: u32,
    pub inhibitors: u32,
    pub nvcsw: i64,
    pub nivcsw: i64,
    pub next: Thread,
    /// Wait message or lock name; "-" for none.
    pub why: &'a [u8],
}

/// A thread as a line names it.
#[derive(Clone, Copy)]
pub struct Thread {
    pub tid: u32,
    /// None: neither it nor the class and the name are known.
    pub pid: Option<u32>,
    pub prio: i16,
    /// td_pri_class or the policy; -1 where the line has neither.
    pub class: i64,
    pub kind: u32,
    /// CPU it left last; -1 never ran, -2 unknown.
    pub last_cpu: i64,
    pub comm: Comm,
}

/// Bits of `kind`.
pub const KIND_IDLE: u32 = 1;
pub const KIND_KERNEL: u32 = 2;
pub const KIND_INTERRUPTIBLE: u32 = 4;

impl<'a> SwitchLine<'a> {
    // Inlined: what it returns is large, and is taken apart at once.
    #[inline(always)]
    pub fn read(all: &mut Fields<'a>) -> Option<Self> {
        // A place of its own stays in a register.
        let mut fields = *all;
        let how = fields.int()?;
        let mut prev = Thread {
            tid: fields.small()?,
            pid: Some(fields.small()?),
            prio: fields.small()?,
            class: -1,
            kind: 0,
            last_cpu: -2,
            comm: Comm::default(),
        };
        let state = fields.hex()?;
        let inhibitors = fields.hex()?;
        prev.kind = fields.small()?;
        let nvcsw = fields.int()?;
        let nivcsw = fields.int()?;
        let mut next = Thread {
            tid: fields.small()?,
            pid: Some(fields.small()?),
            prio: fields.small()?,
            class: fields.int()?,
            kind: fields.small()?,
            last_cpu: fields.int()?,
            comm: Comm::default(),
        };
        let lengths: (usize, usize, usize) = (fields.small()?, fields.small()?, fields.small()?);
        let why = fields.word()?;
        prev.comm = fields.name(lengths.0)?;
        let process = fields.name(lengths.1)?;
        next.comm = fields.name(lengths.2)?;
        if next.comm.is_empty() {
            next.comm = process;
        }
        *all = fields;
        fields.ended().then_some(Self {
            how,
            prev,
            state,
            inhibitors,
            nvcsw,
            nivcsw,
            next,
            why,
        })
    }
}

/// E: put on a run queue.
pub struct EnqueueLine {
    pub waker: u32,
    /// Interrupt nesting of the CPU it was raised on; -1 unknown.
    pub interrupts: i64,
    pub who: Thread,
    pub target_cpu: Option<u16>,
}

impl EnqueueLine {
    #[inline(always)]
    pub fn read(all: &mut Fields<'_>) -> Option<Self> {
        let mut fields = *all;
        let waker = fields.small()?;
        let interrupts = fields.int()?;
        let (tid, pid, prio) = (fields.small()?, Some(fields.small()?), fields.small()?);
        let _flags = fields.int()?;
        let last_cpu = fields.int()?;
        let target_cpu = fields.maybe()?;
        let (class, kind) = (fields.int()?, fields.small()?);
        let length = fields.small()?;
        let comm = fields.name(length)?;
        let who = Thread {
            tid,
            pid,
            prio,
            class,
            kind,
            last_cpu,
            comm,
        };
        *all = fields;
        fields.ended().then_some(Self {
            waker,
            interrupts,
            who,
            target_cpu,
        })
    }
}

/// W: a thread is to be woken.
pub struct WakingLine {
    pub waker: u32,
    pub interrupts: i64,
    pub tid: u32,
    pub prio: i16,
}

impl WakingLine {
    #[inline]
    pub fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let line = Self {
            waker: fields.small()?,
            interrupts: fields.int()?,
            tid: fields.small()?,
            prio: fields.small()?,
        };
        let _last_cpu = fields.int()?;
        fields.ended().then_some(line)
    }
}

/// R: the thread that runs after an exit.
pub fn read_successor(fields: &mut Fields<'_>) -> Option<Thread> {
    let (tid, pid, prio) = (fields.small()?, Some(fields.small()?), fields.small()?);
    let (class, kind, last_cpu) = (fields.int()?, fields.small()?, fields.int()?);
    let lengths: (usize, usize) = (fields.small()?, fields.small()?);
    let process = fields.name(lengths.0)?;
    let name = fields.name(lengths.1)?;
    let comm = if name.is_empty() { process } else { name };
    fields.ended().then_some(Thread {
        tid,
        pid,
        prio,
        class,
        kind,
        last_cpu,
        comm,
    })
}

/// X: a thread is on its way out: tid, pid, name.
pub fn read_exit(fields: &mut Fields<'_>) -> Option<(u32, u32, Comm)> {
    let (tid, pid) = (fields.small()?, fields.small()?);
    let length = fields.small()?;
    let comm = fields.name(length)?;
    fields.ended().then_some((tid, pid, comm))
}

/// `N` integers and the end of the line.
#[inline]
pub fn read_ints<const N: usize>(fields: &mut Fields<'_>) -> Option<[i64; N]> {
    let mut values = [0; N];
    for value in &mut values {
        *value = fields.few_digits()?;
    }
    fields.ended().then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_end_at_tab_or_newline_and_nowhere_else() {
        let mut fields = Fields::new(b"12\t-3\t9223372036854775807\n", 0);
        assert_eq!(fields.int(), Some(12));
        assert_eq!(fields.int(), Some(-3));
        assert_eq!(fields.int(), Some(i64::MAX));
        assert!(fields.ended());
        for wrong in [
            &b"12"[..],
            b"x\t",
            b"-\t",
            b"1x\t",
            b"\t",
            b"9223372036854775808\t",
            b"",
        ] {
            assert_eq!(Fields::new(wrong, 0).int(), None, "{wrong:?}");
        }
    }

    #[test]
    fn integers_and_times_agree_with_the_standard_library() {
        for digits in 1..=20 {
            for first in 1..=9u64 {
                let text: String = (0..digits)
                    .map(|n| char::from(b'0' + ((first + 7 * n) % 10) as u8))
                    .collect();
                for sign in ["", "-"] {
                    let long = "7".repeat(80);
                    for rest in ["", "5\t6", "abcdefghijklmnop", "\t\n0123456789", &long] {
                        let line = format!("{sign}{text}\t{rest}");
                        let expected = format!("{sign}{text}").parse::<i64>().ok();
                        for read in [Fields::int, Fields::time, Fields::few_digits] {
                            let mut fields = Fields::new(line.as_bytes(), 0);
                            assert_eq!(read(&mut fields), expected, "{line:?}");
                            if expected.is_some() {
                                assert_eq!(fields.position(), sign.len() + text.len() + 1);
                            }
                        }
                    }
                }
            }
        }
        for wrong in (0..=255u8).filter(|byte| !byte.is_ascii_digit()) {
            for at in 1..16 {
                let mut line = *b"0123456789012345678901234\t";
                line[at] = wrong;
                let expected = Fields::new(&line, 0).int();
                assert_eq!(Fields::new(&line, 0).time(), expected, "{wrong} at {at}");
                assert_eq!(expected.is_some(), wrong == b'\t' || wrong == b'\n');
            }
        }
    }

    #[test]
    fn names_with_and_without_room_behind_them_are_the_same() {
        let text = b"0123456789abcdef\0hijklmnop";
        for length in 0..=text.len() {
            let mut line = text[..length].to_vec();
            line.push(b'\n');
            let tight = Fields::new(&line, 0).name(length).unwrap();
            line.extend([b'z'; 40]);
            let roomy = Fields::new(&line, 0).name(length).unwrap();
            assert_eq!(tight, roomy);
            assert_eq!(tight.as_bytes(), &text[..length.min(16)]);
        }
    }

    #[test]
    fn a_name_may_hold_tabs_and_newlines() {
        let mut fields = Fields::new(b"a\tb\nc\tnext\n", 0);
        assert_eq!(fields.name(5).unwrap().as_bytes(), b"a\tb\nc");
        assert_eq!(fields.name(4).unwrap().as_bytes(), b"next");
        assert!(fields.ended());
    }

    #[test]
    fn a_wrong_length_falls_back_to_the_separator() {
        let mut fields = Fields::new(b"short\tnext\n", 0);
        assert_eq!(fields.name(3).unwrap().as_bytes(), b"short");
        assert_eq!(fields.name(400).unwrap().as_bytes(), b"next");
    }

    #[test]
    fn newline_agrees_with_the_plain_search() {
        let mut state = 1u64;
        for length in 0..64 {
            let mut bytes = vec![0u8; length];
            for byte in &mut bytes {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = [b'\n', 0x0b, 0x8a, b'a', 0x09][(state >> 40) as usize % 5];
            }
            for from in 0..=length {
                let plain = bytes[from..]
                    .iter()
                    .position(|&b| b == b'\n')
                    .map(|at| at + from);
                assert_eq!(newline(&bytes, from), plain, "{bytes:?} from {from}");
            }
        }
    }
}
