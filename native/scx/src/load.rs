//! An object file: its sections, programs and relocations put together into one program that can
//! run (what libbpf does in tools/lib/bpf/libbpf.c, Linux 6.12).
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object as _, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex,
    SectionKind, SymbolKind,
};
use rustc_hash::FxHashMap;

use super::arena;
use super::btf::{Btf, CoreRelocation, Type};
use super::calls;
use super::core_relocation::{Found, LOCAL_ID, resolve, without_flavour};
use super::kernel_types::{KernelTypes, enumerator};
use super::library::{self, Library};
use super::maps::Maps;
use super::memory::{Access, CODE, KFUNCS, MAPS, Memory, PER_CPU, address};
use super::operations::{self, Operations};
use super::settings::{numbers, set_variable, within};
use super::vm::{CALL, HELPER, Insn, KFUNC, LDDW, LOCAL, POISON};
use crate::error::{Error, Result, plain};

type Elf<'a> = ElfFile64<'a, LittleEndian, &'a [u8]>;

/// Larger objects are refused before they are read.
pub const LARGEST: usize = 64 << 20;
/// Instructions in all: the largest schedulers have some 50,000.
const MOST_INSNS: usize = 250_000;
/// Variables that the compiler puts into the arena (ARENA_SEC of libbpf).
const IN_ARENA: &str = ".addr_space.1";
/// The setting that names the struct of a thread's data in the arena, or its size.
const ARENA_TASK: &str = "arena_task";
/// What LINUX_KERNEL_VERSION says: 6.18.
const VERSION: u64 = 6 << 16 | 18 << 8;
/// CONFIG_NR_CPUS of distributions' kernels.
const NR_CPUS: u64 = 8192;
/// A setting that is a text has no more.
const LARGEST_SETTING: u32 = 4096;

/// A scheduler, ready to be run.
pub struct Loaded {
    pub code: Vec<Insn>,
    pub memory: Memory,
    pub maps: Maps,
    /// What instructions that are poison would need.
    pub missing: Vec<String>,
    pub operations: Operations,
    /// The functions: their name, and where they begin.
    pub functions: Vec<(String, usize)>,
    /// Programs that the scheduler's own half would run before it begins: their first instruction,
    /// and the numbers that they get.
    pub before: Vec<(u32, Vec<i32>)>,
    pub library: Option<Library>,
}

pub fn refused(what: impl Into<String>) -> Error {
    Error::format(
        what,
        "an object of a sched_ext scheduler for BPF, with BTF",
        "compile it with clang -O2 -g -target bpf",
    )
}

/// Sections of the object, by their place in the file.
struct Sections<'a> {
    elf: Elf<'a>,
    /// First instruction of sections with code.
    code: FxHashMap<SectionIndex, usize>,
    /// Region of sections with data.
    data: FxHashMap<SectionIndex, u32>,
    maps: Option<SectionIndex>,
    /// Section of the arena's variables, and the page where they begin.
    arena: Option<(SectionIndex, u32)>,
}

pub fn load(bytes: &[u8], settings: &[(String, String)], hz: u32) -> Result<Loaded> {
    if bytes.len() > LARGEST {
        return Err(refused(format!("it has {} bytes", bytes.len())));
    }
    let elf = Elf::parse(bytes).map_err(|error| refused(format!("it is no ELF file: {error}")))?;
    if elf.elf_header().e_machine.get(LittleEndian) != object::elf::EM_BPF {
        return Err(refused("it is an object for another machine than BPF"));
    }
    let content = |name: &str| -> Result<&[u8]> {
        let section = elf.section_by_name(name);
        let section = section.ok_or_else(|| refused(format!("it has no section {name}")))?;
        section
            .data()
            .map_err(|error| refused(format!("its section {name} cannot be read: {error}")))
    };
    let btf = Btf::parse(content(".BTF")?)?;
    let core = match elf.section_by_name(".BTF.ext") {
        Some(_) => btf.relocations(content(".BTF.ext")?)?,
        None => Vec::new(),
    };
    let mut loading = Loading::new(elf, btf, hz)?;
    loading.set(settings)?;
    loading.relocate_core(&core);
    loading.relocate()?;
    loading.finish()
}

