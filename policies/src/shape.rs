//! The shape of a rule file: which fields stand where, and what each of them holds.
//!
//! Asked only about a file that could not be read as one: the reader stops at the first thing it
//! does not know, and whoever writes a policy wants to be told of all of them.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::shown;

/// What a field holds.
#[derive(Clone, Copy)]
enum Holds {
    Text,
    Texts,
    /// Its meaning is checked elsewhere.
    Anything,
    Table(&'static str, Fields),
    Tables(&'static str, Fields),
}

type Fields = &'static [(&'static str, Holds, Presence)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

use Holds::{Anything, Table, Tables, Text, Texts};
use Presence::{Optional, Required};

const FILE: Fields = &[
    ("policy", Text, Required),
    ("version", Anything, Required),
    ("applies_to", Texts, Optional),
    ("rule", Tables("the fields of a rule", RULE), Optional),
];

const RULE: Fields = &[
    ("name", Text, Required),
    ("connector", Text, Optional),
    ("tool", Text, Optional),
    ("decision", Text, Required),
    ("if", Text, Optional),
    ("require", Text, Optional),
    ("max_value", Anything, Optional),
    (
        "limit",
        Table("a limit's `max`, `per` and `by`", LIMIT),
        Optional,
    ),
    ("alert", Text, Optional),
];

const LIMIT: Fields = &[
    ("max", Anything, Required),
    ("per", Text, Required),
    ("by", Text, Required),
];

/// What is wrong with the shape of a file, with the places, in their order; nothing if it is not
/// TOML at all.
pub(crate) fn problems(text: &str) -> Vec<(usize, String)> {
    let mut problems = Vec::new();
    if let Ok(file) = DeTable::parse(text) {
        table(file.get_ref(), file.span(), FILE, &mut problems);
    }
    problems.sort();
    problems
}

fn table(
    found: &DeTable<'_>,
    span: Range<usize>,
    fields: Fields,
    problems: &mut Vec<(usize, String)>,
) {
    for (name, value) in found {
        let known = fields.iter().find(|(known, ..)| known == name.get_ref());
        if let Some((_, holds, _)) = known {
            held(value, *holds, problems);
            continue;
        }
        let known: Vec<String> = fields.iter().map(|f| format!("`{}`", f.0)).collect();
        let (name, at) = (shown(name.get_ref()), name.span().start);
        let problem = format!(
            "unknown field `{name}`, expected one of {}",
            known.join(", ")
        );
        problems.push((at, problem));
    }
    for (name, _, presence) in fields {
        if *presence == Required && !found.contains_key(*name) {
            problems.push((span.start, format!("missing field `{name}`")));
        }
    }
}

fn held(value: &Spanned<DeValue<'_>>, holds: Holds, problems: &mut Vec<(usize, String)>) {
    let mut expected = |what: &str| {
        let problem = format!(
            "invalid type: {}, expected {what}",
            value.get_ref().type_str()
        );
        problems.push((value.span().start, problem));
    };
    match (holds, value.get_ref()) {
        (Anything, _) | (Text, DeValue::String(_)) => {}
        (Text, _) => expected("a string"),
        (Texts, DeValue::Array(texts)) => {
            for text in texts {
                held(text, Text, problems);
            }
        }
        (Texts, _) => expected("a list of strings"),
        (Table(_, fields), DeValue::Table(found)) => table(found, value.span(), fields, problems),
        (Table(what, _), _) => expected(what),
        (Tables(what, fields), DeValue::Array(tables)) => {
            for one in tables {
                held(one, Table(what, fields), problems);
            }
        }
        (Tables(..), _) => expected("a list of tables, as in `[[rule]]`"),
    }
}
