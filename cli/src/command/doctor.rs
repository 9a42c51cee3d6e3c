//! `operators doctor`: is this set-up sound? Looks at everything, changes nothing.

mod outside;
mod store;

use std::path::Path;

use anyhow::Result;
use operators_connectors::Registry;
use operators_kernel::{
    ConnectorName, EntityKey, ExecutionPlan, IdempotencyKey, OnUnknown, PlannedAction, ToolName,
};
use operators_policies::Reach;
use owo_colors::OwoColorize as _;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::compose;
use crate::exit::Exit;
use crate::idle;
use crate::notify::{self, Channel};
use crate::output::{JsonLines, data, hanging, note, shown, unless_gone};
use crate::planner;
use crate::project::Project;
use crate::table::terminal_width;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Health {
    Ok,
    Note,
    Failed,
}

/// One line of the diagnosis.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    health: Health,
    told: String,
}

#[derive(Debug, Default)]
struct Diagnosis(Vec<Finding>);

impl Diagnosis {
    fn add(&mut self, check: &'static str, health: Health, told: impl Into<String>) {
        let told = told.into();
        self.0.push(Finding {
            check,
            health,
            told,
        });
    }

    /// Adds what went well, or the error; hands the value on.
    fn take<T>(
        &mut self,
        check: &'static str,
        outcome: Result<T>,
        well: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        match outcome {
            Ok(value) => {
                let told = well(&value);
                self.add(check, Health::Ok, told);
                Some(value)
            }
            Err(error) => {
                self.add(check, Health::Failed, format!("{error:#}"));
                None
            }
        }
    }
}

pub(crate) async fn run(args: &DoctorArgs, project: Option<&Path>) -> Result<Exit> {
    let mut found = Diagnosis::default();
    let project = found.take("config", Project::open(project), |project| {
        shown(&project.config_file().display())
    });
    if let Some(project) = &project {
        examine(&mut found, project, args).await?;
    }
    let sick = found
        .0
        .iter()
        .filter(|one| one.health == Health::Failed)
        .count();
    if args.json {
        let mut lines = JsonLines::new();
        let written = found.0.iter().try_for_each(|one| lines.line(one));
        unless_gone(written.and_then(|()| lines.flush()))?;
    } else {
        unless_gone(found.0.iter().try_for_each(|one| data(&line(one))))?;
        note("");
        note(&match sick {
            0 => "sound".to_owned(),
            1 => "1 check failed".to_owned(),
            sick => format!("{sick} checks failed"),
        });
    }
    Ok(if sick == 0 {
        Exit::Ok
    } else {
        Exit::CouldNotRun
    })
}

fn line(finding: &Finding) -> String {
    let word = match finding.health {
        Health::Ok => "✓ ok    ".green().to_string(),
        Health::Note => "! note  ".yellow().to_string(),
        Health::Failed => "✗ failed".red().to_string(),
    };
    let plain = format!("{:<10}{:<12}", "", finding.check);
    let mark = format!("{word}  {:<12}", finding.check);
    hanging(&plain, &mark, &shown(&finding.told), terminal_width())
}

