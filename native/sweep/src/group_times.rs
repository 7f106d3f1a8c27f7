//! Sums, counts and exact quantiles of the rows of a table, group by group.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BooleanArray, Int64Array, RecordBatch};
use rustc_hash::FxHashMap;

use crate::columns::{column, full};
use crate::error::{Error, Result};
use crate::group_ranks::GroupRanks;
use crate::hooks::check_interrupt;
use crate::ranks::{Ranks, Share};

/// What is asked of the columns of a table that has a `group`, any whole number, in each row. A
/// null in any other column is not counted.
#[derive(Default)]
pub struct GroupQuery {
    /// Columns whose quantiles are wanted.
    pub ranked: Vec<String>,
    /// Columns of which the sum and the greatest are enough.
    pub summed: Vec<String>,
    /// Columns of truths, of which the true ones are counted.
    pub counted: Vec<String>,
    /// The column of which the least value is wanted among the rows with the greatest value of the
    /// first that is ranked.
    pub first: Option<String>,
    pub shares: Vec<Share>,
}

/// The greatest value, and something else of the row that has it.
type Greatest = (i64, i64);

const NOTHING: Greatest = (i64::MIN, i64::MAX);

/// All rows are read, and read again as long as `seek` says so.
pub struct Groups<'a> {
    query: &'a GroupQuery,
    of: FxHashMap<i64, usize>,
    /// The groups, in the order in which they appeared.
    pub found: Vec<i64>,
    /// Of each group, each of the columns.
    ranks: GroupRanks,
    sums: Vec<(i64, i64)>,
    counts: Vec<u32>,
    first: Vec<Greatest>,
}

impl<'a> Groups<'a> {
    pub fn new(query: &'a GroupQuery) -> Self {
        Self {
            query,
            of: FxHashMap::default(),
            found: Vec::new(),
            ranks: GroupRanks::new(query.shares.clone()),
            sums: Vec::new(),
            counts: Vec::new(),
            first: Vec::new(),
        }
    }

    /// Some more rows.
    pub fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        check_interrupt()?;
        let query = self.query;
        let at: Vec<usize> = full::<Int64Type>(batch, "group")?
            .iter()
            .map(|group| self.place(*group))
            .collect();
        let groups = self.found.len();
        self.ranks.grow(groups * query.ranked.len());
        self.sums.resize(groups * query.summed.len(), (0, i64::MIN));
        self.counts.resize(groups * query.counted.len(), 0);
        self.first.resize(groups, NOTHING);
        for (number, name) in query.ranked.iter().enumerate() {
            for (row, value) in known(column::<Int64Type>(batch, name)?) {
                let cell = at[row] * query.ranked.len() + number;
                self.ranks.add(cell, value);
            }
        }
        if self.ranks.again() {
            return Ok(());
        }
        for (number, name) in query.summed.iter().enumerate() {
            for (row, value) in known(column::<Int64Type>(batch, name)?) {
                let (sum, greatest) = &mut self.sums[at[row] * query.summed.len() + number];
                *sum = sum.saturating_add(value);
                *greatest = value.max(*greatest);
            }
        }
        for (number, name) in query.counted.iter().enumerate() {
            let marks = truths(batch, name)?;
            for (row, _) in marks
                .iter()
                .enumerate()
                .filter(|(_, mark)| *mark == Some(true))
            {
                self.counts[at[row] * query.counted.len() + number] += 1;
            }
        }
        if let (Some(name), Some(of)) = (&query.first, query.ranked.first()) {
            let first = column::<Int64Type>(batch, name)?;
            for (row, value) in known(column::<Int64Type>(batch, of)?) {
                let (greatest, least) = &mut self.first[at[row]];
                if value > *greatest {
                    (*greatest, *least) = (value, i64::MAX);
                }
                if value == *greatest && first.is_valid(row) {
                    *least = first.value(row).min(*least);
                }
            }
        }
        Ok(())
    }

    fn place(&mut self, group: i64) -> usize {
        *self.of.entry(group).or_insert_with(|| {
            self.found.push(group);
            self.found.len() - 1
        })
    }

    /// All rows were read: whether they are needed again.
    pub fn seek(&mut self) -> bool {
        self.ranks.seek()
    }

    /// Of each group, what was found of that ranked column.
    pub fn ranked(&self, number: usize) -> impl Iterator<Item = &Ranks> {
        let columns = self.query.ranked.len();
        (0..self.found.len()).map(move |at| self.ranks.of(at * columns + number))
    }

    /// Of each group, the sum and the greatest value of that summed column.
    pub fn summed(&self, number: usize) -> impl Iterator<Item = (i64, Option<i64>)> {
        let cells = self.sums.iter().skip(number);
        let cells = cells.step_by(self.query.summed.len().max(1));
        cells.map(|(sum, greatest)| (*sum, (*greatest > i64::MIN).then_some(*greatest)))
    }

    /// Of each group, how many of that counted column are true.
    pub fn counted(&self, number: usize) -> impl Iterator<Item = u32> {
        let cells = self.counts.iter().skip(number);
        cells.step_by(self.query.counted.len().max(1)).copied()
    }

    /// Of each group, the least of `first`.
    pub fn first(&self) -> impl Iterator<Item = Option<i64>> {
        let first = self.first.iter().map(|(_, least)| *least);
        first.map(|least| (least < i64::MAX).then_some(least))
    }
}

