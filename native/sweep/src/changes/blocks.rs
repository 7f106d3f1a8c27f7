//! The changes of a table that is too long for a list of all of them to be held.
//!
//! A sweep reads the table itself and hears of its changes a block at a time. What a thread does
//! after its last change in a block stands in a row of a later one; a first reading notes that:
//! one word at most for each thread, CPU and block. So the memory is that of a block, and these
//! notes.
use std::sync::Arc;

use super::{Changes, Reader, join};
use crate::error::{Error, Result};
use crate::list::List;
use crate::store::Source;
use crate::weights::Weights;

/// Changes in a block, some 50 MB.
pub const ROWS: usize = 1 << 22;

/// What follows changes of blocks that are no longer at hand.
#[derive(Default)]
pub struct Links {
    /// Where each block begins, the first at 0.
    begins: Vec<usize>,
    /// Of each block: where in it, and what follows.
    of: Vec<Vec<(u32, u32)>>,
}

impl Links {
    /// Change `at` is followed by this. Without blocks, in a reading after the first, it is known.
    #[cold]
    pub fn note(&mut self, at: usize, follows: u32) {
        let block = self.begins.partition_point(|begin| *begin <= at);
        if let Some(block) = block.checked_sub(1) {
            self.of[block].push(((at - self.begins[block]) as u32, follows));
        }
    }

    pub fn begin(&mut self, at: usize) {
        self.begins.push(at);
        self.of.push(Vec::new());
    }

    /// Block by block: what is to be joined to the changes in it, each by its place there.
    pub fn by_block(&self) -> impl Iterator<Item = &[(u32, u32)]> {
        self.of.iter().map(Vec::as_slice)
    }
}

/// How to come by the changes again.
pub struct Blocks {
    table: Source<'static>,
    begin: i64,
    weights: Option<Arc<Weights>>,
    links: Links,
    rows: usize,
}

/// Reads the table for the first time. A block has `rows` changes, and those of a page more.
pub fn read(
    table: Source<'static>,
    window: (i64, i64),
    idle: u32,
    weights: Option<Arc<Weights>>,
    rows: usize,
) -> Result<Changes> {
    let mut links = Links::default();
    links.begin(0);
    let mut reader = Reader::new(window, idle)?.with_links(links);
    for batch in table.batches() {
        reader.read(&batch?, weights.as_deref())?;
        if reader.list().len() >= rows {
            let at = reader.next_block();
            reader.links().begin(at);
        }
    }
    *reader.list() = List::new();
    let links = std::mem::take(reader.links());
    let mut changes = reader.finish();
    changes.blocks = Some(Blocks {
        table,
        begin: window.0,
        weights,
        links,
        rows,
    });
    Ok(changes)
}

impl Blocks {
    /// Hands `take` the blocks, one after the other.
    pub fn each(
        &self,
        length: i64,
        idle: u32,
        threads: usize,
        mut take: impl FnMut(&List) -> Result<()>,
    ) -> Result<()> {
        let mut reader = Reader::new((self.begin, self.begin.saturating_add(length)), idle)?;
        let mut links = self.links.by_block();
        let mut block = |reader: &mut Reader| {
            let links = links.next().filter(|_| reader.threads() <= threads);
            for (at, follows) in links.ok_or_else(changed)? {
                join(
                    reader.list().get_to(*at as usize).ok_or_else(changed)?,
                    *follows,
                );
            }
            take(reader.list())?;
            reader.forget_found();
            reader.next_block();
            Ok(())
        };
        for batch in self.table.batches() {
            reader.read(&batch?, self.weights.as_deref())?;
            if reader.list().len() >= self.rows {
                block(&mut reader)?;
            }
        }
        block(&mut reader)
    }
}

/// What cannot be if the table is the one that was read first.
pub fn changed() -> Error {
    Error::format(
        "a table of states that changed while it was read",
        "the same rows each time",
        "try again when nobody writes to the .sched folder",
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Position, Sweep};
    use super::*;
    use crate::random_states::{LENGTH, random, world};

    /// Writes down what it hears.
    #[derive(Default, PartialEq, Debug)]
    struct Heard(Vec<(i64, u32, String)>);

    impl Sweep for Heard {
        fn change(&mut self, t: i64, utid: u32, from: Position, to: Position) {
            self.0.push((t, utid, format!("{from:?} {to:?}")));
        }

        fn idle(&mut self, t: i64, cpu: u16, begins: bool) {
            self.0.push((t, u32::from(cpu), format!("idle {begins}")));
        }

        fn instant(&mut self, t: i64) {
            self.0.push((t, 0, "instant".into()));
        }
    }

    /// A world's states in pages of some rows; of every other world some rows come late.
    fn pages(seed: u32) -> Source<'static> {
        let (states, mut random) = (world(seed).0, random(seed + 1000));
        let mut pages = Vec::new();
        let mut at = 0;
        while at < states.num_rows() {
            let rows = (1 + random(9) as usize).min(states.num_rows() - at);
            pages.push(states.slice(at, rows));
            at += rows;
        }
        for _ in 0..4 * (seed % 2) {
            let from = random(pages.len() as u32 - 4) as usize;
            let late = pages.remove(from);
            pages.insert(from + 1 + random(3) as usize, late);
        }
        Source::Held("states", pages)
    }

    #[test]
    fn in_blocks_or_as_one_list_a_sweep_hears_the_same() {
        let weights = Some(Arc::new(Weights::equal()));
        let (mut noted, mut late) = (0, 0);
        for seed in 0..60 {
            let mut reader = Reader::new((3, LENGTH - 5), 1).expect("a window");
            for batch in pages(seed).batches() {
                let batch = batch.expect("rows");
                reader.read(&batch, weights.as_deref()).expect("states");
            }
            let list = reader.finish();
            late += list.late.len();
            let mut expected = Heard::default();
            list.tell(&mut expected).expect("changes");
            for rows in [1, 7, 40, 1 << 20] {
                let window = (3, LENGTH - 5);
                let blocks = read(pages(seed), window, 1, weights.clone(), rows).expect("states");
                noted += blocks
                    .blocks
                    .iter()
                    .flat_map(|of| &of.links.of)
                    .flatten()
                    .count();
                let facts = |of: &Changes| {
                    let prios = of.prios.iter().map(|at| (at.t, at.utid, at.prio)).collect();
                    let prios: Vec<_> = prios;
                    (prios, of.threads, of.cpus.clone(), of.placed, of.unplaced)
                };
                assert_eq!(facts(&blocks), facts(&list));
                // As often as anybody asks.
                for _ in 0..2 {
                    let mut heard = Heard::default();
                    blocks.tell(&mut heard).expect("changes");
                    assert_eq!(heard, expected, "seed {seed}, blocks of {rows}");
                }
            }
        }
        assert!(noted > 1000, "{noted} links between blocks");
        assert!(late > 50, "{late} rows that come late");
    }

    #[test]
    fn a_table_that_changed_in_between_is_an_error() {
        let mut changes = read(pages(1), (0, LENGTH), 1, None, 7).expect("states");
        let Some(blocks) = &mut changes.blocks else {
            panic!("no blocks");
        };
        blocks.table = Source::Held("states", Vec::new());
        let error = changes.tell(&mut Heard::default()).expect_err("other rows");
        assert!(
            error.to_string().contains("changed while it was read"),
            "{error}"
        );
    }
}
