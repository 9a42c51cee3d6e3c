//! A secret in the texts of others, who write it as it is, in JSON, in an address or in base64.
//!
//! Owns what is looked for, and what of a text that was cut is still too much. It must not know which
//! texts are secret.

mod search;

use std::fmt;
use std::iter;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use search::{CUT_BYTES_MAX, Read, Search};

/// Shorter pieces of base64 may be anybody's.
const BASE64_CHARS_MIN: usize = 8;

/// A text that nobody is shown, and that is found however it is written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretText {
    /// The text itself, then what of it is the same in base64 whatever stands around it.
    forms: Vec<String>,
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl SecretText {
    /// The text as it was sent.
    pub fn new(text: &str) -> Self {
        let mut encoded = in_base64(text);
        encoded.retain(|piece| piece != text);
        let mut forms = vec![text.to_owned()];
        forms.append(&mut encoded);
        Self { forms }
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        self.forms.first().map_or("", String::as_str)
    }

    /// Where a text holds this one: from front to back, none within another.
    pub fn places_in(&self, text: &str) -> Vec<Range<usize>> {
        let mut places: Vec<Range<usize>> = Vec::new();
        for form in self.forms.iter().filter(|form| !form.is_empty()) {
            match Search::new(text).every(form) {
                Some(found) => places.extend(found),
                None => return iter::once(0..text.len()).collect(),
            }
        }
        places.sort_by_key(|place| (place.start, place.end));
        let mut apart: Vec<Range<usize>> = Vec::new();
        for place in places {
            match apart.last_mut() {
                Some(last) if place.start < last.end => last.end = last.end.max(place.end),
                _ => apart.push(place),
            }
        }
        apart
    }

    /// The text with something else in this one's place.
    pub fn replace_in(&self, text: String, with: &str) -> String {
        let places = self.places_in(&text);
        if places.is_empty() {
            return text;
        }
        let mut clean = String::new();
        let mut from = 0;
        for place in places {
            clean.push_str(text.get(from..place.start).unwrap_or_default());
            clean.push_str(with);
            from = place.end;
        }
        clean.push_str(text.get(from..).unwrap_or_default());
        clean
    }

    /// How many bytes at the start of a text, which was cut there, are the end of this one: at least
    /// so many characters of it.
    pub fn end_begins(&self, text: &str, chars_min: usize) -> usize {
        // What a cut has left of an escape comes before it.
        let left = text.bytes().take(CUT_BYTES_MAX);
        let left = left.take_while(|byte| byte.is_ascii_alphanumeric() || b"%{}\\".contains(byte));
        let starts = 0..=left.count();
        let ends = self.forms.iter().filter_map(|form| {
            let ends = form.char_indices().rev().skip(chars_min.saturating_sub(1));
            let ends = ends.take(text.len()).filter_map(|(at, _)| form.get(at..));
            let mut search = Search::new(text);
            let found = ends.flat_map(|end| starts.clone().map(move |start| (end, start)));
            let found = found.filter_map(|(end, start)| match search.read(end, start) {
                Read::To(place) => Some(place),
                Read::TooLong => Some(text.len()),
                Read::Not | Read::Cut(_) => None,
            });
            found.max()
        });
        ends.max().unwrap_or(0)
    }

    /// How many bytes at the end of a text, which was cut there, are the start of this one: at least
    /// so many characters of it.
    pub fn start_ends(&self, text: &str, chars_min: usize) -> usize {
        let starts = self.forms.iter().filter_map(|form| {
            let mut search = Search::new(text);
            let found = text.char_indices().find(|(start, _)| {
                search.may_begin(form, *start)
                    && match search.read(form, *start) {
                        Read::Cut(chars) => chars >= chars_min,
                        Read::To(place) => place == text.len(),
                        Read::TooLong => true,
                        Read::Not => false,
                    }
            });
            found.map(|(start, _)| text.len() - start)
        });
        starts.max().unwrap_or(0)
    }
}

