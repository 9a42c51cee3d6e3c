//! The rule file: from the bytes of a TOML file to a policy, or to the place that is wrong.
//!
//! Owns what a file may say. Whatever it does not know it refuses: a constraint that is ignored
//! is a gate left open.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use operators_kernel::json::hex;
use operators_kernel::{ConnectorName, KEY_BYTES_MAX, OperatorName, PolicyRef, TrustDecision};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest as _, Sha256};
use toml::{Spanned, Value};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

use crate::error::{Lines, PolicyError, shown};
use crate::magnitude::Magnitude;
use crate::pattern::ToolPattern;
use crate::policy::{Head, Policy, Rule};

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
    max_value: Option<Spanned<Value>>,
    // Words of the language that this version cannot keep to.
    r#if: Option<Spanned<IgnoredAny>>,
    require: Option<Spanned<IgnoredAny>>,
    limit: Option<Spanned<IgnoredAny>>,
}

impl Policy {
    /// Takes the bytes of a rule file; `file` is only what errors and citations call it.
    pub fn parse(file: &Path, bytes: &[u8]) -> Result<Self, PolicyError> {
        if bytes.len() > RULE_FILE_BYTES_MAX {
            return Err(PolicyError::whole(
                file,
                format!("larger than {RULE_FILE_BYTES_MAX} bytes"),
                "split it into several policies",
            ));
        }
        let source = Source::new(file, bytes)?;
        if source.text.trim().is_empty() {
            let remedy = "write a policy with at least one rule, or take the file off the list";
            return Err(PolicyError::whole(file, "the file is empty", remedy));
        }
        let raw: RawFile = toml::from_str(source.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let remedy = "correct it there; nothing runs until the file loads";
            // Of a number beyond 64 bits it names the Rust type.
            let problem = shown(error.message()).replace(" as i128", "");
            source.refuse(at, problem, remedy)
        })?;
        source.policy(raw)
    }
}

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

    fn policy(&self, raw: RawFile) -> Result<Policy, PolicyError> {
        self.check_label("the policy's name", &raw.policy)?;
        let version = self.version(&raw.version)?;
        let applies_to = raw.applies_to.map(|list| self.operators(&list));
        if raw.rule.is_empty() {
            let remedy = "add a `[[rule]]`, or take the file off the list";
            return Err(self.refuse(0, "the policy has no rules", remedy));
        }
        let head = Head {
            name_place: self.lines.place(raw.policy.span().start),
            reference: PolicyRef {
                name: raw.policy.into_inner(),
                version,
                digest: digest(self.text.as_bytes()),
            },
            file: self.file.to_owned(),
            applies_to: applies_to.transpose()?,
        };
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        let mut rules = Vec::with_capacity(raw.rule.len());
        for raw in raw.rule {
            let name_at = raw.get_ref().name.span().start;
            let rule = self.rule(raw)?;
            if let Some(line) = lines.insert(rule.name.clone(), rule.line) {
                let problem = format!("rule `{}` is there already, on line {line}", rule.name);
                let remedy = "give each rule of a policy its own name; receipts cite it";
                return Err(self.refuse(name_at, problem, remedy));
            }
            rules.push(rule);
        }
        Ok(Policy {
            head: Arc::new(head),
            rules,
        })
    }

    fn rule(&self, raw: Spanned<RawRule>) -> Result<Rule, PolicyError> {
        let (line, _) = self.lines.place(raw.span().start);
        let raw = raw.into_inner();
        self.check_label("the rule's name", &raw.name)?;
        self.refuse_later_words(&raw)?;
        let connector = raw.connector.map(|name| self.connector(&name));
        let tool = raw.tool.map(|pattern| self.tool(&pattern));
        let max_value = raw.max_value.map(|number| self.max_value(&number));
        Ok(Rule {
            decision: self.decision(&raw.decision)?,
            name: raw.name.into_inner(),
            line,
            connector: connector.transpose()?,
            tool: tool.transpose()?,
            max_value: max_value.transpose()?,
        })
    }

    fn refuse_later_words(&self, raw: &RawRule) -> Result<(), PolicyError> {
        let words = [
            ("if", "the expression language", &raw.r#if),
            ("require", "the expression language", &raw.require),
            ("limit", "durable counters", &raw.limit),
        ];
        for (word, needs, used) in words {
            let Some(used) = used else { continue };
            let problem = format!("`{word}` needs {needs}, which this version does not have");
            let remedy =
                "remove the rule, or bound it by `connector`, `tool` and `max_value` alone";
            return Err(self.refuse(used.span().start, problem, remedy));
        }
        Ok(())
    }

    /// A name that receipts and terminals show: it has to be seen as it is.
    fn check_label(&self, what: &str, label: &Spanned<String>) -> Result<(), PolicyError> {
        let text = label.get_ref();
        let hidden = |character: &char| {
            matches!(
                character.general_category(),
                GeneralCategory::Control
                    | GeneralCategory::Format
                    | GeneralCategory::LineSeparator
                    | GeneralCategory::ParagraphSeparator
            )
        };
        let problem = if text.trim().is_empty() {
            "is empty".to_owned()
        } else if text.trim() != text {
            "has a space at its start or end".to_owned()
        } else if text.len() > KEY_BYTES_MAX {
            format!("is longer than {KEY_BYTES_MAX} bytes")
        } else if let Some(character) = text.chars().find(hidden) {
            format!(
                "has an invisible character (U+{:04X})",
                u32::from(character)
            )
        } else {
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

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}
