//! The rule file: from the bytes of a TOML file to a policy, or to the place that is wrong.
//!
//! Owns what a file may say. Whatever it does not know it refuses: a constraint that is ignored
//! is a gate left open.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use operators_kernel::json::hex;
use operators_kernel::life::LIMIT_MAX;
use operators_kernel::{ConnectorName, OnAlert, OperatorName, PolicyRef, Shared, TrustDecision};
use serde::Deserialize;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};
use toml::{Spanned, Value};

use crate::error::{Lines, PolicyError, PolicyProblems, label_problem, shown};
use crate::expression::Expression;
use crate::limit::{LimitBy, RuleLimit};
use crate::magnitude::Magnitude;
use crate::pattern::ToolPattern;
use crate::policy::{Head, Policy, Rule};
use crate::predicate::Predicate;
use crate::room::loading;
use crate::shape;

/// The largest rule file, in bytes: far beyond what a person writes, small enough to hold whole.
pub const RULE_FILE_BYTES_MAX: usize = 1 << 20;

/// Beyond 2^53 a number with a fraction point may have been rounded when it was read.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "the fields of a policy")]
struct RawFile {
    policy: Spanned<String>,
    version: Spanned<Value>,
    applies_to: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    rule: Vec<Spanned<RawRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "the fields of a rule")]
struct RawRule {
    name: Spanned<String>,
    connector: Option<Spanned<String>>,
    tool: Option<Spanned<String>>,
    decision: Spanned<String>,
    r#if: Option<Spanned<String>>,
    require: Option<Spanned<String>>,
    max_value: Option<Spanned<Value>>,
    limit: Option<Spanned<RawLimit>>,
    alert: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a limit's `max`, `per` and `by`")]
struct RawLimit {
    max: Spanned<Value>,
    per: Spanned<String>,
    by: Spanned<String>,
}

impl Policy {
    /// Takes the bytes of a rule file; `file` is only what errors and citations call it.
    pub fn parse(file: &Path, bytes: &[u8]) -> Result<Self, PolicyError> {
        Self::parse_with(file, bytes, &|_, _| None)
    }

    /// The same, knowing the JSON Schema that the arguments of some tools fit: an expression of a
    /// rule for one such tool is checked against it.
    pub fn parse_with(
        file: &Path,
        bytes: &[u8],
        schemas: &Schemas<'_>,
    ) -> Result<Self, PolicyError> {
        Self::parse_whole(file, bytes, schemas).map_err(|problems| problems.first)
    }

    /// The same, with every problem of the file and not the first alone. What is not TOML has one:
    /// there is no telling what comes after it. What is wrong with the shape of a policy, its fields
    /// and what they hold, is told before what is wrong with their meaning.
    pub fn parse_whole(
        file: &Path,
        bytes: &[u8],
        schemas: &Schemas<'_>,
    ) -> Result<Self, PolicyProblems> {
        if bytes.len() > RULE_FILE_BYTES_MAX {
            let problem = format!("larger than {RULE_FILE_BYTES_MAX} bytes");
            return Err(PolicyError::whole(file, problem, "split it into several policies").into());
        }
        let source = Source::new(file, bytes)?;
        if source.text.trim().is_empty() {
            let remedy = "write a policy with at least one rule, or take the file off the list";
            return Err(PolicyError::whole(file, "the file is empty", remedy).into());
        }
        let raw: RawFile = toml::from_str(source.text).map_err(|error| source.misshapen(&error))?;
        loading(|| source.policy(&raw, schemas))
    }
}

/// The JSON Schema of a tool's arguments, by connector and tool, where there is one.
pub type Schemas<'a> = dyn Fn(&str, &str) -> Option<&'a Json> + Sync + 'a;

/// A file's text, for checks that point into it.
struct Source<'a> {
    file: &'a Path,
    text: &'a str,
    lines: Lines<'a>,
}

