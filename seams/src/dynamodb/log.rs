//! The log in the table: a head item, and pages of hashes beside the pages of ids.
//!
//! `pages` gives receipts their numbers; a log page holds what the hundred receipts of one of them
//! hash to. Whoever asks appends what is numbered and not hashed yet: the pages and the head are one
//! write on condition that nobody wrote the head since it was read.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::log::{Frontier, LogHash, Sequenced};
use operators_kernel::{StoreError, TenantId};

use super::Shared;
use super::fields::{Fields, number, ordinal, text};
use super::item::{Address, Item, VERSION};
use super::pages::PAGE_SIZE;
use super::request::Range;
use super::trouble::{Pauses, fresh_id};
use super::write::{Expect, Write, Written};

/// Receipts appended in one write: twenty pages of six kilobytes.
const STEP_MAX: u64 = 20 * PAGE_SIZE;

/// The head as it is kept.
#[derive(Debug, Clone, Default)]
pub(super) struct Head {
    version: u64,
    pub(super) frontier: Frontier,
}

fn head_address(tenant: &TenantId) -> Address {
    Address::of("loghead", &[tenant.as_str()])
}

fn page_address(tenant: &TenantId, index: u64) -> Address {
    Address::of("log", &[tenant.as_str()]).at(ordinal(index))
}

impl Head {
    fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "a log's head");
        let frontier = Frontier::from_bytes(fields.number("size")?, fields.bytes("frontier")?);
        Ok(Self {
            version: fields.number(VERSION)?,
            frontier: frontier.ok_or("a log's head is of no log of its size")?,
        })
    }

    fn write(&self, tenant: &TenantId) -> Write {
        let mut item = head_address(tenant).item();
        item.insert("size".to_owned(), number(self.frontier.size()));
        item.insert("frontier".to_owned(), blob(&self.frontier.to_bytes()));
        item.insert(VERSION.to_owned(), number(self.version + 1));
        Write::Put(item, Expect::Version(self.version))
    }
}

fn blob(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

/// The hashes of up to a hundred receipts.
#[derive(Debug, Clone, Default)]
pub(super) struct LogPage {
    pub(super) index: u64,
    pub(super) ids: Vec<String>,
    /// Of each, the leaf and the link.
    pub(super) hashes: Vec<[LogHash; 2]>,
}

impl LogPage {
    fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "a page of a log");
        let index = fields.text("sk")?;
        let (hashes, rest) = fields.bytes("hashes")?.as_chunks::<64>();
        let ids = fields.texts("ids")?;
        if !rest.is_empty() || ids.len() != hashes.len() {
            return Err(format!("page {index} of a log is damaged"));
        }
        let both = |bytes: &[u8; 64]| {
            let (leaf, link) = bytes.split_at(32);
            let hash = |half: &[u8]| half.try_into().map(LogHash::from_bytes);
            Some([hash(leaf).ok()?, hash(link).ok()?])
        };
        let hashes = hashes.iter().map(both).collect::<Option<Vec<_>>>();
        Ok(Self {
            index: index.parse().map_err(|_| format!("a page is `{index}`"))?,
            hashes: hashes.unwrap_or_default(),
            ids,
        })
    }

    fn write(&self, tenant: &TenantId) -> Write {
        let mut item = page_address(tenant, self.index).item();
        let ids = self.ids.iter().map(text).collect();
        item.insert("ids".to_owned(), AttributeValue::L(ids));
        let hashes = self.hashes.iter().flatten();
        let bytes: Vec<u8> = hashes.flat_map(|hash| *hash.as_bytes()).collect();
        item.insert("hashes".to_owned(), blob(&bytes));
        // The head's version guards it.
        Write::Put(item, Expect::Anything)
    }
}

impl Shared {
    pub(super) async fn log_head(&self, tenant: &TenantId) -> Result<Head, StoreError> {
        let found = self.table.get(&head_address(tenant)).await?;
        let head = found.as_ref().map(Head::read).transpose();
        let head = head.map_err(|problem| self.table.unusable(problem))?;
        Ok(head.unwrap_or_default())
    }

