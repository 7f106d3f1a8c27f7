//! Runs BPF programs: the instruction set of Documentation/bpf/standardization, Linux 6.12, versions
//! 1 to 4. Every access of memory is checked, and every callback has a number of instructions.
use super::arena;
use super::fault::Fault;
use super::memory::{Access, CODE, Memory, address, split};

/// An instruction as it is run; of `lddw` the second half stays, unused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Insn {
    pub op: u8,
    pub dst: u8,
    pub src: u8,
    pub off: i16,
    pub imm: i64,
}

pub const CALL: u8 = 0x85;
pub const EXIT: u8 = 0x95;
pub const LDDW: u8 = 0x18;
/// From a register to another.
const MOVE: u8 = 0xbf;
/// Goes on where it says when it has been come to too often: here the budget ends loops.
const MAY_GOTO: u8 = 0xe5;
/// One that something the model lacks has become: `imm` is its number.
pub const POISON: u8 = 0xe0;

/// Atomic operations that only load or store.
const LOAD_ACQUIRE: i64 = 0x100;
const STORE_RELEASE: i64 = 0x110;

/// What `src` of a call says.
pub const HELPER: u8 = 0;
pub const LOCAL: u8 = 1;
pub const KFUNC: u8 = 2;

/// Instructions that one callback may take: as many as the kernel's verifier looks at
/// (BPF_COMPLEXITY_LIMIT_INSNS).
pub const BUDGET: u64 = 1_000_000;
/// Frames of 512 bytes (MAX_BPF_STACK, MAX_CALL_FRAMES of the kernel).
const FRAME: u32 = 512;
const FRAMES: u32 = 8;

/// What a helper or kfunc comes to.
pub enum Answer {
    Value(u64),
    /// A number, for the work of so many instructions.
    Work(u64, u64),
    /// Call the program at `code` `times` times with (i, context), until it answers another number
    /// than 0 (`bpf_loop`).
    Loop {
        code: u64,
        times: u64,
        context: u64,
    },
    /// Find the place of a node by calling the program with (node, other), until it is known which
    /// of the others comes after it (`bpf_rbtree_add_impl`).
    Sorted {
        code: u64,
        root: u64,
        node: u64,
        others: Vec<u64>,
    },
    /// Call it with (map, key, value, context) for each (`bpf_for_each_map_elem`).
    ForEach {
        code: u64,
        map: u64,
        elements: Vec<(u64, u64)>,
        context: u64,
    },
}

/// The kernel around a program.
pub trait Kernel {
    fn helper(&mut self, memory: &mut Memory, id: u32, args: [u64; 5]) -> Result<Answer, Fault>;
    fn kfunc(&mut self, memory: &mut Memory, number: u32, args: [u64; 5]) -> Result<Answer, Fault>;
    /// The place of a node is known.
    fn sorted(&mut self, root: u64, node: u64, at: usize);
}

pub struct Machine {
    pub code: Vec<Insn>,
    pub memory: Memory,
    pub missing: Vec<String>,
    stack: u32,
    context: u32,
    /// Since the machine was made.
    pub instructions: u64,
    pub callbacks: u64,
    left: u64,
}

struct Caller {
    back: usize,
    kept: [u64; 4],
}

impl Machine {
    pub fn new(code: Vec<Insn>, mut memory: Memory, missing: Vec<String>) -> Result<Self, Fault> {
        let size = (FRAME * FRAMES) as usize;
        let stack = memory.add("the stack", size, Access::Write)?;
        let context = memory.add("the context", 64, Access::ReadOnly)?;
        Ok(Self {
            code,
            memory,
            missing,
            stack,
            context,
            instructions: 0,
            callbacks: 0,
            left: 0,
        })
    }

    /// A callback of struct_ops: its arguments are words of a context.
    pub fn call(
        &mut self,
        kernel: &mut impl Kernel,
        entry: u32,
        args: &[u64],
    ) -> Result<u64, Fault> {
        for (at, word) in args.iter().enumerate() {
            self.memory.put64(self.context, 8 * at as u32, *word);
        }
        self.callbacks += 1;
        self.left = BUDGET;
        let context = address(self.context, 0);
        let answer = self.run(kernel, entry as usize, [context, 0, 0, 0, 0], 0);
        self.instructions += BUDGET - self.left;
        answer
    }

    /// A function that the kernel calls with arguments in registers.
    pub fn callback(
        &mut self,
        kernel: &mut impl Kernel,
        code: u64,
        args: [u64; 5],
    ) -> Result<u64, Fault> {
        self.callbacks += 1;
        self.left = BUDGET;
        let answer = self.run(kernel, entry_of(code)?, args, 0);
        self.instructions += BUDGET - self.left;
        answer
    }

