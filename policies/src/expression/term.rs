//! The checked form of an expression: only what this version can judge, and nothing else.
//!
//! Owns the nouns. How text becomes a term is in `compile`, what it comes to in `evaluate`.

use std::sync::Arc;

use regex::Regex;

use super::kinds::{Kinds, Operator};

/// One node.
#[derive(Debug)]
pub(super) enum Term {
    Literal(Literal),
    Fact(Fact),
    /// The variable of a comprehension, counted from the outermost.
    Local(usize),
    Field(Box<Term>, Arc<str>),
    Has(Box<Term>, Arc<str>),
    Index(Box<Term>, Box<Term>),
    Not(Box<Term>),
    Negate(Box<Term>),
    And(Box<Term>, Box<Term>),
    Or(Box<Term>, Box<Term>),
    Choice(Box<Term>, Box<Term>, Box<Term>),
    Between(Operator, Box<Term>, Box<Term>),
    In(Box<Term>, Box<Term>),
    List(Vec<Term>),
    Size(Box<Term>),
    Convert(Conversion, Box<Term>),
    TextTest(TextTest, Box<Term>, Box<Term>),
    Matches(Box<Term>, Regex),
    Each(Quantifier, Box<Term>, Box<Term>),
}

#[derive(Debug)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Box<str>),
}

/// `int()`, `double()`, `string()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conversion {
    Int,
    Double,
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextTest {
    Contains,
    StartsWith,
    EndsWith,
}

/// A comprehension over a list's items or a map's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantifier {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

/// What an expression may read. Nothing else of the question is in reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    Args,
    Value,
    EntityKey,
    IdempotencyKey,
    Operator,
    Tenant,
    Connector,
    Tool,
    Revision,
    SourceId,
    IndexHash,
    /// The envelope itself, to ask whether there is one.
    Event,
    EventField(EventField),
}

/// The ten fields of the event's envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventField {
    EventId,
    ResellerId,
    TenantId,
    WorkspaceId,
    Source,
    EventType,
    CorrelationId,
    Payload,
    AgentId,
    SessionId,
}

/// The variables, for people who misspelt one.
pub(super) const VARIABLES: &str =
    "action, args, value, entity_key, idempotency_key, operator, tenant, event";

/// The fields of `action`, likewise.
pub(super) const ACTION_FIELDS: &str = "connector, tool, args, value, entity_key, \
     idempotency_key, revision, source_id, index_hash";

/// The fields of `event`, likewise.
pub(super) const EVENT_FIELDS: &str = "event_id, reseller_id, tenant_id, workspace_id, source, \
     event_type, correlation_id, payload, agent_id, session_id";

impl Fact {
    /// The variable of that name; `action` is none, it is used by its fields.
    pub(super) fn variable(name: &str) -> Option<Self> {
        Some(match name {
            "args" => Self::Args,
            "value" => Self::Value,
            "entity_key" => Self::EntityKey,
            "idempotency_key" => Self::IdempotencyKey,
            "operator" => Self::Operator,
            "tenant" => Self::Tenant,
            "event" => Self::Event,
            _ => return None,
        })
    }

    pub(super) fn of_action(field: &str) -> Option<Self> {
        Some(match field {
            "connector" => Self::Connector,
            "tool" => Self::Tool,
            "revision" => Self::Revision,
            "source_id" => Self::SourceId,
            "index_hash" => Self::IndexHash,
            "args" | "value" | "entity_key" | "idempotency_key" => return Self::variable(field),
            _ => return None,
        })
    }

    pub(super) fn of_event(field: &str) -> Option<Self> {
        Some(Self::EventField(match field {
            "event_id" => EventField::EventId,
            "reseller_id" => EventField::ResellerId,
            "tenant_id" => EventField::TenantId,
            "workspace_id" => EventField::WorkspaceId,
            "source" => EventField::Source,
            "event_type" => EventField::EventType,
            "correlation_id" => EventField::CorrelationId,
            "payload" => EventField::Payload,
            "agent_id" => EventField::AgentId,
            "session_id" => EventField::SessionId,
            _ => return None,
        }))
    }

    pub(super) fn kinds(self) -> Kinds {
        match self {
            Self::Args | Self::EventField(EventField::Payload) => Kinds::MAP,
            Self::Value | Self::Revision => Kinds::DOUBLE.or(Kinds::NULL),
            Self::Event => Kinds::MAP.or(Kinds::NULL),
            Self::EntityKey
            | Self::IdempotencyKey
            | Self::Tenant
            | Self::Connector
            | Self::Tool
            | Self::EventField(
                EventField::EventId
                | EventField::TenantId
                | EventField::Source
                | EventField::EventType
                | EventField::CorrelationId,
            ) => Kinds::TEXT,
            Self::Operator
            | Self::SourceId
            | Self::IndexHash
            | Self::EventField(
                EventField::ResellerId
                | EventField::WorkspaceId
                | EventField::AgentId
                | EventField::SessionId,
            ) => Kinds::TEXT.or(Kinds::NULL),
        }
    }

    /// Whether a receipt does not keep it.
    pub(crate) fn is_of_event(self) -> bool {
        matches!(self, Self::Event | Self::EventField(_))
    }
}
