//! A value while an expression is judged: borrowed from the question wherever it can be.
//!
//! Owns equality and order, which are CEL's: numbers compare as numbers whatever their kind,
//! values of different kinds are unequal, and only what has an order can be ordered.

use std::cmp::Ordering;
use std::rc::Rc;

use serde_json::{Map, Number, Value};

use super::fault::{Fault, Steps};
use crate::magnitude::Magnitude;

/// Beyond this, neighbouring whole numbers share one double.
const EXACT_MAX: u64 = 1 << 53;

#[derive(Debug, Clone)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// Finite.
    Double(f64),
    Text(&'a str),
    MadeText(Rc<str>),
    Array(&'a [Value]),
    MadeList(Rc<[Val<'a>]>),
    Object(&'a Map<String, Value>),
    /// The event's envelope: there, and nothing more.
    Envelope,
}

impl<'a> Val<'a> {
    pub(super) fn of(value: &'a Value) -> Result<Self, Fault> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::number(number)?,
            Value::String(text) => Self::Text(text),
            Value::Array(items) => Self::Array(items),
            Value::Object(fields) => Self::Object(fields),
        })
    }

    /// JSON numbers are doubles, as CEL maps JSON; one that a double cannot hold is not judged.
    pub(super) fn number(number: &Number) -> Result<Self, Fault> {
        let whole = number
            .as_u64()
            .or_else(|| number.as_i64().map(i64::unsigned_abs));
        if whole.is_some_and(|whole| whole > EXACT_MAX) {
            return Err(Fault::Inexact);
        }
        Self::double(number.as_f64().ok_or(Fault::Inexact)?)
    }

    pub(super) fn double(number: f64) -> Result<Self, Fault> {
        if number.is_finite() {
            Ok(Self::Double(number))
        } else {
            Err(Fault::NotFinite)
        }
    }

    pub(super) fn or_null(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::MadeText(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_magnitude(&self) -> Option<Magnitude> {
        match self {
            Self::Int(number) => Some(Magnitude::whole(*number)),
            Self::Double(number) => Magnitude::fraction(*number),
            _ => None,
        }
    }

    /// How many items a list has; `None` for what is no list.
    pub(super) fn list_length(&self) -> Option<usize> {
        match self {
            Self::Array(items) => Some(items.len()),
            Self::MadeList(items) => Some(items.len()),
            _ => None,
        }
    }

    /// An item of a list; `None` past its end.
    pub(super) fn item(&self, index: usize) -> Option<Result<Val<'a>, Fault>> {
        match self {
            Self::Array(items) => items.get(index).map(Val::of),
            Self::MadeList(items) => items.get(index).cloned().map(Ok),
            _ => None,
        }
    }

    pub(super) fn equals(&self, other: &Val<'_>, steps: &Steps) -> Result<bool, Fault> {
        steps.spend_one()?;
        if let (Some(left), Some(right)) = (self.as_magnitude(), other.as_magnitude()) {
            return Ok(left.compare(right).is_eq());
        }
        if let (Some(left), Some(right)) = (self.as_text(), other.as_text()) {
            steps.spend_bytes(left.len().min(right.len()))?;
            return Ok(left == right);
        }
        if let (Some(length), Some(other_length)) = (self.list_length(), other.list_length()) {
            if length != other_length {
                return Ok(false);
            }
            for index in 0..length {
                let (Some(left), Some(right)) = (self.item(index), other.item(index)) else {
                    return Ok(false);
                };
                if !left?.equals(&right?, steps)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        match (self, other) {
            (Self::Null, Val::Null) => Ok(true),
            (Self::Bool(left), Val::Bool(right)) => Ok(left == right),
            (Self::Object(left), Val::Object(right)) => equal_objects(left, right, steps),
            _ => Ok(false),
        }
    }

    pub(super) fn compare(&self, other: &Val<'_>, steps: &Steps) -> Result<Ordering, Fault> {
        if let (Some(left), Some(right)) = (self.as_magnitude(), other.as_magnitude()) {
            return Ok(left.compare(right));
        }
        if let (Some(left), Some(right)) = (self.as_text(), other.as_text()) {
            steps.spend_bytes(left.len().min(right.len()))?;
            return Ok(left.cmp(right));
        }
        match (self, other) {
            (Self::Bool(left), Val::Bool(right)) => Ok(left.cmp(right)),
            _ => Err(self.unfit_with(other, "compared")),
        }
    }

    /// A pair that an operator cannot take.
    pub(super) fn unfit_with(&self, other: &Val<'_>, verb: &str) -> Fault {
        Fault::Unfit(format!(
            "{} and {} cannot be {verb}",
            self.kind(),
            other.kind()
        ))
    }

    /// What it is, in words that never show it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a bool",
            Self::Int(_) => "an int",
            Self::Double(_) => "a double",
            Self::Text(_) | Self::MadeText(_) => "a string",
            Self::Array(_) | Self::MadeList(_) => "a list",
            Self::Object(_) => "a map",
            Self::Envelope => "the event",
        }
    }
}

fn equal_objects(
    left: &Map<String, Value>,
    right: &Map<String, Value>,
    steps: &Steps,
) -> Result<bool, Fault> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (name, value) in left {
        steps.spend_bytes(name.len())?;
        let Some(other) = right.get(name) else {
            return Ok(false);
        };
        if !Val::of(value)?.equals(&Val::of(other)?, steps)? {
            return Ok(false);
        }
    }
    Ok(true)
}
