//! A file that only grows, a line at a time, shared by any number of processes.
//!
//! Owns the file: its lock, its end, and what is on disk. It must not know what a line means.
//!
//! INVARIANT (lands-in-time): a line is written under the file's exclusive lock, and only if the
//! call's deadline has not passed, and its permit holds, when the lock is held. A look under the shared lock therefore
//! sees every line that will ever land of calls whose deadline is over, however long a process
//! was stopped; that is why `max_land` can be zero.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use operators_kernel::SendPermit;
use tokio::time::Instant;

/// Between two tries for the lock; a line takes about as long to reach the disk.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Ends a torn line. A new-line alone could complete it: all but its last byte may have been
/// written, and an effect that was reported as not there would appear.
const TORN: &[u8] = b"#torn\n";

/// How an append ended.
#[derive(Debug)]
pub(super) enum Appended {
    /// The line is on disk.
    Durable,
    /// No byte was written, and none will be.
    Nothing(String),
    /// Part of the line, or all of it, may be there or vanish.
    Unsure(String),
}

/// For how long a task may still act for its caller.
#[derive(Debug)]
pub(super) struct Patience {
    gone: Arc<AtomicBool>,
    until: Instant,
    permit: SendPermit,
}

impl Patience {
    pub(super) fn new(gone: Arc<AtomicBool>, until: Instant, permit: SendPermit) -> Self {
        Self {
            gone,
            until,
            permit,
        }
    }

    fn is_over(&self) -> bool {
        self.gone.load(Ordering::SeqCst) || Instant::now() >= self.until
    }
}

/// Appends one line, new-line included, in a single write, and waits for the disk.
pub(super) fn append(path: &Path, line: &[u8], patience: &Patience) -> Appended {
    let mut file = match open_for_append(path) {
        Ok(file) => file,
        Err(problem) => return Appended::Nothing(problem),
    };
    if let Err(problem) = lock(patience, || file.try_lock()) {
        return Appended::Nothing(problem);
    }
    let (length, torn) = match end_of(&file) {
        Ok(end) => end,
        Err(error) => return Appended::Nothing(error.to_string()),
    };
    let mut text = Vec::with_capacity(line.len() + TORN.len());
    if torn {
        text.extend_from_slice(TORN);
    }
    text.extend_from_slice(line);
    // INVARIANT (lands-in-time): the last look at the clock is under the lock.
    if patience.is_over() {
        return Appended::Nothing("the deadline passed before anything was written".to_owned());
    }
    if let Err(refused) = patience.permit.check() {
        return Appended::Nothing(refused.message);
    }
    // One `write`, never a loop: after a failure it must be clear what is there.
    let written = file.write(&text);
    // Everyone who writes holds the lock, so an unchanged length is proof.
    let unchanged = || file.metadata().is_ok_and(|now| now.len() == length);
    if let Some(failure) = failure(&written, text.len(), unchanged) {
        return failure;
    }
    let synced = file.sync_all().and_then(|()| {
        // A file that was empty may be new, and its name not on disk yet.
        if length == 0 {
            sync_parent(path)
        } else {
            Ok(())
        }
    });
    match synced {
        Ok(()) => Appended::Durable,
        Err(error) => Appended::Unsure(format!("written, but not surely on disk: {error}")),
    }
}

/// What a `write` that did not take everything leaves behind.
fn failure(
    written: &std::io::Result<usize>,
    wanted: usize,
    unchanged: impl FnOnce() -> bool,
) -> Option<Appended> {
    match written {
        Ok(taken) if *taken == wanted => None,
        Ok(0) => Some(Appended::Nothing("no byte was taken".to_owned())),
        Ok(taken) => Some(Appended::Unsure(format!(
            "{taken} of {wanted} bytes were taken"
        ))),
        Err(error) if unchanged() => Some(Appended::Nothing(error.to_string())),
        Err(error) => Some(Appended::Unsure(error.to_string())),
    }
}

