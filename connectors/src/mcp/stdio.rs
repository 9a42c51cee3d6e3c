//! A server that is a program of ours: started in a group of its own, bounded, and ended with us.
//!
//! Owns the process; what it says on stdout is read by `lines`.

use std::ffi::OsString;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio as Pipes;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::io::{AsyncReadExt as _, AsyncWrite};
use tokio::process::{Child, ChildStderr};

use operators_kernel::{SecretStore, TenantId};

use crate::command::{Environment, Group, Listen, Supervised, Supervisor};
use crate::config::ConnectorConfig;
use crate::hidden::Hidden;
use crate::mcp::fault::Fault;
use crate::mcp::lines::Lines;
use crate::registry::{Place, RegistryError};

/// How much of what a server says on stderr is kept: its end.
const WORDS_BYTES_KEPT: usize = 4 * 1024;

/// How to start a server.
#[derive(Debug)]
pub(crate) struct Stdio {
    place: String,
    argv: Vec<String>,
    environment: Environment,
    supervisor: Option<Supervisor>,
}

/// A server's stdin, or what its supervisor passes on to it.
pub(crate) type Stdin = Pin<Box<dyn AsyncWrite + Send>>;

/// A server's process or its supervisor's, what writes to its stdin, its group, and the reports.
type Started = (Child, Stdin, Group, Option<Listen>);

/// A running server; dropping it ends its whole group.
#[derive(Debug)]
pub(crate) struct Server {
    // Dropped first: a child that was not waited for keeps its number to itself.
    _group: Group,
    _child: Child,
    /// What its supervisor says, if it has one: who hears it is there.
    _reports: Option<Listen>,
    words: Arc<Mutex<Vec<u8>>>,
}

impl Stdio {
    pub(crate) fn compile(
        argv: &[String],
        config: &ConnectorConfig,
        place: &Place,
        base_dir: &Path,
    ) -> Result<Self, RegistryError> {
        let Some((program, arguments)) = argv.split_first() else {
            return Err(place.refuse("argv", "is empty; its first text is the program"));
        };
        if program.is_empty() || argv.iter().any(|text| text.contains('\0')) {
            return Err(place.refuse("argv", "names no program, or holds a NUL"));
        }
        let told = format!("the program `{}`", program.escape_debug());
        let program = if program.contains('/') {
            base_dir.join(program).to_string_lossy().into_owned()
        } else {
            program.clone()
        };
        let mut argv = vec![program];
        argv.extend_from_slice(arguments);
        Ok(Self {
            place: told,
            argv,
            environment: Environment::compile(config, place, base_dir)?,
            supervisor: Supervisor::of(config, base_dir),
        })
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Starts it. Why its output ended is left in `ended`.
    pub(crate) async fn start(
        &self,
        tenant: &TenantId,
        secrets: &dyn SecretStore,
        hidden: &mut Hidden,
        ended: &Arc<OnceLock<Fault>>,
    ) -> Result<(Lines, Server), String> {
        let variables = self.environment.variables(tenant, secrets, hidden).await?;
        let started = match &self.supervisor {
            None => self.alone(variables),
            Some(supervisor) => self.supervised(supervisor, variables).await,
        };
        let (mut child, stdin, group, reports) =
            started.map_err(|problem| format!("the server does not start: {problem}"))?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err("the server has no streams".to_owned());
        };
        let words = Arc::new(Mutex::new(Vec::new()));
        let server = Server {
            _group: group,
            _child: child,
            _reports: reports,
            words: Arc::clone(&words),
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a full stderr would stop the server; this ends when the server does"
        )]
        drop(tokio::spawn(listen(stderr, words)));
        Ok((Lines::new(&self.place, stdout, stdin, ended), server))
    }

    fn alone(&self, variables: Vec<(String, OsString)>) -> Result<Started, String> {
        let child = self
            .environment
            .command(&self.argv, variables)
            .stdin(Pipes::piped())
            .stdout(Pipes::piped())
            .stderr(Pipes::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|error| error.to_string())?;
        let group = Group::of(&child);
        let stdin = child.stdin.take().ok_or("it has no stdin")?;
        Ok((child, Box::pin(stdin), group, None))
    }

    /// Ended with this process, also if it is killed.
    async fn supervised(
        &self,
        supervisor: &Supervisor,
        variables: Vec<(String, OsString)>,
    ) -> Result<Started, String> {
        let argv = supervisor.argv(&self.argv);
        let started = Supervised::start(self.environment.command(&argv, variables));
        let started = started.map_err(|error| format!("its supervisor: {error}"))?;
        let (child, tell, mut reports) = started.take(None, None);
        let stdin = tell.stream().await.map_err(|error| error.to_string())?;
        let group = Group::numbered(reports.started().await?);
        Ok((child, Box::pin(stdin), group, Some(reports)))
    }
}

impl Server {
    /// The last of what it said on stderr.
    pub(crate) fn last_words(&self) -> String {
        let words = self.words.lock().map(|words| words.clone());
        String::from_utf8_lossy(&words.unwrap_or_default())
            .trim()
            .to_owned()
    }
}

// A std lock: held for a copy, never across an await.
async fn listen(mut stderr: ChildStderr, words: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = vec![0; 4 * 1024];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        if let Ok(mut words) = words.lock() {
            words.extend_from_slice(chunk.get(..count).unwrap_or_default());
            let excess = words.len().saturating_sub(WORDS_BYTES_KEPT);
            words.drain(..excess);
        }
    }
}
