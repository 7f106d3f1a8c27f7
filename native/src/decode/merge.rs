//! Many streams, each in its own order, into one order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
    let mut heap: BinaryHeap<Reverse<(Head, usize)>> = streams
        .iter()
        .enumerate()
        .filter_map(|(index, stream)| Some(Reverse((stream.head()?, index))))
        .collect();
    while let Some(Reverse((_, index))) = heap.pop() {
        // One stream often has a run of events before any other's next one.
        let limit = heap.peek().map(|&Reverse(limit)| limit);
        let stream = &mut streams[index];
        loop {
            stream.pop(shared, sink)?;
            let Some(head) = stream.head() else { break };
            if limit.is_some_and(|limit| (head, index) > limit) {
                heap.push(Reverse((head, index)));
                break;
            }
        }
    }
    Ok(())
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
}
