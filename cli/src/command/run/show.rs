//! The table of a run and its summary.

use std::io;
use std::time::Duration;

use comfy_table::Color;
use operators_kernel::{
    Clock, Disposition, EffectClass, OnAlert, OwnerState, Reason, ToolRegistry as _, TrustQuestion,
    Wait,
};
use operators_policies::Explanation;
use serde_json::Value;

use crate::command::run::Job;
use crate::command::run::ending::{Done, Ending};
use crate::command::run::stubs::is_stub;
use crate::compose::Parts;
use crate::open_ends::owner;
use crate::output::{data, json_text, note, shown};
use crate::table::{Column, Table, Text, receipt_id, terminal_width};
use crate::words::{ago, duration, millis};

/// Below this width the entity is left out where the key says it already.
const ENTITY_WIDTH_MIN: u16 = 110;

/// One table per operator, under its name and goal.
pub(crate) fn tables(parts: &Parts, jobs: &[Job], endings: &[Vec<Ending<'_>>]) -> io::Result<()> {
    for (number, (job, endings)) in jobs.iter().zip(endings).enumerate() {
        if number > 0 {
            data("")?;
        }
        if let Some(name) = &job.context.operator {
            let goal = job.goal.as_ref().map(|goal| format!(": {}", shown(goal)));
            data(&format!("{name}{}", goal.unwrap_or_default()))?;
        }
        if job.plan.actions.is_empty() {
            data("(no actions)")?;
        } else if endings.is_empty() {
            data("(no action came to its end)")?;
        } else {
            data(&table(parts, job, endings, terminal_width()))?;
        }
    }
    Ok(())
}

fn table(parts: &Parts, job: &Job, endings: &[Ending<'_>], width: Option<u16>) -> String {
    let real = endings.iter().any(|ending| ending.done.is_some());
    let with_entity = width.is_none_or(|width| width >= ENTITY_WIDTH_MIN)
        || endings.iter().any(|ending| {
            let action = ending.action;
            !action
                .idempotency_key
                .as_str()
                .starts_with(action.entity_key.as_str())
        });
    let mut columns = vec![
        Column::fixed("#"),
        Column::fixed("decision"),
        Column::fixed("ok"),
        Column::yielding("tool", 10),
    ];
    columns.extend(with_entity.then_some(Column::yielding("entity", 10)));
    columns.push(Column::yielding("key", 14));
    columns.push(Column::yielding("result", 12));
    columns.extend(real.then_some(Column::fixed("receipt")));
    let mut table = Table::new(&columns);
    for (index, ending) in endings.iter().enumerate() {
        let action = ending.action;
        let explained = explanation(parts, job, index, ending);
        let told = match promised_by(endings, index) {
            Some(number) => format!("done by action {number}"),
            None => told(ending, explained.as_ref(), &*parts.clock),
        };
        let told = if is_stub(parts, action) {
            format!("stub: {told}")
        } else {
            told
        };
        let mut cells = vec![
            Text::plain(&(index + 1)),
            decision(ending.decision),
            if ending.ok {
                Text::plain("yes")
            } else {
                Text::coloured("no", Color::Red)
            },
            Text::plain(&format!("{}:{}", action.connector, action.tool)),
        ];
        cells.extend(with_entity.then(|| Text::plain(&action.entity_key)));
        cells.push(Text::plain(&action.idempotency_key));
        cells.push(Text::plain(&told));
        cells.extend(
            ending
                .done
                .map(|done| Text::plain(&receipt_id(done.receipt_id, width))),
        );
        table.row(cells);
    }
    table.render(width)
}

/// A decision, in its word and its colour.
pub(crate) fn decision(decision: Disposition) -> Text {
    let colour = match decision {
        Disposition::Allow => Color::Green,
        Disposition::Alert => Color::Yellow,
        Disposition::Block => Color::Red,
        Disposition::Dedup => Color::Cyan,
    };
    Text::coloured(decision.as_str(), colour)
}

/// What the rules say of an action that trust refused.
pub(crate) fn explanation<'a>(
    parts: &'a Parts,
    job: &Job,
    index: usize,
    ending: &Ending<'_>,
) -> Option<Explanation<'a>> {
    if ending.reason != Some(Reason::Policy) {
        return None;
    }
    asked(parts, job, index)
}

