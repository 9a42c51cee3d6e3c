//! Looking: what people and auditors ask of the table. All reads are consistent.

use async_trait::async_trait;
use aws_sdk_dynamodb::types::TimeToLiveStatus;
use operators_kernel::life::{KeyRecord, NoteKind, NoteName};
use operators_kernel::log::{Log, is_stub};
use operators_kernel::{
    Cursor, EntityKey, Glimpse, IdempotencyKey, InFlight, Ledger, LedgerEntry, PAGE_MAX,
    ReceiptFilter, StoreError, StoreTime, TenantHistory, TenantId,
};

use super::fields::{Fields, ordinal};
use super::item::{Address, from_json, is_pruned, read_receipt};
use super::pages::{IdPage, PAGE_SIZE, page_address};
use super::request::Range;
use super::sheet::Sheet;
use super::{DynamoStore, Shared, table};

/// Pages read at once when looking through receipts.
const PAGES_AT_ONCE: u64 = 5;

#[async_trait]
impl Ledger for DynamoStore {
    fn describe(&self) -> String {
        self.shared.table.place.clone()
    }

    async fn glimpse(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
        entity: &EntityKey,
    ) -> Result<Glimpse, StoreError> {
        let mut sheet = Sheet::of_key(tenant, entity, key);
        self.shared.look(&mut sheet).await?;
        let observer = &self.shared.table.observer;
        Ok(Glimpse {
            key: sheet.key.as_ref().map(|key| key.seen_by(observer)),
            entity: sheet.entity.seen_by(observer),
            now: observer.now(),
        })
    }

    async fn key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyRecord>, StoreError> {
        let found = self.shared.table.get(&Address::key(tenant, key)).await?;
        let key = self.shared.read_key(found.as_ref())?;
        Ok(key.map(|key| key.seen_by(&self.shared.table.observer)))
    }

    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError> {
        self.shared.doubts(tenant).await
    }

    async fn in_flight(&self, tenant: &TenantId) -> Result<(Vec<InFlight>, StoreTime), StoreError> {
        self.shared.in_flight(tenant).await
    }

    async fn history_of(&self, tenant: &TenantId) -> Result<TenantHistory, StoreError> {
        self.shared.history_of(tenant).await
    }

    async fn receipts(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        let limit = limit.min(PAGE_MAX);
        let last = self.shared.last_page(tenant).await?;
        if let Some(receipt_id) = &filter.receipt_id {
            let found = self.shared.entry(tenant, receipt_id, &last).await?;
            let is_in_reach = |entry: &LedgerEntry| match cursor {
                Cursor::After(start) => entry.sequence > start,
                Cursor::Before(end) => entry.sequence < end,
            };
            return Ok(found
                .into_iter()
                .filter(|entry| limit > 0 && is_in_reach(entry) && filter.admits(&entry.receipt))
                .collect());
        }
        self.shared
            .entries(tenant, filter, cursor, limit, last.last_number())
            .await
    }

    async fn note(&self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, StoreError> {
        Ok(self.shared.note(tenant, name).await?.body)
    }

    async fn notes(
        &self,
        tenant: &TenantId,
        kind: NoteKind,
    ) -> Result<Vec<(String, String)>, StoreError> {
        self.shared.notes(tenant, kind).await
    }

    fn log(&self) -> &dyn Log {
        self
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        self.shared.check().await
    }
}

impl Shared {
    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError> {
        let pk = Address::of("doubts", &[tenant.as_str()]).pk;
        let mut addresses = Vec::new();
        let mut range = Range::All;
        loop {
            let (found, more) = self.table.range(&pk, range).await?;
            let mut last = String::new();
            for item in &found {
                let name = Fields::of(item, "a doubt").text("sk");
                let name = name.map_err(|problem| self.table.unusable(problem))?;
                name.clone_into(&mut last);
                addresses.push(Address::of("key", &[tenant.as_str(), name]));
            }
            if !more {
                break;
            }
            range = Range::After(last);
        }
        let observer = &self.table.observer;
        let mut doubts = Vec::with_capacity(addresses.len());
        for item in self.table.get_all(&addresses).await? {
            let key = self.read_key(Some(&item))?;
            let record = key.map(|key| key.seen_by(observer));
            // One that was resolved since it was listed is none.
            doubts.extend(record.filter(|key| key.phase == operators_kernel::life::Phase::InDoubt));
        }
        doubts.sort_by(|a, b| {
            let order = |key: &KeyRecord| (key.first_intent_at, key.proposal.receipt_id.clone());
            order(a).cmp(&order(b))
        });
        Ok((doubts, observer.now()))
    }

