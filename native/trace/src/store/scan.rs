//! Some columns of a table's Parquet file, page by page, as `ParquetStore` wrote it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::{
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, RecordBatch};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::{Buf, Bytes};
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::bodies::{self, Narrow};
use super::derived;
use super::pages::BLOCK;
use super::range::{Bounds, Ranges};
use crate::error::{Error, Result};
use crate::model::filling::CATEGORIES;
use crate::model::tables::declared;
use crate::regular_file::open_regular;

/// More rows than any page has, and more bytes than any encoding of `pages` takes for one.
const MOST_ROWS: usize = 1 << 20;
const ROW: usize = 16;

/// A column of the file that is wanted: its place there, and its field.
struct Wanted {
    place: usize,
    field: Field,
}

/// Where a column of the trace model comes from: one of the file's, or what is made of several.
#[derive(Clone, Copy)]
enum Origin {
    File(usize),
    Made(usize),
}

/// A column that follows from others.
struct Made {
    stored: Origin,
    /// Each with its sign.
    terms: Vec<(Origin, i64)>,
}

/// Which columns of the file are read, and what is made of them.
#[derive(Default)]
struct Plan {
    wanted: Vec<Wanted>,
    made: Vec<Made>,
    /// Of those that were asked for.
    columns: Vec<(Field, Origin)>,
    known: Vec<(String, Origin)>,
}

/// An open file.
pub struct Scan {
    path: PathBuf,
    file: File,
    metadata: ParquetMetaData,
    wanted: Vec<Wanted>,
    made: Vec<Made>,
    /// Of the batches' columns.
    origins: Vec<Origin>,
    /// Of the batches: categories are their codes.
    schema: SchemaRef,
    /// Utids are row numbers of the table of threads beside.
    threads: u32,
    /// The row groups that are read.
    groups: Range<usize>,
}

impl Scan {
    /// The columns `names` of the `table` in `folder`; none if the file is not one that
    /// `ParquetStore` wrote.
    pub fn open(folder: &Path, table: &str, names: &[String]) -> Result<Option<Self>> {
        let path = folder.join(format!("{table}.parquet"));
        let file = open_regular(&path)?;
        let Ok(metadata) = ParquetMetaDataReader::new().parse_and_finish(&file) else {
            return Ok(None);
        };
        let Some(plan) = Plan::of(&metadata, table, names) else {
            return Ok(None);
        };
        let Plan {
            wanted,
            made,
            columns,
            ..
        } = plan;
        // What the crate would panic at.
        let placed = |column: &ColumnChunkMetaData| {
            let dictionary = column.dictionary_page_offset().unwrap_or(0);
            column
                .data_page_offset()
                .min(column.compressed_size())
                .min(dictionary)
                >= 0
        };
        let groups = metadata.row_groups();
        if !groups.iter().all(|group| {
            let columns = group.columns();
            wanted
                .iter()
                .all(|column| columns.get(column.place).is_some_and(placed))
        }) {
            return Ok(None);
        }
        let count = groups.len();
        let origins = columns.iter().map(|(_, origin)| *origin).collect();
        let fields: Vec<Field> = columns
            .into_iter()
            .map(|(field, _)| match field.data_type() {
                DataType::Dictionary(..) => {
                    Field::new(field.name(), DataType::UInt8, field.is_nullable())
                }
                _ => field,
            })
            .collect();
        Ok(Some(Self {
            path,
            file,
            metadata,
            wanted,
            made,
            origins,
            schema: Arc::new(Schema::new(fields)),
            threads: threads(folder),
            groups: 0..count,
        }))
    }

    /// Only these of its row groups.
    #[must_use]
    pub fn within(mut self, groups: Range<usize>) -> Self {
        self.groups = groups.start..groups.end.min(self.metadata.num_row_groups());
        self
    }

    /// Rows of the groups that are not read before those that are.
    pub fn before(&self) -> usize {
        self.rows_of(0..self.groups.start)
    }

    fn rows_of(&self, groups: Range<usize>) -> usize {
        let groups = self.metadata.row_groups().get(groups).unwrap_or_default();
        let rows = groups.iter().map(|group| group.num_rows());
        rows.map(|rows| usize::try_from(rows).unwrap_or(0))
            .fold(0, usize::saturating_add)
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// What goes along with its batches, to see that their numbers are in range.
    pub fn ranges(&self) -> Ranges {
        self.ranges_after(self.groups.start)
    }

    fn ranges_after(&self, groups: usize) -> Ranges {
        let mut bounds = Bounds::default();
        bounds.threads = bounds.threads.min(self.threads);
        let rows = self.rows_of(0..groups);
        Ranges::new(self.path.display().to_string(), bounds, rows)
    }

    pub fn rows(&self) -> usize {
        self.rows_of(self.groups.clone())
    }

    /// The rows of every page, in order.
    pub fn batches(&self) -> Batches<'_> {
        self.batches_of(self.groups.clone())
    }