/// What the rules say of an action of a plan.
fn asked<'a>(parts: &'a Parts, job: &Job, index: usize) -> Option<Explanation<'a>> {
    // The plan's own action: the result's may have its secrets hashed.
    let action = job.plan.actions.get(index)?;
    Some(parts.trust.rules.explain(&TrustQuestion {
        tenant: &job.context.tenant,
        operator: job.context.operator.as_ref(),
        action,
        event: job.context.event.as_deref(),
    }))
}

/// How many alerts were raised: what a person let run beforehand raises none.
pub(crate) fn raised(parts: &Parts, jobs: &[Job], endings: &[Vec<Ending<'_>>]) -> usize {
    let raises = |job: &Job, index: usize, ending: &Ending<'_>| {
        ending.decision == Disposition::Alert
            && asked(parts, job, index).is_none_or(|asked| asked.ruling.on_alert == OnAlert::Notify)
    };
    let all = jobs.iter().zip(endings).flat_map(|(job, endings)| {
        let numbered = endings.iter().enumerate();
        numbered.filter(move |(index, ending)| raises(job, *index, ending))
    });
    all.count()
}

/// Of a forecast: the number of the action before it that would be sent under the same key.
fn promised_by(endings: &[Ending<'_>], index: usize) -> Option<usize> {
    let ending = endings.get(index)?;
    if ending.done.is_some() || ending.original.is_none() {
        return None;
    }
    let action = ending.action;
    let sent = |before: &Ending<'_>| {
        before.ok
            && before.original.is_none()
            && before.action.idempotency_key == action.idempotency_key
            // A read under the same key burns nothing.
            && before.action.tool == action.tool
    };
    let before = endings.get(..index)?.iter().position(sent)?;
    Some(before + 1)
}

/// What became of it, in a few words.
fn told(ending: &Ending<'_>, explained: Option<&Explanation<'_>>, clock: &dyn Clock) -> String {
    if let Some(explained) = explained {
        let ruling = &explained.ruling;
        let rule = ruling.rule.as_ref().map(|rule| format!("rule `{rule}`"));
        return ruling
            .because
            .clone()
            .or(rule)
            .unwrap_or_else(|| "policy".to_owned());
    }
    if let Some(original) = ending.original {
        return if original.written_off {
            "written off".to_owned()
        } else {
            format!("done {}", ago(clock.now(), original.applied_at))
        };
    }
    if !ending.conflict.is_empty() {
        return format!("conflict: {} differs", ending.conflict.join(", "));
    }
    match (ending.reason, ending.done) {
        (Some(reason), _) => {
            let error = ending.error.unwrap_or_default();
            match reason {
                Reason::InDoubt => format!("in doubt: {error}"),
                Reason::Failed => format!("failed: {error}"),
                _ => error.to_owned(),
            }
        }
        (
            None,
            Some(Done {
                result: Some(result),
                ..
            }),
        ) => brief(result),
        (None, Some(_)) => String::new(),
        (None, None) => match ending.waits_for {
            Some(wait) => waits(wait),
            None => "would be sent".to_owned(),
        },
    }
}

/// What a forecast says of an action that something in flight is before.
fn waits(wait: &Wait) -> String {
    let spent = duration(Duration::from_secs(wait.in_flight_for_seconds));
    let then = match wait.owner {
        OwnerState::NotKnownYet => "; if that is gone, it is a doubt",
        OwnerState::Alive | OwnerState::Gone => "",
    };
    format!(
        "waits for `{}`, in flight for {spent} ({}){then}",
        wait.idempotency_key,
        owner(wait.owner)
    )
}

