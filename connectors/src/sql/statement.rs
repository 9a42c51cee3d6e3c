//! One statement with places for values: found where code stands, and only ever bound.
//!
//! Owns the reading of a statement's text. A placeholder inside quotes or a comment is refused,
//! because nothing can be bound there.

use std::time::Duration;

use serde_json::Value;

use operators_kernel::{self as kernel, Call};

use crate::sql::Job;
use crate::template::{Part, Placeholder, Template};

/// Words that would end our own transaction, or begin another.
const WORDS_REFUSED: [&str; 8] = [
    "begin",
    "start",
    "commit",
    "end",
    "rollback",
    "savepoint",
    "release",
    "abort",
];

/// How a database writes the place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// A compiled statement.
#[derive(Debug)]
pub(crate) struct Statement {
    text: String,
    values: Vec<Placeholder>,
    returns: bool,
    /// It inserts, updates, deletes or merges.
    pub(crate) writes: bool,
}

impl Statement {
    /// Reads the text; the error says what is wrong and what would be right.
    pub(crate) fn compile(text: &str, dialect: Dialect) -> Result<Self, String> {
        let template = Template::parse(text)?;
        let (mut code, mut values) = (String::new(), Vec::new());
        let mut reader = Reader::default();
        for part in template.parts() {
            match part {
                Part::Literal(literal) => {
                    reader.read(literal, dialect)?;
                    code.push_str(literal);
                }
                Part::Placeholder(placeholder) => {
                    if !matches!(reader.inside, Inside::Code) {
                        return Err(format!(
                            "`{{{}}}` stands inside quotes or a comment, where no value can be \
                             bound; take the quotes away",
                            placeholder.name()
                        ));
                    }
                    // It is a value, so a `;` before it ends a statement after which more comes.
                    reader.more()?;
                    let known = values.iter().position(|known| known == placeholder);
                    let at = known.unwrap_or_else(|| {
                        values.push(placeholder.clone());
                        values.len() - 1
                    });
                    code.push(match dialect {
                        Dialect::Sqlite => '?',
                        Dialect::Postgres => '$',
                    });
                    code.push_str(&(at + 1).to_string());
                }
            }
        }
        if !matches!(reader.inside, Inside::Code | Inside::Line) {
            return Err("ends inside quotes or a comment".to_owned());
        }
        let first = reader.words.first().map_or("", String::as_str);
        if first.is_empty() {
            return Err("is empty".to_owned());
        }
        if WORDS_REFUSED.contains(&first) {
            return Err(format!(
                "`{first}` is ours: each call is one transaction of its own"
            ));
        }
        let returns = matches!(first, "select" | "values" | "table")
            || reader.words.iter().any(|word| word == "returning")
            || (first == "with" && !reader.words.iter().any(|word| is_write(word)));
        Ok(Self {
            text: code.trim().trim_end_matches(';').to_owned(),
            values,
            returns,
            writes: is_write(first)
                || (first == "with" && reader.words.iter().any(|word| is_write(word))),
        })
    }

    /// Whether something of that schema is named, quoted or not. It may see one where there is none,
    /// in a text for instance; it overlooks none that is written out.
    pub(crate) fn names_schema(&self, schema: &str) -> bool {
        names_schema(&self.text, schema)
    }

    /// What a call makes of it. The error is a sentence without any value.
    pub(crate) fn job(
        &self,
        call: &Call,
        reads: bool,
        expect_rows: Option<u64>,
        max_land: Duration,
    ) -> Result<Job, String> {
        let values = self.values.iter().map(|place| value(place, call));
        Ok(Job {
            statement: kernel::Statement {
                text: self.text.clone(),
                values: values.collect::<Result<_, _>>()?,
                reads,
                returns: self.returns,
                deadline: call.deadline,
            },
            expect_rows,
            max_land,
            permit: call.permit.clone(),
        })
    }
}

