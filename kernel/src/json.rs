//! Strict JSON: one parse decides what policy, fingerprint and connector will all see.
//!
//! `serde_json` alone keeps the last of two equal keys in silence and takes numbers that no other
//! reader would read alike; this file refuses both and names the place. It knows nothing of plans.

mod canonical;

use std::cell::RefCell;
use std::fmt;
use std::io;

use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

pub(crate) use canonical::append;
pub use canonical::{canonical, digest};

/// How deep objects and arrays may nest: far below what would trouble a stack, above any real plan.
pub const DEPTH_MAX: usize = 64;

/// The largest integer every JSON reader agrees on, 2^53 − 1, and its negative.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Why a JSON text was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct JsonError {
    /// A JSON pointer (`/actions/3/args`), or `line L column C` where the text is not JSON at all.
    pub place: String,
    /// What is wrong there.
    pub problem: String,
}

impl JsonError {
    /// The same one level further down.
    pub(crate) fn below(mut self, segment: &str) -> Self {
        let mut place = String::new();
        push_segment(&mut place, segment);
        self.place.insert_str(0, &place);
        self
    }
}

/// Parses one JSON value, refusing duplicate keys, depth over [`DEPTH_MAX`], numbers that two
/// readers may read differently, and anything after the value.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    let path = RefCell::new(Vec::new());
    let refusal = RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let strict = Strict {
        path: &path,
        refusal: &refusal,
    };
    let outcome = strict.deserialize(&mut deserializer).and_then(|value| {
        deserializer.end()?;
        Ok(value)
    });
    outcome.map_err(|error| {
        refusal.borrow_mut().take().unwrap_or_else(|| JsonError {
            place: format!("line {} column {}", error.line(), error.column()),
            problem: without_position(&error),
        })
    })
}

/// Parses strictly, then into `T`, naming the path of a field that does not fit.
pub fn parse_as<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    from_value(parse(text)?)
}

/// Reads `T` from a value that was parsed strictly, naming the path of a field that does not fit.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, JsonError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let place = pointer_of(error.path());
        JsonError {
            place,
            problem: error.into_inner().to_string(),
        }
    })
}

/// Checks an object that was built, not parsed, for what [`parse`] would refuse in it; `depth` is
/// how deep it stands. The place begins at the object.
pub(crate) fn check_object(object: &Map<String, Value>, depth: usize) -> Result<(), JsonError> {
    check_with(problem_of_depth(depth))?;
    for (name, value) in object {
        check_value(value, depth + 1).map_err(|error| error.below(name))?;
    }
    Ok(())
}

fn check_value(value: &Value, depth: usize) -> Result<(), JsonError> {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
        Value::Number(number) => check_number(number),
        Value::Array(items) => {
            check_with(problem_of_depth(depth))?;
            for (index, item) in items.iter().enumerate() {
                check_value(item, depth + 1).map_err(|error| error.below(&index.to_string()))?;
            }
            Ok(())
        }
        Value::Object(object) => check_object(object, depth),
    }
}

/// Whether a value is nested deeper than can be kept: what reads a record back has a bound, too.
pub(crate) fn is_too_deep(value: &Value) -> bool {
    fn is_deeper(value: &Value, left: usize) -> bool {
        let below = left.checked_sub(1);
        let is_deeper = |inner: &Value| below.is_none_or(|left| is_deeper(inner, left));
        match value {
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Number(_) => false,
            Value::Array(items) => below.is_none() || items.iter().any(is_deeper),
            Value::Object(object) => below.is_none() || object.values().any(is_deeper),
        }
    }
    is_deeper(value, DEPTH_MAX)
}

/// Whether a value is longer than that many bytes as JSON text. It is written out no further than
/// that, and nowhere: what is far too long costs no more than what is just too long.
pub(crate) fn is_longer_than(value: &Value, bytes_max: usize) -> bool {
    struct Room(usize);
    impl io::Write for Room {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let left = self.0.checked_sub(bytes.len());
            self.0 = left.ok_or(io::ErrorKind::WriteZero)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Room(bytes_max), value).is_err()
}

/// As [`check_object`], for one number.
pub(crate) fn check_number(number: &Number) -> Result<(), JsonError> {
    check_with(problem_of_number(number))
}

