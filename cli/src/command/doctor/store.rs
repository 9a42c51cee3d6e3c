//! Is the store sound: its file, its records, what is open in it?

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use operators_kernel::log::{Audit, inspect};
use operators_kernel::{Clock, DurableExec, TenantId};

use crate::command::doctor::{Diagnosis, Health};
use crate::command::pause;
use crate::compose;
use crate::config::StoreUrl;
use crate::notary::Notary;
use crate::open_ends::OpenEnds;
use crate::project::{Project, is_there};
use crate::unseen::Unseen;

pub(super) async fn examine(
    found: &mut Diagnosis,
    project: &Project,
    clock: &Arc<dyn Clock>,
    tenant: &TenantId,
    create: bool,
) {
    if project.config.store.url == StoreUrl::Memory {
        let told = "`memory:` forgets every key when a command ends; use it for trials only";
        found.add("store", Health::Note, told);
        return;
    }
    if let Some(file) = project.store_file() {
        match is_there(&file) {
            Ok(true) => mode(found, &file),
            Ok(false) => {
                let told = format!(
                    "`{}` is not there yet; the first run makes it",
                    file.display()
                );
                found.add("store", Health::Ok, told);
                let store = compose::empty_store(clock);
                signed(found, project, store, tenant).await;
                return;
            }
            Err(error) => {
                found.add("store", Health::Failed, format!("{error:#}"));
                return;
            }
        }
    }
    if create {
        let created = compose::create_store(project).await;
        found.take("store", created, |made| {
            let told = if *made {
                "its table is there"
            } else {
                "there was nothing to make"
            };
            told.to_owned()
        });
    }
    let opened = compose::store(project, clock).await;
    let Some(store) = found.take("store", opened, |store| {
        format!("{} opens", store.describe())
    }) else {
        return;
    };
    contents(found, &*store, tenant).await;
    signed(found, project, store, tenant).await;
}

/// Does the store hold all that was signed here? A run refuses one that does not.
async fn signed(
    found: &mut Diagnosis,
    project: &Project,
    store: Arc<dyn DurableExec>,
    tenant: &TenantId,
) {
    let notary = Notary::of(project, tenant, store);
    let held = async {
        notary.check().await?;
        Ok::<_, anyhow::Error>((notary.unseen().await?, notary.missing_checkpoints().await?))
    };
    let held = held.await.map(|(unseen, missing)| match missing {
        Some(missing) => Some(Unseen::Odd(missing)),
        None => unseen,
    });
    match held {
        Ok(None) => match notary.newest_signed() {
            Ok(Some(size)) => {
                let told = format!("the store holds the {size} receipts that were signed here");
                found.add("receipts", Health::Ok, told);
            }
            Ok(None) => {
                let told = "no checkpoint of this log is here, so nothing was compared: an older \
                            copy of the store would look the same";
                found.add("receipts", Health::Note, told);
            }
            Err(error) => found.add("receipts", Health::Failed, format!("{error:#}")),
        },
        Ok(Some(Unseen::Nothing(_))) => {
            let told = format!("there are none of tenant `{tenant}` yet, and none was signed");
            found.add("receipts", Health::Ok, told);
        }
        Ok(Some(Unseen::Odd(told))) => found.add("receipts", Health::Note, told),
        Err(error) => found.add("receipts", Health::Failed, format!("{error:#}")),
    }
    match notary.outside() {
        Ok(None) => {}
        Ok(Some(Ok(told))) => found.add("outside", Health::Ok, told),
        Ok(Some(Err(told))) => found.add("outside", Health::Failed, told),
        Err(error) => found.add("outside", Health::Failed, format!("{error:#}")),
    }
}

/// The store holds what was done for whom: nobody else may read it.
fn mode(found: &mut Diagnosis, file: &Path) {
    let Ok(about) = file.metadata() else { return };
    let mode = about.permissions().mode() & 0o777;
    let name = file.display();
    let open_to_others = mode & 0o077;
    if open_to_others == 0 {
        found.add("store", Health::Ok, format!("`{name}` has mode {mode:04o}"));
    } else {
        let told = format!("`{name}` has mode {mode:04o}, so others can read it; `chmod 600` it");
        found.add("store", Health::Failed, told);
    }
}

/// Do receipts and keys tell the same, both ways?
async fn receipts_and_keys(found: &mut Diagnosis, store: &dyn DurableExec, tenant: &TenantId) {
    let audit = Audit {
        checkpoints: Vec::new(),
        is_against_store: true,
    };
    match inspect(store.log(), tenant, audit, &mut |_, _| {}).await {
        Ok(findings) if findings.faults.is_empty() => {
            let (receipts, keys) = (findings.size, findings.keys.unwrap_or_default());
            let told = format!(
                "{receipts} receipts and {keys} burned keys of tenant `{tenant}` tell the same"
            );
            found.add("receipts", Health::Ok, told);
        }
        Ok(findings) => {
            for fault in findings.faults {
                found.add("receipts", Health::Failed, fault.to_string());
            }
        }
        Err(error) => found.add("receipts", Health::Failed, error.to_string()),
    }
}

async fn contents(found: &mut Diagnosis, store: &dyn DurableExec, tenant: &TenantId) {
    match store.check().await {
        Ok(problems) if problems.is_empty() => {
            found.add("store", Health::Ok, "its records agree with each other");
        }
        Ok(problems) => {
            for problem in problems {
                found.add("store", Health::Failed, problem);
            }
        }
        Err(error) => found.add("store", Health::Failed, error.to_string()),
    }
    receipts_and_keys(found, store, tenant).await;
    pauses(found, store, tenant).await;
    match OpenEnds::of(store, tenant).await {
        Ok(open) if open.is_empty() => {
            let told = format!("nothing is in flight and nothing in doubt for tenant `{tenant}`");
            found.add("doubts", Health::Ok, told);
        }
        Ok(open) => {
            let whose = format!("for tenant `{tenant}`; see `operators doubts list`");
            if !open.doubts.is_empty() {
                let told = format!("{} open {whose}", open.doubts.len());
                found.add("doubts", Health::Note, told);
            }
            if !open.in_flight.is_empty() {
                let told = format!("{} {whose}", open.in_flight_in_words());
                found.add("doubts", Health::Note, told);
            }
        }
        Err(error) => found.add("doubts", Health::Failed, format!("{error:#}")),
    }
}

async fn pauses(found: &mut Diagnosis, store: &dyn DurableExec, tenant: &TenantId) {
    match pause::standing(store, tenant).await {
        Ok(pauses) if pause::each(&pauses).is_empty() => {
            let told = format!("nothing of tenant `{tenant}` is paused");
            found.add("pauses", Health::Ok, told);
        }
        Ok(pauses) => {
            for one in pause::each(&pauses) {
                let told = format!("paused: {}; see `operators resume`", one.told());
                found.add("pauses", Health::Note, told);
            }
        }
        Err(error) => found.add("pauses", Health::Failed, format!("{error:#}")),
    }
}
