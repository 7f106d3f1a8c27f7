//! CO-RE: where a member is in the model's types (`bpf_core_calc_relo_insn` of
//! tools/lib/bpf/relo_core.c, Linux 6.12).
use super::btf::{Btf, CoreRelocation, Type};
use super::kernel_types::{KernelTypes, Place, enumerator};

/// enum bpf_core_relo_kind
const BYTE_OFFSET: u32 = 0;
const BYTE_SIZE: u32 = 1;
const EXISTS: u32 = 2;
const SIGNED: u32 = 3;
const LEFT_SHIFT: u32 = 4;
const RIGHT_SHIFT: u32 = 5;
pub const LOCAL_ID: u32 = 6;
const KERNEL_ID: u32 = 7;
const TYPE_EXISTS: u32 = 8;
const TYPE_SIZE: u32 = 9;
const ENUMERATOR_EXISTS: u32 = 10;
const ENUMERATOR: u32 = 11;
const TYPE_MATCHES: u32 = 12;

/// What an instruction gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// This value; of an access of memory, to so many bytes.
    Value(u64, Option<u32>),
    /// The model lacks it: an instruction that is never to be run.
    Missing(String),
}

/// The part of a name before its last `___`: what follows tells versions of a type apart.
pub fn without_flavour(name: &str) -> &str {
    let found = name.rfind("___").filter(|at| *at > 0);
    found.map_or(name, |at| &name[..at])
}

/// The name of a type; of a struct without one that of its typedef, such as `kuid_t`.
fn called(btf: &Btf, alias: u32, id: u32) -> &str {
    match btf.name(id) {
        "" => btf.name(alias),
        name => without_flavour(name),
    }
}

pub fn resolve(btf: &Btf, one: &CoreRelocation, kernel: &KernelTypes) -> Found {
    let (root, found) = btf.resolve(one.root);
    let name = called(btf, one.root, root);
    let number = |yes: bool| Found::Value(u64::from(yes), None);
    match one.kind {
        LOCAL_ID => return Found::Value(root.into(), None),
        TYPE_EXISTS | TYPE_MATCHES => return number(kernel.has(name).is_some()),
        // Which one it is tells the verifier alone what a cast comes to (bpf_rdonly_cast).
        KERNEL_ID if kernel.has(name).is_some() => return number(true),
        TYPE_SIZE => {
            return match kernel.size(name) {
                Some(size) => Found::Value(size.into(), None),
                None => Found::Missing(format!("the size of struct {name}")),
            };
        }
        ENUMERATOR | ENUMERATOR_EXISTS => {
            let Type::Enum { values, .. } = found else {
                return Found::Missing(format!("an enumerator of {name}"));
            };
            let value = one.path.parse::<usize>().ok().and_then(|at| values.get(at));
            let called = value.map_or("", |v| without_flavour(&v.0));
            return match (one.kind, enumerator(called)) {
                (ENUMERATOR_EXISTS, value) => number(value.is_some()),
                (_, Some(value)) => Found::Value(value, None),
                _ => Found::Missing(format!("the enumerator {called} of {name}")),
            };
        }
        _ => {}
    }
    let place = match member(btf, one, kernel) {
        Ok(place) => place,
        Err(_) if one.kind == EXISTS => return number(false),
        Err(lacks) => return Found::Missing(lacks),
    };
    let bits = 64 - 8 * u64::from(place.size.min(8));
    match one.kind {
        BYTE_OFFSET => Found::Value(place.offset.into(), Some(place.size)),
        BYTE_SIZE => Found::Value(place.size.into(), None),
        EXISTS => number(true),
        SIGNED => number(place.signed),
        LEFT_SHIFT | RIGHT_SHIFT => Found::Value(bits, None),
        other => Found::Missing(format!("a relocation of kind {other} of {name}")),
    }
}

/// Follows the path "0:26:3" by names; an error names what the model lacks.
fn member(btf: &Btf, one: &CoreRelocation, kernel: &KernelTypes) -> Result<Place, String> {
    let (mut id, mut local) = btf.resolve(one.root);
    let name = called(btf, one.root, id);
    let mut said = match name {
        "" => "a struct without a name".into(),
        name => format!("struct {name}"),
    };
    let lacks = |said: &str| Err(said.to_string());
    let Some(mut within) = kernel.has(name) else {
        return lacks(&said);
    };
    let mut steps = one.path.split(':').map(str::parse::<u32>);
    let Some(Ok(0)) = steps.next() else {
        return lacks(&format!("an element of an array of {said}"));
    };
    let mut place = Place {
        offset: 0,
        size: kernel.size(within).unwrap_or(0),
        signed: false,
        within: Some(within),
    };
    for step in steps {
        let Ok(step) = step else {
            return lacks(&format!("the path {:?} in {said}", one.path));
        };
        match local {
            Type::Struct { members, .. } => {
                let Some(member) = members.get(step as usize) else {
                    return lacks(&format!("the path {:?} in {said}", one.path));
                };
                (id, local) = btf.resolve(member.kind);
                let called = without_flavour(&member.name);
                if called.is_empty() {
                    // An anonymous struct or union: its members are the outer one's.
                    continue;
                }
                said = format!("{said}.{called}");
                let Some(found) = kernel.member(within, called) else {
                    return lacks(&said);
                };
                place = Place {
                    offset: place.offset + found.offset,
                    ..found
                };
                if let Some(next) = found.within {
                    within = next;
                }
            }
            Type::Array { of, .. } => {
                let size = btf.size(*of);
                let from = u64::from(step) * u64::from(size);
                if size == 0 || from + u64::from(size) > u64::from(place.size) {
                    return lacks(&format!("{said}[{step}]"));
                }
                place.offset += from as u32;
                place.size = size;
                (id, local) = btf.resolve(*of);
            }
            _ => {
                return lacks(&format!(
                    "{said}, of which {:?} has no members",
                    btf.name(id)
                ));
            }
        }
    }
    Ok(place)
}
