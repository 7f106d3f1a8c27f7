//! How columns of tables are filled: rows are staged, and each column takes its part of them.

use std::collections::HashMap;
use std::hint::select_unpredictable;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, DictionaryArray, PrimitiveArray, StringArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::{DataType, Field};

use crate::event::{
    CallStep, Cause, Censored, DiskStep, End, IrqKind, LockKind, LockStep, LossReason,
    PriorityCause, QueueKind, QueueStep, SchedClass, SleepKind, State, ToldBy, WakeKind,
};

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
pub const STAGE: usize = 64;

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
}