    fn run(
        &mut self,
        kernel: &mut impl Kernel,
        entry: usize,
        args: [u64; 5],
        depth: u32,
    ) -> Result<u64, Fault> {
        let mut at = entry;
        let answer = self.steps(kernel, &mut at, args, depth);
        answer.map_err(|fault| Fault {
            at: fault.at.or(Some(at as u32)),
            ..fault
        })
    }

    fn steps(
        &mut self,
        kernel: &mut impl Kernel,
        pc: &mut usize,
        args: [u64; 5],
        depth: u32,
    ) -> Result<u64, Fault> {
        let mut r = [0u64; 16];
        r[1..6].copy_from_slice(&args);
        let mut depth = depth;
        if depth >= FRAMES {
            return Err(Fault::new("calls itself more than 8 deep"));
        }
        let stack = self.stack;
        r[10] = address(stack, FRAME * (depth + 1));
        let mut callers: Vec<Caller> = Vec::new();
        let mut next = *pc;
        loop {
            *pc = next;
            let Some(&Insn {
                op,
                dst,
                src,
                off,
                imm,
            }) = self.code.get(next)
            else {
                return Err(Fault::new("runs past its end"));
            };
            if self.left == 0 {
                return Err(Fault::new(format!("takes more than {BUDGET} instructions")));
            }
            self.left -= 1;
            next += 1;
            let insn = |op| Insn {
                op,
                dst,
                src,
                off,
                imm,
            };
            let called = src;
            let (dst, src) = (usize::from(dst & 15), usize::from(src & 15));
            let word = imm as u64;
            // Each opcode has an arm of its own, in which all that depends on it is constant.
            macro_rules! arithmetic {
                ($op:literal, $wide:expr) => {{
                    let insn = insn($op);
                    let by = if $op & 8 == 8 { r[src] } else { word };
                    let found = if $wide {
                        alu64(insn, r[dst], by)
                    } else {
                        alu32(insn, r[dst] as u32, by as u32).map(u64::from)
                    };
                    let Some(found) = found else {
                        return Err(unknown($op));
                    };
                    r[dst] = found;
                }};
            }
            macro_rules! branch {
                ($op:literal, $wide:expr) => {{
                    let by = if $op & 8 == 8 { r[src] } else { word };
                    let (a, b) = match ($wide, is_signed($op)) {
                        (true, _) => (r[dst], by),
                        (false, true) => {
                            (i64::from(r[dst] as i32) as u64, i64::from(by as i32) as u64)
                        }
                        (false, false) => (u64::from(r[dst] as u32), u64::from(by as u32)),
                    };
                    if compare($op, a, b) == Some(true) {
                        next = jump(next, off.into());
                    }
                }};
            }
            macro_rules! load {
                ($size:literal) => {
                    self.memory.load(r[src].wrapping_add(off as u64), $size)?
                };
            }
            macro_rules! store {
                ($size:literal, $value:expr) => {{
                    let at = r[dst].wrapping_add(off as u64);
                    self.memory.store(at, $size, $value)?;
                }};
            }
            macro_rules! arms {
                (
                    wide: $($wide:literal)*; narrow: $($narrow:literal)*;
                    jumps: $($jump:literal)*; jumps32: $($jump32:literal)*;
                    $($pattern:pat $(if $guard:expr)? => $arm:expr,)*
                ) => {
                    match op {
                        $($wide => arithmetic!($wide, true),)*
                        $($narrow => arithmetic!($narrow, false),)*
                        $($jump => branch!($jump, true),)*
                        $($jump32 => branch!($jump32, false),)*
                        $($pattern $(if $guard)? => $arm,)*
                    }
                };
            }
            arms! {
                wide: 0x07 0x0f 0x17 0x1f 0x27 0x2f 0x37 0x3f 0x47 0x4f 0x57 0x5f 0x67 0x6f 0x77
                    0x7f 0x87 0x8f 0x97 0x9f 0xa7 0xaf 0xb7 0xbf 0xc7 0xcf 0xd7 0xdf;
                narrow: 0x04 0x0c 0x14 0x1c 0x24 0x2c 0x34 0x3c 0x44 0x4c 0x54 0x5c 0x64 0x6c 0x74
                    0x7c 0x84 0x8c 0x94 0x9c 0xa4 0xac 0xb4 0xbc 0xc4 0xcc 0xd4 0xdc;
                jumps: 0x15 0x1d 0x25 0x2d 0x35 0x3d 0x45 0x4d 0x55 0x5d 0x65 0x6d 0x75 0x7d 0xa5
                    0xad 0xb5 0xbd 0xc5 0xcd 0xd5 0xdd;
                jumps32: 0x16 0x1e 0x26 0x2e 0x36 0x3e 0x46 0x4e 0x56 0x5e 0x66 0x6e 0x76 0x7e 0xa6
                    0xae 0xb6 0xbe 0xc6 0xce 0xd6 0xde;
                0x71 => r[dst] = load!(1),
                0x69 => r[dst] = load!(2),
                0x61 => r[dst] = load!(4),
                0x79 => r[dst] = load!(8),
                // Signed ones.
                0x91 => r[dst] = i64::from(load!(1) as i8) as u64,
                0x89 => r[dst] = i64::from(load!(2) as i16) as u64,
                0x81 => r[dst] = i64::from(load!(4) as i32) as u64,
                0x72 => store!(1, word),
                0x6a => store!(2, word),
                0x62 => store!(4, word),
                0x7a => store!(8, word),
                0x73 => store!(1, r[src]),
                0x6b => store!(2, r[src]),
                0x63 => store!(4, r[src]),
                0x7b => store!(8, r[src]),
                LDDW => {
                    r[dst] = word;
                    next += 1;
                },
                0x05 => next = jump(next, off.into()),
                0x06 => next = jump(next, imm),
                MAY_GOTO => {},
                EXIT => {
                    let Some(caller) = callers.pop() else {
                        return Ok(r[0]);
                    };
                    depth -= 1;
                    next = caller.back;
                    r[6..10].copy_from_slice(&caller.kept);
                    r[10] = address(stack, FRAME * (depth + 1));
                },
                CALL if called == LOCAL => {
                    depth += 1;
                    if depth >= FRAMES {
                        return Err(Fault::new("calls itself more than 8 deep"));
                    }
                    callers.push(Caller {
                        back: next,
                        kept: [r[6], r[7], r[8], r[9]],
                    });
                    next = imm as usize;
                    r[10] = address(stack, FRAME * (depth + 1));
                },
                CALL => {
                    let args = [r[1], r[2], r[3], r[4], r[5]];
                    let number = imm as u32;
                    let answer = if called == HELPER {
                        kernel.helper(&mut self.memory, number, args)?
                    } else {
                        kernel.kfunc(&mut self.memory, number, args)?
                    };
                    r[0] = match answer {
                        Answer::Value(value) => value,
                        other => self.value(kernel, other, depth)?,
                    };
                },
                op if op & 0xe7 == 0xc3 => self.atomic(insn(op), &mut r)?,
                POISON => {
                    let what = self.missing.get(imm as usize);
                    let what = what.map_or("something the model lacks", String::as_str);
                    return Err(Fault::new(format!("needs {what}")));
                },
                _ => return Err(unknown(op)),
            }
        }
    }

