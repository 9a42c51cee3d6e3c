//! Signs of life: a lock per session that the system drops the moment its process ends.
//!
//! A lease says that a process is dead after a while; this says it at once, so that a restart after
//! a crash finds its doubts without waiting. Each session locks the byte of its own number in a file
//! beside the store. Processes in other containers on the same machine are seen as well.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use operators_kernel::SessionId;

/// The lock file, opened once; its locks live as long as this does.
#[derive(Debug)]
pub(super) struct SignsOfLife {
    file: File,
    // A std lock around a handful of numbers; one's own locks cannot be asked for.
    ours: Mutex<BTreeSet<SessionId>>,
}

impl SignsOfLife {
    /// Opens the lock file beside a store's file.
    pub(super) fn open(store: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path_beside(store))?;
        Ok(Self {
            file,
            ours: Mutex::new(BTreeSet::new()),
        })
    }

    /// Shows that this session's process lives, for as long as it does.
    pub(super) fn show(&self, session: SessionId) -> io::Result<()> {
        let lock = byte_lock(session)?;
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock))?;
        self.lock().insert(session);
        Ok(())
    }

    /// Whether this very handle shows the session's sign.
    pub(super) fn is_ours(&self, session: SessionId) -> bool {
        self.lock().contains(&session)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<SessionId>> {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody else shows this session's sign.
    pub(super) fn is_shown_elsewhere(&self, session: SessionId) -> io::Result<bool> {
        let mut lock = byte_lock(session)?;
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut lock))?;
        Ok(i32::from(lock.l_type) != libc::F_UNLCK)
    }
}

/// `store.db` → `store.db-alive`.
fn path_beside(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push("-alive");
    PathBuf::from(name)
}

fn byte_lock(session: SessionId) -> io::Result<libc::flock> {
    let byte = i64::try_from(session.0).map_err(io::Error::other)?;
    let kind = i16::try_from(libc::F_WRLCK).map_err(io::Error::other)?;
    let whence = i16::try_from(libc::SEEK_SET).map_err(io::Error::other)?;
    Ok(libc::flock {
        l_type: kind,
        l_whence: whence,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_is_seen_by_others_and_goes_with_its_file() {
        let folder = tempfile::tempdir().expect("folder");
        let store = folder.path().join("store.db");
        let ours = SignsOfLife::open(&store).expect("opens");
        let theirs = SignsOfLife::open(&store).expect("opens");
        ours.show(SessionId(7)).expect("locks");
        assert!(theirs.is_shown_elsewhere(SessionId(7)).expect("asks"));
        assert!(!theirs.is_shown_elsewhere(SessionId(8)).expect("asks"));
        drop(ours);
        assert!(!theirs.is_shown_elsewhere(SessionId(7)).expect("asks"));
    }
}