/// A result in a few words: `status=held order=SO-1` for a flat object, JSON for all else.
fn brief(result: &Value) -> String {
    let json = |value: &Value| json_text(value, false).unwrap_or_default();
    let Value::Object(members) = result else {
        return json(result);
    };
    let flat = members
        .values()
        .all(|value| !value.is_array() && !value.is_object());
    if members.is_empty() || !flat {
        return json(result);
    }
    let pairs = members.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name}={text}"),
        value => format!("{name}={}", json(value)),
    });
    pairs.collect::<Vec<_>>().join(" ")
}

/// How many of each, in the words of the receipts.
pub(crate) fn summary(parts: &Parts, jobs: &[Job], endings: &[Vec<Ending<'_>>], spent: Duration) {
    let all: Vec<&Ending<'_>> = endings.iter().flatten().collect();
    let words = all.iter().map(|ending| word(parts, ending));
    let words: Vec<&str> = words.collect();
    let counts = SUMMARY_WORDS.map(|word| {
        let count = words.iter().filter(|counted| **counted == word).count();
        (count > 0).then(|| format!("{count} {word}"))
    });
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    let planned: usize = jobs.iter().map(|job| job.plan.actions.len()).sum();
    let raised = match raised(parts, jobs, endings) {
        0 => String::new(),
        raised => format!("; {raised} raised by ALERT"),
    };
    note("");
    note(&format!(
        "{}: {}{raised} · {}",
        actions(all.len()),
        match (counts.is_empty(), planned) {
            (false, _) => counts.join(", "),
            (true, 0) => "nothing to do".to_owned(),
            (true, planned) => format!("none of {planned} came to its end"),
        },
        millis(spent)
    ));
}

/// The same, of what would happen.
pub(crate) fn dry_summary(endings: &[Vec<Ending<'_>>]) {
    let all: Vec<&Ending<'_>> = endings.iter().flatten().collect();
    let count = |fits: fn(&Ending<'_>) -> bool| all.iter().filter(|ending| fits(ending)).count();
    let waiting = match count(|ending| ending.waits_for.is_some()) {
        0 => String::new(),
        waiting => format!(", {waiting} would wait for what is in flight"),
    };
    note("");
    note(&format!(
        "{}, dry run: {} would be sent, {} deduplicated, {} refused{waiting}; nothing was invoked \
         or written",
        actions(all.len()),
        count(|ending| {
            ending.ok && ending.decision != Disposition::Dedup && ending.waits_for.is_none()
        }),
        count(|ending| ending.decision == Disposition::Dedup),
        count(|ending| !ending.ok && ending.waits_for.is_none()),
    ));
}

fn actions(count: usize) -> String {
    format!("{count} action{}", if count == 1 { "" } else { "s" })
}

/// What the summary counts, in this order.
const SUMMARY_WORDS: [&str; 6] = [
    "applied",
    "read",
    "deduplicated",
    "refused",
    "failed",
    "in doubt",
];

fn word(parts: &Parts, ending: &Ending<'_>) -> &'static str {
    let action = ending.action;
    let tool = || parts.registry.tool(&action.connector, &action.tool);
    match (ending.reason, ending.decision) {
        (None, Disposition::Dedup) => "deduplicated",
        (None, _) if tool().is_some_and(|tool| tool.contract.effect == EffectClass::Read) => "read",
        (None, _) => "applied",
        (Some(_), Disposition::Block) => "refused",
        (Some(Reason::InDoubt), _) => "in doubt",
        (Some(_), _) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_flat_result_is_told_without_brackets() {
        assert_eq!(brief(&json!({"a": true, "b": "x y"})), "a=true b=x y");
        assert_eq!(brief(&json!({"a": [1]})), r#"{"a":[1]}"#);
        assert_eq!(brief(&json!(null)), "null");
        assert_eq!(brief(&json!({})), "{}");
    }
}
