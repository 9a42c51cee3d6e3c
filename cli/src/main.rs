//! The `operators` command: parses, picks the command, returns its exit code.

mod args;
mod command;
mod compose;
mod config;
mod deliver;
mod exit;
mod filter;
mod idle;
mod interrupts;
mod locate;
mod log;
mod notary;
mod notice;
mod notify;
mod open_ends;
mod output;
mod person;
mod planner;
mod project;
mod table;
mod unseen;
mod words;

use std::ffi::OsString;
use std::panic::PanicHookInfo;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use crate::args::{Args, Command, RunArgs};
use crate::exit::Exit;

/// What `operators` calls itself as; people have no use for it.
const SUPERVISE: &str = "supervise";

const NO_WORKER: &str = "the worker is not in this version; use `operators run --once`";

fn main() -> Exit {
    std::panic::set_hook(Box::new(panicked));
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == SUPERVISE) {
        return supervise(&words.collect::<Vec<_>>());
    }
    let args = match Args::try_parse().and_then(checked) {
        Ok(args) => args,
        Err(error) => return usage(error),
    };
    log::start();
    match dispatch(args) {
        Ok(exit) => exit,
        // Whoever read our output has seen enough.
        Err(error) if output::is_reader_gone(&error) => Exit::Ok,
        Err(error) => {
            output::error(&error);
            Exit::CouldNotRun
        }
    }
}

/// Ends one program in time, for another process of ours that may not be able to.
fn supervise(program: &[OsString]) -> Exit {
    match operators_connectors::supervise(program) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            output::warn(&format!(
                "`{SUPERVISE}` is started by `operators` itself, for a program of a connector: {error}"
            ));
            Exit::Usage
        }
    }
}

fn dispatch(args: Args) -> Result<Exit> {
    let project = args.project.as_deref();
    match args.command {
        Command::Init(init) => command::init::run(&init, project),
        Command::Plan(plan) => command::plan::run(&plan),
        waiting => {
            // One thread: a run awaits one action at a time, and starting more costs time.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("no runtime")?;
            let outcome = runtime.block_on(dispatch_waiting(waiting, project));
            // A call that was given up must not keep the process.
            runtime.shutdown_background();
            outcome
        }
    }
}

async fn dispatch_waiting(command: Command, project: Option<&Path>) -> Result<Exit> {
    match command {
        Command::Init(args) => command::init::run(&args, project),
        Command::Plan(args) => command::plan::run(&args),
        Command::Run(args) => Box::pin(command::run::run(&args, project)).await,
        Command::Policy(args) => Box::pin(command::policy::run(args, project)).await,
        Command::Receipts(args) => Box::pin(command::receipts::run(args, project)).await,
        Command::Doubts(args) => Box::pin(command::doubts::run(args, project)).await,
        Command::Keys(args) => Box::pin(command::keys::run(args, project)).await,
        Command::Alerts(args) => Box::pin(command::alerts::run(args, project)).await,
        Command::Approvals(args) => Box::pin(command::approvals::run(args, project)).await,
        Command::Pause(args) => Box::pin(command::pause::pause(&args, project)).await,
        Command::Resume(args) => Box::pin(command::pause::resume(&args, project)).await,
        Command::Connectors(args) => Box::pin(command::connectors::run(args, project)).await,
        Command::Status(args) => Box::pin(command::status::run(&args, project)).await,
        Command::Doctor(args) => Box::pin(command::doctor::run(&args, project)).await,
    }
}

/// What clap alone does not check.
fn checked(args: Args) -> Result<Args, clap::Error> {
    let refuse = |kind, problem: &str| {
        let mut command = Args::command();
        command.build();
        // The usage shown is the command's own.
        Err(match command.find_subcommand_mut("run") {
            Some(run) => run.error(kind, problem),
            None => command.error(kind, problem),
        })
    };
    match &args.command {
        Command::Run(RunArgs { once: false, .. }) => {
            refuse(ErrorKind::MissingRequiredArgument, NO_WORKER)
        }
        Command::Run(RunArgs {
            names,
            plan: Some(_),
            ..
        }) if names.len() > 1 => refuse(
            ErrorKind::ArgumentConflict,
            "`--plan` is one operator's plan; name one operator, or none",
        ),
        _ => Ok(args),
    }
}

/// Help and version are answers; everything else is a mistake on the command line.
fn usage(error: clap::Error) -> Exit {
    let error = output::harmless(error);
    // When the stream is gone there is nobody left to tell.
    drop(error.print());
    if error.use_stderr() {
        Exit::Usage
    } else {
        Exit::Ok
    }
}

/// Says where, never what: the message of a connector's panic may hold a credential.
fn panicked(info: &PanicHookInfo<'_>) {
    let place = info
        .location()
        .map_or_else(String::new, |at| format!(" at {at}"));
    output::warn(&format!("something panicked{place}; please report it"));
}
