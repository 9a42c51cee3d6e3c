//! Statements in the store's own database: run with the burn, or not at all. Rules 12.1 to 12.6.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{
    Claim, ConnectorError, Effect, EffectClass, InvokeOutcome, Limit, Performance, Performed,
    PolicyRef, Rows, SettledOutcome, Shared, Statement, StoreError, Work,
};
use serde_json::{Value, json};

use super::desk::{Desk, LONG, again, ask_as, ask_brief, failed, moment};
use crate::stores::Bench;

const DEBIT: &str = "UPDATE accounts SET balance = balance - $1 WHERE name = $2";

/// A statement whose answer is what it did, and which wants one row.
#[derive(Debug)]
struct Job(Statement);

impl Work for Job {
    fn statement(&self) -> &Statement {
        &self.0
    }

    fn outcome(&self, ran: Result<Rows, String>) -> InvokeOutcome {
        match ran {
            Ok(rows) if rows.affected == 1 => InvokeOutcome::Applied(Effect::of(
                json!({"rows_affected": rows.affected, "rows": rows.rows}),
            )),
            Ok(rows) => {
                let said = format!("{} rows, not one", rows.affected);
                InvokeOutcome::NotApplied(ConnectorError::new(said))
            }
            Err(said) => InvokeOutcome::NotApplied(ConnectorError::new(said)),
        }
    }
}

/// A desk in a bank that keeps its accounts beside the store.
struct Bank<'a> {
    bench: &'a dyn Bench,
    desk: Desk,
}

impl<'a> Bank<'a> {
    /// Opens one with an account of 100; `None` where a store holds no tables of others, and then
    /// it says so.
    async fn open(bench: &'a dyn Bench) -> Option<Self> {
        let desk = Desk::open(bench).await;
        let made = bench
            .by_hand(
                "CREATE TABLE accounts (name TEXT PRIMARY KEY, \
                 balance INTEGER NOT NULL CHECK (balance >= 0))",
            )
            .await;
        if made.is_none() {
            refuses(&desk).await;
            return None;
        }
        let opened = "INSERT INTO accounts VALUES ('ada', 100)";
        bench.by_hand(opened).await.expect("a table");
        Some(Self { bench, desk })
    }

    async fn balance(&self) -> String {
        let asked = "SELECT CAST(balance AS TEXT) FROM accounts WHERE name = 'ada'";
        let found = self.bench.by_hand(asked).await.expect("a table");
        found.first().expect("an account").clone()
    }

    async fn perform(&self, performance: &Performance) -> Performed {
        performed(&self.desk, performance).await
    }
}

async fn refuses(desk: &Desk) {
    assert!(!desk.store.performs());
    let performance = taken(desk, &debit(1), DEBIT, json!([1, "ada"])).await;
    let refused = desk.store.perform(&desk.tenant, performance).await;
    assert!(
        matches!(refused, Err(StoreError::Unusable { .. })),
        "{refused:?}"
    );
}

fn debit(n: u32) -> Claim {
    ask_as(EffectClass::Transactional, "account:ada", &format!("k{n}"))
}

/// Claims what must be granted; what the store is to run for it.
pub async fn taken(desk: &Desk, claim: &Claim, text: &str, values: Value) -> Performance {
    let attempt = desk.take(claim).await;
    Performance {
        session: attempt.session,
        mark: attempt.mark,
        proposal: attempt.proposal,
        work: job(text, values, Duration::from_secs(5)),
        at: moment(),
    }
}

/// What runs that statement with those values, and wants one row.
pub fn job(text: &str, values: Value, deadline: Duration) -> Arc<dyn Work> {
    let Value::Array(values) = values else {
        panic!("values are an array")
    };
    Arc::new(Job(Statement {
        text: text.to_owned(),
        values,
        reads: false,
        returns: text.contains("RETURNING"),
        deadline,
    }))
}

/// Has the store perform what it must be able to.
pub async fn performed(desk: &Desk, performance: &Performance) -> Performed {
    let performed = desk.store.perform(&desk.tenant, performance.clone()).await;
    performed.expect("the store performs")
}

