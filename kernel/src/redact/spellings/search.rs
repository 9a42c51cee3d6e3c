//! One text, searched for another in every way in which that can be written.
//!
//! Owns these ways. Every character is read for itself, so it does not matter which of them a writer
//! escapes.

use std::iter;
use std::ops::Range;

/// How often a text that is escaped is escaped once more, as an address in an address is.
const NESTED_MAX: usize = 4;

/// The backslashes that [`NESTED_MAX`] times JSON makes of one.
const BACKSLASHES_MAX: usize = 16;

/// No escape is longer, so this much of one may have been left by a cut.
pub(super) const CUT_BYTES_MAX: usize = 11;

/// How long a text is searched: far longer than any that was not made to take long. One that takes
/// longer is hidden whole.
const STEPS_PER_BYTE: usize = 32;
const STEPS_MIN: usize = 1 << 16;

/// What came of reading a form at one place of a text.
pub(super) enum Read {
    Not,
    /// It stands there, up to this place.
    To(usize),
    /// The text ends in the midst of it, after so many of its characters.
    Cut(usize),
    /// It was not found out within the steps of the search.
    TooLong,
}

/// The search of one text for one form.
pub(super) struct Search<'a> {
    text: &'a [u8],
    steps: usize,
    /// The places that the characters read so far may end at.
    here: Vec<usize>,
    next: Vec<usize>,
}

impl<'a> Search<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text: text.as_bytes(),
            steps: text.len() * STEPS_PER_BYTE + STEPS_MIN,
            here: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Every place of a form, or `None` if that takes too long.
    pub(super) fn every(&mut self, form: &str) -> Option<Vec<Range<usize>>> {
        let mut places = Vec::new();
        let mut start = 0;
        while start < self.text.len() {
            let read = if self.may_begin(form, start) {
                self.read(form, start)
            } else {
                Read::Not
            };
            match read {
                Read::To(end) => {
                    places.push(start..end);
                    start = end;
                }
                Read::Not | Read::Cut(_) => start += 1,
                Read::TooLong => return None,
            }
        }
        Some(places)
    }

    /// Whether a form can stand at a place by the byte that is there: most bytes are passed over.
    pub(super) fn may_begin(&self, form: &str, at: usize) -> bool {
        let byte = self.text.get(at);
        byte == form.as_bytes().first()
            || matches!(
                (byte, form.as_bytes().first()),
                (Some(b'%' | b'\\'), _) | (Some(b'+'), Some(b' ')) | (Some(b'\''), Some(b'`'))
            )
    }

    pub(super) fn read(&mut self, form: &str, start: usize) -> Read {
        self.here.clear();
        self.here.push(start);
        for (count, character) in form.chars().enumerate() {
            self.next.clear();
            let mut is_cut = false;
            for &at in &self.here {
                let Some(left) = self.steps.checked_sub(1) else {
                    return Read::TooLong;
                };
                self.steps = left;
                after(self.text, at, character, &mut self.next);
                is_cut |= is_cut_at(self.text, at);
            }
            if self.next.is_empty() {
                return if is_cut { Read::Cut(count) } else { Read::Not };
            }
            self.next.sort_unstable();
            self.next.dedup();
            std::mem::swap(&mut self.here, &mut self.next);
        }
        // The furthest, so that nothing of it is left.
        self.here.last().map_or(Read::Not, |end| Read::To(*end))
    }
}

/// Whether a text ends here, or in the midst of an escape that begins here.
fn is_cut_at(text: &[u8], at: usize) -> bool {
    let rest = text.get(at..).unwrap_or_default();
    let is_escape = |byte: &u8| byte.is_ascii_hexdigit() || b"%\\u{x".contains(byte);
    rest.is_empty()
        || (matches!(rest.first(), Some(b'%' | b'\\'))
            && rest.len() <= CUT_BYTES_MAX
            && rest.iter().all(is_escape))
}

