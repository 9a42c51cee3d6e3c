//! Rules that can decide nothing: no tool fits them, or another rule always outweighs them.
//!
//! Owns what can be told of rules without a question. It must not know where tools are configured.

use std::collections::BTreeMap;

use operators_kernel::{ConnectorName, OperatorName, ToolName, TrustDecision};

use crate::index::Index;
use crate::policy::{Policy, Rule};

/// A tool that is configured.
#[derive(Debug, Clone, Copy)]
pub struct KnownTool<'a> {
    /// Its connector.
    pub connector: &'a ConnectorName,
    /// Its name.
    pub tool: &'a ToolName,
    /// Whether it only reads: no rule speaks of a read.
    pub is_read: bool,
}

/// A rule that decides nothing.
#[derive(Debug, Clone, Copy)]
pub struct IdleRule<'a> {
    /// Where it stands.
    pub policy: &'a Policy,
    /// The rule.
    pub rule: &'a Rule,
    /// Why it decides nothing.
    pub why: Idle<'a>,
}

/// Why a rule decides nothing.
#[derive(Debug, Clone, Copy)]
pub enum Idle<'a> {
    /// No configured tool fits it.
    NoTool,
    /// Only reads fit it, and no rule speaks of a read.
    OnlyReads,
    /// Whatever it speaks of, this rule speaks of as well and says something stronger.
    Outweighed {
        /// Where that rule stands.
        policy: &'a Policy,
        /// The stronger rule.
        rule: &'a Rule,
    },
}

/// A rule with its place: `owner` is the operator in whose own layer it stands.
#[derive(Debug, Clone, Copy)]
struct Placed<'a> {
    owner: Option<&'a OperatorName>,
    policy: &'a Policy,
    rule: &'a Rule,
}

/// Every rule of these policies that decides nothing, in the order of the files: each with the first
/// reason there is. Without `tools`, whether a tool fits is not asked.
pub fn idle_rules<'a>(
    project: &'a [Policy],
    own: &'a BTreeMap<OperatorName, Vec<Policy>>,
    tools: Option<&[KnownTool<'_>]>,
) -> Vec<IdleRule<'a>> {
    let own = own.iter().flat_map(|(operator, policies)| {
        let policies = policies.iter();
        policies.map(move |policy| (Some(operator), policy))
    });
    let policies = project.iter().map(|policy| (None, policy)).chain(own);
    let rules = policies.flat_map(|(owner, policy)| {
        policy.rules.iter().map(move |rule| Placed {
            owner,
            policy,
            rule,
        })
    });
    let rules: Vec<Placed<'a>> = rules.collect();
    let mut stronger = Index::default();
    for (place, Placed { rule, .. }) in rules.iter().enumerate() {
        if is_plain(rule) && rule.decision != TrustDecision::Allow {
            stronger.insert(rule.connector.as_ref(), rule.tool.as_ref(), place);
        }
    }
    let idle = rules.iter().filter_map(|placed| {
        let fits = tools.and_then(|tools| lacks_a_tool(placed.rule, tools));
        let why = fits.or_else(|| outweighed(placed, &rules, &stronger))?;
        Some(IdleRule {
            policy: placed.policy,
            rule: placed.rule,
            why,
        })
    });
    idle.collect()
}

/// Whether it speaks of whatever its tool and connector fit, and nothing must hold for that.
fn is_plain(rule: &Rule) -> bool {
    rule.only_if.is_none() && rule.require.is_none()
}

fn lacks_a_tool<'a>(rule: &Rule, tools: &[KnownTool<'_>]) -> Option<Idle<'a>> {
    let mut fitting = tools.iter().filter(|known| {
        let connector = rule.connector.as_ref();
        connector.is_none_or(|connector| connector == known.connector)
            && rule.tool.as_ref().is_none_or(|tool| tool.fits(known.tool))
    });
    match fitting.next() {
        None => Some(Idle::NoTool),
        Some(first) if first.is_read && fitting.all(|known| known.is_read) => Some(Idle::OnlyReads),
        Some(_) => None,
    }
}

