//! A server that is a program of ours: started in a group of its own, bounded, and ended with us.
//!
//! Owns the process and the bound on what it may say at once.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio as Pipes;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use rmcp::RoleClient;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use operators_kernel::{SecretStore, TenantId};

use crate::command::{Environment, Group};
use crate::config::ConnectorConfig;
use crate::hidden::Hidden;
use crate::registry::{Place, RegistryError};

/// The longest message taken from a server: room for the tools of a large one. Longer, and the
/// connection ends.
const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How much of what a server says on stderr is kept: its end.
const WORDS_BYTES_KEPT: usize = 4 * 1024;

/// How to start a server.
#[derive(Debug)]
pub(crate) struct Stdio {
    argv: Vec<String>,
    environment: Environment,
}

/// What a client speaks through.
pub(crate) type StdioTransport = AsyncRwTransport<RoleClient, Bounded<ChildStdout>, ChildStdin>;

/// A running server; dropping it ends its whole group.
#[derive(Debug)]
pub(crate) struct Server {
    // Dropped first: a child that was not waited for keeps its number to itself.
    _group: Group,
    _child: Child,
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
        let program = if program.contains('/') {
            base_dir.join(program).to_string_lossy().into_owned()
        } else {
            program.clone()
        };
        let mut argv = vec![program];
        argv.extend_from_slice(arguments);
        Ok(Self {
            argv,
            environment: Environment::compile(config, place, base_dir)?,
        })
    }

    pub(crate) async fn start(
        &self,
        tenant: &TenantId,
        secrets: &dyn SecretStore,
        hidden: &mut Hidden,
    ) -> Result<(StdioTransport, Server), String> {
        let variables = self.environment.variables(tenant, secrets, hidden).await?;
        let mut command = self.environment.command(&self.argv, variables);
        let child = command
            .stdin(Pipes::piped())
            .stdout(Pipes::piped())
            .stderr(Pipes::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|error| format!("the server does not start: {error}"))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("the server has no streams".to_owned());
        };
        let words = Arc::new(Mutex::new(Vec::new()));
        let server = Server {
            _group: Group::of(&child),
            _child: child,
            words: Arc::clone(&words),
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a full stderr would stop the server; this ends when the server does"
        )]
        drop(tokio::spawn(listen(stderr, words)));
        let stdout = Bounded {
            inner: stdout,
            since_line_break: 0,
        };
        let transport =
            AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(MESSAGE_BYTES_MAX);
        Ok((transport, server))
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

/// A stream whose lines are bounded: a longer one is an error, not a reason to wait.
#[derive(Debug)]
pub(crate) struct Bounded<R> {
    inner: R,
    since_line_break: usize,
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = &polled {
            let new = buffer.filled().get(before..).unwrap_or_default();
            self.since_line_break = match new.iter().rposition(|byte| *byte == b'\n') {
                Some(at) => new.len() - at - 1,
                None => self.since_line_break + new.len(),
            };
            if self.since_line_break > MESSAGE_BYTES_MAX {
                let problem = format!("a message of more than {MESSAGE_BYTES_MAX} bytes");
                return Poll::Ready(Err(io::Error::other(problem)));
            }
        }
        polled
    }
}
