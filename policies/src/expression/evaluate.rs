//! What an expression comes to for one question: pure, without loops that nobody counts.
//!
//! Every node, item and stretch of text costs a step, and the steps end. `&&`, `||`, `all` and
//! `exists` are CEL's: an error on one side does not count when the other side decides. Running out
//! of steps is never decided away.

use std::cmp::Ordering;
use std::rc::Rc;

use operators_kernel::{OperatorName, TrustQuestion};
use serde_json::{Number, Value};

use super::calculate::{arithmetic, entry, truncated, widened};
use super::fault::{Fault, Steps};
use super::kinds::Operator;
use super::term::{Conversion, EventField, Fact, Literal, Quantifier, Term, TextTest};
use super::value::Val;

type Judged<'a> = Result<Val<'a>, Fault>;

/// Judges a whole expression.
pub(super) fn judge(
    term: &Term,
    question: &TrustQuestion<'_>,
    steps: &Steps,
) -> Result<bool, Fault> {
    let mut evaluation = Evaluation {
        question,
        steps,
        locals: Vec::new(),
    };
    match evaluation.value(term)? {
        Val::Bool(answer) => Ok(answer),
        other => Err(Fault::NotBool(other.kind())),
    }
}

/// What a fact is, as JSON; `None` when there is no such thing to show.
pub(super) fn read(fact: Fact, question: &TrustQuestion<'_>) -> Option<Value> {
    let steps = Steps::default();
    let evaluation = Evaluation {
        question,
        steps: &steps,
        locals: Vec::new(),
    };
    match evaluation.fact(fact).ok()? {
        Val::Null => Some(Value::Null),
        Val::Double(number) => Some(Value::from(number)),
        Val::Text(text) => Some(Value::from(text)),
        Val::Object(fields) => Some(Value::Object(fields.clone())),
        _ => None,
    }
}

struct Evaluation<'a> {
    question: &'a TrustQuestion<'a>,
    steps: &'a Steps,
    locals: Vec<Val<'a>>,
}

