//! The same rules written in code: for a program that embeds the executor and wants no files.
//!
//! Owns how they are put together, with the checks of a rule file. A program with rules of another
//! kind altogether implements `TrustPolicy` itself.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use operators_kernel::{
    ConnectorName, OnAlert, OperatorName, PolicyRef, Shared, TrustDecision, json,
};
use serde_json::{Value, json};

use crate::error::{PolicyError, label_problem, shown};
use crate::limit::RuleLimit;
use crate::magnitude::Magnitude;
use crate::pattern::ToolPattern;
use crate::policy::{Head, Policy, Rule};
use crate::predicate::Predicate;

impl Rule {
    /// A rule that speaks of every action, and asks nothing of it.
    pub fn new(name: &str, decision: TrustDecision) -> Self {
        Self {
            name: name.into(),
            line: 0,
            connector: None,
            tool: None,
            decision,
            only_if: None,
            require: None,
            max_value: None,
            limit: None,
            on_alert: None,
        }
    }

    /// It speaks of this connector alone.
    #[must_use]
    pub fn on_connector(mut self, connector: ConnectorName) -> Self {
        self.connector = Some(connector);
        self
    }

    /// It speaks of these tools alone.
    #[must_use]
    pub fn on_tool(mut self, tool: ToolPattern) -> Self {
        self.tool = Some(tool);
        self
    }

    /// It speaks only of actions of which this is true.
    #[must_use]
    pub fn speaking_if(mut self, predicate: Predicate) -> Self {
        self.only_if = Some(predicate);
        self
    }

    /// This must be true of every action it speaks of, or the action is blocked.
    #[must_use]
    pub fn requiring(mut self, predicate: Predicate) -> Self {
        self.require = Some(predicate);
        self
    }

    /// A larger value, or none, is blocked.
    #[must_use]
    pub fn up_to(mut self, max_value: Magnitude) -> Self {
        self.max_value = Some(max_value);
        self
    }

    /// No more effects than this.
    #[must_use]
    pub fn limited(mut self, limit: RuleLimit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Its ALERT waits for a person, whatever the set's do.
    #[must_use]
    pub fn asking_first(mut self) -> Self {
        self.on_alert = Some(OnAlert::Approve);
        self
    }

    fn described(&self) -> Value {
        json!({
            "name": self.name,
            "connector": self.connector.as_ref().map(ConnectorName::as_str),
            "tool": self.tool.as_ref().map(ToolPattern::as_str),
            "decision": self.decision,
            "if": self.only_if.as_ref().map(|predicate| predicate.text().to_owned()),
            "require": self.require.as_ref().map(|predicate| predicate.text().to_owned()),
            "max_value": self.max_value.map(|max| max.to_string()),
            "limit": self.limit.map(RuleLimit::described),
            "alert": self.on_alert.map(|on_alert| match on_alert {
                OnAlert::Notify => "notify",
                OnAlert::Approve => "approve",
            }),
        })
    }
}

impl Policy {
    /// A policy of rules written in code, with the checks of a rule file. Its digest is of what the
    /// rules say; of a closure it knows the label alone.
    pub fn from_rules(name: &str, version: u64, rules: Vec<Rule>) -> Result<Self, PolicyError> {
        let refuse = |problem: String, remedy: &str| {
            Err(PolicyError::whole(
                Path::new(&format!("policy `{}`", shown(name))),
                problem,
                remedy,
            ))
        };
        if let Some(problem) = label_problem(name) {
            return refuse(format!("its name {problem}"), "give it a short name");
        }
        if version == 0 {
            return refuse("its version is 0".to_owned(), "count from 1");
        }
        if rules.is_empty() {
            return refuse("it has no rules".to_owned(), "add one");
        }
        let mut names = BTreeSet::new();
        for rule in &rules {
            let told = shown(&rule.name);
            if let Some(problem) = label_problem(&rule.name) {
                let problem = format!("the name of rule `{told}` {problem}");
                return refuse(problem, "give it a short name");
            }
            if !names.insert(&rule.name) {
                let problem = format!("two rules are named `{told}`");
                return refuse(problem, "give each its own name; receipts cite it");
            }
            if let Some(problem) = rule.limit.and_then(RuleLimit::problem) {
                let problem = format!("the limit of rule `{told}` {problem}");
                return refuse(problem, "write one that a store can count");
            }
        }
        let described: Vec<Value> = rules.iter().map(Rule::described).collect();
        let described = json!({ "policy": name, "version": version, "rules": described });
        let digest = match json::digest(&described) {
            Ok(digest) => digest.text(),
            Err(error) => return refuse(error.to_string(), "write it otherwise"),
        };
        let head = Head {
            reference: Shared::from(PolicyRef {
                name: name.into(),
                version,
                digest,
            }),
            file: "code".into(),
            name_place: (1, 1),
            applies_to: None,
        };
        Ok(Self {
            head: Arc::new(head),
            rules,
        })
    }

    /// The same policy for these operators alone.
    #[must_use]
    pub fn applying_to(mut self, operators: BTreeSet<OperatorName>) -> Self {
        let head = &self.head;
        self.head = Arc::new(Head {
            reference: head.reference.clone(),
            file: head.file.clone(),
            name_place: head.name_place,
            applies_to: Some(operators),
        });
        self
    }
}
