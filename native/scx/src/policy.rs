//! A scheduler as a policy: which callback the kernel makes when, and what it does around it
//! (`select_task_rq_scx`, `enqueue_task_scx`, `do_enqueue_task`, `balance_one`, `pick_task_scx`,
//! `put_prev_task_scx`, `set_next_task_scx`, `task_tick_scx`, `scx_watchdog_workfn` of
//! kernel/sched/ext.c, Linux 6.12 and 6.18).
use std::sync::{Arc, Mutex};

use schedscope_sim::machine::Cpu;
use schedscope_sim::policy::{
    Clocks, EnqueueReason, Policy, RtQueues, SelectReason, SwitchOutReason, Wake,
};
use schedscope_sim::workload::Tid;
use schedscope_sim::world::{RescheduleReason, State, World};

use super::calls::Host;
use super::core::{Context, Core, Ended, Held};
use super::fault::Fault;
use super::groups::Groups;
use super::iterators::Iterators;
use super::kernel_types as k;
use super::library::Library;
use super::maps::Maps;
use super::masks;
use super::memory::{Access, CODE, MAPS, address};
use super::operations::{Callback, Operations};
use super::queues::Insertion;
use super::vm::Machine;
use crate::error::{Error, plain};

/// SCX_DSP_MAX_LOOPS
const ROUNDS: u32 = 32;
/// The watchdog's timer; those of the CPUs follow, then the scheduler's own.
const WATCHDOG: u32 = 0;
/// Kicks of a CPU that take no time, in one instant; and what each takes after that.
const MOST_KICKS: u32 = 16;
const INTERRUPT_NS: i64 = 1_000;
const PLAIN: Insertion = Insertion {
    vtime: None,
    ahead: false,
};

/// What is said of a run when it is over.
#[derive(Debug, Default)]
pub struct Outcome {
    pub ended: Option<Ended>,
    pub callbacks: u64,
    pub instructions: u64,
}

pub struct Scheduler {
    pub(crate) file: String,
    pub(crate) machine: Machine,
    pub(crate) maps: Maps,
    pub(crate) groups: Groups,
    pub(crate) operations: Operations,
    pub(crate) core: Core,
    pub(crate) rt: RtQueues,
    pub(crate) functions: Vec<(String, usize)>,
    pub(crate) before: Vec<(u32, Vec<i32>)>,
    pub(crate) library: Option<Library>,
    pub(crate) hz: u32,
    /// The thread that has just left each CPU, until that has chosen.
    pub(crate) previous: Vec<Option<Tid>>,
    /// When each CPU was last kicked, and how often in that instant.
    pub(crate) kicked: Vec<(i64, u32)>,
    /// The scheduler was notified that another class has the CPU.
    pub(crate) released: Vec<bool>,
    /// By thread: ops.select_cpu was called for its enqueue to come.
    pub(crate) selected: Vec<bool>,
    /// By thread: the CPU time after which it is exiting, ns.
    pub(crate) exits_after: Vec<Option<i64>>,
    /// By thread: if it wants a CPU when it appears, it has just been woken.
    pub(crate) wakes_at_start: Vec<bool>,
    pub(crate) outcome: Arc<Mutex<Outcome>>,
}

/// What `balance_one` finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Balance {
    Keep,
    Tasks,
    Nothing,
}

impl Scheduler {
    pub(crate) fn has(&self, which: Callback) -> bool {
        !self.core.bypass && self.operations.has(which)
    }

    /// Makes a callback on CPU `here`; `None` if the scheduler has none, or is over.
    pub(crate) fn call(
        &mut self,
        w: &mut World,
        which: Callback,
        here: Cpu,
        context: Context,
        args: &[u64],
    ) -> Option<u64> {
        if self.core.bypass && which != Callback::Exit {
            return None;
        }
        let entry = self.operations.entry(which)?;
        self.core.here = here;
        self.core.context = context;
        let mut host = Host {
            core: &mut self.core,
            maps: &mut self.maps,
            groups: &mut self.groups,
            iterators: Iterators::default(),
            w,
        };
        let answer = self.machine.call(&mut host, entry, args);
        self.core.context = Context::Other;
        match answer {
            Ok(value) => {
                self.act(w);
                Some(value)
            }
            Err(fault) => {
                self.fail(w, &format!("ops.{}", which.name()), &fault);
                None
            }
        }
    }

