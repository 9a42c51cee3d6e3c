//! What people and programs are told about an alert or a question, as JSON.
//!
//! Owns the shape that `alerts list --json`, `approvals list --json` and `trust.notify` share.

use operators_kernel::life::{Acknowledgement, Alert, Approval};
use operators_kernel::{OperatorName, PolicyRef, Proposal, Timestamp};
use serde::Serialize;
use serde_json::{Map, Number, Value};

/// One alert, or one question.
#[derive(Debug, Serialize)]
pub(crate) struct Notice<'a> {
    #[serde(skip)]
    proposal: &'a Proposal,
    #[serde(rename = "notice", skip_serializing_if = "Option::is_none")]
    word: Option<&'static str>,
    receipt_id: &'a str,
    tenant_id: &'a str,
    operator: Option<&'a str>,
    connector: &'a str,
    tool: &'a str,
    /// Left out of what leaves this machine: arguments may be somebody's private matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'a Map<String, Value>>,
    value: Option<&'a Number>,
    entity_key: &'a str,
    idempotency_key: &'a str,
    rule: Option<&'a str>,
    policy: Option<&'a PolicyRef>,
    correlation_id: &'a str,
    run_id: &'a str,
    #[serde(flatten)]
    about: About<'a>,
}

/// What only one of the two has.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum About<'a> {
    Alert {
        raised_at: Timestamp,
        outcome: &'static str,
        error: Option<&'a str>,
        acknowledged: Option<&'a Acknowledgement>,
    },
    Approval {
        asked_at: Timestamp,
        expires_at: Timestamp,
    },
}

impl<'a> Notice<'a> {
    /// Something that ran and that a person should see.
    pub(crate) fn alert(alert: &'a Alert) -> Self {
        let about = About::Alert {
            raised_at: alert.raised_at,
            outcome: alert.outcome.as_str(),
            error: alert.error.as_deref(),
            acknowledged: alert.acknowledged.as_ref(),
        };
        Self::new(&alert.proposal, about)
    }

    /// Something that waits for a person.
    pub(crate) fn approval(asked: &'a Approval) -> Self {
        let about = About::Approval {
            asked_at: asked.asked_at,
            expires_at: asked.expires_at,
        };
        Self::new(&asked.proposal, about)
    }

    fn new(proposal: &'a Proposal, about: About<'a>) -> Self {
        Self {
            proposal,
            word: None,
            receipt_id: &proposal.receipt_id,
            tenant_id: proposal.tenant_id.as_str(),
            operator: proposal.operator.as_ref().map(OperatorName::as_str),
            connector: proposal.action.connector.as_str(),
            tool: proposal.action.tool.as_str(),
            args: None,
            value: proposal.value.as_ref(),
            entity_key: proposal.entity_key.as_str(),
            idempotency_key: proposal.idempotency_key.as_str(),
            rule: proposal.rule.as_deref(),
            policy: proposal.policy.as_deref(),
            correlation_id: &proposal.correlation_id,
            run_id: &proposal.run_id,
            about,
        }
    }

    /// With a word that tells a program which of the two it is.
    pub(crate) fn named(mut self) -> Self {
        self.word = Some(match self.about {
            About::Alert { .. } => "alert",
            About::Approval { .. } => "approval",
        });
        self
    }

    /// With the arguments, for whoever may look at the store.
    pub(crate) fn with_args(mut self) -> Self {
        self.args = Some(&self.proposal.action.args);
        self
    }
}