impl<'a> Evaluation<'a> {
    /// Inlined, so that a leaf, which most nodes are, costs its operator no call.
    #[inline]
    fn value(&mut self, term: &'a Term) -> Judged<'a> {
        self.steps.spend_one()?;
        match term {
            Term::Literal(literal) => Ok(match literal {
                Literal::Null => Val::Null,
                Literal::Bool(value) => Val::Bool(*value),
                Literal::Int(number) => Val::Int(*number),
                Literal::Double(number) => Val::Double(*number),
                Literal::Text(text) => Val::Text(text),
            }),
            Term::Fact(Fact::Args) => Ok(Val::Object(&self.question.action.args)),
            node => self.node(node),
        }
    }

    fn node(&mut self, term: &'a Term) -> Judged<'a> {
        match term {
            Term::Fact(fact) => self.fact(*fact),
            Term::Local(place) => self.locals.get(*place).cloned().ok_or(Fault::NoEntry),
            Term::Field(whole, name) => match self.value(whole)? {
                Val::Object(fields) => match fields.get(&**name) {
                    Some(field) => Val::of(field),
                    None => Err(Fault::NoField(name.to_string())),
                },
                other => Err(Fault::Unfit(format!("{} has no `{name}`", other.kind()))),
            },
            Term::Has(whole, name) => match self.value(whole)? {
                Val::Object(fields) => Ok(Val::Bool(fields.contains_key(&**name))),
                other => Err(Fault::Unfit(format!("{} has no fields", other.kind()))),
            },
            Term::Index(whole, index) => {
                let whole = self.value(whole)?;
                let index = self.value(index)?;
                entry(&whole, &index)
            }
            Term::Not(operand) => Ok(Val::Bool(!self.bool(operand)?)),
            Term::Negate(operand) => match self.value(operand)? {
                Val::Int(number) => number.checked_neg().map(Val::Int).ok_or(Fault::Overflow),
                Val::Double(number) => Ok(Val::Double(-number)),
                other => Err(Fault::Unfit(format!("{} has no negative", other.kind()))),
            },
            Term::And(left, right) => self.either(left, right, false),
            Term::Or(left, right) => self.either(left, right, true),
            Term::Choice(asked, yes, no) => {
                let chosen = if self.bool(asked)? { yes } else { no };
                self.value(chosen)
            }
            Term::Between(operator, left, right) => {
                let left = self.value(left)?;
                let right = self.value(right)?;
                self.between(*operator, &left, &right)
            }
            called => self.call(called),
        }
    }

    /// What is written as a call, and lists.
    fn call(&mut self, term: &'a Term) -> Judged<'a> {
        match term {
            Term::In(item, whole) => {
                let item = self.value(item)?;
                let whole = self.value(whole)?;
                self.is_in(&item, &whole)
            }
            Term::List(items) => {
                let items: Result<Vec<_>, _> = items.iter().map(|item| self.value(item)).collect();
                Ok(Val::MadeList(items?.into()))
            }
            Term::Size(whole) => {
                let whole = self.value(whole)?;
                self.size(&whole)
            }
            Term::Convert(to, from) => {
                let from = self.value(from)?;
                self.convert(*to, &from)
            }
            Term::TextTest(test, whole, part) => {
                let whole = self.value(whole)?;
                let part = self.value(part)?;
                let (Some(whole), Some(part)) = (whole.as_text(), part.as_text()) else {
                    return Err(whole.unfit_with(&part, "searched"));
                };
                self.steps.spend_bytes(whole.len())?;
                Ok(Val::Bool(match test {
                    TextTest::Contains => whole.contains(part),
                    TextTest::StartsWith => whole.starts_with(part),
                    TextTest::EndsWith => whole.ends_with(part),
                }))
            }
            Term::Matches(text, regex) => {
                let value = self.value(text)?;
                let Some(text) = value.as_text() else {
                    return Err(Fault::Unfit(format!("{} is no text", value.kind())));
                };
                // A byte each: a pattern may look at every byte many times.
                self.steps.spend(text.len())?;
                Ok(Val::Bool(regex.is_match(text)))
            }
            Term::Each(quantifier, range, body) => {
                let range = self.value(range)?;
                self.each(*quantifier, &range, body)
            }
            _ => Err(Fault::Unfit("this cannot be judged".to_owned())),
        }
    }

    fn fact(&self, fact: Fact) -> Judged<'a> {
        let TrustQuestion {
            tenant,
            operator,
            action,
            event,
        } = self.question;
        let number = |number: Option<&Number>| number.map_or(Ok(Val::Null), Val::number);
        Ok(match fact {
            Fact::Args => Val::Object(&action.args),
            Fact::Value => number(action.value.as_ref())?,
            Fact::EntityKey => Val::Text(action.entity_key.as_str()),
            Fact::IdempotencyKey => Val::Text(action.idempotency_key.as_str()),
            Fact::Operator => Val::or_null(operator.map(OperatorName::as_str)),
            Fact::Tenant => Val::Text(tenant.as_str()),
            Fact::Connector => Val::Text(action.connector.as_str()),
            Fact::Tool => Val::Text(action.tool.as_str()),
            Fact::Revision => number(action.revision.map(Number::from).as_ref())?,
            Fact::SourceId => Val::or_null(action.source_id.as_deref()),
            Fact::IndexHash => Val::or_null(action.index_hash.as_deref()),
            Fact::Event => event.map_or(Val::Null, |_| Val::Envelope),
            Fact::EventField(field) => {
                let event = event.ok_or(Fault::NoEvent)?;
                match field {
                    EventField::EventId => Val::Text(&event.event_id),
                    EventField::ResellerId => Val::or_null(event.reseller_id.as_deref()),
                    EventField::TenantId => Val::Text(event.tenant_id.as_str()),
                    EventField::WorkspaceId => Val::or_null(event.workspace_id.as_deref()),
                    EventField::Source => Val::Text(&event.source),
                    EventField::EventType => Val::Text(&event.event_type),
                    EventField::CorrelationId => Val::Text(&event.correlation_id),
                    EventField::Payload => Val::Object(&event.payload),
                    EventField::AgentId => Val::or_null(event.agent_id.as_deref()),
                    EventField::SessionId => Val::or_null(event.session_id.as_deref()),
                }
            }
        })
    }

    fn bool(&mut self, term: &'a Term) -> Result<bool, Fault> {
        match self.value(term)? {
            Val::Bool(answer) => Ok(answer),
            other => Err(Fault::Unfit(format!("{} is no bool", other.kind()))),
        }
    }

    /// `||` is decided by a `true` on either side, `&&` by a `false`; otherwise an error stands.
    fn either(&mut self, left: &'a Term, right: &'a Term, decides: bool) -> Judged<'a> {
        let left = settled(self.bool(left))?;
        if left == Ok(decides) {
            return Ok(Val::Bool(decides));
        }
        let right = settled(self.bool(right))?;
        if right == Ok(decides) {
            return Ok(Val::Bool(decides));
        }
        left?;
        right.map(Val::Bool)
    }

    fn between(&self, operator: Operator, left: &Val<'a>, right: &Val<'a>) -> Judged<'a> {
        let ordered = |wanted: fn(Ordering) -> bool| {
            let ordering = left.compare(right, self.steps)?;
            Ok(Val::Bool(wanted(ordering)))
        };
        match operator {
            Operator::Equal => Ok(Val::Bool(left.equals(right, self.steps)?)),
            Operator::NotEqual => Ok(Val::Bool(!left.equals(right, self.steps)?)),
            Operator::Less => ordered(Ordering::is_lt),
            Operator::LessOrEqual => ordered(Ordering::is_le),
            Operator::Greater => ordered(Ordering::is_gt),
            Operator::GreaterOrEqual => ordered(Ordering::is_ge),
            Operator::Add => self.add(left, right),
            Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => {
                arithmetic(operator, left, right)
            }
        }
    }

