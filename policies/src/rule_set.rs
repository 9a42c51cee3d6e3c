//! All policies together: a set, in which no order counts and silence is BLOCK.
//!
//! Owns the rules of evaluation, in `decide`. It must not know how a rule file is written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use operators_kernel::{
    Limit, OnAlert, OperatorName, PolicyRef, Ruling, TrustDecision, TrustPolicy, TrustQuestion,
};

use crate::error::{PolicyError, shown, shown_path};
use crate::explain::{Explanation, Finding};
use crate::expression::Steps;
use crate::index::Index;
use crate::policy::{Head, Policy, Rule};
use crate::reach::Reach;
use crate::room::loading;

const NO_POLICY_FILES: &str = "no policy files";
const OUT_OF_REACH: &str = "outside the operator's `requires`";

/// What a rule set is made of: two layers, which must agree, and the reach of each operator.
#[derive(Debug, Default)]
pub struct Layers {
    /// The project's policies.
    pub project: Vec<Policy>,
    /// The policies of each operator that has its own; an empty list blocks all that it proposes.
    pub own: BTreeMap<OperatorName, Vec<Policy>>,
    /// The `requires` of each operator that has one. An empty list reaches nothing; an operator
    /// that is not in the map is bound by the policies alone.
    pub reaches: BTreeMap<OperatorName, Vec<Reach>>,
    /// What an ALERT leads to whose rule does not say.
    pub on_alert: OnAlert,
}

/// The policies of a project and the reach of its operators, ready to answer.
#[derive(Debug, Default)]
pub struct RuleSet {
    policies: Vec<PolicyRef>,
    project: Layer,
    own: BTreeMap<OperatorName, Layer>,
    reaches: BTreeMap<OperatorName, Vec<Reach>>,
    on_alert: OnAlert,
}

/// Policies of which at least one rule must speak.
#[derive(Debug, Default)]
struct Layer {
    is_empty: bool,
    rules: Index<PlacedRule>,
}

#[derive(Debug)]
struct PlacedRule {
    head: Arc<Head>,
    rule: Rule,
    /// Its place by policy name and rule name among all rules of the set.
    rank: usize,
    /// Whether it stands in an operator's own layer.
    is_own: bool,
}

/// Which layers a rule spoke in.
#[derive(Debug, Clone, Copy, Default)]
struct Spoken {
    project: bool,
    own: bool,
}

impl RuleSet {
    /// Reads every file or none: a set that lacks one of its files would lack its BLOCK rules too.
    ///
    /// `reaches` is as in [`Layers`].
    pub fn load(
        files: &[PathBuf],
        reaches: BTreeMap<OperatorName, Vec<Reach>>,
    ) -> Result<Self, PolicyError> {
        let read = || files.iter().map(|file| Policy::read(file)).collect();
        let policies: Result<Vec<Policy>, PolicyError> = loading(read);
        Self::new(policies?, reaches)
    }

    /// A set of policies that are loaded already; without any it blocks everything.
    pub fn new(
        policies: Vec<Policy>,
        reaches: BTreeMap<OperatorName, Vec<Reach>>,
    ) -> Result<Self, PolicyError> {
        Self::layered(Layers {
            project: policies,
            reaches,
            ..Layers::default()
        })
    }

    /// The policies of a project and those of its operators, which must agree: what either does
    /// not speak of, or blocks, does not run.
    pub fn layered(layers: Layers) -> Result<Self, PolicyError> {
        let Layers {
            project,
            own,
            reaches,
            on_alert,
        } = layers;
        let mut all: Vec<(Option<OperatorName>, Policy)> = Vec::new();
        let mut set = Self {
            project: Layer::of(&project),
            reaches,
            on_alert,
            ..Self::default()
        };
        all.extend(project.into_iter().map(|policy| (None, policy)));
        for (operator, policies) in own {
            for policy in &policies {
                refuse_foreign(&operator, &policy.head)?;
            }
            set.own.insert(operator.clone(), Layer::of(&policies));
            let owned = policies.into_iter();
            all.extend(owned.map(|policy| (Some(operator.clone()), policy)));
        }
        refuse_same_names(all.iter().map(|(_, policy)| &*policy.head))?;
        // Citations are by name, so that no order of files and rules can be told from a ruling.
        all.sort_by(|(_, left), (_, right)| left.reference().name.cmp(&right.reference().name));
        let mut rank = 0;
        for (operator, Policy { head, mut rules }) in all {
            rules.sort_by(|left, right| left.name.cmp(&right.name));
            set.policies.push((*head.reference).clone());
            let is_own = operator.is_some();
            let layer = match operator {
                None => &mut set.project,
                Some(operator) => set.own.entry(operator).or_default(),
            };
            for rule in rules {
                let head = Arc::clone(&head);
                let (connector, tool) = (rule.connector.clone(), rule.tool.clone());
                let placed = PlacedRule {
                    head,
                    rule,
                    rank,
                    is_own,
                };
                rank += 1;
                layer
                    .rules
                    .insert(connector.as_ref(), tool.as_ref(), placed);
            }
        }
        Ok(set)
    }

    /// The policies in the set, of both layers, by name.
    pub fn policies(&self) -> &[PolicyRef] {
        &self.policies
    }

