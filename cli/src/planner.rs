//! Where plans come from: a file, stdin, or a program that prints one.
//!
//! Owns the bounds on reading them. It must not know what becomes of a plan.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use operators_connectors::ProjectSecrets;
use operators_kernel::json::JsonError;
use operators_kernel::{EventEnvelope, ExecutionPlan, PLAN_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::locate;
use crate::output::{note, shown};
use crate::project::{bounded_text, checked_text, read_text};

/// The path that means stdin.
pub(crate) const STDIN: &str = "-";

/// How long a planner may think: an answer of a large model fits in, a hang does not.
const COMMAND_DEADLINE: Duration = Duration::from_mins(1);

/// How much of what a planner says on stderr is kept, and how many lines of it are shown.
const STDERR_BYTES_MAX: usize = 64 * 1024;
const STDERR_LINES_SHOWN: usize = 5;

/// Reads a plan from a file, or from stdin for `-`.
pub(crate) fn from_file(file: &Path) -> Result<ExecutionPlan> {
    if file == Path::new(STDIN) {
        if std::io::stdin().is_terminal() {
            note("reading a plan from the terminal; end it with Ctrl-D");
        }
        let text = bounded_text(std::io::stdin().lock(), PLAN_BYTES_MAX).context("stdin")?;
        return parse("stdin", &text);
    }
    let text = read_text(file, PLAN_BYTES_MAX)?;
    parse(&file.display().to_string(), &text)
}

/// Parses a plan; an error says where in `name` it is wrong.
fn parse(name: &str, text: &str) -> Result<ExecutionPlan> {
    ExecutionPlan::parse(text).map_err(|error| {
        let name = shown(name);
        let JsonError { place, problem } = &error;
        let problem = shown(problem);
        if let Some((line, column)) = line_and_column(place) {
            // Of what ends before it begins, the reader counts from 0.
            let column = if column == "0" { "1" } else { column };
            return anyhow!("{name}:{line}:{column}: {problem}");
        }
        let (line, column) = match locate::in_json(text, place) {
            Some(at) => locate::line_column(text, at),
            None => (1, 1),
        };
        anyhow!("{name}:{line}:{column}: `{}`: {problem}", shown(place))
    })
}

/// Reads `line L column C`, which stands for a place where the text is not JSON at all.
fn line_and_column(place: &str) -> Option<(&str, &str)> {
    place.strip_prefix("line ")?.split_once(" column ")
}

/// Runs a program in the project's folder, without a shell, with the envelope on its stdin, and
/// takes what it prints as a plan.
pub(crate) async fn from_command(
    argv: &[String],
    dir: &Path,
    envelope: &EventEnvelope,
    secrets: &ProjectSecrets,
) -> Result<ExecutionPlan> {
    let [program, arguments @ ..] = argv else {
        bail!("`command` is empty");
    };
    let envelope = serde_json::to_vec(envelope)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // A planner proposes; the credentials are the connectors' alone.
    for (name, _) in std::env::vars_os() {
        if secrets.is_secret_variable(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    let name = shown(program);
    let child = command
        .spawn()
        .with_context(|| format!("the planner `{name}` does not start"))?;
    let said = tokio::time::timeout(COMMAND_DEADLINE, converse(child, &envelope));
    let said = said.await.map_err(|_| {
        let seconds = COMMAND_DEADLINE.as_secs();
        anyhow!("the planner `{name}` printed no plan within {seconds} s and was ended")
    })?;
    let said = said.with_context(|| format!("the planner `{name}`"))?;
    if !said.succeeded {
        bail!(
            "the planner `{name}` {}{}",
            said.ending,
            last_lines(&said.stderr)
        );
    }
    let text = checked_text(said.stdout, PLAN_BYTES_MAX)
        .with_context(|| format!("the plan of the planner `{name}`"))?;
    parse(&format!("stdout of {name}"), &text)
}

struct Said {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    succeeded: bool,
    ending: String,
}

async fn converse(mut child: Child, envelope: &[u8]) -> Result<Said> {
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        bail!("its streams are not there");
    };
    let tell = async {
        // A planner need not read its envelope, and may close its stdin at once.
        drop(stdin.write_all(envelope).await);
        drop(stdin);
    };
    let ((), stdout, stderr) = tokio::join!(tell, plan_text(stdout), last_bytes(stderr));
    let stdout = stdout.context("what it prints cannot be read")?;
    if stdout.len() > PLAN_BYTES_MAX {
        // It may go on for ever; `kill_on_drop` ends it.
        bail!("prints more than {PLAN_BYTES_MAX} bytes");
    }
    let status = child.wait().await.context("its end cannot be seen")?;
    Ok(Said {
        stdout,
        stderr,
        succeeded: status.success(),
        ending: match status.code() {
            Some(code) => format!("failed with exit code {code}"),
            None => format!("was ended ({status})"),
        },
    })
}

async fn plan_text(source: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let bound = u64::try_from(PLAN_BYTES_MAX).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    source
        .take(bound.saturating_add(1))
        .read_to_end(&mut bytes)
        .await?;
    Ok(bytes)
}

/// Reads to the end but keeps only the last part, so that a chatty planner cannot fill memory.
async fn last_bytes(mut source: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut chunk = vec![0; 8 * 1024];
    while let Ok(count @ 1..) = source.read(&mut chunk).await {
        kept.extend_from_slice(chunk.get(..count).unwrap_or_default());
        let excess = kept.len().saturating_sub(STDERR_BYTES_MAX);
        kept.drain(..excess);
    }
    kept
}

fn last_lines(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let start = lines.len().saturating_sub(STDERR_LINES_SHOWN);
    let last = lines.get(start..).unwrap_or_default();
    last.iter()
        .fold(String::new(), |told, line| format!("{told}\n| {line}"))
}

#[cfg(test)]
mod tests {
    use operators_kernel::TenantId;
    use operators_seams::SystemClock;

    use super::*;

    async fn planned(script: &str) -> Result<ExecutionPlan> {
        let tenant = TenantId::parse("acme").expect("tenant");
        let clock = SystemClock::new();
        let payload = serde_json::Map::new();
        let envelope = EventEnvelope::new(&clock, tenant, "cli", "operator.run", payload, None);
        let none = std::collections::BTreeMap::new();
        let secrets = ProjectSecrets::build(&none, Path::new(".")).expect("no entries");
        let argv = ["sh", "-c", script].map(str::to_owned);
        from_command(&argv, Path::new("."), &envelope, &secrets).await
    }

    #[test]
    fn a_bad_plan_names_line_column_and_path() {
        let text = "{\"actions\": [\n  {\"connector\": \"Shop\"}\n]}";
        let error = parse("p.json", text).expect_err("bad").to_string();
        assert!(
            error.starts_with("p.json:2:4: `/actions/0/connector`: "),
            "{error}"
        );
        let error = parse("p.json", "{\n  nope").expect_err("bad").to_string();
        assert!(error.starts_with("p.json:2:"), "{error}");
    }

    #[tokio::test]
    async fn a_planner_gets_the_envelope_and_prints_a_plan() {
        let plan = planned("grep -q '\"tenant_id\":\"acme\"' && echo '{\"actions\":[]}'").await;
        assert!(plan.expect("a plan").actions.is_empty());
    }

    #[tokio::test]
    async fn a_planner_that_fails_is_quoted() {
        let error = planned("echo one >&2; echo two >&2; exit 7")
            .await
            .expect_err("fails");
        let error = error.to_string();
        assert!(error.contains("exit code 7\n| one\n| two"), "{error}");
    }

    #[tokio::test]
    async fn a_planner_that_prints_no_plan_is_refused() {
        let error = planned("echo hello")
            .await
            .expect_err("no plan")
            .to_string();
        assert!(error.starts_with("stdout of sh:1:"), "{error}");
        let endless = format!("head -c {} /dev/zero", PLAN_BYTES_MAX + 2);
        let error = format!("{:#}", planned(&endless).await.expect_err("too much"));
        assert!(error.contains("more than"), "{error}");
    }
}
