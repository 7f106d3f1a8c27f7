//! Many streams, each in its own order, into one order of time.

use crate::error::Result;
use crate::model::event::EventSink;

/// Where a stream stands. Order of events at one nanosecond across streams:
/// lower `rank` first (switch 0, wakeup 1, migration 2, others 3), then the
/// stream's place in the slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Head {
    pub ts: i64,
    pub rank: u8,
}

/// Events of one CPU (or file), in the order the source gives them.
pub trait Stream {
    /// What the streams of one source have in common while they are read.
    type Shared;

    /// The next event, or None at the end.
    fn head(&self) -> Option<Head>;

    /// Sends the event at the head and moves on to the next.
    fn pop(&mut self, shared: &mut Self::Shared, sink: &mut dyn EventSink) -> Result<()>;
}

/// Sends the events of all streams in time order. Within a stream the order is
/// kept, so the whole is in order as far as each stream is.
pub fn merge<S: Stream>(
    streams: &mut [S],
    shared: &mut S::Shared,
    sink: &mut dyn EventSink,
) -> Result<()> {
    let heads = streams.iter().enumerate();
    let mut heap = Heap(heads.filter_map(|(index, s)| Some((s.head()?, index))).collect());
    heap.0.sort_unstable();
    while let Some(&(_, index)) = heap.0.first() {
        // One stream often has a run of events before any other's next one.
        let limit = heap.second();
        let stream = &mut streams[index];
        let next = loop {
            stream.pop(shared, sink)?;
            match stream.head() {
                Some(head) if limit.is_some_and(|limit| (head, index) > limit) => break Some(head),
                Some(_) => {}
                None => break None,
            }
        };
        heap.replace_first(next.map(|head| (head, index)));
    }
    Ok(())
}

/// A binary heap, smallest first, that tells its second and replaces its first
/// in one step: both happen at every change of stream.
struct Heap(Vec<(Head, usize)>);

impl Heap {
    fn second(&self) -> Option<(Head, usize)> {
        match (self.0.get(1), self.0.get(2)) {
            (Some(&left), Some(&right)) => Some(left.min(right)),
            (left, _) => left.copied(),
        }
    }

    fn replace_first(&mut self, with: Option<(Head, usize)>) {
        match with {
            Some(item) => self.0[0] = item,
            None => {
                self.0.swap_remove(0);
            }
        }
        let mut at = 0;
        loop {
            let left = 2 * at + 1;
            let Some(&(mut small)) = self.0.get(left) else { return };
            let mut child = left;
            if let Some(&right) = self.0.get(left + 1).filter(|&&right| right < small) {
                small = right;
                child = left + 1;
            }
            if self.0[at] <= small {
                return;
            }
            self.0.swap(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of (ts, rank); what it sends goes to the shared list.
    struct Listed(Vec<(i64, u8)>, usize);

    impl Stream for Listed {
        type Shared = Vec<(i64, u8, usize)>;

        fn head(&self) -> Option<Head> {
            self.0.first().map(|&(ts, rank)| Head { ts, rank })
        }

        fn pop(&mut self, shared: &mut Self::Shared, _: &mut dyn EventSink) -> Result<()> {
            let (ts, rank) = self.0.remove(0);
            shared.push((ts, rank, self.1));
            Ok(())
        }
    }

    struct Deaf;

    impl EventSink for Deaf {
        fn event(&mut self, _: &crate::model::event::Event) -> Result<()> {
            Ok(())
        }
        fn progress(&mut self, _: u64, _: u64) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn ties_go_by_rank_across_streams_and_by_source_order_within_one() {
        let mut streams = vec![
            Listed(vec![(10, 1), (10, 0), (30, 0)], 0),
            Listed(vec![(5, 2), (10, 0), (10, 2), (20, 1)], 1),
            Listed(vec![], 2),
        ];
        let mut sent = Vec::new();
        merge(&mut streams, &mut sent, &mut Deaf).unwrap();
        let expected =
            [(5, 2, 1), (10, 0, 1), (10, 1, 0), (10, 0, 0), (10, 2, 1), (20, 1, 1), (30, 0, 0)];
        assert_eq!(sent, expected);
    }

    #[test]
    fn many_streams_come_out_as_one_stable_sort_of_their_heads() {
        let mut state = 7u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for streams in 0..40usize {
            let mut all = Vec::new();
            let mut listed = Vec::new();
            for index in 0..streams {
                let mut ts = 0;
                // Within a stream, time grows: the order is then unique.
                let rows: Vec<(i64, u8)> = (0..below(30))
                    .map(|_| {
                        ts += 1 + below(3) as i64;
                        (ts, below(4) as u8)
                    })
                    .collect();
                all.extend(rows.iter().map(|&(ts, rank)| (ts, rank, index)));
                listed.push(Listed(rows, index));
            }
            all.sort_unstable();
            let mut sent = Vec::new();
            merge(&mut listed, &mut sent, &mut Deaf).unwrap();
            assert_eq!(sent, all);
        }
    }
}