    /// How many row groups are read.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The rows of one of them, by its number from 0 on, once their numbers are seen to be in
    /// range.
    pub fn group(&self, number: usize) -> Result<Vec<RecordBatch>> {
        let first = self.groups.start + number;
        let mut ranges = self.ranges_after(first);
        let batches = self.batches_of(first..self.groups.end.min(first + 1));
        batches
            .map(|batch| {
                let batch = batch?;
                ranges.check(&batch)?;
                Ok(batch)
            })
            .collect()
    }

    fn batches_of(&self, groups: Range<usize>) -> Batches<'_> {
        Batches {
            scan: self,
            group: groups.start,
            end: groups.end,
            chunks: Vec::new(),
            left: 0,
        }
    }

    fn broken(&self, column: &Wanted, what: &dyn std::fmt::Display) -> Error {
        Error::format(
            format!(
                "{}, column {}: {what}",
                self.path.display(),
                column.field.name()
            ),
            "what `schedscope convert` wrote",
            "convert the capture again",
        )
    }
}

/// Goes through a file.
pub struct Batches<'a> {
    scan: &'a Scan,
    /// The row group that comes next, and the first that is not read.
    group: usize,
    end: usize,
    /// The columns of the one at hand, and its rows that are left.
    chunks: Vec<Chunk>,
    left: usize,
}

impl Batches<'_> {
    fn page(&mut self) -> Result<Option<RecordBatch>> {
        let scan = self.scan;
        while self.left == 0 {
            let groups = scan.metadata.row_groups();
            let Some(group) = groups.get(..self.end).and_then(|g| g.get(self.group)) else {
                return Ok(None);
            };
            self.group += 1;
            self.left = usize::try_from(group.num_rows()).unwrap_or(0);
            let mut before = std::mem::take(&mut self.chunks).into_iter();
            for column in &scan.wanted {
                let memory = before.next().map_or_else(Memory::default, Chunk::let_go);
                let chunk = Chunk::read(&scan.file, group.column(column.place), memory);
                self.chunks
                    .push(chunk.map_err(|error| scan.broken(column, &error))?);
            }
        }
        let mut arrays = Vec::new();
        for (column, chunk) in scan.wanted.iter().zip(&mut self.chunks) {
            let array = chunk.next(&column.field);
            arrays.push(array.map_err(|error| scan.broken(column, &error))?);
        }
        let rows = arrays.first().map_or(self.left, |array| array.len());
        // All columns of a page are of the same rows.
        for (column, array) in scan.wanted.iter().zip(&arrays) {
            if array.len() != rows || rows == 0 || rows > self.left {
                return Err(scan.broken(column, &"a page of other rows"));
            }
        }
        self.left -= rows;
        let mut made: Vec<ArrayRef> = Vec::new();
        for column in &scan.made {
            let find = |origin: Origin| match origin {
                Origin::File(at) => &arrays[at],
                Origin::Made(at) => &made[at],
            };
            let terms = column.terms.iter().map(|(term, sign)| (find(*term), *sign));
            made.push(derived::sum(find(column.stored), terms));
        }
        let columns = scan.origins.iter().map(|origin| match *origin {
            Origin::File(at) => Arc::clone(&arrays[at]),
            Origin::Made(at) => Arc::clone(&made[at]),
        });
        let batch = RecordBatch::try_new(scan.schema(), columns.collect());
        Ok(Some(
            batch.map_err(|error| Error::internal(error.to_string()))?,
        ))
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.page().transpose()
    }
}

/// The number of threads in the `folder`; that of all utids there may be if it does not say.
fn threads(folder: &Path) -> u32 {
    let rows = open_regular(&folder.join("threads.parquet"))
        .ok()
        .and_then(|file| ParquetMetaDataReader::new().parse_and_finish(&file).ok())
        .map(|metadata| metadata.file_metadata().num_rows());
    rows.and_then(|rows| u32::try_from(rows).ok())
        .unwrap_or(u32::MAX)
}

impl Plan {
    fn of(metadata: &ParquetMetaData, table: &str, names: &[String]) -> Option<Self> {
        let file = metadata.file_metadata();
        if !file.created_by()?.starts_with("schedscope ") {
            return None;
        }
        let schema = declared().into_iter().find(|one| one.name == table)?.schema;
        let columns = file.schema_descr().columns();
        let place = |name: &str| columns.iter().position(|column| column.name() == name);
        let mut plan = Self::default();
        for name in names {
            let field = schema.field_with_name(name).ok()?.clone();
            let origin = plan.origin(table, &schema, &place, name)?;
            plan.columns.push((field, origin));
        }
        Some(plan)
    }

