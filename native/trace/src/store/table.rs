//! A table's file behind a queue of batches, which any thread may encode: one at a time, and in
//! their order, so that the file is the same to the byte in any case.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;

use super::columns::PageScratch;
use super::file::TableFile;
use crate::chores::Chores;
use crate::error::{Error, Result};

/// Batches of a table that may wait to be encoded.
const WAITING: usize = 3;

/// Memory for pages, of which each thread at work needs one; the last that was used is taken
/// first, since it is in a cache still.
#[derive(Default)]
pub struct Scratches(Mutex<Vec<PageScratch>>);

impl Scratches {
    fn with<T>(&self, work: impl FnOnce(&mut PageScratch) -> T) -> T {
        let mut scratch = locked(&self.0).pop().unwrap_or_default();
        let done = work(&mut scratch);
        locked(&self.0).push(scratch);
        done
    }
}

pub struct Table {
    queue: Mutex<Queue>,
    /// A batch was taken from the queue.
    taken: Condvar,
    /// None once it is closed.
    file: Mutex<Option<TableFile>>,
    scratches: Arc<Scratches>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<RecordBatch>,
    /// Batches that are written.
    spares: Vec<RecordBatch>,
    /// The table stands among the chores.
    listed: bool,
    /// A thread is at work on a batch.
    encoding: bool,
    failed: Option<Error>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// Keeps a batch that is written, if its memory may be wanted.
    fn keep(&mut self, batch: RecordBatch) {
        if self.spares.len() <= WAITING {
            self.spares.push(batch);
        }
    }
}

impl Table {
    pub fn new(file: TableFile, scratches: &Arc<Scratches>) -> Self {
        Self {
            queue: Mutex::default(),
            taken: Condvar::new(),
            file: Mutex::new(Some(file)),
            scratches: Arc::clone(scratches),
        }
    }

    /// Encodes `batch` here and now.
    pub fn write(&self, batch: RecordBatch) -> Result<()> {
        self.encode(&batch)?;
        locked(&self.queue).keep(batch);
        Ok(())
    }

    /// Leaves `batch` to a thread that does `chores`, unless too many of them wait: then the caller
    /// helps. An error is that of a batch before.
    pub fn leave(self: &Arc<Self>, batch: RecordBatch, chores: &Arc<Chores>) -> Result<()> {
        let mut queue = locked(&self.queue);
        while queue.waiting.len() >= WAITING {
            if queue.encoding {
                let woken = self.taken.wait(queue);
                queue = woken.unwrap_or_else(PoisonError::into_inner);
            } else {
                // Ours is among them, or another thread just took it.
                drop(queue);
                chores.one();
                queue = locked(&self.queue);
            }
        }
        if let Some(error) = queue.failed.take() {
            return Err(error);
        }
        queue.waiting.push_back(batch);
        self.list(&mut queue, chores);
        Ok(())
    }

    /// Puts the table among the chores, unless it is there.
    fn list(self: &Arc<Self>, queue: &mut Queue, chores: &Arc<Chores>) {
        if queue.encoding || queue.listed || queue.waiting.is_empty() {
            return;
        }
        queue.listed = true;
        // Unused ones are dropped with the list: none of them holds it.
        let (table, again) = (Arc::clone(self), Arc::downgrade(chores));
        chores.add(move || {
            table.encode_next();
            let mut queue = locked(&table.queue);
            if let Some(chores) = again.upgrade() {
                table.list(&mut queue, &chores);
            }
            drop(queue);
            table.taken.notify_one();
        });
    }

    /// Encodes the batch that came first of those that wait; false if none does.
    fn encode_next(&self) -> bool {
        let mut queue = locked(&self.queue);
        queue.listed = false;
        let Some(batch) = queue.waiting.pop_front() else {
            return false;
        };
        queue.encoding = true;
        drop(queue);
        self.taken.notify_one();
        let encoded = catch_unwind(AssertUnwindSafe(|| self.encode(&batch)));
        let encoded = encoded.unwrap_or_else(|panic| Err(Error::panicked(&*panic)));
        let mut queue = locked(&self.queue);
        queue.encoding = false;
        queue.keep(batch);
        if let Err(error) = encoded {
            // What follows has no place any more.
            queue.waiting.clear();
            queue.failed.get_or_insert(error);
        }
        true
    }

    fn encode(&self, batch: &RecordBatch) -> Result<()> {
        let mut file = locked(&self.file);
        let Some(file) = &mut *file else {
            return Err(Error::internal("a batch for a file that is closed"));
        };
        self.scratches.with(|scratch| file.write(batch, scratch))
    }

    /// A batch that is written.
    pub fn spare(&self) -> Option<RecordBatch> {
        locked(&self.queue).spares.pop()
    }

    /// Encodes what is left and completes the file; returns its number of rows. No other thread
    /// works at it any more.
    pub fn close(&self) -> Result<u64> {
        while self.encode_next() {}
        if let Some(error) = locked(&self.queue).failed.take() {
            return Err(error);
        }
        let file = locked(&self.file).take();
        file.map_or(Ok(0), TableFile::close)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::model::tables::{Yield, Yields};

    /// The table of yields, in a folder of its own.
    fn table(folder: &Path) -> Arc<Table> {
        std::fs::create_dir_all(folder).unwrap();
        let file = TableFile::in_folder(folder, "yields", &Yields::schema(), (1 << 17, false));
        Arc::new(Table::new(file.unwrap(), &Arc::default()))
    }

    /// So many batches, no two of them alike.
    fn batches() -> impl Iterator<Item = RecordBatch> {
        (1..60).map(|number| {
            let mut rows = Yields::default();
            let push = |at| {
                let ts = i64::from(number * at);
                rows.push(Yield { ts, utid: at });
            };
            (0..100 * number).for_each(push);
            rows.take()
        })
    }

    #[test]
    fn whoever_encodes_them_the_file_is_the_same() {
        let folder = std::env::temp_dir().join(format!("table-{}", std::process::id()));
        let read = |name: &str| std::fs::read(folder.join(name).join("yields.parquet")).unwrap();
        let alone = table(&folder.join("alone"));
        let rows: usize = batches().map(|batch| batch.num_rows()).sum();
        for batch in batches() {
            alone.write(batch).unwrap();
        }
        assert_eq!(alone.close().unwrap(), rows as u64);
        let expected = read("alone");
        for helpers in [0, 1, 3] {
            let helped = table(&folder.join("helped"));
            let (chores, ended) = (Arc::new(Chores::default()), AtomicBool::new(false));
            thread::scope(|scope| {
                for _ in 0..helpers {
                    scope.spawn(|| chores.until(&ended));
                }
                for batch in batches() {
                    helped.leave(batch, &chores).unwrap();
                }
                chores.end(&ended);
            });
            assert_eq!(helped.close().unwrap(), rows as u64);
            assert!(helped.spare().is_some());
            // Whether or not all chores were done, nothing of the table is left with them.
            drop(chores);
            assert_eq!(Arc::strong_count(&helped), 1);
            assert_eq!(read("helped"), expected);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_error_of_whoever_encodes_reaches_the_next_who_leaves_a_batch() {
        let folder = std::env::temp_dir().join(format!("failed-{}", std::process::id()));
        let failing = table(&folder);
        // As if the disk were full: no batch can be written any more.
        drop(locked(&failing.file).take());
        let chores = Arc::new(Chores::default());
        let mut left = batches().map(|batch| failing.leave(batch, &chores));
        let error = left.find_map(std::result::Result::err).unwrap();
        assert!(error.to_string().contains("closed"), "{error}");
        drop(left);
        assert!(failing.close().is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
