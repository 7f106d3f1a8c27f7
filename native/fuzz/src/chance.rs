//! Random choices that a seed repeats, and the numbers that decoders trip over.

/// splitmix64.
pub struct Chance(u64);

/// Lengths, counts, stamps, CPUs and thread ids at the edges of their types and of
/// the limits that decoders set.
pub const EDGES: [i64; 42] = [
    0,
    1,
    -1,
    2,
    3,
    4,
    7,
    8,
    16,
    28,
    29,
    30,
    31,
    63,
    64,
    127,
    128,
    255,
    256,
    1023,
    1024,
    4095,
    4096,
    16383,
    16384,
    32767,
    32768,
    65534,
    65535,
    65536,
    (1 << 22) - 1,
    1 << 22,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    (1 << 32) - 1,
    1 << 32,
    (1 << 59) + 5,
    1 << 62,
    i64::MAX - 1,
    i64::MAX,
    i64::MIN,
];

/// Names that thread names, host facts and files may hold.
pub const NAMES: [&str; 14] = [
    "",
    " ",
    "-",
    "<unknown>",
    "a b c",
    "x=1 y=2",
    "==> next_comm=z",
    "\"q\"",
    "\u{1b}[31mred",
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "\u{202e}gpj.exe",
    "swapper/65535",
    "a-very-long-name-that-no-kernel-would-ever-keep-in-sixteen-bytes",
];

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Below `n`; 0 if there is nothing below it.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            return 0;
        }
        (self.next() % n as u64) as usize
    }

    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// An edge, or a neighbour of `old`, or anything.
    pub fn number(&mut self, old: i64) -> i64 {
        match self.below(8) {
            0..=4 => *self.of(&EDGES),
            5 => old.wrapping_add(*self.of(&[1, -1, 2, -2, 1000, -1000, 1_000_000, -1_000_000])),
            6 => old.wrapping_neg(),
            _ => self.next().cast_signed(),
        }
    }
}
