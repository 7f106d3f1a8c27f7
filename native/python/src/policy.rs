//! A policy written in Python: each hook is a method of the same name.
//!
//! The world is moved into a Python object for the time of a hook and taken
//! back after it, so that no reference outlives the call. A hook that raises
//! ends the simulation with its exception.
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::world::PyWorld;
use crate::error::{Error, Result};
use schedscope_sim::machine::Cpu;
use schedscope_sim::policy::{Clocks, EnqueueReason, Policy, SelectReason, SwitchOutReason, Wake};
use schedscope_sim::workload::Tid;
use schedscope_sim::world::World;

pub struct PyPolicy {
    object: Py<PyAny>,
    world: Py<PyWorld>,
    clocks: Clocks,
}

impl PyPolicy {
    pub fn new(py: Python<'_>, object: Py<PyAny>) -> Result<Self> {
        let bound = object.bind(py);
        let number = |name: &str| -> Result<u32> {
            let value = bound.getattr(name)?;
            let number = value.extract().map_err(|_| {
                Error::usage(
                    format!("the policy's {name} is {}", shown(&value)),
                    "a whole number of ticks a second, 0 for none",
                    "correct that attribute of your policy",
                )
            });
            Ok(number?)
        };
        let clocks = Clocks {
            hz: number("hz")?,
            stathz: number("stathz")?,
            idle_ticks: bound.getattr("idle_ticks")?.extract()?,
            skew_ns: 0,
        };
        if clocks.hz > 1_000_000 || clocks.stathz > 1_000_000 {
            return Err(Error::usage(
                format!("hz {} and stathz {}", clocks.hz, clocks.stathz),
                "clocks of at most 1000000 ticks a second",
                "use a timer for shorter times",
            )
            .into());
        }
        Ok(Self {
            world: Py::new(py, PyWorld::default())?,
            object,
            clocks,
        })
    }

    /// Calls `name(world, *args)`; on an exception notes it and answers `None`.
    fn call<A, T>(&self, w: &mut World, name: &str, args: A) -> Option<T>
    where
        A: for<'py> FnOnce(Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>>,
        T: for<'a, 'py> FromPyObject<'a, 'py>,
    {
        let lent = std::mem::replace(w, World::hollow());
        let answer = Python::attach(|py| -> Result<T> {
            let world = self.world.bind(py);
            world.get().lend(lent);
            let mut all = vec![world.clone().into_any()];
            all.extend(args(py)?);
            let answer = self
                .object
                .bind(py)
                .call_method1(name, PyTuple::new(py, all)?)?;
            let answer = answer.extract::<T>().map_err(|_| {
                Error::usage(
                    format!("{name} of the policy answered {}", shown(&answer)),
                    "the number of a CPU from select_cpu, of a thread or None from pick_next and on_idle",
                    "correct that hook of your policy",
                )
            });
            Ok(answer?)
        });
        if let Some(back) = self.world.get().take_back() {
            *w = back;
        }
        answer.map_err(|e| w.fail(e.into())).ok()
    }
}

/// A value of a user's policy, in an error.
fn shown(value: &Bound<'_, PyAny>) -> String {
    value.repr().map_or_else(
        |_| "something that cannot be shown".to_string(),
        |text| text.to_string().chars().take(80).collect(),
    )
}

/// Turns each argument into a Python object.
macro_rules! args {
    ($($value:expr),* $(,)?) => {
        |_py| Ok(vec![$($value.into_pyobject(_py)?.into_any()),*])
    };
}

fn left_name(left: SwitchOutReason) -> &'static str {
    match left {
        SwitchOutReason::SliceEnd => "slice_end",
        SwitchOutReason::Preempted => "preempted",
        SwitchOutReason::Yielded => "yielded",
        SwitchOutReason::Blocked => "blocked",
        SwitchOutReason::Exited => "exited",
        SwitchOutReason::Moved => "moved",
    }
}

fn how_name(how: EnqueueReason) -> &'static str {
    match how {
        EnqueueReason::Wakeup => "wakeup",
        EnqueueReason::New => "new",
        EnqueueReason::Moved => "moved",
    }
}

impl Policy for PyPolicy {
    fn clocks(&self) -> Clocks {
        self.clocks
    }

    fn init(&mut self, w: &mut World) {
        self.call::<_, Py<PyAny>>(w, "init", args!());
    }

    fn on_fork(&mut self, w: &mut World, parent: Option<Tid>, child: Tid) {
        self.call::<_, Py<PyAny>>(w, "on_fork", args!(parent, child));
    }

    fn select_cpu(&mut self, w: &mut World, t: Tid, place: SelectReason) -> Cpu {
        let waker = match place {
            SelectReason::Wake(Wake { cpu, .. }) | SelectReason::Fork(Wake { cpu, .. }) => {
                Some(cpu)
            }
            SelectReason::Moved | SelectReason::Offline => None,
        };
        self.call(w, "select_cpu", args!(t, waker))
            .unwrap_or_else(|| w.mask(t).iter().next().unwrap_or(0))
    }

    fn enqueue(&mut self, w: &mut World, cpu: Cpu, t: Tid, how: EnqueueReason) {
        self.call::<_, Py<PyAny>>(w, "enqueue", args!(cpu, t, how_name(how)));
    }

    fn dequeue(&mut self, w: &mut World, cpu: Cpu, t: Tid) {
        self.call::<_, Py<PyAny>>(w, "dequeue", args!(cpu, t));
    }

    fn check_preempt(&mut self, w: &mut World, cpu: Cpu, t: Tid, _: Wake) {
        self.call::<_, Py<PyAny>>(w, "check_preempt", args!(cpu, t));
    }

    fn pick_next(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let t = self.call::<_, Option<Tid>>(w, "pick_next", args!(cpu))??;
        self.known(w, t)
    }

    fn put_prev(&mut self, w: &mut World, cpu: Cpu, t: Tid, left: SwitchOutReason) {
        self.call::<_, Py<PyAny>>(w, "put_prev", args!(cpu, t, left_name(left)));
    }

    fn on_idle(&mut self, w: &mut World, cpu: Cpu) -> Option<Tid> {
        let t = self.call::<_, Option<Tid>>(w, "on_idle", args!(cpu))??;
        self.known(w, t)
    }

    fn tick(&mut self, w: &mut World, cpu: Cpu) {
        self.call::<_, Py<PyAny>>(w, "tick", args!(cpu));
    }

    fn stat_tick(&mut self, w: &mut World, cpu: Cpu) {
        self.call::<_, Py<PyAny>>(w, "stat_tick", args!(cpu));
    }

    fn timer(&mut self, w: &mut World, id: u32) {
        self.call::<_, Py<PyAny>>(w, "timer", args!(id));
    }

    fn set_priority(&mut self, w: &mut World, t: Tid) {
        self.call::<_, Py<PyAny>>(w, "set_priority", args!(t));
    }
}

impl PyPolicy {
    fn known(&self, w: &mut World, t: Tid) -> Option<Tid> {
        if (t as usize) < w.nthreads() {
            return Some(t);
        }
        w.fail(Error::usage(
            format!("the policy picked thread {t}"),
            format!("one of the threads 0 to {}", w.nthreads() - 1),
            "correct pick_next or on_idle of your policy",
        ));
        None
    }
}
