//! BTF, the types of an object (include/uapi/linux/btf.h, Linux 6.12), and the CO-RE relocations
//! of `.BTF.ext`. Little-endian, as all machines have it that sched_ext was seen on.
use rustc_hash::FxHashMap;

use super::bytes::Reader;
use crate::error::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub kind: u32,
    /// In bits.
    pub offset: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Void,
    Int {
        size: u32,
        signed: bool,
    },
    Pointer(u32),
    Array {
        of: u32,
        length: u32,
    },
    Struct {
        size: u32,
        members: Vec<Member>,
    },
    Enum {
        size: u32,
        values: Vec<(String, i64)>,
    },
    /// typedef, const, volatile, restrict, type tag: another name of this one.
    Alias(u32),
    Function,
    Prototype,
    Variable(u32),
    Section(Vec<u32>),
    Other,
}

#[derive(Debug, Default)]
pub struct Btf {
    types: Vec<(String, Type)>,
    strings: Vec<u8>,
}

/// A CO-RE relocation (struct bpf_core_relo).
#[derive(Debug, Clone)]
pub struct CoreRelocation {
    pub section: String,
    /// In bytes.
    pub at: u32,
    pub root: u32,
    pub path: String,
    pub kind: u32,
}

/// No object has more; the recursion of a hostile one ends.
const DEEPEST: u32 = 32;
const SPECIAL: &[&str] = &[
    "bpf_timer",
    "bpf_wq",
    "bpf_spin_lock",
    "bpf_res_spin_lock",
    "bpf_rb_root",
    "bpf_rb_node",
    "bpf_list_head",
    "bpf_list_node",
    "bpf_refcount",
];
const TAGS: &[&str] = &["kptr", "kptr_untrusted", "percpu_kptr"];
/// Members of a value, and elements of its arrays, that are looked at; this also ends the recursion
/// of a type that contains itself.
const MOST_PARTS: u32 = 4000;
/// Of a name (KSYM_NAME_LEN).
const LONGEST: usize = 512;
/// Types that a BTF may have: vmlinux has 150,000.
const MOST_TYPES: usize = 1_000_000;

fn damaged(what: &str) -> Error {
    Error::format(
        format!("its BTF {what}"),
        "BTF of little-endian objects",
        "compile the scheduler again with clang -O2 -g -target bpf",
    )
}

impl Btf {
    pub fn parse(data: &[u8]) -> Result<Self> {
        let short = || damaged("is cut short");
        let mut head = Reader::new(data);
        if head.u16().ok_or_else(short)? != 0xeb9f {
            return Err(damaged("begins with another number than 0xeb9f"));
        }
        head.skip(2).ok_or_else(short)?;
        let header = head.u32().ok_or_else(short)? as usize;
        let [type_off, type_len, str_off, str_len] = head.u32s().ok_or_else(short)?;
        let part = |from: u32, length: u32| {
            let from = header.checked_add(from as usize)?;
            data.get(from..from.checked_add(length as usize)?)
        };
        let strings = part(str_off, str_len).ok_or_else(short)?.to_vec();
        let body = part(type_off, type_len).ok_or_else(short)?;
        let mut btf = Self {
            types: vec![(String::new(), Type::Void)],
            strings,
        };
        let mut rows = Reader::new(body);
        while !rows.is_empty() {
            if btf.types.len() > MOST_TYPES {
                return Err(damaged("has more than a million types"));
            }
            let one = btf.one(&mut rows).ok_or_else(short)?;
            btf.types.push(one);
        }
        Ok(btf)
    }

