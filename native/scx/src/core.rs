//! The core of sched_ext, without the parts that call a scheduler: the threads as it sees them,
//! dispatch, the idle masks, and how a scheduler ends (kernel/sched/ext.c and ext_idle.c, Linux
//! 6.18; what differs from 6.12 is said where it does).
use rustc_hash::FxHashMap;
use schedscope_sim::machine::Cpu;
use schedscope_sim::policy::linux_weight;
use schedscope_sim::workload::{Tid, Workload};
use schedscope_sim::world::{RescheduleReason, State, World};

use super::fault::Fault;
use super::kernel_types::{self as k, KernelTypes};
use super::masks::{self, Masks};
use super::memory::{Access, Memory, address, split};
use super::queues::{Insertion, Queues};

/// Where a runnable thread that does not run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    No,
    Queue(u32),
    /// In the scheduler's own hands.
    Scheduler,
    Realtime,
}

/// What a callback may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// ops.select_cpu or ops.enqueue of this thread: it may be inserted directly.
    Enqueue(Tid),
    Dispatch,
    /// ops.cpu_release
    Release,
    /// A timer, or a program run before the scheduler begins.
    Timer,
    Other,
}

/// How a scheduler ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub at: i64,
    pub kind: i32,
    pub code: i64,
    pub reason: &'static str,
    pub message: String,
}

/// Where members that the core uses are in a `task_struct`.
struct Places {
    slice: u32,
    vtime: u32,
    weight: u32,
    flags: u32,
    dsq: u32,
    selected: u32,
    ran: u32,
    cpu: u32,
    on_cpu: u32,
    state: u32,
    allowed: u32,
    task_flags: u32,
    comm: u32,
    tgid: u32,
}

pub struct Insert {
    pub t: Tid,
    pub queue: u64,
    pub flags: u64,
    pub vtime: Option<u64>,
}

pub struct Core {
    pub queues: Queues,
    pub masks: Masks,
    pub held: Vec<Held>,
    pub runnable_at: Vec<i64>,
    pub context: Context,
    /// What ops.select_cpu or ops.enqueue has inserted.
    pub direct: Option<Insert>,
    /// What ops.dispatch has, until it ends or moves another.
    pub buffer: Vec<Insert>,
    pub batch: usize,
    /// Threads that this round of dispatch has moved.
    pub dispatched: u32,
    pub kicks: Vec<(Cpu, u64)>,
    /// Threads that ops.cpu_release gives back to ops.enqueue.
    pub again: Vec<Tid>,
    pub here: Cpu,
    /// The CPU that is choosing a thread.
    pub choosing: Option<Cpu>,
    /// The thread of each CPU, and whether it idles, as the kernel's queue has them.
    pub current: Vec<Option<Tid>>,
    pub is_idle: Vec<bool>,
    pub builtin_idle: bool,
    pub ended: Option<Ended>,
    /// Threads run in the order of arrival once the scheduler has ended.
    pub bypass: bool,
    pub tasks: u32,
    stride: u32,
    pub args: u32,
    pub texts: u32,
    pub dsqs: u32,
    pub rqs: u32,
    pub rq_stride: u32,
    rq_clocks: [u32; 3],
    places: Places,
    parents: [u32; 2],
    pub nthreads: usize,
    pub pids: Vec<i32>,
    pub jiffy: i64,
    smt: bool,
    several_llcs: bool,
    several_nodes: bool,
}

/// Bytes of a thread that a program may write (bpf_scx_btf_struct_access).
fn writable(kernel: &KernelTypes) -> Vec<(u32, u32)> {
    let at = |name| kernel.offset("task_struct", &["scx", name]);
    vec![(at("slice"), 8), (at("dsq_vtime"), 8), (at("disallow"), 1)]
}

const DSQ_ROOM: u32 = 16;

