//! The arena of an object: pages that it takes and gives back, and that its programs reach through
//! pointers of 32 bits (kernel/bpf/arena.c and range_tree.c, Linux 6.12 to 6.18). A pointer leads
//! into the arena whatever it is, so that no other memory can be reached with one: what is read
//! where no page is is 0, and what is written there is lost.
use std::collections::BTreeMap;

use super::memory::word;

pub const PAGE: usize = 4096;
/// What 32 bits reach.
const MOST_PAGES: u32 = 1 << 20;
/// The upper half of pointers as user space would see them (`map_extra` of schedulers). To the
/// lower half casts cut them.
const USER: u64 = 0x1000;
/// The first page: a pointer into the arena is never null, nor near it.
const FIRST: u32 = 16;
const EMPTY: u32 = u32::MAX;

#[derive(Debug, Default)]
pub struct Arena {
    /// The page after its last.
    end: u32,
    /// By page: its place in `bytes`, from 1; 0 for none, `EMPTY` for one that is all zeroes yet.
    places: Vec<u32>,
    bytes: Vec<u8>,
    /// Places whose pages were given back.
    free: Vec<u32>,
    /// Pages that are taken now, and that were at most.
    taken: u32,
    most: u32,
    /// Pages that are taken: the first of each row, and the one after its last.
    rows: BTreeMap<u32, u32>,
}

/// A pointer as user space sees it, or null.
pub fn for_user(at: u64) -> u64 {
    match at as u32 {
        0 => 0,
        low => (USER << 32) | u64::from(low),
    }
}

/// The same as programs reach it.
pub fn for_kernel(at: u64) -> u64 {
    u64::from(at as u32)
}

impl Arena {
    /// One of so many pages; those that are taken already stay.
    pub fn limit(&mut self, pages: u32) {
        self.end = FIRST.saturating_add(pages).min(MOST_PAGES);
    }

    fn page(&self, at: u32) -> Option<usize> {
        match *self.places.get(at as usize / PAGE)? {
            0 | EMPTY => None,
            place => Some((place as usize - 1) * PAGE),
        }
    }

    /// The same for one who writes: from then on the page has a place.
    fn page_mut(&mut self, at: u32) -> Option<usize> {
        let place = self.places.get_mut(at as usize / PAGE)?;
        if *place == EMPTY {
            *place = match self.free.pop() {
                Some(place) => {
                    let from = (place as usize - 1) * PAGE;
                    self.bytes[from..from + PAGE].fill(0);
                    place
                }
                None => {
                    self.bytes.resize(self.bytes.len() + PAGE, 0);
                    (self.bytes.len() / PAGE) as u32
                }
            };
        }
        Some((place.checked_sub(1)? as usize) * PAGE)
    }

    pub fn load(&self, at: u32, size: usize) -> u64 {
        let within = at as usize % PAGE;
        if within + size <= PAGE {
            let bytes = self
                .page(at)
                .and_then(|page| self.bytes.get(page + within..));
            return bytes.and_then(|bytes| word(bytes, size)).unwrap_or(0);
        }
        let mut found = [0; 8];
        for (n, byte) in found[..size].iter_mut().enumerate() {
            let at = at.wrapping_add(n as u32);
            *byte = self
                .page(at)
                .map_or(0, |page| self.bytes[page + at as usize % PAGE]);
        }
        u64::from_le_bytes(found)
    }

    pub fn store(&mut self, at: u32, bytes: &[u8]) {
        let within = at as usize % PAGE;
        if within + bytes.len() <= PAGE {
            if let Some(page) = self.page_mut(at) {
                let from = page + within;
                self.bytes[from..from + bytes.len()].copy_from_slice(bytes);
            }
            return;
        }
        for (n, byte) in bytes.iter().enumerate() {
            let at = at.wrapping_add(n as u32);
            if let Some(page) = self.page_mut(at) {
                self.bytes[page + at as usize % PAGE] = *byte;
            }
        }
    }

    /// Bytes that taking so many pages would add to what the object has.
    pub fn room_for(&self, pages: u32) -> usize {
        let most = self.taken.saturating_add(pages);
        most.saturating_sub(self.most) as usize * PAGE
    }

    /// The first page of a row of so many that are free, from `at` if it says where
    /// (range_tree_find, is_range_tree_set); with it what the search cost.
    pub fn find(&self, at: u64, pages: u32) -> (Option<u32>, u64) {
        let end = |first: u32| first.checked_add(pages).filter(|end| *end <= self.end);
        if at != 0 {
            let first = at as u32 / PAGE as u32;
            let whole = (at as usize).is_multiple_of(PAGE);
            let whole = whole && first >= FIRST;
            let found = end(first).filter(|end| whole && self.is_free(first, *end));
            return (found.map(|_| first), 1);
        }
        let mut first = FIRST;
        let mut work = 1;
        for (from, to) in &self.rows {
            if end(first).is_some_and(|end| end <= *from) {
                break;
            }
            first = first.max(*to);
            work += 1;
        }
        (end(first).map(|_| first), work)
    }

