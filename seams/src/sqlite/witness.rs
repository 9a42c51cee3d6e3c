//! What this process was told is durable, and by which files: a store that comes back as another, or
//! without it, is found out before anything more is done there.
//!
//! A file that was moved over ours is another file. One that was copied over ours is the same file with
//! older pages, of which `SQLite` notices nothing: it goes on with the pages it has in memory and in its
//! log. But whoever writes into a file changes its time, which otherwise only a log that is folded back
//! does; then what was acknowledged is looked for, page by page, by a connection of its own, which has
//! none in memory.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension};

use super::log_files::{INDEX, LOG, beside};
use super::open::open_to_look;

const NEWEST: &str = "SELECT sequence, receipt_id FROM receipt ORDER BY sequence DESC LIMIT 1";
const IDENTITY: &str = "SELECT identity FROM operators_store";
const FIND: &str = "SELECT receipt_id FROM receipt WHERE sequence = ?1";

/// How many receipts are remembered of the time between two changes of the file. The last few share a
/// page, which may have been written again since; these fill several.
const RECENT_MAX: usize = 32;
/// How many are remembered of before: the last eight changes. To look for all of them takes a
/// millisecond or two, once per change.
const EARLIER_MAX: usize = 8 * RECENT_MAX;

/// What is said of a store that forgot.
const FORGOT: &str = "store rolled back: it no longer holds what it acknowledged to this process (an \
    older copy was put in its place, or it is damaged), so keys that are burned may look free. \
    Nothing more is written; compare the receipts with the systems the actions touched, then restart";
/// What is said of a store that is another one.
const REPLACED: &str = "store rolled back: its file, or the log beside it, was removed or replaced \
    while it was open, so what this process burned may look free there. Nothing more is written; see \
    to it that one store is at this path, compare its receipts with the systems the actions touched, \
    then restart";

/// Whether this is said of where the files are, and of nothing that is in them.
pub(super) fn is_of_place(problem: &str) -> bool {
    problem == REPLACED
}

/// Why a store must not be used any more.
#[derive(Debug)]
pub(super) enum Fall {
    /// It is not what it was, in words for a person.
    RolledBack(String),
    /// It could not be asked.
    Sql(rusqlite::Error),
    /// It could not be opened to be asked.
    Closed(String),
}

/// A receipt that was acknowledged, by its number and its id.
pub(super) type Acked = (i64, String);

/// What one process remembers of its store.
#[derive(Debug)]
pub(super) struct Witness {
    /// The file as it was named, and its log's two beside it.
    paths: [PathBuf; 3],
    files: [FileId; 3],
    looks: Option<Looks>,
    /// Whether the file changed since all that is remembered was last found in it.
    is_changed: bool,
    identity: String,
    /// Receipts since the file changed last, newest last; one per commit, and the first as it was
    /// found.
    recent: VecDeque<Acked>,
    /// And from before.
    earlier: VecDeque<Acked>,
}

/// Which file is behind a path: device and number.
type FileId = (u64, u64);
/// How long a file is, and when it was written to: seconds and nanoseconds.
type Looks = (u64, i64, i64);

impl Witness {
    /// Takes the store as it is now for what it should be.
    pub(super) fn new(path: &Path, connection: &Connection) -> Result<Self, Fall> {
        let newest = connection.query_row(NEWEST, [], |row| Ok((row.get(0)?, row.get(1)?)));
        let newest = newest.optional().map_err(Fall::Sql)?;
        // SQLite keeps its log beside the file itself, whatever links lead there. It is open by now.
        let file = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let paths = [path.to_owned(), beside(&file, LOG), beside(&file, INDEX)];
        let [Some(file), Some(log), Some(index)] = identify(&paths) else {
            return Err(Fall::RolledBack(REPLACED.to_owned()));
        };
        Ok(Self {
            files: [file, log, index],
            looks: looks_of(path),
            paths,
            is_changed: false,
            identity: connection
                .query_row(IDENTITY, [], |row| row.get(0))
                .map_err(Fall::Sql)?,
            recent: newest.into_iter().collect(),
            earlier: VecDeque::new(),
        })
    }

    /// Looks at the files, before a transaction: whether they are those that are open, and whether
    /// somebody wrote into the file itself. That is a log that was folded back, or a copy that was put
    /// in its place.
    pub(super) fn look(&mut self) -> Result<(), Fall> {
        self.look_where()?;
        let [file, ..] = &self.paths;
        let looks = looks_of(file);
        self.is_changed |= looks != self.looks;
        self.looks = looks;
        Ok(())
    }