struct Loading<'a> {
    at: Sections<'a>,
    btf: Btf,
    kernel: KernelTypes,
    code: Vec<Insn>,
    memory: Memory,
    maps: Maps,
    missing: Vec<String>,
    names: Vec<(String, usize)>,
    hz: u32,
    config: FxHashMap<String, u64>,
    before: Vec<(String, Vec<i32>)>,
    /// Members of its sched_ext_ops.
    given: Vec<(String, u64)>,
    /// Bytes of a thread's data in the arena, where the object has the library.
    arena_task: Option<u32>,
}

impl<'a> Loading<'a> {
    fn new(elf: Elf<'a>, btf: Btf, hz: u32) -> Result<Self> {
        let mut code = Vec::new();
        let mut memory = Memory::default();
        let mut names = Vec::new();
        let mut at = Sections {
            elf,
            code: FxHashMap::default(),
            data: FxHashMap::default(),
            maps: None,
            arena: None,
        };
        let taken = |fault: super::fault::Fault| refused(format!("it {}", fault.what));
        for section in at.elf.sections() {
            let name = section.name().unwrap_or("").to_string();
            let unreadable = |error| refused(format!("its section {name} cannot be read: {error}"));
            match section.kind() {
                SectionKind::Text => {
                    let bytes = section.data().map_err(unreadable)?;
                    if bytes.len() % 8 != 0 || code.len() + bytes.len() / 8 > MOST_INSNS {
                        return Err(refused(format!(
                            "its section {name} has {} bytes of code",
                            bytes.len()
                        )));
                    }
                    at.code.insert(section.index(), code.len());
                    names.push((name, code.len()));
                    code.extend(decode(bytes));
                }
                _ if name == ".maps" => at.maps = Some(section.index()),
                _ if name == IN_ARENA => {
                    let size = usize::try_from(section.size()).unwrap_or(usize::MAX);
                    let bytes = section.data().map_err(unreadable)?;
                    let first = memory.add_to_arena(bytes, size).map_err(taken)?;
                    at.arena = Some((section.index(), first));
                }
                _ if is_data(&name) => {
                    let size = section.size();
                    let size = usize::try_from(size).unwrap_or(usize::MAX);
                    let access = if name.starts_with(".rodata") {
                        Access::ReadOnly
                    } else {
                        Access::Write
                    };
                    let region = memory.add(&name, size, access).map_err(taken)?;
                    // .bss has no bytes in the file.
                    let bytes = section.data().map_err(unreadable)?;
                    let length = bytes.len().min(size);
                    memory.put(region, 0, &bytes[..length]);
                    at.data.insert(section.index(), region);
                }
                _ => {}
            }
        }
        Ok(Self {
            at,
            btf,
            kernel: KernelTypes::new(),
            code,
            memory,
            maps: Maps::default(),
            missing: Vec::new(),
            names,
            hz,
            config: FxHashMap::default(),
            before: Vec::new(),
            given: Vec::new(),
            arena_task: None,
        })
    }

    fn poison(&mut self, at: usize, what: String) {
        let number = self.missing.iter().position(|m| *m == what);
        let number = number.unwrap_or_else(|| {
            self.missing.push(what);
            self.missing.len() - 1
        });
        if let Some(insn) = self.code.get_mut(at) {
            *insn = Insn {
                op: POISON,
                imm: number as i64,
                ..Insn::default()
            };
        }
    }

