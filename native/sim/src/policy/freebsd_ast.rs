//! How FreeBSD's schedulers make the running thread leave its CPU.
//!
//! At its return to user mode (`ast_sched`), which is at once where no kernel code takes
//! time: it then has its user priority and goes behind its equals. Or inside the
//! kernel (`td_owepreempt`, `sched_preempt`): it keeps its active priority and goes
//! before its equals. The engine's request to choose is the same for both, so a
//! policy keeps with each CPU which one it was.

/// Why the running thread is to be switched out, until it is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    /// At its return to user mode.
    pub at_return: bool,
    /// At once, in the kernel.
    pub preempt: bool,
    /// At once if the interrupt still finds a better thread (ULE).
    pub interrupt: bool,
    /// Its slice is over: however it leaves, it goes behind its equals.
    pub slice_end: bool,
    /// It looks for another CPU as it goes (ULE).
    pub pick_cpu: bool,
}