    /// Whether the paths still lead to the files that are open: what is committed elsewhere binds
    /// nobody.
    pub(super) fn look_where(&self) -> Result<(), Fall> {
        if identify(&self.paths) == self.files.map(Some) {
            Ok(())
        } else {
            Err(Fall::RolledBack(REPLACED.to_owned()))
        }
    }

    /// Whether the log may be folded back into the file by the last process to leave: both are what
    /// they were. A log that was only removed is folded as well, for nobody else can do it; its file
    /// must not have changed since, for then it is another log's, or an older copy. An empty log in its
    /// place holds nothing: whoever opens the file makes one, a connection of this process included.
    pub(super) fn may_fold(&mut self, connection: &Connection) -> bool {
        if self.look().is_ok() {
            return self.check(connection).is_ok();
        }
        let [ours, our_log, our_index] = self.files;
        let [file, log, index] = identify(&self.paths);
        let [path, log_path, _] = &self.paths;
        file == Some(ours)
            && index.is_none_or(|index| index == our_index)
            // With the log still there, the next to open the file finds all of it.
            && (log.is_none() || log != Some(our_log) && is_empty(log_path))
            && !self.is_changed
            && looks_of(path) == self.looks
    }

    /// Looks for what was acknowledged, inside a transaction: for the newest, or for all of it if the
    /// file changed.
    pub(super) fn check(&mut self, connection: &Connection) -> Result<(), Fall> {
        if !self.is_changed {
            let newest = self.recent.back().or(self.earlier.back());
            return self.find(connection, newest.into_iter());
        }
        // What the connection has in memory would hide what is in the file; to give that up would have
        // all of it read again, several times a second under load.
        let [file, ..] = &self.paths;
        let afresh = open_to_look(file).map_err(Fall::Closed)?;
        let remembered = self.earlier.iter().chain(&self.recent);
        match self.find(&afresh, remembered) {
            // Older pages beneath newer ones in the log do not fit together.
            Err(Fall::Sql(error)) if is_damage(&error) => {
                return Err(Fall::RolledBack(FORGOT.to_owned()));
            }
            found => found?,
        }
        self.earlier.append(&mut self.recent);
        keep_newest(&mut self.earlier, EARLIER_MAX);
        self.is_changed = false;
        Ok(())
    }

    /// Whether this is the store that it was, and holds these.
    fn find<'a>(
        &self,
        connection: &Connection,
        acked: impl Iterator<Item = &'a Acked>,
    ) -> Result<(), Fall> {
        let mut statement = connection.prepare_cached(IDENTITY).map_err(unasked)?;
        let identity: String = statement.query_row([], |row| row.get(0)).map_err(unasked)?;
        if identity == self.identity && all_there(connection, acked).map_err(unasked)? {
            Ok(())
        } else {
            Err(Fall::RolledBack(FORGOT.to_owned()))
        }
    }

    /// Remembers the newest receipt of a commit.
    pub(super) fn remember(&mut self, newest: Option<Acked>) {
        self.recent.extend(newest);
        keep_newest(&mut self.recent, RECENT_MAX);
    }
}

fn all_there<'a>(
    connection: &Connection,
    acked: impl Iterator<Item = &'a Acked>,
) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(FIND)?;
    for (sequence, receipt_id) in acked {
        let found =
            statement.query_row(
                [sequence],
                |row| Ok(row.get_ref(0)?.as_str()? == receipt_id),
            );
        if !found.optional()?.unwrap_or(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A table or a row that is not there belongs to a file from before it was.
fn unasked(error: rusqlite::Error) -> Fall {
    match (&error, error.sqlite_error_code()) {
        (rusqlite::Error::QueryReturnedNoRows, _) | (_, Some(ErrorCode::Unknown)) => {
            Fall::RolledBack(FORGOT.to_owned())
        }
        _ => Fall::Sql(error),
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt)
}

fn keep_newest(acked: &mut VecDeque<Acked>, most: usize) {
    let surplus = acked.len().saturating_sub(most);
    acked.drain(..surplus);
}

fn identify(paths: &[PathBuf; 3]) -> [Option<FileId>; 3] {
    paths.each_ref().map(|path| {
        let found = fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    })
}

fn is_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() == 0)
}

fn looks_of(path: &Path) -> Option<Looks> {
    let found = fs::metadata(path).ok()?;
    Some((found.len(), found.mtime(), found.mtime_nsec()))
}
