//! The class that holds one reading of `states`, and answers from it: arguments and results are
//! here, the computation in the file of each question.

use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::episode_interference::GivenEpisode;
use super::idle::Allowed;
use super::sharing::Sharing;
use super::tables::source_of;
use super::wait_breakdown::Obstacles;
use super::weights::{GivenWeights, weights_of};
use super::{episode_interference, idle, interference, queues, sharing, wait_breakdown};
use crate::error::Result;
use schedscope_sweep::history::History;

/// Who ran on each CPU and who waited for it: `states`, read once, for any number of
/// sweeps.
///
/// `states` has the columns ts, dur, utid, state (codes) and cpu in
/// the order of the table, and prio if `weights` is given.
#[pyclass(frozen, module = "schedscope._native")]
pub struct CpuHistory(History);

#[pymethods]
impl CpuHistory {
    #[new]
    #[pyo3(signature = (states, window, idle, weights=None))]
    fn new(
        py: Python<'_>,
        states: &Bound<'_, PyAny>,
        window: (i64, i64),
        idle: u32,
        weights: Option<GivenWeights<'_>>,
    ) -> Result<Self> {
        let weights = weights.map(weights_of).transpose()?;
        let states = source_of(states, "states")?;
        let history = py.detach(|| History::read(&states, window, idle, weights))?;
        Ok(Self(history))
    }

    /// CPUs on which anybody ran or waited.
    #[getter]
    fn cpus(&self) -> Vec<u16> {
        self.0.changes.cpus.clone()
    }

    /// One more than the highest utid.
    #[getter]
    fn threads(&self) -> usize {
        self.0.changes.threads
    }

    /// Threads' time runnable on a queue, and on no known one, ns.
    #[getter]
    fn waiting(&self) -> (i64, i64) {
        (self.0.changes.placed, self.0.changes.unplaced)
    }

    /// For how long how many threads wanted each CPU, or the machine.
    fn levels(&self, py: Python<'_>, numbers: Vec<u16>, machine: bool) -> Result<ArrowTable> {
        queues::levels(&self.0, py, numbers, machine)
    }

    /// The same over buckets of `step` ns of the window: sums of time, and the most.
    fn parts(
        &self,
        py: Python<'_>,
        numbers: Vec<u16>,
        machine: bool,
        step: i64,
    ) -> Result<ArrowTable> {
        queues::parts(&self.0, py, numbers, machine, step)
    }

