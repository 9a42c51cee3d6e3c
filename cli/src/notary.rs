//! Signed checkpoints of a project's logs: when they are made, where they are kept, and which are
//! believed. What a checkpoint says, and whether a log agrees with it, is the kernel's.

mod keyring;
mod outside;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use operators_kernel::log::{
    Checkpoint, Frontier, KeyChange, LogFault, PublicKey, SignedCheckpoint, SigningKey, follow,
    origin_of, still_holds,
};
use operators_kernel::{DurableExec, TenantId, json};

use crate::config::StoreUrl;
use crate::output::{shown, warn};
use crate::project::{Project, is_there, read_text};
use crate::unseen::{self, Unseen};
use outside::Outside;

pub(crate) use keyring::Keyring;

/// The folder of a project that is its own: the store, the keys and the checkpoints.
const OWN_DIR: &str = ".operators";
const CHECKPOINTS_DIR: &str = "checkpoints";

/// A hundred thousand checkpoints and more.
const HISTORY_BYTES_MAX: usize = 64 << 20;

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
        Self {
            history: folder.join(format!("{name}.txt")),
            edge: folder.join(format!("{name}.edge")),
            keyring: Keyring::of(own),
            tenant: tenant.clone(),
            store,
            outside: Outside::of(project),
        }
    }

    /// Every checkpoint that was signed here.
    pub(crate) fn history(&self) -> Result<Vec<SignedCheckpoint>> {
        if !is_there(&self.history)? {
            return Ok(Vec::new());
        }
        read_all(&self.history)
    }

    /// How many receipts the newest checkpoint speaks of that was signed here.
    pub(crate) fn newest_signed(&self) -> Result<Option<u64>> {
        let newest = self.history()?.pop();
        Ok(newest.map(|signed| signed.checkpoint.size))
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

    /// Refuses a store that does not hold what was signed, here or outside: keys that were burned may
    /// look free there. The edge that is kept stands for every checkpoint before it, so this costs the
    /// same for a log of any length; what was signed behind it is read.
    pub(crate) async fn check(&self) -> Result<()> {
        let (history, edge) = self.known()?;
        let signed = history.iter().map(|one| one.checkpoint.clone());
        let mut signed: Vec<Checkpoint> = signed.collect();
        signed.retain(|one| one.size >= edge.size() && !is_edge(one, &edge));
        let log = self.store.log();
        let mut held = still_holds(log, &self.tenant, &edge).await?;
        if held.is_ok() {
            held = self.check_outside(&history, &mut signed).await?;
        }
        if held.is_ok() && !signed.is_empty() {
            let is_behind = signed.iter().all(|one| one.size >= edge.size());
            let start = if is_behind { edge } else { Frontier::default() };
            let followed = follow(log, &self.tenant, start, signed).await?;
            held = followed.map(|_| ());
        }
        held.map_err(|fault| self.refusal(&fault))
    }

    /// Whether the outside place holds the newest checkpoint that was signed here, in words; `None` if
    /// there is no such place.
    pub(crate) fn outside(&self) -> Result<Option<Result<String, String>>> {
        let Some(place) = self.outside.described() else {
            return Ok(None);
        };
        let Some(newest) = self.history()?.pop() else {
            return Ok(Some(Ok(format!("{place}: nothing was signed here yet"))));
        };
        let size = newest.checkpoint.size;
        if !self.outside.is_readable() {
            let told = format!("{place}, which is not asked what it holds");
            return Ok(Some(Ok(told)));
        }
        Ok(Some(match self.outside.read()? {
            Some(found) if found.checkpoint == newest.checkpoint => Ok(format!(
                "{place} holds the newest checkpoint, over {size} receipts"
            )),
            Some(found) => Err(format!(
                "{place} holds a checkpoint over {} receipts, and the newest here is over {size}",
                found.checkpoint.size
            )),
            None => Err(format!(
                "{place} holds none, and the newest here is over {size} receipts; put \
                 `operators receipts head` there"
            )),
        }))
    }

    /// Adds the checkpoint that the outside place holds to those that the log is compared with, if it
    /// is of this log and not known here.
    async fn check_outside(
        &self,
        history: &[SignedCheckpoint],
        signed: &mut Vec<Checkpoint>,
    ) -> Result<Result<(), LogFault>> {
        let Some(found) = self.outside.read()? else {
            return Ok(Ok(()));
        };
        let is_another = found.checkpoint.origin != origin_of(&self.tenant);
        if is_another || history.contains(&found) || self.is_of_another_log(&found)? {
            return Ok(Ok(()));
        }
        let size = found.checkpoint.size;
        let keys = self.keyring.public_keys()?;
        if keys.iter().any(|key| found.is_signed_by(key)) {
            signed.push(found.checkpoint);
            return Ok(Ok(()));
        }
        let held = self.store.log().head(&self.tenant).await?.size();
        if held < size {
            return Ok(Err(LogFault::RolledBack { found: held, size }));
        }
        warn(&format!(
            "no key of this project signed the checkpoint over {size} receipts in `{}`, so the store \
             was not compared with it",
            shown(&self.outside.place())
        ));
        Ok(Ok(()))
    }

    fn refusal(&self, fault: &LogFault) -> anyhow::Error {
        let kept = shown(&self.history.display());
        let kept = match &*self.outside.place() {
            "" => format!("`{kept}`"),
            outside => format!("`{kept}` and `{}`", shown(outside)),
        };
        match fault {
            LogFault::RolledBack { .. }
            | LogFault::NotAsSigned { .. }
            | LogFault::CheckpointDiffers { .. } => anyhow!(
                "store rolled back: {fault}; nothing was run. Restore the store, or move {kept} \
                 away to accept what is there"
            ),
            _ => anyhow!(
                "the log of receipts does not hold: {fault}; nothing was run. Restore the store; \
                 `operators receipts verify` tells more"
            ),
        }
    }

    /// What is new about this store to the project: nothing, where something of the tenant's log in it
    /// was signed here.
    pub(crate) async fn unseen(&self) -> Result<Option<Unseen>> {
        if self.kept_edge().is_some_and(|edge| edge.size() > 0) {
            return Ok(None);
        }
        let elsewhere = !self.other_histories()?.is_empty();
        unseen::of(&*self.store, &self.tenant, elsewhere).await
    }

    /// What is told where this project has a key that signs, and no checkpoint of a log that has
    /// receipts. The log of rehearsals is signed by no run.
    pub(crate) async fn missing_checkpoints(&self) -> Result<Option<String>> {
        let is_signed = !self.tenant.is_stub() && !self.keyring.public_keys()?.is_empty();
        if !is_signed || is_there(&self.history)? {
            return Ok(None);
        }
        let size = self.store.log().head(&self.tenant).await?.size();
        Ok((size > 0).then(|| {
            format!(
                "the checkpoints of this log are missing: `{}` is not there, although this project \
                 has a key that signs and the log {size} receipts; an older copy of the store would \
                 look the same, so hold it against a checkpoint that was kept elsewhere (`receipts \
                 verify --head`)",
                shown(&self.history.display())
            )
        }))
    }

    /// Whether this project signed that of the tenant's log in another store.
    fn is_of_another_log(&self, signed: &SignedCheckpoint) -> Result<bool> {
        for file in self.other_histories()? {
            if read_all(&file)?.contains(signed) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where checkpoints of the same tenant's log in other stores are kept.
    fn other_histories(&self) -> Result<Vec<PathBuf>> {
        let tenant = |file: &Path| {
            let stem = file.file_stem()?.to_string_lossy().into_owned();
            Some(stem.rsplit_once('-')?.0.to_owned())
        };
        let Some(folder) = self.history.parent() else {
            return Ok(Vec::new());
        };
        let listed = match std::fs::read_dir(folder) {
            Ok(listed) => listed,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(anyhow!("`{}`: {error}", shown(&folder.display()))),
        };
        let mut found = Vec::new();
        for entry in listed {
            let file = entry?.path();
            let is_history = file.extension() == self.history.extension();
            if is_history && file != self.history && tenant(&file) == tenant(&self.history) {
                found.push(file);
            }
        }
        Ok(found)
    }

    /// A signed checkpoint of everything there is, kept if it is new.
    pub(crate) async fn sign(&self) -> Result<SignedCheckpoint> {
        let key = self.keyring.signing_key()?;
        self.sign_with(&[&key]).await
    }

    async fn sign_with(&self, keys: &[&SigningKey]) -> Result<SignedCheckpoint> {
        let (mut history, kept) = self.known()?;
        let last = history.last().cloned();
        // Those before it were believed as they were compared.
        history.retain(|one| one.checkpoint.size >= kept.size());
        let known = Self::believed(history, &self.keyring.public_keys()?)?;
        let log = self.store.log();
        let edge = follow(log, &self.tenant, kept.clone(), known).await??;
        let checkpoint = Checkpoint {
            origin: origin_of(&self.tenant),
            size: edge.size(),
            root: edge.root(),
        };
        let is_ours = |last: &SignedCheckpoint| {
            last.checkpoint == checkpoint && keys.iter().all(|key| last.is_signed_by(&key.public()))
        };
        if let Some(last) = last.filter(is_ours) {
            if kept != edge {
                self.keep_edge(&edge)?;
            }
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

    /// Every checkpoint that was signed here, and the edge that was kept, if one of them vouches for it.
    fn known(&self) -> Result<(Vec<SignedCheckpoint>, Frontier)> {
        // An edge is kept after its checkpoint: read in this order, another process that signs
        // meanwhile leaves none without.
        let kept = self.kept_edge();
        let history = self.history()?;
        let is_vouched = |edge: &Frontier| history.iter().any(|one| is_edge(&one.checkpoint, edge));
        let edge = kept.filter(is_vouched).unwrap_or_default();
        Ok((history, edge))
    }

    fn kept_edge(&self) -> Option<Frontier> {
        let bytes = std::fs::read(&self.edge).ok()?;
        let (size, hashes) = bytes.split_first_chunk::<8>()?;
        Frontier::from_bytes(u64::from_be_bytes(*size), hashes)
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
        self.keep_edge(edge)
    }

    fn keep_edge(&self, edge: &Frontier) -> Result<()> {
        let bytes = [edge.size().to_be_bytes().as_slice(), &edge.to_bytes()].concat();
        keyring::replace(&self.edge, &bytes)
    }
}

/// Whether a checkpoint is of the log that ends with this edge.
fn is_edge(one: &Checkpoint, edge: &Frontier) -> bool {
    one.size == edge.size() && one.root == edge.root()
}

/// Every checkpoint in a file.
fn read_all(file: &Path) -> Result<Vec<SignedCheckpoint>> {
    let text = read_text(file, HISTORY_BYTES_MAX)?;
    SignedCheckpoint::parse_all(&text)
        .map_err(|problem| anyhow!("`{}`: {problem}", shown(&file.display())))
}
