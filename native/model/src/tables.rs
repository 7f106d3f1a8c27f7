//! Every table of the trace model: its Arrow schema and the columns that fill it.
//!
//! Twin of `parsers/schema.py`, which documents each column; a test holds the
//! two against each other.

use std::collections::HashMap;
use std::hint::select_unpredictable;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, DictionaryArray, PrimitiveArray, RecordBatch,
    StringArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::event::{
    CallStep, Cause, Censored, DiskStep, End, IrqKind, LockKind, LockStep, LossReason,
    PriorityCause, QueueKind, QueueStep, SchedClass, SleepKind, State, ToldBy, WakeKind,
};

/// Bumped whenever a table changes; caches of another version are rebuilt.
pub const SCHEMA_VERSION: u32 = 13;

/// A column being filled.
pub trait Column: Default {
    type Item;
    /// Appends one value of each row.
    fn fill<R>(&mut self, rows: &[R], get: impl Fn(&R) -> &Self::Item);
    /// The values so far; the column is empty afterwards.
    fn take(&mut self) -> ArrayRef;
    /// Makes room for so many values.
    fn reserve(&mut self, _rows: usize) {}
    /// Fills the memory of an array from `take` that is no longer in use.
    fn refill(&mut self, array: ArrayRef) {
        drop(array);
    }
    fn field(name: &str) -> Field;
}

/// The memory of an array's values, emptied; None while the array is also held elsewhere.
fn reclaim<T: ArrowPrimitiveType>(array: ArrayRef) -> Option<Vec<T::Native>> {
    let values = array.as_primitive_opt::<T>()?.values().clone().into_inner();
    drop(array);
    let mut values = values.into_vec().ok()?;
    values.clear();
    Some(values)
}

/// Rows that are gathered before they are turned into columns: a loop per
/// column over rows in the nearest cache is cheaper than to append to sixteen
/// columns row by row. As many as a word of [`Bits`] has bits.
const STAGE: usize = 64;

/// The value, or zero, without a branch: nulls are as good as random, and a
/// branch on each would be foreseen badly.
#[inline(always)]
fn value_or_zero<T: Copy + Default>(value: &Option<T>) -> T {
    select_unpredictable(value.is_some(), value.unwrap_or_default(), T::default())
}

/// Integers without nulls.
pub struct Int<T: ArrowPrimitiveType>(Vec<T::Native>);
/// Integers with nulls.
pub struct IntOpt<T: ArrowPrimitiveType>(Vec<T::Native>, Bits);
/// A category of `C`.
pub struct Cat<C>(Vec<u8>, std::marker::PhantomData<C>);
/// A category of `C`, or null.
pub struct CatOpt<C>(IntOpt<UInt8Type>, std::marker::PhantomData<C>);
#[derive(Default)]
pub struct BoolOpt {
    values: Bits,
    valid: Bits,
}
pub struct Text(StringBuilder);
pub struct TextOpt(StringBuilder);

impl<T: ArrowPrimitiveType> Default for Int<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}
impl<T: ArrowPrimitiveType> Column for Int<T> {
    type Item = T::Native;
    #[inline]
    fn fill<R>(&mut self, rows: &[R], get: impl Fn(&R) -> &T::Native) {
        self.0.extend(rows.iter().map(|row| *get(row)));
    }
    fn take(&mut self) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::new(
            std::mem::take(&mut self.0).into(),
            None,
        ))
    }
    fn reserve(&mut self, rows: usize) {
        self.0.reserve(rows);
    }
    fn refill(&mut self, array: ArrayRef) {
        self.0 = reclaim::<T>(array).unwrap_or_default();
    }
    fn field(name: &str) -> Field {
        Field::new(name, T::DATA_TYPE, false)
    }
}

/// One bit a row, packed as Arrow wants it.
#[derive(Default)]
pub struct Bits {
    words: Vec<u64>,
    /// The word being filled.
    word: u64,
    len: usize,
    unset: usize,
}

impl Bits {
    /// Appends what `set` says of each row.
    #[inline(always)]
    fn fill<R>(&mut self, rows: &[R], set: impl Fn(&R) -> bool) {
        for rows in rows.chunks(64) {
            let bits = rows
                .iter()
                .enumerate()
                .fold(0, |bits, (at, row)| bits | u64::from(set(row)) << at);
            self.append(bits, rows.len());
        }
    }

