//! How receipts get their order without a lock that everybody waits for.
//!
//! A tenant has a few *lanes*. A receipt is put under its id, and in the same write its id is put at
//! the end of one lane, on a place that must be empty: so a lane has no gaps, grows only at its end,
//! and two writers on one lane cannot both win. A process keeps to one lane while it can, so writers
//! rarely meet. Readers merge the lanes into numbered pages (`pages`), once and for good.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::{Receipt, SessionId, StoreError, StoreTime, TenantId};
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::fields::{Fields, number, ordinal, text};
use super::item::{Address, Item, write_receipt};
use super::pieces::PIECE_BYTES;
use super::request::{Range, Table};
use super::trouble::{Pauses, chance, fresh_id};
use super::write::{Expect, InTheWay, Write, Written};

/// Lanes of one tenant: as many writes of one tenant go on at once, in one process or several.
/// Fixed for ever: readers look at all of them.
pub(super) const LANES: usize = 16;

/// The most receipts in one write, pieces counted as receipts: it takes 100 items, and 4 MB.
const BATCH_MAX: usize = 90;
const BATCH_BYTES_MAX: usize = 3_000_000;

/// Where a tenant's lanes end, as far as this process knows.
#[derive(Debug)]
struct Ends {
    // Async locks, held over the write on purpose: one write at a time on a lane.
    lanes: Vec<Arc<tokio::sync::Mutex<Option<u64>>>>,
    preferred: AtomicUsize,
}

/// A receipt that waits for the next batch, and whoever waits for it.
type Pending = (Receipt, oneshot::Sender<Result<(), StoreError>>);

/// The receipts of one tenant that touch no key, written together.
#[derive(Debug, Default)]
struct Batch {
    // A std lock around a list; never over an await.
    pending: Mutex<Vec<Pending>>,
    // An async lock, held over the write on purpose: what queues meanwhile is the next batch.
    writing: tokio::sync::Mutex<()>,
}

/// What is written together.
#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) writes: Vec<Write>,
    pub(super) receipts: Vec<Receipt>,
    /// When it was asked for; it orders receipts of different lanes, and nothing else.
    pub(super) at: StoreTime,
}

/// Writes receipts.
#[derive(Debug, Default)]
pub(super) struct Trail {
    // Std locks around look-ups; never over an await.
    ends: Mutex<HashMap<TenantId, Arc<Ends>>>,
    batches: Mutex<HashMap<TenantId, Arc<Batch>>>,
    preferred: AtomicUsize,
}

/// A lane held for one write.
struct Lane {
    index: usize,
    end: OwnedMutexGuard<Option<u64>>,
}

pub(super) fn lane_pk(tenant: &TenantId, index: usize) -> String {
    Address::of("lane", &[tenant.as_str(), &format!("{index:02}")]).pk
}

/// A line of a lane: the ids written together, the first with the line's own number.
pub(super) struct Line {
    pub(super) first: u64,
    pub(super) at: i64,
    pub(super) ids: Vec<String>,
}

impl Line {
    pub(super) fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "a line of a lane");
        let first = fields.text("sk")?;
        Ok(Self {
            first: first.parse().map_err(|_| format!("a line is `{first}`"))?,
            at: fields.number("at")?,
            ids: fields.texts("ids")?,
        })
    }

    /// The number of its last receipt.
    pub(super) fn last(&self) -> u64 {
        let count = u64::try_from(self.ids.len()).unwrap_or(u64::MAX);
        self.first.saturating_add(count).saturating_sub(1)
    }
}

impl Trail {
    /// Sessions are numbered one after the other: so as many processes as there are lanes keep out
    /// of each other's way.
    pub(super) fn prefer_lane_of(&self, session: SessionId) {
        let lanes = u64::try_from(LANES).unwrap_or(1);
        let lane = usize::try_from(session.0 % lanes).unwrap_or(0);
        self.preferred.store(lane, Ordering::Relaxed);
    }