/// Finds where a text goes on after a character, in whichever ways that stands there.
fn after(text: &[u8], at: usize, character: char, found: &mut Vec<usize>) {
    plain(text, at, character, found);
    match character {
        // In a form.
        ' ' => plain(text, at, '+', found),
        // As our own connectors quote.
        '`' => plain(text, at, '\'', found),
        _ => {}
    }
    if !matches!(text.get(at), Some(b'%' | b'\\')) {
        return;
    }
    let mut run = 0;
    let mut at = at;
    while let Some(next) = backslash(text, at).filter(|_| run < BACKSLASHES_MAX) {
        run += 1;
        at = next;
        if character == '\\' && run.is_power_of_two() {
            found.push(at);
        }
    }
    if run > 0 {
        escaped(text, at, character, found);
    }
}

/// The character as it is, or with its bytes as an address has them.
fn plain(text: &[u8], at: usize, character: char, found: &mut Vec<usize>) {
    let mut bytes = [0; 4];
    let bytes = character.encode_utf8(&mut bytes).as_bytes();
    if text.get(at..).is_some_and(|rest| rest.starts_with(bytes)) {
        found.push(at + bytes.len());
    }
    match bytes {
        [byte] => found.extend(percent(text, at, *byte)),
        bytes => found.extend(
            bytes
                .iter()
                .try_fold(at, |at, byte| percent(text, at, *byte).next()),
        ),
    }
}

/// Where a text goes on after `%2F`, `%252f` or the like.
fn percent(text: &[u8], at: usize, byte: u8) -> impl Iterator<Item = usize> {
    let digits = move |from: usize| hex(text, from, from + 2);
    let begin = (text.get(at) == Some(&b'%')).then_some(at + 1);
    // A percent sign that was escaped itself leaves a `25` behind it.
    let nested = iter::successors(begin, move |from| {
        (digits(*from) == Some(0x25)).then_some(from + 2)
    });
    let nested = nested.take(NESTED_MAX);
    nested.filter_map(move |from| (digits(from) == Some(u32::from(byte))).then_some(from + 2))
}

/// One backslash, which may itself stand in an address.
fn backslash(text: &[u8], at: usize) -> Option<usize> {
    if text.get(at) == Some(&b'\\') {
        return Some(at + 1);
    }
    percent(text, at, b'\\').next()
}

/// The character behind its backslash, as JSON and some programs' own notations have it.
fn escaped(text: &[u8], at: usize, character: char, found: &mut Vec<usize>) {
    let letter = match character {
        '\n' => Some('n'),
        '\r' => Some('r'),
        '\t' => Some('t'),
        '\u{8}' => Some('b'),
        '\u{c}' => Some('f'),
        '\0' => Some('0'),
        '"' | '/' | '\'' => Some(character),
        _ => None,
    };
    if let Some(letter) = letter {
        plain(text, at, letter, found);
    }
    let code = u32::from(character);
    match text.get(at) {
        Some(b'x') if hex(text, at + 1, at + 3) == Some(code) => found.push(at + 3),
        Some(b'u') if text.get(at + 1) == Some(&b'{') => {
            let rest = text.get(at + 2..).unwrap_or_default();
            let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit());
            let end = at + 2 + digits.count();
            if hex(text, at + 2, end) == Some(code) && text.get(end) == Some(&b'}') {
                found.push(end + 1);
            }
        }
        Some(b'u') => found.extend(units(text, at, character)),
        _ => {}
    }
}

/// `u00e9`, or two of these with a backslash between them.
fn units(text: &[u8], at: usize, character: char) -> Option<usize> {
    let mut units = [0; 2];
    let units = character.encode_utf16(&mut units);
    let mut at = at;
    for (count, unit) in units.iter().enumerate() {
        if count > 0 {
            let begin = at;
            while let Some(next) = backslash(text, at).filter(|at| at - begin <= BACKSLASHES_MAX) {
                at = next;
            }
        }
        let is_unit = text.get(at) == Some(&b'u');
        let digits = hex(text, at + 1, at + 5);
        at = (is_unit && digits == Some(u32::from(*unit))).then_some(at + 5)?;
    }
    Some(at)
}

fn hex(text: &[u8], from: usize, to: usize) -> Option<u32> {
    let digits = text.get(from..to)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
