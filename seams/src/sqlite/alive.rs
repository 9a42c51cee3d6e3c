//! Signs of life: a lock per session that the system drops the moment its process ends.
//!
//! A lease says that a process is dead after a while; this says it at once, so that a restart after
//! a crash finds its doubts without waiting. Each session locks the byte of its own number in a file
//! beside the store. Processes in other containers on the same machine are seen as well.
//!
//! INVARIANT (one-lock-file): processes on one store look at one lock file, or they would bury each
//! other. So it lies beside the file itself, whatever links lead there, and one that was removed or
//! replaced is given up for the one that others find. Until they have noticed, which is at their next
//! heartbeat, they are not seen there; so the store keeps which file it was, and since when
//! (`Rows::lock_file_since`), and whoever did not beat since then is judged by its lease.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use operators_kernel::SessionId;

/// The lock file of a store; its locks live as long as this does.
#[derive(Debug)]
pub(super) struct SignsOfLife {
    path: PathBuf,
    // A std lock around a handful of numbers; one's own locks cannot be asked for.
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    file: File,
    /// The one before, if it was removed or replaced: whoever has not noticed yet shows life there.
    before: Option<File>,
    ours: BTreeSet<SessionId>,
    /// Those of ours whose rows are not committed yet.
    uncommitted: Vec<SessionId>,
}

impl SignsOfLife {
    /// Opens the lock file beside a store's file, which is there.
    pub(super) fn open(store: &Path) -> io::Result<Self> {
        let path = path_beside(&fs::canonicalize(store)?);
        let held = Held {
            file: open_file(&path)?,
            before: None,
            ours: BTreeSet::new(),
            uncommitted: Vec::new(),
        };
        Ok(Self {
            path,
            held: Mutex::new(held),
        })
    }

    /// Shows that this session's process lives, for as long as it does, or until it is
    /// [taken back](Self::take_back).
    pub(super) fn show(&self, session: SessionId) -> io::Result<()> {
        let mut held = self.lock();
        set_lock(&held.file, session, libc::F_WRLCK)?;
        held.ours.insert(session);
        held.uncommitted.push(session);
        Ok(())
    }

    /// The transaction was committed, and the sessions in it stay.
    pub(super) fn keep(&self) {
        self.lock().uncommitted.clear();
    }

    /// The transaction failed: somebody else's next session may get the number of one in it.
    pub(super) fn take_back(&self) {
        let mut held = self.lock();
        for session in std::mem::take(&mut held.uncommitted) {
            held.ours.remove(&session);
            for file in held.files() {
                // A lock that stays goes with this process, as it would have.
                drop(set_lock(file, session, libc::F_UNLCK));
            }
        }
    }

    /// Shows every sign again in a new file, if the one at its path is no longer ours.
    pub(super) fn renew(&self) -> io::Result<()> {
        let mut held = self.lock();
        if is_at(&held.file, &self.path)? {
            return Ok(());
        }
        let file = open_file(&self.path)?;
        for session in &held.ours {
            set_lock(&file, *session, libc::F_WRLCK)?;
        }
        held.before = Some(std::mem::replace(&mut held.file, file));
        Ok(())
    }

    /// Which file the locks are in: its device and number. While anybody has it open no other file
    /// has the same.
    pub(super) fn file(&self) -> io::Result<String> {
        let found = self.lock().file.metadata()?;
        Ok(format!("{}:{}", found.dev(), found.ino()))
    }

    /// Whether this very handle shows the session's sign.
    pub(super) fn is_ours(&self, session: SessionId) -> bool {
        self.lock().ours.contains(&session)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody else shows this session's sign.
    pub(super) fn is_shown_elsewhere(&self, session: SessionId) -> io::Result<bool> {
        // Whoever came after the file was replaced is seen in the new one alone.
        self.renew()?;
        for file in self.lock().files() {
            let mut lock = byte_lock(session, libc::F_WRLCK)?;
            fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
            if i32::from(lock.l_type) != libc::F_UNLCK {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Held {
    fn files(&self) -> impl Iterator<Item = &File> {
        std::iter::once(&self.file).chain(&self.before)
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Whether a path leads to this very file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn set_lock(file: &File, session: SessionId, kind: libc::c_int) -> io::Result<()> {
    let lock = byte_lock(session, kind)?;
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock))?;
    Ok(())
}

/// `store.db` → `store.db-alive`.
fn path_beside(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push("-alive");
    PathBuf::from(name)
}

fn byte_lock(session: SessionId, kind: libc::c_int) -> io::Result<libc::flock> {
    let byte = i64::try_from(session.0).map_err(io::Error::other)?;
    let kind = i16::try_from(kind).map_err(io::Error::other)?;
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
        fs::write(&store, "").expect("a file");
        let ours = SignsOfLife::open(&store).expect("opens");
        let theirs = SignsOfLife::open(&store).expect("opens");
        ours.show(SessionId(7)).expect("locks");
        assert!(theirs.is_shown_elsewhere(SessionId(7)).expect("asks"));
        assert!(!theirs.is_shown_elsewhere(SessionId(8)).expect("asks"));
        drop(ours);
        assert!(!theirs.is_shown_elsewhere(SessionId(7)).expect("asks"));
    }

    /// Each of two that had not noticed would have buried the other.
    #[test]
    fn signs_are_seen_after_the_lock_file_was_removed() {
        let folder = tempfile::tempdir().expect("folder");
        let store = folder.path().join("store.db");
        fs::write(&store, "").expect("a file");
        let old = SignsOfLife::open(&store).expect("opens");
        let idle = SignsOfLife::open(&store).expect("opens");
        old.show(SessionId(1)).expect("locks");
        idle.show(SessionId(2)).expect("locks");
        fs::remove_file(path_beside(&store)).expect("removes");
        let new = SignsOfLife::open(&store).expect("opens");
        new.show(SessionId(3)).expect("locks");
        assert!(old.is_shown_elsewhere(SessionId(3)).expect("asks"));
        assert!(old.is_shown_elsewhere(SessionId(2)).expect("asks"));
        assert!(new.is_shown_elsewhere(SessionId(1)).expect("asks"));
    }
}