    /// Writes a bundle. A receipt whose id is there already stays as it is. The answer speaks of
    /// the other writes alone.
    pub(super) async fn write(
        &self,
        table: &Table,
        tenant: &TenantId,
        bundle: Bundle,
    ) -> Result<Written, StoreError> {
        let Bundle {
            writes,
            mut receipts,
            at,
        } = bundle;
        let mut ids = HashSet::new();
        receipts.retain(|receipt| ids.insert(receipt.receipt_id.clone()));
        let ends = self.ends(tenant);
        let mut pauses = Pauses::new(&table.observer);
        loop {
            let id = fresh_id().map_err(|problem| table.unavailable(problem))?;
            if receipts.is_empty() {
                if writes.is_empty() {
                    return Ok(Written::Done);
                }
                return table.write(&id, &writes).await;
            }
            let mut lane = ends.take().await;
            let all = lane
                .with_line(table, tenant, &writes, &receipts, at)
                .await?;
            let written = table.write(&id, &all).await;
            let refused = match written {
                Ok(Written::Done) => {
                    table.acked.line(lane.line(tenant), &id);
                    lane.advance(receipts.len());
                    return Ok(Written::Done);
                }
                Ok(Written::Refused(refused)) => refused,
                Err(error) => {
                    // Whether it landed is not known, nor where the lane ends.
                    *lane.end = None;
                    return Err(error);
                }
            };
            let (ours, theirs) = refused.split_at(writes.len().min(refused.len()));
            if theirs.last().is_some_and(InTheWay::is_something) {
                // Somebody else wrote on this lane: look where it ends, and keep to another.
                *lane.end = None;
                ends.prefer_another();
            }
            if ours.iter().any(InTheWay::is_something) {
                return Ok(Written::Refused(ours.to_vec()));
            }
            drop(lane);
            let mut there = theirs.iter();
            receipts.retain(|_| !there.next().is_some_and(InTheWay::is_something));
            if !pauses.pause(&table.observer).await {
                return Err(table.unavailable("its lanes are crowded"));
            }
        }
    }

    /// Writes receipts that touch no key, together with whatever others wait to be written.
    pub(super) async fn append(
        &self,
        table: &Table,
        tenant: &TenantId,
        receipts: Vec<Receipt>,
    ) -> Result<(), StoreError> {
        let batch = self.batch(tenant);
        for mut answer in batch.push(receipts) {
            loop {
                let _one_at_a_time = batch.writing.lock().await;
                // Somebody may have taken this one along.
                match answer.try_recv() {
                    Ok(done) => break done?,
                    Err(oneshot::error::TryRecvError::Empty) => {}
                    Err(oneshot::error::TryRecvError::Closed) => {
                        return Err(table.unavailable("a batch of receipts was given up"));
                    }
                }
                let (receipts, replies): (Vec<_>, Vec<_>) = batch.take().into_iter().unzip();
                let bundle = Bundle {
                    writes: Vec::new(),
                    receipts,
                    at: table.observer.now(),
                };
                let written = self.write(table, tenant, bundle).await;
                let done = written.map(|_| ());
                for reply in replies {
                    // Whoever asked may have left; the receipt is written all the same.
                    drop(reply.send(done.clone()));
                }
            }
        }
        Ok(())
    }

    fn ends(&self, tenant: &TenantId) -> Arc<Ends> {
        let mut all = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = all.entry(tenant.clone()).or_insert_with(|| {
            Arc::new(Ends {
                lanes: (0..LANES).map(|_| Arc::default()).collect(),
                preferred: AtomicUsize::new(self.preferred.load(Ordering::Relaxed)),
            })
        });
        Arc::clone(ends)
    }

    fn batch(&self, tenant: &TenantId) -> Arc<Batch> {
        let mut all = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(tenant.clone()).or_default())
    }
}

