//! Maps of an object (kernel/bpf/{arraymap,hashtab,queue_stack_maps,map_in_map}.c and
//! bpf_task_storage.c, bpf_cgrp_storage.c, Linux 6.12). Which entry an LRU map gives up is exact
//! here: the one used longest ago; the kernel's choice is near that.
use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::btf::{Btf, Type};
use super::fault::Fault;
use super::memory::{Access, MAPS, Memory, address, split};
use super::rings::Ring;
use super::timers::{SIZE, Timers};
use super::trees::Trees;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    Array,
    Hash,
    /// Storage of each thread or, the second, of each control group.
    TaskStorage,
    GroupStorage,
    Queue,
    Stack,
    Ring,
    /// An array of other maps, fixed in the object.
    OfMaps,
    Arena,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    kind: MapKind,
    per_cpu: bool,
    lru: bool,
}

const KINDS: &[(u32, &str)] = &[
    (1, "HASH"),
    (2, "ARRAY"),
    (3, "PROG_ARRAY"),
    (4, "PERF_EVENT_ARRAY"),
    (5, "PERCPU_HASH"),
    (6, "PERCPU_ARRAY"),
    (7, "STACK_TRACE"),
    (8, "CGROUP_ARRAY"),
    (9, "LRU_HASH"),
    (10, "LRU_PERCPU_HASH"),
    (11, "LPM_TRIE"),
    (12, "ARRAY_OF_MAPS"),
    (13, "HASH_OF_MAPS"),
    (22, "QUEUE"),
    (23, "STACK"),
    (24, "SK_STORAGE"),
    (27, "RINGBUF"),
    (28, "INODE_STORAGE"),
    (29, "TASK_STORAGE"),
    (30, "BLOOM_FILTER"),
    (31, "USER_RINGBUF"),
    (32, "CGRP_STORAGE"),
    (33, "ARENA"),
];

/// BPF_MAP_TYPE_USER_RINGBUF
const USER_RING: u32 = 31;
/// BPF_MAP_TYPE_ARENA
const ARENA: u32 = 33;

fn shape(kind: u32) -> Option<Shape> {
    let (kind, per_cpu, lru) = match kind {
        1 => (MapKind::Hash, false, false),
        2 => (MapKind::Array, false, false),
        5 => (MapKind::Hash, true, false),
        6 => (MapKind::Array, true, false),
        9 => (MapKind::Hash, false, true),
        10 => (MapKind::Hash, true, true),
        12 => (MapKind::OfMaps, false, false),
        22 => (MapKind::Queue, false, false),
        23 => (MapKind::Stack, false, false),
        27 => (MapKind::Ring, false, false),
        29 => (MapKind::TaskStorage, false, false),
        32 => (MapKind::GroupStorage, false, false),
        33 => (MapKind::Arena, false, false),
        _ => return None,
    };
    Some(Shape { kind, per_cpu, lru })
}

#[derive(Debug)]
pub struct Map {
    pub name: String,
    shape: Shape,
    key: u32,
    value: u32,
    entries: u32,
    region: u32,
    ncpu: u32,
    /// Of a hash: the entry of each key; the keys by entry; entries that are free.
    index: FxHashMap<Vec<u8>, u32>,
    free: Vec<u32>,
    used: u32,
    /// Of a LRU map: entries by when they were last used, and when that was.
    by_age: BTreeMap<u64, u32>,
    age: Vec<u64>,
    clock: u64,
    /// Of task storage: the entry of each thread; of that of groups: of each group.
    of_task: Vec<Option<u32>>,
    /// (offset, bytes) in a value that no update writes: timers, locks, pointers of the kernel's.
    special: Vec<(u32, u32)>,
    /// Of a queue or stack: its entries from the oldest on.
    order: VecDeque<u32>,
    pub(crate) ring: Ring,
    /// Of an array of maps: those.
    pub inner: Vec<Option<u32>>,
    /// Where the object's variable has them.
    pub inner_at: u32,
}

