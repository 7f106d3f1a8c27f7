//! A source decoded on a separate thread, ahead of the consumer of its events.
//!
//! Events arrive in the order in which the source sends them, so that whatever is made of them
//! is the same to the byte. They travel in batches: to wake another thread costs as much as
//! decoding a hundred of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, TrySendError, channel,
    sync_channel,
};
use std::thread;
use std::time::Duration;

use crate::chores::Chores;
use crate::error::{Error, Result};
use crate::hooks::end_with;
use crate::model::event::{Event, EventSink, Source, SourceEnd};

/// Events of a batch: 0.2 MB, which stay in a core's second cache from one thread's hands to
/// the other's.
const BATCH: usize = 1 << 11;

/// Batches that wait to be taken: the decoder may be so far ahead.
const AHEAD: usize = 8;

/// How long a decoder may send nothing before we look whether Ctrl-C was pressed.
const PATIENCE: Duration = Duration::from_millis(50);

/// Threads beyond this would have nothing to do: the one that takes the events is never faster.
const MOST: usize = 6;

/// `source.run(sink)` by so many threads: with two, one decodes, and each does chores while it has
/// to wait for the other; more do nothing but chores. To those of the source others may be added.
pub fn run(
    source: &mut dyn Source,
    sink: &mut impl EventSink,
    jobs: usize,
    chores: &Arc<Chores>,
) -> Result<SourceEnd> {
    run_from(source, None, sink, jobs, chores)
}

/// The same with `source.run_from`, if not all of it is asked for.
pub fn run_from(
    source: &mut dyn Source,
    from: Option<i64>,
    sink: &mut impl EventSink,
    jobs: usize,
    chores: &Arc<Chores>,
) -> Result<SourceEnd> {
    let read = move |source: &mut dyn Source, sink: &mut dyn EventSink| match from {
        Some(from) => source.run_from(from, sink),
        None => source.run(sink),
    };
    if jobs < 2 {
        return read(source, sink);
    }
    let state = Arc::new(State {
        chores: Arc::clone(chores),
        ..State::default()
    });
    source.helped_by(chores);
    let (full, batches) = sync_channel(AHEAD);
    let (used, empty) = channel();
    thread::scope(|scope| {
        let ours = Arc::clone(&state);
        let named = |name: &str| thread::Builder::new().name(name.into());
        let decoding = named("decoder").spawn_scoped(scope, move || {
            end_with(Arc::clone(&ours.stop));
            let mut batches = Batches {
                batch: Vec::with_capacity(BATCH),
                full,
                empty,
                state: ours,
            };
            let end = read(source, &mut batches);
            // What came before an error, too: to take it may be one.
            batches.hand_on().and(end)
        });
        let decoding = decoding.map_err(|error| Error::io("start a thread", &error))?;
        for _ in 2..jobs.min(MOST) {
            // Without it, others do what there is to do.
            let _ = named("helper").spawn_scoped(scope, || chores.until(&state.stop));
        }
        // Unwinding, too, must let the others go: the scope waits for them.
        let taken = catch_unwind(AssertUnwindSafe(|| take(batches, used, &state, sink)));
        chores.end(&state.stop);
        let end = decoding.join();
        match taken {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => end.unwrap_or_else(|panic| Err(Error::panicked(&*panic))),
        }
    })
}

/// What all threads look at.
#[derive(Default)]
struct State {
    /// Events are no longer taken.
    stop: Arc<AtomicBool>,
    /// Bytes of input done, and in all.
    done: AtomicU64,
    total: AtomicU64,
    chores: Arc<Chores>,
}

/// The decoder's end.
struct Batches {
    batch: Vec<Event>,
    full: SyncSender<Vec<Event>>,
    /// Those that were taken: memory that is in a cache still.
    empty: Receiver<Vec<Event>>,
    state: Arc<State>,
}

impl Batches {
    fn hand_on(&mut self) -> Result<()> {
        let empty = self.empty.try_recv();
        let empty = empty.unwrap_or_else(|_| Vec::with_capacity(BATCH));
        let mut full = std::mem::replace(&mut self.batch, empty);
        loop {
            full = match self.full.try_send(full) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(full)) => full,
                Err(TrySendError::Disconnected(_)) => return Err(nobody_takes()),
            };
            if !self.state.chores.one() {
                return self.full.send(full).map_err(|_| nobody_takes());
            }
        }
    }
}

/// Ends the decoder; the consumer of its events knows why.
fn nobody_takes() -> Error {
    Error::Caller("nobody takes the events".into())
}

impl EventSink for Batches {
    #[inline]
    fn event(&mut self, event: &Event) -> Result<()> {
        self.batch.push(*event);
        if self.batch.len() < BATCH {
            return Ok(());
        }
        self.hand_on()
    }

    fn progress(&mut self, done: u64, total: u64) -> Result<()> {
        self.state.done.store(done, Ordering::Relaxed);
        self.state.total.store(total, Ordering::Relaxed);
        if self.state.stop.load(Ordering::Relaxed) {
            return Err(nobody_takes());
        }
        Ok(())
    }
}