    fn is_free(&self, first: u32, end: u32) -> bool {
        let before = self.rows.range(..end).next_back();
        before.is_none_or(|(_, to)| *to <= first)
    }

    /// Takes the pages, which are free; they are full of zeroes.
    pub fn take(&mut self, first: u32, pages: u32) {
        let end = first + pages;
        let new = end as usize;
        if self.places.len() < new {
            self.places.resize(new, 0);
        }
        self.places[first as usize..new].fill(EMPTY);
        self.taken += pages;
        self.most = self.most.max(self.taken);
        self.join(first, end);
    }

    /// Sets pages aside, without any memory (bpf_arena_reserve_pages).
    pub fn reserve(&mut self, first: u32, pages: u32) {
        self.join(first, first + pages);
    }

    /// Notes a row, together with the one that ends where it begins.
    fn join(&mut self, first: u32, end: u32) {
        let before = self.rows.range(..first).next_back();
        let begin = before
            .filter(|(_, to)| **to == first)
            .map(|(from, _)| *from);
        self.rows.insert(begin.unwrap_or(first), end);
    }

    /// Gives pages back, those of them that are taken (arena_free_pages).
    pub fn give_back(&mut self, at: u64, pages: u32) {
        let first = at as u32 / PAGE as u32;
        let end = first.saturating_add(pages).min(self.end);
        let touched = self.rows.range(..end);
        let touched: Vec<(u32, u32)> = touched
            .rev()
            .take_while(|(_, to)| **to > first)
            .map(|(from, to)| (*from, *to))
            .collect();
        for (from, to) in touched {
            self.rows.remove(&from);
            if from < first {
                self.rows.insert(from, first);
            }
            if to > end {
                self.rows.insert(end, to);
            }
            for page in from.max(first)..to.min(end) {
                let place = self.places.get_mut(page as usize).map(std::mem::take);
                let place = place.filter(|place| *place != 0);
                self.taken -= u32::from(place.is_some());
                self.free.extend(place.filter(|place| *place != EMPTY));
            }
        }
    }
}

/// The address of a page for user space.
pub fn address_of(page: u32) -> u64 {
    (USER << 32) | (u64::from(page) * PAGE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(pages: u32) -> Arena {
        let mut arena = Arena::default();
        arena.limit(pages);
        arena
    }

    fn taken(arena: &mut Arena, at: u64, pages: u32) -> Option<u32> {
        let first = arena.find(at, pages).0?;
        arena.take(first, pages);
        Some(first)
    }

    #[test]
    fn pages_are_given_out_from_the_first_free_row_that_is_long_enough() {
        let mut arena = arena(16);
        assert_eq!(taken(&mut arena, 0, 4), Some(16));
        assert_eq!(taken(&mut arena, 0, 4), Some(20));
        arena.give_back(address_of(17), 2);
        assert_eq!(taken(&mut arena, 0, 3), Some(24));
        assert_eq!(taken(&mut arena, 0, 2), Some(17));
        assert_eq!(taken(&mut arena, 0, 6), None);
        // Asked for by its address, if it begins a page that is free and of the arena.
        assert_eq!(taken(&mut arena, address_of(29), 2), Some(29));
        for (at, pages) in [(30, 1), (28, 2), (31, 2), (15, 1), (3, 1)] {
            assert_eq!(taken(&mut arena, address_of(at), pages), None, "{at}");
        }
        assert_eq!(taken(&mut arena, address_of(31) + 8, 1), None);
        assert_eq!(taken(&mut arena, 0, 2), Some(27));
        assert_eq!(taken(&mut arena, 0, 2), None);
        assert_eq!(taken(&mut arena, 0, 1), Some(31));
    }

    #[test]
    fn what_is_where_no_page_is_reads_as_zero_and_cannot_be_written() {
        let mut arena = arena(MOST_PAGES);
        taken(&mut arena, address_of(MOST_PAGES - 1), 1);
        taken(&mut arena, 0, 1);
        for at in [0, 8, 0x1_1000, 0xffff_eff8] {
            arena.store(at, &[1; 8]);
            assert_eq!(arena.load(at, 8), 0, "{at:#x}");
        }
        // Half of a word at the edge of a page, and across the end of all addresses.
        for at in [0x1_0ffc, 0xffff_fffc] {
            arena.store(at, &[1; 8]);
            assert_eq!(arena.load(at, 8), 0x0101_0101, "{at:#x}");
        }
    }

    #[test]
    fn a_page_that_is_taken_again_is_empty() {
        let mut arena = arena(64);
        taken(&mut arena, 0, 2);
        arena.store(0x1_0000, &[7; 8]);
        arena.give_back(address_of(16), 1);
        assert_eq!(arena.load(0x1_0000, 8), 0);
        assert_eq!(arena.room_for(1), 0);
        taken(&mut arena, 0, 1);
        assert_eq!(arena.load(0x1_0000, 8), 0);
        // Given back twice it is free once.
        arena.give_back(address_of(16), 1);
        arena.give_back(address_of(16), 1);
        assert_eq!(arena.room_for(2), PAGE);
    }
}
