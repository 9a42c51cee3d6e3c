//! JSON in one small piece of memory.
//!
//! A parsed value is spread over many pieces, the smallest object taking more than half a kilobyte.
//! What is kept for long and seldom looked into, the arguments of a receipt and the answer of a
//! burned key, is kept in as many bytes as it says, and taken apart when somebody looks.

pub(crate) mod bytes;

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::ser::{Error, SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

use crate::shared::Shared;

pub(crate) use bytes::Reader;

/// A JSON value, or an object, as one piece of memory. Reads like `T`, which is made when it is first
/// read; copies like a pointer; loses nothing.
pub struct Packed<T> {
    bytes: Arc<[u8]>,
    /// Not shared by copies, so that who looks at one makes no other any larger.
    open: OnceLock<Box<T>>,
}

/// What can be packed: [`Value`] and [`Map`].
pub trait Pack: Sized {
    #[doc(hidden)]
    fn pack(&self, bytes: &mut Vec<u8>);
    #[doc(hidden)]
    fn unpack(reader: &Reader<'_>) -> Option<Self>;
}

// What a value begins with. A text, and what it says as often as a list or an object counts, follow.
const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const UNSIGNED: u8 = 3;
const SIGNED: u8 = 4;
const FLOAT: u8 = 5;
const TEXT: u8 = 6;
const LIST: u8 = 7;
const OBJECT: u8 = 8;

impl Pack for Value {
    fn pack(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Null => bytes.push(NULL),
            Self::Bool(false) => bytes.push(FALSE),
            Self::Bool(true) => bytes.push(TRUE),
            Self::Number(number) => pack_number(number, bytes),
            Self::String(text) => {
                bytes.push(TEXT);
                bytes::text(bytes, text);
            }
            Self::Array(items) => {
                bytes.push(LIST);
                bytes::length(bytes, items.len());
                for item in items {
                    item.pack(bytes);
                }
            }
            Self::Object(object) => object.pack(bytes),
        }
    }

    fn unpack(reader: &Reader<'_>) -> Option<Self> {
        Some(match reader.byte()? {
            NULL => Self::Null,
            FALSE => Self::Bool(false),
            TRUE => Self::Bool(true),
            UNSIGNED => u64::from_le_bytes(reader.word()?).into(),
            SIGNED => i64::from_le_bytes(reader.word()?).into(),
            FLOAT => f64::from_le_bytes(reader.word()?).into(),
            TEXT => Self::String(reader.text()?.to_owned()),
            LIST => {
                let items = 0..reader.length()?;
                Self::Array(items.map(|_| Self::unpack(reader)).collect::<Option<_>>()?)
            }
            OBJECT => Self::Object(reader.fields()?),
            _ => return None,
        })
    }
}

impl Pack for Map<String, Value> {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.push(OBJECT);
        bytes::length(bytes, self.len());
        for (name, value) in self {
            bytes::text(bytes, name);
            value.pack(bytes);
        }
    }

    fn unpack(reader: &Reader<'_>) -> Option<Self> {
        if reader.byte()? == OBJECT {
            reader.fields()
        } else {
            None
        }
    }
}

pub(crate) fn pack_number(number: &Number, bytes: &mut Vec<u8>) {
    let (tag, word) = if let Some(number) = number.as_u64() {
        (UNSIGNED, number.to_le_bytes())
    } else if let Some(number) = number.as_i64() {
        (SIGNED, number.to_le_bytes())
    } else {
        (FLOAT, number.as_f64().unwrap_or_default().to_le_bytes())
    };
    bytes.push(tag);
    bytes.extend_from_slice(&word);
}

impl Reader<'_> {
    fn fields(&self) -> Option<Map<String, Value>> {
        let fields = 0..self.length()?;
        let field = |_| Some((self.text()?.to_owned(), Value::unpack(self)?));
        fields.map(field).collect()
    }
}

