//! What `prev_state` of sched_switch means: the bits differ by kernel release,
//! so they are read from the event's own print format, letter by letter.
//!
//! Linux 4.14 logs the *number* of a letter in place of its bit (`fls` of the state), under a print
//! format that takes it for bits: its D|T is a Z, its t an I. Such a format is recognised by its
//! `+`, which is not the bit above the letters.

use crate::model::event::State;

/// Bits of `prev_state` to states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateTable {
    /// Bit value to letter, lowest bit first.
    flags: Vec<(u64, u8)>,
    /// The bits that the letters cover.
    mask: u64,
    /// The bits printed as `+`: preempted inside the kernel.
    plus: u64,
    /// Values below 9 are numbers of letters (Linux 4.14), not bits.
    numbered: bool,
    /// Values have one bit or none: Linux 4.15 and later report a single state.
    single: bool,
    /// Decoded values of the low bits: every value a real kernel writes.
    cache: Vec<(State, bool)>,
}

const CACHED: u64 = 0x1000;

impl StateTable {
    /// From sched_switch's `print fmt`; None where it has no table of letters.
    pub fn from_print_fmt(text: &str) -> Option<Self> {
        let mut flags = Vec::new();
        // Each entry is `{ value, "letter" }`; values are constant expressions.
        for entry in text.split('{').skip(1) {
            let Some((entry, _)) = entry.split_once('}') else {
                continue;
            };
            let Some((value, letter)) = entry.rsplit_once(',') else {
                continue;
            };
            let letter = letter.trim().trim_matches('"');
            if let (Some(value @ 1..), &[letter]) = (constant(value), letter.as_bytes()) {
                flags.push((value, letter));
            }
        }
        if flags.is_empty() {
            return None;
        }
        // `REC->prev_state & EXPRESSION ? "+" : ""`
        let plus = text
            .find("? \"+\"")
            .and_then(|end| {
                let head = &text[..end];
                let start = head.rfind("prev_state &")? + "prev_state &".len();
                constant(&head[start..])
            })
            .unwrap_or(0);
        // The letters of the report end with I (0x80); where bits were logged,
        // the bit above them is the `+`.
        let report = flags.contains(&(0x80, b'I'));
        let numbered = report && !matches!(plus, 0 | 0x100);
        let mut table = Self::new(flags, plus);
        table.single = report && plus == 0x100;
        if numbered {
            table = table.numbered();
        }
        Some(table)
    }