impl<'a> Source<'a> {
    fn new(file: &'a Path, bytes: &'a [u8]) -> Result<Self, PolicyError> {
        let error = match std::str::from_utf8(bytes) {
            Ok(text) => return Ok(Self::of(file, text)),
            Err(error) => error,
        };
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let valid = String::from_utf8_lossy(valid);
        let source = Source::of(file, &valid);
        Err(source.refuse(valid.len(), "not UTF-8", "save the file as UTF-8"))
    }

    fn of(file: &'a Path, text: &'a str) -> Self {
        let lines = Lines::of(text);
        Self { file, text, lines }
    }

    fn refuse(
        &self,
        at: usize,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> PolicyError {
        let (line, column) = self.lines.place(at);
        PolicyError::Text {
            file: self.file.to_owned(),
            line,
            column,
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    /// Everything that is wrong with the shape; the reader stopped at `first`.
    fn misshapen(&self, first: &toml::de::Error) -> PolicyProblems {
        let remedy = "correct it there";
        let refuse = |(at, problem): (usize, String)| self.refuse(at, problem, remedy);
        let mut problems = shape::problems(self.text);
        let at = first.span().map_or(0, |span| span.start);
        if !problems.iter().any(|(known, _)| *known == at) {
            // Of a number beyond 64 bits it names the Rust type.
            let problem = shown(first.message()).replace(" as i128", "");
            problems.push((at, problem));
            problems.sort();
        }
        let problems = problems.into_iter().map(refuse).collect();
        PolicyProblems::of(problems).unwrap_or_else(|| refuse((at, shown(first.message()))).into())
    }

    fn policy(&self, raw: &RawFile, schemas: &Schemas<'_>) -> Result<Policy, PolicyProblems> {
        let mut problems = Vec::new();
        problems.extend(self.check_label("the policy's name", &raw.policy).err());
        let version = kept(self.version(&raw.version), &mut problems);
        let applies_to = raw.applies_to.as_ref().map(|list| self.operators(list));
        let applies_to = applies_to.and_then(|list| kept(list, &mut problems));
        if raw.rule.is_empty() {
            let remedy = "add a `[[rule]]`, or take the file off the list";
            problems.push(self.refuse(0, "the policy has no rules", remedy));
        }
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        let mut rules = Vec::with_capacity(raw.rule.len());
        for raw in &raw.rule {
            let name = &raw.get_ref().name;
            let (line, _) = self.lines.place(raw.span().start);
            if let Some(line) = lines.insert(name.get_ref().clone(), line) {
                let told = shown(name.get_ref());
                let problem = format!("rule `{told}` is there already, on line {line}");
                let remedy = "give each rule of a policy its own name; receipts cite it";
                problems.push(self.refuse(name.span().start, problem, remedy));
            }
            rules.extend(self.rule(raw, schemas, &mut problems));
        }
        let head = Head {
            name_place: self.lines.place(raw.policy.span().start),
            reference: Shared::from(PolicyRef {
                name: raw.policy.get_ref().clone(),
                version: version.unwrap_or_default(),
                digest: digest(self.text.as_bytes()),
            }),
            file: self.file.to_owned(),
            applies_to,
        };
        let policy = Policy {
            head: Arc::new(head),
            rules,
        };
        problems.sort_by_key(PolicyError::place);
        PolicyProblems::of(problems).map_or(Ok(policy), Err)
    }

    /// One rule, or every problem of it.
    fn rule(
        &self,
        raw: &Spanned<RawRule>,
        schemas: &Schemas<'_>,
        problems: &mut Vec<PolicyError>,
    ) -> Option<Rule> {
        let before = problems.len();
        let (line, _) = self.lines.place(raw.span().start);
        let raw = raw.get_ref();
        problems.extend(self.check_label("the rule's name", &raw.name).err());
        let connector = raw.connector.as_ref().map(|name| self.connector(name));
        let connector = connector.and_then(|name| kept(name, problems));
        let tool = raw.tool.as_ref().map(|pattern| self.tool(pattern));
        let tool = tool.and_then(|pattern| kept(pattern, problems));
        let decision = kept(self.decision(&raw.decision), problems);
        let schema = match (&connector, &tool) {
            (Some(connector), Some(tool)) => schemas(connector.as_str(), tool.as_str()),
            _ => None,
        };
        let mut predicate = |text: &Option<Spanned<String>>| {
            let predicate = text.as_ref().map(|text| self.predicate(text, schema));
            predicate.and_then(|predicate| kept(predicate, problems))
        };
        let (only_if, require) = (predicate(&raw.r#if), predicate(&raw.require));
        let max_value = raw.max_value.as_ref().map(|number| self.max_value(number));
        let max_value = max_value.and_then(|number| kept(number, problems));
        let limit = raw.limit.as_ref().map(|limit| self.limit(limit.get_ref()));
        let limit = limit.and_then(|limit| kept(limit, problems));
        let on_alert = raw.alert.as_ref().map(|word| self.on_alert(word));
        let on_alert = on_alert.and_then(|word| kept(word, problems));
        let rule = Rule {
            decision: decision?,
            name: raw.name.get_ref().as_str().into(),
            line,
            connector,
            tool,
            only_if,
            require,
            max_value,
            limit,
            on_alert,
        };
        // INVARIANT (no-gate-left-open): a rule without one of its constraints is none.
        (problems.len() == before).then_some(rule)
    }

    fn on_alert(&self, word: &Spanned<String>) -> Result<OnAlert, PolicyError> {
        match word.get_ref().as_str() {
            "notify" => Ok(OnAlert::Notify),
            "approve" => Ok(OnAlert::Approve),
            other => Err(self.refuse(
                word.span().start,
                format!("`{}` is no way to raise an ALERT", shown(other)),
                "write `notify` or `approve`",
            )),
        }
    }

    fn predicate(
        &self,
        text: &Spanned<String>,
        schema: Option<&Json>,
    ) -> Result<Predicate, PolicyError> {
        let parsed = Expression::parse(text.get_ref()).and_then(|expression| {
            schema.map_or(Ok(()), |schema| expression.check_args(schema))?;
            Ok(expression)
        });
        parsed.map(Predicate::from).map_err(|error| {
            let at = self.inside(text, error.offset);
            self.refuse(at, error.problem, error.remedy)
        })
    }

    /// Where in the file a place of a string is; its start when escapes make that hard to tell.
    fn inside(&self, string: &Spanned<String>, offset: usize) -> usize {
        let span = string.span();
        let written = self.text.get(span.clone()).unwrap_or_default();
        let quotes = ["'''\r\n", "'''\n", "'''", "'", "\"\"\"\n", "\"\"\"", "\""];
        let opening = quotes.iter().find(|quote| written.starts_with(**quote));
        let start = span.start + opening.map_or(0, |quote| quote.len());
        match self.text.get(start..start + string.get_ref().len()) {
            Some(verbatim) if verbatim == string.get_ref() => start + offset,
            _ => span.start,
        }
    }

    fn limit(&self, raw: &RawLimit) -> Result<RuleLimit, PolicyError> {
        let max = raw.max.get_ref().as_integer();
        let max = max.and_then(|max| u32::try_from(max).ok());
        let Some(max @ 1..=LIMIT_MAX) = max else {
            let problem = format!("`max` is not a whole number from 1 to {LIMIT_MAX}");
            let remedy = "write how many effects a window holds, or BLOCK";
            return Err(self.refuse(raw.max.span().start, problem, remedy));
        };
        let per = RuleLimit::window(raw.per.get_ref()).map_err(|problem| {
            let problem = format!("`per` {problem}");
            self.refuse(raw.per.span().start, problem, "write a window such as `1h`")
        })?;
        let Some(by) = LimitBy::parse(raw.by.get_ref()) else {
            let problem = format!("nothing is counted by `{}`", shown(raw.by.get_ref()));
            let remedy = "write `entity`, `operator`, `tool` or `tenant`";
            return Err(self.refuse(raw.by.span().start, problem, remedy));
        };
        Ok(RuleLimit { max, per, by })
    }

    fn check_label(&self, what: &str, label: &Spanned<String>) -> Result<(), PolicyError> {
        let Some(problem) = label_problem(label.get_ref()) else {
            return Ok(());
        };
        let remedy = "give it a short name that a receipt can cite";
        Err(self.refuse(label.span().start, format!("{what} {problem}"), remedy))
    }

    fn version(&self, version: &Spanned<Value>) -> Result<u64, PolicyError> {
        let number = version.get_ref().as_integer();
        let counted = number.and_then(|number| u64::try_from(number).ok());
        match counted {
            Some(counted) if counted >= 1 => Ok(counted),
            _ => Err(self.refuse(
                version.span().start,
                "`version` is not a whole number from 1 up",
                "count it up by one with every change, as in `version = 1`",
            )),
        }
    }

    fn operators(
        &self,
        list: &Spanned<Vec<Spanned<String>>>,
    ) -> Result<BTreeSet<OperatorName>, PolicyError> {
        if list.get_ref().is_empty() {
            let remedy = "name an operator, or leave `applies_to` out to speak of all";
            return Err(self.refuse(list.span().start, "`applies_to` is empty", remedy));
        }
        let names = list.get_ref().iter().map(|name| {
            OperatorName::parse(name.get_ref().as_str()).map_err(|error| {
                let problem = format!("operator `{}`: {error}", shown(name.get_ref()));
                let remedy = "write the operator's name as it is configured";
                self.refuse(name.span().start, problem, remedy)
            })
        });
        names.collect()
    }

    fn connector(&self, name: &Spanned<String>) -> Result<ConnectorName, PolicyError> {
        ConnectorName::parse(name.get_ref().as_str()).map_err(|error| {
            let problem = format!("connector `{}`: {error}", shown(name.get_ref()));
            let remedy = "write one connector's name as it is configured, or leave it out for any";
            self.refuse(name.span().start, problem, remedy)
        })
    }

    fn tool(&self, pattern: &Spanned<String>) -> Result<ToolPattern, PolicyError> {
        ToolPattern::parse(pattern.get_ref())
            .map_err(|error| self.refuse(pattern.span().start, error.problem, error.remedy))
    }

    fn decision(&self, word: &Spanned<String>) -> Result<TrustDecision, PolicyError> {
        match word.get_ref().as_str() {
            "ALLOW" => Ok(TrustDecision::Allow),
            "ALERT" => Ok(TrustDecision::Alert),
            "BLOCK" => Ok(TrustDecision::Block),
            other => Err(self.refuse(
                word.span().start,
                format!("`{}` is not a decision", shown(other)),
                "write `ALLOW`, `ALERT` or `BLOCK`, in capitals",
            )),
        }
    }

    fn max_value(&self, number: &Spanned<Value>) -> Result<Magnitude, PolicyError> {
        let refuse = |problem: &str, remedy: &str| {
            let problem = format!("`max_value` {problem}");
            Err(self.refuse(number.span().start, problem, remedy))
        };
        match number.get_ref() {
            Value::Integer(whole) => Ok(Magnitude::whole(*whole)),
            Value::Float(fraction) => match Magnitude::fraction(*fraction) {
                None => refuse("is not finite", "leave it out if there is no ceiling"),
                Some(_) if fraction.abs() > EXACT_MAX => {
                    refuse("is too large to be exact", "write it without a fraction")
                }
                Some(magnitude) => Ok(magnitude),
            },
            _ => refuse("is not a number", "write it without quotes, as in `500`"),
        }
    }
}

/// What was asked for, or one problem more.
fn kept<T>(checked: Result<T, PolicyError>, problems: &mut Vec<PolicyError>) -> Option<T> {
    checked.map_err(|problem| problems.push(problem)).ok()
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}
