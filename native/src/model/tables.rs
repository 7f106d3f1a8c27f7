//! Every table of the trace model: its Arrow schema and the columns that fill it.
//!
//! Twin of `parsers/schema.py`, which documents each column; a test holds the
//! two against each other.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::types::{
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, DictionaryArray, PrimitiveArray, RecordBatch,
    StringArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::model::event::{
    Cause, Censored, End, IrqKind, LossReason, PriorityCause, SchedClass, SleepKind, State,
    WakeKind,
};

/// Bumped whenever a table changes; caches of another version are rebuilt.
pub const SCHEMA_VERSION: u32 = 1;

/// A column being filled.
pub trait Column: Default {
    type Item;
    fn push(&mut self, item: Self::Item);
    fn take(&mut self) -> ArrayRef;
    fn field(name: &str) -> Field;
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
    fn push(&mut self, item: T::Native) {
        self.0.push(item);
    }
    fn take(&mut self) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::new(refill(&mut self.0).into(), None))
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
    #[inline]
    fn push(&mut self, set: bool) {
        let bit = self.len & 63;
        self.word |= u64::from(set) << bit;
        self.unset += usize::from(!set);
        self.len += 1;
        if bit == 63 {
            self.words.push(self.word);
            self.word = 0;
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
    fn push(&mut self, item: Option<T::Native>) {
        self.0.push(item.unwrap_or_default());
        self.1.push(item.is_some());
    }
    fn take(&mut self) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::new(
            refill(&mut self.0).into(),
            self.1.take_valid(),
        ))
    }
    fn field(name: &str) -> Field {
        Field::new(name, T::DATA_TYPE, true)
    }
}

/// Takes the values out and leaves room for as many again.
fn refill<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(values.len());
    std::mem::replace(values, room)
}

/// An enum with a fixed list of texts.
pub trait Category {
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
category!(State WakeKind LossReason Cause End Censored SchedClass SleepKind PriorityCause IrqKind);

fn dictionary<C: Category>(keys: PrimitiveArray<UInt8Type>) -> ArrayRef {
    let texts: ArrayRef = Arc::new(StringArray::from(C::TEXTS.to_vec()));
    Arc::new(
        DictionaryArray::<UInt8Type>::try_new(keys, texts).expect("codes come from C's own list"),
    )
}

fn category_field<C: Category>(name: &str, nullable: bool) -> Field {
    let data = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8));
    // Polars reads this key as an Enum with exactly these categories.
    let texts: String = C::TEXTS
        .iter()
        .map(|text| format!("{};{text}", text.len()))
        .collect();
    Field::new(name, data, nullable)
        .with_metadata(HashMap::from([("_PL_ENUM_VALUES2".to_string(), texts)]))
}

impl<C> Default for Cat<C> {
    fn default() -> Self {
        Self(Vec::new(), std::marker::PhantomData)
    }
}
impl<C: Category> Column for Cat<C> {
    type Item = C;
    #[inline]
    fn push(&mut self, item: C) {
        self.0.push(item.code());
    }
    fn take(&mut self) -> ArrayRef {
        dictionary::<C>(PrimitiveArray::from(refill(&mut self.0)))
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
    fn push(&mut self, item: Option<C>) {
        self.0.push(item.map(Category::code));
    }
    fn take(&mut self) -> ArrayRef {
        let IntOpt(codes, valid) = &mut self.0;
        dictionary::<C>(PrimitiveArray::new(
            refill(codes).into(),
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
    fn push(&mut self, item: Option<bool>) {
        self.values.push(item == Some(true));
        self.valid.push(item.is_some());
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
    fn push(&mut self, item: String) {
        self.0.append_value(item);
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
    fn push(&mut self, item: Option<String>) {
        self.0.append_option(item);
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
        pub struct $table { off: bool, rows: usize, $($name: $column),+ }

        impl $table {
            #[inline]
            pub fn push(&mut self, row: $row) {
                if self.off {
                    return;
                }
                self.rows += 1;
                $(self.$name.push(row.$name);)+
            }

            /// From now on rows are dropped: nobody wants this table.
            pub fn turn_off(&mut self) { self.off = true; }

            pub fn len(&self) -> usize { self.rows }

            pub fn is_empty(&self) -> bool { self.rows == 0 }

            pub fn schema() -> SchemaRef {
                Arc::new(Schema::new(vec![$(<$column>::field(stringify!($name))),+]))
            }

            /// The rows so far as a batch; the table is empty afterwards.
            pub fn take(&mut self) -> RecordBatch {
                self.rows = 0;
                RecordBatch::try_new(Self::schema(), vec![$(self.$name.take()),+])
                    .expect("columns of one table have one length")
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
type U64Opt = IntOpt<UInt64Type>;
type I16 = Int<Int16Type>;
type I16Opt = IntOpt<Int16Type>;
type I32 = Int<Int32Type>;
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
    censored: Cat<Censored>,
});

/// Every table's name and schema, in the order of the docs.
pub fn schemas() -> Vec<(&'static str, SchemaRef)> {
    macro_rules! list {
        ($($table:ident)+) => { vec![$((<$table as Table>::NAME, $table::schema())),+] };
    }
    list!(Switches Wakeups Migrations Threads Renames Sleeps Yields Priorities QueueLoads Irqs Losses Cpus States Waits)
}
