//! What one ruling costs: a set of 100 rules, and the same with ever more rules for other tools.
//!
//! Measured on one thread, in turn, beside the memory store's whole action by one caller: the ratio
//! is what an executor spends on trust.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use operators_kernel::{
    ExecutionPlan, PlannedAction, TenantId, TrustDecision, TrustPolicy as _, TrustQuestion,
};
use operators_policies::{Policy, RuleSet};
use operators_seams::{MemoryStore, SystemClock};
use serde::Serialize;

use crate::options::Options;
use crate::ours;

/// Rules for other tools beside the 100.
const OTHERS: [usize; 4] = [0, 100, 1_000, 10_000];

/// How many of the 100 speak of the action's tool; the others are for tools beside it.
const FOR_THIS_TOOL: usize = 10;

/// Rulings in one stretch of time.
const RULINGS: u32 = 20_000;

/// One size of a rule set.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Ruled {
    /// All rules of the set.
    pub(crate) rules: usize,
    /// Those that speak of the action's tool.
    pub(crate) matching: usize,
    /// Of one ruling, in microseconds.
    pub(crate) micros: f64,
}

/// What rulings cost, beside what they are part of.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Policies {
    pub(crate) ruled: Vec<Ruled>,
    /// One action of one caller on the memory store, in microseconds.
    pub(crate) action_micros: f64,
}

/// Measures every size in each round, so that the machine's moods hit all alike.
pub(crate) async fn measure(options: &Options) -> Result<Policies> {
    let tenant = TenantId::parse("acme")?;
    let action = action()?;
    let mut sets = Vec::new();
    for others in OTHERS {
        sets.push((100 + others, FOR_THIS_TOOL, set(FOR_THIS_TOOL, others)?));
    }
    sets.push((100, 100, set(100, 0)?));
    let mut taken: Vec<Vec<f64>> = vec![Vec::new(); sets.len()];
    let mut actions = Vec::new();
    for round in 0..options.repeats() {
        crate::say(&format!("policies, round {}", round + 1));
        for ((_, _, set), taken) in sets.iter().zip(&mut taken) {
            let question = TrustQuestion {
                tenant: &tenant,
                operator: None,
                action: &action,
                event: None,
            };
            ensure!(set.evaluate(&question).decision == TrustDecision::Allow);
            let begun = Instant::now();
            for _ in 0..RULINGS {
                black_box(set.evaluate(black_box(&question)));
            }
            taken.push(begun.elapsed().as_secs_f64() * 1e6 / f64::from(RULINGS));
        }
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
        let cell = ours::measure(store, options.bounds(1)).await?;
        actions.push(1e6 / cell.new.per_second);
    }
    let ruled = sets.iter().zip(&mut taken);
    Ok(Policies {
        ruled: ruled
            .map(|((rules, matching, _), taken)| Ruled {
                rules: *rules,
                matching: *matching,
                micros: crate::median(taken),
            })
            .collect(),
        action_micros: crate::median(&mut actions),
    })
}

fn action() -> Result<PlannedAction> {
    let plan = ExecutionPlan::parse(
        r#"[{"connector": "shop", "tool": "orders.hold", "value": 180,
             "args": {"order": "SO-1", "reason": "ship-risk-review", "items": [{"n": 1}, {"n": 2}]},
             "entity_key": "order:SO-1", "idempotency_key": "order:SO-1:hold"}]"#,
    )?;
    let action = plan.actions.into_iter().next();
    action.ok_or_else(|| anyhow!("one action was written"))
}

/// 100 rules, so many of them for the action's tool, and `others` for tools that nobody calls.
/// Every rule has a ceiling and asks a question.
fn set(matching: usize, others: usize) -> Result<RuleSet> {
    let rule = |name: String, tool: String| {
        format!(
            "[[rule]]\nname = '{name}'\nconnector = 'shop'\ntool = '{tool}'\ndecision = 'ALLOW'\n\
             max_value = 500\nif = 'value <= 250'\nrequire = 'args.reason == \"ship-risk-review\"'\n"
        )
    };
    let mut files = Vec::new();
    let mut rules: Vec<String> = (0..100)
        .map(|n| {
            let tool = if n < matching {
                "orders.hold".to_owned()
            } else {
                format!("orders.beside{n}")
            };
            rule(format!("r{n}"), tool)
        })
        .collect();
    rules.extend((0..others).map(|n| rule(format!("o{n}"), format!("other.tool{n}"))));
    // A file holds at most 1 MiB.
    for (number, rules) in rules.chunks(2_000).enumerate() {
        let text = format!("policy = 'p{number}'\nversion = 1\n{}", rules.concat());
        files.push(Policy::parse(Path::new("benchmark.toml"), text.as_bytes())?);
    }
    Ok(RuleSet::new(files, BTreeMap::new())?)
}