    /// One receipt with its number: its lane tells the page, found by halving.
    async fn entry(
        &self,
        tenant: &TenantId,
        receipt_id: &str,
        last: &IdPage,
    ) -> Result<Option<LedgerEntry>, StoreError> {
        let found = self
            .table
            .get(&Address::receipt(tenant, receipt_id))
            .await?;
        let Some(item) = found else {
            return Ok(None);
        };
        let unusable = |problem: String| self.table.unusable(problem);
        if is_pruned(&item) {
            return Ok(None);
        }
        let receipt = read_receipt(&item).map_err(unusable)?;
        let fields = Fields::of(&item, "a receipt");
        let lane: usize = fields.number("lane").map_err(unusable)?;
        let number: u64 = fields.number("number").map_err(unusable)?;
        let (mut low, mut high) = (0, last.index);
        let mut page = last.clone();
        while low < high {
            let middle = low + (high - low) / 2;
            let found = self.pages(tenant, middle, middle).await?;
            let Some(found) = found.into_iter().next() else {
                return Err(unusable(format!("page {middle} of the receipts is gone")));
            };
            if found.marks.get(lane).is_some_and(|mark| *mark >= number) {
                high = middle;
                page = found;
            } else {
                low = middle + 1;
            }
        }
        let place = page.ids.iter().position(|id| id == receipt_id);
        let place = place.and_then(|place| u64::try_from(place).ok());
        // Written after the pages were read: it has no number yet for this look.
        Ok(place.map(|place| LedgerEntry {
            sequence: page.index * PAGE_SIZE + place + 1,
            receipt,
        }))
    }

    async fn entries(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
        newest: u64,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        let mut entries = Vec::new();
        let (mut low, mut high, is_forward) = match cursor {
            Cursor::After(start) => (start.saturating_add(1), newest, true),
            Cursor::Before(end) => (1, end.saturating_sub(1).min(newest), false),
        };
        while low <= high && entries.len() < limit {
            let span = PAGE_SIZE * PAGES_AT_ONCE;
            let (first, last) = if is_forward {
                (low, high.min(low.saturating_add(span - 1)))
            } else {
                (low.max(high.saturating_sub(span - 1)), high)
            };
            let mut found = self.numbered(tenant, first, last).await?;
            if !is_forward {
                found.reverse();
            }
            let admitted = found
                .into_iter()
                .filter(|entry| filter.admits(&entry.receipt));
            let left = limit - entries.len();
            entries.extend(admitted.take(left));
            if is_forward {
                low = last + 1;
            } else {
                high = first - 1;
            }
        }
        Ok(entries)
    }

    /// The receipts of these numbers, in order.
    async fn numbered(
        &self,
        tenant: &TenantId,
        first: u64,
        last: u64,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        let (from, to) = ((first - 1) / PAGE_SIZE, (last - 1) / PAGE_SIZE);
        let pages = self.pages(tenant, from, to).await?;
        let numbered = pages.iter().flat_map(|page| {
            let first = page.index * PAGE_SIZE + 1;
            (first..).zip(&page.ids)
        });
        let wanted: Vec<(u64, &String)> = numbered
            .filter(|(number, _)| (first..=last).contains(number))
            .collect();
        let ids: Vec<String> = wanted.iter().map(|(_, id)| (*id).clone()).collect();
        let bodies = self.bodies(tenant, &ids).await?;
        let mut entries = Vec::with_capacity(wanted.len());
        for (sequence, id) in wanted {
            let gone = || self.table.unusable(format!("receipt `{id}` is gone"));
            let body = bodies.get(id).ok_or_else(gone)?;
            if is_stub(body) {
                continue;
            }
            let receipt = from_json("a receipt", body);
            let receipt = receipt.map_err(|problem| self.table.unusable(problem))?;
            entries.push(LedgerEntry { sequence, receipt });
        }
        Ok(entries)
    }

    pub(super) async fn pages(
        &self,
        tenant: &TenantId,
        from: u64,
        to: u64,
    ) -> Result<Vec<IdPage>, StoreError> {
        let range = Range::Between(ordinal(from), ordinal(to));
        let pk = page_address(tenant, 0).pk;
        let (found, _) = self.table.range(&pk, range).await?;
        let pages = found.iter().map(IdPage::read).collect::<Result<_, _>>();
        pages.map_err(|problem| self.table.unusable(problem))
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        let client = &self.table.client;
        let name = &self.table.name;
        let found = self
            .table
            .send(|| client.describe_table().table_name(name).send())
            .await?;
        let mut problems: Vec<String> = found.table().and_then(table::judge).into_iter().collect();
        let expiry = self
            .table
            .send(|| client.describe_time_to_live().table_name(name).send())
            .await;
        let expiry = match expiry {
            Ok(expiry) => expiry.time_to_live_description,
            Err(StoreError::Unusable { problem, .. }) => {
                problems.push(format!(
                    "whether expiry (TTL) is on cannot be asked: {problem}"
                ));
                None
            }
            Err(error) => return Err(error),
        };
        let status = expiry.as_ref();
        let status = status.and_then(|found| found.time_to_live_status());
        if matches!(
            status.map(TimeToLiveStatus::as_str),
            Some("ENABLED" | "ENABLING")
        ) {
            problems.push("expiry (TTL) is on: nothing of ours may expire; turn it off".to_owned());
        }
        problems.extend(Box::pin(self.table.missing_permissions()).await?);
        Ok(problems)
    }
}