    /// For sources that give only the kernel release ("6.18.0-arch1"). Bits: include/linux/sched.h
    /// and trace/events/sched.h of these releases.
    pub fn for_release(release: &str) -> Self {
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map(|n| n.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let letters = |text: &str| {
            text.bytes()
                .enumerate()
                .map(|(bit, letter)| (1 << bit, letter))
                .collect()
        };
        match version {
            // Unknown: the layout in use since 2017.
            (0, _) => Self::new(letters("SDTtXZPI"), 0x100),
            v if v >= (4, 15) => Self {
                single: true,
                ..Self::new(letters("SDTtXZPI"), 0x100)
            },
            // Whether a release of 4.14 logs numbers or bits, each value shows, except 8: t is
            // rare, I is what every idle kernel worker leaves in.
            (4, 14) => Self::new(letters("SDTtXZPI"), 0x1100).numbered(),
            v if v >= (4, 8) => Self::new(letters("SDTtXZxKWPNn"), 0x1000),
            v if v >= (4, 2) => Self::new(letters("SDTtXZxKWPN"), 0x800),
            v if v >= (3, 14) => Self::new(letters("SDTtXZxKWP"), 0x400),
            // EXIT_ZOMBIE and EXIT_DEAD stood the other way round; both are dead.
            v if v >= (3, 9) => Self::new(letters("SDTtZXxKWP"), 0x400),
            _ => Self::new(letters("SDTtZXxKW"), 0x200),
        }
    }

    fn new(flags: Vec<(u64, u8)>, plus: u64) -> Self {
        let mask = flags.iter().fold(0, |mask, &(value, _)| mask | value) & !plus;
        let mut table = Self {
            flags,
            mask,
            plus,
            numbered: false,
            single: false,
            cache: Vec::new(),
        };
        table.fill();
        table
    }

    fn fill(&mut self) {
        self.cache = (0..CACHED).map(|value| self.compute(value)).collect();
    }

    fn numbered(mut self) -> Self {
        self.numbered = true;
        self.fill();
        self
    }

    /// For text without a kernel release: by the states that stand in it.
    pub fn for_text(release: &str, seen: &SeenStates) -> Self {
        if !release.is_empty() {
            return Self::for_release(release);
        }
        Self::for_release(seen.release())
    }

    /// The value that letters stand for, where the kernel logged numbers and the
    /// printer took them for bits: `S|T` is 5, which is X.
    pub fn of_letters(&self, text: &[u8]) -> Option<State> {
        if !self.numbered {
            return None;
        }
        let value = low_bits(text)?;
        Some(self.decode(value).0)
    }

    /// Can a kernel have written this? In schedscope's own `trace.dat` one bit above its `+` means
    /// "unknown".
    #[inline]
    pub fn can_be(&self, value: u64) -> bool {
        !self.single || (value & value.wrapping_sub(1) == 0 && value <= self.plus << 1)
    }

    /// The state, and whether `+` was set.
    #[inline]
    pub fn decode(&self, value: u64) -> (State, bool) {
        match self.cache.get(value as usize) {
            Some(&known) if value < CACHED => known,
            _ => self.compute(value),
        }
    }

    fn compute(&self, value: u64) -> (State, bool) {
        let preempted = value & self.plus != 0;
        if value & self.mask == 0 {
            return (State::Runnable, preempted);
        }
        let value = match value & self.mask {
            number @ 1..=8 if self.numbered => 1 << (number - 1),
            _ => value,
        };
        let has = |letters: &[u8]| {
            self.flags
                .iter()
                .any(|&(bit, letter)| value & bit & self.mask != 0 && letters.contains(&letter))
        };
        (state_of_letters(has), preempted)
    }
}

/// The states of a text that does not name its kernel: which of them occur
/// betrays the layout.
#[derive(Debug, Default)]
pub struct SeenStates {
    /// All values together, and those of one bit.
    all: u64,
    alone: u64,
    /// A letter with a number of more than one bit (3, 5, 6, 7): as bits they
    /// would be states that no kernel knows.
    numbers: bool,
    /// A killable sleep or stop, with the K (128) of kernels before 4.14.
    killable: bool,
}

impl SeenStates {
    /// What stands behind `prev_state=`.
    pub fn note(&mut self, text: &[u8]) {
        let text = text.strip_suffix(b"+").unwrap_or(text);
        let number = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
        let Some(value) = number.or_else(|| low_bits(text)) else {
            return;
        };
        self.numbers |= matches!(value, 3 | 5 | 6 | 7);
        if number.is_some() {
            self.all |= value;
            self.killable |= matches!(value, 130 | 132 | 136);
            if value.is_power_of_two() {
                self.alone |= value;
            }
        }
    }

    /// A release of the layout; empty for the one in use since 2017.
    fn release(&self) -> &'static str {
        let (alone, all) = (|bit| self.alone & bit != 0, |bit| self.all & bit != 0);
        // From the highest `+` down.
        if self.numbers {
            "4.14"
        } else if alone(0x1000) {
            "4.8"
        } else if alone(0x800) {
            "4.2"
        } else if alone(0x400) {
            "3.14"
        } else if alone(0x100) {
            ""
        } else if all(0x400) {
            "4.8"
        } else if alone(0x200) {
            "3.8"
        } else if self.killable || alone(0x40) && !all(0x30) {
            // Threads that end leave in x (64); X and Z came later.
            "4.8"
        } else {
            ""
        }
    }
}

/// The value of `S|D|T|t`; None where there is any other letter.
fn low_bits(text: &[u8]) -> Option<u64> {
    text.split(|&byte| byte == b'|')
        .try_fold(0, |sum, letter| match letter {
            b"S" => Some(sum | 1),
            b"D" => Some(sum | 2),
            b"T" => Some(sum | 4),
            b"t" => Some(sum | 8),
            _ => None,
        })
}

