//! An item's attributes, read one by one with words for what is wrong.

use std::fmt::Display;
use std::str::FromStr;

use aws_sdk_dynamodb::types::AttributeValue;
use serde::de::DeserializeOwned;

use super::item::{Item, from_json};

/// The attributes of one item, or of a map inside it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    item: &'a Item,
    what: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn of(item: &'a Item, what: &'static str) -> Self {
        Self { item, what }
    }

    fn lacks(&self, name: &str) -> String {
        format!("{} has no readable `{name}`", self.what)
    }

    pub(super) fn text_if_there(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.item.get(name) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(_) => Err(self.lacks(name)),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<&'a str, String> {
        self.text_if_there(name)?.ok_or_else(|| self.lacks(name))
    }

    pub(super) fn number_if_there<T: FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        match self.item.get(name) {
            None => Ok(None),
            Some(AttributeValue::N(digits)) => {
                digits.parse().map(Some).map_err(|_| self.lacks(name))
            }
            Some(_) => Err(self.lacks(name)),
        }
    }

    pub(super) fn number<T: FromStr>(&self, name: &str) -> Result<T, String> {
        self.number_if_there(name)?.ok_or_else(|| self.lacks(name))
    }

    pub(super) fn numbers<T: FromStr>(&self, name: &str) -> Result<Vec<T>, String> {
        let parse = |digits: &String| digits.parse().map_err(|_| self.lacks(name));
        match self.item.get(name) {
            None => Ok(Vec::new()),
            Some(AttributeValue::Ns(all)) => all.iter().map(parse).collect(),
            Some(AttributeValue::L(all)) => all
                .iter()
                .map(|value| value.as_n().map_err(|_| self.lacks(name)).and_then(parse))
                .collect(),
            Some(_) => Err(self.lacks(name)),
        }
    }

    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        match self.item.get(name) {
            None => Ok(Vec::new()),
            Some(AttributeValue::L(all)) => all
                .iter()
                .map(|value| value.as_s().cloned().map_err(|_| self.lacks(name)))
                .collect(),
            Some(_) => Err(self.lacks(name)),
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.item.get(name), Some(AttributeValue::Bool(true)))
    }

    pub(super) fn bytes(&self, name: &str) -> Result<&'a [u8], String> {
        match self.item.get(name) {
            Some(AttributeValue::B(bytes)) => Ok(bytes.as_ref()),
            _ => Err(self.lacks(name)),
        }
    }

    pub(super) fn map_if_there(&self, name: &str) -> Result<Option<&'a Item>, String> {
        match self.item.get(name) {
            None => Ok(None),
            Some(AttributeValue::M(map)) => Ok(Some(map)),
            Some(_) => Err(self.lacks(name)),
        }
    }

    /// A list of maps; nothing if it is not there.
    pub(super) fn list(&self, name: &str) -> Result<Vec<&'a Item>, String> {
        match self.item.get(name) {
            None => Ok(Vec::new()),
            Some(AttributeValue::L(all)) => all
                .iter()
                .map(|value| value.as_m().map_err(|_| self.lacks(name)))
                .collect(),
            Some(_) => Err(self.lacks(name)),
        }
    }

    pub(super) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, String> {
        from_json(self.what, self.text(name)?)
    }

    pub(super) fn json_if_there<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, String> {
        let found = self.text_if_there(name)?;
        found.map(|text| from_json(self.what, text)).transpose()
    }
}

pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(super) fn number(value: impl Display) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A number as a sort key: its order as text is its order as a number.
pub(super) fn ordinal(number: u64) -> String {
    format!("{number:020}")
}

/// A list of numbers.
pub(super) fn numbers(all: &[u64]) -> AttributeValue {
    AttributeValue::L(all.iter().map(number).collect())
}