    fn one(&self, rows: &mut Reader<'_>) -> Option<(String, Type)> {
        let [name, info, size] = rows.u32s()?;
        let name = self.string(name)?;
        let (kind, count, flag) = (info >> 24 & 0x1f, info & 0xffff, info >> 31 == 1);
        let found = match kind {
            1 => {
                let encoding = rows.u32()?;
                Type::Int {
                    size,
                    signed: encoding >> 24 & 1 == 1,
                }
            }
            2 => Type::Pointer(size),
            3 => {
                let [of, _, length] = rows.u32s()?;
                Type::Array { of, length }
            }
            4 | 5 => {
                let mut members = Vec::new();
                for _ in 0..count {
                    let [name, kind, offset] = rows.u32s()?;
                    members.push(Member {
                        name: self.string(name)?,
                        kind,
                        offset: if flag { offset & 0xff_ffff } else { offset },
                    });
                }
                Type::Struct { size, members }
            }
            6 => {
                let mut values = Vec::new();
                for _ in 0..count {
                    let [name, value] = rows.u32s()?;
                    let value = if flag {
                        i64::from(value as i32)
                    } else {
                        i64::from(value)
                    };
                    values.push((self.string(name)?, value));
                }
                Type::Enum { size, values }
            }
            19 => {
                let mut values = Vec::new();
                for _ in 0..count {
                    let [name, low, high] = rows.u32s()?;
                    let value = u64::from(high) << 32 | u64::from(low);
                    values.push((self.string(name)?, value as i64));
                }
                Type::Enum { size, values }
            }
            8..=11 | 18 => Type::Alias(size),
            12 => Type::Function,
            13 => {
                rows.skip(8 * count as usize)?;
                Type::Prototype
            }
            14 => {
                rows.skip(4)?;
                Type::Variable(size)
            }
            15 => {
                let mut variables = Vec::new();
                for _ in 0..count {
                    let [variable, _, _] = rows.u32s()?;
                    variables.push(variable);
                }
                Type::Section(variables)
            }
            17 => {
                rows.skip(4)?;
                Type::Other
            }
            7 | 16 => Type::Other,
            _ => return None,
        };
        Some((name, found))
    }