    /// Variables of `.rodata`, `.data` and `.bss`: the caller's, and those that stand for the
    /// kernel's enumerators, which a scheduler's own half sets.
    fn set(&mut self, settings: &[(String, String)]) -> Result<()> {
        let variables = self.btf.variables();
        let mut places = FxHashMap::default();
        for symbol in self.at.elf.symbols() {
            let (Ok(name), Some(section)) = (symbol.name(), symbol.section_index()) else {
                continue;
            };
            if let (Some(region), Some(id)) = (self.at.data.get(&section), variables.get(name)) {
                places.insert(name, (*region, symbol.address() as u32, *id));
            }
        }
        for (name, (region, at, id)) in &places {
            if let Some(value) = name.strip_prefix("__").and_then(enumerator)
                && self.btf.size(*id) == 8
                && (*at as usize) + 8 <= self.memory.region(*region).bytes.len()
            {
                self.memory.put64(*region, *at, value);
            }
        }
        if ["arena_init", "arena_alloc_mask", "arena_topology_node_init"]
            .iter()
            .all(|name| self.is_program(name))
        {
            let given = settings.iter().find(|(name, _)| name == ARENA_TASK);
            let name = given.map_or(library::TASK, |(_, name)| name);
            let size = name.parse().ok().or_else(|| self.btf.struct_size(name));
            let size = size.ok_or_else(|| {
                Error::usage(
                    plain(&format!("no struct {name:?} in the scheduler's object")),
                    format!("{ARENA_TASK}=, a struct or the bytes of a thread's data in its arena"),
                    "see what its own half gives ArenaLib::init",
                )
            })?;
            self.arena_task = Some(size);
        }
        for (name, value) in settings {
            if name == ARENA_TASK && self.arena_task.is_some() {
                continue;
            }
            if let Some(member) = name.strip_prefix("ops.") {
                self.given.push(operations::given(member, value)?);
                continue;
            }
            if self.is_program(name) {
                for call in value.split('/') {
                    self.before.push((name.clone(), numbers(name, call)?));
                }
                continue;
            }
            let (base, path) = name.split_once('.').unwrap_or((name, ""));
            let Some((region, at, id)) = places.get(base) else {
                let mut known: Vec<&str> = places.keys().copied().collect();
                known.retain(|name| !name.starts_with("__") && !name.starts_with('_'));
                known.sort_unstable();
                known.truncate(12);
                return Err(Error::usage(
                    format!("no variable {name:?} in the scheduler's object"),
                    plain(&format!("hz, or one of its own: {}", known.join(", "))),
                    "correct the name",
                ));
            };
            let place = within(&self.btf, (*region, *at, *id), name, path)?;
            set_variable(&self.btf, &mut self.memory, place, name, value)?;
        }
        Ok(())
    }

    /// A program for BPF_PROG_RUN, which the scheduler's own half calls.
    fn is_program(&self, name: &str) -> bool {
        let own = self.at.elf.section_by_name("syscall");
        own.is_some_and(|own| {
            let mut all = self.at.elf.symbols();
            all.any(|one| one.name() == Ok(name) && one.section_index() == Some(own.index()))
        })
    }

    fn start_of(&self, name: &str) -> Option<usize> {
        let found = self.names.iter().find(|(called, _)| called == name);
        found.map(|(_, start)| *start)
    }

    fn relocate_core(&mut self, all: &[CoreRelocation]) {
        for one in all {
            let Some(start) = self.start_of(&one.section) else {
                continue;
            };
            let at = start + one.at as usize / 8;
            let Some(insn) = self.code.get(at).copied() else {
                continue;
            };
            match resolve(&self.btf, one, &self.kernel) {
                Found::Missing(what) => self.poison(at, what),
                Found::Value(value, size) => {
                    if one.kind == LOCAL_ID {
                        let size = self.btf.size(one.root);
                        self.maps.sizes.insert(value, size);
                    }
                    let place = &mut self.code[at];
                    match insn.op & 7 {
                        // Loads and stores: the offset, and the width if the model's differs.
                        1..=3 if insn.op != LDDW => {
                            place.off = value as i16;
                            let width = match size {
                                Some(1) => 0x10,
                                Some(2) => 0x08,
                                Some(4) => 0x00,
                                Some(8) => 0x18,
                                _ => insn.op & 0x18,
                            };
                            place.op = insn.op & !0x18 | width;
                        }
                        _ => place.imm = value as i64,
                    }
                }
            }
        }
    }

