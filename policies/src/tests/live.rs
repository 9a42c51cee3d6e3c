//! Replacing the rules under a running executor: whole, or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use operators_kernel::TrustDecision::{Allow, Block};
use operators_kernel::TrustPolicy as _;

use super::{HOLD, with_question};
use crate::{LiveRules, Reloaded, RuleSet};

/// A policy in which two rules always agree: a mixture would be told by its decision.
fn text(version: u64, decision: &str) -> String {
    format!(
        "policy = 'p'\nversion = {version}\n[[rule]]\nname = 'v{version}'\ndecision = '{decision}'\n"
    )
}

#[test]
fn rules_are_replaced_as_a_whole_and_a_bad_file_keeps_the_old_ones() {
    // rule 6.12
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("p.toml");
    fs::write(&file, text(1, "ALLOW")).expect("writes");
    let loaded = file.clone();
    let live = LiveRules::start(move || {
        Ok(RuleSet::load(
            std::slice::from_ref(&loaded),
            BTreeMap::new(),
        )?)
    })
    .expect("loads");
    let rules = |live: &LiveRules| {
        let ruling = with_question(HOLD, |question| live.evaluate(question));
        let policy = ruling.policy.expect("cited");
        (
            ruling.decision,
            ruling.rule.expect("cited"),
            policy.version,
            policy.digest.clone(),
        )
    };
    let (decision, rule, version, digest) = rules(&live);
    assert_eq!((decision, &*rule, version), (Allow, "v1", 1));
    assert_eq!(live.reload().expect("loads"), Reloaded::Same);

    for bad in [
        "",
        "policy = 'p'",
        "policy = 'p'\nversion = 2\n[[rule]]\nname='r'\ndecision='allow'",
    ] {
        fs::write(&file, bad).expect("writes");
        let error = live.reload().expect_err("does not load").to_string();
        assert!(error.contains("p.toml"), "{error}");
        assert_eq!(rules(&live), (Allow, "v1".into(), 1, digest.clone()));
    }
    fs::remove_file(&file).expect("there");
    assert!(live.reload().is_err());
    assert_eq!(rules(&live).2, 1);

    fs::write(&file, text(2, "BLOCK")).expect("writes");
    let Reloaded::Changed(now) = live.reload().expect("loads") else {
        panic!("the text changed");
    };
    assert_eq!((now[0].version, rules(&live).0), (2, Block));
    assert_ne!(rules(&live).3, digest);
}

#[test]
fn without_rules_there_is_nothing_to_start_with() {
    assert!(LiveRules::start(|| Err("no".into())).is_err());
}

#[test]
fn a_question_sees_the_rules_before_or_after() {
    // rule 6.12
    let allows = Arc::new(AtomicBool::new(true));
    let source = Arc::clone(&allows);
    let load = move || {
        let (version, word) = if source.load(Ordering::Relaxed) {
            (1, "ALLOW")
        } else {
            (2, "BLOCK")
        };
        let policy = super::policy(&text(version, word));
        Ok(RuleSet::new(vec![policy], BTreeMap::new())?)
    };
    let live = LiveRules::start(load).expect("loads");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let ruling = with_question(HOLD, |question| live.evaluate(question));
                    let version = ruling.policy.expect("cited").version;
                    let wanted = if version == 1 { Allow } else { Block };
                    assert_eq!(ruling.decision, wanted);
                    assert_eq!(ruling.rule, Some(format!("v{version}").into()));
                }
            });
        }
        for turn in 0..200 {
            allows.store(turn % 2 == 0, Ordering::Relaxed);
            live.reload().expect("loads");
        }
    });
}