/// The same of a statement's text.
pub(crate) fn names_schema(text: &str, schema: &str) -> bool {
    let is_kept = |c: &char| !c.is_whitespace() && *c != '"';
    let dense: String = text.to_lowercase().chars().filter(is_kept).collect();
    dense.contains(&format!("{schema}."))
}

fn is_write(word: &str) -> bool {
    matches!(word, "insert" | "update" | "delete" | "merge" | "replace")
}

/// A missing argument is `NULL`: an optional one is bound like any other.
fn value(place: &Placeholder, call: &Call) -> Result<Value, String> {
    if let Placeholder::Arg(path) = place {
        let found = crate::template::lookup(call, path);
        return Ok(found.cloned().unwrap_or(Value::Null));
    }
    place.json(call)
}

/// Where in a statement's text a reader is.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum Inside {
    #[default]
    Code,
    /// `'…'`, `"…"`, `` `…` ``
    Quotes(char),
    /// `-- …`
    Line,
    /// `/* … */`, as deep as they are nested.
    Block(usize),
    /// `$tag$ … $tag$`
    Dollars(String),
}

/// Reads a text piece by piece and knows where code stands.
#[derive(Debug, Default)]
struct Reader {
    inside: Inside,
    words: Vec<String>,
    ended: bool,
}