/// Why it was not applied.
pub fn error_of(performed: &Performed) -> &str {
    match &performed.outcome {
        SettledOutcome::NotApplied { error } => error,
        other => panic!("not refused: {other:?}"),
    }
}

/// Rules 12.1, 12.2: the row, the burn and the receipt are there together, and a second call finds
/// them.
pub async fn a_statement_its_burn_and_its_receipt_are_one_write(bench: &dyn Bench) {
    let Some(bank) = Bank::open(bench).await else {
        return;
    };
    let text = format!("{DEBIT} RETURNING name, balance");
    let performance = taken(&bank.desk, &debit(1), &text, json!([30, "ada"])).await;
    let first = bank.perform(&performance).await;
    assert_eq!(first.answer.phase, Phase::Applied);
    let SettledOutcome::Applied(effect) = &first.outcome else {
        panic!("{first:?}")
    };
    assert_eq!(effect.result["rows"][0]["balance"], 70);
    assert_eq!(bank.balance().await, "70");
    assert_eq!(bank.perform(&performance).await, first);
    assert_eq!(bank.balance().await, "70");
    let receipt = bank.desk.receipt(&performance.proposal.receipt_id).await;
    assert!(receipt.result_digest.is_some(), "{receipt:?}");
    let original = bank.desk.duplicate(&again(&debit(1))).await;
    assert_eq!(original.result, effect.result);
    assert_eq!(bank.desk.entity("account:ada").await.holder, None);
    assert_eq!(bank.balance().await, "70");
}

/// Rule 12.3: what the database or the tool refuses is undone alone; the key is free and the receipt
/// says why.
pub async fn a_refused_statement_is_undone_and_settled(bench: &dyn Bench) {
    let Some(bank) = Bank::open(bench).await else {
        return;
    };
    let refused = [
        (DEBIT, json!([300, "ada"]), "constraint"),
        (DEBIT, json!([1, "nobody"]), "0 rows, not one"),
        (
            "INSERT INTO accounts SELECT name || $1, balance FROM accounts UNION ALL \
             SELECT name || $2, balance FROM accounts",
            json!(["-1", "-2"]),
            "2 rows, not one",
        ),
        ("UPDATE nowhere SET a = $1", json!([1]), "nowhere"),
    ];
    for (text, values, wanted) in refused {
        let performance = taken(&bank.desk, &again(&debit(1)), text, values).await;
        let refused = bank.perform(&performance).await;
        assert!(error_of(&refused).contains(wanted), "{refused:?}");
        assert_eq!(refused.answer.phase, Phase::Failed);
        assert_eq!(bank.perform(&performance).await.outcome, refused.outcome);
        let receipt = bank.desk.receipt(&performance.proposal.receipt_id).await;
        assert_eq!(receipt.error.as_deref(), Some(error_of(&refused)));
        assert_eq!(bank.balance().await, "100");
    }
    let all = "SELECT name FROM accounts";
    assert_eq!(bench.by_hand(all).await.expect("rows"), ["ada"]);
    let performance = taken(&bank.desk, &again(&debit(1)), DEBIT, json!([1, "ada"])).await;
    assert_eq!(
        bank.perform(&performance).await.answer.phase,
        Phase::Applied
    );
    assert_eq!(bank.balance().await, "99");
}

/// Rule 12.3: what a table leaves to be checked at the commit counts too, and takes nobody else's
/// settlement with it.
pub async fn a_constraint_checked_at_the_commit_undoes_the_statement(bench: &dyn Bench) {
    let Some(bank) = Bank::open(bench).await else {
        return;
    };
    let table = "CREATE TABLE entries (name TEXT REFERENCES accounts (name) \
                 DEFERRABLE INITIALLY DEFERRED)";
    bench.by_hand(table).await.expect("a table");
    let text = "INSERT INTO entries VALUES ($1)";
    let performance = taken(&bank.desk, &debit(1), text, json!(["nobody"])).await;
    let refused = bank.perform(&performance).await;
    assert!(
        error_of(&refused).to_lowercase().contains("foreign key"),
        "{refused:?}"
    );
    assert_eq!(refused.answer.phase, Phase::Failed);
    let found = bench.by_hand("SELECT name FROM entries").await;
    assert!(found.expect("rows").is_empty());
    let performance = taken(&bank.desk, &again(&debit(1)), text, json!(["ada"])).await;
    assert_eq!(
        bank.perform(&performance).await.answer.phase,
        Phase::Applied
    );
}