    fn relocate(&mut self) -> Result<()> {
        let mut all = Vec::new();
        for (section, start) in &self.at.code {
            let Ok(section) = self.at.elf.section_by_index(*section) else {
                continue;
            };
            for (offset, relocation) in section.relocations() {
                let RelocationTarget::Symbol(symbol) = relocation.target() else {
                    continue;
                };
                all.push((*start, start + offset as usize / 8, symbol));
            }
        }
        all.sort_by_key(|(_, at, _)| *at);
        // Calls within a section need no relocation.
        let mut local: Vec<usize> = Vec::new();
        for (at, insn) in self.code.iter().enumerate() {
            if insn.op == CALL && insn.src == LOCAL {
                local.push(at);
            }
        }
        let related: rustc_hash::FxHashSet<usize> = all.iter().map(|(_, at, _)| *at).collect();
        for at in local {
            if !related.contains(&at) {
                let to = at as i64 + 1 + self.code[at].imm;
                self.code[at].imm = to;
            }
        }
        for (_, at, symbol) in all {
            let Ok(symbol) = self.at.elf.symbol_by_index(symbol) else {
                return Err(refused("a relocation names a symbol that is not there"));
            };
            let name = symbol.name().unwrap_or("").to_string();
            let Some(insn) = self.code.get(at).copied() else {
                return Err(refused(format!(
                    "the relocation of {name} is outside its code"
                )));
            };
            let value = i64::from(symbol.address() as u32);
            let Some(section) = symbol.section_index() else {
                self.external(at, insn, &name, symbol.is_weak());
                continue;
            };
            let first = self.at.code.get(&section).copied();
            if insn.op == CALL {
                let Some(first) = first else {
                    return Err(refused(format!("it calls {name}, which is no function")));
                };
                self.code[at].imm = first as i64 + value / 8 + insn.imm + 1;
                self.code[at].src = LOCAL;
            } else if let Some(first) = first {
                let to = first as i64 + (value + insn.imm) / 8;
                self.code[at].imm = address(CODE, to as u32) as i64;
            } else if Some(section) == self.at.maps {
                self.map(at, &name, symbol.kind());
            } else if let Some(region) = self.at.data.get(&section) {
                let offset = value.wrapping_add(insn.imm) as u32;
                self.code[at].imm = address(*region, offset) as i64;
            } else if let Some((own, first)) = self.at.arena
                && own == section
            {
                let offset = value.wrapping_add(insn.imm);
                self.code[at].imm = arena::address_of(first) as i64 + offset;
            } else {
                let own = self.at.elf.section_by_index(section).ok();
                let own = own.and_then(|own| own.name().ok().map(String::from));
                self.poison(at, format!("variables of {}", own.unwrap_or(name)));
            }
        }
        for at in 0..self.code.len() {
            let insn = self.code[at];
            if insn.op == CALL && insn.src == HELPER && !calls::has_helper(insn.imm) {
                self.poison(at, format!("the helper {}", calls::helper_name(insn.imm)));
            }
        }
        Ok(())
    }