impl Reader {
    fn read(&mut self, text: &str, dialect: Dialect) -> Result<(), String> {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let taken = match self.inside.clone() {
                Inside::Code => self.code(rest, c, dialect)?,
                Inside::Quotes(quote) => {
                    if c == quote {
                        self.inside = Inside::Code;
                    } else if c == '\\' && dialect == Dialect::Postgres && quote == '\'' {
                        return Err(
                            "holds a backslash inside quotes, which databases read differently; \
                             bind the text as a value"
                                .to_owned(),
                        );
                    }
                    c.len_utf8()
                }
                Inside::Line => {
                    if c == '\n' {
                        self.inside = Inside::Code;
                    }
                    c.len_utf8()
                }
                Inside::Block(depth) => self.block(rest, c, depth, dialect),
                Inside::Dollars(tag) => {
                    if rest.starts_with(&tag) {
                        self.inside = Inside::Code;
                        tag.len()
                    } else {
                        c.len_utf8()
                    }
                }
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// Something that is neither space nor comment: not allowed once the statement ended.
    fn more(&self) -> Result<(), String> {
        if self.ended {
            return Err("is more than one statement; make a tool of each".to_owned());
        }
        Ok(())
    }

    fn block(&mut self, rest: &str, c: char, depth: usize, dialect: Dialect) -> usize {
        if rest.starts_with("*/") {
            self.inside = match depth {
                0 | 1 => Inside::Code,
                deeper => Inside::Block(deeper - 1),
            };
            return 2;
        }
        if rest.starts_with("/*") && dialect == Dialect::Postgres {
            self.inside = Inside::Block(depth + 1);
            return 2;
        }
        c.len_utf8()
    }

    fn code(&mut self, rest: &str, c: char, dialect: Dialect) -> Result<usize, String> {
        if rest.starts_with("--") {
            self.inside = Inside::Line;
            return Ok(2);
        }
        if rest.starts_with("/*") {
            self.inside = Inside::Block(1);
            return Ok(2);
        }
        if c.is_whitespace() {
            return Ok(c.len_utf8());
        }
        if c == ';' {
            self.ended = true;
            return Ok(1);
        }
        self.more()?;
        match c {
            '\'' | '"' | '`' => self.inside = Inside::Quotes(c),
            '?' | '$' | ':' | '@' => return self.place(rest, c, dialect),
            c if c.is_alphabetic() || c == '_' => {
                let word: String = rest
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                self.words.push(word.to_lowercase());
                return Ok(word.len());
            }
            _ => {}
        }
        Ok(c.len_utf8())
    }

    /// Where a database itself would take a value from, or a dollar quote begins.
    fn place(&mut self, rest: &str, c: char, dialect: Dialect) -> Result<usize, String> {
        if rest.starts_with("::") {
            return Ok(2);
        }
        if c == '$' && dialect == Dialect::Postgres {
            let after = rest.get(1..).unwrap_or_default();
            if let Some((tag, _)) = after.split_once('$')
                && tag.chars().all(|c| c.is_alphanumeric() || c == '_')
                && !tag.starts_with(|c: char| c.is_ascii_digit())
            {
                let quote = format!("${tag}$");
                let length = quote.len();
                self.inside = Inside::Dollars(quote);
                return Ok(length);
            }
        }
        let next = rest.chars().nth(1).unwrap_or(' ');
        let is_place = match c {
            // Operators of Postgres on JSON are `?`, `@>` and the like.
            '?' | '@' => dialect == Dialect::Sqlite,
            _ => next.is_alphanumeric() || next == '_',
        };
        if is_place {
            return Err(format!(
                "`{c}` begins a parameter of the database's own; write `{{args.NAME}}`"
            ));
        }
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str, dialect: Dialect) -> Result<String, String> {
        Statement::compile(text, dialect).map(|statement| statement.text)
    }

    #[test]
    fn values_become_numbered_places() {
        let statement = "UPDATE t SET a = {args.a}, b = {args.b.c} WHERE k = {args.a};";
        assert_eq!(
            text(statement, Dialect::Sqlite).expect("compiles"),
            "UPDATE t SET a = ?1, b = ?2 WHERE k = ?1"
        );
        assert_eq!(
            text(statement, Dialect::Postgres).expect("compiles"),
            "UPDATE t SET a = $1, b = $2 WHERE k = $1"
        );
        let quiet = "SELECT 'a;b', \"c--\" /* {x */ FROM t -- ok\n WHERE a = {args.a}::int";
        assert!(text(&quiet.replace("{x ", ""), Dialect::Postgres).is_ok());
    }

    #[test]
    fn what_cannot_be_bound_or_is_not_one_statement_is_refused() {
        for (bad, wanted) in [
            ("", "is empty"),
            (" -- nothing", "is empty"),
            ("SELECT '{args.a}'", "inside quotes"),
            ("SELECT \"{args.a}\"", "inside quotes"),
            ("SELECT 1 -- {args.a}", "inside quotes or a comment"),
            ("SELECT 1 /* {args.a} */", "inside quotes or a comment"),
            ("SELECT $$ {args.a} $$", "inside quotes"),
            ("SELECT $x$ {args.a} $x$", "inside quotes"),
            ("SELECT 1; DROP TABLE t", "more than one statement"),
            ("SELECT 1; {args.a}", "more than one statement"),
            ("SELECT 'a", "ends inside quotes"),
            ("SELECT 1 /* a", "ends inside quotes or a comment"),
            ("SELECT E'\\' {args.a}'", "backslash"),
            ("COMMIT", "`commit` is ours"),
            ("begin", "`begin` is ours"),
            ("SELECT $1", "write `{args.NAME}`"),
            ("SELECT :a", "write `{args.NAME}`"),
            ("SELECT {args}", "unknown placeholder"),
        ] {
            let error = text(bad, Dialect::Postgres).expect_err(bad);
            assert!(error.contains(wanted), "{bad}: {error}");
        }
        assert!(text("SELECT ?", Dialect::Sqlite).is_err());
        assert!(text("SELECT @a", Dialect::Sqlite).is_err());
    }

    #[test]
    fn a_statement_that_answers_with_rows_is_known() {
        for (statement, returns) in [
            ("SELECT 1", true),
            ("WITH a AS (SELECT 1) SELECT * FROM a", true),
            ("INSERT INTO t VALUES (1)", false),
            ("INSERT INTO t VALUES (1) RETURNING id", true),
            ("UPDATE t SET a = 'returning'", false),
        ] {
            let compiled = Statement::compile(statement, Dialect::Sqlite).expect(statement);
            assert_eq!(compiled.returns, returns, "{statement}");
        }
    }
}
