//! The command line: every command, option and help text.
//!
//! Owns the words. It must not know what a command does with them.

mod connectors;

use std::path::PathBuf;

use clap::{Args as ArgsOf, Parser, Subcommand};
use operators_kernel::{IdempotencyKey, OperatorName, TenantId, ToolName};

use crate::command::receipts::{
    ExportArgs, HeadArgs, ListArgs, ProveArgs, PruneArgs, ReportArgs, RotateKeyArgs, ShowArgs,
    TailArgs, VerifyArgs, VerifyProofArgs,
};
use crate::filter::{FilterArgs, Moment};

pub(crate) use connectors::{
    ConnectorsAcceptArgs, ConnectorsCommand, ConnectorsListArgs, ConnectorsTestArgs, ImportCommand,
};

const AFTER_HELP: &str = "\
Exit codes:
  0  all ok
  1  could not run
  2  usage
  3  something was refused
  4  an action failed or is in doubt
  5  the log of receipts, or a proof, does not hold

Start with:
  operators init demo
  operators -C demo run --once";

/// Runs plans of actions once, by policy, with a receipt for everything.
#[derive(Debug, Parser)]
#[command(name = "operators", version, after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The project, a folder with `operators.toml` [default: the nearest one upward]
    #[arg(short = 'C', long, global = true, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a working example project
    Init(InitArgs),
    /// Run operators, or one plan
    Run(RunArgs),
    /// Look at a plan without running it
    #[command(subcommand)]
    Plan(PlanCommand),
    /// What policies say, without running anything
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// The audit trail: one receipt per proposal
    #[command(subcommand)]
    Receipts(ReceiptsCommand),
    /// What nobody knows the outcome of, what is in flight, and a person's answer
    #[command(subcommand)]
    Doubts(DoubtsCommand),
    /// The life of one idempotency key
    #[command(subcommand)]
    Keys(KeysCommand),
    /// What waits for a person, and that person's answer
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// What ran under `ALERT`, until a person has seen it
    #[command(subcommand)]
    Alerts(AlertsCommand),
    /// Stop before the next effect, in every process that shares the store
    Pause(PauseArgs),
    /// End a pause
    Resume(PauseArgs),
    /// What can be reached, whether it is well, and new tools from an API's description
    #[command(subcommand)]
    Connectors(ConnectorsCommand),
    /// What is paused, in flight, in doubt, waits for a person or met its limit; acts on nothing
    Status(StatusArgs),
    /// Check that this project is sound
    Doctor(DoctorArgs),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct InitArgs {
    /// Where to write it [default: here]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, ArgsOf)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct RunArgs {
    /// Operators to run, in this order [default: all, by name]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Run once and end. Required: the worker that runs for ever is not in this version
    #[arg(long)]
    pub(crate) once: bool,
    /// Run this plan (`-` reads it from stdin), as NAME's if one is given
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Show what each action would become; invoke nothing, write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Propose nothing more after the first action that is not ok
    #[arg(long)]
    pub(crate) stop_on_failure: bool,
    /// Print one JSON array of results
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

/// Whose keys and receipts.
#[derive(Debug, ArgsOf)]
pub(crate) struct Whose {
    /// Whose keys and receipts [default: `tenant` in operators.toml]
    #[arg(long, value_name = "TENANT", value_parser = |text: &str| TenantId::parse(text))]
    pub(crate) tenant: Option<TenantId>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Read a plan strictly, as a run would, and say where it is wrong
    Check {
        /// The plan; `-` reads it from stdin
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Load every policy file, and say where each is wrong
    Check {
        /// These files alone [default: all of the project]
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Refuse, too, where a rule decides nothing: no tool fits it, or another always outweighs it
        #[arg(long)]
        strict: bool,
        /// Print the problems as JSON lines
        #[arg(long)]
        json: bool,
    },
    /// What becomes of each action of a plan, by which rule, and what every constraint saw; invoke
    /// nothing, look at no store
    Eval(EvalArgs),
    /// Which past decisions would go otherwise under the policies as they are now
    Replay(ReplayArgs),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct EvalArgs {
    /// The plan; `-` reads it from stdin
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// As this operator's plan [default: nobody's by name]
    #[arg(long, value_name = "NAME", value_parser = |text: &str| OperatorName::parse(text))]
    pub(crate) operator: Option<OperatorName>,
    /// The event behind it, a JSON file with the ten fields of an envelope [default: as `run`'s]
    #[arg(long, value_name = "FILE")]
    pub(crate) event: Option<PathBuf>,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct ReplayArgs {
    /// This folder's `.toml` files, or this file, in place of the project's policies
    #[arg(long, value_name = "DIR")]
    pub(crate) policy: Option<PathBuf>,
    /// Show what stays as it was, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptsCommand {
    /// The newest receipts, newest first
    List(ListArgs),
    /// One action's whole story: who proposed it, why it was decided so, every attempt, what came after
    Show(ShowArgs),
    /// The last receipts, oldest first
    Tail(TailArgs),
    /// Every receipt, oldest first, as JSON lines unless another format is asked for
    Export(ExportArgs),
    /// One page of HTML: decisions over time, veto rate, rules, tools, doubts; it needs no network
    Report(ReportArgs),
    /// Recompute the whole log and hold it against its head and every signed checkpoint
    Verify(VerifyArgs),
    /// The log's head as a signed checkpoint
    Head(HeadArgs),
    /// Prove that a receipt is in the log, or that the log only grew since a checkpoint
    Prove(ProveArgs),
    /// Check a proof; needs no project, no store and no network
    VerifyProof(VerifyProofArgs),
    /// Move the texts of old receipts into a file; their hashes stay, and with them every proof
    Prune(PruneArgs),
    /// Replace the key that signs checkpoints, with a receipt that names both
    RotateKey(RotateKeyArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum DoubtsCommand {
    /// Every key in doubt, then every attempt in flight with its owner, oldest first
    List {
        /// Print JSON lines
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        whose: Whose,
    },
    /// Answer a doubt: did it happen?
    Resolve(ResolveArgs),
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Debug, ArgsOf)]
#[command(group = clap::ArgGroup::new("answer").required(true).args(["applied", "not_applied", "write_off"]))]
pub(crate) struct ResolveArgs {
    /// The idempotency key in doubt
    #[arg(value_name = "KEY", value_parser = |text: &str| IdempotencyKey::parse(text))]
    pub(crate) key: IdempotencyKey,
    /// It happened: burn the key
    #[arg(long)]
    pub(crate) applied: bool,
    /// It did not happen: free the key; believed once nothing can land any more
    #[arg(long)]
    pub(crate) not_applied: bool,
    /// Nobody will ever know: never run it again
    #[arg(long)]
    pub(crate) write_off: bool,
    /// Wait until the answer can be believed
    #[arg(long)]
    pub(crate) wait: bool,
    /// What the vendor answered, as JSON, for duplicates to show
    #[arg(long, value_name = "JSON", conflicts_with_all = ["not_applied", "write_off"])]
    pub(crate) result: Option<String>,
    #[command(flatten)]
    pub(crate) decided: Decided,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

/// Who decides; it stands in the receipt.
#[derive(Debug, ArgsOf)]
pub(crate) struct Who {
    /// Who decides [default: `$USER`, or this user's name on this system]
    #[arg(long = "as", value_name = "NAME", value_parser = label)]
    pub(crate) named: Option<String>,
}

/// Who decided, and why; both go into the receipt.
#[derive(Debug, ArgsOf)]
pub(crate) struct Decided {
    /// Why, in words; it stands in the receipt
    #[arg(long, value_name = "TEXT", value_parser = label)]
    pub(crate) because: String,
    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Where a key is in its life, and its receipts
    Show {
        /// The idempotency key
        #[arg(value_name = "KEY", value_parser = |text: &str| IdempotencyKey::parse(text))]
        key: IdempotencyKey,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        whose: Whose,
    },
    /// Open a burned key's next generation: its next proposal is a new effect
    Forget {
        /// The idempotency key
        #[arg(value_name = "KEY", value_parser = |text: &str| IdempotencyKey::parse(text))]
        key: IdempotencyKey,
        #[command(flatten)]
        decided: Decided,
        #[command(flatten)]
        whose: Whose,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// Everything that waits, oldest first
    List {
        /// Print JSON lines
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        whose: Whose,
    },
    /// Let it run when it is proposed again, if the policy still allows it
    Approve(AnswerArgs),
    /// Never let this proposal run
    Veto(AnswerArgs),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct AnswerArgs {
    /// The question's receipt: its whole id, so that nothing is answered but what was seen; given
    /// its key or the end of its id, this shows what is asked and what to type
    #[arg(value_name = "RECEIPT_ID")]
    pub(crate) receipt_id: String,
    #[command(flatten)]
    pub(crate) decided: Decided,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// Everything nobody has acknowledged, oldest first
    List(AlertsListArgs),
    /// Acknowledge: a person has seen it
    Ack(AckArgs),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct AlertsListArgs {
    /// Proposed by this operator
    #[arg(long, value_name = "NAME", value_parser = |text: &str| OperatorName::parse(text))]
    pub(crate) operator: Option<OperatorName>,
    /// On this tool
    #[arg(long, value_name = "TOOL", value_parser = |text: &str| ToolName::parse(text))]
    pub(crate) tool: Option<ToolName>,
    /// Raised at or after this time: RFC 3339, a date, or how long ago (`2h`)
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    pub(crate) since: Option<Moment>,
    /// Those somebody has acknowledged, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, ArgsOf)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "all"]))]
pub(crate) struct AckArgs {
    /// The alerts' receipts: their ids, or the last characters of them (at least 6)
    #[arg(value_name = "RECEIPT_ID")]
    pub(crate) ids: Vec<String>,
    /// Every alert of the tenant that stands now
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) decided: Decided,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct PauseArgs {
    /// Only this operator [default: everything of the tenant]
    #[arg(long, value_name = "NAME", value_parser = |text: &str| OperatorName::parse(text))]
    pub(crate) operator: Option<OperatorName>,
    /// Why, in words; it stands in the receipt
    #[arg(long, value_name = "TEXT", value_parser = label)]
    pub(crate) because: Option<String>,
    #[command(flatten)]
    pub(crate) who: Who,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, ArgsOf)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct DoctorArgs {
    /// Make what the store needs first: a dynamodb table, if it is not there
    #[arg(long)]
    pub(crate) create: bool,
    /// Fail, too, where a rule of a policy decides nothing
    #[arg(long)]
    pub(crate) strict: bool,
    /// Ask every connector how it is; never an effect
    #[arg(long)]
    pub(crate) health: bool,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

/// The longest name or reason that goes into a receipt.
const LABEL_BYTES_MAX: usize = 4_096;

fn label(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("is empty; auditors will read it".to_owned());
    }
    if text.len() > LABEL_BYTES_MAX {
        return Err(format!("is longer than {LABEL_BYTES_MAX} bytes"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }
}