    /// A function of the scheduler's, outside of its callbacks.
    pub(crate) fn call_function(
        &mut self,
        w: &mut World,
        here: Cpu,
        code: u64,
        args: [u64; 5],
    ) -> Result<u64, Fault> {
        (self.core.here, self.core.context) = (here, Context::Timer);
        let mut host = Host {
            core: &mut self.core,
            maps: &mut self.maps,
            groups: &mut self.groups,
            iterators: Iterators::default(),
            w,
        };
        let answer = self.machine.callback(&mut host, code, args);
        self.core.context = Context::Other;
        answer
    }

    /// The callback of one of the scheduler's timers (bpf_timer_cb).
    fn fire(&mut self, w: &mut World, number: u32) {
        let Some(timer) = self.maps.timers.fire(number) else {
            return;
        };
        let region = self.maps.timers.key;
        let entry = self
            .maps
            .at(timer.map)
            .and_then(|map| map.entry_at(timer.at));
        let Some((key, value)) = entry else { return };
        let key = key.unwrap_or_else(|index| {
            self.machine.memory.put32(region, 0, index);
            address(region, 0)
        });
        self.maps.timers.running = Some(number);
        let args = [address(MAPS, timer.map), key, value, 0, 0];
        let answer = self.call_function(w, timer.cpu, timer.callback, args);
        self.maps.timers.running = None;
        match answer {
            Ok(_) => self.act(w),
            Err(fault) => self.fail(w, "a timer", &fault),
        }
    }

    /// The callback of one thread.
    pub(crate) fn of_thread(
        &mut self,
        w: &mut World,
        which: Callback,
        here: Cpu,
        t: Tid,
        more: Option<u64>,
    ) -> Option<u64> {
        if !self.has(which) {
            return None;
        }
        self.core.refresh(&mut self.machine.memory, w, t);
        let context = match which {
            Callback::SelectCpu | Callback::Enqueue => Context::Enqueue(t),
            _ => Context::Other,
        };
        let args = [self.core.task(t), more.unwrap_or(0)];
        self.call(w, which, here, context, &args)
    }

    /// The kernel's verifier would have refused the object.
    pub(crate) fn fail(&mut self, w: &mut World, which: &str, fault: &Fault) {
        let at = fault.at.map_or_else(String::new, |at| {
            let own = self
                .functions
                .iter()
                .rev()
                .find(|(_, from)| *from <= at as usize);
            own.map_or_else(String::new, |(name, from)| {
                format!(" (instruction {} of {name})", at as usize - from)
            })
        });
        w.fail(Error::usage(
            plain(&format!(
                "{}: at {} ns {which} {}{at}",
                self.file,
                w.now(),
                fault.what
            )),
            "a program that the kernel's verifier accepts",
            "load it on a kernel, which says more of the program",
        ));
    }

    /// After a callback: CPUs that it has kicked, and its end.
    fn act(&mut self, w: &mut World) {
        for (c, flags) in std::mem::take(&mut self.core.kicks) {
            self.kick(w, c, flags);
        }
        if self.core.ended.is_some() && !self.core.bypass {
            self.leave(w);
        }
    }

    /// kick_one_cpu, kick_one_cpu_if_idle
    fn kick(&mut self, w: &mut World, c: Cpu, flags: u64) {
        let current = self.core.current[c as usize];
        if flags & k::KICK_IDLE != 0 && current.is_some() {
            return;
        }
        // Over a CPU that runs a higher class it has no power (later kernels; 6.12 interrupts it).
        if current.is_some_and(|t| w.thread(t).class.is_realtime()) {
            return;
        }
        if flags & k::KICK_PREEMPT != 0
            && let Some(t) = current
        {
            self.core.set_slice(&mut self.machine.memory, t, 0);
        }
        let (last, times) = &mut self.kicked[c as usize];
        *times = if *last == w.now() { *times + 1 } else { 0 };
        *last = w.now();
        if *times >= MOST_KICKS {
            // CPUs that go on kicking each other let time pass.
            w.arm_timer(1 + u32::from(c), w.now() + INTERRUPT_NS);
        } else if self.core.choosing == Some(c) {
            // An interrupt notifies it once it has chosen.
            w.arm_timer(1 + u32::from(c), w.now());
        } else {
            w.resched(c, RescheduleReason::Preempted);
        }
    }

