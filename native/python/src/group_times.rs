//! Quantiles, sums and counts of the rows of a table, group by group.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use pyo3::prelude::*;

use super::arrow::{ArrowTable, read_stream};
use super::tables::{counts, ints, of_ranks, shares_of, table};
use crate::error::Result;
use schedscope_sweep::group_times::{GroupQuery, Groups};

/// A row for each `group` of some tables, in the order in which it appears. Of the columns `ranked`
/// how many values there are, their sum, the greatest and those of the `shares`; of those `summed`
/// the sum and the greatest; of those `counted` how many are true; and of `first` the least among
/// the rows with the greatest value of the first `ranked` one.
///
/// `batches` gives the same tables whenever it is called: once, unless there are more values than
/// are held.
#[pyfunction]
#[pyo3(signature = (batches, shares, *, ranked, summed=Vec::new(), counted=Vec::new(), first=None))]
pub fn group_times(
    batches: &Bound<'_, PyAny>,
    shares: Vec<(u64, u64)>,
    ranked: Vec<String>,
    summed: Vec<String>,
    counted: Vec<String>,
    first: Option<String>,
) -> Result<ArrowTable> {
    let query = GroupQuery {
        ranked,
        summed,
        counted,
        first,
        shares: shares_of(shares)?,
    };
    let mut groups = Groups::new(&query);
    loop {
        for rows in batches.call0()?.try_iter()? {
            let (_, rows) = read_stream(&rows?)?;
            let read = || rows.iter().try_for_each(|batch| groups.read(batch));
            batches.py().detach(read)?;
        }
        if !batches.py().detach(|| groups.seek()) {
            break;
        }
    }
    let mut columns = vec![("group".to_owned(), ints(groups.found.iter().copied()))];
    for (number, name) in query.ranked.iter().enumerate() {
        let of_groups = || groups.ranked(number);
        columns.extend(of_ranks(&format!("{name}_"), query.shares.len(), of_groups));
    }
    for (number, name) in query.summed.iter().enumerate() {
        let greatest = groups.summed(number).map(|(_, greatest)| greatest);
        let greatest = Arc::new(greatest.collect::<Int64Array>());
        columns.push((
            format!("{name}_total"),
            ints(groups.summed(number).map(|(sum, _)| sum)),
        ));
        columns.push((format!("{name}_max"), greatest));
    }
    for (number, name) in query.counted.iter().enumerate() {
        columns.push((name.clone(), counts(groups.counted(number))));
    }
    if let Some(name) = &query.first {
        let first: ArrayRef = Arc::new(groups.first().collect::<Int64Array>());
        columns.push((name.clone(), first));
    }
    table(columns)
}
