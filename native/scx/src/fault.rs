//! What a program did that ends it.

/// The rest of a sentence whose subject is the program: "reads 8 bytes at ...".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub what: String,
    /// The instruction, if it is one.
    pub at: Option<u32>,
}

impl Fault {
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            at: None,
        }
    }
}