    /// The scheduler is over: its threads run in the order of arrival (scx_ops_bypass).
    fn leave(&mut self, w: &mut World) {
        self.core.bypass = true;
        self.core.direct = None;
        self.core.buffer.clear();
        let ended = self.core.ended.clone();
        let memory = &mut self.machine.memory;
        let mut waiting: Vec<Tid> = Vec::new();
        for queue in w.ncpu() as u32..self.core.queues.count() as u32 {
            waiting.extend(self.core.queues.iter(queue));
        }
        let all = 0..w.nthreads() as Tid;
        let mut own: Vec<Tid> = all
            .filter(|t| self.core.held[*t as usize] == Held::Scheduler)
            .collect();
        own.sort_by_key(|t| (self.core.runnable_at[*t as usize], *t));
        waiting.extend(own);
        for t in waiting {
            self.core.take_out(memory, t);
            self.core.set_slice(memory, t, k::SLICE_DFL);
            let queue = self
                .core
                .queues
                .global(self.core.node_of(w, w.thread(t).cpu));
            self.core.put_in(memory, w, queue, t, PLAIN, false);
        }
        for c in 0..w.ncpu() as Cpu {
            self.kick(w, c, 0);
        }
        if let (Some(ended), true) = (&ended, self.operations.has(Callback::Exit)) {
            let info = self.core.exit_info(&mut self.machine.memory, ended);
            self.call(w, Callback::Exit, 0, Context::Other, &[info]);
        }
    }

    fn set_runnable(&mut self, w: &World, t: Tid) {
        self.core.runnable_at[t as usize] = w.now();
    }

    /// do_enqueue_task
    pub(crate) fn do_enqueue(&mut self, w: &mut World, c: Cpu, t: Tid, flags: u64) {
        if !self.core.bypass && self.core.direct.is_none() {
            // Only a scheduler that asks for it hears of a thread that is exiting.
            if self.is_exiting(t) && self.operations.flags & k::OPS_ENQ_EXITING == 0 {
                let memory = &mut self.machine.memory;
                self.core.set_exiting(memory, t);
                self.core.set_slice(memory, t, k::SLICE_DFL);
                let local = self.core.queues.local(c);
                self.core.put_in(memory, w, local, t, PLAIN, false);
                return;
            }
            if !self.operations.has(Callback::Enqueue) {
                self.put_in_global(w, t);
                return;
            }
            self.of_thread(w, Callback::Enqueue, c, t, Some(flags));
        }
        match self.core.direct.take() {
            _ if self.core.bypass => self.put_in_global(w, t),
            Some(mut insert) => {
                insert.flags |= flags;
                self.core
                    .dispatch_to(&mut self.machine.memory, w, c, &insert);
                self.act(w);
            }
            None => self.core.held[t as usize] = Held::Scheduler,
        }
    }

    fn is_exiting(&self, t: Tid) -> bool {
        let ran = self.core.ran(&self.machine.memory, t);
        self.exits_after[t as usize].is_some_and(|at| ran >= at)
    }

    fn put_in_global(&mut self, w: &mut World, t: Tid) {
        let memory = &mut self.machine.memory;
        self.core.set_slice(memory, t, k::SLICE_DFL);
        let queue = self
            .core
            .queues
            .global(self.core.node_of(w, w.thread(t).cpu));
        self.core.put_in(memory, w, queue, t, PLAIN, false);
    }

    /// Out of where it waits; the scheduler hears of it if it had the thread (ops_dequeue).
    pub(crate) fn take_out(&mut self, w: &mut World, t: Tid, flags: u64) {
        let had = self.core.held[t as usize] == Held::Scheduler;
        self.core.take_out(&mut self.machine.memory, t);
        if had {
            let here = w.thread(t).cpu;
            self.of_thread(w, Callback::Dequeue, here, t, Some(flags));
        }
    }

    /// scx_ops_enable_task
    fn enable(&mut self, w: &mut World, t: Tid) {
        let here = w.thread(t).cpu;
        let weight = self.core.set_weight(&mut self.machine.memory, w, t);
        self.of_thread(w, Callback::Enable, here, t, None);
        self.core.set_enabled(&mut self.machine.memory, t, true);
        self.of_thread(w, Callback::SetWeight, here, t, Some(weight.into()));
    }

    fn disable(&mut self, w: &mut World, t: Tid) {
        let here = w.thread(t).cpu;
        self.of_thread(w, Callback::Disable, here, t, None);
        self.core.set_enabled(&mut self.machine.memory, t, false);
    }

