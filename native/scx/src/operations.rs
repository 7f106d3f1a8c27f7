//! The callbacks of a scheduler: `struct sched_ext_ops` (kernel/sched/ext.c of Linux 6.12,
//! ext_internal.h of 6.18).
use rustc_hash::FxHashMap;

use super::btf::{Btf, Member, Type};
use super::kernel_types as k;
use super::load::refused;
use crate::error::{Error, Result, plain};

macro_rules! callbacks {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// The callbacks that the simulator calls.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Callback { $($variant),* }

        impl Callback {
            pub const ALL: &[Callback] = &[$(Callback::$variant),*];
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

callbacks! {
    SelectCpu "select_cpu", Enqueue "enqueue", Dequeue "dequeue", Dispatch "dispatch", Tick "tick",
    Runnable "runnable", Running "running", Stopping "stopping", Quiescent "quiescent",
    Yield "yield", SetWeight "set_weight", SetCpumask "set_cpumask", UpdateIdle "update_idle",
    CpuAcquire "cpu_acquire", CpuRelease "cpu_release", CpuOnline "cpu_online",
    CpuOffline "cpu_offline", InitTask "init_task", ExitTask "exit_task", Enable "enable",
    Disable "disable", Init "init", Exit "exit", GroupInit "cgroup_init",
    GroupPrepMove "cgroup_prep_move", GroupMove "cgroup_move",
}

/// Callbacks that nothing simulated leads to: a debug dump, core scheduling, control groups that
/// go or change, and a move between them that fails.
const NEVER_CALLED: &[&str] = &[
    "dump",
    "dump_cpu",
    "dump_task",
    "core_sched_before",
    "cgroup_exit",
    "cgroup_cancel_move",
    "cgroup_set_weight",
    "cgroup_set_bandwidth",
    "cgroup_set_idle",
];

/// Members that settings may give: `ops.flags`.
const NUMBERS: &[&str] = &["flags", "timeout_ms", "dispatch_max_batch"];

/// The number of a member that a setting gives; flags also by their names, with `|` between.
pub fn given(member: &str, value: &str) -> Result<(String, u64)> {
    let known = NUMBERS.contains(&member);
    let words = value.split('|').map(str::trim);
    let numbers = words.map(|word| word.parse().ok().or_else(|| k::enumerator(word)));
    let number = numbers.reduce(|all, one| Some(all? | one?)).flatten();
    match number.filter(|_| known) {
        Some(number) => Ok((member.into(), number)),
        None => Err(Error::usage(
            plain(&format!("ops.{member}={value}")),
            "ops.flags, ops.timeout_ms or ops.dispatch_max_batch, as a number or SCX_OPS_A|SCX_OPS_B",
            "correct the setting",
        )),
    }
}

/// The kernel's own default and limit (SCX_WATCHDOG_MAX_TIMEOUT).
const TIMEOUT_MS: u32 = 30_000;
/// SCX_DSP_DFL_MAX_BATCH
const BATCH: u32 = 32;
/// More is no scheduler's.
const MOST_BATCH: u32 = 1 << 16;

#[derive(Debug, Clone, Default)]
pub struct Operations {
    pub name: String,
    pub flags: u64,
    pub timeout_ms: u32,
    pub batch: u32,
    /// First instruction of each, in the order of `Callback::ALL`.
    entries: Vec<Option<u32>>,
}

impl Operations {
    pub fn entry(&self, which: Callback) -> Option<u32> {
        self.entries.get(which as usize).copied().flatten()
    }

    pub fn has(&self, which: Callback) -> bool {
        self.entry(which).is_some()
    }

    /// `bytes`: the struct's; `pointers`: the functions by the place of their pointers in it;
    /// `given`: numbers that its own half would set, by the members' names.
    pub fn read(
        members: &[Member],
        btf: &Btf,
        bytes: &[u8],
        pointers: &FxHashMap<u32, (u32, String)>,
        given: &[(String, u64)],
    ) -> Result<Self> {
        let mut own = Self {
            timeout_ms: TIMEOUT_MS,
            batch: BATCH,
            entries: vec![None; Callback::ALL.len()],
            ..Self::default()
        };
        for member in members {
            let at = member.offset / 8;
            let name = member.name.as_str();
            if let Some((start, function)) = pointers.get(&at) {
                let known = Callback::ALL.iter().find(|c| c.name() == name);
                match known {
                    Some(which) => own.entries[*which as usize] = Some(*start),
                    None if NEVER_CALLED.contains(&name) => {}
                    None => {
                        return Err(Error::usage(
                            format!("it has ops.{name} ({function}), which is not simulated"),
                            "callbacks that the simulator can call",
                            "docs/policies/sched_ext-objects.md lists them",
                        ));
                    }
                }
                continue;
            }
            let size = match btf.resolve(member.kind).1 {
                Type::Int { size, .. } => *size as usize,
                Type::Array { .. } if name == "name" => {
                    let text = bytes.get(at as usize..).unwrap_or_default();
                    let end = text.iter().take(128).position(|b| *b == 0);
                    own.name = String::from_utf8_lossy(&text[..end.unwrap_or(0)]).into_owned();
                    continue;
                }
                _ => continue,
            };
            let mut word = [0; 8];
            let Some(found) = bytes.get(at as usize..at as usize + size.min(8)) else {
                return Err(refused("its sched_ext_ops is cut short"));
            };
            word[..found.len()].copy_from_slice(found);
            let set = given.iter().find(|(called, _)| called == name);
            let value = set.map_or(u64::from_le_bytes(word), |(_, value)| *value);
            match name {
                "flags" => own.flags = value,
                "timeout_ms" if value > 0 => own.timeout_ms = value.min(1 << 31) as u32,
                "dispatch_max_batch" if value > 0 => {
                    own.batch = u32::try_from(value).unwrap_or(MOST_BATCH).min(MOST_BATCH);
                }
                _ => {}
            }
        }
        own.check()?;
        Ok(own)
    }

    /// What the kernel refuses (`validate_ops`), and what is not simulated.
    fn check(&self) -> Result<()> {
        let refuse = |what: String, expected: &str| {
            Err(Error::usage(
                what,
                expected.to_string(),
                "docs/policies/sched_ext-objects.md says what is simulated",
            ))
        };
        if self.name.is_empty() {
            return refuse(
                "its sched_ext_ops has no name".into(),
                "a name, as the kernel does",
            );
        }
        if self.timeout_ms > TIMEOUT_MS {
            return refuse(
                format!("timeout_ms is {}", self.timeout_ms),
                "at most 30000, as the kernel allows",
            );
        }
        if self.flags & k::OPS_ENQ_LAST != 0 && !self.has(Callback::Enqueue) {
            return refuse(
                "it has the flag SCX_OPS_ENQ_LAST without ops.enqueue".into(),
                "both, as the kernel demands",
            );
        }
        if self.flags & k::OPS_SWITCH_PARTIAL != 0 {
            return refuse(
                "it has the flag SCX_OPS_SWITCH_PARTIAL".into(),
                "a scheduler of all threads: recordings do not show who is in class ext",
            );
        }
        let known = k::OPS_WITHOUT_EFFECT
            | k::OPS_ENQ_LAST
            | k::OPS_ENQ_EXITING
            | k::OPS_KEEP_BUILTIN_IDLE
            | k::OPS_BUILTIN_IDLE_PER_NODE;
        if self.flags & !known != 0 {
            return refuse(
                format!("it has the flags {:#x}", self.flags & !known),
                "flags that are simulated",
            );
        }
        Ok(())
    }

    /// Whether the kernel keeps track of idle CPUs by itself.
    pub fn builtin_idle(&self) -> bool {
        !self.has(Callback::UpdateIdle) || self.flags & k::OPS_KEEP_BUILTIN_IDLE != 0
    }
}
