//! `World` as a Python policy sees it: the same questions and requests.
use std::sync::Mutex;

use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use schedscope_sim::machine::{Cpu, Distance};
use schedscope_sim::workload::{Class, Tid};
use schedscope_sim::world::{RescheduleReason, SleepKind, State, World};

/// What a policy may see and ask for; lent to each hook and gone after it.
#[pyclass(frozen, module = "schedscope._native", name = "SimWorld")]
#[derive(Default)]
pub struct PyWorld {
    /// Filled only while a hook runs.
    inner: Mutex<Option<World>>,
}

impl PyWorld {
    pub fn lend(&self, world: World) {
        *self.lock() = Some(world);
    }

    pub fn take_back(&self) -> Option<World> {
        self.lock().take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<World>> {
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn with<T>(&self, f: impl FnOnce(&mut World) -> PyResult<T>) -> PyResult<T> {
        match self.lock().as_mut() {
            Some(world) => f(world),
            None => Err(PyRuntimeError::new_err(
                "the world can be asked only inside a hook of the policy, while it runs",
            )),
        }
    }

    fn thread<T>(&self, t: Tid, f: impl FnOnce(&mut World) -> T) -> PyResult<T> {
        self.with(|w| {
            if (t as usize) < w.nthreads() {
                Ok(f(w))
            } else {
                Err(PyIndexError::new_err(format!(
                    "there is no thread {t}: they are 0 to {}",
                    w.nthreads() - 1
                )))
            }
        })
    }

    fn cpu<T>(&self, c: Cpu, f: impl FnOnce(&mut World) -> T) -> PyResult<T> {
        self.with(|w| {
            if (c as usize) < w.ncpu() {
                Ok(f(w))
            } else {
                Err(PyIndexError::new_err(format!(
                    "there is no CPU {c}: they are 0 to {}",
                    w.ncpu() - 1
                )))
            }
        })
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Deadline => "deadline",
        Class::Interrupt => "interrupt",
        Class::Kernel => "kernel",
        Class::Fifo => "fifo",
        Class::RoundRobin => "rr",
        Class::Fair => "fair",
        Class::Batch => "batch",
        Class::Idle => "idle",
    }
}

#[pymethods]
impl PyWorld {
    /// The simulated instant, ns.
    #[getter]
    fn now(&self) -> PyResult<i64> {
        self.with(|w| Ok(w.now()))
    }

    #[getter]
    fn ncpu(&self) -> PyResult<usize> {
        self.with(|w| Ok(w.ncpu()))
    }

    #[getter]
    fn nthreads(&self) -> PyResult<usize> {
        self.with(|w| Ok(w.nthreads()))
    }

    /// nice value of thread `t`.
    fn nice(&self, t: Tid) -> PyResult<i8> {
        self.thread(t, |w| w.thread(t).nice)
    }

    /// Scheduling class of `t`: fifo, rr, fair, batch or idle.
    fn sched_class(&self, t: Tid) -> PyResult<&'static str> {
        self.thread(t, |w| class_name(w.thread(t).class))
    }

    fn rt_prio(&self, t: Tid) -> PyResult<u8> {
        self.thread(t, |w| w.thread(t).rt_prio)
    }

    /// unborn, running, queued, sleeping or dead.
    fn state(&self, t: Tid) -> PyResult<&'static str> {
        self.thread(t, |w| match w.thread(t).state {
            State::Unborn => "unborn",
            State::Running => "running",
            State::Queued => "queued",
            State::Sleeping => "sleeping",
            State::Dead => "dead",
        })
    }

    /// Where `t` runs, waits, or slept.
    fn cpu_of(&self, t: Tid) -> PyResult<Cpu> {
        self.thread(t, |w| w.thread(t).cpu)
    }

    /// Where `t` last ran; None before its first run.
    fn last_cpu(&self, t: Tid) -> PyResult<Option<Cpu>> {
        self.thread(t, |w| w.thread(t).last_cpu)
    }

    /// Length of the last sleep of `t`, ns.
    fn slept(&self, t: Tid) -> PyResult<i64> {
        self.thread(t, |w| w.thread(t).slept)
    }

    /// Whether that sleep was uninterruptible.
    fn slept_on_disk(&self, t: Tid) -> PyResult<bool> {
        self.thread(t, |w| w.thread(t).sleep_kind == SleepKind::Disk)
    }

    /// CPU time `t` still needs before it blocks: what only an oracle knows.
    fn burst_left(&self, t: Tid) -> PyResult<i64> {
        self.thread(t, |w| w.burst_left(t))
    }

