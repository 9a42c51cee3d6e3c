//! RFC 8785: the same bytes for the same value, whoever writes it.
//!
//! Sorting keys is what makes canonical text dear, and nearly everything written here is in order
//! already: maps are sorted, and the fields of receipts are declared in their order. So the text is
//! written straight through while the order is watched, and only what is found out of order is
//! written again by the crate that sorts.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CharEscape, Formatter};

use super::{INTEGER_MAX, JsonError, root};
use crate::content_digest::ContentDigest;

/// The RFC 8785 form: the same bytes for the same value, whoever writes it.
///
/// Only fails on numbers that are not finite, which strict parsing never lets in.
pub fn canonical(value: &impl Serialize) -> Result<String, JsonError> {
    written(value, 1024)
}

/// `sha256:…` over the canonical form.
pub fn digest(value: &impl Serialize) -> Result<ContentDigest, JsonError> {
    Ok(ContentDigest::of(written(value, 256)?.as_bytes()))
}

/// The canonical form, in a text that need not grow if it is no longer than `expected`.
fn written(value: &impl Serialize, expected: usize) -> Result<String, JsonError> {
    let mut bytes = Vec::with_capacity(expected);
    append(&mut bytes, value)?;
    String::from_utf8(bytes).map_err(|error| refused(error.to_string()))
}

/// Adds the canonical form of a value.
pub(crate) fn append(bytes: &mut Vec<u8>, value: &impl Serialize) -> Result<(), JsonError> {
    let start = bytes.len();
    let mut is_in_order = true;
    let formatter = Straight::new(&mut is_in_order);
    let written = value.serialize(&mut Serializer::with_formatter(&mut *bytes, formatter));
    if written.is_err() || !is_in_order {
        bytes.truncate(start);
        let sorted = serde_json_canonicalizer::to_vec(value);
        bytes.extend(sorted.map_err(|error| refused(error.to_string()))?);
    }
    Ok(())
}

fn refused(problem: String) -> JsonError {
    JsonError {
        place: root(),
        problem,
    }
}

/// Bytes of the keys that are open at once, and objects within each other, that are watched. What
/// goes beyond is for the crate that sorts.
const KEYS_BYTES_MAX: usize = 256;
const DEPTH_MAX: usize = 16;

/// Writes compact JSON with numbers as RFC 8785 has them, and notices keys that are out of order.
struct Straight<'a> {
    is_in_order: &'a mut bool,
    /// The key before, for every object that is open; one text, to be cut.
    keys: [u8; KEYS_BYTES_MAX],
    /// How much of it is used.
    end: usize,
    /// Where the key of each open object begins in there.
    starts: [usize; DEPTH_MAX],
    /// How many objects are open.
    depth: usize,
    /// A key is being written; where it begins in there.
    key: Option<usize>,
}

impl<'a> Straight<'a> {
    fn new(is_in_order: &'a mut bool) -> Self {
        Self {
            is_in_order,
            keys: [0; KEYS_BYTES_MAX],
            end: 0,
            starts: [0; DEPTH_MAX],
            depth: 0,
            key: None,
        }
    }

    /// Where the key of the innermost object begins.
    fn start(&self) -> usize {
        let innermost = self.depth.checked_sub(1);
        let start = innermost.and_then(|place| self.starts.get(place));
        start.copied().unwrap_or(0)
    }

    /// Numbers are doubles there; an integer that is none is for the crate to judge.
    fn check_integer(&mut self, magnitude: u64) {
        *self.is_in_order &= magnitude <= INTEGER_MAX;
    }
}

