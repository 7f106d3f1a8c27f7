//! What a stack of the kernel, recorded when a thread left its CPU to sleep, says of the sleep.
//!
//! The first frame beyond the scheduler's own functions is where the thread sleeps. Farther out
//! stands how it came into the kernel: by a system call, whose function carries the call's name on
//! every architecture, or by a page fault.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::event::{Comm, Function};

/// Functions of the kernel by address, as /proc/kallsyms lists them.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Where each begins, in order.
    starts: Vec<u64>,
    names: Vec<Box<str>>,
}

/// No function is larger: an address farther from any belongs to none.
const LARGEST: u64 = 1 << 20;

impl Symbols {
    /// Reads lines `ADDRESS NAME`; others are left out.
    pub fn parse(text: &str) -> Self {
        let mut all: Vec<(u64, &str)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let start = u64::from_str_radix(words.next()?, 16).ok()?;
                Some((start, words.next()?))
            })
            .collect();
        all.sort_by_key(|&(start, _)| start);
        Self {
            starts: all.iter().map(|&(start, _)| start).collect(),
            names: all.iter().map(|&(_, name)| name.into()).collect(),
        }
    }

    /// The function that returns to `address`, without what compilers append (`.constprop.0`).
    fn name(&self, address: u64) -> Option<&str> {
        // A call that never returns is its function's last instruction.
        let inside = address.checked_sub(1)?;
        let at = self.starts.partition_point(|&start| start <= inside);
        let at = at.checked_sub(1)?;
        if inside - self.starts[at] > LARGEST {
            return None;
        }
        self.names[at].split('.').next()
    }
}

/// What a stack says of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sleep {
    /// Where the thread sleeps, if that has a name.
    pub function: Option<Function>,
    /// The system call that it made, or [`FAULT`].
    pub entry: Option<Comm>,
    pub io_wait: bool,
}

/// How the thread came into the kernel, if not by a system call.
pub const FAULT: &[u8] = b"page fault";

/// What one frame is.
#[derive(Debug, Clone, Copy)]
enum Frame {
    /// The function that switches threads: what stands before it is the tracer's.
    Switch,
    /// A way into the scheduler; for I/O?
    Schedule {
        io: bool,
    },
    Fault,
    Call(Comm),
    /// What a system call's own function calls first, and may have been merged with.
    Likely(Comm, Function),
    Other(Option<Function>),
}

/// Ahead of the name of a call: most specific first.
const CALLS: [&str; 10] = [
    "__x64_sys_",
    "__ia32_sys_",
    "__arm64_sys_",
    "__s390x_sys_",
    "__riscv_sys_",
    "__se_sys_",
    "__do_sys_",
    "ksys_",
    "__sys_",
    "sys_",
];

/// A call that ends in another function may leave no frame of its own.
const LIKELY: [(&str, &str); 13] = [
    ("kernel_wait4", "wait4"),
    ("kernel_clone", "clone"),
    ("do_futex", "futex"),
    ("do_epoll_wait", "epoll_wait"),
    ("do_sys_poll", "poll"),
    ("core_sys_select", "select"),
    ("do_sys_openat2", "openat"),
    ("do_fsync", "fsync"),
    ("do_readv", "readv"),
    ("do_writev", "writev"),
    ("kern_select", "select"),
    ("hrtimer_nanosleep", "nanosleep"),
    ("do_sigtimedwait", "rt_sigtimedwait"),
];

/// The handlers of exceptions that fetch memory, of all architectures.
const FAULTS: [&str; 10] = [
    "exc_page_fault",
    "asm_exc_page_fault",
    "do_user_addr_fault",
    "do_page_fault",
    "__do_page_fault",
    "___do_page_fault",
    "do_mem_abort",
    "do_translation_fault",
    "do_dat_exception",
    "handle_page_fault",
];

fn frame(name: &str) -> Frame {
    if name == "__schedule" {
        return Frame::Switch;
    }
    if name.starts_with("io_schedule") {
        return Frame::Schedule { io: true };
    }
    if name == "schedule"
        || name.starts_with("schedule_timeout")
        || name.starts_with("schedule_hrtimeout")
        || matches!(
            name,
            "__schedule_loop"
                | "schedule_preempt_disabled"
                | "schedule_rtlock"
                | "rt_mutex_schedule"
        )
    {
        return Frame::Schedule { io: false };
    }
    if FAULTS.contains(&name) {
        return Frame::Fault;
    }
    let call = |call: &str| Some(Comm::new(call.as_bytes())).filter(|_| call.len() < 24);
    let named = CALLS.iter().find_map(|prefix| name.strip_prefix(prefix));
    if let Some(entry) = named.and_then(call) {
        return Frame::Call(entry);
    }
    let function = Function::new(name.as_bytes());
    let likely = LIKELY.iter().find(|(likely, _)| *likely == name);
    if let (Some((_, entry)), Some(function)) = (likely, function)
        && let Some(entry) = call(entry)
    {
        return Frame::Likely(entry, function);
    }
    Frame::Other(function)
}

/// Reads stacks; the frames that were seen before are known.
#[derive(Debug, Default)]
pub struct Stacks {
    symbols: Arc<Symbols>,
    seen: FxHashMap<u64, Frame>,
}

