//! Ctrl-C, where Python runs us.

use crate::error::{Error, Result};

/// Raises what a signal handler of Python's raised: to be called now and then by whatever is long.
pub fn check_interrupt() -> Result<()> {
    pyo3::Python::try_attach(|py| py.check_signals())
        .unwrap_or(Ok(()))
        .map_err(Error::Python)
}
