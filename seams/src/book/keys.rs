//! A key's life inside one transaction: claimed, settled, resolved, forgotten.

use operators_kernel::life::{self, ClaimStep, ForgetStep, ResolveStep, SettleStep};
use operators_kernel::{
    Claim, ClaimAnswer, Forget, ForgetAnswer, Resolution, ResolveAnswer, SettleAnswer, Settlement,
    TenantId,
};

use super::notes::{let_through, slots_given_back};
use super::turns::{give_place_back, queue, turn_of};
use super::{Asker, Book, BookError, Change};

/// Answers one claim.
pub(crate) fn claim<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    claim: &Claim,
) -> Result<ClaimAnswer, BookError<B::Error>> {
    if book.is_buried(claim.session)? {
        return Err(BookError::SessionDead(claim.session));
    }
    let (entity_key, name) = (&claim.proposal.entity_key, &claim.proposal.receipt_id);
    let mut asker = Asker {
        session: claim.session,
        name,
        place: claim.ticket,
    };
    if claim.asked_before {
        asker.place = book.place_of(tenant, entity_key, name)?;
        if let Some(receipt) = book.receipt(tenant, name)? {
            let key = book.key(tenant, &claim.proposal.idempotency_key)?;
            give_place_back(book, tenant, entity_key, asker)?;
            return Ok(life::told_before(&receipt, key.as_deref(), claim));
        }
    }
    let (entity, turn) = turn_of(book, tenant, entity_key, &mut asker)?;
    // Read after `turn_of`: burying a dead holder may have moved this very key.
    if let Some((receipt, answer)) = book.duplicate(tenant, claim)? {
        book.append(receipt)?;
        give_place_back(book, tenant, entity_key, asker)?;
        return Ok(answer);
    }
    let key = book.key(tenant, &claim.proposal.idempotency_key)?;
    let answer = match life::claim(key.as_deref(), &entity, turn, claim, book.now()) {
        ClaimStep::Grant {
            key: mut granted,
            entity,
        } => match let_through(book, tenant, key.as_deref(), claim)? {
            Ok(approver) => {
                if approver.is_some() {
                    granted.proposal.name_approver(approver);
                }
                let mark = granted.mark();
                book.put_key(granted, Change::Claimed)?;
                book.put_entity(tenant, entity_key, &entity)?;
                ClaimAnswer::Claimed(mark)
            }
            Err(refused) => refused,
        },
        ClaimStep::GrantedBefore(mark) => ClaimAnswer::Claimed(mark),
        ClaimStep::Wait => {
            let ticket = queue(book, tenant, entity_key, asker)?;
            return Ok(ClaimAnswer::Wait(ticket));
        }
        ClaimStep::Probe(doubt) => ClaimAnswer::Probe(doubt),
        ClaimStep::End { receipt, answer } => {
            book.append(receipt)?;
            answer
        }
    };
    give_place_back(book, tenant, entity_key, asker)?;
    Ok(answer)
}

/// Records the end of one attempt.
pub(crate) fn settle<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    settlement: &Settlement,
) -> Result<SettleAnswer, BookError<B::Error>> {
    let name = &settlement.proposal.idempotency_key;
    let Some(record) = book.key(tenant, name)? else {
        return Err(BookError::KeyMissing(name.clone()));
    };
    for receipt_id in life::receipts_to_ask(&record, settlement).iter().flatten() {
        let receipt = book.receipt(tenant, receipt_id)?;
        let told = receipt.and_then(|receipt| life::told_in(&receipt, &record, settlement));
        if let Some(answer) = told {
            return Ok(answer);
        }
    }
    let entity_key = record.proposal.entity_key.clone();
    let entity = book.entity(tenant, &entity_key)?;
    let SettleStep {
        key,
        entity,
        receipt,
        answer,
    } = life::settle(&record, &entity, settlement);
    let mut notes = match &key {
        Some(key) => slots_given_back(book, tenant, key)?,
        None => Vec::new(),
    };
    if let Some(receipt) = receipt
        .as_ref()
        .filter(|_| life::may_raise(&settlement.proposal))
    {
        let raised = life::raised(&settlement.proposal, &receipt.receipt());
        notes.extend(raised.map_err(BookError::Note)?);
    }
    // Read before anything is written, as the notes are.
    let elsewhere = life::took_effect_elsewhere(&record, settlement).filter(|_| receipt.is_some());
    if let Some(elsewhere) = elsewhere {
        let entity = life::with_what_took_effect(book.entity(tenant, elsewhere)?, settlement);
        book.put_entity(tenant, elsewhere, &entity)?;
    }
    if let Some(key) = key {
        let change = Change::between(&record, &key);
        book.put_key(key, change)?;
    }
    if let Some(entity) = entity {
        book.put_entity(tenant, &entity_key, &entity)?;
    }
    if let Some(receipt) = receipt {
        book.append(receipt)?;
    }
    for note in notes {
        book.put_note(tenant, note)?;
    }
    Ok(answer)
}

/// Closes a doubt.
pub(crate) fn resolve<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    resolution: &Resolution,
) -> Result<ResolveAnswer, BookError<B::Error>> {
    let Some(record) = book.key(tenant, &resolution.key)? else {
        return Ok(ResolveAnswer::NotInDoubt(None));
    };
    let entity_key = record.proposal.entity_key.clone();
    let entity = book.entity(tenant, &entity_key)?;
    match life::resolve(&record, &entity, resolution, book.now()) {
        ResolveStep::Stay(answer) => Ok(answer),
        ResolveStep::Close {
            key,
            entity,
            receipt,
        } => {
            let phase = key.phase;
            let notes = slots_given_back(book, tenant, &key)?;
            book.put_key(key, Change::Moved)?;
            book.put_entity(tenant, &entity_key, &entity)?;
            book.append(receipt.into())?;
            for note in notes {
                book.put_note(tenant, note)?;
            }
            Ok(ResolveAnswer::Resolved(phase))
        }
    }
}

/// Opens a burned key's next generation.
pub(crate) fn forget<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    wish: &Forget,
) -> Result<ForgetAnswer, BookError<B::Error>> {
    let Some(record) = book.key(tenant, &wish.key)? else {
        return Ok(ForgetAnswer::NotBurned(None));
    };
    match life::forget(&record, wish) {
        ForgetStep::Stay(answer) => Ok(answer),
        ForgetStep::Open { key, receipt } => {
            let generation = key.generation;
            book.put_key(key, Change::Moved)?;
            book.append(receipt.into())?;
            Ok(ForgetAnswer::Forgotten(generation))
        }
    }
}
