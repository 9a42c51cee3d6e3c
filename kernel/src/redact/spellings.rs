//! The ways in which others write a text that they were given: in JSON, in an address, in base64.
//!
//! Owns the list of them. It must not know which texts are secret.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Shorter pieces of base64 may be anybody's.
const BASE64_CHARS_MIN: usize = 8;

/// What stands unescaped in an address besides letters and digits: by RFC 3986, by JavaScript's
/// `encodeURIComponent`, and in a form.
const UNRESERVED: &[u8] = b"-_.~";
const COMPONENT: &[u8] = b"-_.~!*'()";
const FORM: &[u8] = b"-_.*";

const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";
const HEX_LOWER: &[u8; 16] = b"0123456789abcdef";

/// How a text may come back that is not as it was sent; the text itself is not among them. A secret
/// that is to be taken out of an answer is looked for in all of these.
pub fn spellings(text: &str) -> Vec<String> {
    let mut found = in_base64(text);
    let is_same_everywhere = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !text.bytes().all(is_same_everywhere) {
        let (json, ascii) = (in_json(text), in_ascii_json(text));
        found.extend([
            // Some writers escape the slash.
            json.replace('/', "\\/"),
            ascii.replace('/', "\\/"),
            // A body that is quoted in a body.
            in_json(&json),
            text.escape_debug().to_string(),
            on_one_line(text),
            percent(text, UNRESERVED, HEX_UPPER),
            percent(text, UNRESERVED, HEX_LOWER),
            percent(text, COMPONENT, HEX_UPPER),
            percent(text, FORM, HEX_UPPER).replace("%20", "+"),
            json,
            ascii,
        ]);
    }
    found.sort_unstable();
    found.dedup();
    found.retain(|spelling| spelling != text);
    found
}

fn in_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let inside = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"'));
    inside.unwrap_or(&quoted).to_owned()
}

/// JSON of those who trust nobody with more than ASCII.
fn in_ascii_json(text: &str) -> String {
    let mut ascii = String::new();
    for character in in_json(text).chars() {
        if character.is_ascii() {
            ascii.push(character);
            continue;
        }
        let mut units = [0; 2];
        let units = character.encode_utf16(&mut units).iter();
        ascii.extend(units.map(|unit| format!("\\u{unit:04x}")));
    }
    ascii
}

/// As our own connectors quote it: with nothing that a terminal would obey, or that would end the
/// quote.
fn on_one_line(text: &str) -> String {
    let mut line = String::new();
    for character in text.chars() {
        match character {
            '`' => line.push('\''),
            '"' | '\'' => line.push(character),
            other => line.extend(other.escape_debug()),
        }
    }
    line
}

fn percent(text: &str, plain: &[u8], hex: &[u8; 16]) -> String {
    let digit = |value: u8| hex.get(usize::from(value)).copied().unwrap_or(b'0');
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            escaped.push(char::from(digit(byte >> 4)));
            escaped.push(char::from(digit(byte & 15)));
        }
    }
    escaped
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
        let spellings = spellings(secret);
        assert!(
            spellings.iter().any(|spelling| echo.contains(spelling)),
            "{echo} holds none of {spellings:?}"
        );
    }

    #[test]
    fn a_text_is_known_in_the_ways_others_write_it() {
        let secret = "a\"b\\c1/\u{e9} \n`z";
        for echo in [
            r#"{"echo":"a\"b\\c1/é \n`z"}"#,
            r#"{"echo":"a\"b\\c1\/é \n`z"}"#,
            r#"{"echo":"a\"b\\c1/\u00e9 \n`z"}"#,
            r#"{"echo":"a\"b\\c1\/\u00e9 \n`z"}"#,
            r#"{"said":"{\"echo\":\"a\\\"b\\\\c1/é \\n`z\"}"}"#,
            r#"the value `a"b\\c1/é \n'z` is bad"#,
            "https://h/?p=a%22b%5Cc1%2F%C3%A9%20%0A%60z&q=1",
            "https://h/?p=a%22b%5cc1%2f%c3%a9%20%0a%60z&q=1",
            "p=a%22b%5Cc1%2F%C3%A9+%0A%60z",
        ] {
            is_found(secret, echo);
        }
        is_found("it's (a)", "https://h/it's%20(a)");
        is_found("a\u{1b}[2J\"", &format!("{:?}", "a\u{1b}[2J\""));
    }

    #[test]
    fn a_text_is_known_in_base64_wherever_it_begins() {
        for user in ["", "a", "an", "ann", "anna"] {
            for secret in ["hunter22!", "p\u{e9}~?>\u{ff}\u{fe}", "canary-password"] {
                let pair = format!("{user}:{secret}");
                is_found(secret, &format!("Basic {}", STANDARD.encode(pair)));
            }
        }
    }

    #[test]
    fn a_plain_text_is_written_in_one_way_only() {
        assert_eq!(spellings("abc-1"), Vec::<String>::new());
        assert_eq!(spellings(""), Vec::<String>::new());
    }
}