    pub(super) async fn log_pages(
        &self,
        tenant: &TenantId,
        from: u64,
        to: u64,
    ) -> Result<Vec<LogPage>, StoreError> {
        let range = Range::Between(ordinal(from), ordinal(to));
        let (found, _) = self.table.range(&page_address(tenant, 0).pk, range).await?;
        let pages = found.iter().map(LogPage::read).collect::<Result<_, _>>();
        pages.map_err(|problem| self.table.unusable(problem))
    }

    pub(super) async fn sequence(&self, tenant: &TenantId) -> Result<Sequenced, StoreError> {
        let numbered = self.last_page(tenant).await?.last_number();
        let mut pauses = Pauses::new(&self.table.observer);
        loop {
            let mut head = self.log_head(tenant).await?;
            let size = head.frontier.size();
            let done = |head: Head, lost: Option<String>| Sequenced {
                head: head.frontier,
                is_behind: false,
                lost,
            };
            if size >= numbered {
                return Ok(done(head, None));
            }
            let (pages, lost) = self.appended(tenant, &mut head, numbered).await?;
            if head.frontier.size() == size {
                return Ok(done(head, lost));
            }
            let mut writes: Vec<Write> = pages.iter().map(|page| page.write(tenant)).collect();
            writes.push(head.write(tenant));
            let id = fresh_id().map_err(|problem| self.table.unavailable(problem))?;
            match self.table.write(&id, &writes).await? {
                Written::Done => pauses = Pauses::new(&self.table.observer),
                // Somebody else was faster.
                Written::Refused(_) if pauses.pause(&self.table.observer).await => {}
                Written::Refused(_) => {
                    return Err(self.table.unavailable("its log is crowded"));
                }
            }
        }
    }

    /// The pages after one step, and the head over them; what is gone ends it.
    async fn appended(
        &self,
        tenant: &TenantId,
        head: &mut Head,
        numbered: u64,
    ) -> Result<(Vec<LogPage>, Option<String>), StoreError> {
        let size = head.frontier.size();
        let last = numbered.min(size.saturating_add(STEP_MAX));
        let (from, to) = (size / PAGE_SIZE, (last - 1) / PAGE_SIZE);
        let mut pages = self.log_pages(tenant, from, from).await?;
        let numbered = self.pages(tenant, from, to).await?;
        let numbered = numbered.into_iter().flat_map(|page| {
            let first = page.index * PAGE_SIZE + 1;
            (first..).zip(page.ids)
        });
        let is_fresh = |one: &(u64, String)| one.0 > size && one.0 <= last;
        let fresh: Vec<(u64, String)> = numbered.filter(is_fresh).collect();
        let names: Vec<String> = fresh.iter().map(|(_, id)| id.clone()).collect();
        let bodies = self.bodies(tenant, &names).await?;
        for (number, id) in fresh {
            let Some(body) = bodies.get(&id) else {
                return Ok((pages, Some(id)));
            };
            let leaf = LogHash::of_leaf(body.as_bytes());
            let link = head.frontier.push(leaf);
            let index = (number - 1) / PAGE_SIZE;
            if pages.last().is_none_or(|page| page.index != index) {
                let page = LogPage {
                    index,
                    ..LogPage::default()
                };
                pages.push(page);
            }
            if let Some(page) = pages.last_mut() {
                page.ids.push(id);
                page.hashes.push([leaf, link]);
            }
        }
        Ok((pages, None))
    }

    /// The texts of these receipts, as they are kept.
    pub(super) async fn bodies(
        &self,
        tenant: &TenantId,
        ids: &[String],
    ) -> Result<HashMap<String, String>, StoreError> {
        let addresses: Vec<Address> = ids.iter().map(|id| Address::receipt(tenant, id)).collect();
        let by_address: HashMap<&str, &String> = addresses
            .iter()
            .map(|address| address.pk.as_str())
            .zip(ids)
            .collect();
        let mut bodies = HashMap::with_capacity(ids.len());
        for item in self.table.get_all(&addresses).await? {
            let fields = Fields::of(&item, "a receipt");
            let read = fields
                .text("pk")
                .and_then(|pk| Ok((pk, fields.text("body")?)));
            let (pk, body) = read.map_err(|problem| self.table.unusable(problem))?;
            if let Some(id) = by_address.get(pk) {
                bodies.insert((*id).clone(), body.to_owned());
            }
        }
        Ok(bodies)
    }
}
