//! One error type for the whole engine: what was found and where, what was expected,
//! what to do now. `python/error.rs` makes it one of `schedscope.errors.*`.

use std::fmt;

/// More of a sentence is not read, in bytes.
const LONGEST: usize = 1000;

/// Whose fault the error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The bytes are not what the format says: `FormatError`.
    Format,
    /// The operating system refused: `StorageError`.
    Io,
    /// The caller asked for something impossible: `UsageError`.
    Usage,
    /// A fault of our own: `InternalError`.
    Internal,
}

/// An error in three parts, or one of the program around the engine.
#[derive(Debug)]
pub enum Error {
    Report {
        kind: Kind,
        found: String,
        expected: String,
        hint: String,
    },
    /// A hook or a callback of the caller failed (Ctrl-C, an exception): returned unchanged.
    Caller(Box<dyn std::error::Error + Send + Sync>),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn format(
        found: impl Into<String>,
        expected: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Report {
            kind: Kind::Format,
            found: plain(&found.into()),
            expected: expected.into(),
            hint: hint.into(),
        }
    }

    pub fn usage(
        found: impl Into<String>,
        expected: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Report {
            kind: Kind::Usage,
            found: found.into(),
            expected: expected.into(),
            hint: hint.into(),
        }
    }

    /// Ends a pass over events whose consumer needs no more.
    pub fn enough() -> Self {
        Self::Caller("no more events are needed".into())
    }

    /// What only a mistake in schedscope can lead to.
    pub fn internal(found: impl Into<String>) -> Self {
        Self::Report {
            kind: Kind::Internal,
            found: found.into(),
            expected: String::new(),
            hint: String::new(),
        }
    }

    /// A panic of a decoder, on a thread of its own, in one sentence.
    pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Self::internal(format!("the decoder failed: {}", text.unwrap_or("a panic")))
    }

    /// The same, saying where.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        if let Self::Report { found, .. } = &mut self {
            *found = plain(&format!("{place}: {found}"));
        }
        self
    }

    /// The same about bytes of the file `name`, where the reader did not know the name.
    #[must_use]
    pub fn within(self, name: impl fmt::Display) -> Self {
        match self {
            Self::Report {
                kind: Kind::Format, ..
            } => self.at(name),
            other => other,
        }
    }

    /// `doing` completes the sentence "cannot ...", e.g. `read x.dat`.
    pub fn io(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::Report {
            kind: Kind::Io,
            found: format!("cannot {doing}: {error}"),
            expected: String::new(),
            hint: match error.kind() {
                std::io::ErrorKind::StorageFull => {
                    "free some space, or write elsewhere (--output; converted traces: --cache)"
                        .into()
                }
                std::io::ErrorKind::PermissionDenied => {
                    "check the permissions, or copy the file where you may read it".into()
                }
                std::io::ErrorKind::NotFound => "check the path".into(),
                _ if error.raw_os_error() == Some(EMFILE) => {
                    "allow more open files (ulimit -n)".into()
                }
                _ => String::new(),
            },
        }
    }
}

/// "Too many open files", on Linux and FreeBSD.
const EMFILE: i32 = 24;

/// What a sentence quotes of a file may be anything, and of any length.
pub fn plain(text: &str) -> String {
    let mut said = String::with_capacity(text.len().min(LONGEST));
    for letter in text.chars() {
        if said.len() >= LONGEST {
            said.push_str("...");
            break;
        }
        if letter.is_control() {
            said.extend(letter.escape_default());
        } else {
            said.push(letter);
        }
    }
    said
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Report {
                found,
                expected,
                hint,
                ..
            } => {
                f.write_str(found)?;
                if !expected.is_empty() {
                    write!(f, "; expected {expected}")?;
                }
                if !hint.is_empty() {
                    write!(f, ". Hint: {hint}")?;
                }
                Ok(())
            }
            Self::Caller(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_cannot_spoil_a_sentence() {
        let error = Error::format("a name \u{3}\n of x", "", "").within("a\tfile");
        assert_eq!(error.to_string(), r"a\tfile: a name \u{3}\n of x");
        let long = Error::format("x".repeat(100_000), "", "").to_string();
        assert_eq!(long.len(), LONGEST + 3);
    }
}
