//! `operators receipts prove` and `verify-proof`: a small file that convinces whoever has our key.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args as ArgsOf;
use operators_kernel::log::{
    Bundle, LOG_PAGE_MAX, LogHash, Proved, PublicKey, SignedCheckpoint, is_stub, prove_consistency,
    prove_inclusion,
};
use serde_json::{Value, json};

use super::verify::{Signed, read_checkpoint};
use crate::args::Whose;
use crate::exit::Exit;
use crate::output::{self, data, shown, unless_gone};
use crate::project::{bounded_text, read_text};

/// A receipt of a megabyte and its path.
const BUNDLE_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, ArgsOf)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["id", "from"]))]
pub(crate) struct ProveArgs {
    /// The receipt's id
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// An older checkpoint that the log is to continue
    #[arg(long, value_name = "CHECKPOINT")]
    from: Option<PathBuf>,
    #[command(flatten)]
    whose: Whose,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct VerifyProofArgs {
    /// What `prove` printed; `-` reads it from stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The key that must have signed, as in `.operators/signing.pub`
    #[arg(long, value_name = "PUB", value_parser = |text: &str| text.parse::<PublicKey>())]
    key: PublicKey,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn prove(args: &ProveArgs, project: Option<&Path>) -> Result<Exit> {
    let signed = Signed::open(project, &args.whose).await?;
    // Read before anything is signed: a file that is no checkpoint should not cost a signature.
    let from = args.from.as_deref().map(read_checkpoint).transpose()?;
    let checkpoint = signed.notary.sign().await?;
    let leaves = leaves(&signed, &checkpoint).await?;
    let bundle = match (&args.id, from) {
        (_, Some(from)) => consistency(&from, &checkpoint, &leaves)?,
        (Some(id), None) => inclusion(&signed, id, &checkpoint, &leaves).await?,
        (None, None) => bail!("name a receipt, or a checkpoint with `--from`"),
    };
    output::json(&bundle, true)?;
    Ok(Exit::Ok)
}

/// Every leaf of the log that was signed.
async fn leaves(signed: &Signed, checkpoint: &SignedCheckpoint) -> Result<Vec<Leaf>> {
    let size = checkpoint.checkpoint.size;
    let log = signed.store.log();
    let mut leaves = Vec::new();
    let mut from = 0;
    while from < size {
        let page = log.log_entries(&signed.tenant, from, LOG_PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        from = last.position + 1;
        let page = page.into_iter().filter(|entry| entry.position < size);
        leaves.extend(page.map(|entry| Leaf {
            receipt_id: entry.receipt_id,
            hash: entry.leaf,
        }));
    }
    Ok(leaves)
}

struct Leaf {
    receipt_id: String,
    hash: LogHash,
}

fn hashes(leaves: &[Leaf]) -> Vec<LogHash> {
    leaves.iter().map(|leaf| leaf.hash).collect()
}

async fn inclusion(
    signed: &Signed,
    id: &str,
    checkpoint: &SignedCheckpoint,
    leaves: &[Leaf],
) -> Result<Bundle> {
    let tenant = &signed.tenant;
    let place = leaves.iter().position(|leaf| leaf.receipt_id == id);
    let place = place
        .with_context(|| format!("no receipt `{}` of tenant `{}`", shown(id), shown(tenant)))?;
    let position = u64::try_from(place)?;
    let found = signed.store.log().log_entries(tenant, position, 1).await?;
    let receipt = found.into_iter().next().and_then(|entry| entry.body);
    if receipt.as_deref().is_some_and(is_stub) {
        bail!(
            "receipt `{}` was pruned, and a proof needs its text; `receipts show` says where it \
             is, and `verify --segment` proves that file whole",
            shown(id)
        );
    }
    Ok(Bundle::Inclusion {
        checkpoint: checkpoint.to_string(),
        position,
        receipt: receipt.with_context(|| format!("receipt `{}` is gone", shown(id)))?,
        path: prove_inclusion(&hashes(leaves), place).context("no such leaf")?,
    })
}

fn consistency(from: &SignedCheckpoint, to: &SignedCheckpoint, leaves: &[Leaf]) -> Result<Bundle> {
    let (old, new) = (&from.checkpoint, &to.checkpoint);
    if old.origin != new.origin {
        bail!(
            "that checkpoint is of the log `{}`, not of `{}`",
            shown(&old.origin),
            shown(&new.origin)
        );
    }
    let path = prove_consistency(&hashes(leaves), usize::try_from(old.size)?);
    let path = path.with_context(|| {
        format!(
            "that checkpoint is of {} receipts, and there are {}; see `receipts verify`",
            old.size, new.size
        )
    })?;
    Ok(Bundle::Consistency {
        from: from.to_string(),
        to: to.to_string(),
        path,
    })
}

pub(super) fn verify_proof(args: &VerifyProofArgs) -> Result<Exit> {
    let (file, is_json) = (args.file.as_path(), args.json);
    let text = if file == Path::new("-") {
        bounded_text(std::io::stdin().lock(), BUNDLE_BYTES_MAX)?
    } else {
        read_text(file, BUNDLE_BYTES_MAX)?
    };
    // What the reader of JSON says would be about our types, not about the file.
    let bundle: Bundle = serde_json::from_str(&text).map_err(|_| {
        anyhow!(
            "`{}` is no proof; give it what `operators receipts prove` printed",
            shown(&file.display())
        )
    })?;
    let proved = match bundle.verify(&[args.key]) {
        Ok(proved) => proved,
        Err(error) => {
            if is_json {
                let told = json!({ "holds": false, "problem": error.to_string() });
                unless_gone(output::json(&told, true))?;
            } else {
                output::error(&anyhow!("the proof does not hold: {}", shown(&error)));
            }
            return Ok(Exit::Unsound);
        }
    };
    if is_json {
        output::json(&as_json(&proved)?, true)?;
        return Ok(Exit::Ok);
    }
    match proved {
        Proved::Inclusion {
            receipt,
            checkpoint,
        } => {
            let log = &checkpoint.checkpoint;
            data(&format!(
                "holds: this receipt is in `{}`, of {} receipts",
                shown(&log.origin),
                log.size
            ))?;
            let receipt: Value = serde_json::from_str(&receipt)?;
            output::json(&receipt, true)?;
        }
        Proved::Consistency { from, to } => {
            let log = &to.checkpoint;
            let (origin, old, new) = (&log.origin, from.checkpoint.size, log.size);
            data(&format!(
                "holds: `{}` only grew, from {old} receipts to {new}",
                shown(origin)
            ))?;
        }
    }
    Ok(Exit::Ok)
}

fn as_json(proved: &Proved) -> Result<Value> {
    Ok(match proved {
        Proved::Inclusion {
            receipt,
            checkpoint,
        } => json!({
            "holds": true,
            "origin": checkpoint.checkpoint.origin,
            "size": checkpoint.checkpoint.size,
            "receipt": serde_json::from_str::<Value>(receipt)?,
        }),
        Proved::Consistency { from, to } => json!({
            "holds": true,
            "origin": to.checkpoint.origin,
            "from": from.checkpoint.size,
            "to": to.checkpoint.size,
        }),
    })
}