#[derive(Debug, Default)]
pub struct Maps {
    all: Vec<Map>,
    pub timers: Timers,
    pub trees: Trees,
    /// Sizes of the object's own types that it makes objects of.
    pub sizes: FxHashMap<u64, u32>,
}

/// Maps in an array of maps.
const MOST_INNER: usize = 4096;

const ENOENT: i64 = -2;
const E2BIG: i64 = -7;
const EEXIST: i64 = -17;
const EINVAL: i64 = -22;

fn number(error: i64) -> u64 {
    error as u64
}

impl Maps {
    pub fn find(&self, name: &str) -> Option<u32> {
        let at = self.all.iter().position(|map| map.name == name);
        at.map(|at| at as u32)
    }

    /// The map of a variable in `.maps`; an error names what is not simulated of it.
    pub fn declare(&mut self, btf: &Btf, name: &str) -> Result<u32, String> {
        let unknown = || format!("the map {name}, whose type is unknown");
        let id = btf.section(".maps").find(|(own, _)| *own == name);
        let Some((_, id)) = id else {
            return Err(unknown());
        };
        let Type::Struct { members, .. } = btf.resolve(id).1 else {
            return Err(unknown());
        };
        let (mut kind, mut key, mut value, mut entries) = (0, 0, 0, 0);
        let (mut inner, mut other) = (0, None);
        let mut special = Vec::new();
        for member in members {
            let to = match btf.resolve(member.kind).1 {
                Type::Pointer(to) => to,
                // The maps of an array of maps: which they are is in relocations.
                Type::Array { .. } if member.name == "values" => {
                    inner = member.offset / 8;
                    continue;
                }
                // Where user space would see an arena.
                _ if member.name == "map_extra" && kind == ARENA => continue,
                _ => {
                    other = Some(format!("{} of the map {name}", member.name));
                    continue;
                }
            };
            let count = match btf.resolve(*to).1 {
                Type::Array { length, .. } => *length,
                _ => 0,
            };
            match member.name.as_str() {
                "type" => kind = count,
                "max_entries" => entries = count,
                "key_size" => key = count,
                "value_size" => value = count,
                "key" => key = btf.size(*to),
                "value" => {
                    value = btf.size(*to);
                    special = btf.special(*to);
                }
                "map_flags" | "pinning" => {}
                more => other = Some(format!("{more} of the map {name}")),
            }
        }
        let Some(shape) = shape(kind) else {
            if kind == USER_RING {
                return Err(format!(
                    "its own user-space half, which fills the map {name}"
                ));
            }
            let called = KINDS.iter().find(|(number, _)| *number == kind);
            let called = called.map_or_else(|| kind.to_string(), |(_, name)| (*name).to_string());
            return Err(format!("the map {name} of type BPF_MAP_TYPE_{called}"));
        };
        if let Some(other) = other {
            return Err(other);
        }
        let is_arena = |map: &Map| map.shape.kind == MapKind::Arena;
        if shape.kind == MapKind::Arena && self.all.iter().any(is_arena) {
            return Err(format!("{name}, a second arena"));
        }
        let (no_key, no_value) = match shape.kind {
            MapKind::Queue | MapKind::Stack => (true, false),
            MapKind::Ring | MapKind::Arena => (true, true),
            MapKind::OfMaps => {
                value = 4;
                (false, false)
            }
            _ => (false, false),
        };
        // Of pages, as many as a power of two (adjust_ringbuf_sz of libbpf).
        if shape.kind == MapKind::Ring {
            entries = entries.clamp(4096, 1 << 30).next_power_of_two();
        }
        if (key == 0) != no_key || (value == 0) != no_value || value > 1 << 20 || key > 512 {
            return Err(format!(
                "the map {name} with keys of {key} and values of {value} bytes"
            ));
        }
        self.all.push(Map {
            name: name.into(),
            shape,
            key,
            value,
            entries,
            region: 0,
            ncpu: 1,
            index: FxHashMap::default(),
            free: Vec::new(),
            used: 0,
            by_age: BTreeMap::new(),
            age: Vec::new(),
            clock: 0,
            of_task: Vec::new(),
            special,
            order: VecDeque::new(),
            ring: Ring::default(),
            inner: Vec::new(),
            inner_at: inner,
        });
        Ok(self.all.len() as u32 - 1)
    }

