//! A credential in a file of its own, which nobody but its owner may read.
//!
//! Read anew for every call, so that a replaced file counts at once.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use operators_kernel::Secret;

use crate::secrets::text;

/// Whoever is in the group, and everybody else.
const OTHERS: u32 = 0o077;

/// The secret in the file, or why it is not taken.
pub(crate) async fn read(path: PathBuf) -> Result<Secret, String> {
    let reading = tokio::task::spawn_blocking(move || read_now(&path));
    reading
        .await
        .unwrap_or_else(|_| Err("reading it was given up".to_owned()))
}

fn read_now(path: &Path) -> Result<Secret, String> {
    let shown = path.display();
    let file = open(path).map_err(|error| format!("the file `{shown}`: {error}"))?;
    // Of the open file, not of its name, which may mean another one by now.
    let metadata = file
        .metadata()
        .map_err(|error| format!("the file `{shown}`: {error}"))?;
    if !metadata.is_file() {
        return Err(format!("`{shown}` is not a regular file"));
    }
    let mode = metadata.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(format!(
            "others may use the file `{shown}` (mode {:03o}); run `chmod 600 {shown}`",
            mode & 0o777
        ));
    }
    let mut bytes = Vec::new();
    file.take(text::BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("the file `{shown}`: {error}"))?;
    text::secret(bytes).map_err(|problem| format!("the file `{shown}` {problem}"))
}

/// Without waiting: opening a pipe that nobody writes to would never end.
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)
}
