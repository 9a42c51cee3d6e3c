//! A credential that a program prints: a password manager, a vault's command line.
//!
//! It sees the environment of this process, because such programs need their own variables. What
//! it says on stderr is not shown: it may be the secret.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use operators_kernel::Secret;

use crate::command::process::{self, Bounds, Failed};
use crate::secrets::text;
use crate::size::ANSWER_DEFAULT;

/// How long it may take when nothing is said: some ask a person.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Runs it in the project's folder and takes its stdout.
pub(crate) async fn print(
    argv: &[String],
    dir: &Path,
    deadline: Duration,
) -> Result<Secret, String> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err("there is no program to ask".to_owned());
    };
    let name = program.escape_debug();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir);
    let bounds = Bounds {
        deadline,
        stdout: ANSWER_DEFAULT,
    };
    let ended = process::run(command, &[], bounds)
        .await
        .map_err(|failed| match failed {
            Failed::NotStarted(problem) => format!("`{name}` does not start: {problem}"),
            Failed::NotPermitted(problem) | Failed::Midway(problem) => {
                format!("`{name}` {problem}")
            }
        })?;
    match ended.code {
        Some(0) => text::secret(ended.stdout).map_err(|problem| format!("`{name}` {problem}")),
        Some(code) => Err(format!(
            "`{name}` ended with exit code {code}; run it yourself to see why"
        )),
        None => Err(format!("`{name}` was ended by a signal")),
    }
}
