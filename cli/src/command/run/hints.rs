//! What to do about what did not go well: one line per kind of trouble, and the command to type.

use std::collections::BTreeMap;

use operators_kernel::{EffectClass, Reason, ToolRegistry as _};
use operators_policies::{Explanation, Policy};

use crate::args::RunArgs;
use crate::command::run::Job;
use crate::command::run::ending::Ending;
use crate::command::run::show::explanation;
use crate::compose::Parts;
use crate::output::{next, note, quoted, shown};
use crate::project::Project;

/// How many doubts get a line of their own.
const DOUBTS_TOLD_MAX: usize = 3;

pub(crate) fn tell(
    args: &RunArgs,
    project: &Project,
    parts: &Parts,
    jobs: &[Job],
    endings: &[Vec<Ending<'_>>],
) {
    refusals(project, parts, jobs, endings);
    let all = || endings.iter().flatten();
    if all().any(|ending| ending.reason == Some(Reason::Failed)) {
        note("failed actions left their key free: mend the cause and run again");
    }
    let doubts: Vec<&Ending<'_>> = all()
        .filter(|ending| ending.reason == Some(Reason::InDoubt))
        .collect();
    for doubt in doubts.iter().take(DOUBTS_TOLD_MAX) {
        note(&doubt_told(parts, doubt));
    }
    let held = all().any(|ending| ending.reason == Some(Reason::EntityInDoubt));
    note("");
    note("next:");
    if let Some(doubt) = doubts.first() {
        let key = doubt.action.idempotency_key.as_str();
        // Always in quotes: it is there to be copied and changed.
        let key = match quoted(key) {
            plain if plain == key => format!("'{key}'"),
            quoted => quoted,
        };
        next(&project.command("doubts list", &args.whose), "");
        next(
            &project.command(
                &format!("doubts resolve {key} --applied --because '…'"),
                &args.whose,
            ),
            "or --not-applied, --write-off",
        );
    } else if held {
        next(
            &project.command("doubts list", &args.whose),
            "what holds the entity",
        );
    } else {
        next(
            &project.command("receipts list", &args.whose),
            "what was proposed, and what became of it",
        );
    }
}

fn doubt_told(parts: &Parts, doubt: &Ending<'_>) -> String {
    let action = doubt.action;
    let tool = parts.registry.tool(&action.connector, &action.tool);
    let way_out = match tool.map(|tool| tool.contract.effect) {
        Some(EffectClass::Keyed { .. }) => {
            "running again re-sends it with the same key, which the vendor honours"
        }
        Some(EffectClass::Idempotent) => "running again re-sends it, which is harmless",
        Some(EffectClass::Probeable) => "running again asks the connector whether it happened",
        Some(EffectClass::Opaque | EffectClass::Read) | None => {
            "find out at the vendor whether it happened, then say so"
        }
    };
    format!(
        "`{}` is in doubt and `{}` is held: {way_out}",
        shown(&action.idempotency_key),
        shown(&action.entity_key)
    )
}

/// What trust refused, one line per cause, with the file to edit.
fn refusals(project: &Project, parts: &Parts, jobs: &[Job], endings: &[Vec<Ending<'_>>]) {
    let mut causes: BTreeMap<String, usize> = BTreeMap::new();
    for (job, endings) in jobs.iter().zip(endings) {
        for (index, ending) in endings.iter().enumerate() {
            let Some(explained) = explanation(parts, job, index, ending) else {
                continue;
            };
            *causes
                .entry(cause(project, parts, job, ending, &explained))
                .or_default() += 1;
        }
    }
    for (cause, count) in causes {
        note(&format!("{count} blocked: {cause}"));
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
            .policies
            .iter()
            .find(|candidate| candidate.reference() == policy)
            .and_then(|candidate| rule_place(candidate, rule));
        let file = file.unwrap_or_else(|| shown(&policy.name));
        let because = because.map(|because| format!(", {because}"));
        return format!(
            "rule `{}` ({file}){}",
            shown(rule),
            because.unwrap_or_default()
        );
    }
    let because = because.unwrap_or_else(|| "no rule matched".to_owned());
    let file = file_to_edit(project, parts, job, ending);
    format!("{because}; to let it run, edit {file}")
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

/// Where a rule would have to be added: the operator's reach, the one policy file, or any of them.
fn file_to_edit(project: &Project, parts: &Parts, job: &Job, ending: &Ending<'_>) -> String {
    let operator = job.context.operator.as_ref();
    let requires = operator
        .and_then(|name| project.config.operators.get(name))
        .and_then(|operator| operator.requires.as_ref());
    let out_of_reach = requires
        .is_some_and(|requires| !requires.iter().any(|one| one.reach.covers(ending.action)));
    if out_of_reach && !parts.trust.policies.is_empty() {
        return format!("`requires` in {}", shown(&project.config_file().display()));
    }
    if let [only] = parts.trust.policies.as_slice() {
        return shown(&only.file().display());
    }
    let patterns = project.config.trust.policies.join("`, `");
    format!("a file that fits `{}`", shown(&patterns))
}
