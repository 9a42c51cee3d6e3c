//! Signed checkpoints of a project's logs: when they are made, where they are kept, and which are
//! believed. What a checkpoint says, and whether a log agrees with it, is the kernel's.

mod keyring;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use operators_kernel::log::{
    Checkpoint, Frontier, KeyChange, LogFault, PublicKey, SignedCheckpoint, SigningKey, follow,
    origin_of,
};
use operators_kernel::{DurableExec, TenantId, json};
use tokio::io::AsyncWriteExt as _;

use crate::config::{CheckpointConfig, StoreUrl};
use crate::output::{shown, warn};
use crate::project::{Project, is_there, read_text};

pub(crate) use keyring::Keyring;

/// The folder of a project that is its own: the store, the keys and the checkpoints.
const OWN_DIR: &str = ".operators";
const CHECKPOINTS_DIR: &str = "checkpoints";

/// A hundred thousand checkpoints and more.
const HISTORY_BYTES_MAX: usize = 64 << 20;

/// How long the program may take that a checkpoint is handed to.
const COMMAND_PATIENCE: Duration = Duration::from_secs(10);

/// Signs one tenant's log.
#[derive(Debug)]
pub(crate) struct Notary {
    pub(crate) keyring: Keyring,
    tenant: TenantId,
    store: Arc<dyn DurableExec>,
    /// Every checkpoint that was signed here, oldest first.
    history: PathBuf,
    /// The edge of the log at the last of them.
    edge: PathBuf,
    outside: Outside,
}

/// Where a checkpoint goes besides.
#[derive(Debug)]
struct Outside {
    file: Option<PathBuf>,
    command: Option<Vec<String>>,
    dir: PathBuf,
}

impl Notary {
    /// Of this tenant's log in this store.
    pub(crate) fn of(project: &Project, tenant: &TenantId, store: Arc<dyn DurableExec>) -> Self {
        let own = project.path(OWN_DIR.as_ref());
        // A project that moves to another store begins another log there.
        let place = match &project.config.store.url {
            StoreUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
            StoreUrl::Postgres(_) | StoreUrl::DynamoDb(_) | StoreUrl::Memory => store.describe(),
        };
        let origin = origin_of(tenant);
        let digest =
            json::digest(&[&origin, &place]).map_or_else(|_| String::new(), |it| it.text());
        let digest = digest.trim_start_matches("sha256:");
        let start: String = origin.chars().skip("operators/".len()).take(60).collect();
        let name = format!("{start}-{}", digest.get(..16).unwrap_or(digest));
        let folder = own.join(CHECKPOINTS_DIR);
        let CheckpointConfig { file, command, .. } = &project.config.receipts.checkpoint;
        Self {
            history: folder.join(format!("{name}.txt")),
            edge: folder.join(format!("{name}.edge")),
            keyring: Keyring::of(own),
            tenant: tenant.clone(),
            store,
            outside: Outside {
                file: file.as_ref().map(|file| project.path(file)),
                command: command.clone(),
                dir: project.dir().to_owned(),
            },
        }
    }

    /// Every checkpoint that was signed here.
    pub(crate) fn history(&self) -> Result<Vec<SignedCheckpoint>> {
        if !is_there(&self.history)? {
            return Ok(Vec::new());
        }
        let text = read_text(&self.history, HISTORY_BYTES_MAX)?;
        SignedCheckpoint::parse_all(&text)
            .map_err(|problem| anyhow!("`{}`: {problem}", shown(&self.history.display())))
    }

    /// Those that one of these keys signed, or the first that none did.
    pub(crate) fn believed(
        history: Vec<SignedCheckpoint>,
        keys: &[PublicKey],
    ) -> Result<Vec<Checkpoint>, LogFault> {
        let believed = |one: SignedCheckpoint| {
            if keys.iter().any(|key| one.is_signed_by(key)) {
                return Ok(one.checkpoint);
            }
            let keys: Vec<String> = keys.iter().map(PublicKey::to_string).collect();
            Err(LogFault::Unsigned {
                size: one.checkpoint.size,
                key: keys.join(" or "),
            })
        };
        history.into_iter().map(believed).collect()
    }

    /// Refuses a store that holds less than was signed: keys that were burned may look free there.
    pub(crate) async fn check(&self) -> Result<()> {
        let sizes = self.history()?.into_iter().map(|one| one.checkpoint.size);
        let Some(size) = sizes.max() else {
            return Ok(());
        };
        let found = self.store.log().head(&self.tenant).await?.size();
        if found < size {
            let fault = LogFault::RolledBack { found, size };
            bail!(
                "store rolled back: {fault}; nothing was run. Restore the store, or move `{}` away \
                 to accept what is there",
                shown(&self.history.display())
            );
        }
        Ok(())
    }

