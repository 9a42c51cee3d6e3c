//! All policies together: a set, in which no order counts and silence is BLOCK.
//!
//! Owns the rules of evaluation, in `decide`. It must not know how a rule file is written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use operators_kernel::{
    OperatorName, PolicyRef, Ruling, TrustDecision, TrustPolicy, TrustQuestion,
};

use crate::error::{PolicyError, shown, shown_path};
use crate::explain::{Explanation, Finding};
use crate::index::Index;
use crate::policy::{Head, Policy, Rule};
use crate::reach::Reach;

const NO_POLICY_FILES: &str = "no policy files";
const OUT_OF_REACH: &str = "outside the operator's `requires`";

/// The policies of a project and the reach of its operators, ready to answer.
#[derive(Debug, Default)]
pub struct RuleSet {
    policies: Vec<PolicyRef>,
    rules: Index<PlacedRule>,
    reaches: BTreeMap<OperatorName, Vec<Reach>>,
}

#[derive(Debug)]
struct PlacedRule {
    head: Arc<Head>,
    rule: Rule,
}

impl RuleSet {
    /// Reads every file or none: a set that lacks one of its files would lack its BLOCK rules too.
    ///
    /// `reaches` holds the `requires` of each operator that has one. An empty list reaches
    /// nothing; an operator that is not in the map is bound by the policies alone.
    pub fn load(
        files: &[PathBuf],
        reaches: BTreeMap<OperatorName, Vec<Reach>>,
    ) -> Result<Self, PolicyError> {
        let policies = files.iter().map(|file| Policy::read(file));
        Self::new(policies.collect::<Result<_, _>>()?, reaches)
    }

    /// A set of policies that are loaded already; without any it blocks everything.
    pub fn new(
        mut policies: Vec<Policy>,
        reaches: BTreeMap<OperatorName, Vec<Reach>>,
    ) -> Result<Self, PolicyError> {
        refuse_same_names(&policies)?;
        // `findings` sorts what matches; what is sorted already costs it almost nothing.
        policies.sort_by(|left, right| left.reference().name.cmp(&right.reference().name));
        let mut set = Self {
            reaches,
            ..Self::default()
        };
        for Policy { head, mut rules } in policies {
            rules.sort_by(|left, right| left.name.cmp(&right.name));
            set.policies.push(head.reference.clone());
            for rule in rules {
                let head = Arc::clone(&head);
                let (connector, tool) = (rule.connector.clone(), rule.tool.clone());
                let placed = PlacedRule { head, rule };
                set.rules.insert(connector.as_ref(), tool.as_ref(), placed);
            }
        }
        Ok(set)
    }

    /// The policies in the set, by name.
    pub fn policies(&self) -> &[PolicyRef] {
        &self.policies
    }

    /// The ruling, and every rule that speaks of the action with what its constraints saw.
    pub fn explain(&self, question: &TrustQuestion<'_>) -> Explanation<'_> {
        let findings = self.findings(question);
        Explanation {
            ruling: self.decide(question, &findings),
            findings,
        }
    }

    /// The rules that match, by name, so that the first of its kind is the one to cite whatever
    /// the order of files and rules.
    fn findings(&self, question: &TrustQuestion<'_>) -> Vec<Finding<'_>> {
        let action = question.action;
        let mut findings: Vec<Finding<'_>> = self
            .rules
            .fitting(&action.connector, &action.tool)
            .into_iter()
            .filter(|placed| placed.head.speaks_of(question.operator))
            .map(|placed| Finding::new(&placed.head.reference, &placed.rule, question))
            .collect();
        findings.sort_by(|left, right| {
            let by_policy = left.policy.name.cmp(&right.policy.name);
            by_policy.then_with(|| left.rule.name.cmp(&right.rule.name))
        });
        findings
    }

    /// The rules of evaluation, strongest first.
    fn decide(&self, question: &TrustQuestion<'_>, findings: &[Finding<'_>]) -> Ruling {
        if self.policies.is_empty() {
            return Ruling::closed(NO_POLICY_FILES);
        }
        if !self.is_in_reach(question) {
            return Ruling::closed(OUT_OF_REACH);
        }
        if let Some(failed) = findings.iter().find(|finding| !finding.holds()) {
            return failed.ruling(TrustDecision::Block);
        }
        for decision in [
            TrustDecision::Block,
            TrustDecision::Alert,
            TrustDecision::Allow,
        ] {
            let says_so = |finding: &&Finding<'_>| finding.rule.decision == decision;
            if let Some(finding) = findings.iter().find(says_so) {
                return finding.ruling(decision);
            }
        }
        let action = question.action;
        Ruling::closed(format!(
            "no rule speaks of `{}:{}`",
            action.connector, action.tool
        ))
    }

    fn is_in_reach(&self, question: &TrustQuestion<'_>) -> bool {
        let reaches = question
            .operator
            .and_then(|operator| self.reaches.get(operator));
        reaches.is_none_or(|reaches| reaches.iter().any(|reach| reach.covers(question.action)))
    }
}

impl TrustPolicy for RuleSet {
    fn evaluate(&self, question: &TrustQuestion<'_>) -> Ruling {
        self.explain(question).ruling
    }
}

/// Receipts cite a policy by its name, so one name must not stand for two texts.
fn refuse_same_names(policies: &[Policy]) -> Result<(), PolicyError> {
    let mut seen: BTreeMap<&str, &Head> = BTreeMap::new();
    for Policy { head, .. } in policies {
        let Some(first) = seen.insert(&head.reference.name, head) else {
            continue;
        };
        let (line, column) = head.name_place;
        return Err(PolicyError::Text {
            file: head.file.clone(),
            line,
            column,
            problem: format!(
                "policy `{}` is in `{}` too",
                shown(&head.reference.name),
                shown_path(&first.file)
            ),
            remedy: "give one of them another name, or list the file once".to_owned(),
        });
    }
    Ok(())
}
