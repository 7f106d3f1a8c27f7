//! Moves of processes into control groups, of the one hierarchy that shares CPU time out.
//!
//! The kernel's events name a hierarchy by its number: 0 is cgroup 2, others are those of cgroup 1.
//! On a host that has both, which of them has the CPU controller stands in no event.

use std::collections::BTreeSet;

use crate::Options;
use crate::error::{Error, Result};
use crate::model::event::{GroupMove, SourceEnd};

/// The name of the option that chooses a hierarchy, and what it means.
pub const HIERARCHY: (&str, &str) = (
    "hierarchy",
    "number of the control groups' hierarchy that shares CPU time out",
);

/// A container is started with a few moves, never as many as this.
const MOST: usize = 100_000;

/// Moves so far, each with the number of its hierarchy; None: the recorder has chosen it.
#[derive(Debug, Default)]
pub struct GroupMoves {
    moves: Vec<(Option<i64>, GroupMove)>,
    /// How many more there were than are kept.
    dropped: u64,
}

impl GroupMoves {
    pub fn push(&mut self, hierarchy: Option<i64>, one: GroupMove) {
        if self.moves.len() < MOST {
            self.moves.push((hierarchy, one));
        } else {
            self.dropped += 1;
        }
    }

    pub fn extend(&mut self, others: Self) {
        self.dropped += others.dropped;
        for (hierarchy, one) in others.moves {
            self.push(hierarchy, one);
        }
    }

    /// Puts those of the hierarchy `chosen` into `end`, in time order. Without a choice it is
    /// cgroup 2's if no other has moves; else none is taken.
    pub fn finish(self, chosen: Option<i64>, end: &mut SourceEnd) {
        let mut seen: BTreeSet<i64> = self.moves.iter().filter_map(|(of, _)| *of).collect();
        let all = self.moves.len();
        let of = chosen.unwrap_or(0);
        let known = chosen.is_some() || seen.iter().all(|&other| other == 0);
        let wanted = |hierarchy: Option<i64>| match hierarchy {
            Some(hierarchy) => known && hierarchy == of,
            None => true,
        };
        let taken = self.moves.into_iter().filter(|(of, _)| wanted(*of));
        end.group_moves.extend(taken.map(|(_, one)| one));
        end.group_moves.sort_by_key(|one| one.ts);
        if self.dropped > 0 {
            end.warnings.push(format!(
                "{} moves of processes into control groups were left out, after the first {all}",
                self.dropped
            ));
        }
        if !known {
            let more = seen.len().saturating_sub(NAMED);
            let mut names: Vec<String> = seen.iter().take(NAMED).map(i64::to_string).collect();
            if more > 0 {
                names.push(format!("{more} more"));
            }
            end.warnings.push(format!(
                "moves into control groups were left out: they are of hierarchy {}, and the file \
                 does not say which one shares CPU time out; -O hierarchy=N tells it (on the \
                 recorded host, N begins the line of /proc/self/cgroup that names `cpu`)",
                names.join(", ")
            ));
        } else if chosen.is_some() && !seen.is_empty() && !seen.remove(&of) {
            end.warnings.push(format!(
                "no move into a control group is of hierarchy {of}: those of others were left out"
            ));
        }
    }
}

/// Hierarchies that a warning names.
const NAMED: usize = 12;

/// The hierarchy that `options` choose.
pub fn chosen(options: &Options) -> Result<Option<i64>> {
    let Some(text) = options.get(HIERARCHY.0) else {
        return Ok(None);
    };
    match text.parse::<u16>() {
        Ok(number) => Ok(Some(i64::from(number))),
        Err(_) => Err(Error::usage(
            format!("hierarchy={text:?}"),
            "a number, as in hierarchy=4",
            "look it up in /proc/self/cgroup on the recorded host: it begins the line of `cpu`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(moves: &[(Option<i64>, i64)], chosen: Option<i64>) -> (Vec<i64>, usize) {
        let mut all = GroupMoves::default();
        for &(hierarchy, ts) in moves {
            let cgroup = "/a".to_string();
            all.push(hierarchy, GroupMove { ts, tid: 7, cgroup });
        }
        let mut end = SourceEnd::default();
        all.finish(chosen, &mut end);
        let times = end.group_moves.iter().map(|one| one.ts).collect();
        (times, end.warnings.len())
    }

    #[test]
    fn moves_of_cgroup_2_alone_are_taken_and_of_several_hierarchies_the_chosen_ones() {
        assert_eq!(told(&[(None, 2), (None, 1)], None), (vec![1, 2], 0));
        assert_eq!(told(&[(Some(0), 2), (Some(0), 1)], None), (vec![1, 2], 0));
        assert_eq!(told(&[(Some(0), 2), (Some(4), 1)], None), (vec![], 1));
        assert_eq!(told(&[(Some(4), 1)], None), (vec![], 1));
        let mixed = [(Some(0), 2), (Some(4), 1)];
        assert_eq!(told(&mixed, Some(4)), (vec![1], 0));
        assert_eq!(told(&mixed, Some(0)), (vec![2], 0));
        assert_eq!(told(&mixed, Some(9)), (vec![], 1));
        assert_eq!(told(&[], Some(9)), (vec![], 0));
    }
}