async fn examine(found: &mut Diagnosis, project: &Project, args: &DoctorArgs) -> Result<()> {
    let tenant = project.tenant(&args.whose)?;
    let trust = found.take("policies", compose::trust(project), |trust| {
        let rules: usize = trust.all().map(|policy| policy.rules().len()).sum();
        format!(
            "{} in {}",
            counted(rules, "rule"),
            counted(trust.all().count(), "file")
        )
    });
    if trust
        .as_ref()
        .is_some_and(|trust| trust.policies.is_empty())
    {
        let told = "no policy file, so every action is blocked; add one";
        found.add("policies", Health::Note, told);
    }
    let registry = found.take("connectors", compose::registry(project), |registry| {
        let connectors = project.config.connectors.len();
        format!(
            "{} of {}",
            counted(registry.tools().count(), "tool"),
            counted(connectors, "connector")
        )
    });
    if let Some(registry) = &registry {
        at_least_once(found, registry);
    }
    outside::secrets(found, project, &tenant).await?;
    match &registry {
        Some(registry) if args.health => outside::health(found, registry, &tenant).await,
        Some(_) => {
            let told = "no connector was asked how it is; `--health` asks";
            found.add("health", Health::Ok, told);
        }
        None => {}
    }
    if let Some(trust) = &trust {
        let health = if args.strict {
            Health::Failed
        } else {
            Health::Note
        };
        for warning in idle::warnings(project, &trust.policies, &trust.own, registry.as_deref()) {
            found.add("policies", health, warning.told());
        }
    }
    operators(found, project, registry.as_deref());
    let channels = notify::channels(project);
    if !matches!(&channels, Ok(channels) if channels.is_empty()) {
        found.take("notify", channels, |channels| {
            let names: Vec<&str> = channels.iter().map(Channel::name).collect();
            format!("by {}; nobody was told", names.join(" and "))
        });
    }
    let clock = compose::clock();
    store::examine(found, project, &clock, &tenant, args.create).await;
    Ok(())
}

/// Tools that are configured to be sent again without knowing: allowed, and labelled.
fn at_least_once(found: &mut Diagnosis, registry: &Registry) {
    for (connector, name, tool, _) in registry.tools() {
        if tool.contract.on_unknown == OnUnknown::Retry {
            let told = format!("`{connector}:{name}` is at-least-once: `on_unknown = \"retry\"`");
            found.add("connectors", Health::Note, told);
        }
    }
}

fn operators(found: &mut Diagnosis, project: &Project, registry: Option<&Registry>) {
    if project.config.operators.is_empty() {
        found.add(
            "operators",
            Health::Note,
            "none; run plans with `--plan FILE`",
        );
    }
    for (name, operator) in &project.config.operators {
        match (&operator.plan, &operator.command) {
            (Some(plan), _) => {
                let plan = planner::from_file(&project.path(plan));
                found.take("operators", plan, |plan: &ExecutionPlan| {
                    format!(
                        "`{name}`: a plan of {}",
                        counted(plan.actions.len(), "action")
                    )
                });
            }
            (None, Some(command)) => {
                let program = command.first().map_or("", String::as_str);
                let told = format!("`{name}`: planned by `{program}`, which was not run");
                found.add("operators", Health::Ok, told);
            }
            (None, None) => {
                let told = format!("`{name}` has neither `plan` nor `command`; pass `--plan FILE`");
                found.add("operators", Health::Note, told);
            }
        }
        match (&operator.requires, registry) {
            (None, _) => {
                let told = format!(
                    "`{name}` has no `requires`: policies alone bound it; list the tools it needs"
                );
                found.add("operators", Health::Note, told);
            }
            (Some(requires), Some(registry)) => {
                for required in requires {
                    if !reaches_any(&required.reach, registry) {
                        let told = format!("`{name}` requires `{}`: no such tool", required.text);
                        found.add("operators", Health::Failed, told);
                    }
                }
            }
            (Some(_), None) => {}
        }
        if let Some(every) = &operator.every {
            let told = format!(
                "`{name}` asks to run every {every}: the worker is not in this version; \
                 use `operators run {name} --once` from cron or a systemd timer"
            );
            found.add("operators", Health::Note, told);
        }
    }
}

fn reaches_any(reach: &Reach, registry: &Registry) -> bool {
    let covers = |connector: &ConnectorName, tool: &ToolName| {
        let (Ok(entity_key), Ok(idempotency_key)) =
            (EntityKey::parse("doctor"), IdempotencyKey::parse("doctor"))
        else {
            return false;
        };
        reach.covers(&PlannedAction {
            connector: connector.clone(),
            tool: tool.clone(),
            args: serde_json::Map::new().into(),
            value: None,
            entity_key,
            idempotency_key,
            revision: None,
            source_id: None,
            index_hash: None,
        })
    };
    registry
        .tools()
        .any(|(connector, tool, ..)| covers(connector, tool))
}

fn counted(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}
