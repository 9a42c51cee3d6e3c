//! Desks on any address, and the work most tests do at them.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::{
    Claim, ClaimAnswer, ContentDigest, DurableExec, SettledOutcome, Settlement, StoreError,
};
use operators_seams::PgStore;
use operators_tests::conformance::desk::{Desk, LONG, applied, moment};
use operators_tests::fixtures::tenant;
use operators_tests::postgres::{Database, url};

/// A desk on a store of its own, as another process would have.
pub async fn desk(url: &str) -> Desk {
    desk_lasting(url, LONG).await
}

/// As [`desk`], with that lease.
pub async fn desk_lasting(url: &str, lease: Duration) -> Desk {
    let store = PgStore::connect(url).await.expect("connects");
    let session = store.open_session("test", lease).await.expect("a session");
    Desk {
        store: Arc::new(store),
        session,
        tenant: tenant(),
    }
}

/// A fresh database on the shared server, if there is one.
pub async fn database() -> Option<Database> {
    Some(Database::fresh(url()?).await)
}

/// The settlement of a granted claim.
pub fn settlement(desk: &Desk, claim: &Claim, answer: &ClaimAnswer) -> Option<Settlement> {
    let ClaimAnswer::Claimed(mark) = answer else {
        return None;
    };
    Some(Settlement {
        session: desk.session,
        mark: mark.clone(),
        proposal: desk.filled(claim).proposal,
        outcome: applied(),
        result_digest: Some(ContentDigest::of(b"")),
        at: moment(),
    })
}

/// What came of driving one claim to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was granted, and settled.
    Ran,
    /// It was applied before.
    Duplicate,
}

/// Drives one claim to its end as the kernel would: waits its turn, and asks again whatever may
/// succeed later.
pub async fn drive(desk: &Desk, claim: &Claim) -> Result<End, StoreError> {
    let mut claim = desk.filled(claim);
    let mut asked = 0;
    loop {
        let answer = desk.store.claim(&desk.tenant, vec![claim.clone()]).await;
        match answer.map(|mut answers| answers.remove(0)) {
            Ok(ClaimAnswer::Wait(ticket)) => {
                claim.ticket = Some(ticket);
                let entity = &claim.proposal.entity_key;
                desk.store.wait(&desk.tenant, entity, ticket, asked).await;
                asked += 1;
            }
            Ok(ClaimAnswer::Duplicate { .. }) => return Ok(End::Duplicate),
            Ok(answer) => {
                let settlement = settlement(desk, &claim, &answer);
                let settlement = settlement.unwrap_or_else(|| panic!("not granted: {answer:?}"));
                return settle(desk, settlement).await.map(|()| End::Ran);
            }
            Err(error) if error.is_retryable() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Settles until it is done.
pub async fn settle(desk: &Desk, settlement: Settlement) -> Result<(), StoreError> {
    assert!(matches!(settlement.outcome, SettledOutcome::Applied(_)));
    loop {
        match desk
            .store
            .settle(&desk.tenant, vec![settlement.clone()])
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) if error.is_retryable() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error),
        }
    }
}
