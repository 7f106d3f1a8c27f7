//! One Parquet column chunk being written, page by page.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::pages;

/// The chunk of one column in the row group at hand.
pub struct ColumnChunk {
    nullable: bool,
    description: ColumnDescPtr,
    /// How many texts a category column's dictionary page holds.
    categories: usize,
    encoding: Encoding,
    /// Times and durations are not compressed: what their deltas leave is
    /// noise, of which LZ4 saves one part in thirty.
    compression: Compression,
    sink: TrackedWrite<Vec<u8>>,
    rows: u64,
    uncompressed: u64,
    data_page_offset: Option<u64>,
    dictionary_page_offset: Option<u64>,
    /// Least and greatest, kept for the columns that readers skip by.
    range: Option<(i64, i64)>,
    /// The page at hand: its values that are not null, its bytes, the same
    /// compressed. Kept from page to page for their memory.
    kept: Vec<i64>,
    body: Vec<u8>,
    compressed: Vec<u8>,
}

impl ColumnChunk {
    pub fn new(field: &Field, description: ColumnDescPtr) -> Self {
        let encoding = match field.data_type() {
            DataType::Dictionary(..) => Encoding::RLE_DICTIONARY,
            DataType::Utf8 | DataType::Boolean => Encoding::PLAIN,
            _ => Encoding::DELTA_BINARY_PACKED,
        };
        Self {
            nullable: field.is_nullable(),
            description,
            categories: 0,
            encoding,
            compression: match field.data_type() {
                DataType::Int64 => Compression::UNCOMPRESSED,
                _ => Compression::LZ4_RAW,
            },
            sink: TrackedWrite::new(Vec::new()),
            rows: 0,
            uncompressed: 0,
            data_page_offset: None,
            dictionary_page_offset: None,
            range: None,
            kept: Vec::new(),
            body: Vec::new(),
            compressed: Vec::new(),
        }
    }