    /// Where the column `name` comes from; also of one that only another needs.
    fn origin(
        &mut self,
        table: &str,
        schema: &Schema,
        place: &dyn Fn(&str) -> Option<usize>,
        name: &str,
    ) -> Option<Origin> {
        if let Some((_, origin)) = self.known.iter().find(|(known, _)| known == name) {
            return Some(*origin);
        }
        let field = schema.field_with_name(name).ok()?;
        let origin = match (place(name), derived::of(table, name)) {
            (Some(place), _) => self.read(place, field.clone())?,
            (None, Some(one)) => {
                let stored = Field::new(one.stored, DataType::Int64, field.is_nullable());
                let stored = self.read(place(one.stored)?, stored)?;
                let mut terms = Vec::new();
                for (term, sign) in one.terms {
                    terms.push((self.origin(table, schema, place, term)?, *sign));
                }
                self.made.push(Made { stored, terms });
                Origin::Made(self.made.len() - 1)
            }
            (None, None) => return None,
        };
        self.known.push((name.to_string(), origin));
        Some(origin)
    }

    fn read(&mut self, place: usize, field: Field) -> Option<Origin> {
        is_known(field.data_type()).then_some(())?;
        self.wanted.push(Wanted { place, field });
        Some(Origin::File(self.wanted.len() - 1))
    }
}

/// Types of columns that `array` makes.
fn is_known(data: &DataType) -> bool {
    use DataType::{Boolean, Dictionary, Int16, Int32, Int64, UInt16, UInt32, UInt64};
    matches!(
        data,
        Boolean | Dictionary(..) | Int16 | Int32 | Int64 | UInt16 | UInt32 | UInt64
    )
}

/// A part of the file, in memory.
struct Part {
    begin: u64,
    bytes: Bytes,
}

impl Part {
    fn after(&self, start: u64) -> std::result::Result<Bytes, ParquetError> {
        let at = start
            .checked_sub(self.begin)
            .and_then(|at| usize::try_from(at).ok());
        at.filter(|at| *at <= self.bytes.len())
            .map(|at| self.bytes.slice(at..))
            .ok_or_else(|| ParquetError::EOF("a page outside of its column".into()))
    }
}

impl Length for Part {
    fn len(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }
}