/// Rules 12.2, 12.4: once its session is buried an attempt is known not to have happened, nothing
/// of it runs any more, and the next attempt may.
pub async fn a_buried_sessions_statement_never_runs(bench: &dyn Bench) {
    let Some(bank) = Bank::open(bench).await else {
        return;
    };
    let frozen = Desk::lasting(bench, LONG).await;
    let performance = taken(&frozen, &debit(1), DEBIT, json!([30, "ada"])).await;
    frozen.close().await;
    let key = bank.desk.key("k1").await;
    assert_eq!(key.phase, Phase::Failed, "{key:?}");
    assert!(key.open_attempts.is_empty());
    let entity = bank.desk.entity("account:ada").await;
    assert_eq!((entity.holder, entity.doubt), (None, None));
    let receipt = bank.desk.receipt(&performance.proposal.receipt_id).await;
    let said = receipt.error.clone().expect("why");
    assert!(said.contains("nothing happened"), "{said}");
    let late = performed(&frozen, &performance).await;
    assert_eq!(error_of(&late), said);
    assert_eq!(bank.balance().await, "100");
    let next = taken(&bank.desk, &again(&debit(1)), DEBIT, json!([30, "ada"])).await;
    assert_eq!(next.mark.attempt, 2);
    let late = performed(&frozen, &performance).await;
    assert_eq!(error_of(&late), said);
    assert_eq!(bank.balance().await, "100");
    assert_eq!(bank.perform(&next).await.answer.phase, Phase::Applied);
    let late = performed(&frozen, &performance).await;
    assert_eq!(error_of(&late), said);
    assert_eq!(bank.balance().await, "70");
}

/// Rule 12.2: of another's turn, attempt or fence nothing runs.
pub async fn a_statement_runs_only_under_its_own_turn(bench: &dyn Bench) {
    let Some(bank) = Bank::open(bench).await else {
        return;
    };
    let right = taken(&bank.desk, &debit(1), DEBIT, json!([30, "ada"])).await;
    let other = Desk::open(bench).await;
    let mut wrong = right.clone();
    wrong.session = other.session;
    let refused = performed(&other, &wrong).await;
    assert!(error_of(&refused).contains("turn"), "{refused:?}");
    assert_eq!(bank.balance().await, "100");
    // It was settled by that; the right one comes too late.
    assert!(error_of(&bank.perform(&right).await).contains("turn"));
    let right = taken(&bank.desk, &again(&debit(1)), DEBIT, json!([30, "ada"])).await;
    let mut wrong = right.clone();
    wrong.mark.attempt = 1;
    performed(&bank.desk, &wrong).await;
    let mut wrong = right.clone();
    wrong.proposal.receipt_id = "rc_another".into();
    performed(&bank.desk, &wrong).await;
    assert_eq!(bank.balance().await, "100");
    assert_eq!(bank.desk.key("k1").await.phase, Phase::Intent);
    assert_eq!(bank.perform(&right).await.answer.phase, Phase::Applied);
    assert_eq!(bank.balance().await, "70");
}

/// Rule 12.2: the deadline that was written with the intent counts, however long the store was away.
pub async fn a_statement_whose_deadline_has_passed_is_not_run(bench: &dyn Bench) {
    let Some(bank) = Bank::open(bench).await else {
        return;
    };
    let brief = ask_brief(bench, EffectClass::Transactional, "account:ada", "k1");
    let performance = taken(&bank.desk, &brief, DEBIT, json!([30, "ada"])).await;
    bench.wait(bench.unit() * 2).await;
    let refused = bank.perform(&performance).await;
    assert!(error_of(&refused).contains("deadline"), "{refused:?}");
    assert_eq!(bank.balance().await, "100");
    assert_eq!(bank.desk.key("k1").await.phase, Phase::Failed);
}

