//! Errors of the engine as exceptions of `schedscope.errors`, and exceptions passed through.

use pyo3::prelude::*;

use schedscope_ground::error::Kind;
pub use schedscope_ground::error::{Error, Result as EngineResult};

/// An error that Python sees as an exception. `?` makes it of an error of the engine, and of an
/// exception; where the engine called Python, it becomes an error of the engine again.
pub struct Raised(Error);

/// What functions return that Python calls.
pub type Result<T> = std::result::Result<T, Raised>;

impl From<Error> for Raised {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<PyErr> for Raised {
    fn from(error: PyErr) -> Self {
        Self(Error::Caller(Box::new(error)))
    }
}

impl From<Raised> for Error {
    fn from(raised: Raised) -> Self {
        raised.0
    }
}

impl From<Raised> for PyErr {
    fn from(Raised(error): Raised) -> Self {
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
