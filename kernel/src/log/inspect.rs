//! An audit of a store: reads its log from the first receipt to the last and judges all of it.
//!
//! Owns the order of reading, which must not take what others write meanwhile for a fault.

use futures_util::future::join;
use thiserror::Error;

use super::audit::Auditor;
use super::burns::{BurnFault, Burns};
use super::checkpoint::Checkpoint;
use super::fault::LogFault;
use super::pruning::named;
use super::tree::{Frontier, LogHash};
use super::{BurnedPage, LOG_PAGE_MAX, Log, LogEntry, Sequenced};
use crate::durable::StoreError;
use crate::key::{IdempotencyKey, TenantId};

/// The most faults that are told; whoever finds so many looks at the store itself.
const FAULTS_MAX: usize = 20;

/// How many entries, or keys, are looked at before others are let run: a fraction of a millisecond.
const JUDGED_AT_ONCE: usize = 64;

/// How often keys are compared again because others wrote meanwhile.
const ROUNDS_MAX: u32 = 5;

/// What is to be audited.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    /// Checkpoints that the log must agree with; their signatures were checked.
    pub checkpoints: Vec<Checkpoint>,
    /// Whether the burned keys are held against the receipts.
    pub is_against_store: bool,
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// How many receipts were looked at.
    pub size: u64,
    /// How many the log's head is about.
    pub head: u64,
    /// The audit ended with a fault of the log: what follows was not looked at, nor any key.
    pub is_stopped: bool,
    /// Their root.
    pub root: LogHash,
    /// How many of them were pruned: their texts are elsewhere.
    pub pruned: u64,
    /// How many checkpoints agree with it.
    pub checkpoints: u64,
    /// How many burned keys were compared; `None` if that was not asked for.
    pub keys: Option<usize>,
    /// Some receipts are not in the log yet: a transaction is open that has written them.
    pub is_behind: bool,
    /// What is wrong, the first receipt first. Empty means that everything is sound.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The log itself.
    #[error(transparent)]
    Log(#[from] LogFault),
    /// A receipt that is in no log.
    #[error("receipt `{0}` is in the store and not in the log: it was put in")]
    Stray(String),
    /// Keys and receipts disagree.
    #[error(transparent)]
    Burn(#[from] BurnFault),
}

/// Audits one tenant's log; `progress` hears how many receipts were looked at, and of how many.
pub async fn inspect(
    log: &dyn Log,
    tenant: &TenantId,
    audit: Audit,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Findings, StoreError> {
    let is_pruned = |findings: &Findings| {
        matches!(
            findings.faults.first(),
            Some(Fault::Log(LogFault::Stubbed { .. }))
        )
    };
    let found = inspect_once(log, tenant, audit.clone(), progress).await?;
    if is_pruned(&found) {
        // A pruning that began behind the reader's back: the second look sees all of it.
        return inspect_once(log, tenant, audit, progress).await;
    }
    Ok(found)
}

async fn inspect_once(
    log: &dyn Log,
    tenant: &TenantId,
    audit: Audit,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Findings, StoreError> {
    let sequenced = log.sequence(tenant).await?;
    let burns = audit.is_against_store.then(Burns::default);
    let mut findings = Findings {
        size: 0,
        head: sequenced.head.size(),
        is_stopped: false,
        root: LogHash::of_nothing(),
        pruned: 0,
        checkpoints: 0,
        keys: None,
        is_behind: sequenced.is_behind,
        faults: Vec::new(),
    };
    let mut auditor = match Auditor::new(tenant, audit.checkpoints, burns) {
        Ok(auditor) => auditor,
        Err(fault) => {
            findings.is_stopped = true;
            findings.faults.push(fault.into());
            return Ok(findings);
        }
    };
    let read = whole(log, tenant, &mut auditor, &sequenced.head, progress).await?;
    findings.size = auditor.frontier().size();
    findings.root = auditor.frontier().root();
    findings.pruned = auditor.pruned();
    findings.checkpoints = auditor.checkpoints();
    let read = read.and(lost(&sequenced));
    if let Err(fault) = read {
        findings.is_stopped = true;
        findings.faults.push(fault.into());
        return Ok(findings);
    }
    let twice = auditor.told_twice().iter().cloned().map(Fault::from);
    findings.faults.extend(twice);
    let strays = log.strays(tenant).await?;
    let strays = strays.into_iter().take(FAULTS_MAX).map(Fault::Stray);
    findings.faults.extend(strays);
    if audit.is_against_store {
        compare(log, tenant, &mut auditor, &mut findings).await?;
    }
    Ok(findings)
}

/// Goes on from the edge of what is known to be sound: the log's edge now, made of every receipt
/// since, so that whoever signs it signs nothing that it was only told. It must agree with every
/// checkpoint that is not behind the edge.
pub async fn follow(
    log: &dyn Log,
    tenant: &TenantId,
    edge: Frontier,
    checkpoints: Vec<Checkpoint>,
) -> Result<Result<Frontier, LogFault>, StoreError> {
    let known = edge.size();
    let sequenced = log.sequence(tenant).await?;
    if let Err(fault) = lost(&sequenced) {
        return Ok(Err(fault));
    }
    let head = sequenced.head;
    if head.size() < known {
        return Ok(Err(LogFault::RolledBack {
            found: head.size(),
            size: known,
        }));
    }
    let mut tries = 0;
    loop {
        let auditor = Auditor::resume(tenant, edge.clone(), checkpoints.clone(), None);
        let mut auditor = match auditor {
            Ok(auditor) => auditor,
            Err(fault) => return Ok(Err(fault)),
        };
        tries += 1;
        match whole(log, tenant, &mut auditor, &head, &mut |_, _| {}).await? {
            // As in an audit: a pruning may have begun behind the reader's back.
            Err(LogFault::Stubbed { .. }) if tries == 1 => {}
            sound => {
                let twice = auditor.told_twice().first().cloned();
                let sound = sound.and(twice.map_or(Ok(()), Err));
                return Ok(sound.map(|()| auditor.frontier().clone()));
            }
        }
    }
}

/// Whether everything that was acknowledged could be appended.
fn lost(sequenced: &Sequenced) -> Result<(), LogFault> {
    match &sequenced.lost {
        Some(id) => Err(LogFault::Lost {
            number: sequenced.head.size().saturating_add(1),
            receipt_id: id.clone(),
        }),
        None => Ok(()),
    }
}

/// Every entry that the head is about, and that there is no other.
async fn whole(
    log: &dyn Log,
    tenant: &TenantId,
    auditor: &mut Auditor,
    head: &Frontier,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Result<(), LogFault>, StoreError> {
    if let Err(fault) = extend(log, tenant, auditor, head.size(), progress).await? {
        return Ok(Err(fault));
    }
    let mut head = head.clone();
    if auditor.has_untold_stubs() {
        // The receipt of a pruning is written before its first stub: it may have come since.
        head = log.sequence(tenant).await?.head;
        if let Err(fault) = extend(log, tenant, auditor, head.size(), progress).await? {
            return Ok(Err(fault));
        }
    }
    if let Err(fault) = auditor.finish(&head) {
        return Ok(Err(fault));
    }
    // Whatever stands behind the head was appended since, and then the head has moved.
    let behind = log.log_entries(tenant, head.size(), LOG_PAGE_MAX).await?;
    let size = log.head(tenant).await?.size();
    let behind = behind.into_iter().find(|entry| entry.position >= size);
    Ok(behind.map_or(Ok(()), |entry| {
        Err(LogFault::BehindHead {
            number: entry.position.saturating_add(1),
            receipt_id: entry.receipt_id,
        })
    }))
}

async fn extend(
    log: &dyn Log,
    tenant: &TenantId,
    auditor: &mut Auditor,
    size: u64,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Result<(), LogFault>, StoreError> {
    let read = async |from: u64| {
        if from < size {
            log.log_entries(tenant, from, LOG_PAGE_MAX).await
        } else {
            Ok(Vec::new())
        }
    };
    let mut page = read(auditor.frontier().size()).await?;
    while let Some(last) = page.last() {
        let from = auditor.frontier().size();
        // Whatever follows a page that is sound follows its last entry.
        let ahead = read(last.position.saturating_add(1));
        let (judged, ahead) = join(judge(auditor, &page, size), ahead).await;
        if let Err(fault) = judged {
            return Ok(Err(fault));
        }
        if auditor.frontier().size() == from {
            // What follows stands behind the head, and so the entry looked for is gone.
            break;
        }
        progress(auditor.frontier().size(), size);
        page = ahead?;
    }
    Ok(Ok(()))
}

/// Looks at the entries below `size`, and lets others run now and then: the next page is read
/// meanwhile.
async fn judge(auditor: &mut Auditor, page: &[LogEntry], size: u64) -> Result<(), LogFault> {
    for some in page.chunks(JUDGED_AT_ONCE) {
        for entry in some.iter().take_while(|entry| entry.position < size) {
            auditor.entry(entry)?;
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Holds keys and receipts against each other, again while others write.
async fn compare(
    log: &dyn Log,
    tenant: &TenantId,
    auditor: &mut Auditor,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    let mut compared = Vec::new();
    for _ in 0..ROUNDS_MAX {
        compared = compare_once(log, tenant, auditor, findings).await?;
        let size = log.sequence(tenant).await?.head.size();
        if compared.is_empty() || size == auditor.frontier().size() {
            break;
        }
        if let Err(fault) = extend(log, tenant, auditor, size, &mut |_, _| {}).await? {
            findings.faults.push(fault.into());
            return Ok(());
        }
    }
    findings.faults.extend(compared);
    Ok(())
}

async fn compare_once(
    log: &dyn Log,
    tenant: &TenantId,
    auditor: &mut Auditor,
    findings: &mut Findings,
) -> Result<Vec<Fault>, StoreError> {
    let mut faults = Vec::new();
    let Some(burns) = auditor.burns() else {
        return Ok(faults);
    };
    burns.begin();
    let mut count: usize = 0;
    let mut page = Some(log.burned(tenant, None).await?);
    while let Some(BurnedPage { keys, next }) = page {
        let ahead = async {
            match next {
                Some(after) => log.burned(tenant, Some(&after)).await.map(Some),
                None => Ok(None),
            }
        };
        count = count.saturating_add(keys.len());
        let compared = async {
            for some in keys.chunks(JUDGED_AT_ONCE) {
                let wrong = some.iter().filter_map(|key| burns.burned(key).err());
                let room = FAULTS_MAX.saturating_sub(faults.len());
                faults.extend(wrong.take(room).map(Fault::from));
                tokio::task::yield_now().await;
            }
        };
        let ((), ahead) = join(compared, ahead).await;
        page = ahead?;
    }
    findings.keys = Some(count);
    let room = FAULTS_MAX.saturating_sub(faults.len());
    for position in burns.missing().into_iter().take(room) {
        let found = log.log_entries(tenant, position, 1).await?;
        let named = found
            .first()
            .and_then(|entry| named(entry.body.as_deref()?));
        let (key, receipt_id): (IdempotencyKey, String) = match named {
            Some(named) => named,
            None => continue,
        };
        faults.push(BurnFault::NoBurn { key, receipt_id }.into());
    }
    Ok(faults)
}
