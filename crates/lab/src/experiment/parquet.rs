//! Results as a Parquet table: one column for each parameter and metric.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::file::{CASE, Experiment};
use super::report::Measurement;

/// A column: a name, and a value for each row where there is one.
enum Column {
    Text(&'static str, Vec<Option<String>>),
    Number(&'static str, Vec<Option<f64>>),
}

/// The bytes of the file: `case` if there are cases, parameters (numbers as numbers, sizes in bytes), metrics, `error`.
pub(super) fn table(experiment: &Experiment, measured: &[Measurement<'_>]) -> Result<Vec<u8>, String> {
    write(&columns(experiment, measured)).map_err(|error| error.to_string())
}

fn columns(experiment: &Experiment, measured: &[Measurement<'_>]) -> Vec<Column> {
    let kind = experiment.kind;
    let mut columns = Vec::new();
    if !experiment.cases.is_empty() {
        columns.push(Column::Text(CASE, measured.iter().map(|one| Some(one.entry.case.clone())).collect()));
    }
    for parameter in kind.parameters() {
        let name = parameter.name;
        columns.push(if parameter.is_numeric() {
            let values = measured.iter().map(|one| one.entry.point.number(name).map(|value| value as f64));
            Column::Number(name, values.collect())
        } else {
            Column::Text(name, measured.iter().map(|one| Some(one.entry.value(name).to_owned())).collect())
        });
    }
    for metric in kind.metrics() {
        let values = measured.iter().map(|one| one.record.metric(metric.name));
        columns.push(Column::Number(metric.name, values.collect()));
    }
    let errors = measured.iter().map(|one| one.record.outcome.as_ref().err().cloned());
    columns.push(Column::Text("error", errors.collect()));
    columns
}

fn write(columns: &[Column]) -> Result<Vec<u8>, ParquetError> {
    let fields = columns.iter().map(Column::field).collect::<Result<Vec<_>, ParquetError>>()?;
    let schema = Arc::new(Type::group_type_builder("results").with_fields(fields).build()?);
    // The version of the library that wrote it is all that could differ between two machines; it is part of Cargo.lock.
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let mut rows = writer.next_row_group()?;
    for column in columns {
        column.write(&mut rows)?;
    }
    rows.close()?;
    writer.into_inner()
}

impl Column {
    fn field(&self) -> Result<Arc<Type>, ParquetError> {
        let builder = match self {
            Column::Text(name, _) => {
                Type::primitive_type_builder(name, Physical::BYTE_ARRAY).with_logical_type(Some(LogicalType::String))
            }
            Column::Number(name, _) => Type::primitive_type_builder(name, Physical::DOUBLE),
        };
        Ok(Arc::new(builder.with_repetition(Repetition::OPTIONAL).build()?))
    }

    fn write(&self, rows: &mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<(), ParquetError> {
        let Some(mut writer) = rows.next_column()? else {
            return Err(ParquetError::General("there are fewer columns than fields".to_owned()));
        };
        match self {
            Column::Text(_, values) => {
                let present: Vec<ByteArray> =
                    values.iter().flatten().map(|text| ByteArray::from(text.as_str())).collect();
                writer.typed::<ByteArrayType>().write_batch(&present, Some(&levels(values)), None)?;
            }
            Column::Number(_, values) => {
                let present: Vec<f64> = values.iter().flatten().copied().collect();
                writer.typed::<DoubleType>().write_batch(&present, Some(&levels(values)), None)?;
            }
        }
        writer.close()
    }
}

/// Definition levels of an optional column: 1 where there is a value.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}