    /// Appends the lowest `count` bits, 1 to 64; those above are zero.
    #[inline]
    fn append(&mut self, bits: u64, count: usize) {
        let at = self.len & 63;
        self.word |= bits << at;
        self.len += count;
        self.unset += count - bits.count_ones() as usize;
        if at + count >= 64 {
            self.words.push(self.word);
            self.word = if at == 0 { 0 } else { bits >> (64 - at) };
        }
    }

    fn take(&mut self) -> BooleanBuffer {
        let mut words = std::mem::take(&mut self.words);
        self.words.reserve(words.len() + 1);
        if self.len & 63 != 0 {
            words.push(self.word);
        }
        let len = std::mem::take(&mut self.len);
        self.word = 0;
        self.unset = 0;
        if cfg!(target_endian = "big") {
            words.iter_mut().for_each(|word| *word = word.to_le());
        }
        BooleanBuffer::new(Buffer::from_vec(words), 0, len)
    }

    /// As a validity mask; none where every row has a value.
    fn take_valid(&mut self) -> Option<NullBuffer> {
        let all = self.unset == 0;
        let bits = self.take();
        (!all).then(|| NullBuffer::new(bits))
    }
}

impl<T: ArrowPrimitiveType> Default for IntOpt<T> {
    fn default() -> Self {
        Self(Vec::new(), Bits::default())
    }
}
impl<T: ArrowPrimitiveType> Column for IntOpt<T> {
    type Item = Option<T::Native>;
    #[inline]
    fn fill<R>(&mut self, rows: &[R], get: impl Fn(&R) -> &Option<T::Native>) {
        self.0
            .extend(rows.iter().map(|row| value_or_zero(get(row))));
        self.1.fill(rows, |row| get(row).is_some());
    }
    fn take(&mut self) -> ArrayRef {
        let values = std::mem::take(&mut self.0).into();
        Arc::new(PrimitiveArray::<T>::new(values, self.1.take_valid()))
    }
    fn reserve(&mut self, rows: usize) {
        self.0.reserve(rows);
    }
    fn refill(&mut self, array: ArrayRef) {
        self.0 = reclaim::<T>(array).unwrap_or_default();
    }
    fn field(name: &str) -> Field {
        Field::new(name, T::DATA_TYPE, true)
    }
}

/// An enum with a fixed list of texts.
pub trait Category: Copy {
    const TEXTS: &'static [&'static str];
    fn code(self) -> u8;
}
macro_rules! category {
    ($($name:ident)+) => {$(
        impl Category for $name {
            const TEXTS: &'static [&'static str] = $name::TEXTS;
            fn code(self) -> u8 { self as u8 }
        }
    )+};
}
category!(State WakeKind LossReason Cause End Censored SchedClass SleepKind PriorityCause IrqKind CallStep LockStep LockKind DiskStep ToldBy QueueStep QueueKind);

fn dictionary<C: Category>(keys: PrimitiveArray<UInt8Type>) -> ArrayRef {
    let texts: ArrayRef = Arc::new(StringArray::from(C::TEXTS.to_vec()));
    Arc::new(
        DictionaryArray::<UInt8Type>::try_new(keys, texts).expect("codes come from C's own list"),
    )
}

/// The key of a field's metadata by which Polars reads it as an Enum with exactly the
/// categories listed there.
pub const CATEGORIES: &str = "_PL_ENUM_VALUES2";

fn category_field<C: Category>(name: &str, nullable: bool) -> Field {
    let data = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8));
    let texts: String = C::TEXTS
        .iter()
        .map(|text| format!("{};{text}", text.len()))
        .collect();
    Field::new(name, data, nullable).with_metadata(HashMap::from([(CATEGORIES.to_string(), texts)]))
}

