//! What the engine asks of the program around it, if that has installed an answer: the boundary
//! to Python does; a plain Rust program need not.

use std::sync::OnceLock;

use crate::error::Result;

pub struct Hooks {
    /// An error ends whatever runs: Ctrl-C was pressed.
    pub check_interrupt: fn() -> Result<()>,
    /// Raises the number of files that may be open at once, as far as the system allows.
    pub allow_more_files: fn(),
}

static INSTALLED: OnceLock<Hooks> = OnceLock::new();

/// For the whole process; the first call counts.
pub fn install(hooks: Hooks) {
    let _ = INSTALLED.set(hooks);
}

/// To be called now and then by whatever is long.
pub fn check_interrupt() -> Result<()> {
    INSTALLED
        .get()
        .map_or(Ok(()), |hooks| (hooks.check_interrupt)())
}

pub fn allow_more_files() {
    if let Some(hooks) = INSTALLED.get() {
        (hooks.allow_more_files)();
    }
}

/// Called now and then with the bytes done and in all; an error ends the pass.
pub type Progress<'a> = dyn FnMut(u64, u64) -> Result<()> + 'a;
