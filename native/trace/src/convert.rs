//! A trace's file into tables: decoded and reconstructed, in as many passes as it takes.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::decode::{self, Options, ahead};
use crate::error::{Error, Result};
use crate::hooks::Progress;
use crate::model::event::{EventSink, Origin, Source};
use crate::pipeline::Pipeline;
use crate::realign::Realign;
use crate::reconstruct::clocks::{self, Examiner, Offset};
use crate::reconstruct::recorded::{Chosen, Suspicion};
use crate::reconstruct::{Habits, Reconstructor, Unreported};
use crate::store::Store;
use crate::summary::TraceJson;

/// Runs the whole pass into a new store; returns that and the text of trace.json
/// without the row counts, which only the store knows.
///
/// Where the source lost events and does not say when, the trace is read again with every
/// place where they may be missing. Where the threads' events come in an order that cannot be,
/// it is read to see whether the CPUs' clocks differ; and if they do, once more, mended. Where
/// chains break only at threads that a filter may have left out, it is read to see whether one
/// did; and if so, once more, without concluding anything of those. Where
/// chains of switches are broken outside of what the source says it lost, it is read once more,
/// with the breaks known from the start.
///
/// `only`: names of the tables to build, all if none are named.
pub fn convert<S: Store>(
    path: &Path,
    options: &Options,
    only: Option<&[String]>,
    mut store: impl FnMut() -> Result<S>,
    progress: &mut Progress<'_>,
) -> Result<(S, TraceJson)> {
    // A pipe is read once.
    let again = path.is_file() || path.is_dir();
    let mut pass = |known: &Known, options: &Options, progress: &mut Progress<'_>| {
        let mut store = store()?;
        let chores = Arc::default();
        if options.jobs > 1 {
            store.helped_by(&chores);
        }
        let (format, mut source) = decode::open_with_gaps(path, options, &known.anywhere)?;
        let info = source.info().clone();
        let mut pipeline = Pipeline::new(&info, &mut store, progress);
        if let Some(names) = only {
            pipeline = pipeline.only(names);
        }
        pipeline = pipeline
            .with_clocks(clocks::known(&known.offsets, info.ncpu))
            .with_unreported(&known.unreported)
            .with_habits(match &known.habits {
                Some(habits) => Habits::Of(Arc::clone(habits)),
                None if again && options.chosen.is_none() => Habits::Presumed,
                None => Habits::Nobodys,
            })
            .with_chosen(options.chosen.as_deref());
        let end = match clocks::ahead(&known.offsets, info.ncpu) {
            None => ahead::run(&mut *source, &mut pipeline, options.jobs, &chores)?,
            Some(ahead) => {
                let mut realign = Realign::new(pipeline, ahead);
                let end = ahead::run(&mut *source, &mut realign, options.jobs, &chores)?;
                pipeline = realign.finish()?;
                end
            }
        };
        pipeline.last_names(&end.last_names);
        pipeline.group_moves(&end.group_moves);
        let mut summary = pipeline.finish(&info)?;
        if !summary.switched {
            return Err(without_switches(path));
        }
        let inferred = summary.reconstruction.is_some();
        let switching = summary
            .reconstruction
            .as_ref()
            .map(Reconstructor::switching);
        let (broken, mut found) = match (&summary.reconstruction, summary.window) {
            (Some(one), Some((_, end))) => (one.out_of_order(), one.unreported(end)),
            _ => (0, Unreported::default()),
        };
        let hides = found.shows_loss();
        let json = TraceJson::new(path, format, &info, &end, &summary, &known.offsets, hides);
        if !info.uncounted && !hides {
            found.breaks.clear();
        }
        found.as_presumed |= !again || options.chosen.is_some();
        let anywhere = if inferred { end.anywhere } else { Vec::new() };
        let suspicion = summary.suspicion.take();
        Ok::<_, Error>(Reading {
            store,
            json,
            broken,
            switching: switching.unwrap_or_default(),
            anywhere,
            found,
            suspicion,
        })
    };
    let mut known = Known::default();
    let mut options = options.clone();
    let mut last = pass(&known, &options, progress)?;
    if !again {
        return Ok((last.store, last.json));
    }
    if !last.anywhere.is_empty() {
        known.anywhere = last.anywhere;
        drop(last.store);
        last = pass(&known, &options, progress)?;
    }
    if let Some(suspicion) = &last.suspicion
        && let Some(chosen) = chosen(path, &options, suspicion)?
    {
        options.chosen = Some(Arc::new(chosen));
        drop(last.store);
        last = pass(&known, &options, progress)?;
    }
    let trusted = options.asked(decode::CLOCKS.0);
    if last.broken >= clocks::SUSPICIOUS && !trusted {
        known.offsets = offsets(path, &options, &last.switching, progress)?;
    }
    if !known.offsets.is_empty() {
        drop(last.store);
        last = pass(&known, &options, progress)?;
    }
    // Where a source that counts is no longer believed, more breaks show.
    for _ in 0..READINGS {
        if last.found.is_settled() {
            break;
        }
        known.habits = Some(Arc::clone(&last.found.habits));
        known.unreported = last.found;
        drop(last.store);
        last = pass(&known, &options, progress)?;
        if last.found == known.unreported {
            break;
        }
    }
    Ok((last.store, last.json))
}