impl<C> Default for Cat<C> {
    fn default() -> Self {
        Self(Vec::new(), std::marker::PhantomData)
    }
}
impl<C: Category> Column for Cat<C> {
    type Item = C;
    #[inline]
    fn fill<R>(&mut self, rows: &[R], get: impl Fn(&R) -> &C) {
        self.0.extend(rows.iter().map(|row| get(row).code()));
    }
    fn take(&mut self) -> ArrayRef {
        dictionary::<C>(PrimitiveArray::from(std::mem::take(&mut self.0)))
    }
    fn reserve(&mut self, rows: usize) {
        self.0.reserve(rows);
    }
    fn refill(&mut self, array: ArrayRef) {
        let keys = array
            .as_dictionary_opt::<UInt8Type>()
            .map(|array| array.keys().clone());
        drop(array);
        self.0 = keys
            .and_then(|keys| reclaim::<UInt8Type>(Arc::new(keys)))
            .unwrap_or_default();
    }
    fn field(name: &str) -> Field {
        category_field::<C>(name, false)
    }
}

impl<C> Default for CatOpt<C> {
    fn default() -> Self {
        Self(IntOpt::default(), std::marker::PhantomData)
    }
}
impl<C: Category> Column for CatOpt<C> {
    type Item = Option<C>;
    fn fill<R>(&mut self, rows: &[R], get: impl Fn(&R) -> &Option<C>) {
        let IntOpt(codes, valid) = &mut self.0;
        codes.extend(rows.iter().map(|row| get(row).map_or(0, Category::code)));
        valid.fill(rows, |row| get(row).is_some());
    }
    fn take(&mut self) -> ArrayRef {
        let IntOpt(codes, valid) = &mut self.0;
        dictionary::<C>(PrimitiveArray::new(
            std::mem::take(codes).into(),
            valid.take_valid(),
        ))
    }
    fn field(name: &str) -> Field {
        category_field::<C>(name, true)
    }
}

impl Column for BoolOpt {
    type Item = Option<bool>;
    #[inline]
    fn fill<R>(&mut self, rows: &[R], get: impl Fn(&R) -> &Option<bool>) {
        self.values.fill(rows, |row| *get(row) == Some(true));
        self.valid.fill(rows, |row| get(row).is_some());
    }
    fn take(&mut self) -> ArrayRef {
        Arc::new(BooleanArray::new(
            self.values.take(),
            self.valid.take_valid(),
        ))
    }
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Boolean, true)
    }
}

impl Default for Text {
    fn default() -> Self {
        Self(StringBuilder::new())
    }
}
impl Column for Text {
    type Item = String;
    fn fill<R>(&mut self, rows: &[R], get: impl Fn(&R) -> &String) {
        rows.iter().for_each(|row| self.0.append_value(get(row)));
    }
    fn take(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Utf8, false)
    }
}

impl Default for TextOpt {
    fn default() -> Self {
        Self(StringBuilder::new())
    }
}
impl Column for TextOpt {
    type Item = Option<String>;
    fn fill<R>(&mut self, rows: &[R], get: impl Fn(&R) -> &Option<String>) {
        rows.iter()
            .for_each(|row| self.0.append_option(get(row).as_ref()));
    }
    fn take(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Utf8, true)
    }
}

/// Declares a table: a row struct, its columns, its schema.
macro_rules! table {
    ($table:ident, $row:ident, $text:literal { $($name:ident : $column:ty),+ $(,)? }) => {
        #[derive(Debug, Clone)]
        pub struct $row { $(pub $name: <$column as Column>::Item),+ }

        #[derive(Default)]
        pub struct $table { off: bool, staged: Vec<$row>, rows: usize, $($name: $column),+ }

        impl $table {
            #[inline]
            pub fn push(&mut self, row: $row) {
                if self.off {
                    return;
                }
                self.staged.push(row);
                if self.staged.len() >= STAGE {
                    self.unstage();
                }
            }

            /// From now on rows are dropped: this table is not wanted.
            pub fn turn_off(&mut self) { self.off = true; }

            #[inline(never)]
            fn unstage(&mut self) {
                self.rows += self.staged.len();
                $(self.$name.fill(&self.staged, |row| &row.$name);)+
                self.staged.clear();
            }

            pub fn len(&self) -> usize { self.rows + self.staged.len() }

            pub fn is_empty(&self) -> bool { self.len() == 0 }

            pub fn schema() -> SchemaRef {
                Arc::new(Schema::new(vec![$(<$column>::field(stringify!($name))),+]))
            }

            /// The rows so far as a batch; the table is empty afterwards.
            pub fn take(&mut self) -> RecordBatch {
                self.unstage();
                self.rows = 0;
                RecordBatch::try_new(Self::schema(), vec![$(self.$name.take()),+])
                    .expect("columns of one table have one length")
            }
        }

        impl $table {
            /// Makes room for so many rows.
            pub fn reserve(&mut self, rows: usize) {
                $(self.$name.reserve(rows);)+
            }

            /// Fills the memory of `spare`, a batch from `take` that is no longer needed.
            pub fn refill(&mut self, spare: RecordBatch) {
                let (_, arrays, _) = spare.into_parts();
                let mut arrays = arrays.into_iter();
                $(if let Some(array) = arrays.next() {
                    self.$name.refill(array);
                })+
            }
        }

        impl Table for $table {
            const NAME: &'static str = $text;
        }
    };
}

