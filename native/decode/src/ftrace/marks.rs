//! Which losses the sub-buffers of a CPU mark, without their records.

use crate::error::Result;
use crate::ftrace::fields::{u32_at, u64_at};
use crate::ftrace::format::PageLayout;
use crate::ftrace::pages::Pages;

/// RB_MISSED_EVENTS: events were lost just before this sub-buffer.
const MISSED: u64 = 1 << 31;
/// RB_MISSED_STORED: how many stands behind the last record.
const MISSED_STORED: u64 = 1 << 30;
const COMMIT: u64 = (1 << 27) - 1;

/// The commit word of the sub-buffer that `page` begins with.
#[inline]
pub fn commit_word<const BIG: bool>(page: &[u8], layout: PageLayout) -> u64 {
    match layout.commit_size {
        4 => u64::from(u32_at::<BIG>(page, layout.commit)),
        _ => u64_at::<BIG>(page, layout.commit),
    }
}

/// Bytes of records.
#[inline]
pub fn used(commit: u64) -> usize {
    (commit & COMMIT) as usize
}

/// The loss before the sub-buffer that `page` begins with: None if there is
/// none, else how many events it says were lost, if it had room to say it.
#[inline]
pub fn lost_before<const BIG: bool>(
    page: &[u8],
    commit: u64,
    layout: PageLayout,
) -> Option<Option<u64>> {
    if commit & MISSED == 0 {
        return None;
    }
    let (used, size) = (used(commit), layout.commit_size);
    let at = layout.data + used;
    let stored =
        commit & MISSED_STORED != 0 && layout.bytes >= at + size && page.len() >= at + size;
    Some(stored.then(|| match size {
        4 => u64::from(u32_at::<BIG>(page, at)),
        _ => u64_at::<BIG>(page, at),
    }))
}

/// What all sub-buffers mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// Sum of the numbers told.
    pub counted: u64,
    /// Losses without a number.
    pub uncounted: u64,
}

impl Marks {
    /// Reads the sub-buffers' heads.
    pub fn read<const BIG: bool>(mut pages: Box<dyn Pages>, layout: PageLayout) -> Result<Self> {
        let mut marks = Self::default();
        let mut window = Vec::new();
        loop {
            let whole = window.len() / layout.bytes * layout.bytes;
            for page in window[..whole].chunks_exact(layout.bytes) {
                let commit = commit_word::<BIG>(page, layout);
                match lost_before::<BIG>(page, commit, layout) {
                    Some(Some(count)) => marks.counted = marks.counted.saturating_add(count),
                    Some(None) => marks.uncounted += 1,
                    None => {}
                }
            }
            window.drain(..whole);
            if pages.fill(&mut window)? == 0 {
                return Ok(marks);
            }
        }
    }
}
