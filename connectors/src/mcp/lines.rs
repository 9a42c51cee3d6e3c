//! Messages on the stdin and stdout of a program: one a line, and bounded.
//!
//! Owns how they are read and written, and why the connection ended. It must not know what a message
//! is for, but that a call leaves only with its permit, asked before each write.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::ChildStdout;
use tokio::sync::Mutex;

use crate::mcp::fault::{Fault, Meaning};
use crate::mcp::link::permit;
use crate::mcp::message;
use crate::mcp::stdio::Stdin;

/// The longest message taken from a server: room for the tools of a large one. Longer, and the
/// connection ends.
const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What a client speaks through.
pub(crate) struct Lines {
    place: String,
    reader: BufReader<ChildStdout>,
    /// What was read of the line so far: reading is given up and taken up again at any time.
    line: Vec<u8>,
    // An async lock: a message is written whole before the next.
    writer: Arc<Mutex<Option<Stdin>>>,
    ended: Arc<OnceLock<Fault>>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl Lines {
    /// Why it ended is left in `ended`.
    pub(crate) fn new(
        place: &str,
        stdout: ChildStdout,
        stdin: Stdin,
        ended: &Arc<OnceLock<Fault>>,
    ) -> Self {
        Self {
            place: place.to_owned(),
            reader: BufReader::new(stdout),
            line: Vec::new(),
            writer: Arc::new(Mutex::new(Some(stdin))),
            ended: Arc::clone(ended),
        }
    }

    /// Reads to the next line's end; what comes before it may have been read by an earlier call.
    async fn next(&mut self) -> Result<Vec<u8>, Fault> {
        loop {
            let ended = |told: String| Fault::new(Meaning::Open, told);
            let read = self.reader.fill_buf().await;
            let there =
                read.map_err(|error| ended(format!("reading {} failed: {error}", self.place)))?;
            if there.is_empty() {
                return Err(ended(format!("{} ended its output", self.place)));
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let part = end.map_or(there, |end| there.get(..end).unwrap_or_default());
            if self.line.len() + part.len() > MESSAGE_BYTES_MAX {
                let place = &self.place;
                return Err(ended(format!(
                    "{place} sent a message of more than {MESSAGE_BYTES_MAX} bytes"
                )));
            }
            self.line.extend_from_slice(part);
            let taken = part.len() + usize::from(end.is_some());
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(std::mem::take(&mut self.line));
            }
        }
    }
}

impl Transport<RoleClient> for Lines {
    type Error = Fault;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'static {
        let (place, writer) = (self.place.clone(), Arc::clone(&self.writer));
        let permit = permit(&message);
        async move {
            let failed = |problem: &dyn std::fmt::Display| {
                Fault::new(
                    Meaning::Open,
                    format!("writing to {place} failed: {problem}"),
                )
            };
            let mut line = serde_json::to_vec(&message).map_err(|error| failed(&error))?;
            line.push(b'\n');
            let mut writer = writer.lock().await;
            if let Err(refused) = permit.confirm().await {
                return Err(Fault::new(Meaning::NotTaken, refused.message));
            }
            let mut rest = line.as_slice();
            while !rest.is_empty() {
                let Some(stdin) = writer.as_mut() else {
                    return Err(failed(&"the connection is closed"));
                };
                if let Err(refused) = permit.check() {
                    if rest.len() == line.len() {
                        return Err(Fault::new(Meaning::NotTaken, refused.message));
                    }
                    // What left is no message without its end, and none follows it.
                    drop(writer.take());
                    return Err(failed(&format!("its rest was kept: {}", refused.message)));
                }
                // INVARIANT (asked-last): nothing may come between the question and the write.
                match stdin.write(rest).await {
                    Ok(0) => return Err(failed(&"it takes no more")),
                    Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                    Err(error) => return Err(failed(&error)),
                }
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.next().await {
                Ok(line) => {
                    if let Some(message) = message::read(&line) {
                        return Some(message);
                    }
                }
                Err(fault) => {
                    drop(self.ended.set(fault));
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Fault> {
        drop(self.writer.lock().await.take());
        Ok(())
    }
}
