//! The description of a table that stands in its Parquet file.

use std::sync::Arc;

use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::{DataType, Schema};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::schema::types::{SchemaDescriptor, Type};

/// The columns in Parquet's types.
pub fn of(schema: &Schema) -> Result<SchemaDescriptor> {
    let integer = |bits, signed| Some(LogicalType::integer(bits, signed));
    let fields = schema.fields().iter().map(|field| {
        let (physical, logical) = match field.data_type() {
            DataType::Boolean => (Physical::BOOLEAN, None),
            DataType::Int16 => (Physical::INT32, integer(16, true)),
            DataType::Int32 => (Physical::INT32, None),
            DataType::Int64 => (Physical::INT64, None),
            DataType::UInt16 => (Physical::INT32, integer(16, false)),
            DataType::UInt32 => (Physical::INT32, integer(32, false)),
            DataType::UInt64 => (Physical::INT64, integer(64, false)),
            DataType::Utf8 | DataType::Dictionary(..) => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String))
            }
            other => return Err(ParquetError::NYI(format!("a column of {other}"))),
        };
        let repetition = if field.is_nullable() {
            Repetition::OPTIONAL
        } else {
            Repetition::REQUIRED
        };
        let column = Type::primitive_type_builder(field.name(), physical);
        let column = column
            .with_logical_type(logical)
            .with_repetition(repetition);
        Ok(Arc::new(column.build()?))
    });
    let fields = fields.collect::<Result<_>>()?;
    let root = Type::group_type_builder("arrow_schema").with_fields(fields);
    Ok(SchemaDescriptor::new(Arc::new(root.build()?)))
}

/// The schema for readers that know Arrow: they learn the categories from it. An IPC message
/// behind its length, in base64.
pub fn for_arrow(schema: &Schema) -> KeyValue {
    let message = IpcDataGenerator::default()
        .schema_to_bytes_with_dictionary_tracker(
            schema,
            &mut DictionaryTracker::new(true),
            &IpcWriteOptions::default(),
        )
        .ipc_message;
    let mut bytes = vec![0xff; 4];
    bytes.extend((message.len() as u32).to_le_bytes());
    bytes.extend(message);
    KeyValue::new("ARROW:schema".into(), BASE64_STANDARD.encode(bytes))
}
