//! A policy and its rules, checked: what a rule file says once it has loaded.
//!
//! Owns the nouns. How they are read is in `rule_file`, what follows from them in `rule_set`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use operators_kernel::{
    ConnectorName, OnAlert, OperatorName, PolicyRef, Shared, Text, TrustDecision,
};

use crate::limit::RuleLimit;
use crate::magnitude::Magnitude;
use crate::pattern::ToolPattern;
use crate::predicate::Predicate;

/// One policy, loaded from a rule file by [`Policy::parse`] or [`Policy::read`], whose text its
/// digest can be checked against, or written in code with [`Policy::from_rules`].
#[derive(Debug, Clone)]
pub struct Policy {
    pub(crate) head: Arc<Head>,
    pub(crate) rules: Vec<Rule>,
}

/// What all rules of a policy share.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) reference: Shared<PolicyRef>,
    pub(crate) file: PathBuf,
    /// Where the name stands, for the case that another policy has it too.
    pub(crate) name_place: (usize, usize),
    pub(crate) applies_to: Option<BTreeSet<OperatorName>>,
}

impl Head {
    /// A policy for named operators does not speak of a plan that nobody by name proposes.
    pub(crate) fn speaks_of(&self, operator: Option<&OperatorName>) -> bool {
        match (&self.applies_to, operator) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(operators), Some(operator)) => operators.contains(operator),
        }
    }
}

impl Policy {
    /// Name, version and digest, as receipts cite them.
    pub fn reference(&self) -> &PolicyRef {
        &self.head.reference
    }

    /// The file it was read from.
    pub fn file(&self) -> &Path {
        &self.head.file
    }

    /// The operators it is for; `None` is all.
    pub fn applies_to(&self) -> Option<&BTreeSet<OperatorName>> {
        self.head.applies_to.as_ref()
    }

    /// Its rules, in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

/// One rule: which actions it speaks of, what it says of them, and what must hold for that.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(crate) name: Text,
    pub(crate) line: usize,
    pub(crate) connector: Option<ConnectorName>,
    pub(crate) tool: Option<ToolPattern>,
    pub(crate) decision: TrustDecision,
    pub(crate) only_if: Option<Predicate>,
    pub(crate) require: Option<Predicate>,
    pub(crate) max_value: Option<Magnitude>,
    pub(crate) limit: Option<RuleLimit>,
    /// What its own ALERT leads to; `None` leaves it to the set.
    pub(crate) on_alert: Option<OnAlert>,
}

impl Rule {
    /// Its name, unique in its policy.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line of its file where it starts.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The connector it speaks of; `None` is any.
    pub fn connector(&self) -> Option<&ConnectorName> {
        self.connector.as_ref()
    }

    /// The tools it speaks of; `None` is any.
    pub fn tool(&self) -> Option<&ToolPattern> {
        self.tool.as_ref()
    }

    /// What it says of an action that it speaks of.
    pub fn decision(&self) -> TrustDecision {
        self.decision
    }

    /// Its `if`: whether it speaks of an action at all.
    pub fn only_if(&self) -> Option<&Predicate> {
        self.only_if.as_ref()
    }

    /// Its `require`: what must hold, or the action is blocked.
    pub fn require(&self) -> Option<&Predicate> {
        self.require.as_ref()
    }

    /// How many effects it lets through in how long.
    pub fn limit(&self) -> Option<RuleLimit> {
        self.limit
    }

    /// The largest value it lets through; a larger one is blocked.
    pub fn max_value(&self) -> Option<Magnitude> {
        self.max_value
    }
}