fn check_with(problem: Option<String>) -> Result<(), JsonError> {
    let place = String::new();
    problem.map_or(Ok(()), |problem| Err(JsonError { place, problem }))
}

fn problem_of_depth(depth: usize) -> Option<String> {
    (depth >= DEPTH_MAX).then(|| format!("nested deeper than {DEPTH_MAX} levels"))
}

/// What two readers would not agree on in a number.
fn problem_of_number(number: &Number) -> Option<String> {
    if let Some(value) = number.as_u64() {
        return (value > INTEGER_MAX)
            .then(|| format!("the integer {value} is beyond 2^53 − 1; use a string"));
    }
    if let Some(value) = number.as_i64() {
        return (value.unsigned_abs() > INTEGER_MAX)
            .then(|| format!("the integer {value} is beyond −2^53 + 1; use a string"));
    }
    let value = number.as_f64()?;
    // 2^53 as a float; every float at or beyond it is an integer.
    if value.abs() > 9_007_199_254_740_991.0 {
        return Some("a number beyond ±(2^53 − 1); use a string".to_owned());
    }
    let is_negative_zero = value == 0.0 && value.is_sign_negative();
    is_negative_zero.then(|| "negative zero, which readers do not agree on".to_owned())
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    hex_after("", bytes)
}

/// As [`hex`], behind a word that says of what it is.
pub(crate) fn hex_after(word: &str, bytes: &[u8]) -> String {
    // By hand, and without a branch: formatting each byte is most of what a digest costs.
    let digit = |nibble: u8| b'0' + nibble + u8::from(nibble > 9) * (b'a' - b'9' - 1);
    let mut text = Vec::with_capacity(word.len() + bytes.len() * 2);
    text.extend_from_slice(word.as_bytes());
    text.resize(word.len() + bytes.len() * 2, b'0');
    let digits = text.get_mut(word.len()..).unwrap_or_default();
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        if let [high, low] = pair {
            (*high, *low) = (digit(byte >> 4), digit(byte & 0xf));
        }
    }
    // Digits behind a word are text.
    String::from_utf8(text).unwrap_or_default()
}

/// The JSON pointers at which two values differ, in order, at most `max` of them.
pub fn differing_paths(left: &Value, right: &Value, max: usize) -> Vec<String> {
    let mut found = Vec::new();
    collect_differences(left, right, &mut String::new(), max, &mut found);
    found
}

fn collect_differences(
    left: &Value,
    right: &Value,
    path: &mut String,
    max: usize,
    found: &mut Vec<String>,
) {
    if found.len() >= max || left == right {
        return;
    }
    let mut visit = |segment: &str, l: &Value, r: &Value, path: &mut String| {
        let length = path.len();
        push_segment(path, segment);
        collect_differences(l, r, path, max, found);
        path.truncate(length);
    };
    match (left, right) {
        (Value::Object(l), Value::Object(r)) => {
            let absent = Value::Null;
            for (name, value) in l {
                visit(name, value, r.get(name).unwrap_or(&absent), path);
            }
            for (name, value) in r.iter().filter(|(name, _)| !l.contains_key(*name)) {
                visit(name, &absent, value, path);
            }
        }
        (Value::Array(l), Value::Array(r)) if l.len() == r.len() => {
            for (index, (l, r)) in l.iter().zip(r).enumerate() {
                visit(&index.to_string(), l, r, path);
            }
        }
        _ => found.push(if path.is_empty() {
            root()
        } else {
            path.clone()
        }),
    }
}

/// Appends `/segment` to a JSON pointer, escaped as RFC 6901 asks.
pub fn push_segment(path: &mut String, segment: &str) {
    path.push('/');
    path.push_str(&segment.replace('~', "~0").replace('/', "~1"));
}

fn root() -> String {
    "/".to_owned()
}

fn pointer_of(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            serde_path_to_error::Segment::Seq { index } => {
                push_segment(&mut pointer, &index.to_string());
            }
            serde_path_to_error::Segment::Map { key } => push_segment(&mut pointer, key),
            serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => {}
        }
    }
    if pointer.is_empty() { root() } else { pointer }
}

fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text.get(..end).unwrap_or(&text).to_owned(),
        None => text,
    }
}

/// Builds a [`Value`] while it watches what `serde_json` lets through.
#[derive(Clone, Copy)]
struct Strict<'a> {
    path: &'a RefCell<Vec<String>>,
    refusal: &'a RefCell<Option<JsonError>>,
}

impl Strict<'_> {
    fn refuse<E: serde::de::Error>(&self, problem: impl Into<String>) -> E {
        let mut place = String::new();
        for segment in self.path.borrow().iter() {
            push_segment(&mut place, segment);
        }
        let place = if place.is_empty() { root() } else { place };
        let problem = problem.into();
        *self.refusal.borrow_mut() = Some(JsonError {
            place,
            problem: problem.clone(),
        });
        E::custom(problem)
    }

    /// Goes one level down for as long as `inside` runs.
    fn within<T, E: serde::de::Error>(
        &self,
        segment: String,
        inside: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.path.borrow_mut().push(segment);
        let outcome = inside();
        self.path.borrow_mut().pop();
        outcome
    }

    fn check_depth<E: serde::de::Error>(&self) -> Result<(), E> {
        let problem = problem_of_depth(self.path.borrow().len());
        problem.map_or(Ok(()), |problem| Err(self.refuse(problem)))
    }

    fn number<E: serde::de::Error>(&self, number: Number) -> Result<Value, E> {
        match problem_of_number(&number) {
            Some(problem) => Err(self.refuse(problem)),
            None => Ok(Value::Number(number)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.number(value.into())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.number(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => self.number(number),
            None => Err(self.refuse("a number that is not finite")),
        }
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.check_depth()?;
        let mut items = Vec::new();
        loop {
            let next = self.within(items.len().to_string(), || access.next_element_seed(self))?;
            match next {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.check_depth()?;
        let mut object = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            if object.contains_key(&name) {
                return self.within(name, || Err(self.refuse("the key stands here twice")));
            }
            let value = self.within(name.clone(), || access.next_value_seed(self))?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, place: &str) {
        let error = parse(text).expect_err(text);
        assert_eq!(error.place, place, "{error}");
    }

    #[test]
    fn what_two_readers_would_read_differently_is_refused_with_its_place() {
        refused(r#"{"a":1,"a":2}"#, "/a");
        refused(r#"{"x":[{"a/b":1,"a/b":1}]}"#, "/x/0/a~1b");
        refused("[9007199254740992]", "/0");
        refused("[-9007199254740992]", "/0");
        refused("[18446744073709551616]", "/0");
        refused("[1e300]", "/0");
        refused("[-0]", "/0");
        refused("[-0.0]", "/0");
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_line_and_column() {
        for text in [
            "",
            "{",
            "[1,]",
            "nul",
            "NaN",
            "[1e400]",
            "\"\\ud800\"",
            "1 2",
            "{'a':1}",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.place.starts_with("line 1 column"), "{text}: {error}");
        }
    }

    #[test]
    fn depth_is_bounded_without_a_panic() {
        assert!(parse(&format!("{}{}", "[".repeat(64), "]".repeat(64))).is_ok());
        assert!(parse(&format!("{}{}", "[".repeat(65), "]".repeat(65))).is_err());
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&"{\"a\":".repeat(100_000)).is_err());
    }

    #[test]
    fn ordinary_values_come_through_unchanged() {
        let text = r#"{"a":[1,-2,2.5,1E2,true,null,"x\u0000y"],"b":{"c":9007199254740991}}"#;
        let plain: Value = serde_json::from_str(text).expect("valid");
        assert_eq!(parse(text), Ok(plain));
    }

    #[test]
    fn differences_are_named_by_pointer() {
        let left = serde_json::json!({"args": {"a": 1, "b": [1, 2]}, "value": 3});
        let right = serde_json::json!({"args": {"a": 2, "b": [1, 5], "c": true}, "value": 3});
        assert_eq!(
            differing_paths(&left, &right, 10),
            ["/args/a", "/args/b/1", "/args/c"]
        );
        assert_eq!(differing_paths(&left, &right, 1), ["/args/a"]);
        assert!(differing_paths(&left, &left, 10).is_empty());
    }
}
