//! The trail of one tenant, read a page at a time, so that memory stays flat.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use operators_kernel::life::NoteName;
use operators_kernel::log::{Pruned, Pruning};
use operators_kernel::{
    Clock, Cursor, Ledger, LedgerEntry, PAGE_MAX, Receipt, ReceiptFilter, TenantId,
};

use super::cursor::Older;
use crate::args::Whose;
use crate::compose;
use crate::output::{note, shown};
use crate::project::Project;
use crate::table::ID_END;
use crate::unseen;

/// How far back `find` looks for the end of an id.
const ID_END_SEARCH_MAX: usize = 50_000;

/// How far a tenant's receipts were pruned.
pub(super) async fn last_pruning(
    ledger: &dyn Ledger,
    tenant: &TenantId,
) -> Result<Option<Pruning>> {
    let found = ledger.note(tenant, &NoteName::pruned()).await?;
    Ok(Pruning::read(found.as_deref())?)
}

/// The trail of one tenant.
pub(super) struct Trail {
    pub(super) project: Project,
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) tenant: TenantId,
    pub(super) clock: Arc<dyn Clock>,
}

impl Trail {
    pub(super) async fn open(project: Option<&Path>, whose: &Whose) -> Result<Self> {
        let project = Project::open(project)?;
        let clock = compose::clock();
        let ledger = compose::store_to_read(&project, &clock).await?;
        let tenant = project.tenant(whose)?;
        if ledger.log().head(&tenant).await?.size() == 0 {
            unseen::warn_of_nothing(&*ledger, &tenant).await;
        }
        Self::new(project, whose, clock, ledger)
    }

    /// The store is made if it is not there: somebody waits for what will be written to it.
    pub(super) async fn open_to_follow(project: Option<&Path>, whose: &Whose) -> Result<Self> {
        let project = Project::open(project)?;
        let clock = compose::clock();
        let ledger = compose::store(&project, &clock).await?;
        Self::new(project, whose, clock, ledger)
    }

    fn new(
        project: Project,
        whose: &Whose,
        clock: Arc<dyn Clock>,
        ledger: Arc<dyn Ledger>,
    ) -> Result<Self> {
        Ok(Self {
            tenant: project.tenant(whose)?,
            project,
            ledger,
            clock,
        })
    }

    pub(super) async fn page(
        &self,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>> {
        let limit = limit.min(PAGE_MAX);
        let page = self.ledger.receipts(&self.tenant, filter, cursor, limit);
        Ok(page.await?)
    }

    /// Says how many receipts are not in what was shown because they were pruned.
    pub(super) async fn tell_pruned(&self) -> Result<()> {
        if let Some(last) = last_pruning(&*self.ledger, &self.tenant).await? {
            let (count, file) = (last.to, shown(&last.segment));
            note(&format!(
                "{count} pruned: the first {count} receipts of the log are in segments, the last \
                 of them in `{file}`"
            ));
        }
        Ok(())
    }

    /// The newest receipt that fits.
    pub(super) async fn newest(&self, filter: &ReceiptFilter) -> Result<Option<LedgerEntry>> {
        Ok(self.page(filter, Older::END.cursor(), 1).await?.pop())
    }

    /// The receipt of that id, or the one whose id ends so.
    pub(super) async fn find(&self, id: &str) -> Result<Receipt> {
        let filter = ReceiptFilter {
            receipt_id: Some(id.into()),
            ..ReceiptFilter::default()
        };
        if let Some(entry) = self.newest(&filter).await? {
            return Ok(entry.receipt);
        }
        let end = id.trim_start_matches('…');
        if end.len() < ID_END {
            bail!(
                "no receipt `{}` of tenant `{}`",
                shown(id),
                shown(&self.tenant)
            );
        }
        let stub = self.ledger.log().stub(&self.tenant, id).await?;
        if let Some(stub) = stub.as_deref().and_then(Pruned::read) {
            return Err(self.pruned(id, &stub).await?);
        }
        let mut found: Option<Receipt> = None;
        let mut before = Older::END;
        let mut searched = 0;
        while searched < ID_END_SEARCH_MAX {
            let all = ReceiptFilter::default();
            let page = self.page(&all, before.cursor(), PAGE_MAX).await?;
            let Some(last) = page.last() else { break };
            before = Older(last.sequence);
            searched += page.len();
            for entry in page
                .into_iter()
                .filter(|entry| entry.receipt.receipt_id.ends_with(end))
            {
                if found.is_some() {
                    bail!(
                        "several receipts end in `{}`; give more of the id",
                        shown(end)
                    );
                }
                found = Some(entry.receipt);
            }
        }
        found.with_context(|| {
            format!(
                "no receipt `{}` of tenant `{}` (an end was looked for in the last {searched})",
                shown(id),
                shown(&self.tenant)
            )
        })
    }

    /// Where a pruned receipt went, as the receipt of its pruning tells.
    async fn pruned(&self, id: &str, stub: &Pruned) -> Result<anyhow::Error> {
        let filter = ReceiptFilter {
            receipt_id: Some(stub.by.clone()),
            ..ReceiptFilter::default()
        };
        let told = self.newest(&filter).await?;
        let told = told.and_then(|entry| Pruning::told_by(&entry.receipt));
        let file = told.map_or_else(
            || "a segment".to_owned(),
            |told| format!("`{}`", told.segment),
        );
        let outcome = stub
            .outcome
            .map_or("-", operators_kernel::ReceiptOutcome::as_str);
        Ok(anyhow!(
            "receipt `{}` was pruned: its text is among receipts {} to {} in {} (receipt `{}`); \
             what is left of it is its hash, its key `{}` and its outcome, {outcome}",
            shown(id),
            stub.from + 1,
            stub.to,
            shown(&file),
            shown(&stub.by),
            shown(&stub.key)
        ))
    }
}