/// Rule 12.5: a statement that runs on is stopped, and the store goes on.
pub async fn a_statement_that_does_not_end_is_stopped(bench: &dyn Bench) {
    let Some(bank) = Bank::open(bench).await else {
        return;
    };
    let endless = "INSERT INTO accounts WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL \
        SELECT i + 1 FROM n) SELECT 'x', max(i) FROM n";
    let mut performance = taken(&bank.desk, &debit(1), endless, json!([])).await;
    performance.work = job(endless, json!([]), Duration::from_millis(100));
    let stopped = bank.perform(&performance).await;
    let said = error_of(&stopped);
    assert!(
        said.contains("did not end") || said.contains("statement timeout"),
        "{said}"
    );
    assert_eq!(stopped.answer.phase, Phase::Failed);
    let performance = taken(&bank.desk, &again(&debit(1)), DEBIT, json!([1, "ada"])).await;
    assert_eq!(
        bank.perform(&performance).await.answer.phase,
        Phase::Applied
    );
    assert_eq!(bank.balance().await, "99");
}

/// Rule 12.5: the tables of the store are not to be had, and a burned key is not to be unburned.
pub async fn a_statement_cannot_touch_the_stores_own_tables(bench: &dyn Bench) {
    let Some(bank) = Bank::open(bench).await else {
        return;
    };
    let burned = taken(&bank.desk, &debit(1), DEBIT, json!([1, "ada"])).await;
    bank.perform(&burned).await;
    for text in [
        "DELETE FROM key WHERE idempotency_key = 'k1'",
        "UPDATE key SET phase = 'failed' WHERE idempotency_key = 'k1'",
        "INSERT INTO accounts SELECT idempotency_key, 1 FROM key LIMIT 1",
        "INSERT INTO tenant VALUES ('t', 'x')",
        "PRAGMA user_version = 0",
        "CREATE TABLE mine (a)",
        "COMMIT",
        "ATTACH ':memory:' AS other",
    ] {
        let performance = taken(&bank.desk, &again(&debit(2)), text, json!([])).await;
        let refused = bank.perform(&performance).await;
        assert_eq!(refused.answer.phase, Phase::Failed, "{text}: {refused:?}");
        assert_eq!(bank.desk.key("k1").await.phase, Phase::Applied, "{text}");
    }
    assert_eq!(bank.desk.key("k2").await.phase, Phase::Failed);
}

/// Rules 12.4, 9.2: what is known not to have happened gives its slot of a limit back.
pub async fn a_dead_owners_slot_is_given_back(bench: &dyn Bench) {
    let Some(bank) = Bank::open(bench).await else {
        return;
    };
    let limited = |mut claim: Claim| {
        claim.limits = vec![Limit {
            rule: "few".into(),
            policy: Shared::from(PolicyRef {
                name: "p".to_owned(),
                version: 1,
                digest: "sha256:00".to_owned(),
            }),
            scope: "s".to_owned(),
            max: 1,
            window: LONG,
        }];
        claim
    };
    let frozen = Desk::lasting(bench, LONG).await;
    taken(&frozen, &limited(debit(1)), DEBIT, json!([30, "ada"])).await;
    frozen.close().await;
    let next = taken(&bank.desk, &limited(debit(2)), DEBIT, json!([30, "ada"])).await;
    assert_eq!(bank.perform(&next).await.answer.phase, Phase::Applied);
    // An ordinary end of such an attempt is an end like any other.
    let claim = ask_as(EffectClass::Transactional, "account:bob", "k3");
    let attempt = bank.desk.take(&claim).await;
    bank.desk.end(&attempt, failed()).await;
    assert_eq!(bank.desk.key("k3").await.phase, Phase::Failed);
}
