//! Errors of the engine as exceptions of `schedscope.errors`, and exceptions passed through.

use pyo3::prelude::*;

use crate::error::{Error, Kind};

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Caller(Box::new(error))
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let (class, parts) = match error {
            Error::Caller(error) => match error.downcast::<PyErr>() {
                Ok(exception) => return *exception,
                Err(other) => (
                    "InternalError",
                    (other.to_string(), String::new(), String::new()),
                ),
            },
            Error::Report {
                kind,
                found,
                expected,
                hint,
            } => {
                let class = match kind {
                    Kind::Format => "FormatError",
                    Kind::Io => "StorageError",
                    Kind::Usage => "UsageError",
                    Kind::Internal => "InternalError",
                };
                (class, (found, expected, hint))
            }
        };
        Python::attach(|py| {
            py.import("schedscope.errors")
                .and_then(|module| module.getattr(class))
                .and_then(|class| class.call1(parts))
                .map_or_else(|error| error, PyErr::from_value)
        })
    }
}