/// The values that a column has, each with its row.
fn known(values: &Int64Array) -> impl Iterator<Item = (usize, i64)> {
    let rows = values.iter().enumerate();
    rows.filter_map(|(row, value)| value.map(|value| (row, value)))
}

fn truths<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a BooleanArray> {
    let array = batch.column_by_name(name);
    array
        .and_then(|array| array.as_boolean_opt())
        .ok_or_else(|| Error::internal(format!("no column {name} of truths")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::ArrayRef;

    use super::*;

    type Row = (
        i64,
        Option<i64>,
        Option<i64>,
        Option<i64>,
        Option<bool>,
        Option<i64>,
    );

    #[test]
    fn groups_appear_in_any_batch_and_nulls_are_not_counted() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let query = GroupQuery {
            ranked: names(&["wait", "high"]),
            summed: names(&["known"]),
            counted: names(&["cut"]),
            first: Some("ts".to_owned()),
            shares: vec![(1, 2), (1, 1)],
        };
        let mut groups = Groups::new(&query);
        let rows: [Row; 5] = [
            (1 << 60, Some(5), None, Some(3), Some(true), Some(90)),
            (-7, None, None, None, None, Some(1)),
            (1 << 60, Some(9), Some(2), None, Some(false), None),
            (1 << 60, Some(9), Some(4), Some(4), Some(true), Some(40)),
            (1 << 60, Some(9), Some(4), Some(-1), Some(true), Some(30)),
        ];
        loop {
            for rows in rows.chunks(2) {
                let ints = |get: fn(&Row) -> Option<i64>| {
                    Arc::new(rows.iter().map(get).collect::<Int64Array>()) as ArrayRef
                };
                let marks = rows.iter().map(|row| row.4).collect::<BooleanArray>();
                let columns: [(&str, ArrayRef); 6] = [
                    ("group", ints(|row| Some(row.0))),
                    ("wait", ints(|row| row.1)),
                    ("high", ints(|row| row.2)),
                    ("known", ints(|row| row.3)),
                    ("cut", Arc::new(marks)),
                    ("ts", ints(|row| row.5)),
                ];
                groups
                    .read(
                        &RecordBatch::try_from_iter_with_nullable(
                            columns.map(|(name, array)| (name, array, name != "group")),
                        )
                        .unwrap(),
                    )
                    .unwrap();
            }
            if !groups.seek() {
                break;
            }
        }
        assert_eq!(groups.found, [1 << 60, -7]);
        let of = |number| -> Vec<_> {
            let ranks = groups.ranked(number);
            ranks
                .map(|ranks| (ranks.n(), ranks.total(), ranks.found()))
                .collect()
        };
        assert_eq!(of(0), [(4, 32, Some(vec![9, 9])), (0, 0, None)]);
        assert_eq!(of(1), [(3, 10, Some(vec![4, 4])), (0, 0, None)]);
        let sums: Vec<_> = groups.summed(0).collect();
        assert_eq!(sums, [(6, Some(4)), (0, None)]);
        assert_eq!(groups.counted(0).collect::<Vec<_>>(), [3, 0]);
        assert_eq!(groups.first().collect::<Vec<_>>(), [Some(30), None]);
    }
}
