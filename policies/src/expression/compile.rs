//! From the text of an expression to its checked form, or to the place that is wrong.
//!
//! The grammar is CEL's, read by the `cel` crate; what is taken of it is decided here. A word, a
//! function or a mix of kinds that cannot be judged is refused, because at run time it would block
//! whatever the action is. Comprehensions are read from the calls they are written as, so the
//! parser expands no macros.

mod calls;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::Env;
use cel::common::ast::{Expr, LiteralValue, SelectExpr, SourceInfo};
use cel::parser::Expression as Node;
use serde_json::Value;

use super::kinds::{Kinds, Shape};
use super::term::{ACTION_FIELDS, EVENT_FIELDS, Fact, Literal, Term, VARIABLES};
use super::{ExpressionError, Path};
use crate::error::shown;
use crate::room;

/// The longest expression, in bytes: a page of text. What is longer belongs into several rules.
pub const EXPRESSION_BYTES_MAX: usize = 2_048;

/// How deep an expression may nest: far beyond what a person can read, far below any stack.
const DEPTH_MAX: usize = 48;

/// How many brackets may be open at once. The generated parser takes some 150 KiB of stack for each
/// in a debug build, so this is also what keeps a rule file from ending the process.
const BRACKETS_MAX: usize = 24;

/// How many comprehensions may stand inside each other. Steps bound what they cost; this bounds
/// what a reader has to follow.
const COMPREHENSIONS_MAX: usize = 2;

/// What parsing yields.
#[derive(Debug)]
pub(crate) struct Parsed {
    node: Node,
    source: SourceInfo,
}

/// What compiling yields.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) term: Term,
    pub(super) reads: BTreeSet<Path>,
}

/// Compiles `text`; `args` is the JSON Schema that arguments fit, where one is known.
pub(super) fn compile(text: &str, args: Option<&Value>) -> Result<Compiled, ExpressionError> {
    if text.trim().is_empty() {
        return Err(ExpressionError::new(
            0,
            "the expression is empty",
            "remove it",
        ));
    }
    if text.len() > EXPRESSION_BYTES_MAX {
        let problem = format!("the expression is longer than {EXPRESSION_BYTES_MAX} bytes");
        return Err(ExpressionError::new(0, problem, "write several rules"));
    }
    if let Some(at) = too_many_brackets(text) {
        let problem = format!("more than {BRACKETS_MAX} brackets are open");
        return Err(ExpressionError::new(at, problem, "write several rules"));
    }
    room::loading(|| {
        // A generated parser is a large thing to trust; its panic is a refusal like any other.
        let compiled = catch_unwind(AssertUnwindSafe(|| compile_here(text, args)));
        compiled.unwrap_or_else(|_| {
            let problem = "the expression cannot be read";
            Err(ExpressionError::new(0, problem, "write it more simply"))
        })
    })
}

fn compile_here(text: &str, args: Option<&Value>) -> Result<Compiled, ExpressionError> {
    let parsed = room::parsed(text, parse)?;
    let mut compiler = Compiler {
        source: &parsed.source,
        args,
        locals: Vec::new(),
        reads: BTreeSet::new(),
    };
    let (term, shape) = compiler.node(&parsed.node, 0)?;
    if !shape.kinds.meets(Kinds::BOOL) {
        return Err(ExpressionError::new(
            0,
            format!("the expression comes to {}, not to a bool", shape.kinds),
            "write a comparison, or something else that is true or false",
        ));
    }
    let reads = compiler.reads;
    Ok(Compiled { term, reads })
}

/// Where one bracket too many opens, brackets inside strings included: a bound need not be exact.
fn too_many_brackets(text: &str) -> Option<usize> {
    let mut open: usize = 0;
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > BRACKETS_MAX {
            return Some(at);
        }
    }
    None
}

fn parse(text: &str) -> Result<Parsed, ExpressionError> {
    let parser = Env::default()
        .with_optional_support(false)
        .parser()
        .max_recursion_depth(u16::try_from(DEPTH_MAX).unwrap_or(u16::MAX));
    let remedy = "correct it there; the language is CEL";
    let errors = match parser.parse_with_source_info(text) {
        Ok((node, source)) => return Ok(Parsed { node, source }),
        Err(errors) => errors.errors,
    };
    let Some(first) = errors.first() else {
        let problem = "the expression cannot be read";
        return Err(ExpressionError::new(0, problem, remedy));
    };
    // The list of every token that could have stood there helps nobody.
    let problem = first.msg.trim_start_matches("Syntax error: ");
    let problem = problem.split(" expecting ").next().unwrap_or(problem);
    let at = offset_of(text, first.pos);
    Err(ExpressionError::new(at, shown(problem), remedy))
}