    /// Makes room; arrays have all of theirs from the start.
    pub fn create(
        &mut self,
        memory: &mut Memory,
        ncpu: usize,
        (nthreads, ngroups): (usize, usize),
    ) -> Result<(), Fault> {
        self.timers.key = memory.add("the key of a timer", 8, Access::ReadOnly)?;
        for map in &mut self.all {
            if map.shape.per_cpu {
                map.ncpu = ncpu as u32;
            }
            let size = match map.shape.kind {
                MapKind::Array => (map.stride() as usize).saturating_mul(map.entries as usize),
                MapKind::Ring => map.entries as usize,
                _ => 0,
            };
            let name = format!("the map {}", map.name);
            map.region = memory.add(&name, size, Access::Write)?;
            match map.shape.kind {
                MapKind::TaskStorage => map.of_task = vec![None; nthreads],
                MapKind::GroupStorage => map.of_task = vec![None; ngroups],
                MapKind::Arena => memory.arena_mut().limit(map.entries),
                _ => {}
            }
        }
        Ok(())
    }

    /// bpf_map_delete_elem; a timer in the value is gone, too.
    pub fn delete(&mut self, memory: &Memory, handle: u64, key: u64) -> Result<u64, Fault> {
        let map = self.get(handle, MAPS)?;
        let value = match map.shape.kind {
            MapKind::Hash => map.lookup(memory, key, 0)?,
            _ => 0,
        };
        let (answer, special) = (map.delete(memory, key)?, map.special.clone());
        for (at, _) in special.iter().filter(|_| value != 0) {
            self.timers.forget(value + u64::from(*at));
        }
        Ok(answer)
    }

    /// The map in which a timer lies that `at` points to.
    pub fn with_timer(&mut self, at: u64) -> Result<u32, Fault> {
        let found = self.of_region(split(at).0);
        let found = found.filter(|(_, map)| !map.shape.per_cpu && !map.shape.lru);
        match found {
            Some((number, map)) if map.has_special(at, SIZE) => Ok(number),
            _ => Err(Fault::new(format!("gives {at:#x} as a timer in a map"))),
        }
    }

    pub fn at(&mut self, number: u32) -> Option<&mut Map> {
        self.all.get_mut(number as usize)
    }

    /// The map whose memory is this region, and its number.
    pub fn of_region(&mut self, region: u32) -> Option<(u32, &mut Map)> {
        let at = self.all.iter().position(|map| map.region == region)?;
        Some((at as u32, &mut self.all[at]))
    }

    /// What the kernel's pointers in the storage of thread `t` point to: it is released with that
    /// (bpf_obj_free_fields).
    pub fn held_by(&self, m: &Memory, t: u32) -> Vec<u64> {
        let storage = self
            .all
            .iter()
            .filter(|map| map.shape.kind == MapKind::TaskStorage);
        let found = storage.flat_map(|map| {
            let entry = map.of_task.get(t as usize).copied().flatten();
            let value = entry.map(|entry| map.place(entry, 0));
            let pointers = map.special.iter().filter(|(_, size)| *size == 8);
            pointers.filter_map(move |(at, _)| m.load(value? + u64::from(*at), 8).ok())
        });
        found.filter(|at| *at != 0).collect()
    }

    /// A thread has ended, and its storage with it.
    pub fn forget_task(&mut self, t: u32) {
        for map in &mut self.all {
            if map.shape.kind == MapKind::TaskStorage {
                map.forget_task(t);
            }
        }
    }