impl ChunkReader for Part {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> std::result::Result<Self::T, ParquetError> {
        Ok(self.after(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> std::result::Result<Bytes, ParquetError> {
        let after = self.after(start)?;
        if length > after.len() {
            return Err(ParquetError::EOF("a page that its column ends in".into()));
        }
        Ok(after.slice(..length))
    }
}

/// What a column needs, kept from one to the next: the system takes its time for new memory.
#[derive(Default)]
struct Memory {
    /// What lies in the file.
    bytes: Vec<u8>,
    /// A body, decompressed.
    body: Vec<u8>,
}

/// One column in a row group, being read.
struct Chunk {
    pages: SerializedPageReader<Part>,
    part: Arc<Part>,
    compressed: bool,
    body: Vec<u8>,
}

impl Chunk {
    fn let_go(self) -> Memory {
        drop(self.pages);
        Memory {
            bytes: Arc::into_inner(self.part).map_or_else(Vec::new, |part| part.bytes.into()),
            body: self.body,
        }
    }

    fn read(
        file: &File,
        column: &ColumnChunkMetaData,
        memory: Memory,
    ) -> std::result::Result<Self, ParquetError> {
        let (begin, length) = column.byte_range();
        if begin
            .checked_add(length)
            .is_none_or(|end| end > Length::len(file))
        {
            return Err(ParquetError::EOF("it ends beyond the file".into()));
        }
        let Memory { mut bytes, body } = memory;
        bytes.resize(usize::try_from(length)?, 0);
        file.read_exact_at(&mut bytes, begin)?;
        let compressed = match column.compression() {
            Compression::UNCOMPRESSED => false,
            Compression::LZ4_RAW => true,
            other => return Err(ParquetError::NYI(format!("compressed as {other}"))),
        };
        // Told so, the crate hands out bodies as they lie in the file: here they are
        // decompressed into memory that is kept.
        let plain = column
            .clone()
            .into_builder()
            .set_compression(Compression::UNCOMPRESSED)
            .build()?;
        let part = Arc::new(Part {
            begin,
            bytes: bytes.into(),
        });
        Ok(Self {
            pages: SerializedPageReader::new(Arc::clone(&part), &plain, 0, None)?,
            part,
            compressed,
            body,
        })
    }

    /// The rows of the next page.
    fn next(&mut self, field: &Field) -> std::result::Result<ArrayRef, ParquetError> {
        loop {
            let page = self.pages.get_next_page()?;
            let page =
                page.ok_or_else(|| ParquetError::EOF("fewer rows than its table has".into()))?;
            let mut body = &page.buffer()[..];
            let rows = page.num_values() as usize;
            if rows > MOST_ROWS {
                return Err(ParquetError::General(format!("a page of {rows} rows")));
            }
            if self.compressed {
                // A block of deltas is padded, and a category longer than a row.
                let room = ROW * (rows + BLOCK);
                self.body.resize(self.body.len().max(room), 0);
                let len = lz4_flex::block::decompress_into(body, &mut self.body)
                    .map_err(|error| ParquetError::General(error.to_string()))?;
                body = &self.body[..len];
            }
            match page {
                Page::DictionaryPage { .. } => {
                    if bodies::categories(body).as_ref() != field.metadata().get(CATEGORIES) {
                        return Err(ParquetError::General("other categories".into()));
                    }
                }
                Page::DataPage { encoding, .. } => {
                    return array(body, rows, encoding, field)
                        .ok_or_else(|| ParquetError::General("a page that is not whole".into()));
                }
                Page::DataPageV2 { .. } => {
                    return Err(ParquetError::NYI("pages of version 2".into()));
                }
            }
        }
    }
}

fn array(body: &[u8], len: usize, encoding: Encoding, field: &Field) -> Option<ArrayRef> {
    let (valid, body) = if field.is_nullable() {
        bodies::levels(body, len)?
    } else {
        (None, body)
    };
    let kept = len - valid.as_ref().map_or(0, NullBuffer::null_count);
    Some(match (field.data_type(), encoding) {
        (DataType::Int16, Encoding::DELTA_BINARY_PACKED) => {
            integers::<Int16Type>(body, kept, valid)?
        }
        (DataType::Int32, Encoding::DELTA_BINARY_PACKED) => {
            integers::<Int32Type>(body, kept, valid)?
        }
        (DataType::Int64, Encoding::DELTA_BINARY_PACKED) => {
            integers::<Int64Type>(body, kept, valid)?
        }
        (DataType::UInt16, Encoding::DELTA_BINARY_PACKED) => {
            integers::<UInt16Type>(body, kept, valid)?
        }
        (DataType::UInt32, Encoding::DELTA_BINARY_PACKED) => {
            integers::<UInt32Type>(body, kept, valid)?
        }
        (DataType::UInt64, Encoding::DELTA_BINARY_PACKED) => {
            integers::<UInt64Type>(body, kept, valid)?
        }
        (DataType::Dictionary(..), Encoding::RLE_DICTIONARY) => {
            let codes = bodies::codes(body, kept)?;
            let known = categories(field);
            codes
                .iter()
                .all(|code| usize::from(*code) < known)
                .then_some(())?;
            placed::<UInt8Type>(codes, valid)?
        }
        (DataType::Boolean, Encoding::PLAIN) => {
            let kept = bodies::booleans(body, kept)?;
            let values: BooleanBuffer = match &valid {
                None => kept,
                Some(valid) => bodies::spread(kept.iter().collect(), valid)?
                    .into_iter()
                    .collect(),
            };
            Arc::new(BooleanArray::new(values, valid))
        }
        _ => return None,
    })
}

/// How many categories a field has: each stands in its metadata behind its length.
fn categories(field: &Field) -> usize {
    let mut rest = field.metadata().get(CATEGORIES).map_or("", String::as_str);
    let mut count = 0;
    while let Some((length, after)) = rest.split_once(';') {
        let next = length
            .parse()
            .ok()
            .and_then(|length: usize| after.get(length..));
        rest = next.unwrap_or("");
        count += 1;
    }
    count
}

fn integers<T: Narrow>(body: &[u8], kept: usize, valid: Option<NullBuffer>) -> Option<ArrayRef> {
    placed::<T>(bodies::deltas::<T>(body, kept)?, valid)
}

fn placed<T: ArrowPrimitiveType>(
    kept: Vec<T::Native>,
    valid: Option<NullBuffer>,
) -> Option<ArrayRef> {
    let values = match &valid {
        None => kept,
        Some(valid) => bodies::spread(kept, valid)?,
    };
    Some(Arc::new(PrimitiveArray::<T>::new(values.into(), valid)))
}
