//! What the simulator says when it cannot go on: found, expected, what to do.
use std::fmt;

/// An error in three parts, shown to the user as three sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimError {
    pub found: String,
    pub expected: String,
    pub hint: String,
}

impl SimError {
    pub fn new(
        found: impl Into<String>,
        expected: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            found: found.into(),
            expected: expected.into(),
            hint: hint.into(),
        }
    }
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}. Hint: {}", self.found, self.expected, self.hint)
    }
}

impl std::error::Error for SimError {}

pub type Result<T> = std::result::Result<T, SimError>;
