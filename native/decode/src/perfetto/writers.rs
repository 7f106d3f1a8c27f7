//! Files of other writers than traced_probes, which keep less of its order.

use super::Perfetto;
use super::bundle::CpuState;
use super::rows::Bundle;
use crate::error::Result;

impl Perfetto {
    /// Finds out whether the writer put the wakings of all CPUs into the bundles of one: then the
    /// running thread there did not cause them. And whether all wakeups name the woken thread as
    /// the one that ran, as no kernel does: then their waker is not known.
    ///
    /// Perfetto's own writer names its version or says when bundles end. Where neither is so,
    /// several CPUs switch, and one alone has wakings, it is such a file.
    pub(super) fn which_writer(&mut self) -> Result<()> {
        let places = self.scan.bundles.iter().flatten();
        let own = !self.scan.service.is_empty() || self.scan.version.ends_with(super::OURS);
        if own || places.clone().any(|place| place.previous_end.is_some()) {
            return Ok(());
        }
        let (mut bytes, mut events) = (Vec::new(), Bundle::default());
        let (mut switching, mut waking) = (0, Vec::new());
        let mut wakeups = [0, 0];
        for cpu in 0..self.scan.bundles.len() {
            let mut state = CpuState::default();
            for number in 0..self.scan.bundles[cpu].len() {
                self.bundle(cpu, number, &mut state, &mut bytes, &mut events)?;
                if state.counts[0] > 0 && state.compact_wakings {
                    break;
                }
            }
            switching += usize::from(state.counts[0] > 0);
            if state.compact_wakings {
                waking.push(cpu);
            }
            for (sum, found) in wakeups.iter_mut().zip(state.full_wakeups) {
                *sum += found;
            }
            if waking.len() > 1 {
                return Ok(());
            }
        }
        let [all, named] = wakeups;
        if all > 0 && all == named {
            self.no_wakers = true;
            self.warnings.push(format!(
                "all {all} wakeups name the woken thread as the one that ran: who woke it, and onto \
                 which CPU, is not known"
            ));
        }
        if let (&[cpu], true) = (waking.as_slice(), switching > 1) {
            self.wakings_of_all = true;
            self.warnings.push(format!(
                "all wakings are among the events of CPU {cpu}, though {switching} CPUs switch: who \
                 raised them, and where, is not known"
            ));
        }
        Ok(())
    }
}