    /// balance_one
    fn balance(&mut self, w: &mut World, c: Cpu, previous: Option<Tid>) -> Balance {
        if std::mem::take(&mut self.released[c as usize]) {
            let args = self.core.empty_args();
            self.call(
                w,
                Callback::CpuAcquire,
                c,
                Context::Other,
                &[c.into(), args],
            );
        }
        let runnable = previous.filter(|t| self.core.is_queued(&self.machine.memory, *t));
        let goes_on = |own: &Self| {
            runnable.is_some_and(|t| own.core.slice(&own.machine.memory, t) > 0 && !own.core.bypass)
        };
        if goes_on(self) {
            return Balance::Keep;
        }
        let local = self.core.queues.local(c);
        if self.core.queues.len(local) > 0 || self.consume_global(w, c) {
            return Balance::Tasks;
        }
        let mut rounds = ROUNDS;
        while self.has(Callback::Dispatch) && w.is_online(c) {
            self.core.dispatched = 0;
            self.core.batch = self.operations.batch as usize;
            let task = previous.map_or(0, |t| self.core.task(t));
            if let Some(t) = previous {
                self.core.refresh(&mut self.machine.memory, w, t);
            }
            let args = [c.into(), task];
            if self
                .call(w, Callback::Dispatch, c, Context::Dispatch, &args)
                .is_none()
            {
                break;
            }
            self.core.flush(&mut self.machine.memory, w);
            self.act(w);
            if goes_on(self) {
                return Balance::Keep;
            }
            if self.core.queues.len(local) > 0 || self.consume_global(w, c) {
                return Balance::Tasks;
            }
            if self.core.dispatched == 0 {
                break;
            }
            rounds -= 1;
            if rounds == 0 {
                self.kick(w, c, 0);
                break;
            }
        }
        if self.core.bypass && self.consume_global(w, c) {
            return Balance::Tasks;
        }
        let last = self.operations.flags & k::OPS_ENQ_LAST != 0 && !self.core.bypass;
        if runnable.is_some() && !last {
            return Balance::Keep;
        }
        Balance::Nothing
    }

    fn consume_global(&mut self, w: &mut World, c: Cpu) -> bool {
        self.core.consume_global(&mut self.machine.memory, w, c)
    }

    /// put_prev_task_scx of a thread that is still runnable.
    fn put_back(&mut self, w: &mut World, c: Cpu, t: Tid, flags: u64) {
        self.of_thread(w, Callback::Stopping, c, t, Some(1));
        self.set_runnable(w, t);
        let memory = &mut self.machine.memory;
        if self.core.slice(memory, t) > 0 && !self.core.bypass {
            let local = self.core.queues.local(c);
            let ahead = Insertion {
                vtime: None,
                ahead: true,
            };
            self.core.put_in(memory, w, local, t, ahead, false);
        } else {
            self.do_enqueue(w, c, t, flags);
        }
    }

    /// Notifies of a CPU that becomes or stops being idle (__scx_update_idle; the masks first, as
    /// from 6.14 on).
    fn update_idle(&mut self, w: &mut World, c: Cpu, idle: bool) {
        let was = std::mem::replace(&mut self.core.is_idle[c as usize], idle);
        if was || idle {
            self.core.mark_idle(&mut self.machine.memory, w, c, idle);
        }
        if was != idle {
            let args = [c.into(), idle.into()];
            self.call(w, Callback::UpdateIdle, c, Context::Other, &args);
        }
    }

    /// What remains in the local queue of `c` is on that CPU.
    fn bring_home(&mut self, w: &mut World, c: Cpu, but: Option<Tid>) {
        let local = self.core.queues.local(c);
        if self.core.queues.len(local) == 0 {
            return;
        }
        let away = |t: &Tid| Some(*t) != but && w.thread(*t).cpu != c;
        let away: Vec<Tid> = self.core.queues.iter(local).filter(away).collect();
        for t in away {
            w.migrate(t, c);
        }
    }

