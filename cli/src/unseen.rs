//! What a store never saw: said before its silence is taken for an answer, because a name or a place
//! that was mistyped repeats every effect.

use anyhow::Result;
use operators_kernel::{DurableExec, Ledger, TenantHistory, TenantId};

use crate::output::{shown, warn};

/// What a store does not know of a tenant, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// There is nothing to compare with: a project's first run looks like this.
    Nothing(String),
    /// There is something that was surely not meant to be left behind.
    Odd(String),
}

/// Whether the store ever held anything of this tenant; `is_used_elsewhere` says that this project did
/// something by way of another store.
pub(crate) async fn of(
    store: &dyn DurableExec,
    tenant: &TenantId,
    is_used_elsewhere: bool,
) -> Result<Option<Unseen>> {
    let history = store.history_of(tenant).await?;
    let name = shown(tenant);
    if history == TenantHistory::Known {
        return Ok(None);
    }
    if is_used_elsewhere {
        return Ok(Some(Unseen::Odd(format!(
            "this store holds nothing of tenant `{name}` yet, and another store of this project does: \
             what was done by way of that one is not known here, and is sent again when it is \
             proposed again"
        ))));
    }
    if history == TenantHistory::EmptyStore {
        return Ok(Some(Unseen::Nothing(format!(
            "{} holds nothing yet: what was done before by any other way is not known there",
            shown(&store.describe())
        ))));
    }
    // Whoever rehearses under a name means that name.
    if let Ok(stub) = tenant.stub()
        && store.history_of(&stub).await? == TenantHistory::Known
    {
        return Ok(None);
    }
    Ok(Some(Unseen::Odd(format!(
        "tenant `{name}` is new to this store, which knows others: what was done for another is not \
         known of this one, and is sent again when it is proposed again; see that `--tenant`, or \
         `tenant` in operators.toml, says the one that is meant"
    ))))
}

/// Warns, where a look found nothing of a tenant, that the store never saw it: nothing of a name that
/// was mistyped is no news of the one that was meant. A look that fails hides nothing else.
pub(crate) async fn warn_of_nothing(store: &dyn Ledger, tenant: &TenantId) {
    if let Ok(TenantHistory::OnlyOthers) = store.history_of(tenant).await {
        warn(&format!(
            "tenant `{}` is new to this store, which knows others: see that `--tenant`, or `tenant` in \
             operators.toml, says the one that is meant",
            shown(tenant)
        ));
    }
}
