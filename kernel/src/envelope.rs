//! The event that made somebody propose a plan: ten fields, null but never missing.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::{Clock, IdKind};
use crate::key::TenantId;

/// What happened, to whom, and the thread it belongs to. It is context: nothing in it acts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventEnvelope {
    /// Made by us, never taken from a caller.
    pub event_id: String,
    /// The reseller that owns the tenant; null for a direct one.
    #[serde(deserialize_with = "Option::deserialize")]
    pub reseller_id: Option<String>,
    /// Whose event it is.
    pub tenant_id: TenantId,
    /// A partition inside the tenant; not a wall.
    #[serde(deserialize_with = "Option::deserialize")]
    pub workspace_id: Option<String>,
    /// Who saw it: `shopify`, `cron`, `operator:jenny`.
    pub source: String,
    /// Dotted, noun first: `order.created`.
    pub event_type: String,
    /// The thread through sense, reason and act.
    pub correlation_id: String,
    /// What the source said.
    pub payload: Map<String, Value>,
    /// The operator that emitted it; null from outside.
    #[serde(deserialize_with = "Option::deserialize")]
    pub agent_id: Option<String>,
    /// The reasoning session.
    #[serde(deserialize_with = "Option::deserialize")]
    pub session_id: Option<String>,
}

impl EventEnvelope {
    /// An envelope with a fresh `event_id`, and a fresh `correlation_id` unless one is given.
    pub fn new(
        clock: &dyn Clock,
        tenant_id: TenantId,
        source: impl Into<String>,
        event_type: impl Into<String>,
        payload: Map<String, Value>,
        correlation_id: Option<String>,
    ) -> Self {
        Self {
            event_id: clock.id(IdKind::Event).into(),
            reseller_id: None,
            tenant_id,
            workspace_id: None,
            source: source.into(),
            event_type: event_type.into(),
            correlation_id: correlation_id.unwrap_or_else(|| clock.id(IdKind::Correlation).into()),
            payload,
            agent_id: None,
            session_id: None,
        }
    }

    /// Whether `pattern` speaks of this event's type; `*` stands for exactly one segment.
    pub fn is_of_type(&self, pattern: &str) -> bool {
        dotted_matches(pattern, &self.event_type)
    }
}

/// Compares dotted names segment by segment; `*` in the pattern stands for exactly one segment.
pub fn dotted_matches(pattern: &str, name: &str) -> bool {
    let mut wanted = pattern.split('.');
    let mut given = name.split('.');
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some("*"), Some(segment)) if !segment.is_empty() => {}
            (Some(want), Some(segment)) if want == segment => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_segment() {
        assert!(dotted_matches("order.*", "order.created"));
        assert!(!dotted_matches("order.*", "order.refund.issued"));
        assert!(!dotted_matches("order.*", "order"));
        assert!(!dotted_matches("order.*", "order."));
        assert!(dotted_matches("*.*.issued", "order.refund.issued"));
        assert!(!dotted_matches("order.created", "order.creates"));
    }

    #[test]
    fn a_missing_field_is_refused_and_null_is_written() {
        let text = r#"{"event_id":"ev_1","reseller_id":null,"tenant_id":"t","workspace_id":null,
            "source":"s","event_type":"a.b","correlation_id":"co_1","payload":{},"agent_id":null,
            "session_id":null}"#;
        let envelope: EventEnvelope = crate::json::parse_as(text).expect("whole");
        let written = serde_json::to_value(&envelope).expect("writes");
        assert_eq!(written.as_object().map(Map::len), Some(10));
        let missing = text.replace("\"agent_id\":null,", "");
        assert!(crate::json::parse_as::<EventEnvelope>(&missing).is_err());
    }
}