    pub fn get(&mut self, handle: u64, region: u32) -> Result<&mut Map, Fault> {
        let (found, number) = split(handle);
        let map = (found == region)
            .then(|| self.all.get_mut(number as usize))
            .flatten();
        map.ok_or_else(|| Fault::new(format!("gives {handle:#x} as a map")))
    }
}

impl Map {
    /// Of the key in an entry, which is before the values of the CPUs.
    fn key_room(&self) -> u32 {
        match self.shape.kind {
            MapKind::Hash => self.key.next_multiple_of(8),
            _ => 0,
        }
    }

    fn stride(&self) -> u32 {
        self.key_room() + self.value.next_multiple_of(8) * self.ncpu
    }

    fn place(&self, entry: u32, cpu: u32) -> u64 {
        let cpu = if self.shape.per_cpu { cpu } else { 0 };
        let at = self.key_room() + cpu * self.value.next_multiple_of(8);
        // A map never has more than 4 GB: `Memory` has a limit.
        address(
            self.region,
            entry.wrapping_mul(self.stride()).wrapping_add(at),
        )
    }

    fn array_index(&self, key: &[u8]) -> Option<u32> {
        let at = u32::from_le_bytes(key.first_chunk().copied()?);
        (at < self.entries).then_some(at)
    }

    fn touch(&mut self, entry: u32) {
        if !self.shape.lru {
            return;
        }
        self.clock += 1;
        let old = std::mem::replace(&mut self.age[entry as usize], self.clock);
        self.by_age.remove(&old);
        self.by_age.insert(self.clock, entry);
    }

    /// The address of a value for `cpu`; 0 for none.
    pub fn lookup(&mut self, memory: &Memory, key: u64, cpu: u32) -> Result<u64, Fault> {
        if cpu >= self.ncpu && self.shape.per_cpu {
            return Ok(0);
        }
        let key = memory.read(key, self.key as usize)?;
        let entry = match self.shape.kind {
            MapKind::Array => self.array_index(key),
            MapKind::Hash => self.index.get(key).copied(),
            MapKind::OfMaps => {
                let inner = self.array_index(key);
                let inner = inner.and_then(|at| self.inner.get(at as usize).copied().flatten());
                return Ok(inner.map_or(0, |number| address(MAPS, number)));
            }
            _ => return Err(self.by_key()),
        };
        let Some(entry) = entry else { return Ok(0) };
        self.touch(entry);
        Ok(self.place(entry, cpu))
    }

    fn by_key(&self) -> Fault {
        Fault::new(format!(
            "uses the map {} with a key, which it has not",
            self.name
        ))
    }

    pub fn update(
        &mut self,
        memory: &mut Memory,
        (key, value, flags): (u64, u64, u64),
        cpu: u32,
    ) -> Result<u64, Fault> {
        let key = memory.read(key, self.key as usize)?.to_vec();
        let value = memory.read(value, self.value as usize)?.to_vec();
        if flags & !4 > 2 {
            return Ok(number(EINVAL));
        }
        let flags = flags & 3;
        let entry = match self.shape.kind {
            MapKind::Array if flags == 1 => return Ok(number(EEXIST)),
            MapKind::Array => match self.array_index(&key) {
                Some(entry) => entry,
                None => return Ok(number(E2BIG)),
            },
            MapKind::Hash => match (self.index.get(&key).copied(), flags) {
                (Some(_), 1) => return Ok(number(EEXIST)),
                (None, 2) => return Ok(number(ENOENT)),
                (Some(entry), _) => entry,
                (None, _) => match self.insert(memory, key)? {
                    Some(entry) => entry,
                    None => return Ok(number(E2BIG)),
                },
            },
            _ => return Err(self.by_key()),
        };
        self.touch(entry);
        self.copy(memory, self.place(entry, cpu), &value)?;
        Ok(0)
    }

