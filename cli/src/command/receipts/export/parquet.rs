//! Receipts as Parquet, for analysts: typed columns, compressed with Snappy, written in groups of
//! rows so that memory stays flat.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use operators_kernel::Receipt;
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

use super::columns::{COLUMNS, Cell, Column, Kind};
use crate::deliver::Delivery;

/// A group is written when it has so many rows, or its text so many bytes: arguments may be large.
const GROUP_ROWS: usize = 20_000;
const GROUP_BYTES: usize = 32 * 1024 * 1024;

/// The values of one column and, row by row, whether there is one.
#[derive(Debug)]
enum Values {
    Bytes(Vec<ByteArray>),
    Whole(Vec<i64>),
    Real(Vec<f64>),
    Truth(Vec<bool>),
}

#[derive(Debug)]
struct Filling {
    values: Values,
    present: Vec<i16>,
}

impl Filling {
    fn of(column: &Column) -> Self {
        let values = match column.kind {
            Kind::Text | Kind::Json => Values::Bytes(Vec::new()),
            Kind::Whole | Kind::Time => Values::Whole(Vec::new()),
            Kind::Real => Values::Real(Vec::new()),
            Kind::Truth => Values::Truth(Vec::new()),
        };
        Self {
            values,
            present: Vec::new(),
        }
    }

    /// Takes a cell; how many bytes of text it brought.
    fn push(&mut self, cell: Option<Cell<'_>>) -> usize {
        let mut bytes = 0;
        let fits = match (&mut self.values, cell) {
            (Values::Bytes(values), Some(Cell::Text(text))) => {
                bytes = text.len();
                values.push(ByteArray::from(text.as_bytes().to_vec()));
                true
            }
            (Values::Bytes(values), Some(Cell::Json(json))) => {
                bytes = json.len();
                values.push(ByteArray::from(json.into_bytes()));
                true
            }
            (Values::Whole(values), Some(Cell::Whole(number))) => {
                values.push(number);
                true
            }
            (Values::Whole(values), Some(Cell::Time(time))) => {
                values.push(time.as_micros());
                true
            }
            (Values::Real(values), Some(Cell::Real(number))) => {
                values.push(number);
                true
            }
            (Values::Truth(values), Some(Cell::Truth(truth))) => {
                values.push(truth);
                true
            }
            _ => false,
        };
        self.present.push(i16::from(fits));
        bytes
    }
}

/// A Parquet file in the making.
pub(super) struct Parquet {
    file: SerializedFileWriter<Delivery>,
    filling: Vec<Filling>,
    rows: usize,
    bytes: usize,
}

impl Parquet {
    pub(super) fn open(out: Delivery) -> Result<Self> {
        let schema = Arc::new(parse_message_type(&schema())?);
        let created_by = concat!("operators ", env!("CARGO_PKG_VERSION"));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(created_by.to_owned())
            .build();
        Ok(Self {
            file: SerializedFileWriter::new(out, schema, Arc::new(properties))?,
            filling: fresh(),
            rows: 0,
            bytes: 0,
        })
    }

    pub(super) fn add(&mut self, receipts: &[Receipt]) -> Result<()> {
        for receipt in receipts {
            for (column, filling) in COLUMNS.iter().zip(&mut self.filling) {
                self.bytes += filling.push((column.of)(receipt));
            }
            self.rows += 1;
            if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
                self.write_group()?;
            }
        }
        Ok(())
    }

    /// The file, whole, to be handed over.
    pub(super) fn finish(mut self) -> Result<Delivery> {
        self.write_group()?;
        Ok(self.file.into_inner()?)
    }

    fn write_group(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for filling in std::mem::replace(&mut self.filling, fresh()) {
            let mut column = group.next_column()?.context("a column too few")?;
            let present = &filling.present;
            match &filling.values {
                Values::Bytes(values) => put::<ByteArrayType>(&mut column, values, present)?,
                Values::Whole(values) => put::<Int64Type>(&mut column, values, present)?,
                Values::Real(values) => put::<DoubleType>(&mut column, values, present)?,
                Values::Truth(values) => put::<BoolType>(&mut column, values, present)?,
            }
            column.close()?;
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

fn fresh() -> Vec<Filling> {
    COLUMNS.iter().map(Filling::of).collect()
}

fn put<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &[T::T],
    present: &[i16],
) -> Result<()> {
    column
        .typed::<T>()
        .write_batch(values, Some(present), None)?;
    Ok(())
}

fn schema() -> String {
    let mut schema = "message receipts {\n".to_owned();
    for column in COLUMNS {
        let (physical, logical) = match column.kind {
            Kind::Text => ("BYTE_ARRAY", " (STRING)"),
            Kind::Json => ("BYTE_ARRAY", " (JSON)"),
            Kind::Whole => ("INT64", ""),
            Kind::Real => ("DOUBLE", ""),
            Kind::Truth => ("BOOLEAN", ""),
            Kind::Time => ("INT64", " (TIMESTAMP(MICROS,true))"),
        };
        // Writing to a String cannot fail.
        let _infallible = writeln!(schema, "  OPTIONAL {physical} {}{logical};", column.name);
    }
    schema.push('}');
    schema
}
