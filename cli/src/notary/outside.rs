//! Where a checkpoint goes besides the project's own folder, and what is there.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use operators_kernel::log::SignedCheckpoint;
use tokio::io::AsyncWriteExt as _;

use super::keyring;
use crate::config::CheckpointConfig;
use crate::output::shown;
use crate::project::{Project, is_there, read_text};

/// Far beyond a checkpoint with every witness's signature.
const CHECKPOINT_BYTES_MAX: usize = 1 << 20;

/// How long the program may take that a checkpoint is handed to.
const COMMAND_PATIENCE: Duration = Duration::from_secs(10);

/// `[receipts.checkpoint]`: a file, a program, both or neither.
#[derive(Debug)]
pub(super) struct Outside {
    file: Option<PathBuf>,
    command: Option<Vec<String>>,
    dir: PathBuf,
}

impl Outside {
    pub(super) fn of(project: &Project) -> Self {
        let CheckpointConfig { file, command, .. } = &project.config.receipts.checkpoint;
        Self {
            file: file.as_ref().map(|file| project.path(file)),
            command: command.clone(),
            dir: project.dir().to_owned(),
        }
    }

    /// The file, in words; empty if there is none.
    pub(super) fn place(&self) -> String {
        let file = self.file.as_ref();
        file.map_or_else(String::new, |file| file.display().to_string())
    }

    /// What it is, in words; `None` if there is none.
    pub(super) fn described(&self) -> Option<String> {
        match (&self.file, &self.command) {
            (Some(file), _) => Some(format!("`{}`", file.display())),
            (None, Some(command)) => {
                let program = command.first().map_or("", String::as_str);
                Some(format!("handed to `{program}`"))
            }
            (None, None) => None,
        }
    }

    /// Whether what it holds can be read back.
    pub(super) fn is_readable(&self) -> bool {
        self.file.is_some()
    }

    /// The checkpoint in the file, if there is one. What a program was given cannot be read back.
    pub(super) fn read(&self) -> Result<Option<SignedCheckpoint>> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        if !is_there(file)? {
            return Ok(None);
        }
        let text = read_text(file, CHECKPOINT_BYTES_MAX)?;
        if text.is_empty() {
            return Ok(None);
        }
        let read = text.parse().map(Some);
        read.map_err(|problem| {
            anyhow!(
                "`{}` is no checkpoint: {problem}; put the one there back, or move it away",
                shown(&file.display())
            )
        })
    }

    /// Gives it to every place there is; why it could not be, for each that does not have it.
    pub(super) async fn hand_over(&self, signed: &SignedCheckpoint) -> Vec<anyhow::Error> {
        let text = signed.to_string();
        let mut failed = Vec::new();
        if let Some(file) = &self.file
            && let Err(error) = keyring::replace(file, text.as_bytes())
        {
            failed.push(error.context("the checkpoint was not copied"));
        }
        if let Some(command) = &self.command {
            let done = tokio::time::timeout(COMMAND_PATIENCE, self.tell(command, &text)).await;
            let done = done.unwrap_or_else(|_| Err(anyhow!("no end after 10 s")));
            if let Err(error) = done {
                failed.push(error.context("`receipts.checkpoint.command` failed"));
            }
        }
        failed
    }

    async fn tell(&self, command: &[String], text: &str) -> Result<()> {
        let (program, args) = command.split_first().context("it is empty")?;
        let mut child = tokio::process::Command::new(program)
            .args(args)
            .current_dir(if self.dir.as_os_str().is_empty() {
                Path::new(".")
            } else {
                &self.dir
            })
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("`{program}` cannot be started"))?;
        let handed = match child.stdin.take() {
            Some(mut stdin) => stdin.write_all(text.as_bytes()).await,
            None => Ok(()),
        };
        // How it ended tells more than that it did not read to the end.
        let status = child.wait().await?;
        if !status.success() {
            bail!("it ended with {status}");
        }
        handed.context("it did not read the checkpoint")
    }
}
