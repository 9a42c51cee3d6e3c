//! What to do about what did not go well: one line per cause, and the command to type next.

use operators_kernel::{
    EffectClass, OperatorName, PlannedAction, Reason, ToolRegistry as _, TrustDecision,
    TrustQuestion,
};
use operators_policies::{Explanation, Policy};

use crate::args::{RunArgs, Whose};
use crate::command::run::Job;
use crate::command::run::ending::Ending;
use crate::command::run::show::{explanation, raised};
use crate::command::run::stubs::is_stub;
use crate::compose::Parts;
use crate::config::StoreUrl;
use crate::output::{next, note, point, quoted, shown};
use crate::project::Project;

/// How many causes of trouble get a line of their own; `--json` has them all.
const CAUSES_MAX: usize = 10;

pub(crate) fn tell(
    args: &RunArgs,
    project: &Project,
    parts: &Parts,
    jobs: &[Job],
    endings: &[Vec<Ending<'_>>],
    abandoned: bool,
) {
    troubles(project, parts, jobs, endings);
    if project.config.store.url == StoreUrl::Memory {
        // Nothing is left to look at.
        return;
    }
    let with = |reason: Reason| {
        let mut all = endings.iter().flatten();
        all.find(|ending| ending.reason == Some(reason))
    };
    // What a stub was asked is kept under a tenant of its own.
    let whose = |ending: &Ending<'_>| {
        let tenant = jobs.first().map(|job| &job.context.tenant);
        let stub = tenant.filter(|_| is_stub(parts, ending.action));
        match stub.and_then(|tenant| tenant.stub().ok()) {
            Some(tenant) => Whose {
                tenant: Some(tenant),
            },
            None => Whose {
                tenant: args.whose.tenant.clone(),
            },
        }
    };
    note("");
    note("next:");
    if let Some(doubt) = with(Reason::InDoubt) {
        let resolve = resolve(doubt.action.idempotency_key.as_str());
        let whose = whose(doubt);
        next(&project.command("doubts list", &whose), "");
        next(
            &project.command(&resolve, &whose),
            "or --not-applied, --write-off",
        );
    } else if let Some(asked) = with(Reason::AwaitingApproval) {
        next(
            &project.command("approvals list", &whose(asked)),
            "what waits for a person, and how to answer; then run again",
        );
    } else if let Some(held) = with(Reason::EntityInDoubt) {
        next(
            &project.command("doubts list", &whose(held)),
            "what is in doubt holds its entity",
        );
    } else if abandoned {
        next(
            &project.command("doubts list", &args.whose),
            "what is in doubt holds its entity",
        );
    } else if let Some(held) = endings.iter().flatten().find(|ending| is_held(ending)) {
        let accept = format!("connectors accept {}", held.action.connector);
        next(
            &project.command(&accept, &Whose { tenant: None }),
            "shows what the server changed, and takes it over",
        );
    } else if with(Reason::UnknownTool).is_some() {
        next(
            &project.command("connectors list", &Whose { tenant: None }),
            "the tools there are",
        );
    } else if raised(parts, jobs, endings) > 0 {
        next(
            &project.command("alerts list", &args.whose),
            "what ran and was raised, until somebody acknowledges it",
        );
    } else {
        next(
            &project.command("receipts list", &args.whose),
            "what was proposed, and what became of it",
        );
    }
}

/// The command that answers a doubt.
fn resolve(key: &str) -> String {
    // Always in quotes: it is there to be copied and changed.
    let key = match quoted(key) {
        plain if plain == key => format!("'{key}'"),
        quoted => quoted,
    };
    format!("doubts resolve {key} --applied --because '…'")
}

/// Whether an MCP server's tool is not what was accepted. The error does not say the command that
/// accepts it, for a model reads the error.
fn is_held(ending: &Ending<'_>) -> bool {
    let error = ending.error.unwrap_or_default();
    ending.reason == Some(Reason::Failed) && error.contains("held: the tool `")
}

/// Why some actions are not ok, what a person may do about it, and the numbers of those actions.
struct Cause {
    text: String,
    hint: Option<String>,
    numbers: Vec<String>,
}