    fn atomic(&mut self, insn: Insn, r: &mut [u64; 16]) -> Result<(), Fault> {
        let (dst, src) = (usize::from(insn.dst & 15), usize::from(insn.src & 15));
        let size = size_of(insn.op);
        let at = r[dst].wrapping_add(insn.off as u64);
        match insn.imm {
            LOAD_ACQUIRE => {
                let at = r[src].wrapping_add(insn.off as u64);
                r[dst] = self.memory.load(at, size)?;
            }
            STORE_RELEASE => self.memory.store(at, size, r[src])?,
            _ if size < 4 => return Err(unknown(insn.op)),
            _ => {
                let old = self.memory.load(at, size)?;
                let new = changed(insn, size, old, r[src], r[0])?;
                self.memory.store(at, size, new)?;
                if insn.imm == 0xf1 {
                    r[0] = old;
                } else if insn.imm & 1 == 1 {
                    r[src] = old;
                }
            }
        }
        Ok(())
    }

    /// The number that a call comes to, once what it calls has run.
    fn value(
        &mut self,
        kernel: &mut impl Kernel,
        answer: Answer,
        depth: u32,
    ) -> Result<u64, Fault> {
        match answer {
            Answer::Value(value) => Ok(value),
            Answer::Work(value, instructions) => {
                self.left = self.left.saturating_sub(instructions);
                Ok(value)
            }
            Answer::Loop {
                code,
                times,
                context,
            } => {
                let entry = entry_of(code)?;
                for i in 0..times {
                    self.left = self.left.saturating_sub(1);
                    if self.run(kernel, entry, [i, context, 0, 0, 0], depth + 1)? != 0 {
                        return Ok(i + 1);
                    }
                }
                Ok(times)
            }
            Answer::Sorted {
                code,
                root,
                node,
                others,
            } => {
                let entry = entry_of(code)?;
                self.left = self.left.saturating_sub(others.len() as u64 / 16);
                let (mut from, mut to) = (0, others.len());
                while from < to {
                    let middle = usize::midpoint(from, to);
                    let args = [node, others[middle], 0, 0, 0];
                    if self.run(kernel, entry, args, depth + 1)? & 0xff != 0 {
                        to = middle;
                    } else {
                        from = middle + 1;
                    }
                }
                kernel.sorted(root, node, from);
                Ok(0)
            }
            Answer::ForEach {
                code,
                map,
                elements,
                context,
            } => {
                let entry = entry_of(code)?;
                let mut n = 0;
                for (key, value) in elements {
                    n += 1;
                    if self.run(kernel, entry, [map, key, value, context, 0], depth + 1)? != 0 {
                        break;
                    }
                }
                Ok(n)
            }
        }
    }
}

