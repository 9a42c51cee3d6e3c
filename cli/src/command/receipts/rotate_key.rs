//! `operators receipts rotate-key`: another key signs from now on, and the trail says so.

use std::path::Path;

use anyhow::Result;
use clap::Args as ArgsOf;
use operators_kernel::IdKind;
use operators_kernel::log::KeyChange;

use super::verify::Signed;
use crate::args::{Decided, Whose};
use crate::compose;
use crate::exit::Exit;
use crate::output::{data, note};

#[derive(Debug, ArgsOf)]
pub(crate) struct RotateKeyArgs {
    #[command(flatten)]
    decided: Decided,
    #[command(flatten)]
    whose: Whose,
}

pub(super) async fn run(args: RotateKeyArgs, project: Option<&Path>) -> Result<Exit> {
    let signed = Signed::open(project, &args.whose).await?;
    let clock = compose::clock();
    let now = signed.notary.keyring.signing_key()?.public();
    let change = KeyChange {
        old: now,
        new: now,
        by: args.decided.who.person()?,
        note: Some(args.decided.because),
        receipt_id: clock.id(IdKind::Receipt),
        at: clock.now(),
    };
    let (old, new) = signed.notary.rotate(change).await?;
    data(&format!("old: {old}"))?;
    data(&format!("new: {new}"))?;
    note("checkpoints are signed by the new key from now on; give it to your auditors");
    Ok(Exit::Ok)
}
