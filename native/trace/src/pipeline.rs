//! From a decoder's events to finished tables, in one streaming pass.
//!
//! Events arrive with tids; here they become fact rows with utids, feed the
//! reconstruction, and leave in batches. Memory is bounded by the batch size
//! and the number of threads.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Error, Result};
use crate::hooks::Progress;
use crate::model::event::{Comm, Event, EventSink, Function, GroupMove, Origin, SourceInfo, State};
use crate::model::tables::{
    Cpu, Cpus, DiskRequest, DiskRequests, DispatchQueue, DispatchQueues, Irq, Irqs, Kick, Kicks,
    Lock, Locks, Loss, Losses, Migration, Migrations, Priorities, Priority, QueueLoad, QueueLoads,
    QuotaRefill, QuotaRefills, Sleep, SleepReason, SleepReasons, Sleeps, States, Switch, Switches,
    SystemCall, SystemCalls, Table, Waits, Wakeup, Wakeups, Yield, Yields,
};
use crate::model::threads::Identity;
use crate::model::time::{FAR, check_length};
use crate::reconstruct::apart::Clocks;
use crate::reconstruct::recorded::{Departures, InEverySwitch, KernelThreads, Suspicion};
use crate::reconstruct::{Habits, Reconstructor, Unreported};
use crate::store::Store;

pub struct Pipeline<'a, S: Store> {
    identity: Identity,
    moves: Vec<GroupMove>,
    /// Made at the first event, when the window's begin is known.
    reconstruction: Option<Reconstructor>,
    /// Nothing is inferred: no states, no waits, no losses.
    facts_only: bool,
    /// The CPUs' clocks differ: what is known of that.
    clocks: Option<Clocks>,
    ncpu: u16,
    switched: bool,
    idle_at_first: Vec<u16>,
    linux: bool,
    /// Every wakeup begins with a `waking`: Linux's do, FreeBSD's need not.
    every_waking: bool,
    /// Only a thread that is on no queue is enqueued: FreeBSD's, and Linux's where wakeups have one
    /// step.
    enqueued_once: bool,
    uncounted: bool,
    unreported: Option<&'a Unreported>,
    habits: Habits,
    /// Threads whose events alone were recorded, by tid; None: all were.
    chosen: Option<&'a FxHashSet<u32>>,
    /// The source says that a filter left out events.
    told_filtered: bool,
    all_threads: bool,
    kernel: KernelThreads,
    departures: Departures,
    in_every_switch: InEverySwitch,
    window: (Option<i64>, Option<i64>),
    first_ts: i64,
    last_ts: i64,
    switches: Switches,
    wakeups: Wakeups,
    migrations: Migrations,
    sleeps: Sleeps,
    yields: Yields,
    priorities: Priorities,
    queue_load: QueueLoads,
    irqs: Irqs,
    quota_refills: QuotaRefills,
    system_calls: SystemCalls,
    locks: Locks,
    disk_requests: DiskRequests,
    sleep_reasons: SleepReasons,
    dispatch_queues: DispatchQueues,
    kicks: Kicks,
    /// The number of each timer of a quota.
    timers: FxHashMap<u64, u32>,
    /// Names of the tables to build; None: all.
    only: Option<&'a [String]>,
    store: &'a mut S,
    progress: &'a mut Progress<'a>,
}

/// What the pass found out, for trace.json.
pub struct Summary {
    pub window: Option<(i64, i64)>,
    pub reconstruction: Option<Reconstructor>,
    /// The recording may be of some threads only.
    pub suspicion: Option<Suspicion>,
    /// Utids of the threads that were recorded, where a filter left out others.
    pub chosen: Option<Vec<u32>>,
    /// A CPU switched from a thread to another.
    pub switched: bool,
}

macro_rules! emit_batch {
    ($self:ident . $table:ident, $kind:ty) => {
        let batch = $self.$table.take();
        $self.store.write(<$kind as Table>::NAME, batch)?;
    };
}

