//! The log in memory. Nothing outlives the process here, so a receipt is hashed when somebody looks
//! at the log, not when it is written: those who never look pay nothing.

use async_trait::async_trait;
use operators_kernel::log::{
    Burned, BurnedPage, Frontier, LOG_PAGE_MAX, Log, LogEntry, LogHash, Sequenced,
};
use operators_kernel::{StoreError, TenantId, json};

use super::{MemoryStore, Records};

/// What was hashed so far of one tenant's receipts.
#[derive(Debug, Default)]
pub(super) struct Appended {
    frontier: Frontier,
    entries: Vec<LogEntry>,
}

impl Records {
    fn append_all(&mut self, tenant: &TenantId) -> Result<&Appended, json::JsonError> {
        let log = self.logs.entry(tenant.clone()).or_default();
        let trail = self.receipts.get(tenant).map(Vec::as_slice);
        let fresh = trail.unwrap_or_default().iter().skip(log.entries.len());
        for entry in fresh {
            let body = json::canonical(&entry.receipt)?;
            let leaf = LogHash::of_leaf(body.as_bytes());
            log.entries.push(LogEntry {
                position: log.frontier.size(),
                receipt_id: entry.receipt.receipt_id.clone(),
                leaf,
                link: log.frontier.push(leaf),
                body: Some(body),
            });
        }
        Ok(log)
    }
}

impl MemoryStore {
    fn appended<T>(
        &self,
        tenant: &TenantId,
        look: impl FnOnce(&Appended) -> T,
    ) -> Result<T, StoreError> {
        let mut records = self.lock();
        match records.append_all(tenant) {
            Ok(log) => Ok(look(log)),
            Err(error) => Err(self.unusable(error.to_string())),
        }
    }
}

#[async_trait]
impl Log for MemoryStore {
    async fn head(&self, tenant: &TenantId) -> Result<Frontier, StoreError> {
        self.appended(tenant, |log| log.frontier.clone())
    }

    async fn sequence(&self, tenant: &TenantId) -> Result<Sequenced, StoreError> {
        Ok(Sequenced {
            head: Log::head(self, tenant).await?,
            is_behind: false,
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
    }
}