/// The state that letters name, `has` telling whether any of some is there. A
/// state may carry several: D|K is killable (blocked), D|N is the idle of
/// kernels before 4.14 (parked).
pub fn state_of_letters(has: impl Fn(&[u8]) -> bool) -> State {
    if has(b"XZx") {
        State::Dead
    } else if has(b"Tt") {
        State::Stopped
    } else if has(b"PIN") {
        State::Parked
    } else if has(b"D") {
        State::Blocked
    } else if has(b"S") {
        State::Sleeping
    } else if has(b"R") {
        State::Runnable
    } else {
        State::Unknown
    }
}

/// The value of a C constant expression of numbers, `|`, `+`, `-`, `<<`, `( )`.
fn constant(text: &str) -> Option<u64> {
    let mut parser = Constant {
        rest: text.as_bytes(),
        depth: 0,
    };
    let value = parser.or()?;
    parser.space();
    parser.rest.is_empty().then_some(value)
}

struct Constant<'a> {
    rest: &'a [u8],
    depth: u32,
}

impl Constant<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn eat(&mut self, token: &[u8]) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn or(&mut self) -> Option<u64> {
        let mut value = self.shift()?;
        while self.eat(b"|") {
            value |= self.shift()?;
        }
        Some(value)
    }

    fn shift(&mut self) -> Option<u64> {
        let mut value = self.sum()?;
        while self.eat(b"<<") {
            value = value.checked_shl(u32::try_from(self.sum()?).ok()?)?;
        }
        Some(value)
    }

    fn sum(&mut self) -> Option<u64> {
        let mut value = self.atom()?;
        loop {
            if self.eat(b"+") {
                value = value.checked_add(self.atom()?)?;
            } else if self.eat(b"-") {
                value = value.checked_sub(self.atom()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn atom(&mut self) -> Option<u64> {
        if self.eat(b"(") {
            // The text comes from a file: its nesting must not exhaust our stack.
            self.depth += 1;
            if self.depth > 64 {
                return None;
            }
            let value = self.or()?;
            self.depth -= 1;
            return self.eat(b")").then_some(value);
        }
        self.space();
        let end = self
            .rest
            .iter()
            .position(|c| !c.is_ascii_alphanumeric())
            .unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        let number = std::str::from_utf8(number)
            .ok()?
            .trim_end_matches(['u', 'U', 'l', 'L']);
        match number
            .strip_prefix("0x")
            .or_else(|| number.strip_prefix("0X"))
        {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => number.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODERN: &str = r#""prev_comm=%s prev_state=%s%s ==> next_comm=%s", REC->prev_comm, (REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1), "|", { 0x00000001, "S" }, { 0x00000002, "D" }, { 0x00000004, "T" }, { 0x00000008, "t" }, { 0x00000010, "X" }, { 0x00000020, "Z" }, { 0x00000040, "P" }, { 0x00000080, "I" }) : "R", REC->prev_state & (((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) ? "+" : "", REC->next_comm"#;
    const OLD: &str = r#""prev_state=%s%s", REC->prev_state & (2048-1) ? __print_flags(REC->prev_state & (2048-1), "|", { 1, "S"} , { 2, "D" }, { 4, "T" }, { 8, "t" }, { 16, "Z" }, { 32, "X" }, { 64, "x" }, { 128, "K" }, { 256, "W" }, { 512, "P" }, { 1024, "N" }) : "R", REC->prev_state & 2048 ? "+" : """#;

    #[test]
    fn a_modern_print_format_decodes_as_its_release_does() {
        let table = StateTable::from_print_fmt(MODERN).unwrap();
        assert_eq!(table, StateTable::for_release("6.18.44"));
        let expected = [
            (0, State::Runnable, false),
            (0x100, State::Runnable, true),
            (1, State::Sleeping, false),
            (2, State::Blocked, false),
            (4, State::Stopped, false),
            (8, State::Stopped, false),
            (0x10, State::Dead, false),
            (0x20, State::Dead, false),
            (0x40, State::Parked, false),
            (0x80, State::Parked, false),
            (0x102, State::Blocked, true),
            (1 << 40, State::Runnable, false),
        ];
        for (value, state, preempted) in expected {
            assert_eq!(table.decode(value), (state, preempted), "{value:#x}");
        }
    }

    #[test]
    fn the_same_bit_means_another_thing_in_an_old_kernel() {
        let table = StateTable::from_print_fmt(OLD).unwrap();
        assert_eq!(table.decode(0x82), (State::Blocked, false)); // D|K
        assert_eq!(table.decode(0x402), (State::Parked, false)); // D|N
        assert_eq!(table.decode(0x40), (State::Dead, false)); // x, not P
        assert_eq!(table.decode(0x800), (State::Runnable, true));
        assert_eq!(table.decode(0x100), (State::Unknown, false)); // W: on its way
    }

    /// Linux 4.14's: the bits of the report, and a `+` far above them.
    const NUMBERS: &str = r#""prev_state=%s%s", (REC->prev_state & (((0x0001 | 0x0002 | 0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x0040)+1) << 1)-1) ? __print_flags(REC->prev_state, "|", { 0x01, "S" }, { 0x02, "D" }, { 0x04, "T" }, { 0x08, "t" }, { 0x10, "X" }, { 0x20, "Z" }, { 0x40, "P" }, { 0x80, "I" }) : "R", REC->prev_state & 4096 ? "+" : """#;

    #[test]
    fn linux_4_14_logs_numbers_of_letters() {
        let from_format = StateTable::from_print_fmt(NUMBERS).unwrap();
        let expected = [
            (0, State::Runnable, false),
            (0x1000, State::Runnable, true),
            (1, State::Sleeping, false),
            (2, State::Blocked, false),
            (3, State::Stopped, false),
            (4, State::Stopped, false),
            (5, State::Dead, false),
            (6, State::Dead, false),
            (7, State::Parked, false),
            (8, State::Parked, false),
        ];
        for (value, state, preempted) in expected {
            for table in [&from_format, &StateTable::for_release("4.14.98")] {
                assert_eq!(table.decode(value), (state, preempted), "{value:#x}");
            }
        }
        // A release of 4.14 that logs bits.
        let bits = [
            (0x10, State::Dead),
            (0x40, State::Parked),
            (0x80, State::Parked),
        ];
        for (value, state) in bits {
            assert_eq!(StateTable::for_release("4.14.98").decode(value).0, state);
        }
        assert_eq!(
            StateTable::for_release("4.14.98").decode(0x100),
            (State::Runnable, true)
        );
        assert_eq!(from_format.of_letters(b"S|T"), Some(State::Dead));
        assert_eq!(from_format.of_letters(b"t"), Some(State::Parked));
        assert_eq!(from_format.of_letters(b"D|K"), None);
    }

    #[test]
    fn a_text_without_a_release_betrays_its_layout() {
        let of = |texts: &[&str]| {
            let mut seen = SeenStates::default();
            for text in texts {
                seen.note(text.as_bytes());
            }
            seen.release()
        };
        assert_eq!(of(&["0", "1", "2", "64", "130", "4096"]), "4.8");
        assert_eq!(of(&["1", "2", "64"]), "4.8");
        assert_eq!(of(&["1", "2048", "1026"]), "4.2");
        assert_eq!(of(&["1", "64", "1024"]), "3.14");
        assert_eq!(of(&["1", "64", "512"]), "3.8");
        assert_eq!(of(&["1", "1026"]), "4.8");
        assert_eq!(of(&["1", "2", "16", "64", "128", "256"]), "");
        assert_eq!(of(&["1", "2", "5", "8", "4096"]), "4.14");
        assert_eq!(of(&["S", "R+", "D|T", "t"]), "4.14");
        assert_eq!(of(&["S", "D", "R+", "t", "X"]), "");
    }

    #[test]
    fn hostile_print_formats_end_in_none_not_in_a_stack_overflow() {
        assert_eq!(StateTable::from_print_fmt(""), None);
        assert_eq!(StateTable::from_print_fmt("{ (((, \"S\" }"), None);
        assert_eq!(constant(&"(".repeat(1 << 20)), None);
        assert_eq!(constant("1 << 64"), None);
        assert_eq!(constant("0 - 1"), None);
    }
}