    fn choose(&mut self, w: &mut World, c: Cpu) -> Option<Tid> {
        let previous = self.previous[c as usize].take();
        let gone = previous.filter(|t| w.thread(*t).state == State::Dead);
        let realtime =
            self.core.current[c as usize].is_some_and(|t| w.thread(t).class.is_realtime());
        // Real-time threads that follow each other never come to this class.
        let balance = if realtime && self.rt.len(c) > 0 {
            Balance::Nothing
        } else {
            self.balance(w, c, previous)
        };
        let previous = previous.filter(|t| {
            self.core.held[*t as usize] == Held::No && self.core.is_queued(&self.machine.memory, *t)
        });
        let chosen = match self.rt.pop(w, c) {
            Some(t) => {
                if let Some(p) = previous {
                    self.put_back(w, c, p, 0);
                }
                if !std::mem::replace(&mut self.released[c as usize], true) {
                    self.release(w, c, t);
                }
                Some(t)
            }
            None => self.next(w, c, previous, balance),
        };
        if chosen.is_some() {
            self.update_idle(w, c, false);
        }
        if let Some(t) = chosen
            && !w.thread(t).class.is_realtime()
            && (previous != Some(t) || balance != Balance::Keep)
        {
            self.core.current[c as usize] = chosen;
            self.of_thread(w, Callback::Running, c, t, None);
        }
        self.core.current[c as usize] = chosen;
        if chosen.is_none() {
            self.update_idle(w, c, true);
        }
        if let Some(t) = gone {
            self.exit_task(w, t);
        }
        self.bring_home(w, c, chosen);
        chosen
    }

    fn next(
        &mut self,
        w: &mut World,
        c: Cpu,
        previous: Option<Tid>,
        balance: Balance,
    ) -> Option<Tid> {
        if balance == Balance::Keep
            && let Some(t) = previous
        {
            if self.core.slice(&self.machine.memory, t) == 0 {
                self.core
                    .set_slice(&mut self.machine.memory, t, k::SLICE_DFL);
            }
            return Some(t);
        }
        let local = self.core.queues.local(c);
        let first = self.core.queues.first(local);
        if let Some(p) = previous {
            let flags = if first.is_some() { 0 } else { k::ENQ_LAST };
            self.put_back(w, c, p, flags);
        }
        let t = first?;
        if self.core.held[t as usize] != Held::Queue(local) {
            return None;
        }
        self.core.take_out(&mut self.machine.memory, t);
        if self.core.slice(&self.machine.memory, t) == 0 {
            self.core
                .set_slice(&mut self.machine.memory, t, k::SLICE_DFL);
        }
        Some(t)
    }

    /// switch_class
    fn release(&mut self, w: &mut World, c: Cpu, by: Tid) {
        let args = self.core.release_args(&mut self.machine.memory, by);
        self.call(
            w,
            Callback::CpuRelease,
            c,
            Context::Release,
            &[c.into(), args],
        );
        for t in std::mem::take(&mut self.core.again) {
            self.do_enqueue(w, c, t, k::ENQ_REENQ);
        }
    }

    fn exit_task(&mut self, w: &mut World, t: Tid) {
        self.disable(w, t);
        let args = self.core.empty_args();
        self.core.clear_args(&mut self.machine.memory);
        self.of_thread(w, Callback::ExitTask, w.thread(t).cpu, t, Some(args));
        for at in self.maps.held_by(&self.machine.memory, t) {
            if self.core.masks.release(at).is_err() {
                // An object of its own; what is neither the kernel does not own.
                let _ = self.maps.trees.drop(at);
            }
        }
        self.maps.forget_task(t);
    }
}

impl Policy for Scheduler {
    fn clocks(&self) -> Clocks {
        Clocks {
            hz: self.hz,
            ..Clocks::default()
        }
    }