impl Core {
    pub fn new(memory: &mut Memory, load: &Workload, ncpu: usize) -> Result<Self, Fault> {
        let kernel = KernelTypes::new();
        let n = load.threads.len();
        let stride = kernel.size("task_struct").unwrap_or(8);
        let rq_stride = kernel.size("rq").unwrap_or(8);
        let access = Access::Fields {
            stride,
            fields: writable(&kernel),
        };
        let tasks = memory.add("the threads", stride as usize * n, access)?;
        let own = |path: &[&'static str]| kernel.offset("task_struct", path);
        let places = Places {
            slice: own(&["scx", "slice"]),
            vtime: own(&["scx", "dsq_vtime"]),
            weight: own(&["scx", "weight"]),
            flags: own(&["scx", "flags"]),
            dsq: own(&["scx", "dsq"]),
            selected: own(&["scx", "selected_cpu"]),
            ran: own(&["se", "sum_exec_runtime"]),
            cpu: own(&["thread_info", "cpu"]),
            on_cpu: own(&["on_cpu"]),
            state: own(&["__state"]),
            allowed: own(&["nr_cpus_allowed"]),
            task_flags: own(&["flags"]),
            comm: own(&["comm"]),
            tgid: own(&["tgid"]),
        };
        let mut core = Self {
            queues: Queues::new(ncpu, 1),
            masks: Masks::new(memory, ncpu, (address(tasks, own(&["cpus_mask"])), stride))?,
            held: vec![Held::No; n],
            runnable_at: vec![0; n],
            context: Context::Other,
            direct: None,
            buffer: Vec::new(),
            batch: 0,
            dispatched: 0,
            kicks: Vec::new(),
            again: Vec::new(),
            here: 0,
            choosing: None,
            current: vec![None; ncpu],
            is_idle: vec![true; ncpu],
            builtin_idle: true,
            ended: None,
            bypass: false,
            tasks,
            stride,
            args: memory.add("the arguments", 256, Access::ReadOnly)?,
            texts: memory.add("the kernel's texts", 1024, Access::ReadOnly)?,
            dsqs: memory.add("the dispatch queues", 0, Access::ReadOnly)?,
            rqs: memory.add("the runqueues", rq_stride as usize * ncpu, Access::ReadOnly)?,
            rq_stride,
            rq_clocks: ["clock", "clock_task", "clock_pelt"]
                .map(|name| kernel.offset("rq", &[name])),
            places,
            parents: [own(&["parent"]), own(&["real_parent"])],
            nthreads: n,
            pids: Vec::with_capacity(n),
            jiffy: 4_000_000,
            smt: false,
            several_llcs: false,
            several_nodes: false,
        };
        let numbered = load.threads.iter().zip(0..);
        let by_tid: FxHashMap<i64, Tid> = numbered.filter_map(|(l, t)| Some((l.tid?, t))).collect();
        for (t, spec) in load.threads.iter().enumerate() {
            let base = t as u32 * stride;
            let place = |path: &[&'static str]| base + kernel.offset("task_struct", path);
            // Threads that the trace does not number have numbers of their own.
            let tid = spec.tid.and_then(|tid| i32::try_from(tid).ok());
            let tid = tid.unwrap_or(1_000_000 + t as i32);
            let pid = spec
                .pid
                .and_then(|pid| i32::try_from(pid).ok())
                .unwrap_or(tid);
            core.pids.push(tid);
            memory.put32(tasks, place(&["pid"]), tid as u32);
            memory.put32(tasks, place(&["tgid"]), pid as u32);
            let comm: Vec<u8> = spec.name.bytes().take(15).collect();
            memory.put(tasks, place(&["comm"]), &comm);
            memory.put64(tasks, place(&["cpus_ptr"]), core.masks.of_thread(t as u32));
            let leader = spec.pid.and_then(|pid| by_tid.get(&pid).copied());
            let leader = core.task(leader.unwrap_or(t as Tid));
            memory.put64(tasks, place(&["group_leader"]), leader);
            memory.put64(tasks, place(&["scx", "ddsp_dsq_id"]), k::DSQ_INVALID);
            memory.put32(tasks, place(&["scx", "sticky_cpu"]), u32::MAX);
            memory.put32(tasks, place(&["scx", "holding_cpu"]), u32::MAX);
            core.set_slice(memory, t as Tid, k::SLICE_DFL);
        }
        for c in 0..ncpu as u32 {
            let at = c * rq_stride + kernel.offset("rq", &["cpu"]);
            memory.put32(core.rqs, at, c);
        }
        core.grow_dsqs(memory)?;
        Ok(core)
    }

    pub fn start(&mut self, memory: &mut Memory, w: &World) {
        let machine = &w.machine;
        self.smt = machine.cpus().any(|c| machine.smt(c).len() > 1);
        self.several_llcs = machine.llc_groups().len() > 1;
        self.several_nodes = machine.node_groups().len() > 1;
        self.queues = Queues::new(w.ncpu(), machine.node_groups().len().max(1));
        let all = schedscope_sim::machine::CpuSet::all(w.ncpu());
        self.masks.set(memory, masks::POSSIBLE, &all);
        for which in [masks::ONLINE, masks::IDLE, masks::IDLE_CORES] {
            self.masks.set(memory, which, machine.online());
        }
    }

    // ---- threads as programs see them -------------------------------------

    /// The address of a thread.
    pub fn task(&self, t: Tid) -> u64 {
        address(self.tasks, t * self.stride)
    }

    pub fn task_at(&self, at: u64) -> Result<Tid, Fault> {
        let (region, offset) = split(at);
        let t = offset / self.stride;
        if region == self.tasks && offset % self.stride == 0 && (t as usize) < self.nthreads {
            return Ok(t);
        }
        Err(Fault::new(format!("gives {at:#x} as a thread")))
    }

    fn place(&self, t: Tid, member: u32) -> u32 {
        t * self.stride + member
    }

    pub fn slice(&self, m: &Memory, t: Tid) -> u64 {
        m.get64(self.tasks, self.place(t, self.places.slice))
    }

    pub fn set_slice(&self, m: &mut Memory, t: Tid, slice: u64) {
        m.put64(self.tasks, self.place(t, self.places.slice), slice);
    }

    pub fn vtime(&self, m: &Memory, t: Tid) -> u64 {
        m.get64(self.tasks, self.place(t, self.places.vtime))
    }

    pub fn set_vtime(&self, m: &mut Memory, t: Tid, vtime: u64) {
        m.put64(self.tasks, self.place(t, self.places.vtime), vtime);
    }

    pub fn set_selected(&self, m: &mut Memory, t: Tid, cpu: i32) {
        m.put32(self.tasks, self.place(t, self.places.selected), cpu as u32);
    }

    pub fn is_queued(&self, m: &Memory, t: Tid) -> bool {
        m.get32(self.tasks, self.place(t, self.places.flags)) & k::TASK_QUEUED != 0
    }

    pub fn set_queued(&self, m: &mut Memory, t: Tid, yes: bool) {
        let at = self.place(t, self.places.flags);
        let flags = m.get32(self.tasks, at) & !k::TASK_QUEUED;
        m.put32(self.tasks, at, flags | (u32::from(yes) * k::TASK_QUEUED));
    }

    pub fn set_enabled(&self, m: &mut Memory, t: Tid, yes: bool) {
        let at = self.place(t, self.places.flags);
        let flags = m.get32(self.tasks, at) & !k::TASK_ENABLED;
        m.put32(self.tasks, at, flags | (u32::from(yes) * k::TASK_ENABLED));
    }

    pub fn set_exiting(&self, m: &mut Memory, t: Tid) {
        let at = self.place(t, self.places.task_flags);
        m.put32(self.tasks, at, k::PF_EXITING);
    }

    /// sched_weight_to_cgroup: 100 at nice 0.
    pub fn set_weight(&self, m: &mut Memory, w: &World, t: Tid) -> u32 {
        let weight = ((linux_weight(w, t) * 100 + 512) / 1024).clamp(1, 10_000) as u32;
        m.put32(self.tasks, self.place(t, self.places.weight), weight);
        weight
    }

    /// What a program may read of `t` and that changes with what it does.
    pub fn refresh(&self, m: &mut Memory, w: &World, t: Tid) {
        let th = w.thread(t);
        let on_cpu = self.current.get(th.cpu as usize).copied().flatten() == Some(t);
        m.put32(self.tasks, self.place(t, self.places.cpu), th.cpu.into());
        m.put32(self.tasks, self.place(t, self.places.on_cpu), on_cpu.into());
        let asleep = u32::from(matches!(th.state, State::Sleeping));
        m.put32(self.tasks, self.place(t, self.places.state), asleep);
    }

    /// Whether the CPUs that `t` may run on have changed.
    pub fn refresh_mask(&self, m: &mut Memory, w: &World, t: Tid) -> bool {
        let changed = self.masks.set_thread(m, t, w.mask(t));
        let n = w.mask(t).len() as u32;
        m.put32(self.tasks, self.place(t, self.places.allowed), n);
        changed
    }

    /// CPU time that `t` has had, ns.
    pub fn ran(&self, m: &Memory, t: Tid) -> i64 {
        m.get64(self.tasks, self.place(t, self.places.ran)) as i64
    }

    /// Charges who runs on `c` (update_curr_scx); says how much.
    pub fn charge(&self, m: &mut Memory, w: &mut World, c: Cpu, t: Tid) -> u64 {
        let ran = w.take_run(c).max(0) as u64;
        let at = self.place(t, self.places.ran);
        let before = m.get64(self.tasks, at);
        m.put64(self.tasks, at, before.wrapping_add(ran));
        let slice = self.slice(m, t);
        if slice != k::SLICE_INF {
            self.set_slice(m, t, slice - slice.min(ran));
        }
        ran
    }

    /// What a program may read of the queue of a CPU, whose thread is at `current`.
    pub fn refresh_queue(&self, m: &mut Memory, w: &World, c: Cpu, current: u64) -> u64 {
        let at = u32::from(c) * self.rq_stride;
        m.put64(self.rqs, at, current);
        m.put32(self.rqs, at + 12, w.cpu(c).nr_running());
        for clock in self.rq_clocks {
            m.put64(self.rqs, at + clock, w.now() as u64);
        }
        address(self.rqs, at)
    }

    // ---- dispatch ---------------------------------------------------------

    pub fn node_of(&self, w: &World, c: Cpu) -> usize {
        let groups = w.machine.node_groups().iter();
        groups.take_while(|group| !group.contains(&c)).count()
    }

    fn global_of(&self, w: &World, t: Tid) -> u32 {
        let node = self.node_of(w, w.thread(t).cpu);
        self.queues
            .global(node.min(w.machine.node_groups().len().saturating_sub(1)))
    }

    /// The queue of an id for `t`, which is on `c` (find_dsq_for_dispatch).
    fn queue_for(&mut self, w: &World, c: Cpu, id: u64, t: Tid) -> u32 {
        if id == k::DSQ_LOCAL {
            return self.queues.local(c);
        }
        if id & k::DSQ_LOCAL_ON == k::DSQ_LOCAL_ON {
            let cpu = id & 0xffff_ffff;
            if cpu < w.ncpu() as u64 {
                return self.queues.local(cpu as Cpu);
            }
            self.error(
                w,
                format!("invalid CPU {cpu} in SCX_DSQ_LOCAL_ON dispatch verdict"),
            );
            return self.global_of(w, t);
        }
        if id == k::DSQ_GLOBAL {
            return self.global_of(w, t);
        }
        match self.queues.find(id) {
            Some(queue) => queue,
            None => {
                let what = format!("non-existent DSQ {id:#x} for [{}]", self.pids[t as usize]);
                self.error(w, what);
                self.global_of(w, t)
            }
        }
    }

    /// Puts `t`, which is queued on its CPU, where an insertion says.
    pub fn dispatch_to(&mut self, m: &mut Memory, w: &mut World, c: Cpu, insert: &Insert) {
        let t = insert.t;
        let mut queue = self.queue_for(w, c, insert.queue, t);
        if let Some(to) = self.queues.cpu_of(queue)
            && !w.allowed(t, to)
        {
            let pid = self.pids[t as usize];
            self.error(
                w,
                format!("SCX_DSQ_LOCAL[_ON] target CPU {to} not allowed for [{pid}]"),
            );
            queue = self.global_of(w, t);
        }
        let how = Insertion {
            vtime: insert.vtime,
            ahead: insert.flags & (k::ENQ_HEAD | k::ENQ_PREEMPT) != 0,
        };
        self.put_in(m, w, queue, t, how, insert.flags & k::ENQ_PREEMPT != 0);
    }

    /// dispatch_enqueue
    pub fn put_in(
        &mut self,
        m: &mut Memory,
        w: &mut World,
        queue: u32,
        t: Tid,
        how: Insertion,
        preempt: bool,
    ) {
        let mut queue = queue;
        if let Err(what) = self.queues.insert(queue, t, how) {
            self.error(w, what);
            queue = self.global_of(w, t);
            if self.queues.insert(queue, t, Insertion::default()).is_err() {
                return;
            }
        }
        self.held[t as usize] = Held::Queue(queue);
        self.show_queue(m, queue);
        m.put64(
            self.tasks,
            self.place(t, self.places.dsq),
            self.dsq_address(queue),
        );
        let Some(c) = self.queues.cpu_of(queue) else {
            return;
        };
        if self.choosing == Some(c) {
            return;
        }
        if w.thread(t).state == State::Queued && w.thread(t).cpu != c {
            w.migrate(t, c);
        }
        // A thread of a lower class, which is idle, is preempted; one of this class if asked.
        let current = self.current[c as usize];
        match current {
            None => w.resched(c, RescheduleReason::Preempted),
            Some(running) if preempt && running != t && !w.thread(running).class.is_realtime() => {
                self.set_slice(m, running, 0);
                w.resched(c, RescheduleReason::Preempted);
            }
            Some(_) => {}
        }
    }

    /// Takes `t` out of its queue.
    pub fn take_out(&mut self, m: &mut Memory, t: Tid) {
        if let Held::Queue(queue) = self.held[t as usize] {
            self.queues.remove(queue, t);
            self.show_queue(m, queue);
            m.put64(self.tasks, self.place(t, self.places.dsq), 0);
        }
        self.held[t as usize] = Held::No;
    }

    /// Moves the first thread of `queue` that may run on `c` there (consume_dispatch_q).
    pub fn consume(&mut self, m: &mut Memory, w: &mut World, c: Cpu, queue: u32) -> bool {
        let found = self.queues.iter(queue).find(|t| w.allowed(*t, c));
        let Some(t) = found else { return false };
        self.take_out(m, t);
        let local = self.queues.local(c);
        // It is to be picked right away: the engine notes where it came from then.
        if self.queues.insert(local, t, Insertion::default()).is_ok() {
            self.held[t as usize] = Held::Queue(local);
            self.show_queue(m, local);
            m.put64(
                self.tasks,
                self.place(t, self.places.dsq),
                self.dsq_address(local),
            );
        }
        true
    }

    pub fn consume_global(&mut self, m: &mut Memory, w: &mut World, c: Cpu) -> bool {
        let queue = self.queues.global(self.node_of(w, c));
        self.consume(m, w, c, queue)
    }

    /// flush_dispatch_buf: what is not in the scheduler's hands any more is ignored.
    pub fn flush(&mut self, m: &mut Memory, w: &mut World) {
        for insert in std::mem::take(&mut self.buffer) {
            if self.held[insert.t as usize] == Held::Scheduler {
                self.held[insert.t as usize] = Held::No;
                self.dispatched += 1;
                let here = self.here;
                self.dispatch_to(m, w, here, &insert);
            }
        }
    }

    pub fn grow_dsqs(&mut self, m: &mut Memory) -> Result<(), Fault> {
        let room = self.queues.count() * DSQ_ROOM as usize;
        m.grow(self.dsqs, room.next_power_of_two())?;
        for queue in 0..self.queues.count() as u32 {
            let id = self.queues.get(queue).id;
            m.put64(self.dsqs, queue * DSQ_ROOM + 8, id);
        }
        Ok(())
    }

    pub fn new_dsq(&mut self, m: &mut Memory, queue: u32) -> Result<(), Fault> {
        let room = self.queues.count() * DSQ_ROOM as usize;
        m.grow(self.dsqs, room.next_power_of_two())?;
        let id = self.queues.get(queue).id;
        m.put64(self.dsqs, queue * DSQ_ROOM + 8, id);
        self.show_queue(m, queue);
        Ok(())
    }

    fn dsq_address(&self, queue: u32) -> u64 {
        address(self.dsqs, queue * DSQ_ROOM)
    }

    fn show_queue(&self, m: &mut Memory, queue: u32) {
        let n = self.queues.len(queue) as u32;
        m.put32(self.dsqs, queue * DSQ_ROOM, n);
    }

    // ---- idle CPUs --------------------------------------------------------

    /// update_builtin_idle
    pub fn mark_idle(&mut self, m: &mut Memory, w: &World, c: Cpu, idle: bool) {
        if !self.builtin_idle {
            return;
        }
        self.masks.put(m, masks::IDLE, c, idle);
        if !self.smt {
            return;
        }
        let siblings = w.machine.smt(c);
        if !idle || siblings.iter().all(|s| self.masks.has(m, masks::IDLE, *s)) {
            for s in siblings {
                self.masks.put(m, masks::IDLE_CORES, *s, idle);
            }
        }
    }

    /// scx_idle_test_and_clear_cpu
    pub fn claim(&mut self, m: &mut Memory, w: &World, c: Cpu) -> bool {
        if self.smt {
            for s in w.machine.smt(c) {
                self.masks.put(m, masks::IDLE_CORES, *s, false);
            }
        }
        let was = self.masks.has(m, masks::IDLE, c);
        self.masks.put(m, masks::IDLE, c, false);
        was
    }

    /// scx_pick_idle_cpu
    pub fn pick_idle(
        &mut self,
        m: &mut Memory,
        w: &World,
        allowed: &[u64],
        flags: u64,
    ) -> Result<Option<Cpu>, Fault> {
        for _ in 0..=2 * w.ncpu() {
            let mut found = None;
            if self.smt {
                let cores = self.masks.of_kernel(masks::IDLE_CORES);
                let cores = self.masks.words(m, cores)?;
                found = self.masks.any_and(self.here, &cores, allowed);
                if found.is_none() && flags & k::PICK_IDLE_CORE != 0 {
                    return Ok(None);
                }
            }
            if found.is_none() {
                let idle = self.masks.words(m, self.masks.of_kernel(masks::IDLE))?;
                found = self.masks.any_and(self.here, &idle, allowed);
            }
            let Some(c) = found else { return Ok(None) };
            if self.claim(m, w, c) {
                return Ok(Some(c));
            }
        }
        Ok(None)
    }

    /// scx_select_cpu_dfl, with the order by caches and NUMA nodes of 6.13 and later. `cpus`
    /// narrows the CPUs down (scx_bpf_select_cpu_and of 6.16).
    pub fn select_default(
        &mut self,
        m: &mut Memory,
        w: &World,
        t: Tid,
        prev: Cpu,
        flags: u64,
        cpus: Option<&[u64]>,
    ) -> Result<Option<Cpu>, Fault> {
        let mut allowed = self.masks.words(m, self.masks.of_thread(t))?;
        if let Some(cpus) = cpus {
            allowed.iter_mut().zip(cpus).for_each(|(a, b)| *a &= b);
        }
        let may = |c: Cpu| allowed[c as usize / 64] >> (c % 64) & 1 == 1;
        let everywhere = w.mask(t).len() == w.ncpu() && cpus.is_none();
        let narrowed = |cpus: &[Cpu]| {
            let mut words = vec![0; allowed.len()];
            cpus.iter()
                .for_each(|c| words[*c as usize / 64] |= 1 << (c % 64));
            words.iter_mut().zip(&allowed).for_each(|(a, b)| *a &= b);
            words
        };
        let mut near: Vec<Vec<u64>> = Vec::new();
        if everywhere && self.several_llcs {
            near.push(narrowed(w.machine.llc(prev)));
        }
        if everywhere && self.several_nodes {
            near.push(narrowed(w.machine.node(prev)));
        }
        near.push(allowed.clone());
        if flags & k::WAKE_SYNC != 0 {
            let here = self.here;
            if w.machine.llc(here).contains(&prev) && may(prev) && self.claim(m, w, prev) {
                return Ok(Some(prev));
            }
            let local = self.queues.local(here);
            if !self.masks.is_empty(m, masks::IDLE) && self.queues.len(local) == 0 && may(here) {
                return Ok(Some(here));
            }
        }
        if self.smt {
            if may(prev) && self.masks.has(m, masks::IDLE_CORES, prev) && self.claim(m, w, prev) {
                return Ok(Some(prev));
            }
            for cpus in &near {
                if let Some(c) = self.pick_idle(m, w, cpus, k::PICK_IDLE_CORE)? {
                    return Ok(Some(c));
                }
            }
        }
        if may(prev) && self.claim(m, w, prev) {
            return Ok(Some(prev));
        }
        for cpus in &near {
            if let Some(c) = self.pick_idle(m, w, cpus, 0)? {
                return Ok(Some(c));
            }
        }
        Ok(None)
    }

    // ---- the end ----------------------------------------------------------

    /// scx_ops_error
    pub fn error(&mut self, w: &World, message: String) {
        self.end(w, k::EXIT_ERROR, 0, message);
    }

    /// The first end is the one that counts.
    pub fn end(&mut self, w: &World, kind: i32, code: i64, message: String) {
        let reason = match kind {
            k::EXIT_UNREG_BPF => "unregistered from BPF",
            k::EXIT_ERROR => "runtime error",
            k::EXIT_ERROR_BPF => "scx_bpf_error",
            k::EXIT_ERROR_STALL => "runnable task stall",
            _ => "unregistered from user space",
        };
        self.ended.get_or_insert(Ended {
            at: w.now(),
            kind,
            code,
            reason,
            message,
        });
    }

    // ---- arguments of callbacks ------------------------------------------

    pub fn empty_args(&self) -> u64 {
        address(self.args, 0)
    }

    pub fn clear_args(&self, m: &mut Memory) {
        m.put64(self.args, 0, 0);
    }

    /// struct scx_init_task_args, and who the parent is.
    pub fn init_args(&self, m: &mut Memory, parent: Option<Tid>, child: Tid, group: u64) -> u64 {
        let parent_at = parent.map_or(0, |parent| self.task(parent));
        for member in self.parents {
            m.put64(self.tasks, self.place(child, member), parent_at);
        }
        m.put64(self.args, 0, parent.is_some().into());
        m.put64(self.args, 8, group);
        self.empty_args()
    }

    /// struct scx_cgroup_init_args: without a limit of bandwidth (RUNTIME_INF).
    pub fn group_args(&self, m: &mut Memory, weight: u32) -> u64 {
        for (at, word) in [(0, weight.into()), (8, 100_000), (16, u64::MAX), (24, 0)] {
            m.put64(self.args, at, word);
        }
        self.empty_args()
    }

    /// struct scx_cpu_release_args
    pub fn release_args(&self, m: &mut Memory, by: Tid) -> u64 {
        m.put64(self.args, 0, 0);
        m.put64(self.args, 8, self.task(by));
        self.empty_args()
    }

    /// struct scx_exit_info
    pub fn exit_info(&self, m: &mut Memory, ended: &Ended) -> u64 {
        let text = |m: &mut Memory, at: u32, text: &str| {
            let bytes: Vec<u8> = text.bytes().take(255).chain([0]).collect();
            m.put(self.texts, at, &bytes);
            address(self.texts, at)
        };
        let reason = text(m, 0, ended.reason);
        let message = text(m, 256, &ended.message);
        m.put64(self.args, 0, ended.kind as u64);
        m.put64(self.args, 8, ended.code as u64);
        m.put64(self.args, 16, reason);
        m.put64(self.args, 24, message);
        m.put64(self.args, 32, address(self.texts, 512));
        self.empty_args()
    }

    /// As the kernel's messages have it: "name[tid]".
    pub fn name_of(&self, m: &Memory, t: Tid) -> String {
        let comm = m.text(self.task(t) + u64::from(self.places.comm));
        format!("{}[{}]", comm.unwrap_or_default(), self.pids[t as usize])
    }

    pub fn tgid(&self, m: &Memory, t: Tid) -> i32 {
        m.get32(self.tasks, self.place(t, self.places.tgid)) as i32
    }

    pub fn has_smt(&self) -> bool {
        self.smt
    }

    pub fn is_enabled(&self, m: &Memory, t: Tid) -> bool {
        m.get32(self.tasks, self.place(t, self.places.flags)) & k::TASK_ENABLED != 0
    }

    /// What the default choice of a CPU does for a thread that gets an idle one.
    pub fn insert_here(&mut self, t: Tid) {
        self.direct = Some(Insert {
            t,
            queue: k::DSQ_LOCAL,
            flags: 0,
            vtime: None,
        });
    }
}
