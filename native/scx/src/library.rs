//! The arena library of sched-ext/scx (lib/arena.bpf.c, releases 1.0.17 and 1.1.1): schedulers that
//! are linked with it leave it to their own half to set the arena up and to describe the machine
//! (rust/scx_arena). What that half does is the same for all of them, and done here.
use schedscope_sim::machine::{Cpu, Machine};
use schedscope_sim::world::World;

use super::arena;
use super::memory::{Access, CODE, address};
use super::policy::Scheduler;
use crate::error::Error;

/// The struct of a thread's data, where settings do not name another one.
pub const TASK: &str = "task_ctx";
/// Pages that the library takes at once (STATIC_ALLOC_PAGES_GRANULARITY).
const PAGES: u64 = 8;

/// Its programs, by their first instruction.
#[derive(Debug, Clone)]
pub struct Library {
    pub init: u32,
    pub new_mask: u32,
    /// From 1.1.1 on: how many children a node of each level has at most.
    pub levels: Option<u32>,
    pub node: u32,
    /// Bytes of a thread's data.
    pub task: u32,
}

/// The most parts that a group of `outer` has in `inner`.
fn most(outer: &[Vec<Cpu>], inner: &[Vec<Cpu>]) -> u64 {
    let parts = |group: &Vec<Cpu>| {
        let within = inner.iter().filter(|part| group.contains(&part[0]));
        within.count() as u64
    };
    outer.iter().map(parts).max().unwrap_or(0)
}

impl Library {
    pub fn entries(&self) -> impl Iterator<Item = u32> {
        let own = [self.init, self.new_mask, self.node];
        own.into_iter().chain(self.levels)
    }

    /// Children of a node, of each level from the top to a CPU: two in a word.
    fn children(machine: &Machine) -> [u64; 3] {
        let all = vec![machine.cpus().collect::<Vec<Cpu>>()];
        let (nodes, caches) = (machine.node_groups(), machine.llc_groups());
        let cores = machine.core_groups();
        let cpus = cores.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let [top, node, cache] = [most(&all, nodes), most(nodes, caches), most(caches, cores)];
        [top | node << 32, cache | cpus << 32, 0]
    }
}

impl Scheduler {
    /// Before the scheduler begins.
    pub(crate) fn set_library_up(&mut self, w: &mut World) {
        let Some(library) = self.library.take() else {
            return;
        };
        let room = self.machine.memory.add("the context", 64, Access::Write);
        let context = match room {
            Ok(region) => address(region, 0),
            Err(fault) => return self.fail(w, "arena_init", &fault),
        };
        let task = u64::from(library.task);
        let mut fine = self.set_up_by(w, context, ("arena_init", library.init), &[PAGES, task]);
        if let Some(levels) = library.levels {
            let children = Library::children(&w.machine);
            fine = fine && self.set_up_by(w, context, ("arena_topology_init", levels), &children);
        }
        let machine = &w.machine;
        let numbered = |groups: &[Vec<Cpu>]| groups.iter().cloned().zip(0..).collect::<Vec<_>>();
        let mut nodes = vec![(machine.cpus().collect::<Vec<Cpu>>(), 0u64)];
        nodes.extend(numbered(machine.node_groups()));
        nodes.extend(numbered(machine.llc_groups()));
        nodes.extend(numbered(machine.core_groups()));
        nodes.extend(machine.cpus().map(|c| (vec![c], c.into())));
        for (cpus, id) in nodes {
            fine = fine && self.set_up_by(w, context, ("arena_alloc_mask", library.new_mask), &[0]);
            if !fine {
                return;
            }
            let mask = self.machine.memory.load(context, 8).unwrap_or(0);
            for c in cpus {
                let at = arena::for_kernel(mask).wrapping_add(u64::from(c) / 64 * 8);
                let memory = &mut self.machine.memory;
                let word = memory.load(at, 8).unwrap_or(0) | 1 << (c % 64);
                // What is written where the arena has no page is lost, as the scheduler's own.
                let _ = memory.store(at, 8, word);
            }
            let node = ("arena_topology_node_init", library.node);
            fine = self.set_up_by(w, context, node, &[mask, 0, id]);
        }
    }

    /// Runs one of the library's programs (BPF_PROG_RUN); whether it says that all is well.
    fn set_up_by(
        &mut self,
        w: &mut World,
        context: u64,
        (name, entry): (&str, u32),
        words: &[u64],
    ) -> bool {
        let to = (context >> 32) as u32;
        for (word, at) in words.iter().zip((0..).step_by(8)) {
            self.machine.memory.put64(to, at, *word);
        }
        match self.call_function(w, 0, address(CODE, entry), [context, 0, 0, 0, 0]) {
            Ok(answer) if answer as i32 == 0 => return true,
            Ok(answer) => w.fail(Error::usage(
                format!("{}: {name} answers {}", self.file, answer as i32),
                "0: without its arena the scheduler cannot begin",
                "settings of the object may be missing (rodata=, --set), such as nr_cpu_ids",
            )),
            Err(fault) => self.fail(w, name, &fault),
        }
        false
    }
}