macro_rules! flush {
    ($self:ident . $table:ident, $kind:ty) => {
        if $self.$table.len() >= S::CHUNK {
            emit_batch!($self.$table, $kind);
            match $self.store.spare(<$kind as Table>::NAME) {
                Some(spare) => $self.$table.refill(spare),
                None => $self.$table.reserve(S::CHUNK),
            }
        }
    };
}

fn wanted(names: &[String], table: &str) -> bool {
    names.iter().any(|name| name == table)
}

impl<'a, S: Store> Pipeline<'a, S> {
    pub fn new(info: &SourceInfo, store: &'a mut S, progress: &'a mut Progress<'a>) -> Self {
        Self {
            identity: Identity::new(info.ncpu, info),
            moves: Vec::new(),
            reconstruction: None,
            facts_only: false,
            clocks: None,
            ncpu: info.ncpu,
            linux: info.linux_priorities,
            every_waking: info.has_waking && info.linux_priorities,
            enqueued_once: !info.has_waking || !info.linux_priorities,
            uncounted: info.uncounted,
            unreported: None,
            habits: Habits::Nobodys,
            chosen: None,
            told_filtered: info.filtered,
            all_threads: info.all_threads || info.origin != Origin::Linux,
            kernel: KernelThreads::default(),
            departures: Departures::default(),
            in_every_switch: InEverySwitch::default(),
            window: info.window,
            switched: false,
            idle_at_first: info.idle_at_first.clone(),
            first_ts: i64::MAX,
            last_ts: i64::MIN,
            switches: Switches::default(),
            wakeups: Wakeups::default(),
            migrations: Migrations::default(),
            sleeps: Sleeps::default(),
            yields: Yields::default(),
            priorities: Priorities::default(),
            queue_load: QueueLoads::default(),
            irqs: Irqs::default(),
            quota_refills: QuotaRefills::default(),
            system_calls: SystemCalls::default(),
            locks: Locks::default(),
            disk_requests: DiskRequests::default(),
            sleep_reasons: SleepReasons::default(),
            dispatch_queues: DispatchQueues::default(),
            kicks: Kicks::default(),
            timers: FxHashMap::default(),
            only: None,
            store,
            progress,
        }
    }

    /// Builds only the tables called `names`: of the others that grow with the
    /// trace no row is made. Where they are facts, nothing is inferred.
    #[must_use]
    pub fn only(mut self, names: &'a [String]) -> Self {
        macro_rules! keep {
            ($($table:ident: $kind:ty),+) => {$(
                if !wanted(names, <$kind as Table>::NAME) {
                    self.$table.turn_off();
                }
            )+};
        }
        keep!(switches: Switches, wakeups: Wakeups, migrations: Migrations, sleeps: Sleeps);
        keep!(yields: Yields, priorities: Priorities, queue_load: QueueLoads, irqs: Irqs);
        keep!(quota_refills: QuotaRefills, system_calls: SystemCalls, locks: Locks);
        keep!(disk_requests: DiskRequests, sleep_reasons: SleepReasons);
        keep!(dispatch_queues: DispatchQueues, kicks: Kicks);
        // Broken chains, too, are found by reconstruction only.
        let inferred = [States::NAME, Waits::NAME, Losses::NAME];
        self.facts_only = !inferred.iter().any(|name| wanted(names, name));
        self.only = Some(names);
        self
    }

    /// The CPUs' clocks differ, as told.
    #[must_use]
    pub fn with_clocks(mut self, clocks: Option<Clocks>) -> Self {
        self.clocks = clocks;
        self
    }

    /// What an earlier reading found missing that the source does not report.
    #[must_use]
    pub fn with_unreported(mut self, known: &'a Unreported) -> Self {
        self.unreported = Some(known);
        self
    }

