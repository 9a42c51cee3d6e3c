//! The log in memory. Nothing outlives the process here, so a receipt is hashed when somebody looks
//! at the log, not when it is written: those who never look pay nothing.

use std::collections::HashSet;

use async_trait::async_trait;
use operators_kernel::life::NoteName;
use operators_kernel::log::{
    Burned, BurnedPage, Frontier, LOG_PAGE_MAX, Log, LogEntry, LogHash, PlacedStub, Pruning,
    Sequenced, is_stub,
};
use operators_kernel::{Ledger, StoreError, TenantId, json};

use super::{MemoryStore, Records};

/// What was hashed so far of one tenant's receipts.
#[derive(Debug, Default)]
pub(super) struct Appended {
    frontier: Frontier,
    entries: Vec<LogEntry>,
    /// The number of the last receipt that was.
    last: u64,
}

impl Records {
    fn append_all(&mut self, tenant: &TenantId) -> Result<&Appended, json::JsonError> {
        let log = self.logs.entry(tenant.clone()).or_default();
        let trail = self.receipts.get(tenant).map(Vec::as_slice);
        let trail = trail.unwrap_or_default();
        let known = trail.partition_point(|entry| entry.sequence <= log.last);
        for entry in trail.iter().skip(known) {
            log.last = entry.sequence;
            let body = json::canonical(&entry.slip.receipt())?;
            let leaf = LogHash::of_leaf(body.as_bytes());
            log.entries.push(LogEntry {
                position: log.frontier.size(),
                receipt_id: entry.slip.receipt_id().to_owned(),
                leaf,
                link: log.frontier.push(leaf),
                body: Some(body),
            });
        }
        Ok(log)
    }
}

impl Records {
    /// The text goes out of the trail and out of the log. What a claim whose answer was lost asks by
    /// its id stays: nothing else of it is shown.
    fn put_stubs(
        &mut self,
        tenant: &TenantId,
        stubs: Vec<PlacedStub>,
        end: u64,
    ) -> Result<(), String> {
        let log = self.logs.entry(tenant.clone()).or_default();
        let mut gone = HashSet::new();
        for one in stubs {
            let place = usize::try_from(one.position).unwrap_or(usize::MAX);
            let entry = log.entries.get_mut(place).filter(|entry| {
                let is_it = entry.receipt_id == one.receipt_id;
                is_it && entry.position < end && is_stub(&one.stub)
            });
            let entry = entry.ok_or("receipts are append-only")?;
            if !entry.body.as_deref().is_some_and(is_stub) {
                entry.body = Some(one.stub);
                gone.insert(one.receipt_id);
            }
        }
        if let Some(trail) = self.receipts.get_mut(tenant) {
            trail.retain(|entry| !gone.contains(entry.slip.receipt_id()));
        }
        Ok(())
    }
}

impl MemoryStore {
    async fn appended<T>(
        &self,
        tenant: &TenantId,
        look: impl FnOnce(&Appended) -> T,
    ) -> Result<T, StoreError> {
        let mut records = self.lock().await;
        match records.append_all(tenant) {
            Ok(log) => Ok(look(log)),
            Err(error) => Err(self.unusable(error.to_string())),
        }
    }
}

#[async_trait]
impl Log for MemoryStore {
    async fn head(&self, tenant: &TenantId) -> Result<Frontier, StoreError> {
        self.appended(tenant, |log| log.frontier.clone()).await
    }

    async fn sequence(&self, tenant: &TenantId) -> Result<Sequenced, StoreError> {
        Ok(Sequenced {
            head: Log::head(self, tenant).await?,
            is_behind: false,
            lost: None,
        })
    }

    async fn log_entries(
        &self,
        tenant: &TenantId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        self.appended(tenant, |log| {
            let found = log.entries.iter().skip(from).take(limit.min(LOG_PAGE_MAX));
            found.cloned().collect()
        })
        .await
    }

    async fn put_stubs(&self, tenant: &TenantId, stubs: Vec<PlacedStub>) -> Result<(), StoreError> {
        let note = Ledger::note(self, tenant, &NoteName::pruned()).await?;
        let last = Pruning::read(note.as_deref()).map_err(|e| self.unusable(e.to_string()))?;
        let end = last.map_or(0, |last| last.to);
        self.lock()
            .await
            .put_stubs(tenant, stubs, end)
            .map_err(|problem| self.unusable(problem))
    }

    async fn stub(
        &self,
        tenant: &TenantId,
        receipt_id: &str,
    ) -> Result<Option<String>, StoreError> {
        self.appended(tenant, |log| {
            let is_it = |entry: &&LogEntry| entry.receipt_id == receipt_id;
            let found = log.entries.iter().find(is_it);
            let text = found.and_then(|entry| entry.body.as_ref());
            text.filter(|text| is_stub(text)).cloned()
        })
        .await
    }

    async fn strays(&self, _tenant: &TenantId) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn burned(
        &self,
        tenant: &TenantId,
        _after: Option<&str>,
    ) -> Result<BurnedPage, StoreError> {
        self.with(|page| {
            let keys = page.keys_now();
            let keys = keys.filter(|key| key.proposal.tenant_id == *tenant);
            Ok(BurnedPage {
                keys: keys.filter_map(Burned::of).collect(),
                next: None,
            })
        })
        .await
    }
}