    /// Adds one array as one data page.
    pub fn push(&mut self, array: &ArrayRef) -> Result<()> {
        if self.data_page_offset.is_none()
            && let Some(dictionary) = array.as_any_dictionary_opt()
        {
            // Every batch carries the full list of categories.
            self.write_dictionary(dictionary.values())?;
        }
        self.body.clear();
        if self.nullable {
            pages::levels(&mut self.body, array.nulls(), array.len());
        }
        self.encode(array);
        let size = self.body.len();
        let buf = match self.compression {
            Compression::UNCOMPRESSED => bytes::Bytes::from(std::mem::take(&mut self.body)),
            _ => compress(&self.body, &mut self.compressed)?,
        };
        let page = Page::DataPage {
            buf: buf.clone(),
            num_values: array.len() as u32,
            encoding: self.encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let spec = SerializedPageWriter::new(&mut self.sink)
            .write_page(CompressedPage::new(page, size))?;
        if self.compression == Compression::UNCOMPRESSED {
            // Nobody else holds the page any more: its memory serves the next.
            self.body = Vec::from(buf);
        }
        self.data_page_offset.get_or_insert(spec.offset);
        self.uncompressed += spec.uncompressed_size as u64;
        self.rows += array.len() as u64;
        Ok(())
    }

    fn write_dictionary(&mut self, texts: &ArrayRef) -> Result<()> {
        self.categories = texts.len();
        let mut body = Vec::new();
        pages::texts(&mut body, texts.as_string::<i32>().iter().flatten());
        let page = Page::DictionaryPage {
            buf: compress(&body, &mut self.compressed)?,
            num_values: texts.len() as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let spec = SerializedPageWriter::new(&mut self.sink)
            .write_page(CompressedPage::new(page, body.len()))?;
        self.dictionary_page_offset = Some(spec.offset);
        self.uncompressed += spec.uncompressed_size as u64;
        Ok(())
    }

    fn encode(&mut self, array: &ArrayRef) {
        match array.data_type() {
            DataType::Int16 => self.integers::<Int16Type>(array, i64::from),
            DataType::Int32 => self.integers::<Int32Type>(array, i64::from),
            DataType::Int64 => self.times(array),
            DataType::UInt8 => self.integers::<UInt8Type>(array, i64::from),
            DataType::UInt16 => self.integers::<UInt16Type>(array, i64::from),
            // Parquet stores the two's complement of unsigned numbers.
            DataType::UInt32 => {
                self.integers::<UInt32Type>(array, |value| i64::from(value.cast_signed()));
            }
            DataType::UInt64 => self.integers::<UInt64Type>(array, u64::cast_signed),
            DataType::Boolean => {
                let array = array.as_boolean();
                pages::booleans(&mut self.body, array.values(), array.nulls());
            }
            DataType::Dictionary(..) => self.codes(array),
            _ => pages::texts(&mut self.body, array.as_string::<i32>().iter().flatten()),
        }
    }

    fn times(&mut self, array: &ArrayRef) {
        let array = array.as_primitive::<Int64Type>();
        let kept = match array.nulls() {
            None => &array.values()[..],
            valid => keep(&mut self.kept, array.values(), valid, |value| value),
        };
        if let Some(&first) = kept.first() {
            let (low, high) = self.range.unwrap_or((first, first));
            let range = |(low, high): (i64, i64), &value: &i64| (low.min(value), high.max(value));
            self.range = Some(kept.iter().fold((low, high), range));
        }
        pages::deltas(&mut self.body, kept);
    }

    fn integers<T: ArrowPrimitiveType>(
        &mut self,
        array: &ArrayRef,
        widen: impl Fn(T::Native) -> i64 + Copy,
    ) {
        let array = array.as_primitive::<T>();
        let kept = keep(&mut self.kept, array.values(), array.nulls(), widen);
        pages::deltas(&mut self.body, kept);
    }

    fn codes(&mut self, array: &ArrayRef) {
        let codes = array.as_dictionary::<UInt8Type>().keys();
        let width = usize::BITS - self.categories.saturating_sub(1).leading_zeros();
        let width = width.max(1);
        match codes.nulls() {
            None => pages::codes(&mut self.body, codes.values(), width),
            Some(valid) => {
                let kept: Vec<u8> = valid.valid_indices().map(|row| codes.value(row)).collect();
                pages::codes(&mut self.body, &kept, width);
            }
        }
    }

    /// Fills the memory of a chunk that was written again.
    pub fn refill(&mut self, chunk: bytes::Bytes) {
        let mut memory = Vec::from(chunk);
        memory.clear();
        self.sink = TrackedWrite::new(memory);
    }

    /// Ends the chunk; the column is ready for the next row group.
    pub fn close(&mut self) -> Result<(bytes::Bytes, ColumnCloseResult)> {
        let sink = std::mem::replace(&mut self.sink, TrackedWrite::new(Vec::new()));
        let body = bytes::Bytes::from(sink.into_inner()?);
        let mut metadata = ColumnChunkMetaData::builder(Arc::clone(&self.description))
            .set_compression(self.compression)
            .set_encodings(vec![Encoding::RLE, Encoding::PLAIN, self.encoding])
            .set_total_compressed_size(body.len() as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_num_values(self.rows as i64)
            .set_data_page_offset(self.data_page_offset.unwrap_or(0) as i64)
            .set_dictionary_page_offset(self.dictionary_page_offset.map(|at| at as i64));
        if let Some((low, high)) = self.range.take() {
            metadata = metadata.set_statistics(Statistics::int64(
                Some(low),
                Some(high),
                None,
                None,
                false,
            ));
        }
        let result = ColumnCloseResult {
            bytes_written: body.len() as u64,
            rows_written: self.rows,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        self.rows = 0;
        self.uncompressed = 0;
        self.data_page_offset = None;
        self.dictionary_page_offset = None;
        Ok((body, result))
    }
}

/// The values that are not null, widened, at the start of `room`.
fn keep<'a, T: Copy>(
    room: &'a mut Vec<i64>,
    values: &[T],
    valid: Option<&NullBuffer>,
    widen: impl Fn(T) -> i64 + Copy,
) -> &'a [i64] {
    // One more: a null behind the last value is written too.
    if room.len() <= values.len() {
        room.resize(values.len() + 1, 0);
    }
    let Some(valid) = valid else {
        for (slot, &value) in room.iter_mut().zip(values) {
            *slot = widen(value);
        }
        return &room[..values.len()];
    };
    let mut len = 0;
    for (mask, values) in valid
        .inner()
        .bit_chunks()
        .iter_padded()
        .zip(values.chunks(64))
    {
        if mask == 0 {
            continue;
        }
        // Written in any case and passed over where null: nulls are as good as
        // random, and a branch on each would be foreseen badly.
        let kept = &mut room[len..];
        let mut at = 0;
        for (bit, &value) in values.iter().enumerate() {
            kept[at] = widen(value);
            at += (mask >> bit & 1) as usize;
        }
        len += at;
    }
    &room[..len]
}

fn compress(body: &[u8], room: &mut Vec<u8>) -> Result<bytes::Bytes> {
    let most = lz4_flex::block::get_maximum_output_size(body.len());
    if room.len() < most {
        room.resize(most, 0);
    }
    let len = lz4_flex::block::compress_into(body, room)
        .map_err(|error| ParquetError::External(Box::new(error)))?;
    Ok(bytes::Bytes::copy_from_slice(&room[..len]))
}