    fn init(&mut self, w: &mut World) {
        self.core.start(&mut self.machine.memory, w);
        self.core.builtin_idle = self.operations.builtin_idle();
        if let Err(fault) = self.core.grow_dsqs(&mut self.machine.memory) {
            self.fail(w, "ops.init", &fault);
        }
        self.set_library_up(w);
        self.run_before(w);
        let answer = self.call(w, Callback::Init, 0, Context::Other, &[]);
        self.must_be_zero(w, Callback::Init, answer);
        self.init_groups(w);
        let half = i64::from(self.operations.timeout_ms) * 500_000;
        w.arm_timer(WATCHDOG, w.now() + half);
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        self.core.refresh_mask(&mut self.machine.memory, w, child);
        let here = w.thread(child).cpu;
        let args = self.init_args(parent, child);
        let answer = self.of_thread(w, Callback::InitTask, here, child, Some(args));
        self.must_be_zero(w, Callback::InitTask, answer);
        if !w.thread(child).class.is_realtime() {
            self.enable(w, child);
            if self.has(Callback::SetCpumask) {
                let mask = self.core.masks.of_thread(child);
                self.of_thread(w, Callback::SetCpumask, here, child, Some(mask));
            }
        }
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        if w.thread(t).class.is_realtime() {
            return self.rt.select_cpu(w, t);
        }
        let previous = w.thread(t).cpu;
        let first = w.mask(t).iter().next().unwrap_or(0);
        let (wake, flags) = match place {
            SelectReason::Wake(wake) => (wake, k::WAKE_TTWU),
            SelectReason::Fork(wake) if self.wakes_at_start[t as usize] => (wake, k::WAKE_TTWU),
            SelectReason::Fork(wake) => (wake, k::WAKE_FORK),
            SelectReason::Moved | SelectReason::Offline => return first,
        };
        // A thread of one CPU has no choice (select_task_rq of kernel/sched/core.c).
        if w.mask(t).len() == 1 {
            return first;
        }
        let flags = flags | (u64::from(wake.sync) * k::WAKE_SYNC);
        let fallback = if w.allowed(t, previous) {
            previous
        } else {
            first
        };
        if self.core.bypass {
            return fallback;
        }
        self.selected[t as usize] = true;
        if !self.operations.has(Callback::SelectCpu) {
            self.core.here = wake.cpu;
            let memory = &mut self.machine.memory;
            let found = self
                .core
                .select_default(memory, w, t, previous, flags, None);
            let Ok(Some(c)) = found else { return fallback };
            self.core.set_slice(memory, t, k::SLICE_DFL);
            self.core.insert_here(t);
            return c;
        }
        self.core.refresh(&mut self.machine.memory, w, t);
        let args = [self.core.task(t), previous.into(), flags];
        let context = Context::Enqueue(t);
        let answer = self.call(w, Callback::SelectCpu, wake.cpu, context, &args);
        let Some(answer) = answer else {
            return fallback;
        };
        let c = answer as i32;
        self.core.set_selected(&mut self.machine.memory, t, c);
        match Cpu::try_from(c) {
            Ok(c) if usize::from(c) < w.ncpu() && w.allowed(t, c) => c,
            Ok(c) if usize::from(c) < w.ncpu() => fallback,
            _ => {
                self.core
                    .error(w, format!("invalid CPU {c} from ops.select_cpu()"));
                self.act(w);
                fallback
            }
        }
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        let selected = std::mem::take(&mut self.selected[t as usize]);
        if w.thread(t).class.is_realtime() {
            self.core.direct = None;
            self.core.held[t as usize] = Held::Realtime;
            self.rt.push(w, cpu, t, false);
            return;
        }
        self.set_runnable(w, t);
        self.core.set_queued(&mut self.machine.memory, t, true);
        let mut flags = match how {
            EnqueueReason::Wakeup => k::ENQ_WAKEUP,
            EnqueueReason::New if self.wakes_at_start[t as usize] => k::ENQ_WAKEUP,
            EnqueueReason::New | EnqueueReason::Moved => 0,
        };
        flags |= u64::from(selected) * k::ENQ_CPU_SELECTED;
        // The scheduler hears of other CPUs before it has the thread back.
        if how == EnqueueReason::Moved {
            self.affinity_changed(w, t);
        } else {
            self.of_thread(w, Callback::Runnable, cpu, t, Some(flags));
        }
        self.do_enqueue(w, cpu, t, flags);
    }