/// The byte at a line and column, both counted from 1, the column in characters.
fn offset_of(text: &str, (line, column): (isize, isize)) -> usize {
    let before = usize::try_from(line.saturating_sub(1)).unwrap_or_default();
    let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    let along = usize::try_from(column.saturating_sub(1)).unwrap_or_default();
    let rest = text.get(start..).unwrap_or_default();
    start + rest.chars().take(along).map(char::len_utf8).sum::<usize>()
}

struct Compiler<'s> {
    source: &'s SourceInfo,
    args: Option<&'s Value>,
    locals: Vec<(String, Shape<'s>)>,
    reads: BTreeSet<Path>,
}

type Typed<'s> = Result<(Term, Shape<'s>), ExpressionError>;

impl<'s> Compiler<'s> {
    fn refuse(&self, node: &Node, problem: impl Into<String>, remedy: &str) -> ExpressionError {
        let (start, _) = self.source.offset_for(node.id).unwrap_or_default();
        ExpressionError::new(usize::try_from(start).unwrap_or_default(), problem, remedy)
    }

    fn node(&mut self, node: &Node, depth: usize) -> Typed<'s> {
        if depth > DEPTH_MAX {
            let problem = "the expression nests too deep";
            return Err(self.refuse(node, problem, "write several rules"));
        }
        match &node.expr {
            Expr::Literal(literal) => self.literal(node, literal),
            Expr::Ident(name) => self.name(node, name),
            Expr::Select(select) => self.select(node, select, depth),
            Expr::Call(call) => self.call(node, call, depth),
            Expr::List(list) => {
                let mut terms = Vec::with_capacity(list.elements.len());
                let mut items = Kinds::NONE;
                for element in &list.elements {
                    let (term, shape) = self.node(element, depth + 1)?;
                    items = items.or(shape.kinds);
                    terms.push(term);
                }
                Ok((Term::List(terms), Shape::list(items)))
            }
            Expr::Map(_) | Expr::Struct(_) => {
                let problem = "a map cannot be written in a rule";
                Err(self.refuse(node, problem, "compare its fields one by one"))
            }
            Expr::Comprehension(_) | Expr::Unspecified => {
                let problem = "this cannot be judged";
                Err(self.refuse(node, problem, "write it in another way"))
            }
        }
    }

    fn literal(&self, node: &Node, literal: &LiteralValue) -> Typed<'s> {
        let (literal, kinds) = match literal {
            LiteralValue::Null => (Literal::Null, Kinds::NULL),
            LiteralValue::Boolean(value) => (Literal::Bool(*value.inner()), Kinds::BOOL),
            LiteralValue::Int(number) => (Literal::Int(*number.inner()), Kinds::INT),
            LiteralValue::Double(number) if number.inner().is_finite() => {
                (Literal::Double(*number.inner()), Kinds::DOUBLE)
            }
            LiteralValue::String(text) => (Literal::Text(text.inner().into()), Kinds::TEXT),
            LiteralValue::Double(_) => {
                return Err(self.refuse(node, "the number is not finite", "write a finite one"));
            }
            LiteralValue::UInt(_) | LiteralValue::Bytes(_) => {
                let problem = "actions hold no such values";
                let remedy = "write an int, a double or a string";
                return Err(self.refuse(node, problem, remedy));
            }
        };
        Ok((Term::Literal(literal), Shape::of(kinds)))
    }

    /// A name that stands alone.
    fn name(&mut self, node: &Node, name: &str) -> Typed<'s> {
        if let Some(found) = self.local(name) {
            return Ok(found);
        }
        if let Some(fact) = Fact::variable(name) {
            return Ok(self.fact(fact, name));
        }
        if name == "action" {
            let problem = "`action` is read by its fields";
            let remedy = format!("write `action.` and one of: {ACTION_FIELDS}");
            return Err(self.refuse(node, problem, &remedy));
        }
        Err(self.unknown(node, name))
    }

    fn unknown(&self, node: &Node, name: &str) -> ExpressionError {
        let problem = format!("there is no variable `{}`", shown(name));
        let remedy = format!("write one of: {VARIABLES}");
        self.refuse(node, problem, &remedy)
    }

    fn local(&self, name: &str) -> Option<(Term, Shape<'s>)> {
        let found = self.locals.iter().enumerate().rev();
        found
            .filter(|(_, (local, _))| local == name)
            .map(|(place, (_, shape))| (Term::Local(place), *shape))
            .next()
    }

    fn fact(&mut self, fact: Fact, text: &str) -> (Term, Shape<'s>) {
        self.reads.insert(Path {
            fact,
            fields: Vec::new(),
            text: text.to_owned(),
        });
        (Term::Fact(fact), self.shape_of(fact))
    }

    fn shape_of(&self, fact: Fact) -> Shape<'s> {
        match (fact, self.args) {
            (Fact::Args, Some(schema)) => Shape {
                kinds: Kinds::MAP,
                ..Shape::of_schema(schema)
            },
            (fact, _) => Shape::of(fact.kinds()),
        }
    }

    /// `a.b.c`, taken whole so that what it reads is known to its last field.
    fn select(&mut self, node: &Node, select: &SelectExpr, depth: usize) -> Typed<'s> {
        let mut fields = vec![(node, select.field.as_str())];
        let mut root = &*select.operand;
        while let Expr::Select(inner) = &root.expr {
            fields.push((root, inner.field.as_str()));
            root = &inner.operand;
        }
        fields.reverse();
        if depth + fields.len() > DEPTH_MAX {
            let problem = "the expression nests too deep";
            return Err(self.refuse(node, problem, "write several rules"));
        }
        let (mut term, mut shape, taken) = match &root.expr {
            Expr::Ident(name) if self.local(name).is_none() => self.rooted(root, name, &fields)?,
            _ => {
                let (term, shape) = self.node(root, depth + fields.len())?;
                (term, shape, 0)
            }
        };
        for (node, field) in fields.into_iter().skip(taken) {
            shape = self.field_shape(node, field, shape)?;
            term = Term::Field(Box::new(term), Arc::from(field));
        }
        Ok((term, shape))
    }

    /// A chain of fields from a variable: the variable, and how many fields it took up.
    fn rooted(
        &mut self,
        root: &Node,
        name: &str,
        fields: &[(&Node, &str)],
    ) -> Result<(Term, Shape<'s>, usize), ExpressionError> {
        let of_record = match name {
            "action" => Some((Fact::of_action as fn(&str) -> Option<Fact>, ACTION_FIELDS)),
            "event" => Some((Fact::of_event as fn(&str) -> Option<Fact>, EVENT_FIELDS)),
            _ => None,
        };
        let (fact, taken) = match (of_record, fields.first()) {
            (Some((find, known)), Some((node, field))) => {
                let Some(fact) = find(field) else {
                    let problem = format!("`{name}` has no field `{}`", shown(field));
                    let remedy = format!("write one of: {known}");
                    return Err(self.refuse(node, problem, &remedy));
                };
                (fact, 1)
            }
            _ => match Fact::variable(name) {
                Some(fact) => (fact, 0),
                None => return Err(self.unknown(root, name)),
            },
        };
        let names: Vec<&str> = fields.iter().map(|(_, field)| *field).collect();
        self.reads.insert(Path {
            fact,
            fields: names.iter().skip(taken).map(|s| (*s).to_owned()).collect(),
            text: format!("{name}.{}", names.join(".")),
        });
        Ok((Term::Fact(fact), self.shape_of(fact), taken))
    }

    fn field_shape(
        &self,
        node: &Node,
        field: &str,
        shape: Shape<'s>,
    ) -> Result<Shape<'s>, ExpressionError> {
        if !shape.kinds.meets(Kinds::MAP) {
            let problem = format!("`.{}` is asked of {}", shown(field), shape.kinds);
            return Err(self.refuse(node, problem, "only a map has fields"));
        }
        shape.field(field).ok_or_else(|| {
            let problem = format!("the tool's arguments have no `{}`", shown(field));
            self.refuse(
                node,
                problem,
                "write a name that the tool's schema declares",
            )
        })
    }
}