/// Hands the events of all batches to `sink`, until the decoder has ended.
fn take(
    batches: Receiver<Vec<Event>>,
    used: Sender<Vec<Event>>,
    state: &State,
    sink: &mut impl EventSink,
) -> Result<()> {
    loop {
        let batch = match batches.try_recv() {
            Err(TryRecvError::Empty) if state.chores.one() => None,
            Err(TryRecvError::Empty) => match batches.recv_timeout(PATIENCE) {
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                received => received.ok(),
            },
            Err(TryRecvError::Disconnected) => return Ok(()),
            Ok(batch) => Some(batch),
        };
        if let Some(mut batch) = batch {
            for event in &batch {
                sink.event(event)?;
            }
            batch.clear();
            // It ended if the memory is no longer needed.
            let _ = used.send(batch);
        }
        let done = state.done.load(Ordering::Relaxed);
        sink.progress(done, state.total.load(Ordering::Relaxed))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::check_interrupt;
    use crate::model::event::SourceInfo;

    /// Sends so many events, and then does what `last` does.
    struct Counting<F>(SourceInfo, i64, F);

    impl<F: FnMut() -> Result<SourceEnd> + Send> Source for Counting<F> {
        fn info(&self) -> &SourceInfo {
            &self.0
        }

        fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
            for ts in 0..self.1 {
                sink.event(&Event::Yield { ts, tid: 7 })?;
                if ts % 100 == 0 {
                    sink.progress(ts as u64, self.1 as u64)?;
                }
            }
            (self.2)()
        }
    }

    /// Takes events up to the one at `until`, and reports progress at this interval.
    struct Taking {
        taken: Vec<i64>,
        until: i64,
        done: u64,
        patience: u32,
    }

    impl EventSink for Taking {
        fn event(&mut self, event: &Event) -> Result<()> {
            if event.ts() >= self.until {
                return Err(Error::Caller("enough".into()));
            }
            self.taken.push(event.ts());
            Ok(())
        }

        fn progress(&mut self, done: u64, _: u64) -> Result<()> {
            assert!(done >= self.done);
            self.done = done;
            self.patience -= 1;
            if self.patience > 0 {
                return Ok(());
            }
            Err(Error::Caller("enough".into()))
        }
    }

    /// What arrived of `events`, and how it ended.
    fn taken(
        jobs: usize,
        (events, until): (i64, i64),
        last: impl FnMut() -> Result<SourceEnd> + Send,
    ) -> (Vec<i64>, std::result::Result<SourceEnd, String>) {
        let mut source = Counting(SourceInfo::default(), events, last);
        let mut sink = Taking {
            taken: Vec::new(),
            until,
            done: 0,
            patience: 10_000,
        };
        let end = run(&mut source, &mut sink, jobs, &Arc::default());
        (sink.taken, end.map_err(|error| error.to_string()))
    }

    const MANY: i64 = 20 * BATCH as i64 + 3;

    #[test]
    fn every_event_arrives_once_and_in_order() {
        for jobs in [1, 2, 9] {
            for events in [0, 1, BATCH as i64, MANY] {
                let end = || {
                    Ok(SourceEnd {
                        warnings: vec!["the end".into()],
                        ..SourceEnd::default()
                    })
                };
                let (taken, end) = taken(jobs, (events, i64::MAX), end);
                assert_eq!(taken, (0..events).collect::<Vec<_>>());
                assert_eq!(end.unwrap().warnings, ["the end"]);
            }
        }
    }

    #[test]
    fn what_came_before_an_error_of_the_decoder_arrives_first() {
        for jobs in [1, 2] {
            let damaged = || Err(Error::format("byte 7", "6", "copy it again"));
            let (taken, end) = taken(jobs, (MANY, i64::MAX), damaged);
            assert_eq!(taken.len(), MANY as usize);
            assert!(end.unwrap_err().starts_with("byte 7; expected 6"));
        }
    }

    #[test]
    fn a_decoder_whose_events_nobody_takes_ends_whatever_it_does() {
        let waiting = || loop {
            check_interrupt()?;
            thread::sleep(Duration::from_millis(1));
        };
        let (taken_of_many, end) = taken(2, (MANY, 3), waiting);
        assert_eq!(taken_of_many, [0, 1, 2]);
        assert_eq!(end.unwrap_err(), "enough");
        // Nothing arrives of one that sends less than a batch and goes on; Ctrl-C still ends it.
        let mut source = Counting(SourceInfo::default(), 5, waiting);
        let mut sink = Taking {
            taken: Vec::new(),
            until: i64::MAX,
            done: 0,
            patience: 2,
        };
        let end = run(&mut source, &mut sink, 2, &Arc::default());
        assert_eq!(end.unwrap_err().to_string(), "enough");
    }

    /// Leaves chores to others, and ends when they are done.
    struct Leaving(SourceInfo, Option<Arc<Chores>>);

    impl Source for Leaving {
        fn info(&self) -> &SourceInfo {
            &self.0
        }

        fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
            let done = Arc::new(AtomicU64::default());
            for ts in 0..100 {
                let done = Arc::clone(&done);
                let chore = move || {
                    done.fetch_add(1, Ordering::Relaxed);
                };
                self.1.as_ref().expect("more than one thread").add(chore);
                sink.event(&Event::Yield { ts, tid: 7 })?;
            }
            while done.load(Ordering::Relaxed) < 100 {
                check_interrupt()?;
                thread::yield_now();
            }
            Ok(SourceEnd::default())
        }

        fn helped_by(&mut self, chores: &Arc<Chores>) {
            self.1 = Some(Arc::clone(chores));
        }
    }

    #[test]
    fn who_waits_for_the_decoder_does_its_chores() {
        for jobs in [2, 3, 20] {
            let mut source = Leaving(SourceInfo::default(), None);
            let mut sink = Taking {
                taken: Vec::new(),
                until: i64::MAX,
                done: 0,
                patience: 10_000,
            };
            run(&mut source, &mut sink, jobs, &Arc::default()).unwrap();
            assert_eq!(sink.taken, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_of_the_decoder_is_one_sentence() {
        let (taken, end) = taken(2, (5, i64::MAX), || panic!("no {}", "luck"));
        assert_eq!(taken.len(), 0);
        assert_eq!(end.unwrap_err(), "the decoder failed: no luck");
    }
}
