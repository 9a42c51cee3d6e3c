//! What auditors ask of the table: the log as it is kept, what is in none, and the burned keys.

use std::collections::HashSet;

use async_trait::async_trait;
use operators_kernel::log::{
    Burned, BurnedPage, Frontier, LOG_PAGE_MAX, Log, LogEntry, PlacedStub, Sequenced, is_stub,
};
use operators_kernel::{StoreError, TenantId};

use super::fields::text;
use super::item::{Address, Item, PK, SK, SOLE};
use super::pages::PAGE_SIZE;
use super::request::Table;
use super::{DynamoStore, Shared};

/// Log pages read at once: half a megabyte.
const PAGES_AT_ONCE: u64 = 50;

/// Items looked at for a key of any tenant: a key and its receipt are about half of a table's items.
const LOOKED_AT_MAX: i32 = 200;

/// Stands between the two parts of where a scan goes on; no name holds it.
const BETWEEN: char = '\u{1f}';

impl Shared {
    /// The names of the items of every receipt in the log.
    async fn logged(&self, tenant: &TenantId) -> Result<HashSet<String>, StoreError> {
        let size = self.log_head(tenant).await?.frontier.size();
        let mut known = HashSet::new();
        let mut index = 0;
        while index * PAGE_SIZE < size {
            let last = index + PAGES_AT_ONCE - 1;
            for page in self.log_pages(tenant, index, last).await? {
                known.extend(page.ids.iter().map(|id| Address::receipt(tenant, id).pk));
            }
            index = last + 1;
        }
        Ok(known)
    }
}

impl Table {
    /// Whether a key or a receipt of any tenant is among the first items of the table.
    pub(super) async fn holds_a_key(&self) -> Result<bool, StoreError> {
        let answer = self
            .send(|| {
                let request = self.client.scan().table_name(&self.name);
                request
                    .consistent_read(true)
                    .limit(LOOKED_AT_MAX)
                    .filter_expression(format!(
                        "begins_with({PK}, :key) OR begins_with({PK}, :receipt)"
                    ))
                    .expression_attribute_values(":key", text("key|"))
                    .expression_attribute_values(":receipt", text("receipt|"))
                    .send()
            })
            .await?;
        Ok(answer.count > 0)
    }

    /// Some of a tenant's items of one kind, and where to go on.
    async fn scan(
        &self,
        kind: &str,
        tenant: &TenantId,
        after: Option<String>,
    ) -> Result<(Vec<Item>, Option<String>), StoreError> {
        let prefix = format!("{}|", Address::of(kind, &[tenant.as_str()]).pk);
        let start = after.map(|place| {
            let (pk, sk) = place.split_once(BETWEEN).unwrap_or((&place, SOLE));
            let (pk, sk) = (pk.to_owned(), sk.to_owned());
            Address { pk, sk }.item()
        });
        let answer = self
            .send(|| {
                let request = self.client.scan().table_name(&self.name);
                request
                    .consistent_read(true)
                    .filter_expression(format!("begins_with({PK}, :p) AND {SK} = :sole"))
                    .expression_attribute_values(":p", text(&prefix))
                    .expression_attribute_values(":sole", text(SOLE))
                    .set_exclusive_start_key(start.clone())
                    .send()
            })
            .await?;
        let next = answer.last_evaluated_key.as_ref().and_then(|last| {
            let name = |part: &str| last.get(part)?.as_s().ok();
            Some(format!("{}{BETWEEN}{}", name(PK)?, name(SK)?))
        });
        let mut found = Vec::new();
        for item in answer.items.unwrap_or_default() {
            found.push(self.whole(item).await?);
        }
        Ok((found, next))
    }
}

#[async_trait]
impl Log for DynamoStore {
    async fn head(&self, tenant: &TenantId) -> Result<Frontier, StoreError> {
        Ok(self.shared.log_head(tenant).await?.frontier)
    }

    async fn sequence(&self, tenant: &TenantId) -> Result<Sequenced, StoreError> {
        self.shared.sequence(tenant).await
    }

    async fn log_entries(
        &self,
        tenant: &TenantId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let limit = limit.min(LOG_PAGE_MAX);
        let last = u64::try_from(limit).unwrap_or(0);
        let last = from.saturating_add(last).saturating_sub(1);
        let pages = self
            .shared
            .log_pages(tenant, from / PAGE_SIZE, last / PAGE_SIZE);
        let mut entries = Vec::new();
        for page in pages.await? {
            let first = page.index * PAGE_SIZE;
            let placed = (first..).zip(page.ids.into_iter().zip(page.hashes));
            for (position, (receipt_id, [leaf, link])) in placed {
                if (from..=last).contains(&position) {
                    entries.push(LogEntry {
                        position,
                        receipt_id,
                        leaf,
                        link,
                        body: None,
                    });
                }
            }
        }
        let ids: Vec<String> = entries.iter().map(|one| one.receipt_id.clone()).collect();
        let mut bodies = self.shared.bodies(tenant, &ids).await?;
        for entry in &mut entries {
            entry.body = bodies.remove(&entry.receipt_id);
        }
        Ok(entries)
    }

    async fn put_stubs(&self, tenant: &TenantId, stubs: Vec<PlacedStub>) -> Result<(), StoreError> {
        self.shared.put_stubs(tenant, &stubs).await
    }

    async fn stub(
        &self,
        tenant: &TenantId,
        receipt_id: &str,
    ) -> Result<Option<String>, StoreError> {
        let ids = [receipt_id.to_owned()];
        let mut found = self.shared.bodies(tenant, &ids).await?;
        Ok(found.remove(receipt_id).filter(|text| is_stub(text)))
    }

    /// Looks through the whole table: receipts are found by their ids alone.
    async fn strays(&self, tenant: &TenantId) -> Result<Vec<String>, StoreError> {
        let shared = &self.shared;
        let known = shared.logged(tenant).await?;
        let mut strange = Vec::new();
        let mut after = None;
        loop {
            let (found, next) = shared.table.scan("receipt", tenant, after).await?;
            let names = found.iter().filter_map(|item| item.get(PK)?.as_s().ok());
            strange.extend(names.filter(|pk| !known.contains(*pk)).cloned());
            after = next;
            if after.is_none() {
                break;
            }
        }
        if !strange.is_empty() {
            // Those that came since are in the log after this.
            shared.sequence(tenant).await?;
            let known = shared.logged(tenant).await?;
            strange.retain(|pk| !known.contains(pk));
        }
        let before = Address::receipt(tenant, "").pk.len() - "0:".len();
        let id = |pk: &String| {
            let rest = pk.get(before..).unwrap_or_default();
            rest.split_once(':').map_or(rest, |(_, id)| id).to_owned()
        };
        Ok(strange.iter().map(id).collect())
    }

    /// Looks through the whole table: keys are found by their names alone.
    async fn burned(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
    ) -> Result<BurnedPage, StoreError> {
        let after = after.map(str::to_owned);
        let (found, next) = self.shared.table.scan("key", tenant, after).await?;
        let mut page = BurnedPage {
            next,
            ..BurnedPage::default()
        };
        for item in &found {
            let key = self.shared.read_key(Some(item))?;
            let record = key.map(|key| key.seen_by(&self.shared.table.observer));
            page.keys.extend(record.as_ref().and_then(Burned::of));
        }
        Ok(page)
    }
}