    /// Writes a value but for what is special in it (copy_map_value).
    fn copy(&self, memory: &mut Memory, to: u64, value: &[u8]) -> Result<(), Fault> {
        let mut from = 0;
        for (at, size) in self.special.iter().chain([&(self.value, 0)]) {
            let at = (*at as usize).min(value.len());
            if at > from {
                memory.write_from(to + from as u64, &value[from..at])?;
            }
            from = from.max(at + *size as usize);
        }
        Ok(())
    }

    /// A new entry with zeroes; `None` if the map is full.
    fn insert(&mut self, memory: &mut Memory, key: Vec<u8>) -> Result<Option<u32>, Fault> {
        if self.index.len() >= self.entries as usize {
            let oldest = self.by_age.first_key_value().map(|(_, entry)| *entry);
            let Some(entry) = oldest else { return Ok(None) };
            let at = entry * self.stride();
            let region = &memory.region(self.region).bytes;
            let old = region[at as usize..(at + self.key) as usize].to_vec();
            self.remove(&old);
        }
        let entry = self.take(memory)?;
        memory.put(self.region, entry * self.stride(), &key);
        self.index.insert(key, entry);
        Ok(Some(entry))
    }

    /// An entry that is free, full of zeroes.
    fn take(&mut self, memory: &mut Memory) -> Result<u32, Fault> {
        let stride = self.stride();
        let entry = match self.free.pop() {
            Some(entry) => {
                let from = (entry * stride) as usize;
                memory.bytes_mut(self.region)[from..from + stride as usize].fill(0);
                entry
            }
            None => {
                let entry = self.used;
                let end = u64::from(stride) * (u64::from(entry) + 1);
                if end > u64::from(u32::MAX) {
                    return Err(Fault::new(format!("fills the map {}", self.name)));
                }
                memory.grow(self.region, end as usize)?;
                self.used += 1;
                entry
            }
        };
        if self.shape.lru {
            self.age.resize(self.used as usize, 0);
        }
        Ok(entry)
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.index.remove(key) else {
            return false;
        };
        if self.shape.lru {
            self.by_age.remove(&self.age[entry as usize]);
        }
        self.free.push(entry);
        true
    }

    fn delete(&mut self, memory: &Memory, key: u64) -> Result<u64, Fault> {
        let key = memory.read(key, self.key as usize)?;
        match self.shape.kind {
            MapKind::Array | MapKind::OfMaps => Ok(number(EINVAL)),
            MapKind::Hash => Ok(if self.remove(key) { 0 } else { number(ENOENT) }),
            _ => Err(self.by_key()),
        }
    }

    /// The storage of `kind` of thread or group `t`, made if `create` with the bytes at `initial`.
    pub fn storage(
        &mut self,
        memory: &mut Memory,
        (kind, t): (MapKind, u32),
        initial: u64,
        create: bool,
    ) -> Result<u64, Fault> {
        if self.shape.kind != kind {
            return Err(Fault::new(format!(
                "uses the map {} as storage of another kind",
                self.name
            )));
        }
        let Some(held) = self.of_task.get(t as usize).copied() else {
            return Ok(0);
        };
        let entry = match held {
            Some(entry) => entry,
            None if !create => return Ok(0),
            None => {
                let entry = self.take(memory)?;
                if initial != 0 {
                    let bytes = memory.read(initial, self.value as usize)?.to_vec();
                    self.copy(memory, self.place(entry, 0), &bytes)?;
                }
                self.of_task[t as usize] = Some(entry);
                entry
            }
        };
        Ok(self.place(entry, 0))
    }

    /// Frees the storage of a thread or group.
    pub fn forget_task(&mut self, t: u32) -> u64 {
        match self.of_task.get_mut(t as usize).and_then(Option::take) {
            Some(entry) => {
                self.free.push(entry);
                0
            }
            None => number(ENOENT),
        }
    }

