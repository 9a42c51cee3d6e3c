//! Notes as items, and how a pause stops every process without an item that all of them write.
//!
//! A claim cannot check the pause in its own write: transactions that name one item refuse each
//! other, so all claims of a tenant would queue at it. Instead a process that found nothing paused
//! may rely on that for [`NOT_PAUSED_FOR`], counted on its own monotonic clock from before it looked;
//! and whoever pauses waits out that time before saying that it is done. No two clocks are compared.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use operators_kernel::life::{Note, NoteKind, NoteName, Pauses};
use operators_kernel::{
    Claim, ClaimAnswer, Directive, DirectiveAnswer, Order, SettledOutcome, Settlement, StoreError,
    StoreTime, TenantId,
};

use super::Shared;
use super::fields::{Fields, number, text};
use super::item::{Address, Item, VERSION};
use super::observer::Observer;
use super::request::Range;
use super::trail::Bundle;
use super::trouble::Pauses as Patience;
use super::write::{Expect, Write, Written};
use crate::book;
use crate::page::Page;

/// How long a look that found nothing paused may be relied on: long enough for a claim, short enough
/// for somebody who waits for the pause to be sure.
const NOT_PAUSED_FOR: Duration = Duration::from_secs(2);

/// How old a look may be for a claim to begin with it: so that it can be relied on to the claim's end.
const BEGIN_WITHIN: Duration = Duration::from_secs(1);

/// What a pause waits longer than that, for clocks that do not run alike.
const MARGIN: Duration = Duration::from_millis(200);

/// When this process last found nothing paused, by tenant, and how often its clock had stood still
/// by then: after that it tells nothing.
#[derive(Debug, Default)]
pub(super) struct Unpaused {
    // A std lock around look-ups, never over an await.
    since: Mutex<HashMap<TenantId, (StoreTime, u64)>>,
}

impl Unpaused {
    /// Whether a claim may begin without another look.
    pub(super) fn may_begin(&self, tenant: &TenantId, observer: &Observer) -> bool {
        self.was_seen_within(BEGIN_WITHIN, tenant, observer)
    }

    /// Whether a grant may be handed out without another look.
    fn is_sure(&self, tenant: &TenantId, observer: &Observer) -> bool {
        self.was_seen_within(NOT_PAUSED_FOR, tenant, observer)
    }

    fn was_seen_within(&self, span: Duration, tenant: &TenantId, observer: &Observer) -> bool {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.get(tenant).is_some_and(|(since, standstills)| {
            observer.standstills() == *standstills && observer.now() < since.plus(span)
        })
    }

    /// `asked` is when the look began, and how often the clock had stood still by then.
    fn saw(&self, tenant: &TenantId, asked: (StoreTime, u64), is_paused: bool) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if is_paused {
            since.remove(tenant);
        } else {
            since.insert(tenant.clone(), asked);
        }
    }
}

/// A note as it is kept. One that was taken away keeps its version.
#[derive(Debug, Clone, Default)]
pub(super) struct NoteItem {
    /// 0 if nobody wrote it yet.
    version: u64,
    pub(super) body: Option<String>,
}

fn kind_address(tenant: &TenantId, kind: NoteKind) -> Address {
    Address::of("notes", &[tenant.as_str(), kind.as_str()])
}

fn address(tenant: &TenantId, name: &NoteName) -> Address {
    kind_address(tenant, name.kind).at(&name.name)
}

impl NoteItem {
    fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "a note");
        Ok(Self {
            version: fields.number(VERSION)?,
            body: fields.text_if_there("body")?.map(str::to_owned),
        })
    }

    /// The write that makes it say something else, if it is still what was read.
    pub(super) fn write(&self, tenant: &TenantId, note: &Note) -> Write {
        let mut item = address(tenant, &note.name).item();
        item.insert(VERSION.to_owned(), number(self.version + 1));
        if let Some(body) = &note.body {
            item.insert("body".to_owned(), text(body));
        }
        Write::Put(item, Expect::Version(self.version))
    }
}