impl Stacks {
    pub fn new(symbols: Arc<Symbols>) -> Self {
        Self {
            symbols,
            seen: FxHashMap::default(),
        }
    }

    /// What the stack of these return addresses, innermost first, says; None if nothing.
    pub fn sleep(&mut self, callers: impl Iterator<Item = u64>) -> Option<Sleep> {
        let (mut switched, mut io_wait) = (false, false);
        let (mut function, mut beyond) = (None, false);
        let (mut entry, mut likely) = (None, None);
        for address in callers {
            let symbols = &self.symbols;
            let known = self.seen.entry(address).or_insert_with(|| {
                let name = symbols.name(address);
                name.map_or(Frame::Other(None), frame)
            });
            match *known {
                Frame::Switch => switched = true,
                _ if !switched => {}
                Frame::Schedule { io } => io_wait |= io && !beyond,
                Frame::Fault => {
                    entry = entry.or(Some(Comm::new(FAULT)));
                    break;
                }
                // Of functions that call each other, the outermost is the one that was called.
                Frame::Call(call) => {
                    entry = Some(call);
                    beyond = true;
                }
                Frame::Likely(call, here) => {
                    likely = Some(call);
                    function = function.or(Some(here).filter(|_| !beyond));
                    beyond = true;
                }
                Frame::Other(here) => {
                    function = function.or(here.filter(|_| !beyond));
                    beyond = true;
                }
            }
        }
        let entry = entry.or(likely);
        let told = function.is_some() || entry.is_some() || io_wait;
        told.then_some(Sleep {
            function,
            entry,
            io_wait,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 trace_event_raw_event_sched_switch\n\
        ffffffff81000100 __schedule\n\
        ffffffff81000200 schedule\n\
        ffffffff81000300 io_schedule\n\
        ffffffff81000400 folio_wait_bit_common\n\
        ffffffff81000500 exc_page_fault\n\
        ffffffff81000600 futex_do_wait\n\
        ffffffff81000700 __x64_sys_futex\n\
        ffffffff81000800 do_syscall_64\n\
        ffffffff81000900 do_wait.constprop.0\n\
        ffffffff81000a00 kernel_wait4\n\
        ffffffff81000b00 ksys_read\n\
        ffffffff81000c00 __x64_sys_pread64\n\
        ffffffff81000d00 kthread\n\
        not a line\n";

    fn told(names: &[&str]) -> Option<(String, String, bool)> {
        let symbols = Symbols::parse(TEXT);
        let address = |name: &&str| {
            let at = symbols.names.iter().position(|known| &**known == *name);
            at.map_or(0x1000, |at| symbols.starts[at] + 0x42)
        };
        let callers: Vec<u64> = names.iter().map(address).collect();
        let sleep = Stacks::new(Arc::new(symbols)).sleep(callers.into_iter())?;
        Some((
            sleep.function.map_or_else(String::new, Function::to_text),
            sleep
                .entry
                .map_or_else(String::new, |entry| entry.to_text().to_string()),
            sleep.io_wait,
        ))
    }

    fn is(function: &str, entry: &str, io_wait: bool) -> Option<(String, String, bool)> {
        Some((function.into(), entry.into(), io_wait))
    }

    #[test]
    fn the_first_frame_beyond_the_scheduler_and_the_call_are_told() {
        let stack = [
            "trace_event_raw_event_sched_switch",
            "__schedule",
            "schedule",
            "futex_do_wait",
        ];
        let call = ["__x64_sys_futex", "do_syscall_64"];
        assert_eq!(
            told(&[&stack[..], &call[..]].concat()),
            is("futex_do_wait", "futex", false)
        );
        assert_eq!(
            told(&["__schedule", "schedule", "kthread"]),
            is("kthread", "", false)
        );
    }

    #[test]
    fn a_call_that_was_merged_with_what_it_calls_is_known_by_that() {
        let stack = [
            "__schedule",
            "schedule",
            "do_wait.constprop.0",
            "kernel_wait4",
            "do_syscall_64",
        ];
        assert_eq!(told(&stack), is("do_wait", "wait4", false));
    }

    #[test]
    fn the_outermost_of_the_functions_of_calls_is_the_call() {
        let stack = [
            "__schedule",
            "schedule",
            "folio_wait_bit_common",
            "ksys_read",
            "__x64_sys_pread64",
        ];
        assert_eq!(told(&stack), is("folio_wait_bit_common", "pread64", false));
    }

    #[test]
    fn a_page_fault_is_nearer_than_the_call_that_touched_the_memory() {
        let stack = [
            "__schedule",
            "schedule",
            "io_schedule",
            "folio_wait_bit_common",
            "exc_page_fault",
        ];
        let stack = [&stack[..], &["__x64_sys_pread64"]].concat();
        assert_eq!(
            told(&stack),
            is("folio_wait_bit_common", "page fault", true)
        );
    }

    #[test]
    fn a_stack_without_the_switch_or_without_names_says_nothing() {
        assert_eq!(told(&["folio_wait_bit_common", "ksys_read"]), None);
        assert_eq!(told(&["__schedule", "schedule", "far away"]), None);
        assert_eq!(told(&[]), None);
    }
}
