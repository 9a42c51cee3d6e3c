//! A large set is read on one thread, and each text of it once. Counted, not timed.

use std::collections::BTreeMap;
use std::path::Path;

use crate::room::{OPENED, parses};
use crate::{Policy, RuleSet, loading};

/// A file of that many rules with two expressions each, of which there are few different ones.
fn text(name: &str, rules: usize) -> String {
    let rule = |number: usize| {
        let limit = number % 10;
        format!(
            "[[rule]]\nname = \"{number}\"\ndecision = \"ALLOW\"\nif = 'value > {limit}.0'\n\
             require = 'has(args.reason)'\n"
        )
    };
    let rules: String = (0..rules).map(rule).collect();
    format!("policy = \"{name}\"\nversion = 1\n{rules}")
}

fn parse(name: &str, rules: usize) -> Policy {
    let text = text(name, rules);
    Policy::parse(Path::new(name), text.as_bytes()).expect("sound")
}

fn opened<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = OPENED.get();
    let done = work();
    (OPENED.get() - before, done)
}

#[test]
fn a_file_of_ten_thousand_rules_is_one_thread_and_parses_each_text_once() {
    let (threads, policy) = opened(|| parse("p", 10_000));
    assert_eq!(policy.rules().len(), 10_000);
    assert_eq!(threads, 1);
    let (threads, counted) = opened(|| {
        loading(|| {
            let policies = vec![parse("p", 10_000), parse("q", 10_000)];
            let set = RuleSet::new(policies, BTreeMap::new()).expect("two policies");
            (set.policies().len(), parses())
        })
    });
    assert_eq!(threads, 1, "one for both files");
    assert_eq!(counted, (2, 11), "ten limits and one reason");
}

#[test]
fn a_thread_that_panics_is_heard_by_whoever_loads() {
    let heard = std::panic::catch_unwind(|| loading(|| panic!("in the room")));
    assert!(heard.is_err());
    assert_eq!(loading(|| 1), 1, "the next load has a room again");
}