    /// Whether this store has nothing of the tenant, and another store of this project has: what was
    /// done by way of that one is not known here.
    pub(crate) async fn begins_anew(&self) -> Result<bool> {
        if is_there(&self.history)? || !self.has_another_log()? {
            return Ok(false);
        }
        Ok(self.store.log().head(&self.tenant).await?.size() == 0)
    }

    /// Whether checkpoints of the same tenant's log in another store are kept here.
    fn has_another_log(&self) -> Result<bool> {
        let Some((folder, own)) = self.history.parent().zip(self.history.file_stem()) else {
            return Ok(false);
        };
        let own = own.to_string_lossy();
        let Some((tenant, _)) = own.rsplit_once('-') else {
            return Ok(false);
        };
        let listed = match std::fs::read_dir(folder) {
            Ok(listed) => listed,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(anyhow!("`{}`: {error}", shown(&folder.display()))),
        };
        for entry in listed {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            let stem = name.strip_suffix(".txt").and_then(|it| it.rsplit_once('-'));
            if stem.is_some_and(|(whose, _)| whose == tenant) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A signed checkpoint of everything there is, kept if it is new.
    pub(crate) async fn sign(&self) -> Result<SignedCheckpoint> {
        let key = self.keyring.signing_key()?;
        self.sign_with(&[&key]).await
    }

    async fn sign_with(&self, keys: &[&SigningKey]) -> Result<SignedCheckpoint> {
        let history = self.history()?;
        let last = history.last().cloned();
        let known = Self::believed(history, &self.keyring.public_keys()?)?;
        let edge = self.known_edge(&known);
        let log = self.store.log();
        let edge = follow(log, &self.tenant, edge, known).await??;
        let checkpoint = Checkpoint {
            origin: origin_of(&self.tenant),
            size: edge.size(),
            root: edge.root(),
        };
        let is_ours = |last: &SignedCheckpoint| {
            last.checkpoint == checkpoint && keys.iter().all(|key| last.is_signed_by(&key.public()))
        };
        if let Some(last) = last.filter(is_ours) {
            return Ok(last);
        }
        let signed = SignedCheckpoint::sign(checkpoint, keys);
        self.keep(&signed, &edge)?;
        for error in self.outside.hand_over(&signed).await {
            // What could not be handed over is said, and tried again with the next one.
            warn(&shown(&format!("{error:#}")));
        }
        Ok(signed)
    }

    /// A signed checkpoint of everything there is, which the outside place, if there is one, has.
    pub(crate) async fn sign_outside(&self) -> Result<SignedCheckpoint> {
        let signed = self.sign().await?;
        match self.outside.hand_over(&signed).await.into_iter().next() {
            None => Ok(signed),
            Some(error) => Err(error.context("the outside place does not have the checkpoint")),
        }
    }

    /// Replaces the key. The receipt names both keys, and both sign the log that holds it.
    pub(crate) async fn rotate(&self, mut change: KeyChange) -> Result<(PublicKey, PublicKey)> {
        let old = self.keyring.signing_key()?;
        let next = self.keyring.next()?;
        change.old = old.public();
        change.new = next.1.public();
        let receipt = change.receipt(&self.tenant)?;
        self.store.record(&self.tenant, vec![receipt]).await?;
        self.keyring.keep(&next)?;
        self.sign_with(&[&old, &next.1]).await?;
        Ok((change.old, change.new))
    }

    /// The edge that was kept, if a checkpoint vouches for it.
    fn known_edge(&self, known: &[Checkpoint]) -> Frontier {
        let read = || {
            let bytes = std::fs::read(&self.edge).ok()?;
            let (size, hashes) = bytes.split_first_chunk::<8>()?;
            let edge = Frontier::from_bytes(u64::from_be_bytes(*size), hashes)?;
            let vouches = |one: &Checkpoint| one.size == edge.size() && one.root == edge.root();
            known.iter().any(vouches).then_some(edge)
        };
        read().unwrap_or_default()
    }

    fn keep(&self, signed: &SignedCheckpoint, edge: &Frontier) -> Result<()> {
        if let Some(folder) = self.history.parent() {
            keyring::make_folder(folder)?;
        }
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.history);
        let written = opened.and_then(|mut file| file.write_all(signed.to_string().as_bytes()));
        written.with_context(|| format!("`{}`", shown(&self.history.display())))?;
        let bytes = [edge.size().to_be_bytes().as_slice(), &edge.to_bytes()].concat();
        keyring::replace(&self.edge, &bytes)
    }
}

impl Outside {
    /// Gives it to every place there is; why it could not be, for each that does not have it.
    async fn hand_over(&self, signed: &SignedCheckpoint) -> Vec<anyhow::Error> {
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
                std::path::Path::new(".")
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