    /// Of each CPU and of the machine (none) over buckets of `step` ns: see `queues::LaneSums`.
    fn depth_sums<'py>(
        &self,
        py: Python<'py>,
        numbers: Vec<u16>,
        step: i64,
    ) -> Result<Vec<queues::LaneSums<'py>>> {
        queues::depth_sums(&self.0, py, numbers, step)
    }

    /// How long CPUs idled while threads waited: sums of the machine, of CPUs, of threads; how long
    /// which threads were throttled; and stretches in which CPU time was wasted all along, of
    /// `least` ns and more, the `top` ones with the most wasted, in order of time.
    #[pyo3(signature = (allowed, least, top))]
    fn idle(
        &self,
        py: Python<'_>,
        allowed: Allowed<'_>,
        least: i64,
        top: Option<usize>,
    ) -> Result<idle::Idle> {
        idle::idle(&self.0, py, allowed, least, top)
    }

    /// Of the `stretches` that `idle` found, those with the most wasted first: who waited in them,
    /// the longest time first, and why (by `waits`: utid, ts_ready, cause, ts_run), the `most`
    /// that did so longest; how long all others did; and which CPUs were spare.
    #[pyo3(signature = (allowed, stretches, waits, most))]
    fn episodes(
        &self,
        py: Python<'_>,
        allowed: Allowed<'_>,
        stretches: &Bound<'_, PyAny>,
        waits: &Bound<'_, PyAny>,
        most: Option<usize>,
    ) -> Result<idle::Episodes> {
        idle::episodes(&self.0, py, allowed, stretches, waits, most)
    }

    /// Who ran on the CPU on whose queue the threads in `asked` waited (utid, victim; and cpu,
    /// if only some queues count), by the `group` of each utid; `waits` as for `episodes`.
    /// A row per victim, and a row per victim and group with the time by each cause: for the
    /// `parts` that have most, and a last one, with group `ngroups + 3`, for all others.
    #[expect(clippy::too_many_arguments, reason = "Python's keywords")]
    fn interference(
        &self,
        py: Python<'_>,
        asked: &Bound<'_, PyAny>,
        group: Vec<u32>,
        ngroups: u32,
        numbers: Vec<u16>,
        waits: &Bound<'_, PyAny>,
        parts: usize,
    ) -> Result<(ArrowTable, ArrowTable)> {
        interference::interference(&self.0, py, asked, group, ngroups, numbers, waits, parts)
    }

    /// What the waits of the threads in `asked` (utid, victim; and cpu, if only some queues count)
    /// consisted of: a row per victim below `nvictims`, and a row for each of the `longest` waits.
    fn wait_breakdown(
        &self,
        py: Python<'_>,
        asked: &Bound<'_, PyAny>,
        nvictims: usize,
        obstacles: Obstacles<'_>,
        longest: usize,
    ) -> Result<(ArrowTable, ArrowTable)> {
        wait_breakdown::wait_breakdown(&self.0, py, asked, nvictims, &obstacles, longest)
    }

    /// Where the time of some `episodes` (utid, begin, end, and the CPUs that the thread may run
    /// on) went: how long each thread waited on which queue, who ran there meanwhile, how long
    /// other CPUs idled that it may run on; and of each the priority at which it waited last.
    /// The priority decides below `strict_to`.
    fn episode_interference(
        &self,
        py: Python<'_>,
        strict_to: i16,
        episodes: Vec<GivenEpisode>,
    ) -> Result<(ArrowTable, ArrowTable, ArrowTable, Vec<Option<i16>>)> {
        episode_interference::episode_interference(&self.0, py, strict_to, episodes)
    }

    /// Service due to each thread and received, by class (and CPU).
    fn due(&self, py: Python<'_>, sharing: Sharing) -> Result<ArrowTable> {
        sharing::due(&self.0, py, sharing)
    }

    /// Windows in which the service of the `chosen` threads (by utid) fell short of what was due by
    /// `bound` ns and more.
    fn shortfalls(
        &self,
        py: Python<'_>,
        sharing: Sharing<'_>,
        chosen: Vec<bool>,
        bound: f64,
    ) -> Result<ArrowTable> {
        sharing::shortfalls(&self.0, py, sharing, chosen, bound)
    }

    /// What was due to each of the `chosen` threads (by utid) and received since the start, at
    /// every of its turns or at the `instants`, in order of time; and how many threads that is of:
    /// of more than `most` accounts there are none.
    #[pyo3(signature = (sharing, chosen, instants=None, most=usize::MAX))]
    fn lag(
        &self,
        py: Python<'_>,
        sharing: Sharing<'_>,
        chosen: Vec<bool>,
        instants: Option<Vec<i64>>,
        most: usize,
    ) -> Result<(usize, ArrowTable)> {
        sharing::lag(&self.0, py, sharing, chosen, instants, most)
    }

    /// What was due to threads in stretches of time: calls `more` for some of them (utid, ts and
    /// until; None for no more), each time with what was `due` in those before, null where nothing
    /// is known. Of the first ones everything is known. Of further ones it is known if their ends
    /// come in order, and each begins after the end before or where its thread began to wait last.
    fn due_in(&self, py: Python<'_>, sharing: Sharing<'_>, more: Py<PyAny>) -> Result<()> {
        sharing::due_in(&self.0, py, sharing, &more)
    }
}