    /// The entry in which `at` lies, as the arguments of a timer's callback: where its key is (for
    /// an array: the index) and where its value begins.
    pub fn entry_at(&self, at: u64) -> Option<(Result<u64, u32>, u64)> {
        if !matches!(self.shape.kind, MapKind::Array | MapKind::Hash) {
            return None;
        }
        let entry = split(at).1 / self.stride();
        let value = self.place(entry, 0);
        match self.shape.kind {
            MapKind::Array => Some((Err(entry), value)),
            _ => Some((Ok(address(self.region, entry * self.stride())), value)),
        }
    }

    /// Whether a value has something special at this address.
    pub fn has_special(&self, at: u64, size: u32) -> bool {
        let within = self.entry_at(at).map(|(_, value)| at.wrapping_sub(value));
        within.is_some_and(|within| {
            let found = |(from, bytes): &(u32, u32)| u64::from(*from) == within && *bytes == size;
            self.special.iter().any(found)
        })
    }

    /// An array of maps has `inner` at this index.
    pub fn hold(&mut self, at: usize, inner: u32) {
        if self.shape.kind == MapKind::OfMaps && at < self.entries as usize && at < MOST_INNER {
            self.inner.resize(self.inner.len().max(at + 1), None);
            self.inner[at] = Some(inner);
        }
    }

    // ---- queues and stacks (kernel/bpf/queue_stack_maps.c) ----------------

    fn is_ordered(&self) -> Result<(), Fault> {
        match self.shape.kind {
            MapKind::Queue | MapKind::Stack => Ok(()),
            _ => Err(Fault::new(format!("uses the map {} as a queue", self.name))),
        }
    }

    pub fn push(&mut self, memory: &mut Memory, value: u64, flags: u64) -> Result<u64, Fault> {
        self.is_ordered()?;
        let value = memory.read(value, self.value as usize)?.to_vec();
        if flags != 0 && flags != 2 {
            return Ok(number(EINVAL));
        }
        if self.order.len() >= self.entries as usize {
            if flags != 2 {
                return Ok(number(E2BIG));
            }
            self.free.extend(self.order.pop_front());
        }
        let entry = self.take(memory)?;
        memory.write_from(self.place(entry, 0), &value)?;
        self.order.push_back(entry);
        Ok(0)
    }

    /// Copies the next value to `to`, and takes it away if `pop`.
    pub fn pop(&mut self, memory: &mut Memory, to: u64, pop: bool) -> Result<u64, Fault> {
        self.is_ordered()?;
        let newest = self.shape.kind == MapKind::Stack;
        let next = if newest {
            self.order.back()
        } else {
            self.order.front()
        };
        let Some(entry) = next.copied() else {
            memory.write_from(to, &vec![0; self.value as usize])?;
            return Ok(number(ENOENT));
        };
        let value = memory
            .read(self.place(entry, 0), self.value as usize)?
            .to_vec();
        memory.write_from(to, &value)?;
        if pop {
            let taken = if newest {
                self.order.pop_back()
            } else {
                self.order.pop_front()
            };
            self.free.extend(taken);
        }
        Ok(0)
    }

    pub fn is_arena(&self) -> bool {
        self.shape.kind == MapKind::Arena
    }

    // ---- ring buffers -----------------------------------------------------

    pub fn ring(&mut self) -> Result<(&mut Ring, u32, u32), Fault> {
        if self.shape.kind != MapKind::Ring {
            let what = format!("uses the map {} as a ring buffer", self.name);
            return Err(Fault::new(what));
        }
        Ok((&mut self.ring, self.region, self.entries))
    }

    /// Every entry's (key, value) of a hash, for `cpu`.
    pub fn elements(&self, cpu: u32) -> Result<Vec<(u64, u64)>, Fault> {
        if self.shape.kind != MapKind::Hash {
            return Err(Fault::new(format!(
                "goes through the map {}, which is no hash",
                self.name
            )));
        }
        let mut held: Vec<u32> = self.index.values().copied().collect();
        held.sort_unstable();
        let key = |entry: &u32| address(self.region, entry * self.stride());
        Ok(held
            .iter()
            .map(|entry| (key(entry), self.place(*entry, cpu)))
            .collect())
    }
}
