//! One Parquet column chunk being written, page by page.

use std::io::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::pages;

/// Rows of a page, but for a table's last.
pub const PAGE: usize = 1 << 13;
/// Rows of a row group: the unit that readers skip by its time statistics.
pub const ROW_GROUP: usize = 1 << 17;
/// LZ4 has to save one byte in so many.
const WORTH_COMPRESSING: usize = 12;

/// The chunk of one column in the row group at hand.
pub struct ColumnChunk {
    nullable: bool,
    description: ColumnDescPtr,
    encoding: Encoding,
    /// What the chunk's first page decides, see [`ColumnChunk::compress_page`].
    compression: Compression,
    /// The chunk so far; counts the bytes of those before it, too.
    sink: TrackedWrite<Vec<u8>>,
    rows: u64,
    uncompressed: u64,
    data_page_offset: Option<u64>,
    dictionary_page_offset: Option<u64>,
    /// Least and greatest, kept for the columns that readers skip by.
    range: Option<(i64, i64)>,
}

/// The page at hand: its values that are not null, its bytes, the same
/// compressed. One for all columns, so that its memory stays in the cache.
#[derive(Default)]
pub struct PageScratch {
    wide: Vec<i64>,
    narrow: Vec<i32>,
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
            encoding,
            compression: Compression::UNCOMPRESSED,
            sink: TrackedWrite::new(Vec::new()),
            rows: 0,
            uncompressed: 0,
            data_page_offset: None,
            dictionary_page_offset: None,
            range: None,
        }
    }

    /// Adds one array as one data page.
    pub fn push(&mut self, array: &ArrayRef, scratch: &mut PageScratch) -> Result<()> {
        scratch.body.clear();
        if self.nullable {
            pages::levels(&mut scratch.body, array.nulls(), array.len());
        }
        self.encode(array, scratch);
        let first = self.data_page_offset.is_none();
        self.compress_page(first, scratch)?;
        if first && let Some(dictionary) = array.as_any_dictionary_opt() {
            self.write_dictionary(dictionary.values())?;
        }
        let size = scratch.body.len();
        // The page's memory comes back when it is written, for the next page.
        let memory = match self.compression {
            Compression::UNCOMPRESSED => &mut scratch.body,
            _ => &mut scratch.compressed,
        };
        let buf = Bytes::from(std::mem::take(memory));
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
        *memory = Vec::from(buf);
        if first && array.len() >= PAGE {
            // The chunk's memory, all at once instead of doubled and copied; the
            // system provides what is used.
            let pages = ROW_GROUP / array.len();
            self.sink.inner_mut().reserve(spec.compressed_size * pages);
        }
        self.data_page_offset.get_or_insert(spec.offset);
        self.uncompressed += spec.uncompressed_size as u64;
        self.rows += array.len() as u64;
        Ok(())
    }

    /// Compresses the page where that pays, which the first page of a chunk
    /// decides for all. It never does for times and durations: what their
    /// deltas leave is noise, of which LZ4 saves one part in thirty.
    fn compress_page(&mut self, first: bool, scratch: &mut PageScratch) -> Result<()> {
        let noise = self.description.physical_type() == Type::INT64;
        if noise || !first && self.compression == Compression::UNCOMPRESSED {
            return Ok(());
        }
        compress(&scratch.body, &mut scratch.compressed)?;
        if first {
            let saved = scratch.body.len().saturating_sub(scratch.compressed.len());
            self.compression = if saved * WORTH_COMPRESSING > scratch.body.len() {
                Compression::LZ4_RAW
            } else {
                Compression::UNCOMPRESSED
            };
        }
        Ok(())
    }

    fn write_dictionary(&mut self, texts: &ArrayRef) -> Result<()> {
        let mut body = Vec::new();
        pages::texts(&mut body, texts.as_string::<i32>().iter().flatten());
        let size = body.len();
        if self.compression != Compression::UNCOMPRESSED {
            let mut compressed = Vec::new();
            compress(&body, &mut compressed)?;
            body = compressed;
        }
        let page = Page::DictionaryPage {
            buf: body.into(),
            num_values: texts.len() as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let spec = SerializedPageWriter::new(&mut self.sink)
            .write_page(CompressedPage::new(page, size))?;
        self.dictionary_page_offset = Some(spec.offset);
        self.uncompressed += spec.uncompressed_size as u64;
        Ok(())
    }

    fn encode(&mut self, array: &ArrayRef, scratch: &mut PageScratch) {
        match array.data_type() {
            DataType::Int16 => scratch.integers::<Int16Type>(array, i32::from),
            DataType::Int32 => scratch.integers::<Int32Type>(array, |value| value),
            DataType::UInt8 => scratch.integers::<UInt8Type>(array, i32::from),
            DataType::UInt16 => scratch.integers::<UInt16Type>(array, i32::from),
            // Parquet stores the two's complement of unsigned numbers.
            DataType::UInt32 => scratch.integers::<UInt32Type>(array, u32::cast_signed),
            DataType::Int64 => self.times(array, scratch),
            DataType::UInt64 => {
                let array = array.as_primitive::<UInt64Type>();
                let widen = u64::cast_signed;
                let kept = keep(&mut scratch.wide, array.values(), array.nulls(), widen);
                pages::deltas_64(&mut scratch.body, kept);
            }
            DataType::Boolean => {
                let array = array.as_boolean();
                pages::booleans(&mut scratch.body, array.values(), array.nulls());
            }
            DataType::Dictionary(..) => codes(&mut scratch.body, array),
            _ => pages::texts(&mut scratch.body, array.as_string::<i32>().iter().flatten()),
        }
    }

    fn times(&mut self, array: &ArrayRef, scratch: &mut PageScratch) {
        let array = array.as_primitive::<Int64Type>();
        let kept = match array.nulls() {
            None => &array.values()[..],
            valid => keep(&mut scratch.wide, array.values(), valid, |value| value),
        };
        if let Some(&first) = kept.first() {
            let (low, high) = self.range.unwrap_or((first, first));
            let range = |(low, high): (i64, i64), &value: &i64| (low.min(value), high.max(value));
            self.range = Some(kept.iter().fold((low, high), range));
        }
        pages::deltas_64(&mut scratch.body, kept);
    }

    /// Writes the chunk to `file`, whose end is at byte `at`; the column is
    /// ready for the next row group.
    pub fn end(&mut self, file: &mut impl Write, at: u64) -> Result<ColumnChunkMetaData> {
        self.sink.flush()?;
        // All in one write: in small ones, the system's part costs twice as much.
        let body = self.sink.inner();
        file.write_all(body)?;
        let size = body.len() as u64;
        let begin = self.sink.bytes_written() as u64 - size;
        let place = |offset: u64| (at + offset - begin) as i64;
        let mut metadata = ColumnChunkMetaData::builder(Arc::clone(&self.description))
            .set_compression(self.compression)
            .set_encodings(vec![Encoding::RLE, Encoding::PLAIN, self.encoding])
            .set_total_compressed_size(size as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_num_values(self.rows as i64)
            .set_data_page_offset(self.data_page_offset.map_or(0, place))
            .set_dictionary_page_offset(self.dictionary_page_offset.map(place));
        if let Some((low, high)) = self.range.take() {
            metadata = metadata.set_statistics(Statistics::int64(
                Some(low),
                Some(high),
                None,
                None,
                false,
            ));
        }
        self.sink.inner_mut().clear();
        self.rows = 0;
        self.uncompressed = 0;
        self.data_page_offset = None;
        self.dictionary_page_offset = None;
        metadata.build()
    }
}

impl PageScratch {
    fn integers<T: ArrowPrimitiveType>(
        &mut self,
        array: &ArrayRef,
        widen: impl Fn(T::Native) -> i32 + Copy,
    ) {
        let array = array.as_primitive::<T>();
        let kept = keep(&mut self.narrow, array.values(), array.nulls(), widen);
        pages::deltas_32(&mut self.body, kept);
    }
}

fn codes(body: &mut Vec<u8>, array: &ArrayRef) {
    let codes = array.as_dictionary::<UInt8Type>().keys();
    match codes.nulls() {
        None => pages::codes(body, codes.values()),
        Some(valid) => {
            let kept: Vec<u8> = valid.valid_indices().map(|row| codes.value(row)).collect();
            pages::codes(body, &kept);
        }
    }
}

/// The values that are not null, widened, at the start of `room`.
fn keep<'a, T: Copy, W: Copy + Default>(
    room: &'a mut Vec<W>,
    values: &[T],
    valid: Option<&NullBuffer>,
    widen: impl Fn(T) -> W + Copy,
) -> &'a [W] {
    // One more: a null behind the last value is written too.
    if room.len() <= values.len() {
        room.resize(values.len() + 1, W::default());
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
        // Written in any case and skipped where null: nulls are as good as
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

/// Puts `body`, compressed, into `room`.
fn compress(body: &[u8], room: &mut Vec<u8>) -> Result<()> {
    room.resize(lz4_flex::block::get_maximum_output_size(body.len()), 0);
    let len = lz4_flex::block::compress_into(body, room)
        .map_err(|error| ParquetError::External(Box::new(error)))?;
    room.truncate(len);
    Ok(())
}
