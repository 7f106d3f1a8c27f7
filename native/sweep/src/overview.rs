//! What a long table of states looks like from afar, and which of its rows a stretch of time needs.

use arrow_array::RecordBatch;

use crate::error::{Error, Result};
use crate::states::{NOWHERE, RUNNING, Want, each};

/// Codes of `State`.
pub const CODES: usize = 8;

/// What is counted, and how finely.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub window: (i64, i64),
    /// One more than the highest number of a CPU, and of a thread.
    pub cpus: usize,
    pub threads: usize,
    /// Threads below this number are the idle ones.
    pub idle: u32,
    /// Stretches into which the window is divided, for CPUs and for threads.
    pub cpu_bins: usize,
    pub thread_bins: usize,
    /// Rows of the table that are described together.
    pub chunk: usize,
}

impl Shape {
    /// The length of a stretch, ns: all are as long, and the last may lie beyond the window.
    pub fn width(&self, bins: usize) -> i64 {
        let length = self.window.1.saturating_sub(self.window.0).max(1);
        let bins = i64::try_from(bins.max(1)).unwrap_or(i64::MAX);
        length / bins + i64::from(length % bins != 0)
    }
}

/// Of the rows that are described together: when the first of them begins and the last one ends,
/// and the earliest end; ns after the window's start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    pub begin: i64,
    pub end: i64,
    pub ends_from: i64,
    /// Of those in which a thread runs on a CPU: the same.
    pub run_begin: i64,
    pub run_end: i64,
}

const NOTHING: Reach = Reach {
    begin: i64::MAX,
    end: i64::MIN,
    ends_from: i64::MAX,
    run_begin: i64::MAX,
    run_end: i64::MIN,
};

pub struct Overview {
    shape: Shape,
    widths: (i64, i64),
    rows: usize,
    /// ns per stretch, CPU after CPU.
    pub running: Vec<u32>,
    pub idle: Vec<u32>,
    /// The same of threads, state after state.
    pub spent: Vec<u32>,
    /// Rows of each thread.
    pub counts: Vec<u32>,
    pub reach: Vec<Reach>,
    /// A bit for each thread that has a row there, in whole bytes for each chunk.
    pub present: Vec<u8>,
}

impl Overview {
    pub fn new(shape: Shape) -> Result<Self> {
        let widths = (shape.width(shape.cpu_bins), shape.width(shape.thread_bins));
        let counted = [(shape.cpu_bins, widths.0), (shape.thread_bins, widths.1)];
        let fits = |(bins, width): (usize, i64)| bins == 0 || width <= i64::from(u32::MAX);
        if !counted.into_iter().all(fits) || shape.chunk == 0 {
            return Err(Error::internal("stretches too long to count"));
        }
        Ok(Self {
            widths,
            rows: 0,
            running: vec![0; shape.cpus * shape.cpu_bins],
            idle: vec![0; shape.cpus * shape.cpu_bins],
            spent: vec![0; shape.threads * CODES * shape.thread_bins],
            counts: vec![0; shape.threads],
            reach: Vec::new(),
            present: Vec::new(),
            shape,
        })
    }

    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        let Self {
            shape,
            widths,
            rows,
            running,
            idle,
            spent,
            counts,
            reach,
            present,
        } = self;
        let length = shape.window.1.saturating_sub(shape.window.0);
        let bytes = shape.threads.div_ceil(8);
        each(batch, shape.window.0, Want::CPU, |row| {
            if rows.is_multiple_of(shape.chunk) {
                reach.push(NOTHING);
                present.resize(present.len() + bytes, 0);
            }
            *rows += 1;
            let (since, until) = (row.ts.max(0), row.until.min(length));
            let who = row.utid as usize;
            let (Some(here), Some(count)) = (reach.last_mut(), counts.get_mut(who)) else {
                return Err(Error::format(
                    format!("a state of thread {who}"),
                    "a thread of the table `threads`",
                    "convert the trace again",
                ));
            };
            *count = count.saturating_add(1);
            let byte = present.len() - bytes + who / 8;
            present[byte] |= 1 << (who % 8);
            here.begin = here.begin.min(row.ts);
            here.end = here.end.max(row.until);
            here.ends_from = here.ends_from.min(row.until);
            if since >= until {
                return Ok(());
            }
            let place = (who * CODES + usize::from(row.state)) * shape.thread_bins;
            if let Some(cells) = spent.get_mut(place..place + shape.thread_bins) {
                add(cells, widths.1, since, until);
            }
            if row.state != RUNNING || row.cpu == NOWHERE {
                return Ok(());
            }
            here.run_begin = here.run_begin.min(row.ts);
            here.run_end = here.run_end.max(row.until);
            let cells = if row.utid < shape.idle {
                &mut *idle
            } else {
                &mut *running
            };
            let place = usize::from(row.cpu) * shape.cpu_bins;
            if let Some(cells) = cells.get_mut(place..place + shape.cpu_bins) {
                add(cells, widths.0, since, until);
            }
            Ok(())
        })
    }
}

/// Adds the interval to the stretches that it lies in.
fn add(cells: &mut [u32], width: i64, since: i64, until: i64) {
    let count = |ns: i64| u32::try_from(ns).unwrap_or(u32::MAX);
    let Ok(first) = usize::try_from(since / width) else {
        return;
    };
    // One division only: most intervals lie in one stretch, or in a few.
    let (mut at, mut edge) = (since, since - since % width + width);
    for cell in cells.iter_mut().skip(first) {
        *cell = cell.saturating_add(count(until.min(edge) - at));
        if until <= edge {
            break;
        }
        at = edge;
        edge += width;
    }
}

#[cfg(test)]
mod tests {
    use super::add;

    #[test]
    fn an_interval_is_divided_among_its_stretches() {
        let mut cells = [0; 4];
        add(&mut cells, 10, 3, 7);
        add(&mut cells, 10, 8, 31);
        add(&mut cells, 10, 30, 30);
        assert_eq!(cells, [6, 10, 10, 1]);
        add(&mut cells, 10, 35, 60);
        assert_eq!(cells, [6, 10, 10, 6]);
    }
}
