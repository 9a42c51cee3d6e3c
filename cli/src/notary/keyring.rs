//! The key that signs checkpoints: made on first use, readable by its owner alone, replaced on wish.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use operators_kernel::json::hex;
use operators_kernel::log::{PublicKey, SigningKey};
use operators_seams::random_seed;

use crate::output::shown;
use crate::project::{is_there, read_text};

const KEY_FILE: &str = "signing.key";
const PUBLIC_FILE: &str = "signing.pub";
const SEED: &str = "ed25519-seed:";

/// Far beyond what the files hold.
const KEY_BYTES_MAX: usize = 1 << 20;

/// The folder with the keys.
#[derive(Debug)]
pub(crate) struct Keyring {
    dir: PathBuf,
}

impl Keyring {
    pub(crate) fn of(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The key, made if there is none.
    pub(crate) fn signing_key(&self) -> Result<SigningKey> {
        let file = self.dir.join(KEY_FILE);
        if !is_there(&file)? {
            make_folder(&self.dir)?;
            let (text, key) = fresh()?;
            // Two processes may come here at once: the first one's key stays.
            match write_new(&file, &text) {
                Ok(()) => self.add_public(&key.public())?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(anyhow!(error).context(format!("`{}`", shown(&file.display()))));
                }
            }
        }
        self.read_key(&file)
    }

    fn read_key(&self, file: &Path) -> Result<SigningKey> {
        let name = shown(&file.display());
        let mode = fs::metadata(file)
            .with_context(|| format!("`{name}`"))?
            .mode();
        if mode & 0o077 != 0 {
            bail!("`{name}` can be read by others; run `chmod 600` on it, or replace it");
        }
        let text = read_text(file, KEY_BYTES_MAX)?;
        let seed = text.trim().strip_prefix(SEED).and_then(unhex);
        let seed = seed.with_context(|| {
            format!("`{name}` is no signing key; restore it, or remove it to make a new one")
        })?;
        let key = SigningKey::from_seed(&seed);
        if !self.public_keys()?.contains(&key.public()) {
            self.add_public(&key.public())?;
        }
        Ok(key)
    }

    /// Where the keys stand whose signatures are believed.
    pub(crate) fn public_file(&self) -> PathBuf {
        self.dir.join(PUBLIC_FILE)
    }

    /// The keys whose signatures are believed: the present one and those before it.
    pub(crate) fn public_keys(&self) -> Result<Vec<PublicKey>> {
        let file = self.dir.join(PUBLIC_FILE);
        if !is_there(&file)? {
            return Ok(Vec::new());
        }
        let text = read_text(&file, KEY_BYTES_MAX)?;
        let keys = text.lines().map(str::parse).collect::<Result<_, String>>();
        keys.map_err(|problem| anyhow!("`{}`: {problem}", shown(&file.display())))
    }

    /// A key to come. It is not used before it is [kept](Self::keep).
    pub(crate) fn next(&self) -> Result<(String, SigningKey)> {
        make_folder(&self.dir)?;
        fresh()
    }

    /// Puts the next key in the place of the present one.
    pub(crate) fn keep(&self, (text, key): &(String, SigningKey)) -> Result<()> {
        self.add_public(&key.public())?;
        replace(&self.dir.join(KEY_FILE), text.as_bytes())
    }

    fn add_public(&self, key: &PublicKey) -> Result<()> {
        let file = self.dir.join(PUBLIC_FILE);
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&file);
        let written = opened.and_then(|mut file| file.write_all(format!("{key}\n").as_bytes()));
        written.with_context(|| format!("`{}` cannot be written", shown(&file.display())))
    }
}

fn fresh() -> Result<(String, SigningKey)> {
    let seed = random_seed().map_err(|problem| anyhow!(problem))?;
    Ok((
        format!("{SEED}{}\n", hex(&seed)),
        SigningKey::from_seed(&seed),
    ))
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>()?;
    rest.is_empty().then(|| bytes.try_into().ok()).flatten()
}

/// Makes a folder that its owner alone can look into, if it is not there.
pub(super) fn make_folder(dir: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("`{}` cannot be made", shown(&dir.display())))
}

/// Writes a file that appears whole or not at all, and never in the place of another.
fn write_new(file: &Path, text: &str) -> std::io::Result<()> {
    let draft = draft_of(file);
    private(&draft)?.write_all(text.as_bytes())?;
    let linked = fs::hard_link(&draft, file);
    fs::remove_file(&draft)?;
    linked
}

/// Writes a file whole, in the place of what was there.
pub(super) fn replace(file: &Path, bytes: &[u8]) -> Result<()> {
    let draft = draft_of(file);
    let written = private(&draft)
        .and_then(|mut opened| opened.write_all(bytes))
        .and_then(|()| fs::rename(&draft, file));
    written.with_context(|| format!("`{}` cannot be written", shown(&file.display())))
}

fn draft_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    PathBuf::from(name)
}

fn private(file: &Path) -> std::io::Result<fs::File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)
}
