//! The same work on each of several things, by several threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::hooks::{check_interrupt, end_with};

/// How often the calling thread looks whether Ctrl-C was pressed while it waits for the others.
const PATIENCE: Duration = Duration::from_millis(50);

/// What `work` makes of each of `items`, in their order, by the calling thread and others, `jobs`
/// in all. Where it fails, the error is that of the first item that has one, as from one thread.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let others = jobs.min(items.len()).saturating_sub(1);
    if others == 0 {
        return items.iter().map(work).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let busy = AtomicUsize::new(others);
    let results: Vec<Mutex<Option<Result<R>>>> = items.iter().map(|_| Mutex::default()).collect();
    // Items are started in order: all before one that fails are completed.
    let take = || -> Option<Result<R>> {
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let item = items.get(at)?;
            let done = catch_unwind(AssertUnwindSafe(|| work(item)));
            let done = done.unwrap_or_else(|panic| Err(Error::panicked(&*panic)));
            failed.fetch_or(done.is_err(), Ordering::Relaxed);
            if let Err(Error::Caller(_)) = &done {
                return Some(done);
            }
            *results[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        }
        None
    };
    let stop = Arc::new(AtomicBool::new(false));
    let caller = thread::current();
    let stopped = thread::scope(|scope| {
        for _ in 0..others {
            let helper = thread::Builder::new().spawn_scoped(scope, || {
                end_with(Arc::clone(&stop));
                // An error that came of `stop` is the calling thread's.
                take();
                busy.fetch_sub(1, Ordering::Release);
                caller.unpark();
            });
            if helper.is_err() {
                // The others do what there is to do.
                busy.fetch_sub(1, Ordering::Release);
            }
        }
        let mut stopped = take();
        while stopped.is_none() && busy.load(Ordering::Acquire) > 0 {
            stopped = check_interrupt().err().map(Err);
            thread::park_timeout(PATIENCE);
        }
        stop.store(true, Ordering::Relaxed);
        stopped
    });
    if let Some(Err(error)) = stopped {
        return Err(error);
    }
    let results = results.into_iter().filter_map(|result| {
        let result = result.into_inner();
        result.unwrap_or_else(PoisonError::into_inner)
    });
    results.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_are_those_of_one_thread() {
        let items: Vec<u32> = (0..500).collect();
        for jobs in [0, 1, 2, 5, 1000] {
            let doubled = each(&items, jobs, |item| Ok(2 * item)).unwrap();
            assert_eq!(doubled, (0..1000).step_by(2).collect::<Vec<_>>());
            let failed = each(&items, jobs, |&item| match item {
                77 => {
                    thread::sleep(Duration::from_millis(5));
                    Err(Error::internal("77"))
                }
                78.. => Err(Error::internal("a later one")),
                _ => Ok(()),
            });
            assert_eq!(failed.unwrap_err().to_string(), "77");
        }
    }

    #[test]
    fn an_error_of_the_caller_ends_the_others() {
        let caller = thread::current().id();
        let stopped = each(&[0; 2], 2, |_| {
            if thread::current().id() == caller {
                return Err::<(), _>(Error::Caller("Ctrl-C".into()));
            }
            loop {
                check_interrupt()?;
                thread::yield_now();
            }
        });
        // Unless the calling thread came too late for any item, it ended the other one.
        assert_eq!(stopped.unwrap_err().to_string(), "Ctrl-C");
    }

    #[test]
    fn a_panic_is_an_error() {
        let items = [1, 2, 3];
        let error = each(&items, 2, |item| {
            assert!(*item != 2, "no luck");
            Ok(())
        });
        assert!(error.unwrap_err().to_string().ends_with("no luck"));
    }
}
