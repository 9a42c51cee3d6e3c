//! Lost answers, throttling and conflicts: store requests are sent again, nothing happens twice.

use std::time::{Duration, Instant};

use operators_kernel::life::Phase;
use operators_kernel::{
    ClaimAnswer, ContentDigest, Directive, DirectiveAnswer, Order, Reason, StoreError,
};
use operators_tests::conformance::desk::{
    Desk, again, applied, ask, failed, fresh_id, moment, unheard,
};
use operators_tests::crowds::leave_while_waiting;
use operators_tests::proxy::{Fate, Proxy};

use crate::common::{process, table};
use crate::proxy::{forget_tokens, refuse};

const WRITE: &str = "TransactWriteItems";

/// One action whose every write loses its answer once.
async fn an_action_whose_answers_are_lost(desk: &Desk, proxy: &Proxy, name: &str) {
    let claim = ask("order:1", name);
    proxy.next(WRITE, [Fate::LoseAnswer]);
    let attempt = desk.take(&claim).await;
    assert_eq!(attempt.mark.attempt, 1);
    assert_eq!(desk.key(name).await.phase, Phase::Intent);
    proxy.next(WRITE, [Fate::LoseAnswer]);
    let answer = desk.end(&attempt, applied()).await;
    assert_eq!(answer.phase, Phase::Applied);
    assert!(!answer.double_applied);
    proxy.next(WRITE, [Fate::Pass, Fate::LoseAnswer]);
    desk.duplicate(&again(&claim)).await;
}

/// Rule 8.3. The SDK sees a failed condition for its own write; what was written tells whose it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_was_lost_is_known_for_ones_own() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    an_action_whose_answers_are_lost(&desk, &proxy, "k1").await;
    // Even where the server does not know the request again.
    forget_tokens(&proxy);
    an_action_whose_answers_are_lost(&desk, &proxy, "k2").await;
    an_action_whose_answers_are_lost(&desk, &proxy, "k3").await;
    assert_eq!(desk.trail().await.len(), 6, "one receipt each");
    assert_eq!(desk.entity("order:1").await.fence.0, 3);
}

/// Rule 2.7.
#[tokio::test(flavor = "multi_thread")]
async fn callers_that_leave_while_they_wait_at_the_store_send_nothing() {
    let Some((url, _, _proxy)) = table().await else {
        return;
    };
    let (one, other) = (process(&url).await, process(&url).await);
    leave_while_waiting(one.store, other.store, 40).await;
}

/// Rule 2.6: a place that nobody knows of would hold up everybody behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_in_the_queue_whose_answer_was_lost_is_found_again() {
    let Some((url, proxied, proxy)) = table().await else {
        return;
    };
    let (holder, desk) = (process(&url).await, process(&proxied).await);
    forget_tokens(&proxy);
    let held = holder.take(&ask("order:1", "k1")).await;
    let mut claim = ask("order:1", "k2");
    // Refused, then queued with a lost answer, then asked again until patience is out.
    proxy.rule(|operation| match operation {
        WRITE => Fate::LoseAnswer,
        _ => Fate::Pass,
    });
    let lost = desk.try_ask(&claim).await;
    assert!(
        matches!(lost, Err(StoreError::Unavailable { .. })),
        "{lost:?}"
    );
    proxy.rule(|_| Fate::Pass);
    claim.ticket = Some(desk.queue(&claim).await);
    assert_eq!(
        claim.ticket.map(|ticket| ticket.0),
        Some(1),
        "its old place"
    );
    holder.end(&held, applied()).await;
    let attempt = desk.take(&claim).await;
    desk.end(&attempt, applied()).await;
    holder.run(&ask("order:1", "k3"), applied()).await;
}

/// Rule 8.3: credentials that end between the two say nothing about the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_may_have_landed_is_not_given_up_because_the_next_was_refused() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    let claim = ask("order:1", "k1");
    let refused = || refuse(400, "AccessDeniedException");
    let mut is_sent = false;
    proxy.rule(move |operation| match operation {
        WRITE if !is_sent => {
            is_sent = true;
            Fate::LoseAnswer
        }
        WRITE | "GetItem" if is_sent => refused(),
        _ => Fate::Pass,
    });
    let lost = desk.try_ask(&claim).await.expect_err("no answer");
    assert!(lost.is_retryable(), "{lost}");
    proxy.rule(|_| Fate::Pass);
    let attempt = desk.take(&unheard(&claim)).await;
    assert_eq!(attempt.mark.attempt, 1, "found, not made again");
    desk.end(&attempt, applied()).await;
    // Where it can be looked for, it is found at once.
    proxy.next(WRITE, [Fate::LoseAnswer, refused()]);
    let attempt = desk.take(&ask("order:3", "k3")).await;
    desk.end(&attempt, applied()).await;
    // Where nothing can have landed it is said at once.
    proxy.next(WRITE, [refused()]);
    let lost = desk.try_ask(&ask("order:2", "k2")).await;
    assert!(!lost.expect_err("refused").is_retryable());
}

/// Rules 8.2, 8.3: what may have landed is found when the store answers again.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_store_is_unavailable_and_then_tells_what_it_has() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    let claim = ask("order:1", "k1");
    proxy.rule(|_| Fate::LoseAnswer);
    let lost = desk.try_ask(&claim).await.expect_err("no answer");
    assert!(lost.is_retryable(), "{lost}");
    proxy.rule(|_| Fate::Pass);
    let attempt = desk.take(&claim).await;
    assert_eq!(attempt.mark.attempt, 1, "found, not made again");
    desk.end(&attempt, failed()).await;
    assert_eq!(desk.key("k1").await.phase, Phase::Failed);
}