/// What did not go well, one line per cause, with the numbers of the actions it stopped, and under
/// it what a person may do.
pub(crate) fn troubles(
    project: &Project,
    parts: &Parts,
    jobs: &[Job],
    endings: &[Vec<Ending<'_>>],
) {
    let mut causes: Vec<Cause> = Vec::new();
    for (job, endings) in jobs.iter().zip(endings) {
        for (index, ending) in endings.iter().enumerate() {
            // What waits says so in its row.
            if ending.ok || ending.waits_for.is_some() {
                continue;
            }
            let number = match &job.context.operator {
                Some(name) if jobs.len() > 1 => format!("{name} {}", index + 1),
                _ => (index + 1).to_string(),
            };
            let text = match explanation(parts, job, index, ending) {
                Some(explained) => cause(project, parts, job, ending, &explained),
                None => trouble(parts, ending),
            };
            let hint = ending.hint.map(shown);
            let is_known = |known: &&mut Cause| known.text == text && known.hint == hint;
            match causes.iter_mut().find(is_known) {
                Some(known) => known.numbers.push(number),
                None => causes.push(Cause {
                    text,
                    hint,
                    numbers: vec![number],
                }),
            }
        }
    }
    for cause in causes.iter().take(CAUSES_MAX) {
        let mark = brief_list(&cause.numbers);
        point(&mark, &cause.text);
        if let Some(hint) = &cause.hint {
            point(&" ".repeat(mark.chars().count()), &format!("hint: {hint}"));
        }
    }
    if causes.len() > CAUSES_MAX {
        note(&format!(
            "  … and {} causes more",
            causes.len() - CAUSES_MAX
        ));
    }
}

/// The first few, and how many more.
fn brief_list(numbers: &[String]) -> String {
    match numbers {
        [first, second, third, _, rest @ ..] => {
            format!("{first}, {second}, {third} and {} more", rest.len() + 1)
        }
        few => few.join(", "),
    }
}

/// What is wrong, and the way out.
fn trouble(parts: &Parts, ending: &Ending<'_>) -> String {
    let error = shown(ending.error.unwrap_or_default());
    match ending.reason {
        Some(Reason::Failed) => format!("failed: {error}; the key is free, run again"),
        Some(Reason::InDoubt) => format!("in doubt: {error}; {}", way_out(parts, ending)),
        Some(Reason::Conflict) => format!(
            "{error} ({}); say the same as before, or use another key",
            shown(&ending.conflict.join(", "))
        ),
        _ => error,
    }
}

/// How a doubt about this tool ends.
fn way_out(parts: &Parts, doubt: &Ending<'_>) -> &'static str {
    let action = doubt.action;
    let tool = parts.registry.tool(&action.connector, &action.tool);
    match tool.map(|tool| tool.contract.effect) {
        Some(EffectClass::Keyed { .. }) => {
            "run again: it is re-sent with the same key, which the vendor honours"
        }
        Some(EffectClass::Idempotent) => "run again: it is re-sent, which is harmless",
        Some(EffectClass::Probeable) => "run again: the connector is asked whether it happened",
        Some(EffectClass::Opaque | EffectClass::Transactional | EffectClass::Read) | None => {
            "find out at the vendor whether it happened, and say so"
        }
    }
}

fn cause(
    project: &Project,
    parts: &Parts,
    job: &Job,
    ending: &Ending<'_>,
    explained: &Explanation<'_>,
) -> String {
    let ruling = &explained.ruling;
    let because = ruling.because.as_deref().map(shown);
    if let (Some(rule), Some(policy)) = (&ruling.rule, &ruling.policy) {
        let file = parts
            .trust
            .all()
            .find(|candidate| *candidate.reference() == **policy)
            .and_then(|candidate| rule_place(candidate, rule));
        let file = file.unwrap_or_else(|| shown(&policy.name));
        let because = because.map(|because| format!(": {because}"));
        return format!(
            "blocked by rule `{}` ({file}){}",
            shown(rule),
            because.unwrap_or_default()
        );
    }
    let because = because.unwrap_or_else(|| "no rule matched".to_owned());
    let remedy = remedy(project, parts, job, ending);
    format!("blocked: {because}; to let it run, {remedy}")
}

/// The first operator that may do what a plan of nobody may not.
fn allowed_to<'a>(
    project: &'a Project,
    parts: &Parts,
    job: &Job,
    action: &PlannedAction,
) -> Option<&'a OperatorName> {
    let Job { context, .. } = job;
    if context.operator.is_some() {
        return None;
    }
    project.config.operators.keys().find(|name| {
        let explained = parts.trust.rules.explain(&TrustQuestion {
            tenant: &context.tenant,
            operator: Some(name),
            action,
            event: context.event.as_deref(),
        });
        explained.ruling.decision != TrustDecision::Block
    })
}

fn rule_place(policy: &Policy, rule: &str) -> Option<String> {
    let rule = policy
        .rules()
        .iter()
        .find(|candidate| candidate.name() == rule)?;
    Some(format!(
        "{}:{}",
        shown(&policy.file().display()),
        rule.line()
    ))
}

/// What would have to change: whose plan it is, the operator's reach, the one policy file, or any
/// of them.
fn remedy(project: &Project, parts: &Parts, job: &Job, ending: &Ending<'_>) -> String {
    let operator = job.context.operator.as_ref();
    if let Some(name) = allowed_to(project, parts, job, ending.action) {
        return format!("say whose it is: `operators run {name} --once --plan …`");
    }
    let requires = operator
        .and_then(|name| project.config.operators.get(name))
        .and_then(|operator| operator.requires.as_ref());
    let out_of_reach = requires
        .is_some_and(|requires| !requires.iter().any(|one| one.reach.covers(ending.action)));
    if out_of_reach && !parts.trust.policies.is_empty() {
        return format!(
            "edit its `requires` in {}",
            shown(&project.config_file().display())
        );
    }
    if let [only] = parts.trust.policies.as_slice() {
        return format!("edit {}", shown(&only.file().display()));
    }
    let patterns = project.config.trust.policies.join("`, `");
    let verb = if parts.trust.policies.is_empty() {
        "add"
    } else {
        "edit"
    };
    format!("{verb} a file that fits `{}`", shown(&patterns))
}
