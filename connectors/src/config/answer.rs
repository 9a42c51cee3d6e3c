//! What a configuration may say about answers: which mean what, and what to take from them.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;

use crate::config::HeaderText;

/// A list of statuses: `"2xx, 404"`, or just `404`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Statuses {
    ones: Vec<u16>,
    hundreds: Vec<u16>,
}

impl Statuses {
    /// Whether this very status is listed.
    pub fn lists(&self, status: u16) -> bool {
        self.ones.contains(&status)
    }

    /// Whether the status's hundred is listed, as `4xx` lists 404.
    pub fn lists_hundred(&self, status: u16) -> bool {
        self.hundreds.contains(&(status / 100))
    }
}

impl Statuses {
    /// Reads `2xx, 404`; every status of an answer goes from 200 to 599.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut statuses = Self {
            ones: Vec::new(),
            hundreds: Vec::new(),
        };
        for word in text.split(',').map(str::trim) {
            match word.strip_suffix("xx") {
                Some(hundred) => statuses.hundreds.push(number(hundred, 2..6, word)?),
                None => statuses.ones.push(number(word, 200..600, word)?),
            }
        }
        Ok(statuses)
    }
}

impl TryFrom<Value> for Statuses {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match &value {
            Value::String(text) => Self::parse(text),
            other => Self::parse(&other.to_string()),
        }
    }
}

/// Plain digits only: `+4` is a slip of the pen. A 1xx is no answer, and beyond 599 is nothing.
fn number(digits: &str, range: Range<u16>, word: &str) -> Result<u16, String> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = digits
        .parse()
        .ok()
        .filter(|number| plain && range.contains(number));
    parsed.ok_or_else(|| {
        let word: String = word.escape_debug().take(20).collect();
        format!("`{word}` is not the status of an answer; write a list like `2xx, 404`")
    })
}

/// What an answer must look like: `{ status = 409, pointer = "/error/code", equals = "used" }`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionConfig {
    /// The statuses it speaks of. Default `2xx`.
    #[serde(default)]
    pub status: Option<Statuses>,
    /// A JSON pointer into the answer's body.
    #[serde(default)]
    pub pointer: Option<String>,
    /// What must stand there; a text may be a template.
    #[serde(default)]
    pub equals: Option<Value>,
    /// What may stand there.
    #[serde(default)]
    pub one_of: Option<Vec<Value>>,
    /// Whether anything but null must stand there, or must not.
    #[serde(default)]
    pub exists: Option<bool>,
}

/// How to ask whether an earlier attempt took effect, without changing anything.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeConfig {
    /// `http`: the template of path and query of a `GET`.
    #[serde(default)]
    pub path: Option<String>,
    /// `http`: headers besides the connector's.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderText>,
    /// `http`: the answer that means that it happened.
    #[serde(default)]
    pub applied_if: Option<ConditionConfig>,
    /// `http`: the answer that means that it did not. Left out: only a find is believed.
    #[serde(default)]
    pub not_applied_if: Option<ConditionConfig>,
    /// `http`: where the result stands in the probe's answer, as a JSON pointer.
    #[serde(default)]
    pub result: Option<String>,
    /// `http`: where the vendor's id stands in the probe's answer. Default `/id`.
    #[serde(default)]
    pub effect_id: Option<String>,
    /// `sql`: the query that finds a row if it happened.
    #[serde(default)]
    pub statement: Option<String>,
    /// `command`: the program that looks; it is told what the tool itself was told.
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// `command`: the exit codes that say it happened. Default `0`.
    #[serde(default)]
    pub applied: Option<String>,
    /// `command`: the exit codes that say it has not.
    #[serde(default)]
    pub not_applied: Option<String>,
}
