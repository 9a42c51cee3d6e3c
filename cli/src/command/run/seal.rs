//! What a run owes the log of receipts: it begins on a store that holds all that was signed, signs
//! on the way if it is long, and ends with everything in the log and signed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use operators_kernel::log::LogFault;
use operators_kernel::{DurableExec, TenantId};

use crate::config::StoreUrl;
use crate::exit::Exit;
use crate::notary::Notary;
use crate::output::{self, note, shown, warn};
use crate::project::{Project, is_there};
use crate::unseen::Unseen;

/// How long the end of a run waits for the log to be signed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Refuses a store that forgot something, and says of a new one what it does not know. What is
/// forgotten with the process is never signed.
pub(super) async fn begin(
    project: &Project,
    tenant: &TenantId,
    store: &Arc<dyn DurableExec>,
) -> Result<Option<Notary>> {
    if project.config.store.url == StoreUrl::Memory {
        return Ok(None);
    }
    let notary = Notary::of(project, tenant, Arc::clone(store));
    notary.check().await?;
    match notary.unseen().await? {
        None => {}
        Some(Unseen::Nothing(told)) => {
            // Of a file that is not there, whoever only looks has heard so.
            let file = project.store_file();
            if file.map_or(Ok(true), |file| is_there(&file))? {
                note(&told);
            }
        }
        Some(Unseen::Odd(told)) => warn(&told),
    }
    Ok(Some(notary))
}

/// Does the work, and signs on the way whenever it has lasted so long again. That it could not is
/// said; the work goes on all the same.
pub(super) async fn meanwhile<T>(
    notary: Option<&Notary>,
    every: Duration,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    let Some(notary) = notary else {
        return work.await;
    };
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(every) => {}
        }
        let mut sealing = pin!(on_the_way(notary));
        tokio::select! {
            biased;
            done = &mut work => {
                // What is being handed over arrives: the end has nothing new to hand over then.
                sealing.await;
                return done;
            }
            () = &mut sealing => {}
        }
    }
}

async fn on_the_way(notary: &Notary) {
    let problem = match tokio::time::timeout(PATIENCE, notary.sign()).await {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => format!("no end after {} s", PATIENCE.as_secs()),
    };
    warn(&format!(
        "the log of receipts was not signed on the way: {}; the end of the run tries again",
        shown(&problem)
    ));
}

/// Puts what was written into the log and signs it. What happened has happened: that it could not be
/// signed is said, and the next run does it.
pub(super) async fn end(notary: Option<&Notary>) -> Exit {
    let Some(notary) = notary else {
        return Exit::Ok;
    };
    let error = match tokio::time::timeout(PATIENCE, notary.sign()).await {
        Ok(Ok(_)) => return Exit::Ok,
        Ok(Err(error)) => error,
        Err(_) => anyhow!("no end after {} s", PATIENCE.as_secs()),
    };
    if error.is::<LogFault>() {
        output::error(&error.context("the log of receipts does not hold; nothing was signed"));
        return Exit::Unsound;
    }
    warn(&format!(
        "the log of receipts was not signed: {}; the next run does it",
        shown(&format!("{error:#}"))
    ));
    Exit::Ok
}
