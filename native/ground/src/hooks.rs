//! What the engine asks of the program around it, if that has installed an answer: the boundary
//! to Python does; a plain Rust program need not.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};

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

thread_local! {
    /// Set on threads of the engine's own.
    static STOP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// This thread's work ends when another one sets `stop`: Ctrl-C reaches only the thread that called
/// the engine.
pub fn end_with(stop: Arc<AtomicBool>) {
    STOP.set(Some(stop));
}

/// To be called now and then by whatever is long.
pub fn check_interrupt() -> Result<()> {
    let stop = STOP.with_borrow(|stop| stop.as_ref().map(|stop| stop.load(Ordering::Relaxed)));
    match stop {
        Some(true) => return Err(Error::Caller("told to stop".into())),
        Some(false) => return Ok(()),
        None => {}
    }
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
