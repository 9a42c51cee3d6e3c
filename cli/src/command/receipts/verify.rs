//! `operators receipts verify` and `head`: is the log what it was, and what is it now?

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args as ArgsOf;
use operators_kernel::log::{
    Audit, Checkpoint, Fault, Findings, LOG_PAGE_MAX, PublicKey, SignedCheckpoint, inspect, is_stub,
};
use operators_kernel::{DurableExec, TenantId};
use serde_json::json;

use super::segment;
use crate::args::Whose;
use crate::compose;
use crate::exit::Exit;
use crate::notary::Notary;
use crate::output::{self, Bar, data, note, shown, unless_gone};
use crate::project::{Project, read_text};
use crate::unseen;

/// Far beyond a checkpoint with every witness's signature.
const CHECKPOINT_BYTES_MAX: usize = 1 << 20;

/// A log, and whoever signs it.
pub(super) struct Signed {
    pub(super) tenant: TenantId,
    pub(super) store: Arc<dyn DurableExec>,
    pub(super) notary: Notary,
}

impl Signed {
    pub(super) async fn open(project: Option<&Path>, whose: &Whose) -> Result<Self> {
        let project = Project::open(project)?;
        let tenant = project.tenant(whose)?;
        let store = compose::store_to_read(&project, &compose::clock()).await?;
        if store.log().head(&tenant).await?.size() == 0 {
            unseen::warn_of_nothing(&*store, &tenant).await;
        }
        Ok(Self {
            notary: Notary::of(&project, &tenant, Arc::clone(&store)),
            tenant,
            store,
        })
    }
}