fn outweighed<'a>(
    placed: &Placed<'a>,
    rules: &[Placed<'a>],
    stronger: &Index<usize>,
) -> Option<Idle<'a>> {
    let rule = placed.rule;
    if !is_plain(rule) || rule.decision == TrustDecision::Block {
        return None;
    }
    let mut covering = Vec::new();
    stronger.collect_covering(rule.connector.as_ref(), rule.tool.as_ref(), &mut covering);
    let covering = covering
        .into_iter()
        .filter_map(|place| rules.get(*place).zip(Some(place)));
    let outweighing = covering.filter(|(other, _)| outweighs(other, placed));
    // The strongest, and of those the first of the files, whatever order they were found in.
    let (found, _) = outweighing
        .min_by_key(|(other, place)| (other.rule.decision != TrustDecision::Block, **place))?;
    Some(Idle::Outweighed {
        policy: found.policy,
        rule: found.rule,
    })
}

/// Whether the ruling is the same with and without the weaker rule, for whoever proposes.
fn outweighs(stronger: &Placed<'_>, weaker: &Placed<'_>) -> bool {
    let is_same_layer = stronger.owner == weaker.owner;
    let speaks_for_all = match (stronger.owner, weaker.owner) {
        // An operator's own layer says nothing about the plans of others.
        (Some(_), _) if !is_same_layer => false,
        (_, Some(owner)) => stronger.policy.head.speaks_of(Some(owner)),
        (_, None) => {
            let (all, some) = (
                &stronger.policy.head.applies_to,
                &weaker.policy.head.applies_to,
            );
            match (all, some) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(all), Some(some)) => some.is_subset(all),
            }
        }
    };
    let is_stronger = match (stronger.rule.decision, weaker.rule.decision) {
        (TrustDecision::Block, TrustDecision::Allow | TrustDecision::Alert) => true,
        // A ceiling or a limit of the weaker one would still count, and a layer in which no rule
        // speaks blocks.
        (TrustDecision::Alert, TrustDecision::Allow) => {
            is_same_layer && weaker.rule.max_value.is_none() && weaker.rule.limit.is_none()
        }
        (TrustDecision::Allow, _)
        | (TrustDecision::Alert, TrustDecision::Alert | TrustDecision::Block)
        | (TrustDecision::Block, TrustDecision::Block) => false,
    };
    speaks_for_all && is_stronger
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn policy(name: &str, head: &str, rules: &[&str]) -> Policy {
        let mut text = format!("policy = '{name}'\nversion = 1\n{head}\n");
        for (number, rule) in (1..).zip(rules) {
            let number: u32 = number;
            text.extend(["[[rule]]\nname = '", &number.to_string(), "'\n", rule, "\n"]);
        }
        Policy::parse(Path::new("p.toml"), text.as_bytes())
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// `policy/rule` of each idle rule, and why.
    fn idle(project: &[Policy], own: &BTreeMap<OperatorName, Vec<Policy>>) -> Vec<String> {
        let connector = ConnectorName::parse("pay").expect("a name");
        let names =
            ["refunds.create", "refunds.get"].map(|name| ToolName::parse(name).expect(name));
        let tools: Vec<KnownTool<'_>> = names
            .iter()
            .map(|tool| KnownTool {
                connector: &connector,
                tool,
                is_read: tool.as_str().ends_with("get"),
            })
            .collect();
        let found = idle_rules(project, own, Some(&tools));
        let told = found.iter().map(|one| {
            let why = match one.why {
                Idle::NoTool => "no tool".to_owned(),
                Idle::OnlyReads => "only reads".to_owned(),
                Idle::Outweighed { policy, rule } => {
                    format!("{}/{}", policy.reference().name, rule.name())
                }
            };
            format!("{}/{}: {why}", one.policy.reference().name, one.rule.name())
        });
        told.collect()
    }

    fn of_one(rules: &[&str]) -> Vec<String> {
        idle(&[policy("p", "", rules)], &BTreeMap::new())
    }

    #[test]
    fn a_rule_that_no_tool_fits_decides_nothing() {
        let found = of_one(&[
            "decision = 'BLOCK'\ntool = 'refund.*'",
            "decision = 'BLOCK'\ntool = 'refunds.*'\nif = 'value > 5'",
            "decision = 'BLOCK'\ntool = 'refunds.*'\nconnector = 'shop'",
            "decision = 'ALLOW'\ntool = 'refunds.get'",
            "decision = 'ALLOW'\nif = 'value > 5'",
            "decision = 'ALLOW'\ntool = 'refund.create'\nif = 'value > 5'",
        ]);
        assert_eq!(
            found,
            [
                "p/1: no tool",
                "p/3: no tool",
                "p/4: only reads",
                "p/6: no tool"
            ]
        );
    }

    #[test]
    fn a_rule_that_another_always_outweighs_decides_nothing() {
        let found = of_one(&[
            "decision = 'ALLOW'\ntool = 'refunds.create'\nmax_value = 500",
            "decision = 'ALERT'\ntool = 'refunds.create'",
            "decision = 'BLOCK'\ntool = 'refunds.*'\nconnector = 'pay'",
            "decision = 'ALLOW'\ntool = 'refunds.create'\nconnector = 'pay'",
            "decision = 'ALERT'\ntool = '*.create'\nconnector = 'pay'",
            "decision = 'ALLOW'\nconnector = 'pay'\ntool = '*.create'\nif = 'value < 5'",
            "decision = 'BLOCK'\ntool = 'refunds.create'\nconnector = 'pay'",
        ]);
        // 1 and 2 speak of other connectors too; 5 of other tools; 6 has an `if`; a BLOCK never.
        assert_eq!(found, ["p/4: p/3"]);
    }

    #[test]
    fn an_alert_outweighs_what_only_allows() {
        let found = of_one(&[
            "decision = 'ALERT'",
            "decision = 'ALLOW'",
            "decision = 'ALLOW'\nmax_value = 500",
            "decision = 'ALLOW'\nlimit = { max = 5, per = '1h', by = 'entity' }",
        ]);
        assert_eq!(found, ["p/2: p/1"]);
    }

    #[test]
    fn a_rule_for_other_operators_outweighs_nothing() {
        let both = "applies_to = ['a', 'b']";
        let project = [
            policy("all", "", &["decision = 'ALLOW'"]),
            policy("both", both, &["decision = 'BLOCK'", "decision = 'ALLOW'"]),
            policy("one", "applies_to = ['a']", &["decision = 'ALLOW'"]),
            policy("more", "applies_to = ['a', 'c']", &["decision = 'ALLOW'"]),
        ];
        let found = idle(&project, &BTreeMap::new());
        assert_eq!(found, ["both/2: both/1", "one/1: both/1"]);
        let own = |name: &str, policies: Vec<Policy>| {
            let name = OperatorName::parse(name).expect("a name");
            BTreeMap::from([(name, policies)])
        };
        let allows = || vec![policy("own", "", &["decision = 'ALLOW'"])];
        let blocks = [policy("both", both, &["decision = 'BLOCK'"])];
        assert_eq!(idle(&blocks, &own("b", allows())), ["own/1: both/1"]);
        assert_eq!(idle(&blocks, &own("c", allows())), Vec::<String>::new());
        // Both layers must speak, so an ALERT of the project takes nothing from it.
        let alerts = [policy("all", "", &["decision = 'ALERT'"])];
        assert_eq!(idle(&alerts, &own("b", allows())), Vec::<String>::new());
        // And its own BLOCK takes nothing from what the project allows others.
        let allowed = [policy("all", "", &["decision = 'ALLOW'"])];
        let strict = own("b", vec![policy("own", "", &["decision = 'BLOCK'"])]);
        assert_eq!(idle(&allowed, &strict), Vec::<String>::new());
    }
}