pub trait Table {
    const NAME: &'static str;
}

type U16 = Int<UInt16Type>;
type U16Opt = IntOpt<UInt16Type>;
type U32 = Int<UInt32Type>;
type U32Opt = IntOpt<UInt32Type>;
type U64 = Int<UInt64Type>;
type U64Opt = IntOpt<UInt64Type>;
type I16 = Int<Int16Type>;
type I16Opt = IntOpt<Int16Type>;
type I32 = Int<Int32Type>;
type I32Opt = IntOpt<Int32Type>;
type I64 = Int<Int64Type>;
type I64Opt = IntOpt<Int64Type>;

table!(Switches, Switch, "switches" {
    ts: I64,
    cpu: U16,
    prev_utid: U32,
    prev_state: Cat<State>,
    prev_prio: I16Opt,
    preempted: BoolOpt,
    next_utid: U32,
    next_prio: I16Opt,
});

table!(Wakeups, Wakeup, "wakeups" {
    ts: I64,
    cpu: U16,
    waker_utid: U32Opt,
    current_utid: U32Opt,
    utid: U32,
    kind: Cat<WakeKind>,
    target_cpu: U16Opt,
    prio: I16Opt,
});

table!(Migrations, Migration, "migrations" {
    ts: I64,
    cpu: U16,
    utid: U32,
    from_cpu: U16Opt,
    to_cpu: U16Opt,
});

table!(Threads, Thread, "threads" {
    utid: U32,
    tid: U32Opt,
    pid: U32Opt,
    comm: Text,
    comm_first: Text,
    kernel: BoolOpt,
    sched_class: CatOpt<SchedClass>,
    prio: I16Opt,
    affinity: TextOpt,
    recorder: BoolOpt,
    start_ts: I64Opt,
    end_ts: I64Opt,
    parent_utid: U32Opt,
    exit_ts: I64Opt,
    ppid: U32Opt,
    process_name: TextOpt,
    cgroup: TextOpt,
    cmdline: TextOpt,
});

table!(Renames, Rename, "renames" {
    ts: I64,
    utid: U32,
    comm: Text,
});

table!(Sleeps, Sleep, "sleeps" {
    ts: I64,
    cpu: U16,
    utid: U32,
    kind: Cat<SleepKind>,
    reason: Text,
});

table!(Yields, Yield, "yields" {
    ts: I64,
    utid: U32,
});

table!(Priorities, Priority, "priorities" {
    ts: I64,
    utid: U32,
    prio: I16,
    cause: Cat<PriorityCause>,
});

table!(QueueLoads, QueueLoad, "queue_load" {
    ts: I64,
    cpu: U16Opt,
    load: I32,
});

table!(Irqs, Irq, "irqs" {
    ts: I64,
    cpu: U16,
    kind: Cat<IrqKind>,
    id: U32,
    dur: I64,
});

table!(QuotaRefills, QuotaRefill, "quota_refills" {
    ts: I64,
    cpu: U16,
    timer: U32,
});

table!(SystemCalls, SystemCall, "system_calls" {
    ts: I64,
    cpu: U16,
    utid: U32,
    step: Cat<CallStep>,
    number: I32,
    value: I64Opt,
    arg0: U64Opt,
    arg1: U64Opt,
    arg2: U64Opt,
});

table!(Locks, Lock, "locks" {
    ts: I64,
    cpu: U16,
    utid: U32,
    step: Cat<LockStep>,
    address: U64Opt,
    kind: CatOpt<LockKind>,
    value: I32Opt,
});

