//! Trust from another engine: anything that answers a question can stand at the gate.
use std::{collections::BTreeMap, sync::Arc};

use operators::{
    DeterministicExecutor, ExecutionPlan, LiveRules, LoadError, MemoryStore, Policy, PolicyRef,
    Predicate, Registry, Rule, RuleSet, Ruling, RunContext, Seams, Settings, Shared, SystemClock,
    TenantId, TrustDecision, TrustPolicy, TrustQuestion,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LoadError> {
    // Rules from code: a closure where an expression would stand in a file.
    let load = || {
        let tagged = Predicate::code("the order is tagged", |question| {
            question.action.args.contains_key("tag")
        });
        let rule = Rule::new("tagged orders", TrustDecision::Allow).requiring(tagged);
        let policy = Policy::from_rules("in code", 1, vec![rule])?;
        Ok(RuleSet::new(vec![policy], BTreeMap::new())?)
    };
    // `rules.reload()`, on a timer or a signal, puts other rules in force without a restart.
    let rules = Arc::new(LiveRules::start(load)?);
    // Another engine in front of them: both must agree, so the stricter word counts.
    let both = Arc::new(Both(Arc::new(Scores), Arc::clone(&rules) as _));
    let clock = SystemClock::new();
    let seams = Seams {
        durable: Arc::new(MemoryStore::new(Arc::new(clock))),
        connectors: Arc::new(Registry::from_tools([])),
        policy: both,
        clock: Arc::new(clock),
    };
    let executor = DeterministicExecutor::start(seams, Settings::default()).await?;
    let plan = ExecutionPlan::parse(r#"{"reasoning": "nothing to do", "actions": []}"#)?;
    let run = RunContext::new(&clock, TenantId::parse("acme")?);
    assert!(executor.run(&run, &plan).await?.is_empty());
    executor.stop().await?;
    // What the gate says, asked directly.
    for (score, tag) in [(10, true), (10, false), (95, true)] {
        let ruling = ask(&*rules, score, tag)?;
        let both = ask(&Both(Arc::new(Scores), Arc::clone(&rules) as _), score, tag)?;
        let line =
            format!("score {score}, tagged {tag}: {ruling:?} by the rules, {both:?} by both\n");
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes())?;
    }
    Ok(())
}

/// An engine of one's own: here a score that a model gave, in a real program a call into it.
#[derive(Debug)]
struct Scores;
impl TrustPolicy for Scores {
    fn evaluate(&self, question: &TrustQuestion<'_>) -> Ruling {
        // What cannot be judged is closed: no score, no run.
        let Some(score) = question
            .action
            .args
            .get("score")
            .and_then(serde_json::Value::as_u64)
        else {
            return Ruling::closed("there is no score");
        };
        let decision = match score {
            0..50 => TrustDecision::Allow,
            50..90 => TrustDecision::Alert,
            _ => TrustDecision::Block,
        };
        Ruling {
            rule: Some("score".into()),
            policy: Some(Shared::from(PolicyRef {
                name: "scores".to_owned(),
                version: 1,
                digest: "model:2026-11".to_owned(),
            })),
            ..Ruling::of(decision)
        }
    }

    /// No score bounds what is only looked at.
    fn evaluate_read(&self, _question: &TrustQuestion<'_>) -> Ruling {
        Ruling::of(TrustDecision::Allow)
    }
}

/// Two engines that must agree.
#[derive(Debug)]
struct Both(Arc<dyn TrustPolicy>, Arc<dyn TrustPolicy>);
impl TrustPolicy for Both {
    fn evaluate(&self, question: &TrustQuestion<'_>) -> Ruling {
        stricter(self.0.evaluate(question), self.1.evaluate(question))
    }

    fn evaluate_read(&self, question: &TrustQuestion<'_>) -> Ruling {
        stricter(
            self.0.evaluate_read(question),
            self.1.evaluate_read(question),
        )
    }
}

fn stricter(first: Ruling, second: Ruling) -> Ruling {
    match (first.decision, second.decision) {
        (TrustDecision::Block, _) | (TrustDecision::Alert, TrustDecision::Allow) => first,
        _ => second,
    }
}

fn ask(policy: &dyn TrustPolicy, score: u64, tagged: bool) -> Result<TrustDecision, LoadError> {
    let tag = if tagged { r#", "tag": "vip""# } else { "" };
    let action = format!(
        r#"[{{"connector": "shop", "tool": "orders.hold", "args": {{"score": {score}{tag}}},
            "entity_key": "SO-1", "idempotency_key": "SO-1:hold"}}]"#
    );
    let plan = ExecutionPlan::parse(&action)?;
    let action = plan.actions.first().ok_or("one action")?;
    Ok(policy
        .evaluate(&TrustQuestion {
            tenant: &TenantId::parse("acme")?,
            operator: None,
            action,
            event: None,
        })
        .decision)
}