    fn allowed(&self, t: Tid, cpu: Cpu) -> PyResult<bool> {
        self.cpu(cpu, |_| ())?;
        self.thread(t, |w| w.allowed(t, cpu))
    }

    /// The CPUs `t` may use.
    fn cpus_for(&self, t: Tid) -> PyResult<Vec<Cpu>> {
        self.thread(t, |w| w.mask(t).iter().collect())
    }

    /// The lowest idle CPU that `t` may use, or None.
    fn idle_for(&self, t: Tid) -> PyResult<Option<Cpu>> {
        self.thread(t, |w| w.idle_for(t))
    }

    /// Whether `cpu` runs nothing and has nothing queued.
    fn is_idle(&self, cpu: Cpu) -> PyResult<bool> {
        self.cpu(cpu, |w| w.is_idle(cpu))
    }

    /// The thread running on `cpu`, or None.
    fn running(&self, cpu: Cpu) -> PyResult<Option<Tid>> {
        self.cpu(cpu, |w| w.cpu(cpu).curr)
    }

    /// Runnable threads of `cpu`, without the running one.
    fn nr_queued(&self, cpu: Cpu) -> PyResult<u32> {
        self.cpu(cpu, |w| w.cpu(cpu).nr_queued)
    }

    /// same, smt, llc, package or numa.
    fn distance(&self, a: Cpu, b: Cpu) -> PyResult<&'static str> {
        self.cpu(a, |_| ())?;
        self.cpu(b, |w| match w.machine.distance(a, b) {
            Distance::Same => "same",
            Distance::Smt => "smt",
            Distance::Llc => "llc",
            Distance::Package => "package",
            Distance::Numa => "numa",
        })
    }

    /// ns that the thread on `cpu` ran since the last call or its pick.
    fn take_run(&self, cpu: Cpu) -> PyResult<i64> {
        self.cpu(cpu, |w| w.take_run(cpu))
    }

    /// Ask `cpu` to choose again: `why` is "preempted" or "slice_end".
    #[pyo3(signature = (cpu, why="preempted"))]
    fn resched(&self, cpu: Cpu, why: &str) -> PyResult<()> {
        let why = match why {
            "preempted" => RescheduleReason::Preempted,
            "slice_end" => RescheduleReason::SliceEnd,
            other => {
                return Err(PyValueError::new_err(format!(
                    "why is {other:?}, expected \"preempted\" or \"slice_end\""
                )));
            }
        };
        self.cpu(cpu, |w| w.resched(cpu, why))
    }

    /// Call `timer(id)` at `at` (ns); replaces the timer's earlier setting.
    fn arm_timer(&self, id: u32, at: i64) -> PyResult<()> {
        if id >= MAX_TIMERS {
            return Err(PyValueError::new_err(format!(
                "timer {id}: ids are below {MAX_TIMERS}"
            )));
        }
        self.with(|w| {
            w.arm_timer(id, at);
            Ok(())
        })
    }

    fn disarm_timer(&self, id: u32) -> PyResult<()> {
        if id >= MAX_TIMERS {
            return Err(PyValueError::new_err(format!(
                "timer {id}: ids are below {MAX_TIMERS}"
            )));
        }
        self.with(|w| {
            w.disarm_timer(id);
            Ok(())
        })
    }

    /// The queued `t` was moved to `to`'s queue.
    fn migrate(&self, t: Tid, to: Cpu) -> PyResult<()> {
        self.cpu(to, |_| ())?;
        self.thread(t, |w| {
            if w.thread(t).state == State::Queued && w.allowed(t, to) {
                w.migrate(t, to);
                Ok(())
            } else {
                Err(PyValueError::new_err(format!(
                    "thread {t} cannot move to CPU {to}: it is not queued, or may not run there"
                )))
            }
        })?
    }

    /// Uniform in 0..n, from the run's seed.
    fn random(&self, n: u64) -> PyResult<u64> {
        self.with(|w| Ok(w.rng.below(n)))
    }

    /// Add a point to the internal series `series` (index into the policy's
    /// `series`) of thread `t`.
    fn record(&self, series: u16, t: Tid, value: f64) -> PyResult<()> {
        self.thread(t, |w| w.record(series, t, value))
    }

    /// The same for a CPU.
    fn record_cpu(&self, series: u16, cpu: Cpu, value: f64) -> PyResult<()> {
        self.cpu(cpu, |w| w.record_cpu(series, cpu, value))
    }
}

const MAX_TIMERS: u32 = 1 << 16;