    /// What is known of threads whose leaving the kernel does not report.
    #[must_use]
    pub fn with_habits(mut self, habits: Habits) -> Self {
        self.habits = habits;
        self
    }

    /// The recording is of these threads only, by tid.
    #[must_use]
    pub fn with_chosen(mut self, chosen: Option<&'a FxHashSet<u32>>) -> Self {
        self.chosen = chosen;
        self
    }

    /// An event of a thread, which may be one of those that were chosen.
    #[inline]
    fn look_up(&mut self, ts: i64, utid: u32, tid: u32) {
        if let Some(chosen) = self.chosen
            && chosen.contains(&tid)
            && let Some(reconstruction) = self.at(ts)
        {
            reconstruction.choose(utid);
        }
    }

    /// May the recording be of some threads only?
    fn suspicion(&self) -> Option<Suspicion> {
        let reconstruction = self.reconstruction.as_ref()?;
        if self.chosen.is_some() || !self.linux || self.all_threads {
            return None;
        }
        let of_all = reconstruction.of_all_break();
        if of_all && self.departures.are_one_sided() {
            return Some(Suspicion::by_state());
        }
        if let Some(tid) = self.in_every_switch.one()
            && reconstruction.any_breaks()
        {
            return Some(Suspicion::of_all_but(tid));
        }
        if self.kernel.together() {
            let idle = of_all && self.departures.are_to_no_idle_thread();
            return idle.then(Suspicion::by_state);
        }
        let (left_out, breaks) = reconstruction.clues();
        let tids = left_out.iter().filter_map(|&utid| self.identity.tid(utid));
        let mut left_out: FxHashSet<u32> = tids.collect();
        left_out.extend(self.identity.of_kernel());
        let certain =
            self.kernel.are_left_out(reconstruction.cpus()) || reconstruction.nothing_fits();
        Suspicion::of(left_out, breaks, self.told_filtered, certain)
    }

    /// Notes the time; the reconstruction, where there is to be one, begins
    /// with the window.
    #[inline]
    fn at(&mut self, ts: i64) -> Option<&mut Reconstructor> {
        self.last_ts = self.last_ts.max(ts);
        self.first_ts = self.first_ts.min(ts);
        if self.facts_only {
            return None;
        }
        let (ncpu, begin, only) = (self.ncpu, self.window.0, self.only);
        let (every_waking, enqueued_once) = (self.every_waking, self.enqueued_once);
        let identity = &self.identity;
        let (uncounted, unreported) = (self.uncounted, self.unreported);
        let chosen = self.chosen.is_some();
        let (clocks, habits) = (&self.clocks, &self.habits);
        let idle = &self.idle_at_first;
        Some(self.reconstruction.get_or_insert_with(|| {
            let mut new = Reconstructor::new(ncpu, begin.map_or(ts, |begin| begin.min(ts)))
                .expecting_waking(every_waking)
                .expecting_one_enqueued(enqueued_once)
                .with_uncounted_losses(uncounted)
                .with_chosen_threads(chosen)
                .with_clocks(clocks.clone())
                .with_habits(habits.clone());
            new.begin_idle(idle.iter().copied());
            if let Some(known) = unreported {
                new = new.with_unreported(known);
            }
            for utid in u32::from(ncpu)..identity.count() {
                if let Some(cpus) = identity.affinity(utid) {
                    new.allow(utid, cpus);
                }
            }
            if only.is_some_and(|names| !wanted(names, States::NAME)) {
                new.states.turn_off();
            }
            if only.is_some_and(|names| !wanted(names, Waits::NAME)) {
                new.waits.turn_off();
            }
            new
        }))
    }

    /// Names that only the trace's end tells.
    pub fn last_names(&mut self, names: &[(u32, Comm)]) {
        self.identity.name_unnamed(names);
    }

    /// Moves into control groups, which only the trace's end tells.
    pub fn group_moves(&mut self, moves: &[GroupMove]) {
        self.moves = moves.to_vec();
    }

