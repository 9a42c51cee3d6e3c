//! One process from its start to its end, with a bound on everything it does.
//!
//! Owns the process group: whoever stops waiting, by deadline or by leaving, ends all of it; where a
//! supervisor does that, also if this process can not. It must not know what an exit code means.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use operators_kernel::SendPermit;

use crate::command::supervisor::{End, Left, Supervised};
use crate::size::SizeText;

/// How much of stderr is kept: its end, where programs say why they gave up.
const STDERR_BYTES_KEPT: usize = 4 * 1024;

const LATE: &str = "did not end in time and was killed";

/// What a process may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) deadline: Duration,
    /// The largest stdout taken in.
    pub(crate) stdout: SizeText,
}

/// How a process ended by itself.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None`: by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    /// Its last part.
    pub(crate) stderr: String,
}

/// Why there is no end to speak of.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Nothing ran.
    NotStarted(String),
    /// Nothing ran, because nothing may be sent any more.
    NotPermitted(String),
    /// It ran, and what it did is not known.
    Midway(String),
}

/// Runs a command in a group of its own, writes `told` to its stdin, and waits until it has ended
/// and closed its streams. Past the deadline, at too much output, and when this future is dropped,
/// the group is killed.
pub(crate) async fn run(
    mut command: Command,
    told: &[u8],
    bounds: Bounds,
) -> Result<Ended, Failed> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .map_err(|error| Failed::NotStarted(error.to_string()))?;
    // Dropped before the child is: a child that was not waited for keeps its number from being
    // given to somebody else's process.
    let mut group = Group::of(&child);
    let conversation = converse(&mut child, told, bounds.stdout);
    match tokio::time::timeout(bounds.deadline, conversation).await {
        Ok(Ok(ended)) => {
            group.disarm();
            Ok(ended)
        }
        Ok(Err(problem)) => Err(Failed::Midway(problem)),
        Err(_) => Err(Failed::Midway(LATE.to_owned())),
    }
}

/// As [`run`], by way of a supervisor, which ends the group at the call's deadline also if this
/// process is stopped or gone by then. The permit is asked right before the program starts.
pub(crate) async fn run_supervised(
    command: Command,
    told: &[u8],
    bounds: Bounds,
    permit: &SendPermit,
) -> Result<Ended, Failed> {
    let not_started = |problem: String| Failed::NotStarted(problem);
    let started = Supervised::start(command);
    let supervised =
        started.map_err(|error| not_started(format!("its supervisor does not start: {error}")))?;
    let until = Left::until(|| permit.left().unwrap_or(bounds.deadline));
    let until = until.ok_or_else(|| not_started("this system has no clock for it".to_owned()))?;
    let permitted = permit.confirm().await;
    permitted.map_err(|refused| Failed::NotPermitted(refused.message))?;
    let (mut child, mut tell, mut listen) = supervised.take(Some(until), Some(told.len()));
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(not_started("its supervisor has no streams".to_owned()));
    };
    let conversation = async {
        let tell = async {
            tell.all(told).await;
            Ok::<(), String>(())
        };
        let end = async { Ok(listen.end().await) };
        tokio::try_join!(tell, end, whole(stdout, bounds.stdout), last(stderr))
    };
    let midway = |problem: &str| Err(Failed::Midway(problem.to_owned()));
    let ((), end, stdout, stderr) = match tokio::time::timeout(bounds.deadline, conversation).await
    {
        Ok(Ok(ended)) => ended,
        // What it is told through is dropped, and with it its supervisor ends it.
        Ok(Err(problem)) => return midway(&problem),
        Err(_) => return midway(LATE),
    };
    match end {
        End::NotStarted(problem) => Err(not_started(problem)),
        End::Killed => midway(LATE),
        End::Unsupervised => midway("lost its supervisor and was killed"),
        End::Ended(None) if until.is_over() => midway(LATE),
        End::Ended(code) => {
            tell.done().await;
            Ok(Ended {
                code,
                stdout,
                stderr,
            })
        }
    }
}

async fn converse(child: &mut Child, told: &[u8], stdout_max: SizeText) -> Result<Ended, String> {
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("has no streams".to_owned());
    };
    let tell = async {
        // A program need not read what it is told, and may close its stdin at once.
        drop(stdin.write_all(told).await);
        drop(stdin);
        Ok::<(), String>(())
    };
    let ((), stdout, stderr) = tokio::try_join!(tell, whole(stdout, stdout_max), last(stderr))?;
    // Only now: until it is waited for, the group's number stays its own.
    let status = child
        .wait()
        .await
        .map_err(|error| format!("ended unseen: {error}"))?;
    Ok(Ended {
        code: status.code(),
        stdout,
        stderr,
    })
}

async fn whole(mut source: impl AsyncRead + Unpin, max: SizeText) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 8 * 1024];
    loop {
        match source.read(&mut chunk).await {
            Ok(0) => return Ok(bytes),
            Ok(count) if bytes.len() + count > max.bytes() => {
                return Err(format!("wrote more than {max} to stdout and was killed"));
            }
            Ok(count) => bytes.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(error) => return Err(format!("has an unreadable stdout: {error}")),
        }
    }
}

/// Reads to the end but keeps only the last part, so that a chatty program cannot fill memory.
async fn last(mut source: impl AsyncRead + Unpin) -> Result<String, String> {
    let mut kept = Vec::new();
    let mut chunk = vec![0; 8 * 1024];
    while let Ok(count @ 1..) = source.read(&mut chunk).await {
        kept.extend_from_slice(chunk.get(..count).unwrap_or_default());
        let excess = kept.len().saturating_sub(STDERR_BYTES_KEPT);
        kept.drain(..excess);
    }
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

/// A process group that is killed when this is dropped, unless its leader has been waited for.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// The group that this child leads.
    pub(crate) fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.map(Pid::from_raw))
    }

    /// The group of that number, whose leader is not waited for before this is dropped.
    #[cfg(feature = "mcp")]
    pub(crate) fn numbered(group: Pid) -> Self {
        Self(Some(group))
    }

    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0
            && let Err(error) = killpg(group, Signal::SIGKILL)
        {
            tracing::warn!(%group, %error, "a process group could not be killed");
        }
    }
}
