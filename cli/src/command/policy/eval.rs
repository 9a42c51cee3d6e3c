//! `operators policy eval`: what the policies say of a plan, rule by rule. It invokes nothing, and
//! looks at no store.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use operators_kernel::{
    Disposition, EffectClass, EventEnvelope, ExecutionPlan, Forecast, PlannedAction, PolicyRef,
    Reason, RunContext, ToolRegistry as _, TrustPolicy as _, TrustQuestion, forecast, json,
};
use operators_policies::{Check, Explanation, Finding};
use operators_seams::MemoryStore;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::args::EvalArgs;
use crate::command::run::decision;
use crate::compose::{Parts, Trust};
use crate::exit::Exit;
use crate::output::{self, data, json_text, shown};
use crate::planner;
use crate::project::{Project, read_text};
use crate::table::{Column, Table, Text, terminal_width};

/// The largest event: what a plan's arguments may be, and some room.
const EVENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What stands for a secret argument here: its hash would say nothing.
const HIDDEN: &str = "(hidden)";

/// One action, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Evaluated<'a> {
    connector: &'a str,
    tool: &'a str,
    entity_key: &'a str,
    idempotency_key: &'a str,
    decision: Disposition,
    /// Whether the rules were asked: they are not of a read, an unknown tool, or arguments that do not
    /// fit.
    weighed: bool,
    reason: Option<Reason>,
    error: Option<&'a str>,
    rule: Option<&'a str>,
    policy: Option<&'a PolicyRef>,
    because: Option<String>,
    rules: Vec<Asked<'a>>,
}

/// A rule for the action's tool.
#[derive(Debug, Serialize)]
struct Asked<'a> {
    policy: &'a str,
    rule: &'a str,
    place: String,
    decision: &'a str,
    /// Whether its `if` lets it speak of the action.
    speaks: bool,
    /// Whether all that it asks for holds.
    holds: bool,
    checks: Vec<Checked>,
}

/// A constraint, and what it saw.
#[derive(Debug, Serialize)]
struct Checked {
    constraint: &'static str,
    text: Option<String>,
    holds: bool,
    told: String,
    saw: Map<String, Value>,
}

pub(crate) async fn run(project: &Project, args: &EvalArgs) -> Result<Exit> {
    let parts = Parts::load(project)?;
    let plan = planner::from_file(&args.plan)?;
    let context = context(project, &parts, args)?;
    let mut exit = Exit::Ok;
    let mut forecasts = Vec::with_capacity(plan.actions.len());
    for action in &plan.actions {
        // Each alone, on a store that knows nothing: what trust says does not depend on either.
        let store = Arc::new(MemoryStore::new(Arc::clone(&parts.clock)));
        let alone = ExecutionPlan {
            reasoning: None,
            actions: vec![action.clone()],
        };
        let told = forecast(&parts.seams(store), &context, &alone).await?;
        let told = told.into_iter().next().context("no forecast")?;
        exit = exit.worst(Exit::of_reason(told.reason));
        forecasts.push(told);
    }
    let explained: Vec<Option<Explanation<'_>>> = plan
        .actions
        .iter()
        .zip(&forecasts)
        .map(|(action, told)| explain(&parts, &context, action, told))
        .collect();
    let evaluated: Vec<Evaluated<'_>> = forecasts
        .iter()
        .zip(&explained)
        .map(|(told, explained)| evaluated(&parts.trust, &context, told, explained.as_ref()))
        .collect();
    if args.json {
        output::unless_gone(output::json(&evaluated, true))?;
    } else {
        output::unless_gone(data(&table(&evaluated)))?;
        for (index, one) in evaluated.iter().enumerate() {
            output::unless_gone(data(&block(index + 1, one)))?;
        }
    }
    Ok(exit)
}

fn context(project: &Project, parts: &Parts, args: &EvalArgs) -> Result<RunContext> {
    let tenant = project.tenant(&args.whose)?;
    let clock = &*parts.clock;
    if let Some(name) = &args.operator
        && !project.config.operators.contains_key(name)
    {
        bail!("no operator `{name}` in the project");
    }
    let event = if let Some(file) = &args.event {
        let text = read_text(file, EVENT_BYTES_MAX)?;
        json::parse_as::<EventEnvelope>(&text)
            .with_context(|| format!("`{}` is no event", shown(&file.display())))?
    } else {
        // As `run` makes one.
        let (source, kind) = ("cli", "operator.run");
        EventEnvelope::new(clock, tenant.clone(), source, kind, Map::new(), None)
    };
    Ok(RunContext {
        operator: args.operator.clone(),
        event: Some(event.into()),
        ..RunContext::new(clock, tenant)
    })
}

/// What the rules say, where they are asked.
fn explain<'a>(
    parts: &'a Parts,
    context: &RunContext,
    action: &PlannedAction,
    told: &Forecast,
) -> Option<Explanation<'a>> {
    let tool = parts.registry.tool(&action.connector, &action.tool)?;
    let asked = tool.contract.effect != EffectClass::Read
        && matches!(
            told.reason,
            None | Some(Reason::Policy | Reason::AwaitingApproval)
        );
    asked.then(|| parts.trust.rules.explain(&question(context, action)))
}

fn question<'a>(context: &'a RunContext, action: &'a PlannedAction) -> TrustQuestion<'a> {
    TrustQuestion {
        tenant: &context.tenant,
        operator: context.operator.as_ref(),
        action,
        event: context.event.as_deref(),
    }
}