table!(DiskRequests, DiskRequest, "disk_requests" {
    ts: I64,
    cpu: U16,
    utid: U32Opt,
    step: Cat<DiskStep>,
    device: U32,
    sector: U64,
    sectors: U32,
});

table!(SleepReasons, SleepReason, "sleep_reasons" {
    ts: I64,
    cpu: U16,
    utid: U32,
    io_wait: BoolOpt,
    function: TextOpt,
    entry: TextOpt,
    told_by: Cat<ToldBy>,
});

table!(DispatchQueues, DispatchQueue, "dispatch_queues" {
    ts: I64,
    cpu: U16,
    utid: U32,
    step: Cat<QueueStep>,
    kind: Cat<QueueKind>,
    queue_cpu: U16Opt,
    queue_id: U64Opt,
    queued: U32,
    slice: U64Opt,
    vtime: U64Opt,
    flags: U64Opt,
    limit: I64Opt,
});

table!(Losses, Loss, "losses" {
    cpu: U16Opt,
    ts_begin: I64,
    ts_end: I64,
    count: U64Opt,
    reason: Cat<LossReason>,
});

table!(Cpus, Cpu, "cpus" {
    cpu: U16,
    core: U16Opt,
    llc: U16Opt,
    package: U16Opt,
    numa_node: U16Opt,
    smt_siblings: TextOpt,
    capacity: U32Opt,
    online: BoolOpt,
});

table!(States, StateRow, "states" {
    ts: I64,
    dur: I64,
    utid: U32,
    state: Cat<State>,
    cpu: U16Opt,
    prio: I16Opt,
    waker_utid: U32Opt,
    end: Cat<End>,
});

table!(Waits, Wait, "waits" {
    utid: U32,
    cause: Cat<Cause>,
    ts_waking: I64Opt,
    ts_ready: I64Opt,
    ts_enqueued: I64Opt,
    ts_run: I64Opt,
    waker_utid: U32Opt,
    waker_cpu: U16Opt,
    prev_cpu: U16Opt,
    queue_cpu: U16Opt,
    cpu: U16Opt,
    prio: I16Opt,
    placement: I64Opt,
    queue: I64Opt,
    wait: I64Opt,
    wait_high: I64Opt,
    censored: Cat<Censored>,
});

/// Every table's name and schema, in the order of the docs.
pub fn schemas() -> Vec<(&'static str, SchemaRef)> {
    macro_rules! list {
        ($($table:ident)+) => { vec![$((<$table as Table>::NAME, $table::schema())),+] };
    }
    list!(Switches Wakeups Migrations Threads Renames Sleeps Yields Priorities QueueLoads Irqs QuotaRefills SystemCalls Locks DiskRequests SleepReasons DispatchQueues Losses Cpus States Waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_any_count_lie_one_behind_the_other() {
        let set: Vec<bool> = (0..777).map(|n| n * n % 7 < 3).collect();
        for parts in [1, 3, 63, 64, 65, 200] {
            let mut bits = Bits::default();
            set.chunks(parts)
                .for_each(|rows| bits.fill(rows, |&set| set));
            assert_eq!(bits.unset, set.iter().filter(|&&set| !set).count());
            assert!(bits.take().iter().eq(set.iter().copied()), "{parts}");
        }
    }

    #[test]
    fn a_table_that_fills_memory_anew_holds_only_its_new_rows() {
        let row = |ts, utid| Yield { ts, utid };
        let mut table = Yields::default();
        (0..100).for_each(|n| table.push(row(n, 1)));
        let first = table.take();
        assert_eq!((first.num_rows(), table.len()), (100, 0));
        let held = first.clone();
        table.refill(first);
        (0..3).for_each(|n| table.push(row(n, 2)));
        let second = table.take();
        assert_eq!((held.num_rows(), second.num_rows()), (100, 3));
        let times = second.column(0).as_primitive::<Int64Type>();
        assert_eq!(times.values(), &[0, 1, 2]);
        drop(held);
        table.refill(second);
        table.push(row(9, 3));
        assert_eq!(
            table.take().column(1).as_primitive::<UInt32Type>().values(),
            &[3]
        );
    }
}
