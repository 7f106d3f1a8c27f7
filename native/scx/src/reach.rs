//! Which instructions a callback can come to, with what is constant known: branches that settings
//! in `.rodata` and absent weak kfuncs rule out are none, as for the kernel's verifier.
use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::memory::{Access, CODE, Memory, split};
use super::vm::{self, CALL, EXIT, Insn, LDDW, LOCAL, POISON};

/// What is known of the registers, whichever way led there.
type Known = [Option<u64>; 16];

struct Walk<'a> {
    code: &'a [Insn],
    memory: &'a Memory,
    /// Where ways may meet, and what is known there.
    known: FxHashMap<usize, Known>,
    ahead: BTreeSet<usize>,
}

/// What the instructions from `entry` on need and the model lacks: numbers in `missing`, in the
/// order of the code.
pub fn missing(code: &[Insn], memory: &Memory, entry: usize) -> Vec<usize> {
    let mut walk = Walk {
        code,
        memory,
        known: FxHashMap::default(),
        ahead: BTreeSet::new(),
    };
    let targets = targets(code);
    let mut found = BTreeSet::new();
    walk.comes_to(entry, &[None; 16]);
    while let Some(start) = walk.ahead.pop_first() {
        let mut at = start;
        let mut known = walk.known.get(&start).copied().unwrap_or_default();
        while let Some(next) = walk.step(at, &mut known, &mut found) {
            if targets.get(next).copied().unwrap_or(true) {
                walk.comes_to(next, &known);
                break;
            }
            at = next;
        }
    }
    found.iter().map(|at| code[*at].imm as usize).collect()
}

impl Walk<'_> {
    /// A way leads to `at`: from there on is known only what is known of every way.
    fn comes_to(&mut self, at: usize, known: &Known) {
        let Some(before) = self.known.get_mut(&at) else {
            self.known.insert(at, *known);
            self.ahead.insert(at);
            return;
        };
        let mut changed = false;
        for (old, new) in before.iter_mut().zip(known) {
            if old.is_some() && old != new {
                *old = None;
                changed = true;
            }
        }
        if changed {
            self.ahead.insert(at);
        }
    }

    /// The instruction that follows the one at `at`, if one does.
    fn step(&mut self, at: usize, known: &mut Known, found: &mut BTreeSet<usize>) -> Option<usize> {
        let insn = self.code.get(at).copied()?;
        let (dst, src) = (usize::from(insn.dst & 15), usize::from(insn.src & 15));
        let by = if insn.op & 8 == 8 {
            known[src]
        } else {
            Some(insn.imm as u64)
        };
        let op = insn.op;
        match op {
            POISON => {
                found.insert(at);
                return None;
            }
            EXIT => return None,
            LDDW => {
                known[dst] = Some(insn.imm as u64);
                if let (CODE, target) = split(insn.imm as u64) {
                    self.comes_to(target as usize, &[None; 16]);
                }
                return Some(at + 2);
            }
            CALL => {
                if insn.src == LOCAL {
                    self.comes_to(insn.imm as usize, &[None; 16]);
                }
                known[..6].fill(None);
            }
            0x05 | 0x06 => return target(at, insn),
            _ if matches!(op & 7, 5 | 6) => {
                let taken = match (known[dst], by) {
                    (Some(a), Some(b)) if op & 7 == 5 => vm::compare(op, a, b),
                    (Some(a), Some(b)) if !vm::is_signed(op) => {
                        vm::compare(op, a & 0xffff_ffff, b & 0xffff_ffff)
                    }
                    _ => None,
                };
                if taken == Some(true) {
                    return target(at, insn);
                }
                if taken.is_none()
                    && let Some(to) = target(at, insn)
                {
                    self.comes_to(to, known);
                }
            }
            _ if op & 7 == 7 => {
                known[dst] = match (known[dst], by) {
                    (_, Some(b)) if op >> 4 == 0xb => vm::alu64(insn, 0, b),
                    (Some(a), Some(b)) => vm::alu64(insn, a, b),
                    _ => None,
                };
            }
            _ if op & 7 == 4 => {
                let word = match (known[dst], by) {
                    (_, Some(b)) if op >> 4 == 0xb => vm::alu32(insn, 0, b as u32),
                    (Some(a), Some(b)) => vm::alu32(insn, a as u32, b as u32),
                    _ => None,
                };
                known[dst] = word.map(u64::from);
            }
            _ if op & 7 == 1 => {
                known[dst] = known[src].and_then(|from| {
                    let from = from.wrapping_add(insn.off as u64);
                    constant(self.memory, from, vm::size_of(op))
                });
            }
            // An atomic operation gives what was in memory.
            _ if op & 7 == 3 && op & 0xe0 == 0xc0 => {
                known[src] = None;
                known[0] = None;
            }
            _ => {}
        }
        Some(at + 1)
    }
}

/// The content of memory there that is never written.
fn constant(memory: &Memory, at: u64, size: usize) -> Option<u64> {
    memory.read(at, size).ok()?;
    let fixed = matches!(memory.region(split(at).0).access, Access::ReadOnly);
    fixed.then(|| memory.load(at, size).ok()).flatten()
}

fn target(at: usize, insn: Insn) -> Option<usize> {
    let by = if insn.op == 0x06 {
        insn.imm
    } else {
        insn.off.into()
    };
    usize::try_from(at as i64 + 1 + by).ok()
}

/// Where several ways may meet.
fn targets(code: &[Insn]) -> Vec<bool> {
    let mut found = vec![false; code.len()];
    for (at, insn) in code.iter().enumerate() {
        if matches!(insn.op & 7, 5 | 6)
            && !matches!(insn.op, CALL | EXIT)
            && let Some(to) = target(at, *insn)
            && let Some(one) = found.get_mut(to)
        {
            *one = true;
        }
    }
    found
}
