//! Retention in the table: stubs in the place of texts. A table has no triggers, so what may be
//! pruned is seen to here, and what a role may put is for its permissions to say.

use std::collections::HashMap;

use operators_kernel::life::NoteName;
use operators_kernel::log::{PlacedStub, Pruning, is_stub};
use operators_kernel::{StoreError, TenantId};

use super::Shared;
use super::fields::{Fields, text};
use super::item::{Address, Item};
use super::pieces::blank;
use super::trouble::{Pauses, fresh_id};
use super::write::{Expect, Write, Written};

/// Stubs looked for at once.
const STUBS_AT_ONCE: usize = 90;
/// The most items in one write.
const WRITES_MAX: usize = 100;

impl Shared {
    pub(super) async fn put_stubs(
        &self,
        tenant: &TenantId,
        stubs: &[PlacedStub],
    ) -> Result<(), StoreError> {
        let note = self.note(tenant, &NoteName::pruned()).await?;
        let last = Pruning::read(note.body.as_deref());
        let last = last.map_err(|error| self.table.unusable(error.to_string()))?;
        let end = last.map_or(0, |last| last.to);
        let may_be = |one: &PlacedStub| one.position < end && is_stub(&one.stub);
        if !stubs.iter().all(may_be) {
            return Err(self.table.unusable("receipts are append-only"));
        }
        for chunk in stubs.chunks(STUBS_AT_ONCE) {
            self.put_some(tenant, chunk).await?;
        }
        Ok(())
    }

    async fn put_some(&self, tenant: &TenantId, stubs: &[PlacedStub]) -> Result<(), StoreError> {
        let addresses: Vec<Address> = stubs
            .iter()
            .map(|one| Address::receipt(tenant, &one.receipt_id))
            .collect();
        let names = addresses.iter().map(|address| address.pk.as_str());
        let by_name: HashMap<&str, &PlacedStub> = names.zip(stubs).collect();
        let mut pauses = Pauses::new(&self.table.observer);
        loop {
            let mut writes = Vec::new();
            for item in self.table.get_all_as_kept(&addresses).await? {
                let stubbed = pruned(item, &by_name);
                let stubbed = stubbed.map_err(|problem| self.table.unusable(problem))?;
                // What does not fit is found again by the next look.
                if writes.len() + stubbed.len() <= WRITES_MAX {
                    writes.extend(stubbed);
                }
            }
            if writes.is_empty() {
                return Ok(());
            }
            let id = fresh_id().map_err(|problem| self.table.unavailable(problem))?;
            match self.table.write(&id, &writes).await? {
                Written::Done => {}
                // Somebody else prunes too: look again at what is left.
                Written::Refused(_) if pauses.pause(&self.table.observer).await => {}
                Written::Refused(_) => {
                    return Err(self.table.unavailable("others prune at the same time"));
                }
            }
        }
    }
}

/// The writes that leave a stub of this receipt, unless there is one.
fn pruned(mut item: Item, stubs: &HashMap<&str, &PlacedStub>) -> Result<Vec<Write>, String> {
    let fields = Fields::of(&item, "a receipt");
    let Some(stub) = stubs.get(fields.text("pk")?) else {
        return Ok(Vec::new());
    };
    if is_stub(fields.text("body")?) {
        return Ok(Vec::new());
    }
    let mut writes = blank(&mut item)?;
    item.insert("body".to_owned(), text(&stub.stub));
    writes.push(Write::Put(item, Expect::Unpruned));
    Ok(writes)
}