impl Formatter for Straight<'_> {
    fn write_i64<W: ?Sized + Write>(&mut self, writer: &mut W, value: i64) -> io::Result<()> {
        self.check_integer(value.unsigned_abs());
        serde_json::ser::CompactFormatter.write_i64(writer, value)
    }

    fn write_u64<W: ?Sized + Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        self.check_integer(value);
        serde_json::ser::CompactFormatter.write_u64(writer, value)
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        match whole(value) {
            Some(whole) => serde_json::ser::CompactFormatter.write_i64(writer, whole),
            None => writer.write_all(ryu_js::Buffer::new().format_finite(value).as_bytes()),
        }
    }

    fn write_f32<W: ?Sized + Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        self.write_f64(writer, f64::from(value))
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match self.starts.get_mut(self.depth) {
            Some(start) => *start = self.end,
            None => *self.is_in_order = false,
        }
        self.depth += 1;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end = self.start();
        self.depth = self.depth.saturating_sub(1);
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.key = Some(self.end);
        if first {
            Ok(())
        } else {
            writer.write_all(b",")
        }
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        let before = self.start();
        // Once the order is lost nothing is watched any more, and what is kept means nothing.
        if let Some(begin) = self.key.take().filter(|_| *self.is_in_order) {
            let previous = self.keys.get(before..begin).unwrap_or_default();
            let key = self.keys.get(begin..self.end).unwrap_or_default();
            // An empty one is none at all, or the smallest there is.
            *self.is_in_order &= previous.is_empty() || previous < key;
            self.keys.copy_within(begin..self.end, before);
            self.end -= begin - before;
        }
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if self.key.is_some() {
            // Others are ordered by UTF-16 code units, which bytes need not follow.
            *self.is_in_order &= fragment.is_ascii();
            let end = self.end + fragment.len();
            match self.keys.get_mut(self.end..end) {
                Some(room) => {
                    room.copy_from_slice(fragment.as_bytes());
                    self.end = end;
                }
                None => *self.is_in_order = false,
            }
        }
        writer.write_all(fragment.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        char_escape: CharEscape,
    ) -> io::Result<()> {
        *self.is_in_order &= self.key.is_none();
        serde_json::ser::CompactFormatter.write_char_escape(writer, char_escape)
    }
}

/// A double that is a whole number is written as that number, -0 as 0. Amounts mostly are, and the
/// shortest digits of one with a fraction take ten times as long to find.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it has no fraction and is within 53 bits"
)]
fn whole(value: f64) -> Option<i64> {
    const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;
    (value.fract() == 0.0 && value.abs() <= WHOLE_MAX).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[derive(Serialize)]
    struct Unsorted {
        b: u8,
        a: Inner,
    }

    #[derive(Serialize)]
    struct Inner {
        z: &'static str,
        y: Option<u8>,
    }

    #[track_caller]
    fn as_the_crate_has_it(value: &impl Serialize) {
        let sorted = serde_json_canonicalizer::to_string(value).expect("finite");
        assert_eq!(canonical(value).as_ref(), Ok(&sorted));
    }

    #[test]
    fn the_text_is_the_sorting_crates_in_order_or_not() {
        let inner = Inner {
            z: "\"\n\u{1}é",
            y: None,
        };
        as_the_crate_has_it(&Unsorted { b: 1, a: inner });
        for value in [
            json!({"": {"": 1, "a": {}}, "a": [{"x": 1, "y": {"b": 1}, "z": {"a": 2}}], "b": []}),
            json!({"\u{e000}": 1, "\u{10000}": 2, "plain": 3}),
            json!({"tab\there": 1, "tab here": 2, "z": {"\"": 0}}),
            json!([
                180.0,
                19.25,
                1e21,
                1e-7,
                -0.0,
                333_333_333.333_333_3,
                1e300,
                5e-324,
                -3.0,
                0.5,
                9_007_199_254_740_991.0,
                9_007_199_254_740_992.0,
                -9_007_199_254_740_992.0,
                1e20
            ]),
            json!([
                0,
                -1,
                9_007_199_254_740_991_u64,
                u64::MAX,
                i64::MIN,
                true,
                null
            ]),
        ] {
            as_the_crate_has_it(&value);
        }
    }

    /// An object within an object, that often, each with a key before and one behind.
    fn nested(times: usize) -> Value {
        let deeper = |inner: Value, _| json!({"a": 1, "b": inner, "c": {"a": 1}, "d": 2});
        (0..times).fold(json!({"x": 1, "y": 2}), deeper)
    }

    #[test]
    fn depth_and_long_keys_change_nothing_but_who_writes() {
        for depth in [1, DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1, 40] {
            as_the_crate_has_it(&nested(depth));
        }
        for length in [KEYS_BYTES_MAX - 1, KEYS_BYTES_MAX, KEYS_BYTES_MAX + 1, 900] {
            let key = "k".repeat(length);
            as_the_crate_has_it(&json!({"a": {key.clone(): {"b": 1, "c": 2}, "z": 3}, key: 4}));
        }
    }

    #[test]
    fn text_that_is_in_order_is_written_once() {
        let mut is_in_order = true;
        let value = json!({"a": {"b": 1, "c": [{"a": 1}, {"a": 2}]}, "d": "x", "e": {"a": ""}});
        let formatter = Straight::new(&mut is_in_order);
        let mut bytes = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut bytes, formatter);
        Value::serialize(&value, &mut serializer).expect("written");
        assert!(is_in_order);
    }
}
