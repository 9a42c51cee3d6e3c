//! Sessions: who is new, and who shows life no more, by its lease and by its lock.

use std::time::Duration;

use operators_kernel::{SessionId, StoreTime};

use super::super::in_flight::lock_file_since;
use super::super::records::{RowError, signed, unsigned};
use super::Rows;

impl Rows<'_> {
    /// A new session, alive for one lease.
    pub(in super::super) fn add_session(
        &mut self,
        node: &str,
        lease: Duration,
    ) -> Result<SessionId, RowError> {
        let span = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
        // Noted before there is anybody in it who could be missed.
        self.lock_file_since()?;
        self.execute(
            "INSERT INTO session (node, lease_us, alive_until) VALUES (?1, ?2, ?3)",
            (node, span, self.now.plus(lease).0),
        )?;
        Ok(SessionId(unsigned(self.connection.last_insert_rowid())))
    }

    /// Whether a session was declared dead, or should be.
    pub(super) fn has_ended(&self, session: SessionId) -> Result<bool, RowError> {
        let beat = self.value::<i64>(
            "SELECT alive_until - lease_us FROM session \
             WHERE session_id = ?1 AND dead_at IS NULL AND alive_until >= ?2",
            (signed(session.0), self.now.0),
        )?;
        match beat {
            Some(beat) => Ok(!self.shows_life(session, StoreTime(beat))?),
            None => Ok(true),
        }
    }

    /// Every session that should be declared dead.
    pub(super) fn all_that_ended(&self) -> Result<Vec<SessionId>, RowError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT session_id, alive_until, alive_until - lease_us FROM session \
             WHERE dead_at IS NULL",
        )?;
        let sessions = statement
            .query_map([], |row| {
                let session = SessionId(unsigned(row.get(0)?));
                Ok((session, row.get(1)?, StoreTime(row.get(2)?)))
            })?
            .collect::<rusqlite::Result<Vec<(SessionId, i64, StoreTime)>>>()?;
        let mut found = Vec::new();
        for (session, alive_until, beat) in sessions {
            if alive_until < self.now.0 || !self.shows_life(session, beat)? {
                found.push(session);
            }
        }
        Ok(found)
    }

    /// Whether a session's process is there: another one that shows its sign, or this very one; or
    /// one that has not shown life since the lock file is another, and may still do so.
    fn shows_life(&self, session: SessionId, beat: StoreTime) -> Result<bool, RowError> {
        let alive = self.around.alive;
        if alive.is_ours(session) || alive.is_shown_elsewhere(session).map_err(RowError::Alive)? {
            return Ok(true);
        }
        Ok(beat < self.lock_file_since()?)
    }

    /// From when on whoever lives has its lock in the file that is at hand, noted in the store.
    fn lock_file_since(&self) -> Result<StoreTime, RowError> {
        let alive = self.around.alive;
        let (since, is_noted) = lock_file_since(self.connection, alive, self.now)?;
        if !is_noted {
            let at_hand = alive.file().map_err(RowError::Alive)?;
            self.execute(
                "UPDATE operators_store SET alive_file = ?1, alive_since = ?2",
                (at_hand, since.0),
            )?;
        }
        Ok(since)
    }
}