    fn dequeue(&mut self, w: &mut World, _: Cpu, t: Tid) {
        if self.core.held[t as usize] == Held::Realtime {
            self.rt.remove(w, t);
            self.core.held[t as usize] = Held::No;
        } else {
            self.take_out(w, t, 0);
            self.core.set_queued(&mut self.machine.memory, t, false);
        }
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: Wake) {
        if self.core.held[t as usize] == Held::Realtime {
            if self.rt.preempts(w, cpu, t) {
                w.resched(cpu, RescheduleReason::Preempted);
            } else {
                self.rt.push_away(w, t);
            }
        }
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        self.core.choosing = Some(cpu);
        let chosen = self.choose(w, cpu);
        self.core.choosing = None;
        if let Some(t) = chosen {
            self.core.held[t as usize] = Held::No;
        }
        chosen
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        if w.thread(t).class.is_realtime() {
            if left.stays_queued() {
                self.core.held[t as usize] = Held::Realtime;
                let ahead = left == SwitchOutReason::Preempted;
                self.rt.push(w, cpu, t, ahead);
                self.rt.push_away(w, t);
            }
            return;
        }
        self.core.charge(&mut self.machine.memory, w, cpu, t);
        if left.stays_queued() {
            if left == SwitchOutReason::Yielded {
                if self.has(Callback::Yield) {
                    self.of_thread(w, Callback::Yield, cpu, t, Some(0));
                } else {
                    self.core.set_slice(&mut self.machine.memory, t, 0);
                }
            }
        } else {
            // dequeue_task_scx
            if left == SwitchOutReason::Exited {
                self.core.set_exiting(&mut self.machine.memory, t);
            }
            self.of_thread(w, Callback::Stopping, cpu, t, Some(0));
            if left != SwitchOutReason::Moved {
                self.of_thread(w, Callback::Quiescent, cpu, t, Some(k::DEQ_SLEEP));
            }
            self.core.set_queued(&mut self.machine.memory, t, false);
        }
        self.previous[cpu as usize] = Some(t);
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        let Some(t) = w.cpu(cpu).curr else { return };
        if w.thread(t).class.is_realtime() {
            let jiffy = 1_000_000_000 / i64::from(self.hz);
            self.rt.tick(w, cpu, t, jiffy);
            return;
        }
        let before = self.core.slice(&self.machine.memory, t);
        let ran = self.core.charge(&mut self.machine.memory, w, cpu, t);
        // The slice began when the thread was chosen, which is a moment after the tick that made
        // the CPU choose: so many ticks later it is not quite over.
        if ran == before && ran > 0 {
            self.core.set_slice(&mut self.machine.memory, t, 1);
        }
        if self.core.bypass {
            self.core.set_slice(&mut self.machine.memory, t, 0);
        } else {
            self.of_thread(w, Callback::Tick, cpu, t, None);
        }
        if self.core.slice(&self.machine.memory, t) == 0 {
            w.resched(cpu, RescheduleReason::SliceEnd);
        }
    }

    fn timer(&mut self, w: &mut World, id: u32) {
        let kicks = 1..=w.ncpu() as u32;
        if kicks.contains(&id) {
            w.resched((id - 1) as Cpu, RescheduleReason::Preempted);
            return;
        }
        if self.core.bypass {
            return;
        }
        if id > WATCHDOG {
            self.fire(w, id - kicks.end() - 1);
            return;
        }
        let timeout = i64::from(self.operations.timeout_ms) * 1_000_000;
        let stuck = (0..w.nthreads() as Tid).find(|t| {
            let waits = !matches!(self.core.held[*t as usize], Held::No | Held::Realtime);
            waits && w.now() - self.core.runnable_at[*t as usize] > timeout
        });
        if let Some(t) = stuck {
            let ms = (w.now() - self.core.runnable_at[t as usize]) / 1_000_000;
            let who = self.core.name_of(&self.machine.memory, t);
            let what = format!("{who} failed to run for {}.{:03}s", ms / 1000, ms % 1000);
            self.core.end(w, k::EXIT_ERROR_STALL, 0, what);
            self.act(w);
            return;
        }
        w.arm_timer(WATCHDOG, w.now() + timeout / 2);
    }

    fn shares_by_groups(&self) -> bool {
        self.operations.has(Callback::GroupMove)
    }

    fn change_group(&mut self, w: &mut World, t: Tid, group: Option<u32>) {
        self.move_to_group(w, t, group);
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        let c = w.thread(t).cpu;
        let fair = !w.thread(t).class.is_realtime();
        let was_fair = self.core.is_enabled(&self.machine.memory, t);
        let state = w.thread(t).state;
        if state == State::Queued {
            if self.core.held[t as usize] == Held::Realtime {
                self.rt.remove(w, t);
                self.core.held[t as usize] = Held::No;
            } else {
                self.take_out(w, t, 0);
                self.of_thread(w, Callback::Quiescent, c, t, Some(0));
                self.core.set_queued(&mut self.machine.memory, t, false);
            }
        } else if state == State::Running && was_fair {
            self.core.charge(&mut self.machine.memory, w, c, t);
            self.of_thread(w, Callback::Stopping, c, t, Some(0));
            self.of_thread(w, Callback::Quiescent, c, t, Some(0));
        }
        match (was_fair, fair) {
            (true, true) => {
                let weight = self.core.set_weight(&mut self.machine.memory, w, t);
                self.of_thread(w, Callback::SetWeight, c, t, Some(weight.into()));
            }
            (false, true) => self.enable(w, t),
            (true, false) => self.disable(w, t),
            (false, false) => {}
        }
        if state == State::Queued {
            self.enqueue(w, c, t, EnqueueReason::New);
            let wake = Wake {
                waker: None,
                cpu: c,
                sync: false,
            };
            self.check_preempt(w, c, t, wake);
        } else if state == State::Running {
            self.core.set_queued(&mut self.machine.memory, t, fair);
            if fair {
                self.of_thread(w, Callback::Runnable, c, t, Some(0));
                self.of_thread(w, Callback::Running, c, t, None);
            }
            w.resched(c, RescheduleReason::Preempted);
        }
    }

