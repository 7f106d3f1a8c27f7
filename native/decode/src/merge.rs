//! Many streams, each in its own order, into one order of time.

use crate::error::Result;
use crate::model::event::EventSink;

/// Where a stream stands. Order of events at one nanosecond across streams:
/// lower `rank` first (switch 0, wakeup 1, migration 2, others 3, a loss that
/// begins there 4), then the stream's place in the slice.
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
    let mut heap = Heap::new(
        heads
            .filter_map(|(index, s)| Some(key(s.head()?, index)))
            .collect(),
    );
    while let Some(first) = heap.first() {
        // One stream often has a run of events before any other's next one.
        let limit = heap.second();
        let index = first as u32 as usize;
        let stream = &mut streams[index];
        let next = loop {
            stream.pop(shared, sink)?;
            match stream.head().map(|head| key(head, index)) {
                Some(key) if key > limit => break key,
                Some(_) => {}
                None => break ENDED,
            }
        };
        heap.replace_first(next);
    }
    Ok(())
}

/// A stream's place in the order: `(ts, rank, index)` in one number, which
/// costs one comparison without a branch.
#[inline(always)]
fn key(head: Head, index: usize) -> u128 {
    let ts = head.ts as u64 ^ (1 << 63);
    u128::from(ts) << 64 | u128::from(head.rank) << 32 | index as u128
}

/// Behind every key: no rank is as high.
const ENDED: u128 = u128::MAX;

/// A binary heap of keys, smallest first, that returns its second and replaces its first in one
/// step: both happen at every change of stream. Streams that have ended stay, so that every parent
/// has two children.
struct Heap(Vec<u128>);

impl Heap {
    fn new(mut keys: Vec<u128>) -> Self {
        keys.sort_unstable();
        let whole = (keys.len() | 1).max(3);
        keys.resize(whole, ENDED);
        Self(keys)
    }

    fn first(&self) -> Option<u128> {
        self.0.first().copied().filter(|&key| key != ENDED)
    }

    #[inline(always)]
    fn second(&self) -> u128 {
        self.0[1].min(self.0[2])
    }

    #[inline]
    fn replace_first(&mut self, with: u128) {
        let keys = self.0.as_mut_slice();
        let (mut at, mut left) = (0, 1);
        while left + 1 < keys.len() {
            // Which child is smaller is as good as random: no branch on it.
            let child = left + usize::from(keys[left + 1] < keys[left]);
            if with <= keys[child] {
                break;
            }
            keys[at] = keys[child];
            at = child;
            left = 2 * at + 1;
        }
        keys[at] = with;
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
        let expected = [
            (5, 2, 1),
            (10, 0, 1),
            (10, 1, 0),
            (10, 0, 0),
            (10, 2, 1),
            (20, 1, 1),
            (30, 0, 0),
        ];
        assert_eq!(sent, expected);
    }

    #[test]
    fn many_streams_come_out_as_one_stable_sort_of_their_heads() {
        let mut state = 7u64;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
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