impl Batch {
    fn push(&self, receipts: Vec<Receipt>) -> Vec<oneshot::Receiver<Result<(), StoreError>>> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |receipt| {
            let (reply, answer) = oneshot::channel();
            pending.push((receipt, reply));
            answer
        };
        receipts.into_iter().map(one).collect()
    }

    fn take(&self) -> Vec<Pending> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut bytes, mut items) = (0, 0);
        let fits = |(receipt, _): &&Pending| {
            let size = receipt_bytes(receipt);
            bytes += size;
            items += 1 + size / PIECE_BYTES;
            bytes <= BATCH_BYTES_MAX && items <= BATCH_MAX
        };
        let count = pending.iter().take_while(fits).count();
        let count = count.max(1).min(pending.len());
        pending.drain(..count).collect()
    }
}

/// About how large a receipt is; what was asked and what was said of it is all that can be large.
fn receipt_bytes(receipt: &Receipt) -> usize {
    let args = serde_json::to_string(&receipt.action.args);
    let said = [&receipt.error, &receipt.note, &receipt.effect_id];
    let said: usize = said.into_iter().flatten().map(String::len).sum();
    args.map_or(0, |args| args.len()) + said + 4_096
}

impl Ends {
    /// A lane nobody of this process writes on, the preferred one if it is free.
    async fn take(&self) -> Lane {
        let preferred = self.preferred.load(Ordering::Relaxed) % LANES;
        for step in 0..LANES {
            let index = (preferred + step) % LANES;
            let lane = self.lanes.get(index).map(Arc::clone);
            if let Some(Ok(end)) = lane.map(tokio::sync::Mutex::try_lock_owned) {
                return Lane { index, end };
            }
        }
        let index = (preferred + usize::from(chance())) % LANES;
        let lane = self.lanes.get(index).map(Arc::clone).unwrap_or_default();
        Lane {
            index,
            end: lane.lock_owned().await,
        }
    }

    fn prefer_another(&self) {
        let other = usize::from(chance());
        self.preferred.store(other, Ordering::Relaxed);
    }
}

impl Lane {
    /// Everything to be written: what was given, the receipts, their pieces, the lane's new line.
    async fn with_line(
        &mut self,
        table: &Table,
        tenant: &TenantId,
        writes: &[Write],
        receipts: &[Receipt],
        at: StoreTime,
    ) -> Result<Vec<Write>, StoreError> {
        let pk = lane_pk(tenant, self.index);
        let end = if let Some(end) = *self.end {
            end
        } else {
            let (last, _) = table.range(&pk, Range::Last).await?;
            let line = last.first().map(Line::read).transpose();
            let line = line.map_err(|problem| table.unusable(problem))?;
            line.map_or(0, |line| line.last())
        };
        *self.end = Some(end);
        let (mut all, mut pieces) = (writes.to_vec(), Vec::new());
        for (number, receipt) in (end + 1..).zip(receipts) {
            let written = write_receipt(receipt);
            let (mut item, long) = written.map_err(|problem| table.unusable(problem))?;
            pieces.extend(long);
            item.insert("lane".to_owned(), super::fields::number(self.index));
            item.insert("number".to_owned(), super::fields::number(number));
            all.push(Write::Put(item, Expect::Absent));
        }
        all.extend(pieces);
        let ids = receipts
            .iter()
            .map(|receipt| text(receipt.receipt_id.as_str()));
        let mut line = self.line(tenant).item();
        line.insert("ids".to_owned(), AttributeValue::L(ids.collect()));
        line.insert("at".to_owned(), number(at.0));
        all.push(Write::Put(line, Expect::Absent));
        Ok(all)
    }

    /// Where its next line goes.
    fn line(&self, tenant: &TenantId) -> Address {
        Address {
            pk: lane_pk(tenant, self.index),
            sk: ordinal(self.end.map_or(1, |end| end.saturating_add(1))),
        }
    }

    fn advance(&mut self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        *self.end = self.end.map(|end| end.saturating_add(count));
    }
}