    fn string(&self, at: u32) -> Option<String> {
        let rest = self.strings.get(at as usize..)?;
        let end = rest.iter().take(LONGEST).position(|b| *b == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    pub fn name(&self, id: u32) -> &str {
        self.types.get(id as usize).map_or("", |t| &t.0)
    }

    /// The type, through typedefs and const.
    pub fn resolve(&self, id: u32) -> (u32, &Type) {
        let mut id = id;
        for _ in 0..DEEPEST {
            match self.types.get(id as usize) {
                Some((_, Type::Alias(of) | Type::Variable(of))) => id = *of,
                Some((_, found)) => return (id, found),
                None => break,
            }
        }
        (0, &Type::Void)
    }

    /// Of a type, in bytes.
    pub fn size(&self, id: u32) -> u32 {
        self.size_within(id, DEEPEST)
    }

    /// Where a member of a struct is, in bytes, and its type; also one of a struct or union without
    /// a name in it.
    pub fn member(&self, id: u32, name: &str) -> Option<(u32, u32)> {
        self.member_within(id, name, DEEPEST)
    }

    fn member_within(&self, id: u32, name: &str, deepest: u32) -> Option<(u32, u32)> {
        let Type::Struct { members, .. } = self.resolve(id).1 else {
            return None;
        };
        members.iter().find_map(|member| {
            let at = member.offset / 8;
            if member.name == name {
                return Some((at, member.kind));
            }
            let inner = member.name.is_empty() && deepest > 0;
            let (more, kind) = inner
                .then(|| self.member_within(member.kind, name, deepest - 1))
                .flatten()?;
            Some((at.saturating_add(more), kind))
        })
    }

    /// Of the struct of this name, in bytes.
    pub fn struct_size(&self, name: &str) -> Option<u32> {
        self.types.iter().find_map(|(called, found)| match found {
            Type::Struct { size, .. } if called == name => Some(*size),
            _ => None,
        })
    }

    fn size_within(&self, id: u32, deepest: u32) -> u32 {
        match self.resolve(id).1 {
            Type::Int { size, .. } | Type::Struct { size, .. } | Type::Enum { size, .. } => *size,
            Type::Pointer(_) => 8,
            Type::Array { of, length } if deepest > 0 => {
                length.saturating_mul(self.size_within(*of, deepest - 1))
            }
            _ => 0,
        }
    }

    /// (offset, bytes) of what the kernel keeps to itself in a value of this type
    /// (btf_parse_fields): by the names of the types, and pointers tagged as the kernel's.
    pub fn special(&self, id: u32) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        let mut left = MOST_PARTS;
        self.special_within(id, 0, &mut left, &mut found);
        found.sort_unstable();
        found
    }

    fn special_within(&self, id: u32, at: u32, left: &mut u32, found: &mut Vec<(u32, u32)>) {
        let Some(fewer) = left.checked_sub(1) else {
            return;
        };
        *left = fewer;
        let (own, kind) = self.resolve(id);
        let name = self.name(own);
        match kind {
            Type::Struct { size, .. } if SPECIAL.contains(&name) => found.push((at, *size)),
            Type::Struct { members, .. } => {
                for one in members {
                    let at = at.saturating_add(one.offset / 8);
                    self.special_within(one.kind, at, left, found);
                }
            }
            Type::Array { of, .. } if matches!(self.resolve(*of).1, Type::Int { .. }) => {}
            Type::Array { of, length } => {
                let size = self.size(*of);
                for i in 0..*length {
                    if *left == 0 {
                        break;
                    }
                    let at = at.saturating_add(i.saturating_mul(size));
                    self.special_within(*of, at, left, found);
                }
            }
            Type::Pointer(to) => {
                if let Some((tag, Type::Alias(_))) = self.types.get(*to as usize)
                    && TAGS.contains(&tag.as_str())
                {
                    found.push((at, 8));
                }
            }
            _ => {}
        }
    }

    /// The variables of the section `name`: (name, type).
    pub fn section(&self, name: &str) -> impl Iterator<Item = (&str, u32)> {
        let variables = self.types.iter().find_map(|(called, found)| match found {
            Type::Section(variables) if called == name => Some(variables.as_slice()),
            _ => None,
        });
        let variables = variables.unwrap_or_default().iter();
        variables.map(|id| (self.name(*id), *id))
    }

    /// Every variable by its name.
    pub fn variables(&self) -> FxHashMap<&str, u32> {
        let all = self.types.iter().zip(0..);
        all.filter(|(found, _)| matches!(found.1, Type::Variable(_)))
            .map(|(found, id)| (found.0.as_str(), id))
            .collect()
    }

    /// The CO-RE relocations of `.BTF.ext`.
    pub fn relocations(&self, data: &[u8]) -> Result<Vec<CoreRelocation>> {
        self.core(data).ok_or_else(|| damaged(".ext is cut short"))
    }

    fn core(&self, data: &[u8]) -> Option<Vec<CoreRelocation>> {
        let mut head = Reader::new(data);
        head.skip(4)?;
        let header = head.u32()? as usize;
        // func_info, line_info; a short header has no more.
        head.skip(16)?;
        if header < 32 {
            return Some(Vec::new());
        }
        let [from, length] = head.u32s()?;
        let from = header.checked_add(from as usize)?;
        let mut rows = Reader::new(data.get(from..from.checked_add(length as usize)?)?);
        let mut found = Vec::new();
        if rows.is_empty() {
            return Some(found);
        }
        let size = rows.u32()? as usize;
        while !rows.is_empty() {
            let [section, count] = rows.u32s()?;
            let section = self.string(section)?;
            for _ in 0..count {
                let [at, root, path, kind] = rows.u32s()?;
                rows.skip(size.checked_sub(16)?)?;
                found.push(CoreRelocation {
                    section: section.clone(),
                    at,
                    root,
                    path: self.string(path)?,
                    kind,
                });
            }
        }
        Some(found)
    }
}
