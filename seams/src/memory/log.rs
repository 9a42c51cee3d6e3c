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

use super::trail::{Entry, Torn};
use super::{MemoryStore, locked};

/// What was hashed so far of one tenant's receipts.
#[derive(Debug, Default)]
pub(super) struct Appended {
    frontier: Frontier,
    entries: Vec<LogEntry>,
    /// The number of the last receipt that was.
    last: u64,
}

impl Appended {
    /// Hashes what was kept since the last look.
    fn append(&mut self, kept: Vec<Entry>) -> Result<(), String> {
        for entry in kept {
            let receipt = entry.paper.receipt().map_err(|torn| torn.to_string())?;
            let body = json::canonical(&receipt).map_err(|error| error.to_string())?;
            let leaf = LogHash::of_leaf(body.as_bytes());
            self.last = entry.sequence;
            self.entries.push(LogEntry {
                position: self.frontier.size(),
                receipt_id: receipt.receipt_id.into(),
                leaf,
                link: self.frontier.push(leaf),
                body: Some(body),
            });
        }
        Ok(())
    }

    /// Puts what is left of them in the place of receipts before `end`, or refuses all of them: a text
    /// that goes here has to go from the trail too. The ids of those that were still there.
    fn put_stubs(&mut self, stubs: Vec<PlacedStub>, end: u64) -> Result<HashSet<String>, String> {
        let place = |one: &PlacedStub| usize::try_from(one.position).unwrap_or(usize::MAX);
        let may_be_put = |one: &PlacedStub| {
            let entry = self.entries.get(place(one));
            let is_it = entry.is_some_and(|entry| entry.receipt_id == one.receipt_id);
            is_it && one.position < end && is_stub(&one.stub)
        };
        if !stubs.iter().all(may_be_put) {
            return Err("receipts are append-only".to_owned());
        }
        let mut gone = HashSet::new();
        for one in stubs {
            let entry = self.entries.get_mut(place(&one));
            let whole = entry.filter(|entry| !entry.body.as_deref().is_some_and(is_stub));
            if let Some(entry) = whole {
                entry.body = Some(one.stub);
                gone.insert(one.receipt_id);
            }
        }
        Ok(gone)
    }
}

impl MemoryStore {
    /// Lets `look` at a tenant's log as it is now. Those who write receipts do not wait for it.
    fn appended<T>(
        &self,
        tenant: &TenantId,
        look: impl FnOnce(&mut Appended) -> T,
    ) -> Result<T, StoreError> {
        let mut logs = locked(&self.logs);
        let log = logs.entry(tenant.clone()).or_default();
        let kept = self.halls.trail.after(tenant, log.last);
        match log.append(kept) {
            Ok(()) => Ok(look(log)),
            Err(problem) => Err(self.unusable(problem)),
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
    }

    async fn put_stubs(&self, tenant: &TenantId, stubs: Vec<PlacedStub>) -> Result<(), StoreError> {
        let note = Ledger::note(self, tenant, &NoteName::pruned()).await?;
        let last = Pruning::read(note.as_deref()).map_err(|e| self.unusable(e.to_string()))?;
        let end = last.map_or(0, |last| last.to);
        let gone = self
            .appended(tenant, |log| log.put_stubs(stubs, end))?
            .map_err(|problem| self.unusable(problem))?;
        self.halls.trail.drop_those(tenant, |id| gone.contains(id));
        Ok(())
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
    }

    async fn strays(&self, _tenant: &TenantId) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn burned(
        &self,
        tenant: &TenantId,
        _after: Option<&str>,
    ) -> Result<BurnedPage, StoreError> {
        let (mut keys, folded) = self
            .with_all(|held| {
                let keys = held.keys()?;
                let keys = keys.filter(|key| key.proposal.tenant_id == *tenant);
                let keys: Vec<Burned> = keys.filter_map(Burned::of).collect();
                let folded = held.folded()?;
                let folded = folded.filter(|key| key.tenant_id() == tenant.as_str());
                Ok((keys, folded.cloned().collect::<Vec<_>>()))
            })
            .await?;
        // Taken apart while nobody waits for it.
        for folded in folded {
            let key = folded.key().as_ref().and_then(Burned::of);
            keys.push(key.ok_or_else(|| self.unusable(Torn.to_string()))?);
        }
        Ok(BurnedPage { keys, next: None })
    }
}
