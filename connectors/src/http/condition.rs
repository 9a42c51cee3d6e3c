//! Conditions on an answer, compiled from configuration.
//!
//! Owns pointers, comparing, and what an unreadable body means for a condition that looks into it.

use serde_json::Value;

use operators_kernel::Call;

use crate::config::{ConditionConfig, Statuses};
use crate::pointer::Pointer;
use crate::template::Template;

/// A condition on status and body.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    /// `None`: the 2xx.
    status: Option<Statuses>,
    look: Option<(Pointer, Test)>,
}

#[derive(Debug, Clone)]
enum Test {
    Equals(Vec<Expected>),
    Exists(bool),
}

#[derive(Debug, Clone)]
enum Expected {
    Value(Value),
    Text(Template),
}

impl Condition {
    /// Compiles a condition; the error names the field and the remedy.
    pub(crate) fn compile(config: &ConditionConfig) -> Result<Self, String> {
        let tests = [
            config.equals.is_some(),
            config.one_of.is_some(),
            config.exists.is_some(),
        ];
        let tests = tests.iter().filter(|present| **present).count();
        let look = match (&config.pointer, tests) {
            (None, 0) if config.status.is_some() => None,
            (None, 0) => return Err("says nothing; give it a `status` or a `pointer`".to_owned()),
            (None, _) => return Err("compares, but has no `pointer` to what".to_owned()),
            (Some(pointer), 1) => Some((Pointer::parse(pointer)?, test(config)?)),
            (Some(_), _) => {
                return Err(
                    "needs one of `equals`, `one_of` and `exists` beside its `pointer`".to_owned(),
                );
            }
        };
        Ok(Self {
            status: config.status.clone(),
            look,
        })
    }

    /// Whether it speaks of this status at all.
    pub(crate) fn covers(&self, status: u16) -> bool {
        match &self.status {
            None => (200..300).contains(&status),
            Some(listed) => listed.lists(status) || listed.lists_hundred(status),
        }
    }

    /// Whether it looks into the body.
    pub(crate) fn looks(&self) -> bool {
        self.look.is_some()
    }

    /// Whether it holds. `body` is the problem where it cannot be read; nothing is concluded from
    /// a body that is not there.
    pub(crate) fn holds(
        &self,
        call: &Call,
        status: u16,
        body: &Result<Value, String>,
    ) -> Result<bool, String> {
        if !self.covers(status) {
            return Ok(false);
        }
        let Some((pointer, test)) = &self.look else {
            return Ok(true);
        };
        let body = body.as_ref().map_err(Clone::clone)?;
        let found = pointer.find(body).filter(|found| !found.is_null());
        match test {
            Test::Exists(wanted) => Ok(found.is_some() == *wanted),
            Test::Equals(expected) => {
                for expected in expected {
                    let holds = match (found, expected.value(call)) {
                        (Some(found), Some(expected)) => same(found, &expected),
                        (None, _) => expected.is_null(),
                        (Some(_), None) => false,
                    };
                    if holds {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

impl Expected {
    fn compile(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Ok(Self::Text(Template::parse(text)?)),
            other => Ok(Self::Value(other.clone())),
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Value(Value::Null))
    }

    /// What is expected of the answer to this call; `None` if an argument that it names is missing.
    fn value(&self, call: &Call) -> Option<Value> {
        match self {
            Self::Value(value) => Some(value.clone()),
            Self::Text(template) => match template.as_placeholder() {
                Some(placeholder) => placeholder.json(call).ok(),
                None => template.render_plain(call).ok().map(Value::String),
            },
        }
    }
}

fn test(config: &ConditionConfig) -> Result<Test, String> {
    if let Some(wanted) = config.exists {
        return Ok(Test::Exists(wanted));
    }
    let expected = config.equals.iter().chain(config.one_of.iter().flatten());
    let expected = expected.map(Expected::compile).collect::<Result<_, _>>()?;
    Ok(Test::Equals(expected))
}

/// Numbers are the same when their values are: JSON does not tell 1 from 1.0.
fn same(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (found, expected) => found == expected,
    }
}
