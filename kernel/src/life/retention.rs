//! How far a tenant's receipts were pruned: a note that is written with the receipt of the pruning.

use crate::directive::{Directive, DirectiveAnswer};
use crate::key::TenantId;
use crate::life::controls::{DirectiveStep, Note, NoteError, NoteKind, NoteName, read, write};
use crate::log::Pruning;

impl NoteName {
    /// The one note about the last pruning.
    pub fn pruned() -> Self {
        Self {
            kind: NoteKind::Pruned,
            name: "receipts".to_owned(),
        }
    }
}

impl Pruning {
    /// Reads the note about the last pruning; nothing if there was none.
    pub fn read(body: Option<&str>) -> Result<Option<Self>, NoteError> {
        read("how far was pruned", body)
    }
}

/// Decides a pruning: it goes on where the last one ended, so that what was pruned is always the
/// beginning of the log.
pub(super) fn prune(
    tenant: &TenantId,
    directive: &Directive,
    pruning: &Pruning,
    found: Option<&str>,
) -> Result<DirectiveStep, NoteError> {
    let last = Pruning::read(found)?;
    // The same order again, its answer lost, is the same pruning.
    let is_again = last.as_ref().is_some_and(|last| last == pruning);
    let end = last.as_ref().map_or(0, |last| last.to);
    let is_its_own = pruning.by == directive.receipt_id;
    let fits = is_its_own && end == pruning.from && pruning.from < pruning.to;
    if !is_again && !fits {
        let last = last.map(Box::new);
        return Ok(DirectiveStep::unchanged(DirectiveAnswer::PrunedElsewhere(
            last,
        )));
    }
    Ok(DirectiveStep {
        notes: vec![Note {
            name: NoteName::pruned(),
            body: Some(write(pruning)?),
        }],
        receipt: Some(Box::new(directive.receipt(tenant)?)),
        answer: DirectiveAnswer::Done,
    })
}
