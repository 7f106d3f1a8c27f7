//! What the simulator's policies declare.
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::Result;
use schedscope_sim::policy::tunables::Kind;
use schedscope_sim::policy::{InteractivityRule, LagRule, registry};

/// Every policy: all that its `Spec` declares.
#[pyfunction]
pub fn policies(py: Python<'_>) -> Result<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for (spec, preset) in registry::all() {
        let row = PyDict::new(py);
        row.set_item("name", preset.name)?;
        row.set_item("family", spec.family)?;
        row.set_item("summary", spec.summary)?;
        row.set_item("models", spec.models)?;
        row.set_item("preset", preset.doc)?;
        row.set_item("work_conserving", spec.work_conserving)?;
        row.set_item("strict_classes", spec.strict_classes)?;
        row.set_item("role", spec.role.name())?;
        row.set_item("priorities", spec.priorities.name())?;
        row.set_item("scores", spec.interactivity.is_some())?;
        row.set_item(
            "score_limit",
            spec.interactivity.map(InteractivityRule::score_limit),
        )?;
        row.set_item(
            "asks_for_wakers",
            spec.interactivity
                .is_some_and(InteractivityRule::asks_for_wakers),
        )?;
        row.set_item("keeps_virtual_time", spec.lag.is_some())?;
        row.set_item("groups", spec.groups)?;
        row.set_item(
            "has_eligibility",
            spec.lag.is_some_and(LagRule::has_eligibility),
        )?;
        let tunables = PyList::empty(py);
        for t in spec.tunables {
            let entry = PyDict::new(py);
            entry.set_item("name", t.name)?;
            let (kind, choices) = match t.kind {
                Kind::Ns => ("time", None),
                Kind::Int => ("integer", None),
                Kind::Real => ("number", None),
                Kind::Bool => ("switch", None),
                Kind::Choice(all) => ("choice", Some(all.to_vec())),
            };
            entry.set_item("kind", kind)?;
            entry.set_item("choices", choices)?;
            let own = preset.values.iter().find(|(n, _)| *n == t.name);
            entry.set_item("default", own.map_or(t.default, |(_, v)| *v))?;
            entry.set_item("unit", t.unit)?;
            entry.set_item("doc", t.doc)?;
            tunables.append(entry)?;
        }
        row.set_item("tunables", tunables)?;
        let series = PyList::empty(py);
        for s in spec.series {
            let entry = PyDict::new(py);
            entry.set_item("name", s.name)?;
            entry.set_item("unit", s.unit)?;
            entry.set_item("doc", s.doc)?;
            series.append(entry)?;
        }
        row.set_item("series", series)?;
        list.append(row)?;
    }
    Ok(list)
}