/// Rules 5.1, 8.3. A claim whose request is stuck on its way is asked about again and refused, and
/// only then arrives: it was granted under the receipt of its refusal, and held its entity for as long
/// as its process ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_arrives_after_it_was_refused_is_not_granted() {
    let Some((url, proxied, proxy)) = table().await else {
        return;
    };
    let (other, stuck) = (process(&url).await, process(&proxied).await);
    let claim = ask("order:1", "k1");
    let arrives_after = Duration::from_secs(9);
    let mut first = true;
    proxy.rule(move |operation| match operation {
        WRITE if std::mem::take(&mut first) => Fate::Delay(arrives_after),
        WRITE => Fate::LoseRequest,
        _ => Fate::Pass,
    });
    let asked = Instant::now();
    let lost = stuck.try_ask(&claim).await.expect_err("no answer");
    assert!(lost.is_retryable(), "{lost}");
    proxy.rule(|_| Fate::Pass);
    direct(&other, Order::Pause(None)).await;
    stuck.refused_as(Reason::Paused, &unheard(&claim)).await;
    assert!(asked.elapsed() < arrives_after, "too slow to be a test");
    direct(&other, Order::Resume(None)).await;
    tokio::time::sleep((arrives_after + Duration::from_secs(1)).saturating_sub(asked.elapsed()))
        .await;
    assert_eq!(other.find("k1").await.map(|found| found.phase), None);
    assert_eq!(other.entity("order:1").await.holder, None);
    other.run(&ask("order:1", "k2"), applied()).await;
}

/// Has a desk do what a person orders.
async fn direct(desk: &Desk, order: Order) {
    let directive = Directive {
        order,
        by: "ada".into(),
        note: None,
        receipt_id: fresh_id(),
        at: moment(),
    };
    let done = desk.store.direct(&desk.tenant, directive).await;
    assert_eq!(done, Ok(DirectiveAnswer::Done));
}

/// F20: throttling, conflicts and failures inside the service are the store's affair.
#[tokio::test(flavor = "multi_thread")]
async fn throttled_and_conflicting_requests_are_sent_again() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    let troubles = [
        (400, "ProvisionedThroughputExceededException"),
        (400, "ThrottlingException"),
        (400, "RequestLimitExceeded"),
        (400, "TransactionConflict"),
        (400, "TransactionInProgressException"),
        (500, "InternalServerError"),
        (503, "ServiceUnavailable"),
    ];
    for (number, (status, error)) in troubles.into_iter().enumerate() {
        let mut left = 2;
        proxy.rule(move |_| {
            left -= 1;
            if left >= 0 {
                refuse(status, error)
            } else {
                Fate::Pass
            }
        });
        let name = format!("k{number}");
        let attempt = desk.run(&ask("order:1", &name), applied()).await;
        assert_eq!(attempt.mark.attempt, 1, "{error}");
    }
    assert_eq!(desk.trail().await.len(), troubles.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_is_no_reason_to_try_again() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    proxy.rule(|_| refuse(400, "AccessDeniedException"));
    proxy.take();
    let refused = desk
        .try_ask(&ask("order:1", "k1"))
        .await
        .expect_err("refused");
    assert!(matches!(&refused, StoreError::Unusable { .. }), "{refused}");
    assert!(refused.to_string().contains("AccessDenied"), "{refused}");
    assert_eq!(proxy.take().len(), 1);
}

/// A storm of every mishap: each key is claimed once, settled once, and has one receipt.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_mishaps_makes_nothing_happen_twice() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    forget_tokens(&proxy);
    let mut seed: u32 = 20_260_101;
    proxy.rule(move |_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match (seed >> 16) % 20 {
            0..3 => Fate::LoseAnswer,
            3..5 => Fate::LoseRequest,
            5 => refuse(400, "ThrottlingException"),
            6 => refuse(400, "TransactionConflict"),
            _ => Fate::Pass,
        }
    });
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..40 {
        let desk = desk.clone();
        callers.spawn(async move {
            let claim = ask(&format!("order:{}", number % 7), &format!("k{number}"));
            let attempt = claimed(&desk, claim).await;
            loop {
                let settled = desk.store.settle(&desk.tenant, vec![attempt.clone()]).await;
                match settled {
                    Ok(answers) => break assert_eq!(answers[0].phase, Phase::Applied),
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done.expect("no caller panics");
    }
    proxy.rule(|_| Fate::Pass);
    let trail = desk.trail().await;
    assert_eq!(trail.len(), 40, "one receipt each");
    for number in 0..40 {
        let key = desk.key(&format!("k{number}")).await;
        assert_eq!((key.phase, key.attempt), (Phase::Applied, 1));
    }
    for number in 0..7 {
        let entity = desk.entity(&format!("order:{number}")).await;
        assert_eq!(entity.holder, None);
        desk.run(
            &ask(&format!("order:{number}"), &format!("last{number}")),
            applied(),
        )
        .await;
    }
}

async fn claimed(desk: &Desk, mut claim: operators_kernel::Claim) -> operators_kernel::Settlement {
    loop {
        match desk.try_ask(&claim).await {
            Ok(ClaimAnswer::Claimed(mark)) => {
                return operators_kernel::Settlement {
                    session: desk.session,
                    mark,
                    proposal: desk.filled(&claim).proposal,
                    outcome: applied(),
                    result_digest: Some(ContentDigest::of(b"")),
                    at: claim.at,
                };
            }
            Ok(ClaimAnswer::Wait(ticket)) => {
                claim.ticket = Some(ticket);
                let (tenant, entity) = (&desk.tenant, &claim.proposal.entity_key);
                desk.store.wait(tenant, entity, ticket, 1).await;
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}