/// Calls `visit` with each complete line, without its new-line. A missing file has none; what
/// follows the last new-line is no line.
pub(super) fn each_line(path: &Path, visit: impl FnMut(&[u8])) -> Result<(), String> {
    match open_for_reading(path)? {
        None => Ok(()),
        Some(file) => scan(&file, visit),
    }
}

/// As [`each_line`], when no append is under way, and with everything seen on disk.
pub(super) fn each_settled_line(
    path: &Path,
    patience: &Patience,
    visit: impl FnMut(&[u8]),
) -> Result<(), String> {
    let Some(file) = open_for_reading(path)? else {
        return Ok(());
    };
    lock(patience, || file.try_lock_shared())?;
    // Whoever wrote a line may have died before it reached the disk.
    file.sync_all().map_err(|error| error.to_string())?;
    scan(&file, visit)
}

fn scan(file: &File, mut visit: impl FnMut(&[u8])) -> Result<(), String> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        reader
            .read_until(b'\n', &mut line)
            .map_err(|error| error.to_string())?;
        match line.strip_suffix(b"\n") {
            Some(complete) => visit(complete),
            None => return Ok(()),
        }
    }
}

/// Tries for a lock until the deadline; a lock that blocks could not be given up.
fn lock(
    patience: &Patience,
    mut attempt: impl FnMut() -> Result<(), TryLockError>,
) -> Result<(), String> {
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(format!("cannot be locked: {error}")),
            Err(TryLockError::WouldBlock) if patience.is_over() => {
                return Err("another program holds its lock".to_owned());
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
        }
    }
}

/// The length, and whether the last line lacks its new-line.
fn end_of(file: &File) -> std::io::Result<(u64, bool)> {
    let length = file.metadata()?.len();
    let Some(last) = length.checked_sub(1) else {
        return Ok((0, false));
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok((length, byte != *b"\n"))
}

/// Never through a link, and never waiting for the other end of a pipe.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
    options
}

fn open_for_append(path: &Path) -> Result<File, String> {
    let mut existing = options();
    existing.append(true);
    let opened = match existing.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            create_parent(path).map_err(|error| format!("cannot make its folder: {error}"))?;
            // Not `create_new`: another process may have been faster, and its file is as good.
            existing.create(true).open(path)
        }
        opened => opened,
    };
    opened.map_err(|error| refusal(&error)).and_then(regular)
}

fn open_for_reading(path: &Path) -> Result<Option<File>, String> {
    match options().open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refusal(&error)),
        Ok(file) => regular(file).map(Some),
    }
}

fn refusal(error: &std::io::Error) -> String {
    if error.raw_os_error() == Some(Errno::ELOOP as i32) {
        return "is a symbolic link; name the file itself".to_owned();
    }
    format!("cannot be opened: {error}")
}

fn regular(file: File) -> Result<File, String> {
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err("is not a regular file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Makes the folders that are missing, for the owner only, and puts their names on disk.
fn create_parent(path: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .skip(1)
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .collect();
    let Some(deepest) = missing.first() else {
        return Ok(());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(deepest)?;
    missing.into_iter().try_for_each(sync_parent)
}

fn sync_parent(path: &Path) -> std::io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A full disk or a broken one cannot be had in a test, so their answers are.
    #[test]
    fn a_write_that_fell_short_is_a_doubt_unless_nothing_was_written() {
        let full = || Err(io::Error::from(ErrorKind::StorageFull));
        assert!(failure(&Ok(9), 9, || false).is_none());
        let nothing = |failure| matches!(failure, Some(Appended::Nothing(_)));
        let unsure = |failure| matches!(failure, Some(Appended::Unsure(_)));
        assert!(unsure(failure(&Ok(8), 9, || true)));
        assert!(nothing(failure(&Ok(0), 9, || true)));
        assert!(nothing(failure(&full(), 9, || true)));
        assert!(unsure(failure(&full(), 9, || false)));
    }
}
