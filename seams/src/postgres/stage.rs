//! Where statements of others run: in the transaction that locks, decides and writes a settlement.
//!
//! Owns what surrounds such a statement. The rows of the key and its entity are locked before it
//! runs and until the commit, so nobody can bury the session, take the turn or burn the key in
//! between: the check before the statement is the check at the commit.

use std::sync::Arc;

use operators_kernel::{Performance, Performed, SettledOutcome, Settlement, TenantId};
use operators_sql::Failure;

use super::ledger::find_receipt;
use super::lines::{IfBroken, Line, Lines, Tries};
use super::pages::{Around, load, page_of, recall, sorted, write};
use super::rows::Written;
use super::trouble::Trouble;
use crate::book::{self, BookError, Staged};
use crate::page::{Page, Want};

/// Before the statement. It may wait for locks of others as long as it may run, and to it the
/// tables of the store show nothing and take nothing (see the policies of the schema).
const ENTER: &str = "SAVEPOINT work; SET LOCAL operators.scope = ''; SET LOCAL lock_timeout = 0; \
    SET LOCAL statement_timeout = ";

/// After a statement that is kept: what it left to be checked at the commit is checked here, where
/// it can still be undone alone.
const CHECK: &str = "SET CONSTRAINTS ALL IMMEDIATE";
const KEEP: &str = "RELEASE SAVEPOINT work; SET LOCAL operators.scope = 'store'; \
    SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '5s'";

/// After a statement that is not kept: takes back what it did, and what `ENTER` set.
const UNDO: &str = "ROLLBACK TO SAVEPOINT work; RELEASE SAVEPOINT work";

/// Runs the statement, settles by what it came to, and commits both; or finds that it was done.
pub(super) async fn perform(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    performance: &Performance,
) -> Result<Performed, Trouble> {
    // Asked twice, the second finds what the first did.
    let mut tries = Tries::new(IfBroken::AskAgain);
    loop {
        let mut line = lines.take().await?;
        match perform_on(&mut line, lines, tenant, performance).await {
            Ok(performed) => {
                line.give_back();
                return Ok(performed);
            }
            Err(trouble) => tries.consider(trouble, &line).await?,
        }
    }
}

async fn perform_on(
    line: &mut Line,
    lines: &Lines,
    tenant: &TenantId,
    performance: &Performance,
) -> Result<Performed, Trouble> {
    let around = Around::performing(tenant, performance);
    let loaded = load(line, lines, &around).await?;
    let mut page = page_of(loaded, &around);
    let staged = match book::stage(&mut page, tenant, performance) {
        Err(BookError::Records(Want::Receipt(receipt_id))) => {
            let found = find_receipt(line, tenant, &receipt_id).await?;
            page.load_receipt(receipt_id, found);
            book::stage(&mut page, tenant, performance)
        }
        staged => staged,
    };
    let settlement = match staged.map_err(sorted)? {
        Staged::Told(performed) => {
            write(line, lines, &Written::default()).await?;
            return Ok(*performed);
        }
        Staged::Refuse(error) => performance.not_run(error),
        Staged::Run => run(line, performance).await?,
    };
    let answer = settle(line, &mut page, tenant, &settlement).await?;
    write(line, lines, &Written::of(&mut page)?).await?;
    Ok(Performed {
        outcome: settlement.outcome,
        answer,
    })
}

async fn settle(
    line: &mut Line,
    page: &mut Page,
    tenant: &TenantId,
    settlement: &Settlement,
) -> Result<operators_kernel::SettleAnswer, Trouble> {
    loop {
        match book::settle(page, tenant, settlement) {
            // Nothing was changed by then.
            Err(BookError::Records(Want::Note(name))) => recall(line, page, tenant, name).await?,
            settled => return settled.map_err(sorted),
        }
    }
}

/// The settlement that follows from the statement, which is undone unless it says `Applied`.
async fn run(line: &mut Line, performance: &Performance) -> Result<Settlement, Trouble> {
    let statement = performance.work.statement();
    let millis = statement.deadline.as_millis().max(1);
    line.rows(format!("{ENTER}{millis}")).await?;
    let mut ran = line.execute(statement).await;
    if ran.is_ok()
        && let Err(failure) = line.check(CHECK).await
    {
        ran = Err(failure);
    }
    let ran = match ran {
        Ok(rows) => Ok(rows),
        Err(Failure::Refused(said)) => Err(said),
        Err(Failure::Broken(said)) => return Err(Trouble::Broken(said)),
    };
    let settlement = performance.settlement(ran);
    let ending = match settlement.outcome {
        SettledOutcome::Applied(_) => KEEP,
        SettledOutcome::NotApplied { .. } | SettledOutcome::Unknown { .. } => UNDO,
    };
    line.rows(ending.to_owned()).await?;
    Ok(settlement)
}