fn evaluated<'a>(
    trust: &'a Trust,
    context: &RunContext,
    told: &'a Forecast,
    explained: Option<&'a Explanation<'a>>,
) -> Evaluated<'a> {
    let ruling = explained.map(|explained| &explained.ruling);
    // A read that trust blocks: no rule was asked, but its operator's reach was.
    let of_read = (explained.is_none() && told.reason == Some(Reason::Policy)).then(|| {
        let question = question(context, &told.action);
        trust.rules.evaluate_read(&question)
    });
    let mut rules: Vec<Asked<'a>> = Vec::new();
    if let Some(explained) = explained {
        let findings = explained.findings.iter().chain(&explained.silent);
        rules.extend(findings.map(|finding| asked(trust, context, &told.action, finding)));
    }
    Evaluated {
        connector: told.action.connector.as_str(),
        tool: told.action.tool.as_str(),
        entity_key: told.action.entity_key.as_str(),
        idempotency_key: told.action.idempotency_key.as_str(),
        decision: told.decision,
        weighed: explained.is_some(),
        reason: told.reason,
        error: told.error.as_deref(),
        rule: ruling.and_then(|ruling| ruling.rule.as_deref()),
        policy: ruling.and_then(|ruling| ruling.policy.as_deref()),
        because: ruling
            .or(of_read.as_ref())
            .and_then(|ruling| ruling.because.clone()),
        rules,
    }
}

fn asked<'a>(
    trust: &'a Trust,
    context: &RunContext,
    action: &PlannedAction,
    finding: &'a Finding<'a>,
) -> Asked<'a> {
    let of_policy = trust.all().find(|one| *one.reference() == **finding.policy);
    let file = of_policy.map(|policy| policy.file().display().to_string());
    let question = question(context, action);
    let checked = |check: Check<'_>| {
        let (text, predicate) = match check {
            Check::If { text, .. } => (Some(text.to_owned()), finding.rule.only_if()),
            Check::Require { text, .. } => (Some(text.to_owned()), finding.rule.require()),
            _ => (None, None),
        };
        let readings = predicate.map(|predicate| predicate.readings(&question));
        let readings = readings.unwrap_or_default().into_iter();
        Checked {
            constraint: check.word(),
            text,
            holds: check.holds(),
            told: check.to_string(),
            saw: readings
                .map(|(path, value)| (path, value.map_or(Value::Null, hidden)))
                .collect(),
        }
    };
    Asked {
        policy: &finding.policy.name,
        rule: finding.rule.name(),
        place: format!("{}:{}", file.unwrap_or_default(), finding.rule.line()),
        decision: Disposition::from(finding.rule.decision()).as_str(),
        speaks: !finding.is_silent(),
        holds: finding.holds(),
        checks: finding.checks().map(checked).collect(),
    }
}

/// The value without the hashes that stand for secrets.
fn hidden(value: Value) -> Value {
    match value {
        Value::String(text) if text.starts_with("hmac-sha256:") => Value::from(HIDDEN),
        Value::Array(items) => items.into_iter().map(hidden).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields.map(|(name, value)| (name, hidden(value))).collect()
        }
        other => other,
    }
}

fn table(evaluated: &[Evaluated<'_>]) -> String {
    let mut table = Table::new(&[
        Column::fixed("#"),
        Column::fixed("decision"),
        Column::yielding("tool", 10),
        Column::yielding("entity", 10),
        Column::yielding("rule", 10),
        Column::yielding("why", 12),
    ]);
    for (index, one) in evaluated.iter().enumerate() {
        let because = one.because.as_deref();
        let why = match (because, one.error, one.weighed) {
            (_, Some(error), true) if one.reason == Some(Reason::AwaitingApproval) => {
                let because = because.map(|because| format!("; {because}"));
                format!("{error}{}", because.unwrap_or_default())
            }
            (Some(because), _, _) => because.to_owned(),
            (None, Some(error), false) => error.to_owned(),
            (None, None, false) => "a read: no rule speaks of it".to_owned(),
            (None, _, true) => String::new(),
        };
        table.row([
            Text::plain(&(index + 1)),
            decision(one.decision),
            Text::plain(&format!("{}:{}", one.connector, one.tool)),
            Text::plain(one.entity_key),
            Text::plain(one.rule.unwrap_or("-")),
            Text::plain(&why),
        ]);
    }
    table.render(terminal_width())
}

/// Everything that was asked about one action.
fn block(number: usize, one: &Evaluated<'_>) -> String {
    let mut text = format!("\n{number}  {}:{}", one.connector, one.tool);
    if one.weighed && one.rules.is_empty() {
        text.push_str("\n   no rule is for this tool");
    }
    for asked in &one.rules {
        let speaks = match (asked.speaks, asked.holds) {
            (false, _) => "does not speak of it".to_owned(),
            (true, true) => format!("says {}", asked.decision),
            (true, false) => "fails, so BLOCK".to_owned(),
        };
        // Writing to a String cannot fail.
        let _infallible = write!(
            text,
            "\n   rule `{}` ({}) {speaks}",
            shown(asked.rule),
            shown(&asked.place)
        );
        for check in &asked.checks {
            let mark = if check.holds { "yes" } else { "no " };
            let _infallible = write!(text, "\n     {mark}  {}", shown(&check.told));
            for (path, value) in &check.saw {
                let value = json_text(value, false).unwrap_or_default();
                let _infallible = write!(text, "\n            {} = {}", shown(path), shown(&value));
            }
        }
    }
    text
}