fn entry_of(code: u64) -> Result<usize, Fault> {
    match split(code) {
        (CODE, at) => Ok(at as usize),
        _ => Err(Fault::new(format!("gives {code:#x} as a function"))),
    }
}

#[cold]
fn unknown(op: u8) -> Fault {
    Fault::new(format!("has an unknown instruction {op:#04x}"))
}

/// Before the start there is as little as past the end.
fn jump(next: usize, by: i64) -> usize {
    next.wrapping_add_signed(by as isize)
}

pub fn size_of(op: u8) -> usize {
    match op & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

pub fn is_signed(op: u8) -> bool {
    matches!(op >> 4, 6 | 7 | 0xc | 0xd)
}

#[inline(always)]
pub fn compare(op: u8, a: u64, b: u64) -> Option<bool> {
    let (x, y) = (a as i64, b as i64);
    Some(match op >> 4 {
        1 => a == b,
        2 => a > b,
        3 => a >= b,
        4 => a & b != 0,
        5 => a != b,
        6 => x > y,
        7 => x >= y,
        0xa => a < b,
        0xb => a <= b,
        0xc => x < y,
        0xd => x <= y,
        _ => return None,
    })
}

/// Arithmetic of one width; shifts count modulo that, and division by zero gives 0 or the dividend.
macro_rules! alu {
    ($name:ident, $unsigned:ty, $signed:ty) => {
        #[inline(always)]
        pub fn $name(insn: Insn, a: $unsigned, b: $unsigned) -> Option<$unsigned> {
            let is_signed = insn.off != 0;
            let bits = b & (<$unsigned>::BITS - 1) as $unsigned;
            Some(match insn.op >> 4 {
                0 => a.wrapping_add(b),
                1 => a.wrapping_sub(b),
                2 => a.wrapping_mul(b),
                3 if b == 0 => 0,
                3 if is_signed => (a as $signed).wrapping_div(b as $signed) as $unsigned,
                3 => a / b,
                4 => a | b,
                5 => a & b,
                6 => a << bits,
                7 => a >> bits,
                8 => a.wrapping_neg(),
                9 if b == 0 => a,
                9 if is_signed => (a as $signed).wrapping_rem(b as $signed) as $unsigned,
                9 => a % b,
                0xa => a ^ b,
                0xb => match insn.off {
                    0 => b,
                    8 => <$signed>::from(b as i8) as $unsigned,
                    16 => <$signed>::from(b as i16) as $unsigned,
                    _ => return None,
                },
                0xc => (a as $signed >> bits) as $unsigned,
                _ => return None,
            })
        }
    };
}
alu!(alu32, u32, i32);
alu!(arithmetic64, u64, i64);

/// With what the wide class alone has: `movsx` of 32 bits, the unconditional `bswap`, and the casts
/// of pointers between user space, `(1 << 16)`, and the kernel's arena, `1` (BPF_ADDR_SPACE_CAST).
#[inline(always)]
pub fn alu64(insn: Insn, a: u64, b: u64) -> Option<u64> {
    match (insn.op >> 4, insn.off) {
        (0xb, 1) if insn.op == MOVE && insn.imm == 1 => Some(arena::for_kernel(b)),
        (0xb, 1) if insn.op == MOVE && insn.imm == 1 << 16 => Some(arena::for_user(b)),
        (0xb, 32) => Some(i64::from(b as i32) as u64),
        (0xd, _) => swap(insn.imm, a),
        _ => arithmetic64(insn, a, b),
    }
}

fn swap(bits: i64, a: u64) -> Option<u64> {
    Some(match bits {
        16 => (a as u16).swap_bytes().into(),
        32 => (a as u32).swap_bytes().into(),
        64 => a.swap_bytes(),
        _ => return None,
    })
}

/// The new value in memory of an atomic operation.
fn changed(insn: Insn, size: usize, old: u64, by: u64, expected: u64) -> Result<u64, Fault> {
    let cut = if size == 4 {
        u64::from(u32::MAX)
    } else {
        u64::MAX
    };
    Ok(match insn.imm {
        0x00 | 0x01 => old.wrapping_add(by),
        0x40 | 0x41 => old | by,
        0x50 | 0x51 => old & by,
        0xa0 | 0xa1 => old ^ by,
        0xe1 => by,
        0xf1 if old == expected & cut => by,
        0xf1 => old,
        other => return Err(Fault::new(format!("has an unknown atomic {other:#x}"))),
    })
}
