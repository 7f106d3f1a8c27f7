//! Internal waits of glibc's condition variables.
//!
//! Its waiters are of two groups, each with a word to sleep on (`__g_signals`). A thread that
//! signals when one group is used up waits until the last of those woken in it has left: it sleeps
//! on the word that counts them (`__g_refs`), and the last one to leave wakes it
//! (`__condvar_quiesce_and_switch_g1` in nptl/pthread_cond_common.c of glibc 2.36). It may hold the
//! mutex of the condition during this. The program asks for no such wait, and under another policy
//! it is for another thread, or there is none: they are left out.
use rustc_hash::{FxHashMap, FxHashSet};

use super::mutexes::{FutexRow, rows_of};
use crate::error::Result;
use crate::reconstruct::facts::TableIn;

/// From the count of those who have not left to the word that they slept on, bytes.
const TO_SIGNALS: i64 = 24;

#[derive(Default)]
struct Users {
    wait: FxHashSet<u32>,
    wake: FxHashSet<u32>,
}

/// The ends of calls out of the table `futexes`, in which those calls are marked.
pub fn futex_rows(table: &TableIn) -> Result<Vec<FutexRow>> {
    let mut rows = rows_of(table)?;
    mark_leaving(&mut rows);
    Ok(rows)
}

/// Marks the calls for such counts: a thread that waits there wakes the sleepers of the condition,
/// and is woken by them.
fn mark_leaving(rows: &mut [FutexRow]) {
    let mut users: FxHashMap<(u32, i64), Users> = FxHashMap::default();
    for row in rows.iter().filter(|r| r.enters && !r.mutex) {
        let of = users.entry((row.process, row.address)).or_default();
        if row.waits {
            of.wait.insert(row.utid);
        } else {
            of.wake.insert(row.utid);
        }
    }
    for row in rows.iter_mut().filter(|r| r.enters && !r.mutex) {
        let here = &users[&(row.process, row.address)];
        let signals = users.get(&(row.process, row.address + TO_SIGNALS));
        row.leaving = signals.is_some_and(|there| {
            here.wait.is_subset(&there.wake) && here.wake.is_subset(&there.wait)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(rows: &[(u32, bool, i64)]) -> Vec<bool> {
        let mut made: Vec<_> = rows
            .iter()
            .map(|(utid, waits, address)| FutexRow {
                ts: 0,
                utid: *utid,
                process: 1,
                enters: true,
                waits: *waits,
                address: *address,
                mutex: false,
                service: 0,
                leaving: false,
            })
            .collect();
        mark_leaving(&mut made);
        made.iter().map(|row| row.leaving).collect()
    }

    #[test]
    fn who_signals_waits_for_those_whom_it_woke() {
        // 7 and 8 sleep at 40, where 5 wakes them; 5 sleeps at 16, and 7 wakes it.
        let rows = [(7, true, 40), (8, true, 40), (5, false, 40)];
        let more = [(5, true, 16), (7, false, 16)];
        assert_eq!(
            calls(&[&rows[..], &more].concat()),
            [false, false, false, true, true]
        );
        // Another thread wakes it: another word that lies there by chance.
        let other = [(5, true, 16), (9, false, 16)];
        assert_eq!(calls(&[&rows[..], &other].concat()), [false; 5]);
        let elsewhere = [(5, true, 12), (7, false, 12)];
        assert_eq!(calls(&[&rows[..], &elsewhere].concat()), [false; 5]);
    }
}
