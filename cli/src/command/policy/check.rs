//! `operators policy check`: every problem of every policy file, with its place.

use std::path::PathBuf;

use anyhow::Result;
use operators_policies::{PolicyError, PolicyProblems, loading};
use serde::Serialize;

use crate::compose;
use crate::exit::Exit;
use crate::output::{self, JsonLines, data, shown, unless_gone};
use crate::project::Project;

/// A problem, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Told<'a> {
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
            file: error.file().display().to_string(),
            line,
            column,
            problem: error.problem(),
            remedy: error.remedy(),
        }
    }
}

pub(crate) fn run(project: &Project, files: &[PathBuf], json: bool) -> Result<Exit> {
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
    // Whether they go together can only be told when each of them loads.
    if problems.is_empty() && files.is_empty() {
        problems.extend(together(project)?);
    }
    if json {
        let mut lines = JsonLines::new();
        let mut told = problems.iter().map(Told::of);
        let written = told.try_for_each(|one| lines.line(&one));
        unless_gone(written.and_then(|()| lines.flush()))?;
    } else {
        let mut told = loaded.iter().map(|policy| {
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
        for problem in &problems {
            output::error(&anyhow::anyhow!("{problem}"));
        }
        match (chosen.len(), problems.len()) {
            (0, _) => output::warn("there is no policy file, so every action is blocked"),
            (_, 0) => {}
            (_, count) => output::note(&format!(
                "{}; nothing runs until there is none",
                counted(count, "problem")
            )),
        }
    }
    Ok(if problems.is_empty() {
        Exit::Ok
    } else {
        Exit::CouldNotRun
    })
}

/// What is wrong between files that each load.
fn together(project: &Project) -> Result<Option<PolicyError>> {
    let Err(error) = compose::trust(project) else {
        return Ok(None);
    };
    match error.downcast::<PolicyError>() {
        Ok(problem) => Ok(Some(PolicyProblems::from(problem).first)),
        Err(error) => Err(error),
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
