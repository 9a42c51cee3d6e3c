//! Operators, functions and comprehensions: which there are, and what each takes.

use std::sync::Arc;

use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};
use cel::parser::Expression as Node;
use regex::RegexBuilder;

use super::{COMPREHENSIONS_MAX, Compiler, Typed};
use crate::error::shown;
use crate::expression::ExpressionError;
use crate::expression::kinds::{Kinds, Operator, Shape};
use crate::expression::term::{Conversion, Fact, Quantifier, Term, TextTest};

/// The largest compiled pattern: room for any real one, none for `(a{1000}){1000}`.
const PATTERN_BYTES_MAX: usize = 64 * 1024;

/// How deep a pattern may nest.
const PATTERN_NEST_MAX: u32 = 32;

const FUNCTIONS: &str = "has, size, contains, startsWith, endsWith, matches, int, double, string, \
     all, exists, exists_one, filter, map";

impl<'s> Compiler<'s> {
    pub(super) fn call(&mut self, node: &Node, call: &CallExpr, depth: usize) -> Typed<'s> {
        let name = call.func_name.as_str();
        match (name, call.target.as_deref(), call.args.as_slice()) {
            (operators::LOGICAL_AND, None, [left, right]) => {
                let [left, right] = self.bools([left, right], depth)?;
                Ok((Term::And(left, right), Shape::of(Kinds::BOOL)))
            }
            (operators::LOGICAL_OR, None, [left, right]) => {
                let [left, right] = self.bools([left, right], depth)?;
                Ok((Term::Or(left, right), Shape::of(Kinds::BOOL)))
            }
            (operators::LOGICAL_NOT, None, [operand]) => {
                let [operand] = self.bools([operand], depth)?;
                Ok((Term::Not(operand), Shape::of(Kinds::BOOL)))
            }
            (operators::NEGATE, None, [operand]) => {
                let (operand, kinds) = self.taking(operand, Kinds::NUMBER, "`-`", depth)?;
                Ok((Term::Negate(operand), Shape::of(kinds.and(Kinds::NUMBER))))
            }
            (operators::CONDITIONAL, None, [asked, yes, no]) => {
                let [asked] = self.bools([asked], depth)?;
                let (yes, yes_shape) = self.node(yes, depth + 1)?;
                let (no, no_shape) = self.node(no, depth + 1)?;
                let shape = Shape {
                    kinds: yes_shape.kinds.or(no_shape.kinds),
                    items: yes_shape.items.or(no_shape.items),
                    schema: None,
                };
                Ok((Term::Choice(asked, Box::new(yes), Box::new(no)), shape))
            }
            (operators::IN, None, [item, whole]) => {
                let (item, _) = self.node(item, depth + 1)?;
                let holders = Kinds::LIST.or(Kinds::MAP);
                let (whole, _) = self.taking(whole, holders, "`in`", depth)?;
                Ok((Term::In(Box::new(item), whole), Shape::of(Kinds::BOOL)))
            }
            (operators::INDEX, None, [whole, index]) => self.index(whole, index, depth),
            ("has", None, [field]) => self.has(node, field, depth),
            ("size", Some(whole), []) | ("size", None, [whole]) => {
                let sized = Kinds::TEXT.or(Kinds::LIST).or(Kinds::MAP);
                let (whole, _) = self.taking(whole, sized, "`size`", depth)?;
                Ok((Term::Size(whole), Shape::of(Kinds::INT)))
            }
            ("int", None, [from]) => self.convert(Conversion::Int, from, depth),
            ("double", None, [from]) => self.convert(Conversion::Double, from, depth),
            ("string", None, [from]) => self.convert(Conversion::Text, from, depth),
            ("matches", Some(text), [pattern]) | ("matches", None, [text, pattern]) => {
                self.matches(text, pattern, depth)
            }
            ("contains", Some(whole), [part]) => {
                self.text_test(TextTest::Contains, name, whole, part, depth)
            }
            ("startsWith", Some(whole), [part]) => {
                self.text_test(TextTest::StartsWith, name, whole, part, depth)
            }
            ("endsWith", Some(whole), [part]) => {
                self.text_test(TextTest::EndsWith, name, whole, part, depth)
            }
            (_, Some(range), [variable, body]) if quantifier(name).is_some() => {
                let quantifier = quantifier(name).unwrap_or(Quantifier::All);
                self.each(quantifier, range, variable, body, depth)
            }
            (_, None, [left, right]) => match operator(name) {
                Some(operator) => self.between(node, operator, left, right, depth),
                None => Err(self.no_function(node, name)),
            },
            _ => Err(self.no_function(node, name)),
        }
    }

    fn no_function(&self, node: &Node, name: &str) -> ExpressionError {
        let known = FUNCTIONS.split(", ").any(|known| known == name);
        let problem = if known {
            format!("`{name}` is called with other arguments than it takes")
        } else {
            format!("there is no function `{}`", shown(name))
        };
        self.refuse(node, problem, &format!("these there are: {FUNCTIONS}"))
    }

    /// An operand that must be able to be one of `wanted`.
    fn taking(
        &mut self,
        node: &Node,
        wanted: Kinds,
        what: &str,
        depth: usize,
    ) -> Result<(Box<Term>, Kinds), ExpressionError> {
        let (term, shape) = self.node(node, depth + 1)?;
        if shape.kinds.meets(wanted) {
            return Ok((Box::new(term), shape.kinds));
        }
        let problem = format!("{what} takes {wanted}, and this is {}", shape.kinds);
        Err(self.refuse(node, problem, "compare or convert it first"))
    }

    fn bools<const N: usize>(
        &mut self,
        nodes: [&Node; N],
        depth: usize,
    ) -> Result<[Box<Term>; N], ExpressionError> {
        let mut terms = Vec::with_capacity(N);
        for node in nodes {
            terms.push(self.taking(node, Kinds::BOOL, "it", depth)?.0);
        }
        let made: Result<[Box<Term>; N], _> = terms.try_into();
        made.map_err(|_| {
            ExpressionError::new(0, "this cannot be judged", "write it in another way")
        })
    }

    fn between(
        &mut self,
        node: &Node,
        operator: Operator,
        left: &Node,
        right: &Node,
        depth: usize,
    ) -> Typed<'s> {
        let (left, left_shape) = self.node(left, depth + 1)?;
        let (right, right_shape) = self.node(right, depth + 1)?;
        let (one, other) = (left_shape.kinds, right_shape.kinds);
        let kinds = operator.result(one, other);
        if kinds == Kinds::NONE {
            let problem = format!("`{}` cannot take {one} and {other}", operator.sign());
            let mixed = one.or(other).meets(Kinds::INT) && one.or(other).meets(Kinds::DOUBLE);
            let remedy = if operator == Operator::Remainder {
                "take whole numbers, as in `int(args.count) % 2`"
            } else if mixed {
                "numbers of an action are doubles: write `2.0`, not `2`"
            } else {
                "compare values of one kind"
            };
            return Err(self.refuse(node, problem, remedy));
        }
        let items = left_shape.items.or(right_shape.items);
        let shape = Shape {
            kinds,
            items,
            schema: None,
        };
        let term = Term::Between(operator, Box::new(left), Box::new(right));
        Ok((term, shape))
    }

    fn text_test(
        &mut self,
        test: TextTest,
        name: &str,
        whole: &Node,
        part: &Node,
        depth: usize,
    ) -> Typed<'s> {
        let name = format!("`{name}`");
        let (whole, _) = self.taking(whole, Kinds::TEXT, &name, depth)?;
        let (part, _) = self.taking(part, Kinds::TEXT, &name, depth)?;
        Ok((Term::TextTest(test, whole, part), Shape::of(Kinds::BOOL)))
    }

    fn index(&mut self, whole: &Node, index: &Node, depth: usize) -> Typed<'s> {
        let (term, shape) = self.node(whole, depth + 1)?;
        let holders = Kinds::LIST.or(Kinds::MAP);
        if !shape.kinds.meets(holders) {
            let problem = format!("`[]` takes {holders}, and this is {}", shape.kinds);
            return Err(self.refuse(whole, problem, "only those have entries"));
        }
        let keys = Kinds::NUMBER.or(Kinds::TEXT);
        let (index, _) = self.taking(index, keys, "`[]`", depth)?;
        let inside = if shape.kinds.meets(Kinds::MAP) {
            Kinds::JSON.or(shape.items)
        } else {
            shape.items
        };
        Ok((Term::Index(Box::new(term), index), Shape::of(inside)))
    }

    fn has(&mut self, node: &Node, field: &Node, depth: usize) -> Typed<'s> {
        let Expr::Select(select) = &field.expr else {
            let problem = "`has` asks for a field";
            return Err(self.refuse(node, problem, "write it as in `has(args.reason)`"));
        };
        // Compiled as a read first: it must be one that could be made.
        let (whole, _) = self.node(field, depth + 1)?;
        let Term::Field(operand, name) = whole else {
            let problem = "it is always there, and may be null";
            let remedy = format!("write `… != null` for `{}`", shown(&select.field));
            return Err(self.refuse(field, problem, &remedy));
        };
        Ok((
            Term::Has(operand, Arc::clone(&name)),
            Shape::of(Kinds::BOOL),
        ))
    }

    fn convert(&mut self, to: Conversion, from: &Node, depth: usize) -> Typed<'s> {
        let (takes, what, yields) = match to {
            Conversion::Int => (Kinds::NUMBER.or(Kinds::TEXT), "`int`", Kinds::INT),
            Conversion::Double => (Kinds::NUMBER.or(Kinds::TEXT), "`double`", Kinds::DOUBLE),
            Conversion::Text => {
                let takes = Kinds::NUMBER.or(Kinds::TEXT).or(Kinds::BOOL);
                (takes, "`string`", Kinds::TEXT)
            }
        };
        let (from, _) = self.taking(from, takes, what, depth)?;
        Ok((Term::Convert(to, from), Shape::of(yields)))
    }

    /// The pattern is text of the rule, never of the action: it is compiled once, here.
    fn matches(&mut self, text: &Node, pattern: &Node, depth: usize) -> Typed<'s> {
        let Expr::Literal(LiteralValue::String(written)) = &pattern.expr else {
            let problem = "the pattern of `matches` is not written out";
            return Err(self.refuse(pattern, problem, "write the pattern as a string here"));
        };
        let (text, _) = self.taking(text, Kinds::TEXT, "`matches`", depth)?;
        let built = RegexBuilder::new(written.inner())
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX)
            .nest_limit(PATTERN_NEST_MAX)
            .build();
        let regex = built.map_err(|error| {
            let problem = match error {
                regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
                other => {
                    let text = other.to_string();
                    // The last line says what; those before it draw the place.
                    let last = text.lines().last().unwrap_or_default();
                    format!(
                        "the pattern cannot be read: {}",
                        shown(last.trim_start_matches("error: "))
                    )
                }
            };
            self.refuse(pattern, problem, "write a simpler pattern")
        })?;
        Ok((Term::Matches(text, regex), Shape::of(Kinds::BOOL)))
    }

    fn each(
        &mut self,
        quantifier: Quantifier,
        range: &Node,
        variable: &Node,
        body: &Node,
        depth: usize,
    ) -> Typed<'s> {
        if self.locals.len() >= COMPREHENSIONS_MAX {
            let problem = format!("more than {COMPREHENSIONS_MAX} comprehensions in each other");
            return Err(self.refuse(range, problem, "write several rules"));
        }
        let Expr::Ident(name) = &variable.expr else {
            let problem = "a comprehension names its variable first";
            return Err(self.refuse(
                variable,
                problem,
                "write it as in `args.items.all(item, …)`",
            ));
        };
        if Fact::variable(name).is_some() || name == "action" || self.local(name).is_some() {
            let problem = format!("`{name}` is taken");
            return Err(self.refuse(variable, problem, "name the variable otherwise"));
        }
        let (range_term, range_shape) = self.node(range, depth + 1)?;
        if !range_shape.kinds.meets(Kinds::LIST.or(Kinds::MAP)) {
            let problem = format!("a comprehension over {}", range_shape.kinds);
            return Err(self.refuse(range, problem, "only a list or a map has items"));
        }
        let item = range_shape.item();
        self.locals.push((name.clone(), item));
        let compiled = self.node(body, depth + 1);
        self.locals.pop();
        let (body_term, body_shape) = compiled?;
        if quantifier != Quantifier::Map && !body_shape.kinds.meets(Kinds::BOOL) {
            let problem = format!("this comes to {}, not to a bool", body_shape.kinds);
            return Err(self.refuse(body, problem, "write a comparison"));
        }
        let shape = match quantifier {
            Quantifier::All | Quantifier::Exists | Quantifier::ExistsOne => Shape::of(Kinds::BOOL),
            Quantifier::Filter => Shape::list(item.kinds),
            Quantifier::Map => Shape::list(body_shape.kinds),
        };
        let term = Term::Each(quantifier, Box::new(range_term), Box::new(body_term));
        Ok((term, shape))
    }
}

fn operator(name: &str) -> Option<Operator> {
    Some(match name {
        operators::ADD => Operator::Add,
        operators::SUBSTRACT => Operator::Subtract,
        operators::MULTIPLY => Operator::Multiply,
        operators::DIVIDE => Operator::Divide,
        operators::MODULO => Operator::Remainder,
        operators::LESS => Operator::Less,
        operators::LESS_EQUALS => Operator::LessOrEqual,
        operators::GREATER => Operator::Greater,
        operators::GREATER_EQUALS => Operator::GreaterOrEqual,
        operators::EQUALS => Operator::Equal,
        operators::NOT_EQUALS => Operator::NotEqual,
        _ => return None,
    })
}

fn quantifier(name: &str) -> Option<Quantifier> {
    Some(match name {
        operators::ALL => Quantifier::All,
        operators::EXISTS => Quantifier::Exists,
        operators::EXISTS_ONE => Quantifier::ExistsOne,
        operators::FILTER => Quantifier::Filter,
        operators::MAP => Quantifier::Map,
        _ => return None,
    })
}