    /// The ruling, and every rule for the tool with what its constraints saw.
    pub fn explain(&self, question: &TrustQuestion<'_>) -> Explanation<'_> {
        let steps = Steps::default();
        let mut silent = Vec::new();
        let mut placed: Vec<&PlacedRule> = Vec::new();
        for layer in self.layers(question) {
            let action = question.action;
            let rules = &layer.rules;
            rules.collect_fitting(&action.connector, &action.tool, &mut placed);
        }
        placed.retain(|placed| placed.head.speaks_of(question.operator));
        // Before anything is asked: the steps of a question are spent in this order too.
        placed.sort_unstable_by_key(|placed| placed.rank);
        let mut findings = Vec::with_capacity(placed.len());
        let mut spoken = Spoken::default();
        for placed in placed {
            let finding = Finding::new(&placed.head.reference, &placed.rule, question, &steps);
            if finding.is_silent() {
                silent.push(finding);
            } else {
                let layer = if placed.is_own {
                    &mut spoken.own
                } else {
                    &mut spoken.project
                };
                *layer = true;
                findings.push(finding);
            }
        }
        Explanation {
            ruling: self.decide(question, &findings, spoken),
            findings,
            silent,
        }
    }

    /// The layers that must agree about this question: the project's, and then the operator's own.
    fn layers<'a>(&'a self, question: &TrustQuestion<'_>) -> impl Iterator<Item = &'a Layer> {
        let own = question.operator.and_then(|name| self.own.get(name));
        std::iter::once(&self.project).chain(own)
    }

    /// The rules of evaluation, strongest first.
    fn decide(
        &self,
        question: &TrustQuestion<'_>,
        findings: &[Finding<'_>],
        spoken: Spoken,
    ) -> Ruling {
        if self.layers(question).any(|layer| layer.is_empty) || self.policies.is_empty() {
            return Ruling::closed(NO_POLICY_FILES);
        }
        if !self.is_in_reach(question) {
            return Ruling::closed(OUT_OF_REACH);
        }
        if let Some(failed) = findings.iter().find(|finding| !finding.holds()) {
            return failed.ruling(TrustDecision::Block);
        }
        let said = |decision: TrustDecision| {
            let mut says_so = findings
                .iter()
                .filter(move |it| it.rule.decision == decision);
            says_so.next()
        };
        if let Some(finding) = said(TrustDecision::Block) {
            return finding.ruling(TrustDecision::Block);
        }
        for (layer, has_spoken) in self.layers(question).zip([spoken.project, spoken.own]) {
            if !has_spoken {
                return self.unspoken(question, layer);
            }
        }
        for decision in [TrustDecision::Alert, TrustDecision::Allow] {
            if let Some(finding) = said(decision) {
                return Ruling {
                    limits: limits(findings, question),
                    on_alert: self.on_alert(findings),
                    ..finding.ruling(decision)
                };
            }
        }
        self.unspoken(question, &self.project)
    }

    fn unspoken(&self, question: &TrustQuestion<'_>, layer: &Layer) -> Ruling {
        let action = question.action;
        let whose = match question.operator {
            Some(operator) if !std::ptr::eq(layer, &raw const self.project) => {
                format!(" of operator `{operator}`'s own policies")
            }
            _ => String::new(),
        };
        Ruling::closed(format!(
            "no rule{whose} speaks of `{}:{}`",
            action.connector, action.tool
        ))
    }

    /// One rule that wants a person asked is enough.
    fn on_alert(&self, findings: &[Finding<'_>]) -> OnAlert {
        let asks = |finding: &Finding<'_>| {
            let on_alert = finding.rule.on_alert.unwrap_or(self.on_alert);
            finding.rule.decision == TrustDecision::Alert && on_alert == OnAlert::Approve
        };
        if findings.iter().any(asks) {
            OnAlert::Approve
        } else {
            OnAlert::Notify
        }
    }

    fn is_in_reach(&self, question: &TrustQuestion<'_>) -> bool {
        let reaches = question
            .operator
            .and_then(|operator| self.reaches.get(operator));
        reaches.is_none_or(|reaches| reaches.iter().any(|reach| reach.covers(question.action)))
    }
}

impl Layer {
    fn of(policies: &[Policy]) -> Self {
        Self {
            is_empty: policies.is_empty(),
            rules: Index::default(),
        }
    }
}

impl TrustPolicy for RuleSet {
    fn evaluate(&self, question: &TrustQuestion<'_>) -> Ruling {
        self.explain(question).ruling
    }

    /// Rules speak of side effects alone; an operator's `requires` is all that bounds its reads.
    fn evaluate_read(&self, question: &TrustQuestion<'_>) -> Ruling {
        if self.is_in_reach(question) {
            Ruling::of(TrustDecision::Allow)
        } else {
            Ruling::closed(OUT_OF_REACH)
        }
    }
}

/// Every limit of every rule that speaks: the action must fit into all of them.
fn limits(findings: &[Finding<'_>], question: &TrustQuestion<'_>) -> Vec<Limit> {
    let limited = findings.iter().filter_map(|finding| {
        let limit = finding.rule.limit?;
        Some(limit.for_question(finding.policy, &finding.rule.name, question))
    });
    limited.collect()
}

/// A policy among an operator's own that is for others would never speak, and look as if it did.
fn refuse_foreign(operator: &OperatorName, head: &Head) -> Result<(), PolicyError> {
    if head.speaks_of(Some(operator)) {
        return Ok(());
    }
    let (line, column) = head.name_place;
    Err(PolicyError::Text {
        file: head.file.clone(),
        line,
        column,
        problem: format!(
            "policy `{}` is operator `{operator}`'s own and does not apply to it",
            shown(&head.reference.name)
        ),
        remedy: "add the operator to `applies_to`, or leave `applies_to` out".to_owned(),
    })
}

/// Receipts cite a policy by its name, so one name must not stand for two texts.
fn refuse_same_names<'a>(heads: impl Iterator<Item = &'a Head>) -> Result<(), PolicyError> {
    let mut seen: BTreeMap<&str, &Head> = BTreeMap::new();
    for head in heads {
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