    /// Writes what is left; `info` adds the `cpus` table.
    pub fn finish(mut self, info: &SourceInfo) -> Result<Summary> {
        let mut window = None;
        if self.first_ts <= self.last_ts {
            let begin = self
                .window
                .0
                .map_or(self.first_ts, |begin| begin.min(self.first_ts));
            let end = self
                .window
                .1
                .map_or(self.last_ts, |end| end.max(self.last_ts));
            check_length((begin, end), self.ncpu)?;
            if let Some(reconstruction) = &mut self.reconstruction {
                reconstruction.began(begin);
                for utid in self.identity.stoppers(self.linux) {
                    reconstruction.stopper(utid);
                }
                if self.linux && self.chosen.is_none() && self.window.1.is_some() {
                    reconstruction.recorded_until(self.last_ts, end);
                }
                reconstruction.finish(end);
            }
            window = Some((begin, end));
        }
        let suspicion = self.suspicion();
        let chosen = self.chosen.map(|chosen| self.identity.of_tids(chosen));
        emit_batch!(self.switches, Switches);
        emit_batch!(self.wakeups, Wakeups);
        emit_batch!(self.migrations, Migrations);
        emit_batch!(self.sleeps, Sleeps);
        emit_batch!(self.yields, Yields);
        emit_batch!(self.priorities, Priorities);
        emit_batch!(self.queue_load, QueueLoads);
        emit_batch!(self.irqs, Irqs);
        emit_batch!(self.quota_refills, QuotaRefills);
        emit_batch!(self.system_calls, SystemCalls);
        emit_batch!(self.locks, Locks);
        emit_batch!(self.disk_requests, DiskRequests);
        emit_batch!(self.sleep_reasons, SleepReasons);
        emit_batch!(self.dispatch_queues, DispatchQueues);
        emit_batch!(self.kicks, Kicks);
        self.store.write(
            "threads",
            self.identity.finish(self.linux, &self.moves).take(),
        )?;
        self.store.write("renames", self.identity.renames.take())?;
        let mut cpus = Cpus::default();
        for cpu in 0..self.ncpu {
            let row = info
                .cpus
                .iter()
                .find(|row| row.cpu == cpu)
                .cloned()
                .unwrap_or_default();
            cpus.push(Cpu {
                cpu,
                core: row.core,
                llc: row.llc,
                package: row.package,
                numa_node: row.numa_node,
                smt_siblings: row.smt_siblings,
                capacity: row.capacity,
                online: row.online,
            });
        }
        self.store.write("cpus", cpus.take())?;
        let mut reconstruction = self
            .reconstruction
            .take()
            .unwrap_or_else(|| Reconstructor::new(self.ncpu, 0));
        self.store.write("states", reconstruction.states.take())?;
        self.store.write("waits", reconstruction.waits.take())?;
        self.store.write("losses", reconstruction.sorted_losses())?;
        let inferred = window.is_some() && !self.facts_only;
        Ok(Summary {
            window,
            reconstruction: inferred.then_some(reconstruction),
            suspicion: suspicion.filter(|_| inferred),
            chosen,
            switched: self.switched,
        })
    }

    fn loss(&mut self, loss: Loss) {
        // A loss may reach back before the first event that we saw.
        let end = loss.ts_end;
        if loss.cpu.is_none() {
            self.kernel.unrecorded(loss.ts_begin, end);
        }
        if let Some(reconstruction) = self.at(loss.ts_begin) {
            reconstruction.loss(&loss);
        }
        self.last_ts = self.last_ts.max(end);
    }
}

/// Differences of two times must fit 64 bits, wherever they are taken: what no clock
/// shows is refused here, once for all decoders.
#[inline]
fn check_times(event: &Event) -> Result<()> {
    let within = |ts: i64| (-FAR..=FAR).contains(&ts);
    let right = match *event {
        Event::Loss {
            ts_begin, ts_end, ..
        } => within(ts_begin) && within(ts_end),
        Event::Irq { ts, dur, .. } => within(ts) && dur >= 0 && within(ts.saturating_add(dur)),
        _ => within(event.ts()),
    };
    if right { Ok(()) } else { Err(no_time(event)) }
}