/// What is the same in base64 whatever stands before and behind, as the user does in
/// `Basic user:password`: one piece for each of the three places a text can begin at.
fn in_base64(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for before in 0..3 {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(text.as_bytes());
            // A character is six bits; those that hold others' bits too are left out.
            let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
            let encoded = engine.encode(&bytes);
            if let Some(piece) = encoded
                .get(from..to)
                .filter(|p| p.len() >= BASE64_CHARS_MIN)
            {
                pieces.push(piece.to_owned());
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[track_caller]
    fn is_found(secret: &str, echo: &str) {
        let place = echo.find('<').zip(echo.find('>'));
        let (from, to) = place.expect("a marked place");
        let echo = echo.replace(['<', '>'], "");
        let places = SecretText::new(secret).places_in(&echo);
        assert_eq!(places, vec![from..to - 1], "{secret:?} in {echo}");
    }

    #[test]
    fn a_text_is_known_in_the_ways_others_write_it() {
        let secret = "a\"b\\c1/\u{e9} \n`z";
        for echo in [
            r#"{"echo":"<a\"b\\c1/é \n`z>"}"#,
            r#"{"echo":"<a\"b\\c1\/é \n`z>"}"#,
            r#"{"echo":"<a\"b\\c1/\u00e9 \n`z>"}"#,
            r#"{"echo":"<a\"b\\c1\/\u00E9 \n`z>"}"#,
            r#"{"said":"{\"echo\":\"<a\\\"b\\\\c1/é \\n`z>\"}"}"#,
            r#"the value `<a"b\\c1/é \n'z>` is bad"#,
            "https://h/?p=<a%22b%5Cc1%2F%C3%A9%20%0A%60z>&q=1",
            "https://h/?p=<a%22b%5cc1%2f%c3%a9%20%0a%60z>&q=1",
            "p=<a%22b%5Cc1%2F%C3%A9+%0A%60z>",
            // JSON in an address, and an address in JSON and in an address.
            "p=%7B%22p%22%3A%22<a%5C%22b%5C%5Cc1%2F%5Cu00e9+%5Cn%60z>%22%7D",
            r#"{"at":"https:\/\/h\/<a%22b%5Cc1\/%C3%A9%20%0A%60z>"}"#,
            "to=https%3A%2F%2Fh%2F<a%2522b%255Cc1%252F%25c3%25a9%2B%250A%2560z>",
        ] {
            is_found(secret, echo);
        }
        is_found("it's (a)", "https://h/<it's%20(a)>");
        is_found(
            "a\u{1b}[2J\"\u{1f600}",
            &format!("<{:?}>", "a\u{1b}[2J\"\u{1f600}")
                .replace("<\"", "\"<")
                .replace("\">", ">\""),
        );
        is_found("a\u{1f600}bc", r"<a\ud83d\uDE00bc>");
    }

    /// Rule 5.5: which characters a writer of addresses keeps is its own affair, and so is the case
    /// of its hex.
    #[test]
    fn a_text_is_known_whichever_of_its_characters_are_encoded() {
        let secret = "k/L+m=%2F %~\u{e9}&\"\\*";
        let ways: Vec<Vec<String>> = secret.chars().map(ways_of).collect();
        let mut state = 7_u32;
        for _ in 0..5_000 {
            let mut echo = "/a/".to_owned();
            for ways in &ways {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                echo.push_str(&ways[(state >> 16) as usize % ways.len()]);
            }
            let place = 3..echo.len();
            let places = SecretText::new(secret).places_in(&format!("{echo}&b"));
            assert_eq!(places, vec![place], "{echo}");
        }
    }

    fn ways_of(character: char) -> Vec<String> {
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes).as_bytes();
        let hex: Vec<String> = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
        let lower = hex.concat();
        vec![character.to_string(), lower.to_uppercase(), lower]
    }

    #[test]
    fn a_text_is_known_in_base64_wherever_it_begins() {
        for user in ["", "a", "an", "ann", "anna"] {
            for secret in ["hunter22!", "p\u{e9}~?>\u{ff}\u{fe}", "canary-password"] {
                let pair = STANDARD.encode(format!("{user}:{secret}"));
                let in_address = pair.replace('+', "%2b").replace('/', "%2F");
                for echo in [pair.replace('/', "\\/"), in_address, pair] {
                    let places = SecretText::new(secret).places_in(&format!("Basic {echo}"));
                    assert_eq!(places.len(), 1, "{secret} in {echo}");
                }
            }
        }
    }

    #[test]
    fn a_cut_leaves_no_piece_of_a_text() {
        let secret = SecretText::new("abcdefgh/\"ijklmnopq");
        let cut = |echo: &str| (secret.end_begins(echo, 8), secret.start_ends(echo, 8));
        for start in [
            "abcdefgh",
            "abcdefgh%",
            "abcdefgh%2",
            "abcdefgh/",
            "abcdefgh%2f\\",
        ] {
            assert_eq!(cut(&format!("bad {start}")), (0, start.len()), "{start}");
        }
        for end in [
            "ijklmnopq",
            "2ijklmnopq",
            "22ijklmnopq",
            "%22ijklmnopq",
            "u0022ijklmnopq",
        ] {
            assert_eq!(cut(&format!("{end} bad")), (end.len(), 0), "{end}");
        }
        assert_eq!(cut("klmnopq is bad, abcdefg"), (0, 0));
    }

    #[test]
    fn a_text_is_not_found_where_it_is_not() {
        assert_eq!(SecretText::new("").places_in("abc"), vec![]);
        let secret = SecretText::new("ab/cd");
        for echo in [
            "", "ab", "ab/c", "ab%2Ecd", "ab%2", "ab\\", "ab\\ucd", "%", "ab%+2fcd",
        ] {
            assert_eq!(secret.places_in(echo), vec![], "{echo}");
        }
        assert_eq!(SecretText::new("abab").places_in("ababababab").len(), 2);
    }

    #[test]
    fn a_text_that_was_made_to_take_long_is_hidden_whole() {
        let secret = SecretText::new(&format!("{}b", "a".repeat(5_000)));
        let echo = "a".repeat(10_000);
        assert_eq!(secret.replace_in(echo, "…"), "…");
        let slashes = SecretText::new(&format!("{}b", "\\".repeat(5_000)));
        assert_eq!(slashes.replace_in("\\".repeat(10_000), "…"), "…");
    }
}
