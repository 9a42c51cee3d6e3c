//! `operators policy check`: every problem of every policy file, with its place, and every rule that
//! decides nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use operators_policies::{Policy, PolicyError, PolicyProblems, loading};
use serde::Serialize;

use crate::compose::{self, Trust};
use crate::exit::Exit;
use crate::idle::{self, Warning};
use crate::output::{self, JsonLines, data, shown, unless_gone};
use crate::project::Project;

/// A problem, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    severity: &'static str,
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    problem: &'a str,
    remedy: &'a str,
}

impl<'a> Told<'a> {
    fn of(error: &'a PolicyError) -> Self {
        let (line, column) = error.place().unzip();
        Self {
            severity: "error",
            file: error.file().display().to_string(),
            line,
            column,
            problem: error.problem(),
            remedy: error.remedy(),
        }
    }

    fn of_warning(warning: &'a Warning) -> Self {
        Self {
            severity: "warning",
            file: warning.file.clone(),
            line: warning.line,
            column: None,
            problem: &warning.problem,
            remedy: warning.remedy,
        }
    }
}

pub(crate) fn run(project: &Project, files: &[PathBuf], strict: bool, json: bool) -> Result<Exit> {
    let chosen = if files.is_empty() {
        compose::policy_files(project)?
    } else {
        files.to_vec()
    };
    let mut problems: Vec<PolicyError> = Vec::new();
    let mut loaded = Vec::new();
    let read = || chosen.iter().map(|file| compose::policy(project, file));
    for read in loading(|| read().collect::<Vec<_>>()) {
        match read {
            Ok(policy) => loaded.push(policy),
            Err(found) => problems.extend(found.iter().cloned()),
        }
    }
    // Whether they go together, and what decides nothing, can only be told when each of them loads.
    let mut trust = None;
    if problems.is_empty() && files.is_empty() {
        match together(project)? {
            Ok(all) => trust = Some(all),
            Err(problem) => problems.push(problem),
        }
    }
    // A project whose connectors do not load has policies all the same.
    let registry = compose::registry(project);
    let none = BTreeMap::new();
    let (policies, own) = match &trust {
        Some(trust) => (&trust.policies, &trust.own),
        None => (&loaded, &none),
    };
    let warnings = if problems.is_empty() {
        let registry = registry.as_ref().ok().map(|registry| &**registry);
        idle::warnings(project, policies, own, registry)
    } else {
        Vec::new()
    };
    if let Err(error) = &registry {
        output::warn(&format!(
            "the connectors do not load, so whether tools fit the rules was not looked at: {}",
            shown(&format!("{error:#}"))
        ));
    }
    let found = Found {
        loaded: &loaded,
        problems: &problems,
        warnings: &warnings,
    };
    if json {
        unless_gone(found.json())?;
    } else {
        found.tell(chosen.len())?;
    }
    let is_idle = !warnings.is_empty() || registry.is_err();
    Ok(match (problems.is_empty(), strict && is_idle) {
        (false, _) => Exit::CouldNotRun,
        (true, true) => {
            output::note("refused: `--strict` wants every rule to decide something");
            Exit::Refused
        }
        (true, false) => Exit::Ok,
    })
}

/// What was found in all the files.
struct Found<'a> {
    loaded: &'a [Policy],
    problems: &'a [PolicyError],
    warnings: &'a [Warning],
}

impl Found<'_> {
    fn json(&self) -> std::io::Result<()> {
        let mut lines = JsonLines::new();
        let errors = self.problems.iter().map(Told::of);
        let mut told = errors.chain(self.warnings.iter().map(Told::of_warning));
        told.try_for_each(|one| lines.line(&one))?;
        lines.flush()
    }

    fn tell(&self, files: usize) -> Result<()> {
        let mut told = self.loaded.iter().map(|policy| {
            let reference = policy.reference();
            format!(
                "{}: ok, policy `{}` version {}, {}",
                shown(&policy.file().display()),
                shown(&reference.name),
                reference.version,
                counted(policy.rules().len(), "rule"),
            )
        });
        unless_gone(told.try_for_each(|one| data(&one)))?;
        for problem in self.problems {
            output::error(&anyhow::anyhow!("{problem}"));
        }
        for warning in self.warnings {
            output::warn(&warning.told());
        }
        match (files, self.problems.len()) {
            (0, _) => output::warn("there is no policy file, so every action is blocked"),
            (_, 0) => {}
            (_, count) => output::note(&format!(
                "{}; nothing runs until there is none",
                counted(count, "problem")
            )),
        }
        Ok(())
    }
}

/// All policies of the project, or what is wrong between files that each load.
fn together(project: &Project) -> Result<Result<Trust, PolicyError>> {
    match compose::trust(project) {
        Ok(trust) => Ok(Ok(trust)),
        Err(error) => match error.downcast::<PolicyError>() {
            Ok(problem) => Ok(Err(PolicyProblems::from(problem).first)),
            Err(error) => Err(error),
        },
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