#[cold]
fn no_time(event: &Event) -> Error {
    let found = match *event {
        Event::Loss {
            ts_begin, ts_end, ..
        } => format!("lost events from {ts_begin} to {ts_end} ns"),
        Event::Irq { ts, dur, .. } => format!("an interrupt of {dur} ns at {ts} ns"),
        _ => format!("an event at {} ns", event.ts()),
    };
    Error::format(
        found,
        "times within 146 years of the clock's zero",
        "a time stamp in the file is damaged, or the clock's rate is: copy or record it again",
    )
}

impl<S: Store> EventSink for Pipeline<'_, S> {
    fn event(&mut self, event: &Event) -> Result<()> {
        check_times(event)?;
        match *event {
            Event::Switch {
                ts,
                cpu,
                ref prev,
                prev_state,
                preempted,
                ref next,
            } => {
                if cpu >= self.ncpu {
                    return Ok(());
                }
                self.switched = true;
                let prev_utid = self.identity.resolve(ts, cpu, prev);
                let next_utid = self.identity.resolve(ts, cpu, next);
                self.kernel.switch(prev, next);
                self.departures.switch(prev, prev_state, next);
                self.in_every_switch.switch(prev, next);
                self.look_up(ts, prev_utid, prev.tid);
                self.look_up(ts, next_utid, next.tid);
                let row = Switch {
                    ts,
                    cpu,
                    prev_utid,
                    prev_state,
                    prev_prio: prev.prio,
                    preempted,
                    next_utid,
                    next_prio: next.prio,
                };
                if let Some(reconstruction) = self.at(ts) {
                    reconstruction.switch(&row);
                }
                self.switches.push(row);
                if prev_state == State::Dead && prev_utid >= u32::from(self.ncpu) {
                    self.identity.gone(ts, cpu, prev_utid);
                }
                flush!(self.switches, Switches);
            }
            Event::Wakeup {
                ts,
                cpu,
                kind,
                waker,
                current,
                ref who,
                target_cpu,
            } => {
                let utid = self.identity.resolve(ts, target_cpu.unwrap_or(cpu), who);
                let waker_utid = waker.map(|tid| self.identity.resolve_tid(cpu, tid));
                let current_utid = if current == waker {
                    waker_utid
                } else {
                    current.map(|tid| self.identity.resolve_tid(cpu, tid))
                };
                self.look_up(ts, utid, who.tid);
                if let (Some(utid), Some(tid)) = (current_utid, current) {
                    self.look_up(ts, utid, tid);
                }
                let row = Wakeup {
                    ts,
                    cpu,
                    waker_utid,
                    current_utid,
                    utid,
                    kind,
                    target_cpu,
                    prio: who.prio,
                };
                if let Some(reconstruction) = self.at(ts) {
                    reconstruction.wakeup(&row);
                }
                self.wakeups.push(row);
                flush!(self.wakeups, Wakeups);
            }
            Event::Migrate {
                ts,
                cpu,
                ref who,
                from_cpu,
                to_cpu,
            } => {
                let utid = self.identity.resolve(ts, cpu, who);
                self.look_up(ts, utid, who.tid);
                let row = Migration {
                    ts,
                    cpu,
                    utid,
                    from_cpu,
                    to_cpu,
                };
                if let Some(reconstruction) = self.at(ts) {
                    reconstruction.migrate(&row);
                }
                self.migrations.push(row);
                flush!(self.migrations, Migrations);
            }
            Event::Fork {
                ts,
                ref parent,
                ref child,
                same_process,
            } => {
                self.at(ts);
                let child = self.identity.fork(ts, parent, child, same_process);
                if let (Some(utid), Some(reconstruction)) = (child, &mut self.reconstruction)
                    && let Some(cpus) = self.identity.affinity(utid)
                {
                    reconstruction.allow(utid, cpus);
                }
            }
            Event::Exec { ts, tid, old_tid } => {
                self.at(ts);
                self.identity.exec(tid, old_tid);
            }
            Event::Exit { ts, ref who } => {
                self.at(ts);
                let utid = self.identity.resolve_known(who.tid);
                self.identity.exit(ts, utid);
            }
            Event::Rename { ts, tid, comm } => {
                self.at(ts);
                self.identity.rename(ts, tid, comm);
            }
            Event::Sleep {
                ts,
                cpu,
                tid,
                kind,
                reason,
            } => {
                self.at(ts);
                let utid = self.identity.resolve_tid(cpu, tid);
                self.sleeps.push(Sleep {
                    ts,
                    cpu,
                    utid,
                    kind,
                    reason: reason.to_text(),
                });
                flush!(self.sleeps, Sleeps);
            }
            Event::Yield { ts, tid } => {
                let utid = self.identity.resolve_known(tid);
                if let Some(reconstruction) = self.at(ts) {
                    reconstruction.yielded(utid, ts);
                }
                self.yields.push(Yield { ts, utid });
                flush!(self.yields, Yields);
            }
            Event::Priority {
                ts,
                ref who,
                prio,
                cause,
            } => {
                self.at(ts);
                let utid = self.identity.resolve_known(who.tid);
                self.priorities.push(Priority {
                    ts,
                    utid,
                    prio,
                    cause,
                });
                flush!(self.priorities, Priorities);
            }
            Event::QueueLoad { ts, cpu, load } => {
                self.at(ts);
                self.queue_load.push(QueueLoad { ts, cpu, load });
                flush!(self.queue_load, QueueLoads);
            }
            Event::Irq {
                ts,
                cpu,
                kind,
                id,
                dur,
            } => {
                self.at(ts);
                // Its end is an event, too, perhaps the last one.
                self.last_ts = self.last_ts.max(ts.saturating_add(dur));
                self.irqs.push(Irq {
                    ts,
                    cpu,
                    kind,
                    id,
                    dur,
                });
                flush!(self.irqs, Irqs);
            }
            Event::QuotaRefill { ts, cpu, timer } => {
                self.at(ts);
                let next = self.timers.len() as u32;
                let timer = *self.timers.entry(timer).or_insert(next);
                self.quota_refills.push(QuotaRefill { ts, cpu, timer });
                flush!(self.quota_refills, QuotaRefills);
            }
            Event::SystemCall {
                ts,
                cpu,
                tid,
                step,
                number,
                value,
                args,
            } => {
                self.at(ts);
                let utid = self.identity.resolve_tid(cpu, tid);
                self.system_calls.push(SystemCall {
                    ts,
                    cpu,
                    utid,
                    step,
                    number,
                    value,
                    arg0: args.map(|args| args[0]),
                    arg1: args.map(|args| args[1]),
                    arg2: args.map(|args| args[2]),
                });
                flush!(self.system_calls, SystemCalls);
            }
            Event::Lock {
                ts,
                cpu,
                tid,
                step,
                address,
                kind,
                value,
            } => {
                self.at(ts);
                let utid = self.identity.resolve_tid(cpu, tid);
                self.locks.push(Lock {
                    ts,
                    cpu,
                    utid,
                    step,
                    address,
                    kind,
                    value,
                });
                flush!(self.locks, Locks);
            }
            Event::DiskRequest {
                ts,
                cpu,
                tid,
                step,
                device,
                sector,
                sectors,
            } => {
                self.at(ts);
                let utid = tid.map(|tid| self.identity.resolve_tid(cpu, tid));
                self.disk_requests.push(DiskRequest {
                    ts,
                    cpu,
                    utid,
                    step,
                    device,
                    sector,
                    sectors,
                });
                flush!(self.disk_requests, DiskRequests);
            }
            Event::SleepReason {
                ts,
                cpu,
                tid,
                io_wait,
                function,
                entry,
                told_by,
            } => {
                self.at(ts);
                let utid = self.identity.resolve_tid(cpu, tid);
                self.sleep_reasons.push(SleepReason {
                    ts,
                    cpu,
                    utid,
                    io_wait: Some(io_wait),
                    function: function.map(Function::to_text),
                    entry: entry.map(Comm::to_text),
                    told_by,
                });
                flush!(self.sleep_reasons, SleepReasons);
            }
            Event::DispatchQueue {
                ts,
                cpu,
                tid,
                step,
                kind,
                queue_cpu,
                queue_id,
                queued,
                given,
            } => {
                self.at(ts);
                let utid = self.identity.resolve_tid(cpu, tid);
                self.dispatch_queues.push(DispatchQueue {
                    ts,
                    cpu,
                    utid,
                    step,
                    kind,
                    queue_cpu,
                    queue_id,
                    queued,
                    slice: given.map(|given| given.slice),
                    vtime: given.map(|given| given.vtime),
                    flags: given.map(|given| given.flags),
                    limit: given.and_then(|given| given.limit),
                });
                flush!(self.dispatch_queues, DispatchQueues);
            }
            Event::Kick {
                ts,
                cpu,
                target,
                flags,
            } => {
                self.at(ts);
                self.kicks.push(Kick {
                    ts,
                    cpu,
                    target,
                    flags,
                });
                flush!(self.kicks, Kicks);
            }
            Event::Loss {
                cpu,
                ts_begin,
                ts_end,
                count,
                reason,
            } => {
                self.loss(Loss {
                    cpu,
                    ts_begin,
                    ts_end: ts_end.max(ts_begin),
                    count,
                    reason,
                });
            }
        }
        if let Some(reconstruction) = &mut self.reconstruction {
            if reconstruction.states.len() >= S::CHUNK {
                let batch = reconstruction.states.take();
                self.store.write("states", batch)?;
                match self.store.spare("states") {
                    Some(spare) => reconstruction.states.refill(spare),
                    None => reconstruction.states.reserve(S::CHUNK),
                }
            }
            if reconstruction.waits.len() >= S::CHUNK {
                let batch = reconstruction.waits.take();
                self.store.write("waits", batch)?;
                match self.store.spare("waits") {
                    Some(spare) => reconstruction.waits.refill(spare),
                    None => reconstruction.waits.reserve(S::CHUNK),
                }
            }
        }
        Ok(())
    }

    fn progress(&mut self, done: u64, total: u64) -> Result<()> {
        (self.progress)(done, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{IrqKind, Party};
    use crate::store::MemoryStore;

    fn thread(tid: u32) -> Party {
        Party {
            tid,
            ..Party::default()
        }
    }

    #[test]
    fn times_that_no_clock_shows_are_refused_in_one_sentence() {
        let info = SourceInfo {
            ncpu: 1,
            ..SourceInfo::default()
        };
        let mut store = MemoryStore::default();
        let mut progress = |_, _| Ok(());
        let mut pipeline = Pipeline::new(&info, &mut store, &mut progress);
        let irq = |ts, dur| Event::Irq {
            ts,
            cpu: 0,
            kind: IrqKind::Hard,
            id: 3,
            dur,
        };
        let loss = |ts_begin, ts_end| Event::Loss {
            cpu: None,
            ts_begin,
            ts_end,
            count: None,
            reason: crate::model::event::LossReason::Overrun,
        };
        let call = |ts| Event::Yield { ts, tid: 7 };
        for wrong in [
            call(i64::MAX),
            call(i64::MIN),
            call(FAR + 1),
            irq(FAR, 1),
            irq(0, -1),
            irq(0, i64::MAX),
            loss(0, i64::MAX),
            loss(i64::MIN, 0),
        ] {
            let error = pipeline.event(&wrong).unwrap_err().to_string();
            assert!(
                error.contains(" ns; expected times within 146 years"),
                "{error}"
            );
        }
        for right in [call(0), call(FAR), irq(FAR - 1, 1), loss(FAR, FAR)] {
            pipeline.event(&right).unwrap();
        }
        let summary = pipeline.finish(&info).unwrap();
        assert_eq!(summary.window, Some((0, FAR)));
    }

    #[test]
    fn threads_of_the_kernel_are_missed_unless_the_source_says_that_none_was_left_out() {
        let suspects = |all_threads, origin| {
            let info = SourceInfo {
                ncpu: 1,
                linux_priorities: true,
                all_threads,
                origin,
                ..SourceInfo::default()
            };
            let mut store = MemoryStore::default();
            let mut progress = |_, _| Ok(());
            let mut pipeline = Pipeline::new(&info, &mut store, &mut progress);
            let program = Party {
                comm: Comm::new(b"cyclictest"),
                ..thread(7)
            };
            for turn in 0..200 {
                let (prev, next) = if turn % 2 == 0 {
                    (thread(0), program)
                } else {
                    (program, thread(0))
                };
                let event = Event::Switch {
                    ts: turn * 10_000_000,
                    cpu: 0,
                    prev,
                    prev_state: if turn % 2 == 0 {
                        State::Runnable
                    } else {
                        State::Sleeping
                    },
                    preempted: None,
                    next,
                };
                pipeline.event(&event).unwrap();
            }
            pipeline.finish(&info).unwrap().suspicion.is_some()
        };
        assert!(suspects(false, Origin::Linux));
        assert!(!suspects(true, Origin::Linux));
        assert!(!suspects(false, Origin::OtherSystem));
        assert!(!suspects(false, Origin::Simulation));
    }

    #[test]
    fn a_window_whose_sum_over_all_cpus_does_not_fit_is_refused() {
        for (ncpu, end, right) in [(2, FAR / 2, true), (2, FAR / 2 + 1, false)] {
            let info = SourceInfo {
                ncpu,
                ..SourceInfo::default()
            };
            let mut store = MemoryStore::default();
            let mut progress = |_, _| Ok(());
            let mut pipeline = Pipeline::new(&info, &mut store, &mut progress);
            for ts in [0, end] {
                pipeline.event(&Event::Yield { ts, tid: 7 }).unwrap();
            }
            let error = pipeline.finish(&info).err().map(|error| error.to_string());
            assert_eq!(error.is_none(), right, "{error:?}");
        }
    }

    #[test]
    fn an_interrupt_told_when_it_ends_takes_the_windows_borders_with_it() {
        let info = SourceInfo {
            ncpu: 1,
            ..SourceInfo::default()
        };
        let mut store = MemoryStore::default();
        let mut progress = |_, _| Ok(());
        let mut pipeline = Pipeline::new(&info, &mut store, &mut progress);
        let events = [
            Event::Switch {
                ts: 15,
                cpu: 0,
                prev: thread(0),
                prev_state: State::Runnable,
                preempted: None,
                next: thread(7),
            },
            Event::Irq {
                ts: 10,
                cpu: 0,
                kind: IrqKind::Hard,
                id: 3,
                dur: 8,
            },
            Event::Irq {
                ts: 20,
                cpu: 0,
                kind: IrqKind::Hard,
                id: 3,
                dur: 5,
            },
        ];
        for event in &events {
            pipeline.event(event).unwrap();
        }
        let summary = pipeline.finish(&info).unwrap();
        assert_eq!(summary.window, Some((10, 25)));
        let reconstruction = summary.reconstruction.unwrap();
        let cpu = &reconstruction.cpus()[0];
        assert_eq!((cpu.unknown, cpu.running, cpu.idle), (5, 10, 0));
    }
}
