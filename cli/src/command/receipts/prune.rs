//! `operators receipts prune`: the texts of old receipts go into a file, and only then leave the store.
//!
//! Owns the order, which is what makes it safe to be killed at any moment: the file, read back; the
//! receipt of it; a signed checkpoint over that receipt; then the texts. Run again, it finishes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args as ArgsOf;
use operators_kernel::life::{Alert, Approval, NoteKind};
use operators_kernel::log::{
    Audit, Fault, Frontier, LOG_PAGE_MAX, LogEntry, LogFault, Pruning, PublicKey, SegmentHeader,
    SignedCheckpoint, erase, inspect, is_unfinished, settled_at,
};
use operators_kernel::{Clock, Directive, DirectiveAnswer, IdKind, Order, Text, Timestamp};
use serde_json::json;

use super::segment;
use super::trail::last_pruning;
use super::verify::Signed;
use crate::args::{Decided, Whose};
use crate::compose;
use crate::exit::Exit;
use crate::filter::Moment;
use crate::notary::Notary;
use crate::output::{self, Bar, data, note, shown};
use crate::words::moment;

#[derive(Debug, ArgsOf)]
pub(crate) struct PruneArgs {
    /// Prune what was settled before this time, or so long ago (`90d`)
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    before: Moment,
    /// The file that gets the texts
    #[arg(long, value_name = "FILE")]
    export: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    decided: Decided,
    #[command(flatten)]
    whose: Whose,
}

pub(super) async fn run(args: PruneArgs, project: Option<&Path>) -> Result<Exit> {
    match pruned(&args, project).await {
        Err(error) if error.is::<LogFault>() || error.is::<Fault>() => {
            let told = "the log does not hold, so nothing was pruned";
            output::error(&error.context(told));
            Ok(Exit::Unsound)
        }
        ended => ended,
    }
}

async fn pruned(args: &PruneArgs, project: Option<&Path>) -> Result<Exit> {
    let signed = Signed::open(project, &args.whose).await?;
    let clock = compose::clock();
    let keys = signed.notary.keyring.public_keys()?;
    let last = last_pruning(&*signed.store, &signed.tenant).await?;
    if let Some(last) = &last
        && is_unfinished(signed.store.log(), &signed.tenant, last).await?
    {
        let found = segment::read_back(&args.export, &keys, &last.by);
        if !found.is_ok_and(|found| found.digest == last.digest) {
            bail!(
                "receipts {} to {} were exported to `{}`, and their texts are still here; give \
                 that very file with `--export` to finish, nothing was pruned",
                last.from + 1,
                last.to,
                shown(&last.segment)
            );
        }
        return finish(args, &signed, last).await;
    }
    let from = last.map_or(0, |last| last.to);
    let before = args.before.resolve(clock.now());
    let checkpoint = signed.notary.sign_outside().await?;
    verify(&signed, &keys).await?;
    let Some(reach) = reach(&signed, from, before, &checkpoint, &keys).await? else {
        note(&format!(
            "nothing was settled before {} that is not pruned yet",
            moment(before)
        ));
        return Ok(Exit::Ok);
    };
    let id = clock.id(IdKind::Receipt);
    let pruning = export(args, &signed, &reach, &keys, &id).await?;
    record(args, &signed, &pruning, &*clock).await?;
    finish(args, &signed, &pruning).await
}

/// Nothing is taken out of a log that does not hold.
async fn verify(signed: &Signed, keys: &[PublicKey]) -> Result<()> {
    let audit = Audit {
        checkpoints: Notary::believed(signed.notary.history()?, keys)?,
        is_against_store: true,
    };
    let bar = Bar::start();
    let log = signed.store.log();
    let mut progress = |done, of| bar.show(done, of);
    let found = inspect(log, &signed.tenant, audit, &mut progress).await?;
    drop(bar);
    found
        .faults
        .into_iter()
        .next()
        .map_or(Ok(()), |fault| Err(fault.into()))
}

/// What can be pruned: the log's edge where it begins, and the checkpoint it ends at.
struct Reach {
    edge: Frontier,
    end: SignedCheckpoint,
    /// Checkpoints that end earlier, the newest last.
    ends: Vec<SignedCheckpoint>,
}

/// Up to the last signed checkpoint before the first receipt that is too young.
async fn reach(
    signed: &Signed,
    from: u64,
    before: Timestamp,
    newest: &SignedCheckpoint,
    keys: &[PublicKey],
) -> Result<Option<Reach>> {
    let cited = cited(signed).await?;
    let mut held = None;
    let mut edge = Frontier::default();
    let mut old = 0;
    'log: while old < newest.checkpoint.size {
        let log = signed.store.log();
        let page = log.log_entries(&signed.tenant, old, LOG_PAGE_MAX).await?;
        for entry in &page {
            if entry.position < from {
                edge.push(entry.leaf);
            } else {
                let at = entry.body.as_deref().and_then(settled_at);
                if at.is_none_or(|at| at >= before) {
                    break 'log;
                }
                held = held.or_else(|| held_by(&cited, entry));
            }
            old = entry.position + 1;
        }
        if page.is_empty() {
            break;
        }
    }
    if old <= from {
        return Ok(None);
    }
    let ends = signed.notary.history()?.into_iter().filter(|one| {
        let size = one.checkpoint.size;
        from < size && size <= old && keys.iter().any(|key| one.is_signed_by(key))
    });
    let mut ends: Vec<SignedCheckpoint> = ends.collect();
    ends.sort_by_key(|one| one.checkpoint.size);
    let end = ends.pop();
    match (end, held) {
        (Some(end), Some((position, held))) if position < end.checkpoint.size => bail!(held),
        (Some(end), _) => Ok(Some(Reach { edge, end, ends })),
        (None, _) => bail!(
            "receipts {} to {old} are old enough, but no signed checkpoint ends among them; \
             nothing was pruned. One that ends later lets them be pruned with what it is about",
            from + 1
        ),
    }
}

