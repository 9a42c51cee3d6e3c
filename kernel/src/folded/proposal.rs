//! A proposal as bytes, but for what stands in the head of every piece.

use serde_json::Value;

use super::{Head, policies};
use crate::key::{ConnectorName, EntityKey, IdempotencyKey, OperatorName, TenantId, ToolName};
use crate::packed::bytes::{self, Read};
use crate::packed::{Pack, Packed, Reader, pack_number};
use crate::receipt::{KnownBy, Person, Proposal, ReceiptAction};
use crate::trust::TrustDecision;

pub(super) fn write(to: &mut Vec<u8>, proposal: &Proposal) {
    write_maybe(to, proposal.reseller_id.as_deref());
    write_maybe(to, proposal.operator.as_ref().map(OperatorName::as_str));
    bytes::text(to, &proposal.run_id);
    bytes::text(to, &proposal.plan_id);
    write_maybe(to, proposal.event_id.as_deref());
    bytes::text(to, &proposal.correlation_id);
    bytes::text(to, proposal.action.connector.as_str());
    bytes::text(to, proposal.action.tool.as_str());
    bytes::piece(to, proposal.action.args.bytes());
    if let Some(value) = &proposal.value {
        pack_number(value, to);
    } else {
        Value::Null.pack(to);
    }
    bytes::text(to, proposal.entity_key.as_str());
    write_maybe_number(to, proposal.revision);
    write_maybe(to, proposal.source_id.as_deref());
    write_maybe(to, proposal.index_hash.as_deref());
    to.push(match proposal.decision {
        TrustDecision::Allow => 0,
        TrustDecision::Alert => 1,
        TrustDecision::Block => 2,
    });
    write_maybe(to, proposal.approver.as_deref());
    write_known_by(to, proposal.known_by);
    bytes::length(to, proposal.limits.len());
    for limit in &proposal.limits {
        bytes::text(to, limit);
    }
}

pub(super) fn read(reader: &Reader<'_>, head: &Head<'_>) -> Option<Proposal> {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    // What was an identifier is one.
    Some(Proposal {
        receipt_id: head.receipt_id.into(),
        tenant_id: TenantId::parse(head.tenant).ok()?,
        reseller_id: owned(read_maybe(reader)?),
        operator: match read_maybe(reader)? {
            Some(operator) => Some(OperatorName::parse(operator).ok()?),
            None => None,
        },
        run_id: reader.text()?.into(),
        plan_id: reader.text()?.into(),
        event_id: owned(read_maybe(reader)?),
        correlation_id: reader.text()?.into(),
        action: ReceiptAction {
            connector: ConnectorName::parse(reader.text()?).ok()?,
            tool: ToolName::parse(reader.text()?).ok()?,
            args: Packed::of_bytes(reader.piece()?),
        }
        .into(),
        value: match Value::unpack(reader)? {
            Value::Number(value) => Some(value),
            Value::Null => None,
            Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => return None,
        },
        entity_key: EntityKey::parse(reader.text()?).ok()?,
        idempotency_key: IdempotencyKey::parse(head.key).ok()?,
        revision: read_maybe_number(reader)?,
        source_id: owned(read_maybe(reader)?),
        index_hash: owned(read_maybe(reader)?),
        decision: match reader.byte()? {
            0 => TrustDecision::Allow,
            1 => TrustDecision::Alert,
            2 => TrustDecision::Block,
            _ => return None,
        },
        rule: None,
        policy: None,
        note: None,
        approver: owned(read_maybe(reader)?),
        known_by: read_known_by(reader)?,
        limits: (0..reader.length()?)
            .map(|_| reader.text().map(str::to_owned))
            .collect::<Option<_>>()?,
        proposed_at: head.proposed_at,
    })
}

/// What trust said, for a receipt that shows it.
pub(super) fn write_ruling(to: &mut Vec<u8>, proposal: &Proposal) {
    write_maybe(to, proposal.rule.as_deref());
    policies::write(to, proposal.policy.as_ref());
    write_maybe(to, proposal.note.as_deref());
}

pub(super) fn read_ruling(reader: &Reader<'_>, proposal: &mut Proposal) -> Option<()> {
    proposal.rule = read_maybe(reader)?.map(Into::into);
    proposal.policy = policies::read(reader)?;
    proposal.note = read_maybe(reader)?.map(str::to_owned);
    Some(())
}

/// A text that may not be there.
pub(super) fn write_maybe(to: &mut Vec<u8>, text: Option<&str>) {
    let Some(text) = text else {
        to.push(0);
        return;
    };
    to.push(1);
    bytes::text(to, text);
}

pub(super) fn read_maybe<'a>(reader: &Reader<'a>) -> Read<Option<&'a str>> {
    match reader.byte()? {
        0 => Some(None),
        1 => reader.text().map(Some),
        _ => None,
    }
}

/// How a person's name is known.
pub(super) fn write_known_by(to: &mut Vec<u8>, known_by: Option<KnownBy>) {
    to.push(match known_by {
        None => 0,
        Some(KnownBy::As) => 1,
        Some(KnownBy::Environment) => 2,
        Some(KnownBy::System) => 3,
    });
}

fn read_known_by(reader: &Reader<'_>) -> Read<Option<KnownBy>> {
    Some(match reader.byte()? {
        0 => None,
        1 => Some(KnownBy::As),
        2 => Some(KnownBy::Environment),
        3 => Some(KnownBy::System),
        _ => return None,
    })
}

/// A person who may not be there.
pub(super) fn read_person(reader: &Reader<'_>) -> Read<Option<Person>> {
    let name = read_maybe(reader)?.map(str::to_owned);
    let known_by = read_known_by(reader)?;
    Some(name.map(|name| Person { name, known_by }))
}

/// A number that may not be there.
pub(super) fn write_maybe_number(to: &mut Vec<u8>, number: Option<u64>) {
    let Some(number) = number else {
        to.push(0);
        return;
    };
    to.push(1);
    bytes::unsigned(to, number);
}

pub(super) fn read_maybe_number(reader: &Reader<'_>) -> Read<Option<u64>> {
    match reader.byte()? {
        0 => Some(None),
        1 => reader.unsigned().map(Some),
        _ => None,
    }
}
