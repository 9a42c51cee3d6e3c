//! Why a rule file does not load: which file, where in it, and what to do.
//!
//! Owns the error and how foreign text is shown in it. It must not know what a rule means.

use std::path::{Path, PathBuf};

use operators_kernel::KEY_BYTES_MAX;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

/// A rule file that cannot be used. Nothing runs under a set that holds one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file as a whole: there is no place in it to point at.
    #[error("{}: {problem}; {remedy}", shown_path(file))]
    File {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// A place in the file.
    #[error("{}:{line}:{column}: {problem}; {remedy}", shown_path(file))]
    Text {
        /// Which file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// What is wrong there.
        problem: String,
        /// What to do.
        remedy: String,
    },
}

impl PolicyError {
    pub(crate) fn whole(file: &Path, problem: impl Into<String>, remedy: &str) -> Self {
        Self::File {
            file: file.to_owned(),
            problem: problem.into(),
            remedy: remedy.to_owned(),
        }
    }

    /// The file that does not load.
    pub fn file(&self) -> &Path {
        match self {
            Self::File { file, .. } | Self::Text { file, .. } => file,
        }
    }

    /// Line and column, counted from 1; `None` when the file as a whole is at fault.
    pub fn place(&self) -> Option<(usize, usize)> {
        match self {
            Self::File { .. } => None,
            Self::Text { line, column, .. } => Some((*line, *column)),
        }
    }

    /// What is wrong.
    pub fn problem(&self) -> &str {
        match self {
            Self::File { problem, .. } | Self::Text { problem, .. } => problem,
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &str {
        match self {
            Self::File { remedy, .. } | Self::Text { remedy, .. } => remedy,
        }
    }
}

/// Everything that is wrong with one rule file, in the order in which it was found; never nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyProblems {
    /// The first.
    pub first: PolicyError,
    /// And those after it.
    pub more: Vec<PolicyError>,
}

impl PolicyProblems {
    /// `None` when there are none.
    pub(crate) fn of(mut problems: Vec<PolicyError>) -> Option<Self> {
        if problems.is_empty() {
            return None;
        }
        let first = problems.remove(0);
        let more = problems;
        Some(Self { first, more })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &PolicyError> {
        std::iter::once(&self.first).chain(&self.more)
    }
}

impl From<PolicyError> for PolicyProblems {
    fn from(first: PolicyError) -> Self {
        let more = Vec::new();
        Self { first, more }
    }
}

/// What is wrong with a name that receipts and terminals show: it has to be seen as it is.
pub(crate) fn label_problem(text: &str) -> Option<String> {
    let hidden = |character: &char| {
        matches!(
            character.general_category(),
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
        )
    };
    if text.trim().is_empty() {
        return Some("is empty".to_owned());
    }
    if text.trim() != text {
        return Some("has a space at its start or end".to_owned());
    }
    if text.len() > KEY_BYTES_MAX {
        return Some(format!("is longer than {KEY_BYTES_MAX} bytes"));
    }
    let character = text.chars().find(hidden)?;
    Some(format!(
        "has an invisible character (U+{:04X})",
        u32::from(character)
    ))
}

/// Foreign text on one line: what a terminal would act on or hide is written out as `\u{…}`.
pub(crate) fn shown(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // `escape_debug` would escape these too, and they are harmless.
            '\'' | '"' | '\\' => line.push(character),
            _ => line.extend(character.escape_debug()),
        }
    }
    line
}

pub(crate) fn shown_path(file: &Path) -> String {
    shown(&file.to_string_lossy())
}

/// A text and where its lines start: a large file has many places to tell.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        let starts = std::iter::once(0).chain(after_newlines).collect();
        Self { text, starts }
    }

    /// Line and column of a byte offset, both counted from 1, the column in characters.
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied();
        let end = self.text.floor_char_boundary(offset);
        let before = self.text.get(start.unwrap_or_default()..end);
        (line, before.unwrap_or_default().chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let lines = Lines::of("ab\nκλ=1\n");
        assert_eq!(lines.place(0), (1, 1));
        assert_eq!(lines.place(3), (2, 1));
        assert_eq!(lines.place(7), (2, 3));
        assert_eq!(lines.place(6), (2, 2), "inside a character");
        assert_eq!(lines.place(99), (3, 1));
    }

    #[test]
    fn foreign_text_stays_on_one_line() {
        assert_eq!(shown("a\nb\u{1b}[31m\u{202e}"), "a\\nb\\u{1b}[31m\\u{202e}");
        assert_eq!(shown("it's \"fine\""), "it's \"fine\"");
    }
}