/// Writes the file, unless it is there from a try that was cut short, and reads it back.
async fn export(
    args: &PruneArgs,
    signed: &Signed,
    reach: &Reach,
    keys: &[PublicKey],
    id: &str,
) -> Result<Pruning> {
    let file = &args.export;
    let header = SegmentHeader::new(&signed.tenant, &reach.edge, &reach.end);
    let is_there = file.try_exists()?;
    if !is_there {
        segment::write(signed, &header, file).await?;
    }
    let found = segment::read_back(file, keys, id);
    // One of an earlier try may end at an earlier checkpoint.
    let is_ours = |found: &Pruning| {
        let mut ends = reach.ends.iter().chain([&reach.end]);
        let is_end = |end: &SignedCheckpoint| {
            (end.checkpoint.size, end.checkpoint.root) == (found.to, found.root)
        };
        found.from == header.from && ends.any(is_end)
    };
    match found {
        Ok(found) if is_ours(&found) => Ok(found),
        Err(error) if !is_there => Err(error),
        _ => bail!(
            "`{}` is there already and is no segment of receipts {} to {}; name another file",
            shown(&file.display()),
            header.from + 1,
            header.to
        ),
    }
}

/// The receipts that something open is about, and what that is.
async fn cited(signed: &Signed) -> Result<HashMap<Text, String>> {
    let (store, tenant) = (&signed.store, &signed.tenant);
    let mut cited = HashMap::new();
    for (_, body) in store.notes(tenant, NoteKind::Alert).await? {
        if let Some(alert) = Alert::read(Some(&body))? {
            let key = &alert.proposal.idempotency_key;
            let told = format!("the alert about key `{key}`; see `operators alerts ack`");
            cited.insert(alert.proposal.receipt_id.clone(), told);
        }
    }
    for (_, body) in store.notes(tenant, NoteKind::Approval).await? {
        let asked = Approval::read(Some(&body))?;
        if let Some(asked) = asked.filter(|asked| asked.answer.is_none()) {
            let key = &asked.proposal.idempotency_key;
            let id = &asked.proposal.receipt_id;
            let told =
                format!("the question about key `{key}`; see `operators approvals veto {id}`");
            cited.insert(id.clone(), told);
        }
    }
    for doubt in store.doubts(tenant).await?.0 {
        let key = &doubt.proposal.idempotency_key;
        let told = format!("the doubt about key `{key}`; see `operators doubts resolve`");
        cited.insert(doubt.proposal.receipt_id.clone(), told);
    }
    Ok(cited)
}

/// Why this entry must stay, with its place.
fn held_by(cited: &HashMap<Text, String>, entry: &LogEntry) -> Option<(u64, String)> {
    let what = cited.get(entry.receipt_id.as_str())?;
    let told = format!(
        "receipt `{}` ({} of the log) is that of {}; nothing was pruned",
        shown(&entry.receipt_id),
        entry.position + 1,
        shown(what)
    );
    Some((entry.position, told))
}

/// Puts the pruning itself into the trail: from here on its texts may go.
async fn record(
    args: &PruneArgs,
    signed: &Signed,
    pruning: &Pruning,
    clock: &dyn Clock,
) -> Result<()> {
    let directive = Directive {
        order: Order::Prune(Box::new(pruning.clone())),
        by: args.decided.who.person()?,
        note: Some(args.decided.because.clone()),
        receipt_id: pruning.by.clone(),
        at: clock.now(),
    };
    match signed.store.direct(&signed.tenant, directive).await? {
        DirectiveAnswer::Done => Ok(()),
        _ => bail!("somebody else pruned meanwhile; nothing more was pruned"),
    }
}

/// The receipt of the pruning is signed for, outside too; then the texts go.
async fn finish(args: &PruneArgs, signed: &Signed, pruning: &Pruning) -> Result<Exit> {
    signed.notary.sign_outside().await?;
    let erased = erase(signed.store.log(), &signed.tenant, pruning).await??;
    if args.json {
        output::json(
            &json!({
                "tenant": signed.tenant.as_str(),
                "receipt_id": pruning.by,
                "from": pruning.from,
                "to": pruning.to,
                "pruned": erased,
                "segment": pruning.segment,
                "digest": pruning.digest,
            }),
            true,
        )?;
        return Ok(Exit::Ok);
    }
    data(&format!(
        "pruned: receipts {} to {} of tenant `{}`",
        pruning.from + 1,
        pruning.to,
        shown(&signed.tenant)
    ))?;
    data(&format!("segment: {}", shown(&pruning.segment)))?;
    data(&format!("digest: {}", pruning.digest))?;
    data(&format!("receipt: {}", shown(&pruning.by)))?;
    note("keep the segment: it is the only copy of those receipts");
    Ok(Exit::Ok)
}