    /// A function or variable of the kernel's.
    fn external(&mut self, at: usize, insn: Insn, name: &str, weak: bool) {
        let plain = without_flavour(name);
        if insn.op == CALL {
            match calls::kfunc(name).or_else(|| calls::kfunc(plain)) {
                Some(number) => {
                    self.code[at].imm = number.into();
                    self.code[at].src = KFUNC;
                }
                None => self.poison(at, format!("the kfunc {name}")),
            }
            return;
        }
        let config = self.btf.section(".kconfig").find(|(own, _)| *own == name);
        let size = config.map(|(_, id)| self.btf.size(id));
        let number = calls::kfunc(name).or_else(|| calls::kfunc(plain));
        if let Some(number) = number {
            self.code[at].imm = address(KFUNCS, number) as i64;
        } else if let Some(number) = calls::per_cpu(name) {
            self.code[at].imm = address(PER_CPU, number) as i64;
        } else if let Some(size) = size {
            let value = match name {
                "CONFIG_HZ" => Some(self.hz.into()),
                "LINUX_KERNEL_VERSION" => Some(VERSION),
                "CONFIG_NR_CPUS" => Some(NR_CPUS),
                "CONFIG_X86_64" | "CONFIG_NO_HZ_IDLE" | "CONFIG_PREEMPT_RCU" => Some(1),
                // What a configuration lacks is 0 for libbpf.
                _ => weak.then_some(0),
            };
            match value.and_then(|value| self.config(name, size, value)) {
                Some(place) => self.code[at].imm = place as i64,
                None => self.poison(at, format!("the setting {name}")),
            }
        } else if weak {
            self.code[at].imm = 0;
        } else {
            self.poison(at, format!("the kernel's variable {name}"));
        }
    }

    /// Where a setting of the kernel's is, in `.kconfig`.
    fn config(&mut self, name: &str, size: u32, value: u64) -> Option<u64> {
        if let Some(place) = self.config.get(name) {
            return Some(*place);
        }
        let room = (size.min(LARGEST_SETTING) as usize).max(8);
        let region = self.memory.add(".kconfig", room, Access::ReadOnly).ok()?;
        self.memory.put64(region, 0, value);
        self.config.insert(name.into(), address(region, 0));
        Some(address(region, 0))
    }

    fn map(&mut self, at: usize, name: &str, kind: SymbolKind) {
        let number = match self.maps.find(name) {
            Some(number) => Ok(number),
            None if kind == SymbolKind::Section => Err(format!("a map without a name in {name}")),
            None => self.declare(name),
        };
        match number {
            Ok(number) => self.code[at].imm = address(MAPS, number) as i64,
            Err(what) => self.poison(at, what),
        }
    }