/// Without switches it is unknown which threads ran and waited, and when.
fn without_switches(path: &Path) -> Error {
    Error::format(
        format!(
            "{} has no context switches: nothing can be said of who ran and who waited",
            path.display()
        ),
        "the scheduler's events, `sched_switch` above all",
        "record them: `schedscope capture` does, as do `perf sched record` and `trace-cmd record -e \
         sched`",
    )
}

/// What earlier readings of a trace have found.
#[derive(Default)]
struct Known {
    offsets: Vec<Offset>,
    /// Losses without a place: CPU (None: any) and how many.
    anywhere: Vec<(Option<u16>, u64)>,
    unreported: Unreported,
    /// Threads whose leaving the kernel does not report.
    habits: Option<Arc<FxHashSet<u32>>>,
}

/// What one reading makes of a trace.
struct Reading<S> {
    store: S,
    json: TraceJson,
    /// Events in an order that clocks that differ explain.
    broken: u64,
    /// CPUs that switch.
    switching: Vec<u16>,
    anywhere: Vec<(Option<u16>, u64)>,
    found: Unreported,
    suspicion: Option<Suspicion>,
}

/// Reads a source again, to its end, or for a reader that `has_enough` no further.
fn read_until<S: EventSink>(
    source: &mut dyn Source,
    reader: &mut S,
    has_enough: impl Fn(&S) -> bool,
    jobs: usize,
) -> Result<()> {
    let end = ahead::run(source, reader, jobs, &Arc::default()).map(|_| ());
    if has_enough(reader) { Ok(()) } else { end }
}

/// The tids of the threads that were recorded, if a filter left out all others.
fn chosen(path: &Path, options: &Options, suspicion: &Suspicion) -> Result<Option<FxHashSet<u32>>> {
    if suspicion.of_all {
        return Ok(Some(FxHashSet::default()));
    }
    let (_, mut source) = decode::open(path, options)?;
    let mut chosen = Chosen::new(suspicion);
    read_until(&mut *source, &mut chosen, Chosen::has_enough, options.jobs)?;
    Ok(chosen.threads())
}

/// How often at most a file is read again with what the reading before it found missing.
const READINGS: usize = 2;

/// How the clocks of a trace's CPUs differ, of which these switch: a long trace is read only as far as
/// it takes to know.
fn offsets(
    path: &Path,
    options: &Options,
    switching: &[u16],
    progress: &mut Progress<'_>,
) -> Result<Vec<Offset>> {
    let (_, mut source) = decode::open(path, options)?;
    let info = source.info().clone();
    let wakes = info.has_waking || info.has_enqueued;
    if info.ncpu < 2 || !wakes || info.origin == Origin::Simulation {
        return Ok(Vec::new());
    }
    let both_steps = info.has_waking && info.has_enqueued;
    let mut examiner = Examiner::new(info.ncpu, both_steps, progress)
        .with_chosen(options.chosen.clone())
        .with_switching(switching.to_vec());
    read_until(
        &mut *source,
        &mut examiner,
        Examiner::has_enough,
        options.jobs,
    )?;
    Ok(examiner.offsets())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn two_threads() -> Options {
        Options {
            jobs: 2,
            ..Options::default()
        }
    }

    #[test]
    fn a_capture_becomes_tables_without_python() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        let mut calls = 0;
        let (store, json) = convert(
            &fixtures.join("linux-ftrace-mixed.capture"),
            &two_threads(),
            None,
            || Ok(MemoryStore::default()),
            &mut |_, _| {
                calls += 1;
                Ok(())
            },
        )
        .expect("a whole capture");
        let rows = |name| -> usize {
            store.tables[name]
                .iter()
                .map(|batch| batch.num_rows())
                .sum()
        };
        assert_eq!(rows("waits"), 15_284);
        assert!(rows("states") > rows("switches"));
        assert!(calls > 0);
        let text = json.text(&Default::default());
        assert!(text.contains("\"has_waking\": true"), "{text}");
    }

    #[test]
    fn an_error_of_the_caller_ends_the_pass_and_comes_back_as_it_is() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        let ended = convert(
            &fixtures.join("linux-ftrace-mixed.capture"),
            &two_threads(),
            None,
            || Ok(MemoryStore::default()),
            &mut |_, _| Err(Error::Caller("enough".into())),
        );
        assert!(matches!(ended, Err(Error::Caller(error)) if error.to_string() == "enough"));
    }
}