impl Shared {
    /// One note, read now.
    pub(super) async fn note(
        &self,
        tenant: &TenantId,
        name: &NoteName,
    ) -> Result<NoteItem, StoreError> {
        let observer = &self.table.observer;
        let asked = (observer.now(), observer.standstills());
        let found = self.table.get(&address(tenant, name)).await?;
        let note = found.as_ref().map(NoteItem::read).transpose();
        let note = note.map_err(|problem| self.table.unusable(problem))?;
        let note = note.unwrap_or_default();
        if name.kind == NoteKind::Pause {
            self.unpaused.saw(tenant, asked, note.body.is_some());
        }
        Ok(note)
    }

    /// Every note of a kind, by name.
    pub(super) async fn notes(
        &self,
        tenant: &TenantId,
        kind: NoteKind,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let pk = kind_address(tenant, kind).pk;
        let unusable = |problem: String| self.table.unusable(problem);
        let mut notes = Vec::new();
        let mut range = Range::All;
        loop {
            let (found, more) = self.table.range(&pk, range).await?;
            let mut last = String::new();
            for item in &found {
                let name = Fields::of(item, "a note").text("sk").map_err(unusable)?;
                name.clone_into(&mut last);
                let note = NoteItem::read(item).map_err(unusable)?;
                notes.extend(note.body.map(|body| (last.clone(), body)));
            }
            if !more {
                return Ok(notes);
            }
            range = Range::After(last);
        }
    }

    /// Does what a person orders, on condition that its notes are still what was read.
    pub(super) async fn direct(
        &self,
        tenant: &TenantId,
        directive: Directive,
    ) -> Result<DirectiveAnswer, StoreError> {
        let mut patience = Patience::new(&self.table.observer);
        loop {
            let at = self.table.observer.now();
            let mut page = Page::part(at, self.table.observer.stamp());
            let mut items = HashMap::new();
            for name in directive.note_names() {
                let item = self.note(tenant, &name).await?;
                page.load_note(tenant.clone(), name.clone(), item.body.clone());
                items.insert(name, item);
            }
            let answer = book::direct(&mut page, tenant, &directive);
            let answer = answer.map_err(|error| self.sort(error))?;
            let changes = page.changes;
            let writes = changes.notes.iter().map(|(_, note)| {
                let before = items.get(&note.name).cloned().unwrap_or_default();
                before.write(tenant, note)
            });
            let bundle = Bundle {
                writes: writes.collect(),
                receipts: changes.receipts,
                at,
            };
            match self.trail.write(&self.table, tenant, bundle).await? {
                Written::Done => {
                    if matches!(directive.order, Order::Pause(_)) {
                        // Before that, some process may still rely on an earlier look.
                        tokio::time::sleep(NOT_PAUSED_FOR + MARGIN).await;
                    }
                    return Ok(answer);
                }
                // Somebody else was faster.
                Written::Refused(_) if patience.pause(&self.table.observer).await => {}
                Written::Refused(_) => {
                    return Err(self.table.unavailable("too many others give orders"));
                }
            }
        }
    }

    /// Hands a grant out, if that nothing is paused can still be relied on; one that took too long
    /// is looked at again, and undone if somebody paused meanwhile.
    pub(super) async fn hand_out(
        &self,
        tenant: &TenantId,
        claim: &Claim,
        answer: ClaimAnswer,
    ) -> Result<ClaimAnswer, StoreError> {
        let ClaimAnswer::Claimed(mark) = &answer else {
            return Ok(answer);
        };
        if self.unpaused.is_sure(tenant, &self.table.observer) {
            return Ok(answer);
        }
        let asked = self.table.observer.now();
        let note = self.note(tenant, &NoteName::pause()).await?;
        let pauses = Pauses::read(note.body.as_deref());
        let pauses = pauses.map_err(|error| self.table.unusable(error.to_string()))?;
        let Some(refusal) = pauses.stop(claim) else {
            return Ok(answer);
        };
        let attempt = mark.attempt;
        let settlement = Settlement {
            session: claim.session,
            mark: mark.clone(),
            proposal: claim.proposal.clone(),
            outcome: SettledOutcome::NotApplied {
                error: format!("nothing was sent: {}", refusal.error),
            },
            result_digest: None,
            at: claim.at,
        };
        self.settle(tenant, settlement, asked).await?;
        Ok(ClaimAnswer::Refused { refusal, attempt })
    }
}
