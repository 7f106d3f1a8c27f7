//! A session may have several data sources of ftrace, each with events of every CPU: one is read.
//!
//! Their packets have sequences of their own. A writer that follows on another one, as after a
//! restart of traced_probes, has a sequence of its own too, but at other times.

use rustc_hash::FxHashMap;

use super::Perfetto;
use super::bundle::CpuState;
use super::rows::Bundle;
use super::scan::Place;
use crate::error::Result;

/// So many bundles are asked for switches.
const ASKED: usize = 4;

/// Bundles of one CPU and one sequence.
struct Group {
    places: Vec<Place>,
    first: i64,
    last: i64,
    switches: u64,
}

impl Group {
    fn sequence(&self) -> u64 {
        self.places.first().map_or(0, |place| place.sequence)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.first < other.last && other.first < self.last
    }
}

impl Perfetto {
    /// Leaves out the sequences that have events of a CPU at the same times as the one with most.
    pub(super) fn one_source(&mut self) -> Result<()> {
        let mut cpus = Vec::new();
        for cpu in 0..self.scan.bundles.len() {
            cpus.push(self.groups(cpu)?);
        }
        // Those with switches first, then by size.
        let mut sizes: FxHashMap<u64, (bool, u64)> = FxHashMap::default();
        for group in cpus.iter().flatten() {
            let (switches, bytes) = sizes.entry(group.sequence()).or_default();
            *switches |= group.switches > 0;
            *bytes += group
                .places
                .iter()
                .map(|place| u64::from(place.span.len))
                .sum::<u64>();
        }
        let rank = |group: &Group| {
            let size = sizes.get(&group.sequence()).copied().unwrap_or_default();
            (size, group.sequence())
        };
        let mut left_out = 0;
        for (cpu, mut groups) in cpus.into_iter().enumerate() {
            groups.sort_by_key(|group| std::cmp::Reverse(rank(group)));
            let mut kept: Vec<Group> = Vec::new();
            for group in groups {
                if kept.iter().any(|one| one.overlaps(&group)) {
                    left_out += group.places.len();
                } else {
                    kept.push(group);
                }
            }
            kept.sort_by_key(|group| group.first);
            self.scan.bundles[cpu] = kept.into_iter().flat_map(|group| group.places).collect();
        }
        if left_out > 0 {
            self.warnings.push(format!(
                "it has several data sources of ftrace: {left_out} bundles of events of all but \
                 the largest that has switches were left out (record with one)"
            ));
        }
        Ok(())
    }

    /// The bundles of a CPU by their sequences.
    fn groups(&mut self, cpu: usize) -> Result<Vec<Group>> {
        let mut by_sequence: Vec<Vec<Place>> = Vec::new();
        for place in std::mem::take(&mut self.scan.bundles[cpu]) {
            let same = |places: &&mut Vec<Place>| places[0].sequence == place.sequence;
            match by_sequence.iter_mut().find(same) {
                Some(places) => places.push(place),
                None => by_sequence.push(vec![place]),
            }
        }
        let alone = by_sequence.len() < 2;
        let mut groups = Vec::new();
        for places in by_sequence {
            groups.push(if alone {
                Group {
                    places,
                    first: 0,
                    last: 0,
                    switches: 0,
                }
            } else {
                self.group(cpu, places)?
            });
        }
        Ok(groups)
    }

    #[cold]
    fn group(&mut self, cpu: usize, places: Vec<Place>) -> Result<Group> {
        self.scan.bundles[cpu] = places;
        let (mut bytes, mut events) = (Vec::new(), Bundle::default());
        let mut state = CpuState::default();
        let count = self.scan.bundles[cpu].len();
        let mut first = None;
        for number in 0..count.min(ASKED) {
            self.bundle(cpu, number, &mut state, &mut bytes, &mut events)?;
            first = first.or(events.head().map(|head| head.ts));
        }
        let switches = state.counts[0];
        let mut end = CpuState::default();
        for number in count.saturating_sub(2)..count {
            self.bundle(cpu, number, &mut end, &mut bytes, &mut events)?;
        }
        let last = end.last.or(state.last).unwrap_or(0);
        Ok(Group {
            places: std::mem::take(&mut self.scan.bundles[cpu]),
            first: first.unwrap_or(last),
            last,
            switches,
        })
    }
}