    /// __do_set_cpus_allowed; a mask that stays the same is none of the scheduler's.
    fn affinity_changed(&mut self, w: &mut World, t: Tid) {
        if !self.core.refresh_mask(&mut self.machine.memory, w, t) {
            return;
        }
        let mask = self.core.masks.of_thread(t);
        let here = w.thread(t).cpu;
        if !w.thread(t).class.is_realtime() {
            self.of_thread(w, Callback::SetCpumask, here, t, Some(mask));
        }
    }

    /// handle_hotplug
    fn online_changed(&mut self, w: &mut World) {
        for c in 0..w.ncpu() as Cpu {
            let online = w.is_online(c);
            if online == self.core.masks.has(&self.machine.memory, masks::ONLINE, c) {
                continue;
            }
            self.core
                .masks
                .put(&mut self.machine.memory, masks::ONLINE, c, online);
            self.core.mark_idle(&mut self.machine.memory, w, c, false);
            let which = if online {
                Callback::CpuOnline
            } else {
                Callback::CpuOffline
            };
            if w.now() <= 0 {
                continue;
            }
            if self.has(which) {
                self.call(w, which, c, Context::Other, &[c.into()]);
            } else {
                let way = if online { "online" } else { "offline" };
                let what = format!("cpu {c} going {way}, exiting scheduler");
                self.core.end(w, 66, 1 << 48 | 1 << 32, what);
                self.act(w);
            }
        }
        for t in 0..w.nthreads() as Tid {
            self.core.refresh_mask(&mut self.machine.memory, w, t);
        }
    }
}

impl Scheduler {
    pub(crate) fn must_be_zero(&mut self, w: &mut World, which: Callback, answer: Option<u64>) {
        let error = answer.map_or(0, |answer| answer as i32);
        if error != 0 {
            w.fail(Error::usage(
                format!("{}: ops.{} answers {error}", self.file, which.name()),
                "0: with another number the kernel does not begin to use the scheduler",
                "settings of the object may be missing (rodata=, --set)",
            ));
        }
    }

    /// Programs that the scheduler's own half would run before the scheduler begins (BPF_PROG_RUN).
    fn run_before(&mut self, w: &mut World) {
        for (entry, numbers) in std::mem::take(&mut self.before) {
            let called = |(_, at): &&(String, usize)| *at == entry as usize;
            let name = self.functions.iter().find(called);
            let name = name.map_or_else(String::new, |(name, _)| name.clone());
            let room = self.machine.memory.add("the context", 64, Access::Write);
            let answer = room.and_then(|region| {
                for (at, number) in numbers.iter().enumerate() {
                    self.machine
                        .memory
                        .put32(region, 4 * at as u32, *number as u32);
                }
                let context = [address(region, 0), 0, 0, 0, 0];
                self.call_function(w, 0, address(CODE, entry), context)
            });
            match answer {
                Ok(answer) if answer as i32 == 0 => {}
                Ok(answer) => w.fail(Error::usage(
                    format!("{}: {name} answers {}", self.file, answer as i32),
                    "0 of a program that settings name",
                    "correct the numbers that it gets",
                )),
                Err(fault) => self.fail(w, &name, &fault),
            }
        }
    }

    /// Reports the outcome to the caller of the run.
    fn note(&self) {
        if let Ok(mut outcome) = self.outcome.lock() {
            outcome.callbacks = self.machine.callbacks;
            outcome.instructions = self.machine.instructions;
            if outcome.ended.is_none() {
                outcome.ended.clone_from(&self.core.ended);
            }
        }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.note();
    }
}