    /// A map, and of an array of maps those, which relocations of `.maps` name.
    fn declare(&mut self, name: &str) -> std::result::Result<u32, String> {
        let number = self.maps.declare(&self.btf, name)?;
        let inner_at = self.maps.at(number).map_or(0, |map| map.inner_at);
        if inner_at == 0 {
            return Ok(number);
        }
        let all = || self.at.elf.symbols();
        let own = all().find(|symbol| symbol.name() == Ok(name));
        let section = self
            .at
            .maps
            .and_then(|at| self.at.elf.section_by_index(at).ok());
        let (Some(own), Some(section)) = (own, section) else {
            return Ok(number);
        };
        let from = own.address().saturating_add(inner_at.into());
        let end = own.address().saturating_add(own.size());
        let mut found = Vec::new();
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                continue;
            };
            let symbol = self.at.elf.symbol_by_index(symbol);
            let called = symbol.and_then(|symbol| symbol.name().map(String::from));
            if let (true, Ok(called)) = ((from..end).contains(&offset), called) {
                found.push(((offset - from) as usize / 8, called));
            }
        }
        for (at, called) in found {
            let inner = match self.maps.find(&called) {
                Some(inner) => inner,
                // No map lies in itself: each level is declared once.
                None => self.maps.declare(&self.btf, &called)?,
            };
            if let Some(map) = self.maps.at(number) {
                map.hold(at, inner);
            }
        }
        Ok(number)
    }

    fn finish(self) -> Result<Loaded> {
        let functions = self.at.elf.symbols().filter_map(|symbol| {
            let first = self.at.code.get(&symbol.section_index()?)?;
            let at = first + symbol.address() as usize / 8;
            (symbol.kind() == SymbolKind::Text).then(|| (symbol.name().ok().map(String::from), at))
        });
        let mut functions: Vec<(String, usize)> = functions
            .filter_map(|(name, at)| Some((name?, at)))
            .collect();
        functions.sort_by_key(|(_, at)| *at);
        let operations = self.operations(&functions)?;
        let start = |name: &String| functions.iter().find(|(called, _)| called == name);
        let before = self
            .before
            .iter()
            .filter_map(|(name, numbers)| Some((start(name)?.1 as u32, numbers.clone())));
        let before = before.collect();
        let program = |name: &str| {
            let found = functions.iter().find(|(called, _)| called == name);
            found.map(|(_, at)| *at as u32)
        };
        let library = self.arena_task.and_then(|task| {
            Some(Library {
                init: program("arena_init")?,
                new_mask: program("arena_alloc_mask")?,
                levels: program("arena_topology_init"),
                node: program("arena_topology_node_init")?,
                task,
            })
        });
        Ok(Loaded {
            code: self.code,
            memory: self.memory,
            maps: self.maps,
            missing: self.missing,
            operations,
            functions,
            before,
            library,
        })
    }

    /// The one `struct sched_ext_ops` of the object.
    fn operations(&self, functions: &[(String, usize)]) -> Result<Operations> {
        let mut found = None;
        for name in [".struct_ops", ".struct_ops.link"] {
            let Some(section) = self.at.elf.section_by_name(name) else {
                continue;
            };
            for (variable, id) in self.btf.section(name) {
                let (id, kind) = self.btf.resolve(id);
                let Type::Struct { members, .. } = kind else {
                    continue;
                };
                if without_flavour(self.btf.name(id)) != "sched_ext_ops" {
                    continue;
                }
                if found.is_some() {
                    return Err(refused("it has several sched_ext_ops"));
                }
                let symbol = self.at.elf.symbols().find(|s| s.name() == Ok(variable));
                let Some(symbol) = symbol else {
                    return Err(refused(format!(
                        "its sched_ext_ops {variable} has no place"
                    )));
                };
                let base = symbol.address();
                let bytes = section.data().unwrap_or_default();
                let from = usize::try_from(base).unwrap_or(usize::MAX);
                let bytes = bytes.get(from..).unwrap_or_default();
                let mut pointers = FxHashMap::default();
                for (offset, relocation) in section.relocations() {
                    let RelocationTarget::Symbol(target) = relocation.target() else {
                        continue;
                    };
                    let target = self.at.elf.symbol_by_index(target).ok();
                    let Some(target) = target else { continue };
                    let name = target.name().unwrap_or("");
                    let start = functions.iter().find(|(called, _)| called == name);
                    if let (Some(at), Some((name, start))) = (offset.checked_sub(base), start) {
                        pointers.insert(at as u32, (*start as u32, name.clone()));
                    }
                }
                found = Some(Operations::read(
                    members,
                    &self.btf,
                    bytes,
                    &pointers,
                    &self.given,
                )?);
            }
        }
        found.ok_or_else(|| refused("it has no struct sched_ext_ops in .struct_ops.link"))
    }
}

fn is_data(name: &str) -> bool {
    [".rodata", ".data", ".bss"]
        .iter()
        .any(|own| name.starts_with(own))
}

fn decode(bytes: &[u8]) -> Vec<Insn> {
    let mut code: Vec<Insn> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| Insn {
            op: if word[0] == POISON { 0xf7 } else { word[0] },
            dst: word[1] & 15,
            src: word[1] >> 4,
            off: i16::from_le_bytes([word[2], word[3]]),
            imm: i32::from_le_bytes([word[4], word[5], word[6], word[7]]).into(),
        })
        .collect();
    for at in 0..code.len().saturating_sub(1) {
        if code[at].op == LDDW {
            let high = code[at + 1].imm << 32;
            code[at].imm = high | code[at].imm & 0xffff_ffff;
        }
    }
    code
}