#[derive(Debug, ArgsOf)]
pub(crate) struct VerifyArgs {
    /// A checkpoint that was kept elsewhere; may be given more than once
    #[arg(long, value_name = "CHECKPOINT")]
    head: Vec<PathBuf>,
    /// Trust this key alone [default: those in `.operators/signing.pub`]
    #[arg(long, value_name = "PUB", value_parser = |text: &str| text.parse::<PublicKey>())]
    key: Option<PublicKey>,
    /// Hold the burned keys against the receipts, both ways
    #[arg(long)]
    against_store: bool,
    /// A file that `prune` wrote: hold it against the log too; may be given more than once
    #[arg(long, value_name = "FILE")]
    segment: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    whose: Whose,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct HeadArgs {
    /// Write every receipt it is about to this file, in the log's order, a line each
    #[arg(long, value_name = "FILE")]
    with_log: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    whose: Whose,
}

pub(super) async fn verify(asked: &VerifyArgs, project: Option<&Path>) -> Result<Exit> {
    let signed = &Signed::open(project, &asked.whose).await?;
    let checkpoints = match checkpoints(signed, asked)? {
        Ok(checkpoints) => checkpoints,
        Err(fault) => return tell(signed, asked, None, &[fault.to_string()]),
    };
    let audit = Audit {
        checkpoints,
        is_against_store: asked.against_store,
    };
    let bar = Bar::start();
    let log = signed.store.log();
    let mut progress = |done, of| bar.show(done, of);
    let found = inspect(log, &signed.tenant, audit, &mut progress).await?;
    drop(bar);
    let mut faults: Vec<String> = found.faults.iter().map(Fault::to_string).collect();
    let keys = trusted(signed, asked)?;
    for file in &asked.segment {
        faults.extend(segment::compare(signed, file, &keys).await?.err());
    }
    let exit = tell(signed, asked, Some(&found), &faults)?;
    if !asked.json {
        remarks(signed, &found, faults.is_empty()).await?;
    }
    Ok(exit)
}

/// What was not looked at, and what cannot be told.
async fn remarks(signed: &Signed, found: &Findings, is_sound: bool) -> Result<()> {
    if found.is_stopped {
        note(&format!(
            "{} of {} receipts were looked at, and the audit stopped at the first fault: whatever \
             else is wrong, with burned keys too, is not told",
            found.size, found.head
        ));
    }
    if !is_sound {
        return Ok(());
    }
    if found.is_behind {
        note("some receipts are not in the log yet: a transaction that wrote them is open");
    }
    if found.checkpoints == 0 {
        let missing = signed.notary.missing_checkpoints().await?;
        let nothing =
            "nothing was signed here yet, so an older copy of the store would look the same";
        note(missing.as_deref().unwrap_or(nothing));
    }
    if found.keys.is_none() {
        note("burned keys were not compared; `--against-store` does that");
    }
    Ok(())
}

/// The keys whose signatures count.
fn trusted(signed: &Signed, asked: &VerifyArgs) -> Result<Vec<PublicKey>> {
    match asked.key {
        Some(key) => Ok(vec![key]),
        None => signed.notary.keyring.public_keys(),
    }
}

/// The checkpoints that the log must agree with: those of the project and those that were given.
fn checkpoints(signed: &Signed, asked: &VerifyArgs) -> Result<Result<Vec<Checkpoint>, Fault>> {
    let mut history = signed.notary.history()?;
    let trusted = trusted(signed, asked)?;
    if let Some(key) = &asked.key {
        // Those of an earlier key are for whoever trusts that one.
        history.retain(|one| one.is_signed_by(key));
    }
    for file in &asked.head {
        history.push(read_checkpoint(file)?);
    }
    if trusted.is_empty() && !history.is_empty() {
        // That is no fault of the log: nothing was found out.
        bail!(
            "no key is trusted here, so no checkpoint can be checked: {} has none; `--key` names one",
            shown(&signed.notary.keyring.public_file().display())
        );
    }
    Ok(Notary::believed(history, &trusted).map_err(Fault::from))
}

pub(super) fn read_checkpoint(file: &Path) -> Result<SignedCheckpoint> {
    let text = read_text(file, CHECKPOINT_BYTES_MAX)?;
    text.parse()
        .map_err(|problem| anyhow!("`{}` is no checkpoint: {problem}", shown(&file.display())))
}

fn tell(
    signed: &Signed,
    asked: &VerifyArgs,
    found: Option<&Findings>,
    faults: &[String],
) -> Result<Exit> {
    let exit = if faults.is_empty() {
        Exit::Ok
    } else {
        Exit::Unsound
    };
    if asked.json {
        let told = json!({
            "tenant": signed.tenant.as_str(),
            "sound": faults.is_empty(),
            "size": found.map(|found| found.size),
            "head": found.map(|found| found.head),
            "stopped": found.is_none_or(|found| found.is_stopped),
            "root": found.map(|found| found.root),
            "pruned": found.map(|found| found.pruned),
            "checkpoints": found.map(|found| found.checkpoints),
            "keys": found.and_then(|found| found.keys),
            "faults": faults,
        });
        unless_gone(output::json(&told, true))?;
        return Ok(exit);
    }
    for fault in faults {
        output::error(&anyhow!("{}", shown(fault)));
    }
    let Some(found) = found.filter(|_| faults.is_empty()) else {
        return Ok(exit);
    };
    let tenant = shown(&signed.tenant);
    data(&format!(
        "sound: {} receipts of tenant `{tenant}`",
        found.size
    ))?;
    data(&format!("root: {}", found.root))?;
    if found.pruned > 0 {
        data(&format!(
            "pruned, of which only hashes are left: {}",
            found.pruned
        ))?;
    }
    if !asked.segment.is_empty() {
        data(&format!("segments that agree: {}", asked.segment.len()))?;
    }
    data(&format!(
        "signed checkpoints that agree: {}",
        found.checkpoints
    ))?;
    if let Some(keys) = found.keys {
        data(&format!("burned keys that agree: {keys}"))?;
    }
    Ok(exit)
}

pub(super) async fn head(args: &HeadArgs, project: Option<&Path>) -> Result<Exit> {
    let signed = Signed::open(project, &args.whose).await?;
    let checkpoint = signed.notary.sign().await?;
    if let Some(file) = &args.with_log {
        write_log(&signed, checkpoint.checkpoint.size, file)
            .await
            .with_context(|| format!("`{}` was not written whole", shown(&file.display())))?;
    }
    if !args.json {
        data(checkpoint.to_string().trim_end())?;
        return Ok(Exit::Ok);
    }
    let key = signed.notary.keyring.signing_key()?.public();
    let log = &checkpoint.checkpoint;
    output::json(
        &json!({
            "tenant": signed.tenant.as_str(),
            "size": log.size,
            "root": log.root,
            "checkpoint": checkpoint.to_string(),
            "key": key.to_string(),
            "note_key": key.note_key(&log.origin),
        }),
        true,
    )?;
    Ok(Exit::Ok)
}

/// The texts that the leaves of a log are the hashes of.
async fn write_log(signed: &Signed, size: u64, file: &Path) -> Result<()> {
    let mut out = BufWriter::new(File::create(file)?);
    let mut from = 0;
    while from < size {
        let page = signed.store.log();
        let page = page.log_entries(&signed.tenant, from, LOG_PAGE_MAX).await?;
        if page.is_empty() {
            bail!(
                "receipt {} of the log is gone; see `receipts verify`",
                from + 1
            );
        }
        for entry in page.iter().filter(|entry| entry.position < size) {
            let body = entry.body.as_deref().context("a receipt is gone")?;
            if is_stub(body) {
                bail!(
                    "receipt {} of the log was pruned; its text is in a segment, which \
                     `verify.py segment` checks by itself",
                    entry.position + 1
                );
            }
            writeln!(out, "{body}")?;
        }
        from = page.last().map_or(size, |last| last.position + 1);
    }
    Ok(out.flush()?)
}
