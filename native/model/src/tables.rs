//! Every table of the trace model, column by column: its name, its type, whether it may be null
//! (`Opt`), and what it says. `parsers/schema.py` reads the same from here, for Polars.
//!
//! Times (`ts`, `ts_*`) are ns on the capture's own monotonic clock, durations are ns, CPUs are the
//! host's logical numbers, and null means "not known". docs/trace-model.md explains the terms.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_schema::{Schema, SchemaRef};

use crate::event::{
    CallStep, Cause, Censored, DiskStep, End, IrqKind, LockKind, LockStep, LossReason,
    PriorityCause, QueueKind, QueueStep, SchedClass, SleepKind, State, ToldBy, WakeKind,
};
use crate::filling::{BoolOpt, Cat, CatOpt, Column, Int, IntOpt, STAGE, Text, TextOpt};

/// Bumped whenever a table changes; caches of another version are rebuilt.
pub const SCHEMA_VERSION: u32 = 13;

pub trait Table {
    const NAME: &'static str;
}

/// A table as it is declared below.
pub struct Declared {
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    pub schema: SchemaRef,
    /// What each column says, in order.
    pub columns: Vec<&'static str>,
}

/// Declares all tables: of each its rows, the columns that they fill, and what they say.
macro_rules! tables {
    ($(
        $(#[doc = $about:literal])+
        $table:ident of $row:ident, $text:literal {
            $($(#[doc = $doc:literal])+ $name:ident: $column:ty,)+
        }
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Debug, Clone)]
            pub struct $row { $($(#[doc = $doc])+ pub $name: <$column as Column>::Item),+ }

            #[derive(Default)]
            pub struct $table { off: bool, staged: Vec<$row>, rows: usize, $($name: $column),+ }

            impl $table {
                #[inline]
                pub fn push(&mut self, row: $row) {
                    if self.off {
                        return;
                    }
                    self.staged.push(row);
                    if self.staged.len() >= STAGE {
                        self.unstage();
                    }
                }

                /// From now on rows are dropped: this table is not wanted.
                pub fn turn_off(&mut self) { self.off = true; }

                #[inline(never)]
                fn unstage(&mut self) {
                    self.rows += self.staged.len();
                    $(self.$name.fill(&self.staged, |row| &row.$name);)+
                    self.staged.clear();
                }

                pub fn len(&self) -> usize { self.rows + self.staged.len() }

                pub fn is_empty(&self) -> bool { self.len() == 0 }

                pub fn schema() -> SchemaRef {
                    Arc::new(Schema::new(vec![$(<$column>::field(stringify!($name))),+]))
                }

                /// The rows so far as a batch; the table is empty afterwards.
                pub fn take(&mut self) -> RecordBatch {
                    self.unstage();
                    self.rows = 0;
                    RecordBatch::try_new(Self::schema(), vec![$(self.$name.take()),+])
                        .expect("columns of one table have one length")
                }

                /// Makes room for so many rows.
                pub fn reserve(&mut self, rows: usize) {
                    $(self.$name.reserve(rows);)+
                }

                /// Fills the memory of `spare`, a batch from `take` that is no longer needed.
                pub fn refill(&mut self, spare: RecordBatch) {
                    let (_, arrays, _) = spare.into_parts();
                    let mut arrays = arrays.into_iter();
                    $(if let Some(array) = arrays.next() {
                        self.$name.refill(array);
                    })+
                }
            }

            impl Table for $table {
                const NAME: &'static str = $text;
            }
        )+

        /// Every table: the facts, then `cpus`, then what reconstruction infers.
        pub fn declared() -> Vec<Declared> {
            vec![$(Declared {
                name: $text,
                about: concat!($($about),+).trim_start(),
                schema: $table::schema(),
                columns: vec![$(concat!($($doc),+).trim_start()),+],
            }),+]
        }
    };
}

type U16 = Int<UInt16Type>;
type U16Opt = IntOpt<UInt16Type>;
type U32 = Int<UInt32Type>;
type U32Opt = IntOpt<UInt32Type>;
type U64 = Int<UInt64Type>;
type U64Opt = IntOpt<UInt64Type>;
type I16 = Int<Int16Type>;
type I16Opt = IntOpt<Int16Type>;
type I32 = Int<Int32Type>;
type I32Opt = IntOpt<Int32Type>;
type I64 = Int<Int64Type>;
type I64Opt = IntOpt<Int64Type>;

tables! {
    /// One context switch.
    Switches of Switch, "switches" {
        /// When, ns.
        ts: I64,
        /// CPU that switched.
        cpu: U16,
        /// Thread that left the CPU.
        prev_utid: U32,
        /// State it left in; `runnable`: it still wanted the CPU.
        prev_state: Cat<State>,
        /// Its priority, the operating system's own number.
        prev_prio: I16Opt,
        /// It left against its will; null where the source cannot say, as with Linux's plain R
        /// without recorded yields.
        preempted: BoolOpt,
        /// Thread that came onto the CPU.
        next_utid: U32,
        /// Its priority, the operating system's own number.
        next_prio: I16Opt,
    }

    /// One step of a wakeup.
    Wakeups of Wakeup, "wakeups" {
        /// When, ns.
        ts: I64,
        /// CPU on which the step was recorded.
        cpu: U16,
        /// Thread that ran there; null if the source says that it was an interrupt.
        waker_utid: U32Opt,
        /// Thread that the event itself names as running on `cpu`, interrupt or not; evidence
        /// against switches that were not recorded. Null if the source does not say.
        current_utid: U32Opt,
        /// Thread that was woken.
        utid: U32,
        /// `waking`: the decision, on the waker's CPU; `enqueued`: on the target's queue; `new`:
        /// first enqueue of a new thread.
        kind: Cat<WakeKind>,
        /// CPU whose queue was chosen at this step.
        target_cpu: U16Opt,
        /// Priority of the woken thread, the operating system's own number.
        prio: I16Opt,
    }

    /// One move of a thread from one CPU to another, as the kernel reported it.
    Migrations of Migration, "migrations" {
        /// When, ns.
        ts: I64,
        /// CPU on which the move was recorded.
        cpu: U16,
        /// Thread that was moved.
        utid: U32,
        /// CPU it belonged to before.
        from_cpu: U16Opt,
        /// CPU it belongs to from now on.
        to_cpu: U16Opt,
    }

    /// One thread incarnation; rows 0 to ncpu-1 are the idle threads in CPU order.
    Threads of Thread, "threads" {
        /// Its number, unique in the trace and never reused.
        utid: U32,
        /// The kernel's thread id, which other rows may share.
        tid: U32Opt,
        /// The kernel's process id.
        pid: U32Opt,
        /// Its last name; empty if no event carried one.
        comm: Text,
        /// Its first name; empty if no event carried one.
        comm_first: Text,
        /// It is a kernel thread.
        kernel: BoolOpt,
        /// Its last known scheduling class.
        sched_class: CatOpt<SchedClass>,
        /// Its last known priority, the operating system's own number.
        prio: I16Opt,
        /// CPUs it may run on, as a list ("0-3,8").
        affinity: TextOpt,
        /// It is part of the recorder that made the capture.
        recorder: BoolOpt,
        /// When it was created, ns; null if that was not seen.
        start_ts: I64Opt,
        /// Its last event, ns.
        end_ts: I64Opt,
        /// Thread that created it.
        parent_utid: U32Opt,
        /// When it began to exit, ns; null if that was not seen.
        exit_ts: I64Opt,
        /// The process that created its process.
        ppid: U32Opt,
        /// Its process's name: that of the thread whose tid is `pid`.
        process_name: TextOpt,
        /// Control group of its process, the last one known (Linux).
        cgroup: TextOpt,
        /// Command line of its process, as far as the recorder saw it.
        cmdline: TextOpt,
    }

    /// One change of a thread's name.
    Renames of Rename, "renames" {
        /// When, ns.
        ts: I64,
        /// Thread that was renamed.
        utid: U32,
        /// Its name from now on.
        comm: Text,
    }

    /// One reason for which a thread left its CPU to wait, where the source has it (FreeBSD).
    Sleeps of Sleep, "sleeps" {
        /// When the thread left its CPU, ns.
        ts: I64,
        /// CPU that it left.
        cpu: U16,
        /// The thread.
        utid: U32,
        /// `sleep`: on a sleep queue; `lock`: for a contested lock; `interrupt`: an interrupt
        /// thread with nothing to do; `suspended`: by a signal or a debugger.
        kind: Cat<SleepKind>,
        /// The kernel's wait message or the lock's name; empty if none.
        reason: Text,
    }

    /// One call of sched_yield.
    Yields of Yield, "yields" {
        /// When, ns.
        ts: I64,
        /// Thread that called.
        utid: U32,
    }

    /// One change of a thread's priority.
    Priorities of Priority, "priorities" {
        /// When, ns.
        ts: I64,
        /// Thread whose priority changed.
        utid: U32,
        /// Its priority from now on, the operating system's own number.
        prio: I16,
        /// Why it changed.
        cause: Cat<PriorityCause>,
    }

    /// One run queue length, as the kernel itself reported it; a cross-check, never an input.
    QueueLoads of QueueLoad, "queue_load" {
        /// When, ns.
        ts: I64,
        /// CPU of the queue; null for a queue all CPUs share.
        cpu: U16Opt,
        /// Threads on the queue, the running one included.
        load: I32,
    }

    /// One interrupt handler's run.
    Irqs of Irq, "irqs" {
        /// When it began, ns.
        ts: I64,
        /// CPU that was interrupted.
        cpu: U16,
        /// `hard`: a device's interrupt; `soft`: deferred work.
        kind: Cat<IrqKind>,
        /// The interrupt's or softirq vector's number.
        id: U32,
        /// How long it ran, ns.
        dur: I64,
    }

    /// One moment at which a control group's CPU quota was refilled.
    QuotaRefills of QuotaRefill, "quota_refills" {
        /// When, ns.
        ts: I64,
        /// CPU on which the period timer fired.
        cpu: U16,
        /// Number of the timer; each group with a quota has one.
        timer: U32,
    }

    /// One end of a system call, where recorded (Linux).
    SystemCalls of SystemCall, "system_calls" {
        /// When, ns.
        ts: I64,
        /// CPU on which the thread ran.
        cpu: U16,
        /// The thread.
        utid: U32,
        /// `enter`: it entered the kernel; `exit`: it came back.
        step: Cat<CallStep>,
        /// The kernel's number of the call, which depends on the architecture; -1: refused.
        number: I32,
        /// What the call returned; null when it is entered.
        value: I64Opt,
        /// First argument, as the registers have it: a descriptor, an address; null when it
        /// returns.
        arg0: U64Opt,
        /// Second argument, likewise.
        arg1: U64Opt,
        /// Third argument, likewise.
        arg2: U64Opt,
    }

    /// One end of a thread's waiting for a lock of the kernel, where recorded (Linux).
    Locks of Lock, "locks" {
        /// When, ns.
        ts: I64,
        /// CPU on which the thread ran.
        cpu: U16,
        /// The thread.
        utid: U32,
        /// `begin`: it found the lock taken; `end`: it waits no more.
        step: Cat<LockStep>,
        /// Where the lock is in memory, as the source reports it; null where that names no lock.
        address: U64Opt,
        /// What kind of lock; null when the waiting ends.
        kind: CatOpt<LockKind>,
        /// 0 if it got the lock, else a negative error; null when the waiting begins.
        value: I32Opt,
    }

    /// One step of a request to a disk, where recorded (Linux).
    DiskRequests of DiskRequest, "disk_requests" {
        /// When, ns.
        ts: I64,
        /// CPU on which that was done.
        cpu: U16,
        /// Thread that did it; null when the request is complete, and if an interrupt's handler did
        /// it.
        utid: U32Opt,
        /// `start`: it was made; `issue`: given to the disk; `complete`: the disk is done.
        step: Cat<DiskStep>,
        /// The kernel's number of the disk, as the source reports it.
        device: U32,
        /// First sector, of 512 bytes.
        sector: U64,
        /// How many.
        sectors: U32,
    }

    /// What the kernel said of one sleep of a thread, where recorded (Linux).
    SleepReasons of SleepReason, "sleep_reasons" {
        /// When it said so: the thread fell asleep then, or was woken, ns.
        ts: I64,
        /// CPU on which that was said.
        cpu: U16,
        /// The thread that sleeps.
        utid: U32,
        /// It waits for I/O, as the kernel counts it.
        io_wait: BoolOpt,
        /// The kernel's function that put it to sleep; null where the source has no name for it.
        function: TextOpt,
        /// The system call in which it sleeps, or `page fault`; null where no stack shows it.
        entry: TextOpt,
        /// `event`: an event of the kernel reports it; `stack`: read from the kernel's stack when
        /// the thread left its CPU.
        told_by: Cat<ToldBy>,
    }

    /// One time that a thread was put into a dispatch queue of sched_ext or taken out, where
    /// recorded (Linux 6.12 and later).
    DispatchQueues of DispatchQueue, "dispatch_queues" {
        /// When, ns.
        ts: I64,
        /// CPU that did it.
        cpu: U16,
        /// The thread.
        utid: U32,
        /// `insert`: it was put in; `remove`: taken out.
        step: Cat<QueueStep>,
        /// `local`: of one CPU; `global`; `bypass`: where threads wait while the scheduler is
        /// bypassed; `user`: made by the scheduler; `other`: another one of the kernel's.
        kind: Cat<QueueKind>,
        /// Whose queue; null where it is not of one CPU.
        queue_cpu: U16Opt,
        /// The scheduler's number of it; null for the kernel's own.
        queue_id: U64Opt,
        /// Threads in it just before, by the kernel's count.
        queued: U32,
        /// How long the thread may run then, ns; null when taken out.
        slice: U64Opt,
        /// The thread's virtual time; null when taken out.
        vtime: U64Opt,
        /// The kernel's SCX_ENQ flags; null when taken out.
        flags: U64Opt,
        /// How long the watchdog lets a thread wait before it ends the scheduler, ns; null where
        /// the source does not say.
        limit: I64Opt,
    }

    /// One time that a scheduler of sched_ext asked a CPU to look for a thread to run, where
    /// recorded (Linux 6.12 and later).
    Kicks of Kick, "kicks" {
        /// When, ns.
        ts: I64,
        /// CPU on which the scheduler did it.
        cpu: U16,
        /// The CPU that was kicked; null if the machine has no such CPU.
        target: U16Opt,
        /// The kernel's SCX_KICK flags.
        flags: U64,
    }

    /// One stretch of time in which events may be missing.
    Losses of Loss, "losses" {
        /// CPU whose events may be missing; null: any CPU's.
        cpu: U16Opt,
        /// Last event before the gap, ns.
        ts_begin: I64,
        /// First event after the gap, ns.
        ts_end: I64,
        /// How many events are missing, where the source counted; of a `chain_break`, how many
        /// broken chains it stands for, if for several.
        count: U64Opt,
        /// `overrun`: the source said so; `chain_break`: a switch whose outgoing thread is not the
        /// one that came in before; `late_start`, `early_end`: the CPU's recording covers less than
        /// the window; `truncated`: the file ends inside a record; `exit_hole`: FreeBSD records no
        /// switch when a thread exits; `absent`: no event of the CPU is there, though other CPUs
        /// handed it threads.
        reason: Cat<LossReason>,
    }

    /// One logical CPU.
    Cpus of Cpu, "cpus" {
        /// The host's logical number.
        cpu: U16,
        /// Number of its core.
        core: U16Opt,
        /// Number of its last-level cache.
        llc: U16Opt,
        /// Number of its package (socket).
        package: U16Opt,
        /// Number of its memory node.
        numa_node: U16Opt,
        /// All CPUs of its core, as a list ("0-1").
        smt_siblings: TextOpt,
        /// Relative computing power; the fastest CPU has 1024.
        capacity: U32Opt,
        /// It was in use when the capture began, or, of a snapshot, when it was taken.
        online: BoolOpt,
    }

    /// One interval of a thread's life, in the order in which the intervals became known.
    States of StateRow, "states" {
        /// When it began, ns.
        ts: I64,
        /// How long it lasted, ns; never 0.
        dur: I64,
        /// The thread.
        utid: U32,
        /// What it was doing.
        state: Cat<State>,
        /// `running`: on which CPU; `runnable`: on whose queue, null between waking and queue if
        /// the source names none; null in other states.
        cpu: U16Opt,
        /// Its last priority in the interval, the operating system's number.
        prio: I16Opt,
        /// `runnable` after a wakeup: the thread that woke it.
        waker_utid: U32Opt,
        /// How it ended: `switched` onto or off a CPU or to another queue; `woken`; `preempted`:
        /// off a CPU, still wanting it; `exited`; `lost`: the true end was not seen; `window`: it
        /// was still open when the trace ended.
        end: Cat<End>,
    }

    /// One wait of a thread for a CPU, in the order in which the waits ended.
    Waits of Wait, "waits" {
        /// The thread.
        utid: U32,
        /// Why it began: `wake`; `new` thread; `preempt`: it left the CPU still wanting it;
        /// `yield`: the same, and the source says it was voluntary; `unknown`: not seen.
        cause: Cat<Cause>,
        /// When its wakeup was decided, ns.
        ts_waking: I64Opt,
        /// When the wait began, ns: the later of the waking and the thread's last switch-out.
        ts_ready: I64Opt,
        /// When it came onto a run queue, ns.
        ts_enqueued: I64Opt,
        /// When it got a CPU and the wait ended, ns.
        ts_run: I64Opt,
        /// Thread that woke it.
        waker_utid: U32Opt,
        /// CPU on which the wakeup was raised.
        waker_cpu: U16Opt,
        /// CPU it ran on before.
        prev_cpu: U16Opt,
        /// CPU whose queue it waited on last.
        queue_cpu: U16Opt,
        /// CPU that it got.
        cpu: U16Opt,
        /// Its last priority in the wait, the operating system's number.
        prio: I16Opt,
        /// ts_enqueued - ts_ready, ns: choosing a CPU and getting there.
        placement: I64Opt,
        /// ts_run - ts_enqueued, ns: on the queue.
        queue: I64Opt,
        /// ts_run - ts_ready, ns; a lower bound where `censored` is `right`, null where the
        /// beginning was not seen.
        wait: I64Opt,
        /// How long it was at most, ns: `wait` if it was measured; null where it was still open at
        /// the end of the window or began before the thread was first seen.
        wait_high: I64Opt,
        /// What the trace did not see: `none`: nothing; `right`: the end; `left`: the beginning;
        /// `both`.
        censored: Cat<Censored>,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;

    use super::*;

    #[test]
    fn a_table_that_fills_memory_anew_holds_only_its_new_rows() {
        let row = |ts, utid| Yield { ts, utid };
        let mut table = Yields::default();
        (0..100).for_each(|n| table.push(row(n, 1)));
        let first = table.take();
        assert_eq!((first.num_rows(), table.len()), (100, 0));
        let held = first.clone();
        table.refill(first);
        (0..3).for_each(|n| table.push(row(n, 2)));
        let second = table.take();
        assert_eq!((held.num_rows(), second.num_rows()), (100, 3));
        let times = second.column(0).as_primitive::<Int64Type>();
        assert_eq!(times.values(), &[0, 1, 2]);
        drop(held);
        table.refill(second);
        table.push(row(9, 3));
        assert_eq!(
            table.take().column(1).as_primitive::<UInt32Type>().values(),
            &[3]
        );
    }
}