impl Serialize for Reader<'_> {
    /// Writes the value that comes next, without making one.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cut = || S::Error::custom("packed JSON that is cut");
        match self.byte().ok_or_else(cut)? {
            FALSE => serializer.serialize_bool(false),
            TRUE => serializer.serialize_bool(true),
            UNSIGNED => serializer.serialize_u64(u64::from_le_bytes(self.word().ok_or_else(cut)?)),
            SIGNED => serializer.serialize_i64(i64::from_le_bytes(self.word().ok_or_else(cut)?)),
            FLOAT => serializer.serialize_f64(f64::from_le_bytes(self.word().ok_or_else(cut)?)),
            TEXT => serializer.serialize_str(self.text().ok_or_else(cut)?),
            LIST => {
                let length = self.length().ok_or_else(cut)?;
                let mut list = serializer.serialize_seq(Some(length))?;
                for _ in 0..length {
                    list.serialize_element(self)?;
                }
                list.end()
            }
            OBJECT => {
                let length = self.length().ok_or_else(cut)?;
                let mut object = serializer.serialize_map(Some(length))?;
                for _ in 0..length {
                    object.serialize_entry(self.text().ok_or_else(cut)?, self)?;
                }
                object.end()
            }
            _ => serializer.serialize_unit(),
        }
    }
}

impl<T> Packed<T> {
    fn reader(&self) -> Reader<'_> {
        Reader::new(&self.bytes)
    }

    /// What is packed, to be kept within something else.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What [`bytes`](Self::bytes) gave.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.into(),
            open: OnceLock::new(),
        }
    }
}

impl<T: Pack + Default> Packed<T> {
    /// A value of its own.
    pub fn unpack(&self) -> T {
        // What was packed here can be read here.
        T::unpack(&self.reader()).unwrap_or_default()
    }
}

impl<T: Pack> From<&T> for Packed<T> {
    fn from(value: &T) -> Self {
        let mut bytes = Vec::with_capacity(128);
        value.pack(&mut bytes);
        Self {
            bytes: bytes.as_slice().into(),
            open: OnceLock::new(),
        }
    }
}

impl<T: Pack> From<T> for Packed<T> {
    fn from(value: T) -> Self {
        Self::from(&value)
    }
}

impl<T: Pack> From<Shared<T>> for Packed<T> {
    fn from(value: Shared<T>) -> Self {
        Self::from(&*value)
    }
}

impl<T: Pack + Default> From<&Packed<T>> for Shared<T> {
    fn from(packed: &Packed<T>) -> Self {
        packed.unpack().into()
    }
}

impl<T: Pack + Default> Default for Packed<T> {
    fn default() -> Self {
        T::default().into()
    }
}

impl<T> Clone for Packed<T> {
    fn clone(&self) -> Self {
        Self {
            bytes: Arc::clone(&self.bytes),
            open: OnceLock::new(),
        }
    }
}

impl<T: Pack + Default> Deref for Packed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.open.get_or_init(|| Box::new(self.unpack()))
    }
}

impl<T: Pack + Default + fmt::Debug> fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> PartialEq for Packed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T: Pack + Default + PartialEq> PartialEq<T> for Packed<T> {
    fn eq(&self, other: &T) -> bool {
        **self == *other
    }
}

impl<T: Pack + Default + PartialEq> PartialEq<Shared<T>> for Packed<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        **self == **other
    }
}

impl<T> Serialize for Packed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.reader().serialize(serializer)
    }
}

impl<'de, T: Pack + Deserialize<'de>> Deserialize<'de> for Packed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_packed_is_read_and_written_as_it_was() {
        let long = "x".repeat(70_000);
        for value in [
            json!(null),
            json!([
                true,
                false,
                0,
                -1,
                u64::MAX,
                i64::MIN,
                180.0,
                0.1,
                -0.0,
                5e-324
            ]),
            json!({"a": {"b": [{}, [], "", "é\n\""]}, "z": long}),
            json!(vec![1; 300]),
        ] {
            let packed = Packed::from(&value);
            assert_eq!(packed, value);
            assert_eq!(packed.unpack(), value);
            let text = serde_json::to_string(&value).expect("writes");
            assert_eq!(serde_json::to_string(&packed).expect("writes"), text);
            let read: Packed<Value> = serde_json::from_str(&text).expect("reads");
            assert_eq!(read, packed);
        }
    }

    #[test]
    fn an_object_is_packed_as_the_value_it_is() {
        let value = json!({"order": "SO-1", "lines": [1, 2]});
        let object = value.as_object().cloned().expect("an object");
        assert_eq!(*Packed::from(&object), object);
        assert_eq!(Packed::from(object).bytes, Packed::from(value).bytes);
        assert!(Packed::<Map<String, Value>>::default().is_empty());
    }
}
