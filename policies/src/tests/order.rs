//! No order counts: the same rules in any order of files and lines give the same ruling.

use operators_kernel::{TrustDecision, TrustPolicy as _};

use super::{Asked, HOLD, ask, rule, set, with_question};

/// Enough to see most orders of most sets; a failing seed is in the message.
const SEEDS: u64 = 150;

/// A small generator (splitmix64), so that a seed gives the same case everywhere.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bound = u64::try_from(bound).expect("small");
        usize::try_from((mixed ^ (mixed >> 31)) % bound).expect("small")
    }

    pub(super) fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }
}

/// A policy's name, its `applies_to` line, and its rules.
type Drawn = (String, String, Vec<String>);

fn draw_rule(dice: &mut Dice, number: usize) -> String {
    let lines = [
        dice.pick(&["", "connector = \"shop\"", "connector = \"mail\""]),
        dice.pick(&[
            "",
            "tool = \"orders.*\"",
            "tool = \"orders.hold\"",
            "tool = \"*\"",
        ]),
        dice.pick(&[
            "",
            "",
            "max_value = 50",
            "max_value = 100",
            "max_value = 150.5",
        ]),
        dice.pick(&[
            "",
            "",
            "if = 'value > 120'",
            "if = 'value <= 120'",
            "if = 'args.kind == \"a\"'",
        ]),
        dice.pick(&[
            "",
            "",
            "",
            "require = 'args.kind in [\"a\", \"b\"]'",
            "require = 'has(args.kind) || operator != null'",
        ]),
        dice.pick(&[
            "decision = \"ALLOW\"",
            "decision = \"ALLOW\"",
            "decision = \"ALERT\"",
            "decision = \"BLOCK\"",
        ]),
    ];
    rule(&format!("r{number}"), &lines.join("\n"))
}

fn draw(dice: &mut Dice) -> Vec<Drawn> {
    (0..=dice.below(3))
        .map(|number| {
            let applies_to = dice.pick(&["", "", "applies_to = [\"ship-risk\"]\n"]);
            let rules = (0..=dice.below(3)).map(|number| draw_rule(dice, number));
            let rules = rules.collect();
            (format!("p{number}"), applies_to.to_owned(), rules)
        })
        .collect()
}

fn build(drawn: &[Drawn]) -> crate::RuleSet {
    let texts: Vec<(&str, String)> = drawn
        .iter()
        .map(|(name, applies_to, rules)| (name.as_str(), applies_to.clone() + &rules.concat()))
        .collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(n, text)| (*n, text.as_str())).collect();
    set(&texts)
}

#[test]
fn the_order_of_policies_and_rules_never_matters() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..SEEDS {
        let dice = &mut Dice(seed);
        let mut drawn = draw(dice);
        let first = build(&drawn);
        for _ in 0..8 {
            dice.shuffle(&mut drawn);
            for (_, _, rules) in &mut drawn {
                dice.shuffle(rules);
            }
            let shuffled = build(&drawn);
            for operator in [None, Some("ship-risk")] {
                for (value, args) in [
                    (None, r#"{"kind": "a"}"#),
                    (Some("100"), "{}"),
                    (Some("100"), r#"{"kind": "b"}"#),
                    (Some("150.75"), r#"{"kind": "c"}"#),
                ] {
                    let asked = Asked {
                        operator,
                        value,
                        args,
                        ..HOLD
                    };
                    let (mut one, mut other) = (ask(&first, asked), ask(&shuffled, asked));
                    *seen.entry(format!("{:?}", one.decision)).or_insert(0) += 1;
                    // The digest is of the text, and the text is what was shuffled.
                    for ruling in [&mut one, &mut other] {
                        if let Some(policy) = &mut ruling.policy {
                            policy.digest.clear();
                        }
                    }
                    assert_eq!(one, other, "seed {seed}: {asked:?}\n{drawn:#?}");
                }
            }
        }
    }
    assert_eq!(seen.len(), 3, "all decisions were drawn: {seen:?}");
}

/// The four sentences of the contract, said a second time over what was found and not over what was
/// decided. Checks are asked again, one by one: a rule must not hold with one that does not.
#[test]
fn a_ruling_is_what_its_findings_say() {
    // rules 6.1 to 6.4
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..SEEDS * 4 {
        let dice = &mut Dice(seed);
        let set = build(&draw(dice));
        let asked = Asked {
            operator: [None, Some("ship-risk")][dice.below(2)],
            value: [None, Some("50"), Some("100"), Some("150.75")][dice.below(4)],
            args: dice.pick(&["{}", r#"{"kind": "a"}"#, r#"{"kind": 7}"#]),
            ..HOLD
        };
        with_question(asked, |question| {
            let explained = set.explain(question);
            let found = &explained.findings;
            for finding in found.iter().chain(&explained.silent) {
                let all = finding.checks().all(|check| check.holds());
                assert_eq!(finding.holds(), all, "seed {seed}: {finding:?}");
            }
            let says = |decision| found.iter().any(|one| one.rule.decision() == decision);
            let fails = found.is_empty() || found.iter().any(|one| !one.holds());
            let wanted = if fails || says(TrustDecision::Block) {
                TrustDecision::Block
            } else if says(TrustDecision::Alert) {
                TrustDecision::Alert
            } else {
                TrustDecision::Allow
            };
            assert_eq!(explained.ruling.decision, wanted, "seed {seed}: {asked:?}");
            assert_eq!(set.evaluate(question), explained.ruling, "seed {seed}");
            *seen.entry(format!("{wanted:?}")).or_insert(0) += 1;
        });
    }
    assert_eq!(seen.len(), 3, "all decisions were drawn: {seen:?}");
}
