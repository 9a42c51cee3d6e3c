//! The judge: what must hold over everything that the sink saw, the store keeps and the processes
//! said, whatever was killed when.
//!
//! Owns what a history is made of, and the lines that a process under test prints; `invariants` owns
//! what must hold. It must not know how a history came about, nor which store it was: a store is
//! named by URL.

mod invariants;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use operators_kernel::life::{EntityRecord, KeyRecord};
use operators_kernel::{
    ActionResult, Cursor, DurableExec, EntityKey, IdempotencyKey, Ledger, PAGE_MAX, Receipt,
    ReceiptFilter, StoreError, TenantId,
};
use operators_seams::{DynamoStore, PgStore, SqliteStore};
use serde::{Deserialize, Serialize};

use crate::sink::Hit;

pub use invariants::{Invariant, Violation};

/// Opens a store that processes can share, by its URL.
pub async fn open_store(url: &str) -> Result<Arc<dyn DurableExec>, StoreError> {
    Ok(match url.split_once(':') {
        Some(("sqlite", path)) => Arc::new(SqliteStore::open(Path::new(path))?),
        Some(("postgres", _)) => Arc::new(PgStore::connect(url).await?),
        Some(("dynamodb", _)) => Arc::new(DynamoStore::connect(url).await?),
        _ => {
            return Err(StoreError::Unusable {
                store: format!("`{url}`"),
                problem: "no store that processes can share".to_owned(),
            });
        }
    })
}

/// What a process under test prints, a JSON line each, written before anything else happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// It has its session and its plan, and waits for `go` if it was told to.
    Ready,
    /// It is about to ask the store about this proposal for the first time.
    Proposed(String),
    /// The store answered this proposal for good: its receipt is written, or its intent is.
    Answered(String),
    /// The store told a proposal its place in the queue.
    Ticket(QueuedAt),
    /// An action ended.
    Result(Box<ActionResult>),
    /// An action could not be disposed of.
    Error(String),
}

/// A place in the store's queue for an entity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedAt {
    /// The proposal.
    pub receipt_id: String,
    /// Its key.
    pub key: String,
    /// The entity it waits for.
    pub entity: String,
    /// Its place.
    pub ticket: u64,
}

/// Everything there is to judge. Nothing may be running when it is taken.
#[derive(Debug, Clone)]
pub struct History {
    /// What the sink saw of this tenant.
    pub hits: Vec<Hit>,
    /// The tenant's whole trail, oldest first.
    pub receipts: Vec<Receipt>,
    /// Every key that was planned or mentioned and that the store knows.
    pub keys: BTreeMap<IdempotencyKey, KeyRecord>,
    /// The entities of those keys.
    pub entities: BTreeMap<EntityKey, EntityRecord>,
    /// The keys that the store lists as doubts.
    pub doubts: BTreeSet<IdempotencyKey>,
    /// What the processes printed.
    pub lines: Vec<Line>,
}

impl History {
    /// Puts together what the sink saw, what the processes printed and what the store keeps of the
    /// `planned` keys and of every other that anybody mentions.
    pub async fn take(
        ledger: &dyn Ledger,
        tenant: &TenantId,
        planned: &[IdempotencyKey],
        hits: Vec<Hit>,
        lines: Vec<Line>,
    ) -> Result<Self, StoreError> {
        let hits: Vec<Hit> = hits
            .into_iter()
            .filter(|hit| hit.tenant == tenant.as_str())
            .collect();
        let receipts = receipts(ledger, tenant).await?;
        let (doubts, _) = ledger.doubts(tenant).await?;
        let mut names: BTreeSet<IdempotencyKey> = receipts
            .iter()
            .map(|receipt| receipt.idempotency_key.clone())
            .collect();
        names.extend(planned.iter().cloned());
        names.extend(hits.iter().map(|hit| {
            IdempotencyKey::parse(&hit.key).expect("the sink got a key that was valid when it left")
        }));
        let mut history = Self {
            hits,
            receipts,
            keys: BTreeMap::new(),
            entities: BTreeMap::new(),
            doubts: doubts
                .into_iter()
                .map(|doubt| doubt.proposal.idempotency_key.clone())
                .collect(),
            lines,
        };
        for name in names {
            let Some(record) = ledger.key(tenant, &name).await? else {
                continue;
            };
            let entity = record.proposal.entity_key.clone();
            let glimpse = ledger.glimpse(tenant, &name, &entity).await?;
            history.entities.insert(entity, glimpse.entity);
            history.keys.insert(name, record);
        }
        Ok(history)
    }

    /// Fails with every broken invariant.
    pub fn assert_sound(&self, context: &str) {
        let violations = self.violations();
        if !violations.is_empty() {
            let listed: Vec<String> = violations.iter().map(ToString::to_string).collect();
            panic!("{context}:\n{}\n{self:#?}", listed.join("\n"));
        }
    }

    /// The requests that changed the world, of one key.
    pub fn effects<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Hit> {
        self.hits
            .iter()
            .filter(move |hit| hit.key == key && hit.is_effect())
    }

    /// The results that the processes printed.
    pub fn results(&self) -> impl Iterator<Item = &ActionResult> {
        self.lines.iter().filter_map(|line| match line {
            Line::Result(result) => Some(&**result),
            _ => None,
        })
    }
}

async fn receipts(ledger: &dyn Ledger, tenant: &TenantId) -> Result<Vec<Receipt>, StoreError> {
    let mut all = Vec::new();
    let mut cursor = Cursor::After(0);
    loop {
        let page = ledger
            .receipts(tenant, &ReceiptFilter::default(), cursor, PAGE_MAX)
            .await?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        cursor = Cursor::After(last.sequence);
        all.extend(page.into_iter().map(|entry| entry.receipt));
    }
}
