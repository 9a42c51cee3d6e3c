//! `operators policy`: what policies say, without running anything.

mod check;
mod eval;
mod replay;

use std::path::Path;

use anyhow::Result;

use crate::args::PolicyCommand;
use crate::exit::Exit;
use crate::project::Project;

pub(crate) async fn run(command: PolicyCommand, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    match command {
        PolicyCommand::Check {
            files,
            strict,
            json,
        } => check::run(&project, &files, strict, json),
        PolicyCommand::Eval(args) => eval::run(&project, &args).await,
        PolicyCommand::Replay(args) => replay::run(&project, args).await,
    }
}
