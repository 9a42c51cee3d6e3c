//! A program's supervisor, seen from the process that wants the program: told what to start and until
//! when, and listened to.
//!
//! A supervisor is a small process that starts one program and ends it at its deadline, or when the
//! process that asked for it is gone. It has a session of its own, so what ends or stops that process
//! does not reach it. What the two say to each other stands in `supervise`.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Socket;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};

use crate::config::ConnectorConfig;

use super::supervise::{DONE, Orders, Report, VERB, VERSION, since_boot};

/// The program that supervises: `operators`.
#[derive(Debug, Clone)]
pub(crate) struct Supervisor {
    program: String,
}

/// A supervisor that was started and told nothing yet. Dropped, it ends whatever it started.
#[derive(Debug)]
pub(crate) struct Supervised {
    pub(crate) child: Child,
    orders: OwnedWriteHalf,
    reports: Lines<BufReader<OwnedReadHalf>>,
}

impl Supervisor {
    /// The one that a configuration names, if it names one and the system has the clock it needs. With
    /// a slash in it, it is a path seen from the project.
    pub(crate) fn of(config: &ConnectorConfig, base_dir: &Path) -> Option<Self> {
        let program = config.supervisor.as_ref()?;
        since_boot()?;
        let program = if program.contains('/') {
            base_dir.join(program).to_string_lossy().into_owned()
        } else {
            program.clone()
        };
        Some(Self { program })
    }

    /// The arguments that start it for a program, its own name first.
    pub(crate) fn argv(&self, program: &[String]) -> Vec<String> {
        let own = [self.program.clone(), VERB.to_owned()];
        own.into_iter().chain(program.iter().cloned()).collect()
    }
}

impl Supervised {
    /// Starts a supervisor that was put together with [`Supervisor::argv`].
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        let (ours, theirs) = Socket::pair()?;
        ours.set_nonblocking(true)?;
        let (read, orders) = UnixStream::from_std(ours)?.into_split();
        let child = command
            .arg0(OsString::from("operators"))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // With it goes our copy of the supervisor's end: only it may keep that open.
        drop(command);
        Ok(Self {
            child,
            orders,
            reports: BufReader::new(read).lines(),
        })
    }

    /// Lets it start the program, and end it in so long.
    pub(crate) fn take(self, left: Option<Left>, told: Option<usize>) -> (Child, Tell, Listen) {
        let orders = Orders {
            version: VERSION,
            until: left.map(|left| left.0),
            told,
        };
        let tell = Tell {
            orders: self.orders,
            header: orders.line(),
        };
        let listen = Listen {
            reports: self.reports,
            group: None,
            is_starting: false,
        };
        (self.child, tell, listen)
    }
}

/// A moment on the clock that every process of this machine shares, and that goes on in its sleep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left(Duration);

impl Left {
    /// The moment up to which a call may take, by whoever knows how long is left of it. The clock is
    /// asked first: a process that is stopped in between makes the moment earlier, never later.
    pub(crate) fn until(left: impl FnOnce() -> Duration) -> Option<Self> {
        let now = since_boot()?;
        Some(Self(now.saturating_add(left())))
    }

    pub(crate) fn is_over(self) -> bool {
        since_boot().is_none_or(|now| now >= self.0)
    }
}

/// What a supervisor is told through.
#[derive(Debug)]
pub(crate) struct Tell {
    orders: OwnedWriteHalf,
    header: String,
}

impl Tell {
    /// Has the program started and told that. An error is seen in the reports.
    pub(crate) async fn all(&mut self, told: &[u8]) {
        if self.orders.write_all(self.header.as_bytes()).await.is_ok() {
            drop(self.orders.write_all(told).await);
        }
    }

    /// Has the program started, and gives what writes to its stdin from now on.
    #[cfg(feature = "mcp")]
    pub(crate) async fn stream(mut self) -> io::Result<OwnedWriteHalf> {
        self.orders.write_all(self.header.as_bytes()).await?;
        Ok(self.orders)
    }

    /// Lets whatever the program left behind in the background go on.
    pub(crate) async fn done(mut self) {
        drop(self.orders.write_all(&[DONE]).await);
    }
}

/// How a program ended, or why it did not.
#[derive(Debug)]
pub(crate) enum End {
    /// Nothing ran.
    NotStarted(String),
    /// By itself, with a code, or by a signal.
    Ended(Option<i32>),
    /// By its supervisor.
    Killed,
    /// Nobody knows, for the supervisor was ended; the program's group was killed from here.
    Unsupervised,
}

/// What a supervisor reports.
#[derive(Debug)]
pub(crate) struct Listen {
    reports: Lines<BufReader<OwnedReadHalf>>,
    group: Option<Pid>,
    is_starting: bool,
}

impl Listen {
    /// Waits until it says what became of the program.
    pub(crate) async fn end(&mut self) -> End {
        loop {
            let line = self.reports.next_line().await;
            let report = line.ok().flatten().as_deref().map(Report::parse);
            match report {
                Some(Some(Report::Starting)) => self.is_starting = true,
                Some(Some(Report::Started(group))) => self.group = Some(Pid::from_raw(group)),
                Some(Some(Report::NotStarted(problem))) => return End::NotStarted(problem),
                Some(Some(Report::Ended(code))) => return End::Ended(code),
                Some(Some(Report::Killed)) => return End::Killed,
                Some(None) | None if !self.is_starting => {
                    let problem = "its supervisor ended before it started anything";
                    return End::NotStarted(problem.to_owned());
                }
                Some(None) | None => {
                    self.kill();
                    return End::Unsupervised;
                }
            }
        }
    }

    /// Waits until the program runs, and says in which group.
    #[cfg(feature = "mcp")]
    pub(crate) async fn started(&mut self) -> Result<Pid, String> {
        while let Ok(Some(line)) = self.reports.next_line().await {
            match Report::parse(&line) {
                Some(Report::Started(group)) => return Ok(Pid::from_raw(group)),
                Some(Report::NotStarted(problem)) => return Err(problem),
                Some(Report::Starting) => {}
                Some(Report::Ended(_) | Report::Killed) | None => break,
            }
        }
        Err("its supervisor ended".to_owned())
    }

    /// Ends the program in the supervisor's place.
    fn kill(&self) {
        if let Some(group) = self.group
            && let Err(error) = killpg(group, Signal::SIGKILL)
        {
            tracing::warn!(%group, %error, "a process group could not be killed");
        }
    }
}
