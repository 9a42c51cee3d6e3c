//! The outside world, from a test's side: starts the sink process and reads what it saw.
//!
//! Owns the words both sides speak: a [`Hit`] is one request that reached the sink, a [`Behaviour`]
//! is how the sink treats one. Effects are counted there and nowhere else.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// The header that names the tenant.
pub const TENANT_HEADER: &str = "x-tenant";
/// The header that names the entity.
pub const ENTITY_HEADER: &str = "x-entity";
/// The header that carries the planner's key.
pub const KEY_HEADER: &str = "x-key";
/// The header that carries the downstream key of every tool, whether or not it is honoured.
pub const DOWNSTREAM_HEADER: &str = "x-downstream-key";
/// The header that names the process that sent it.
pub const PROCESS_HEADER: &str = "x-process";
/// The header that asks for a behaviour.
pub const BEHAVE_HEADER: &str = "x-behave";
/// The header whose value applies once, however often it comes.
pub const HONOURED_HEADER: &str = "idempotency-key";

/// How long a question to the sink may take; it answers at once, so longer means that it is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// One request that reached the sink. Times are nanoseconds since the sink started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// Counts requests from 0.
    pub sequence: u64,
    /// Whose action it is.
    pub tenant: String,
    /// The entity it touches.
    pub entity: String,
    /// The planner's key.
    pub key: String,
    /// The key a vendor would see.
    pub downstream_key: String,
    /// The process that sent it.
    pub process: String,
    /// When its last byte was read.
    pub arrived_ns: u64,
    /// When it took effect.
    pub applied_ns: Option<u64>,
    /// It took effect before under the same honoured key: nothing happened this time.
    pub is_replay: bool,
    /// Just before the answer was written, or when the caller was seen to be gone.
    pub left_ns: Option<u64>,
    /// What was answered.
    pub status: Option<u16>,
}

impl Hit {
    /// Whether this very request changed the world.
    pub fn is_effect(&self) -> bool {
        self.applied_ns.is_some() && !self.is_replay
    }
}

/// What the sink does once the effect has (or has not) happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Then {
    /// Answers.
    #[default]
    Answer,
    /// Says nothing until the caller leaves.
    Hang,
    /// Closes the connection without a word.
    Close,
    /// Resets the connection.
    Reset,
    /// Sends half of its answer and closes.
    Truncate,
    /// Answers with something that is called JSON and is not.
    Garble,
    /// Sends the caller to the log, with a 302.
    Redirect,
    /// Sends its answer a byte at a time, for as long as the caller stays.
    Dribble,
    /// Sends an answer without an end.
    Flood,
}

/// How the sink treats a request, written `before=40,after=10,then=hang,status=422`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// The pause before it takes effect; it takes effect whether or not the caller is still there.
    pub before: Duration,
    /// The pause between effect and answer.
    pub after: Duration,
    /// What comes after that.
    pub then: Then,
    /// The answer's status. Only a 2xx takes effect.
    pub status: u16,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            before: Duration::ZERO,
            after: Duration::ZERO,
            then: Then::Answer,
            status: 200,
        }
    }
}

impl Behaviour {
    /// Reads a behaviour; `None` if a word is not known.
    pub fn parse(text: &str) -> Option<Self> {
        let mut behaviour = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=')?;
            match name {
                "before" => behaviour.before = Duration::from_millis(value.parse().ok()?),
                "after" => behaviour.after = Duration::from_millis(value.parse().ok()?),
                "status" => behaviour.status = value.parse().ok()?,
                "then" => {
                    behaviour.then = match value {
                        "answer" => Then::Answer,
                        "hang" => Then::Hang,
                        "close" => Then::Close,
                        "reset" => Then::Reset,
                        "truncate" => Then::Truncate,
                        "garble" => Then::Garble,
                        "redirect" => Then::Redirect,
                        "dribble" => Then::Dribble,
                        "flood" => Then::Flood,
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
        Some(behaviour)
    }

    /// Whether the world changes.
    pub fn applies(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Asks a sink a question and waits for the answer's body. Blocks.
pub fn ask(port: u16, method: &str, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: sink\r\ncontent-length: 0\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((_, body)) => Ok(body.to_owned()),
        None => Err(io::Error::other("the sink's answer was cut off")),
    }
}

/// A running sink; it ends with this handle.
#[derive(Debug)]
pub struct Sink {
    child: Child,
    port: u16,
}

impl Sink {
    /// Starts the binary at `program`, in a process group of its own.
    pub fn start(program: &Path) -> Self {
        Self::start_with(program, None)
    }

    /// As [`start`](Self::start), with every change of its log appended to a file.
    pub fn start_with(program: &Path, log: Option<&Path>) -> Self {
        let mut command = Command::new(program);
        command
            .args(log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().expect("the sink starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the sink tells its port");
        let port = line.trim().parse().expect("a port");
        Self { child, port }
    }

    /// Where it listens, on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Every request so far, in order of arrival.
    pub fn hits(&self) -> Vec<Hit> {
        let log = ask(self.port, "GET", "/log").expect("the sink answers");
        serde_json::from_str(&log).expect("a log")
    }

    /// Treats the next `count` requests without a wish of their own like this.
    pub fn behave(&self, count: usize, behaviour: &str) {
        let path = format!("/behave?count={count}&do={behaviour}");
        let said = ask(self.port, "POST", &path).expect("the sink answers");
        assert_eq!(said, "{}", "{behaviour}");
    }

    /// Waits until `is_there` is true of the log, and returns that log.
    pub fn wait_for(&self, what: &str, is_there: impl Fn(&[Hit]) -> bool) -> Vec<Hit> {
        let start = Instant::now();
        loop {
            let hits = self.hits();
            if is_there(&hits) {
                return hits;
            }
            assert!(start.elapsed() < PATIENCE, "never saw {what}: {hits:#?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until no request is under way: nothing can land any more.
    pub fn wait_until_idle(&self) -> Vec<Hit> {
        self.wait_for("an idle sink", |hits| {
            hits.iter().all(|hit| hit.left_ns.is_some())
        })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Kills a child with its whole group, unless it has ended and was waited for, and waits for it.
pub fn end(child: &mut Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        return; // its number may be another's by now
    }
    let group = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    // It may end by itself this very moment.
    let _ = killpg(group, Signal::SIGKILL);
    drop(child.wait());
}
