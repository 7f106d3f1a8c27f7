//! What the engine asks of its surroundings, where those are Python.

use pyo3::prelude::*;

use crate::error::Raised;
use schedscope_ground::hooks::{Hooks, install as install_in_engine};

pub fn install() {
    install_in_engine(Hooks {
        check_interrupt: || {
            Python::try_attach(|py| py.check_signals())
                .unwrap_or(Ok(()))
                .map_err(|error| Raised::from(error).into())
        },
        allow_more_files: || {
            // Where the limit cannot be raised, opening the files says so.
            let _ = Python::try_attach(raise_file_limit);
        },
    });
}

/// Files that we ask for at most.
const WANTED: i64 = 1 << 16;

fn raise_file_limit(py: Python<'_>) -> PyResult<()> {
    let resource = py.import("resource")?;
    let which = resource.getattr("RLIMIT_NOFILE")?;
    let limits = resource.call_method1("getrlimit", (&which,))?;
    let (soft, hard): (i64, i64) = limits.extract()?;
    // -1 is no limit.
    let most = if hard < 0 { WANTED } else { hard.min(WANTED) };
    if (0..most).contains(&soft) {
        resource.call_method1("setrlimit", (which, (most, hard)))?;
    }
    Ok(())
}
