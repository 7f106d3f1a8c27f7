//! Sub-buffers that are read and decompressed before the decoder asks for them, by whichever
//! thread has nothing else to do: of each CPU, one window is ahead.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chores::Chores;
use crate::error::{Error, Result};
use crate::ftrace::pages::Pages;

/// CPUs of which a window is ahead: those of many more would take a lot of memory, and helpers
/// always find something to do with so many.
pub const MOST: usize = 128;

pub struct ReadAhead {
    slot: Arc<Mutex<Slot>>,
    chores: Arc<Chores>,
    /// Bytes of the file in all that was taken, and there are.
    consumed: u64,
    total: u64,
}

/// What a helper and the decoder share of one CPU.
struct Slot {
    pages: Box<dyn Pages>,
    /// The next window: its bytes and what reading it told.
    ready: Option<(Vec<u8>, Result<usize>)>,
    /// Memory of the one before.
    spare: Vec<u8>,
    /// It stands among the chores.
    listed: bool,
}

impl ReadAhead {
    pub fn new(pages: Box<dyn Pages>, chores: &Arc<Chores>) -> Self {
        let (consumed, total) = (pages.consumed(), pages.total());
        let ahead = Self {
            slot: Arc::new(Mutex::new(Slot {
                pages,
                ready: None,
                spare: Vec::new(),
                listed: true,
            })),
            chores: Arc::clone(chores),
            consumed,
            total,
        };
        ahead.list();
        ahead
    }

    fn list(&self) {
        let slot = Arc::clone(&self.slot);
        self.chores.add(move || locked(&slot).fill());
    }
}

fn locked(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    /// Gets the next window, unless it is there.
    fn fill(&mut self) {
        self.listed = false;
        if self.ready.is_some() {
            return;
        }
        let mut window = std::mem::take(&mut self.spare);
        window.clear();
        let filled = catch_unwind(AssertUnwindSafe(|| self.pages.fill(&mut window)));
        let got = filled.unwrap_or_else(|panic| Err(Error::panicked(&*panic)));
        self.ready = Some((window, got));
    }
}

impl Pages for ReadAhead {
    fn fill(&mut self, window: &mut Vec<u8>) -> Result<usize> {
        let mut slot = locked(&self.slot);
        let got = match slot.ready.take() {
            None => slot.pages.fill(window)?,
            Some((mut bytes, got)) => {
                if window.is_empty() {
                    std::mem::swap(window, &mut bytes);
                } else {
                    window.extend_from_slice(&bytes);
                }
                slot.spare = bytes;
                got?
            }
        };
        self.consumed = slot.pages.consumed();
        let list = got > 0 && !std::mem::replace(&mut slot.listed, true);
        drop(slot);
        if list {
            self.list();
        }
        Ok(got)
    }

    fn consumed(&self) -> u64 {
        self.consumed
    }

    fn total(&self) -> u64 {
        self.total
    }

    fn place(&self, at: u64) -> String {
        locked(&self.slot).pages.place(at)
    }

    fn head(&self) -> Result<Option<Box<dyn Pages>>> {
        locked(&self.slot).pages.head()
    }

    fn tail(&self, page: usize) -> Result<Option<Box<dyn Pages>>> {
        locked(&self.slot).pages.tail(page)
    }

    fn whole(&self) -> Result<Box<dyn Pages>> {
        locked(&self.slot).pages.whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::atomic::AtomicBool;

    /// So many windows of one byte each; the last is damaged, or none can be read.
    struct Counted {
        left: VecDeque<u8>,
        at: u64,
        end: fn() -> Result<usize>,
    }

    impl Counted {
        fn new(end: fn() -> Result<usize>) -> Box<Self> {
            let left = (0..200).collect();
            Box::new(Self { left, at: 0, end })
        }
    }

    impl Pages for Counted {
        fn fill(&mut self, window: &mut Vec<u8>) -> Result<usize> {
            let Some(byte) = self.left.pop_front() else {
                return (self.end)();
            };
            self.at += 1;
            window.push(byte);
            Ok(1)
        }
        fn consumed(&self) -> u64 {
            self.at
        }
        fn total(&self) -> u64 {
            200
        }
        fn place(&self, at: u64) -> String {
            format!("byte {at}")
        }
        fn head(&self) -> Result<Option<Box<dyn Pages>>> {
            Ok(None)
        }
        fn tail(&self, _: usize) -> Result<Option<Box<dyn Pages>>> {
            Ok(None)
        }
        fn whole(&self) -> Result<Box<dyn Pages>> {
            Ok(Self::new(self.end))
        }
    }

    /// What can be read, how much of it each window has used up, and how it ends.
    fn read(
        pages: &mut dyn Pages,
        mut meanwhile: impl FnMut(usize),
    ) -> (Vec<u8>, Vec<u64>, String) {
        let (mut bytes, mut consumed) = (Vec::new(), Vec::new());
        let mut window = Vec::new();
        loop {
            meanwhile(bytes.len());
            // Now and then some of a window is left for the next.
            if bytes.len() % 3 == 0 {
                window.clear();
            }
            let before = window.len();
            match pages.fill(&mut window) {
                Ok(0) => return (bytes, consumed, "the end".into()),
                Ok(got) => assert_eq!(window.len() - before, got),
                Err(error) => return (bytes, consumed, error.to_string()),
            }
            bytes.extend_from_slice(&window[before..]);
            consumed.push(pages.consumed());
        }
    }

    #[test]
    fn whoever_reads_ahead_and_whenever_the_windows_are_the_same() {
        let ends: [fn() -> Result<usize>; 2] =
            [|| Ok(0), || Err(Error::format("byte 200", "more", ""))];
        for end in ends {
            let expected = read(&mut *Counted::new(end), |_| {});
            assert_eq!(expected.0.len(), 200);
            for every in [1, 2, 7, 1000] {
                let chores = Arc::new(Chores::default());
                let mut ahead = ReadAhead::new(Counted::new(end), &chores);
                let help = |at: usize| {
                    if at.is_multiple_of(every) {
                        chores.one();
                    }
                };
                assert_eq!(read(&mut ahead, help), expected);
            }
            let (chores, ended) = (Arc::new(Chores::default()), AtomicBool::new(false));
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| chores.until(&ended));
                }
                for _ in 0..50 {
                    let mut ahead = ReadAhead::new(Counted::new(end), &chores);
                    assert_eq!(read(&mut ahead, |_| {}), expected);
                }
                chores.end(&ended);
            });
        }
    }

    #[test]
    fn a_panic_of_a_helper_is_an_error_of_the_decoder() {
        let chores = Arc::new(Chores::default());
        let mut ahead = ReadAhead::new(Counted::new(|| panic!("no luck")), &chores);
        let help = |_| {
            chores.one();
        };
        let (bytes, _, end) = read(&mut ahead, help);
        assert_eq!(bytes.len(), 200);
        assert_eq!(end, "the decoder failed: no luck");
    }
}
