//! What is said of rules that decide nothing: a freeze with a mistyped tool stops nothing, and looks
//! as if it did.

use std::collections::BTreeMap;

use operators_connectors::Registry;
use operators_kernel::{Disposition, EffectClass, OperatorName};
use operators_policies::{Idle, IdleRule, KnownTool, Policy, idle_rules};

use crate::output::shown;
use crate::project::Project;

/// How many tools of a connector are named.
const TOOLS_MAX: usize = 5;

/// A rule, or a policy, that decides nothing.
#[derive(Debug)]
pub(crate) struct Warning {
    pub(crate) file: String,
    pub(crate) line: Option<usize>,
    pub(crate) problem: String,
    pub(crate) remedy: &'static str,
}

impl Warning {
    /// All of it on one line.
    pub(crate) fn told(&self) -> String {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!(
            "{}{line}: {}; {}",
            shown(&self.file),
            self.problem,
            self.remedy
        )
    }
}

/// Everything in these policies that decides nothing. Without the tools, whether one fits is not
/// asked.
pub(crate) fn warnings(
    project: &Project,
    policies: &[Policy],
    own: &BTreeMap<OperatorName, Vec<Policy>>,
    registry: Option<&Registry>,
) -> Vec<Warning> {
    let tools: Option<Vec<KnownTool<'_>>> = registry.map(|registry| {
        let tools = registry
            .tools()
            .map(|(connector, tool, known, _)| KnownTool {
                connector,
                tool,
                is_read: known.contract.effect == EffectClass::Read,
            });
        tools.collect()
    });
    let all = policies.iter().chain(own.values().flatten());
    let strangers = all.filter_map(|policy| for_nobody(project, policy));
    let idle = idle_rules(policies, own, tools.as_deref());
    let idle = idle
        .iter()
        .map(|idle| of(idle, tools.as_deref().unwrap_or_default()));
    strangers.chain(idle).collect()
}

/// A policy that is for operators the project does not have.
fn for_nobody(project: &Project, policy: &Policy) -> Option<Warning> {
    let unknown = policy.applies_to()?.iter();
    let unknown: Vec<&str> = unknown
        .filter(|name| !project.config.operators.contains_key(*name))
        .map(OperatorName::as_str)
        .collect();
    (!unknown.is_empty()).then(|| Warning {
        file: policy.file().display().to_string(),
        line: None,
        problem: format!(
            "policy `{}` applies to `{}`, and the project has no such operator",
            shown(&policy.reference().name),
            unknown.join("`, `")
        ),
        remedy: "correct `applies_to`",
    })
}

fn of(idle: &IdleRule<'_>, tools: &[KnownTool<'_>]) -> Warning {
    let rule = idle.rule;
    let subject = match (rule.connector(), rule.tool()) {
        (Some(connector), Some(tool)) => format!("`{connector}:{}`", tool.as_str()),
        (Some(connector), None) => format!("connector `{connector}`"),
        (None, Some(tool)) => format!("`{}`", tool.as_str()),
        (None, None) => "it".to_owned(),
    };
    let (problem, remedy) = match idle.why {
        Idle::NoTool => (
            format!(
                "no configured tool fits {subject}{}",
                there_are(idle, tools)
            ),
            "write the tool as it is configured",
        ),
        Idle::OnlyReads => (
            format!("only reads fit {subject}, and no rule speaks of a read"),
            "bound reads by an operator's `requires`",
        ),
        Idle::Outweighed {
            policy,
            rule: stronger,
        } => (
            format!(
                "rule `{}` ({}:{}) says {} of all that it speaks of",
                shown(stronger.name()),
                shown(&policy.file().display()),
                stronger.line(),
                Disposition::from(stronger.decision()).as_str()
            ),
            "take one of them out, or give the stronger one an `if`",
        ),
    };
    Warning {
        file: idle.policy.file().display().to_string(),
        line: Some(rule.line()),
        problem: format!("rule `{}` decides nothing: {problem}", shown(rule.name())),
        remedy,
    }
}

/// What there is instead of what a rule names.
fn there_are(idle: &IdleRule<'_>, tools: &[KnownTool<'_>]) -> String {
    let connector = idle.rule.connector();
    let of_connector = tools.iter().filter(|known| {
        connector.is_none_or(|connector| connector == known.connector) && !known.is_read
    });
    let names: Vec<&str> = of_connector.map(|known| known.tool.as_str()).collect();
    let whose = connector.map_or_else(|| "the project".to_owned(), |name| format!("`{name}`"));
    let more = match names.len().saturating_sub(TOOLS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match names.get(..TOOLS_MAX.min(names.len())) {
        None | Some([]) => format!(", and {whose} has none with an effect"),
        Some(first) => format!(", and {whose} has `{}`{more}", first.join("`, `")),
    }
}
