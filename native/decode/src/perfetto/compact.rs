//! The compact form of a bundle's switches and wakings: a column for each field.

use super::bundle::{Decoder, IN_INTERRUPT, TID_MAX, state};
use super::damage::agree;
use super::rows::{Form, Row};
use super::wire::{Fields, Packed};
use crate::model::event::{Comm, State, UNKNOWN_TID, WakeKind};

impl Decoder<'_> {
    /// CompactSched: one column per field, times as differences, names by index. False: damaged.
    pub(super) fn compact(&mut self, bytes: &[u8]) -> bool {
        let mut columns = [Packed::default(); 13];
        // Full events have put their names there.
        let before = self.out.names.len() as u32;
        let mut fields = Fields::new(bytes);
        for (number, value) in &mut fields {
            match number {
                5 => self.out.names.push(Comm::new(value.bytes())),
                _ => {
                    if let Some(column) = columns.get_mut(number as usize) {
                        *column = Packed(value.bytes());
                    }
                }
            }
        }
        let [_, times, states, threads, prios, _, comms, wakes @ ..] =
            &columns.map(|column| column.0);
        let [wake_times, wakes @ ..] = wakes;
        if fields.damaged()
            || !agree(times, &[states, threads, prios, comms])
            || !agree(wake_times, wakes)
        {
            return false;
        }
        let names = self.out.names.len() as u32;
        let hashes: Vec<u32> = self.out.names.iter().map(hash).collect();
        // (row, the name that the thread had) of those that may be another.
        let mut strange: Vec<(usize, Option<u32>)> = Vec::new();
        let (mut wakings, mut of_current) = (0usize, 0usize);
        let name = |index: u64| {
            u32::try_from(index)
                .ok()?
                .checked_add(before)
                .filter(|&index| index < names)
        };
        let [
            _,
            switch_ts,
            switch_state,
            switch_tid,
            switch_prio,
            _,
            switch_comm,
            wake_ts,
            wake_tid,
            wake_cpu,
            wake_prio,
            wake_comm,
            wake_flags,
        ] = &mut columns;
        // Two sorted lists merged: the running thread is needed for the wakers. Full events show
        // that a switch between two of these was not traced.
        self.out.full.sort_by_key(|row| row.ts);
        let mut seen_at = 0;
        let (mut switch_at, mut wake_at) = (0u64, 0u64);
        let mut next_switch = step(switch_ts, &mut switch_at);
        let mut next_wake = step(wake_ts, &mut wake_at);
        loop {
            let wake_first = match (next_switch, next_wake) {
                (None, None) => break,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(switch), Some(wake)) => wake < switch,
            };
            if wake_first {
                let (Some(ts), Some(woken), Some(name)) = (
                    next_wake.and_then(|raw| self.ts(raw)),
                    wake_tid.next(),
                    wake_comm.next().and_then(name),
                ) else {
                    return false;
                };
                self.start(ts);
                self.see(&mut seen_at, ts);
                let target = wake_cpu.next().and_then(|cpu| u16::try_from(cpu).ok());
                let prio = wake_prio.next().and_then(prio);
                // Written since Perfetto 42; without it every waker counts as a thread.
                let interrupt = wake_flags
                    .next()
                    .is_some_and(|flags| flags & IN_INTERRUPT != 0);
                self.state.counts[2] += 1;
                self.state.compact_wakings = true;
                wakings += 1;
                let woken = tid(woken);
                if self.complete && woken > TID_MAX {
                    return false;
                }
                of_current += usize::from(woken != 0 && self.state.current == Some(woken));
                self.state.seen.woken(woken, hashes[name as usize]);
                let waker = match interrupt {
                    true => None,
                    false if self.wakings_of_all => Some(UNKNOWN_TID),
                    false => self.state.current,
                };
                let form = Form::Wake {
                    kind: WakeKind::Waking,
                    waker,
                    current: None,
                    target,
                };
                self.out.compact.push(Row {
                    ts,
                    tid: woken,
                    prio,
                    name,
                    form,
                });
                next_wake = step(wake_ts, &mut wake_at);
            } else {
                let (Some(ts), Some(bits), Some(next), Some(name)) = (
                    next_switch.and_then(|raw| self.ts(raw)),
                    switch_state.next(),
                    switch_tid.next(),
                    switch_comm.next().and_then(name),
                ) else {
                    return false;
                };
                self.start(ts);
                self.see(&mut seen_at, ts);
                let (next, prio) = (tid(next), switch_prio.next().and_then(prio));
                if self.complete && next > TID_MAX {
                    return false;
                }
                let prev = self.state.current.replace(next);
                self.state.counts[0] += 1;
                if let Some(prev) = prev {
                    let runnable = state(self.states, bits).0 == State::Runnable;
                    self.state.seen.left(prev, runnable);
                }
                let (had, may_be_another) = self.state.seen.came(next, hashes[name as usize]);
                if may_be_another {
                    strange.push((self.out.compact.len(), had));
                }
                let form = match prev.filter(|&prev| prev != next) {
                    Some(_) => {
                        let (state, preempted) = state(self.states, bits);
                        Form::Switch {
                            prev,
                            state,
                            preempted,
                        }
                    }
                    // Only the next thread is written, and the previous next is not prev: the first
                    // switch, one after a loss, or one after a switch that the kernel did not
                    // trace. The reconstruction finds a prev/next mismatch and invents no running
                    // time.
                    None => {
                        // The first of each CPU is so by design.
                        let first = self.state.counts[0] == 1;
                        self.state.unknown_prev += u64::from(!first);
                        let wants = state(self.states, bits) == (State::Runnable, None);
                        if first && wants {
                            self.state.left_wanting = Some(ts);
                        }
                        Form::Switch {
                            prev: None,
                            state: State::Unknown,
                            preempted: None,
                        }
                    }
                };
                self.out.compact.push(Row {
                    ts,
                    tid: next,
                    prio,
                    name,
                    form,
                });
                next_switch = step(switch_ts, &mut switch_at);
            }
        }
        self.see(&mut seen_at, i64::MAX);
        // An interrupt may wake a thread before its switch-out; if this repeats, the times of one
        // kind of event are shifted.
        if of_current > 1 && of_current * 64 > wakings {
            return false;
        }
        for (at, had) in strange {
            self.another(at, had, &hashes);
        }
        let ends = [switch_at, wake_at].map(|at| self.ts(at).filter(|_| at > 0));
        self.state.last = ends.into_iter().fold(self.state.last, Option::max);
        true
    }

    /// The thread of a compact switch has the name of one that waits, and `had` another one or
    /// none. It is that one's number, damaged, if it has no further event under this name.
    #[cold]
    fn another(&mut self, at: usize, had: Option<u32>, hashes: &[u32]) {
        let Some((row, later)) = self.out.compact.get(at..).and_then(<[Row]>::split_first) else {
            return;
        };
        let name_of = |row: &Row| hashes.get(row.name as usize).copied();
        let name = name_of(row);
        let mut names = later.iter().filter(|one| one.tid == row.tid).map(name_of);
        let damaged = match had {
            None => names.next().is_none(),
            Some(_) => {
                let mut returns = false;
                names.all(|other| {
                    returns |= other == had;
                    other != name
                }) && returns
            }
        };
        let next = later.iter().find_map(|row| match row.form {
            Form::Switch { state, .. } => Some((row.ts, state)),
            _ => None,
        });
        // A child that ends soon has its parent's name to the end, and the full events name it.
        let damaged = damaged && !self.out.names_in_full(row.tid);
        if damaged && next.is_none_or(|(_, state)| state != State::Dead) {
            self.state.malformed += 1;
            match next {
                Some((ts, _)) => self.out.holes.push((row.ts, ts)),
                None => self.state.open = true,
            }
        }
    }

    /// Passes over the full events from number `at` on that are no later than `ts`. The earlier
    /// ones show the running thread.
    fn see(&mut self, at: &mut usize, ts: i64) {
        let rest = self.out.full.get(*at..).unwrap_or_default();
        for row in rest.iter().take_while(|row| row.ts <= ts) {
            *at += 1;
            if let Form::Wake {
                current: Some(current),
                ..
            } = row.form
                && row.ts < ts
            {
                self.state.current = Some(current);
            }
        }
    }
}

/// Hash of a name, to distinguish it from others.
fn hash(name: &Comm) -> u32 {
    let (words, _) = name.0.as_chunks::<8>();
    let mixed = words.iter().fold(0u64, |hash, word| {
        (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x517c_c1b7_2722_0a95)
    });
    (mixed >> 32) as u32
}

#[inline]
fn step(deltas: &mut Packed<'_>, at: &mut u64) -> Option<u64> {
    *at = at.wrapping_add(deltas.next()?);
    Some(*at)
}

/// Negative int32 numbers are sign-extended on the wire.
#[inline]
fn tid(number: u64) -> u32 {
    u32::try_from(number.cast_signed()).unwrap_or(0)
}

#[inline]
fn prio(number: u64) -> Option<i16> {
    i16::try_from(number.cast_signed()).ok()
}