    fn add(&self, left: &Val<'a>, right: &Val<'a>) -> Judged<'a> {
        if let (Some(left), Some(right)) = (left.as_text(), right.as_text()) {
            self.steps.spend_bytes(left.len() + right.len())?;
            return Ok(Val::MadeText(format!("{left}{right}").into()));
        }
        if let (Some(length), Some(other)) = (left.list_length(), right.list_length()) {
            self.steps.spend(length + other)?;
            let of = |list: &Val<'a>, length: usize| {
                let items = (0..length).filter_map(|index| list.item(index));
                items.collect::<Result<Vec<_>, _>>()
            };
            let mut items = of(left, length)?;
            items.extend(of(right, other)?);
            return Ok(Val::MadeList(items.into()));
        }
        arithmetic(Operator::Add, left, right)
    }

    fn is_in(&self, item: &Val<'a>, whole: &Val<'a>) -> Judged<'a> {
        if let Val::Object(fields) = whole {
            return match (item, item.as_text()) {
                (_, Some(name)) => Ok(Val::Bool(fields.contains_key(name))),
                // Keys elsewhere in CEL, never in JSON.
                (Val::Bool(_) | Val::Int(_), _) => Ok(Val::Bool(false)),
                _ => Err(item.unfit_with(whole, "held against each other")),
            };
        }
        let Some(length) = whole.list_length() else {
            return Err(item.unfit_with(whole, "held against each other"));
        };
        for other in (0..length).filter_map(|index| whole.item(index)) {
            if item.equals(&other?, self.steps)? {
                return Ok(Val::Bool(true));
            }
        }
        Ok(Val::Bool(false))
    }

    fn size(&self, whole: &Val<'a>) -> Judged<'a> {
        let size = match whole {
            Val::Object(fields) => fields.len(),
            list if list.list_length().is_some() => list.list_length().unwrap_or_default(),
            text => {
                let Some(text) = text.as_text() else {
                    return Err(Fault::Unfit(format!("{} has no size", text.kind())));
                };
                self.steps.spend_bytes(text.len())?;
                text.chars().count()
            }
        };
        i64::try_from(size)
            .map(Val::Int)
            .map_err(|_| Fault::Overflow)
    }

    fn convert(&self, to: Conversion, from: &Val<'a>) -> Judged<'a> {
        let unfit = || Fault::Unfit(format!("{} cannot be converted", from.kind()));
        if let Some(text) = from.as_text() {
            self.steps.spend_bytes(text.len())?;
        }
        match (to, from) {
            (Conversion::Int, Val::Int(_))
            | (Conversion::Double, Val::Double(_))
            | (Conversion::Text, Val::Text(_) | Val::MadeText(_)) => Ok(from.clone()),
            (Conversion::Int, Val::Double(number)) => truncated(*number),
            (Conversion::Double, Val::Int(number)) => Ok(widened(*number)),
            (Conversion::Text, Val::Int(number)) => Ok(Val::MadeText(number.to_string().into())),
            (Conversion::Text, Val::Double(number)) => Ok(Val::MadeText(number.to_string().into())),
            (Conversion::Text, Val::Bool(value)) => {
                Ok(Val::Text(if *value { "true" } else { "false" }))
            }
            (Conversion::Int, text) => {
                let text = text.as_text().ok_or_else(unfit)?;
                text.parse().map(Val::Int).map_err(|_| Fault::NotANumber)
            }
            (Conversion::Double, text) => {
                let text = text.as_text().ok_or_else(unfit)?;
                let number: f64 = text.parse().map_err(|_| Fault::NotANumber)?;
                Val::double(number)
            }
            (Conversion::Text, _) => Err(unfit()),
        }
    }

    fn each(&mut self, quantifier: Quantifier, range: &Val<'a>, body: &'a Term) -> Judged<'a> {
        let items: Vec<Judged<'a>> = match range {
            Val::Object(fields) => {
                self.steps.spend(fields.len())?;
                fields.keys().map(|name| Ok(Val::Text(name))).collect()
            }
            list => {
                let Some(length) = list.list_length() else {
                    return Err(Fault::Unfit(format!("{} has no items", list.kind())));
                };
                self.steps.spend(length)?;
                (0..length).filter_map(|index| list.item(index)).collect()
            }
        };
        let mut tally = Tally::default();
        for item in items {
            let item = item?;
            self.locals.push(item.clone());
            let judged = match quantifier {
                Quantifier::Map => self.value(body),
                _ => self.bool(body).map(Val::Bool),
            };
            self.locals.pop();
            match (quantifier, settled(judged)?) {
                (Quantifier::All, Ok(Val::Bool(false))) => return Ok(Val::Bool(false)),
                (Quantifier::Exists, Ok(Val::Bool(true))) => return Ok(Val::Bool(true)),
                // One that cannot be judged may yet be outweighed by one that decides.
                (Quantifier::All | Quantifier::Exists, Err(fault)) => tally.fault = Some(fault),
                (_, Err(fault)) => return Err(fault),
                (Quantifier::ExistsOne, Ok(Val::Bool(true))) => tally.count += 1,
                (Quantifier::Filter, Ok(Val::Bool(true))) => tally.kept.push(item),
                (Quantifier::Map, Ok(made)) => tally.kept.push(made),
                (_, Ok(_)) => {}
            }
        }
        if let Some(fault) = tally.fault {
            return Err(fault);
        }
        Ok(match quantifier {
            Quantifier::All => Val::Bool(true),
            Quantifier::Exists => Val::Bool(false),
            Quantifier::ExistsOne => Val::Bool(tally.count == 1),
            Quantifier::Filter | Quantifier::Map => Val::MadeList(Rc::from(tally.kept)),
        })
    }
}

#[derive(Default)]
struct Tally<'a> {
    count: usize,
    kept: Vec<Val<'a>>,
    fault: Option<Fault>,
}

/// Running out of steps ends everything; any other error waits for what else is said.
fn settled<T>(judged: Result<T, Fault>) -> Result<Result<T, Fault>, Fault> {
    match judged {
        Err(Fault::TooLong) => Err(Fault::TooLong),
        judged => Ok(judged),
    }
}
