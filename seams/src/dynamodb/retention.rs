//! Retention in the table: stubs in the place of texts. A table has no triggers, so what may be
//! pruned is seen to here, and what a role may put is for its permissions to say.

use std::collections::HashMap;

use operators_kernel::life::NoteName;
use operators_kernel::log::{PlacedStub, Pruning, is_stub};
use operators_kernel::{StoreError, TenantId};

use super::Shared;
use super::fields::{Fields, text};
use super::item::{Address, Item};
use super::request::{Expect, Write, Written};
use super::trouble::{Pauses, fresh_id};

/// Stubs in one write, which takes 100 items.
const STUBS_AT_ONCE: usize = 90;

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
            let found = self.table.get_all(&addresses).await?;
            let writes = found.into_iter().filter_map(|item| pruned(item, &by_name));
            let writes: Vec<Write> = writes.collect();
            if writes.is_empty() {
                return Ok(());
            }
            let id = fresh_id().map_err(|problem| self.table.unavailable(problem))?;
            match self.table.write(&id, &writes).await? {
                Written::Done => return Ok(()),
                // Somebody else prunes too: look again at what is left.
                Written::Refused(_) if pauses.pause(&self.table.observer).await => {}
                Written::Refused(_) => {
                    return Err(self.table.unavailable("others prune at the same time"));
                }
            }
        }
    }
}

/// The write that leaves a stub of this receipt, unless there is one.
fn pruned(mut item: Item, stubs: &HashMap<&str, &PlacedStub>) -> Option<Write> {
    let fields = Fields::of(&item, "a receipt");
    let stub = stubs.get(fields.text("pk").ok()?)?;
    if is_stub(fields.text("body").ok()?) {
        return None;
    }
    item.insert("body".to_owned(), text(&stub.stub));
    Some(Write::Put(item, Expect::Unpruned))
}
