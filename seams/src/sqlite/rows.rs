//! The rows of one transaction as a book: the statements that change them.

mod sessions;

use std::cell::Cell;

use operators_kernel::life::{EntityRecord, KeyRecord, Note, NoteName};
use operators_kernel::log::is_stub;
use operators_kernel::{
    EntityKey, IdempotencyKey, Receipt, RedactionKey, SessionId, Shared, Slip, StoreTime, TenantId,
    Ticket, Timestamp,
};
use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params};

use super::alive::SignsOfLife;
use super::clock::StoreClock;
use super::drafts::{Draft, Sheet};
use super::log::Logs;
use super::proposals::Proposals;
use super::records::{
    KEY_COLUMNS, RowError, find_entity, find_key, find_note, from_json, key_from_row, meaning,
    signed, to_json, unsigned,
};
use super::witness::Acked;
use crate::book::{Book, Change, Waiter};

const CLAIM_KEY: &str = "INSERT INTO key (tenant, idempotency_key, entity_key, generation, phase, \
    attempt, session_id, fence, fingerprint, effect, on_unknown, first_intent_at, quiescent_at, \
    open_attempts, open_until, proposal, application) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17) \
    ON CONFLICT (tenant, idempotency_key) DO UPDATE SET entity_key = ?3, generation = ?4, \
    phase = ?5, attempt = ?6, session_id = ?7, fence = ?8, fingerprint = ?9, effect = ?10, \
    on_unknown = ?11, first_intent_at = ?12, quiescent_at = ?13, open_attempts = ?14, \
    open_until = ?15, proposal = ?16, application = ?17";
const MOVE_KEY: &str = "UPDATE key SET generation = ?3, phase = ?4, attempt = ?5, \
    open_attempts = ?6, open_until = ?7, application = ?8 \
    WHERE tenant = ?1 AND idempotency_key = ?2";
const PUT_ENTITY: &str = "INSERT INTO entity (tenant, entity_key, fence, holder, revision, doubt, \
    landing_until) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
    ON CONFLICT (tenant, entity_key) DO UPDATE SET fence = ?3, holder = ?4, revision = ?5, \
    doubt = ?6, landing_until = ?7";
const APPEND: &str = "INSERT INTO receipt (receipt_id, tenant, idempotency_key, settled_at, body, \
    position, leaf, link) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
    ON CONFLICT (receipt_id) DO NOTHING";
const FIRST_WAITER: &str = "SELECT ticket, session_id, asker FROM waiter \
    WHERE tenant = ?1 AND entity_key = ?2 ORDER BY ticket LIMIT 1";

/// What a transaction needs besides its connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) clock: &'a StoreClock,
    pub(super) alive: &'a SignsOfLife,
    pub(super) proposals: &'a Proposals,
}

/// The rows inside one transaction, with one reading of the store's clock.
pub(super) struct Rows<'a> {
    connection: &'a Connection,
    around: Around<'a>,
    now: StoreTime,
    /// The session seen last and not buried: nearly every call of a batch is of the same one.
    known_session: Cell<Option<SessionId>>,
    /// Whether anybody waits for anything, once looked at: nearly always nobody does.
    has_waiters: Cell<Option<bool>>,
    logs: Logs,
    newest: Option<Acked>,
    /// What the call under way will most likely write.
    draft: Draft,
}

impl<'a> Rows<'a> {
    /// Inside a transaction that has begun: a clock that was read before would be behind the writes
    /// it waited for.
    pub(super) fn new(connection: &'a Connection, around: Around<'a>) -> Self {
        Self {
            connection,
            around,
            now: around.clock.now(),
            known_session: Cell::new(None),
            has_waiters: Cell::new(None),
            logs: Logs::default(),
            newest: None,
            draft: Draft::default(),
        }
    }

    /// What the next call will most likely write.
    pub(super) fn expect(&mut self, draft: Draft) {
        self.draft = draft;
    }

    /// The heads of the logs that have grown, once for the whole transaction.
    pub(super) fn write_logs(&self) -> rusqlite::Result<()> {
        self.logs.write(self.connection)
    }

    /// The last receipt that was written.
    pub(super) fn into_newest(self) -> Option<Acked> {
        self.newest
    }

    pub(super) fn execute(&self, statement: &str, params: impl Params) -> Result<(), RowError> {
        self.connection.prepare_cached(statement)?.execute(params)?;
        Ok(())
    }

    fn value<T: FromSql>(
        &self,
        statement: &str,
        params: impl Params,
    ) -> Result<Option<T>, RowError> {
        let mut statement = self.connection.prepare_cached(statement)?;
        Ok(statement.query_row(params, |row| row.get(0)).optional()?)
    }

    fn has_waiters(&self) -> Result<bool, RowError> {
        if let Some(known) = self.has_waiters.get() {
            return Ok(known);
        }
        let found = self.value::<i64>("SELECT 1 FROM waiter LIMIT 1", [])?;
        self.has_waiters.set(Some(found.is_some()));
        Ok(found.is_some())
    }

    /// The tenant's key: the one there, or `fresh` from now on.
    pub(super) fn redaction_key(
        &mut self,
        tenant: &TenantId,
        fresh: &RedactionKey,
    ) -> Result<RedactionKey, RowError> {
        let find = "SELECT redaction_key FROM tenant WHERE tenant = ?1";
        if let Some(found) = self.value::<[u8; 32]>(find, [tenant.as_str()])? {
            return Ok(RedactionKey::new(found));
        }
        self.execute(
            "INSERT INTO tenant (tenant, redaction_key) VALUES (?1, ?2)",
            (tenant.as_str(), fresh.as_bytes()),
        )?;
        Ok(fresh.clone())
    }
}

impl Book for Rows<'_> {
    type Error = RowError;

    fn now(&self) -> StoreTime {
        self.now
    }

    fn stamp(&self) -> Timestamp {
        self.around.clock.wall()
    }

    fn key(
        &mut self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<Shared<KeyRecord>>, RowError> {
        Ok(find_key(self.connection, tenant, key, self.around.proposals)?.map(Shared::from))
    }

    fn put_key(&mut self, record: Shared<KeyRecord>, change: Change) -> Result<(), RowError> {
        let proposal = &record.proposal;
        let name = (
            proposal.tenant_id.as_str(),
            proposal.idempotency_key.as_str(),
        );
        let open_attempts = to_json("open attempts", &record.open_attempts)?;
        let application = record.application.as_ref();
        let application = application
            .map(|a| to_json("an application", a))
            .transpose()?;
        match change {
            Change::Claimed => {
                let text = match self.draft.take_text(proposal) {
                    Some(text) => text,
                    None => to_json("a proposal", proposal)?,
                };
                self.execute(
                    CLAIM_KEY,
                    rusqlite::params![
                        name.0,
                        name.1,
                        proposal.entity_key.as_str(),
                        record.generation,
                        record.phase.as_str(),
                        record.attempt,
                        signed(record.session.0),
                        signed(record.fence.0),
                        record.fingerprint.0.text(),
                        to_json("an effect", &record.effect)?,
                        to_json("on_unknown", &record.on_unknown)?,
                        record.first_intent_at.0,
                        record.quiescent_at.0,
                        open_attempts,
                        record.open_until.0,
                        text,
                        application,
                    ],
                )?;
                self.around.proposals.keep(text, proposal);
                Ok(())
            }
            Change::Moved => self.execute(
                MOVE_KEY,
                rusqlite::params![
                    name.0,
                    name.1,
                    record.generation,
                    record.phase.as_str(),
                    record.attempt,
                    open_attempts,
                    record.open_until.0,
                    application,
                ],
            ),
        }
    }

    fn entity(&mut self, tenant: &TenantId, entity: &EntityKey) -> Result<EntityRecord, RowError> {
        find_entity(self.connection, tenant, entity)
    }

    fn put_entity(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        record: &EntityRecord,
    ) -> Result<(), RowError> {
        self.execute(
            PUT_ENTITY,
            rusqlite::params![
                tenant.as_str(),
                entity.as_str(),
                signed(record.fence.0),
                record.holder.map(|session| signed(session.0)),
                record.revision.map(signed),
                record.doubt.as_ref().map(IdempotencyKey::as_str),
                record.landing_until.0,
            ],
        )
    }

    fn append(&mut self, receipt: Slip) -> Result<(), RowError> {
        let sheet = match self.draft.take_sheet(&receipt) {
            Some(sheet) => sheet,
            None => Sheet::of(receipt)?,
        };
        let tenant = &sheet.tenant;
        let place = sheet
            .leaf
            .map(|leaf| self.logs.place(self.connection, tenant, leaf))
            .transpose()?;
        let written = self.connection.prepare_cached(APPEND)?.execute((
            sheet.receipt_id.as_str(),
            tenant.as_str(),
            sheet.idempotency_key.as_str(),
            sheet.settled_at,
            sheet.body,
            place.as_ref().map(|place| place.position),
            place.as_ref().map(|place| place.leaf.as_bytes()),
            place.as_ref().map(|place| place.link.as_bytes()),
        ))?;
        if written == 0 {
            return Ok(());
        }
        let sequence = self.connection.last_insert_rowid();
        self.newest = Some((sequence, sheet.receipt_id.as_str().to_owned()));
        if let Some(place) = place {
            self.logs.grow(tenant, &place);
        }
        Ok(())
    }

    fn receipt(
        &mut self,
        _tenant: &TenantId,
        receipt_id: &str,
    ) -> Result<Option<Receipt>, RowError> {
        let find = "SELECT body FROM receipt WHERE receipt_id = ?1";
        let body: Option<String> = self.value(find, [receipt_id])?;
        if body.as_deref().is_some_and(is_stub) {
            return Err(meaning("a receipt", "its text was pruned"));
        }
        body.map(|body| from_json("a receipt", &body)).transpose()
    }

    fn note(&mut self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, RowError> {
        find_note(self.connection, tenant, name)
    }

    fn put_note(&mut self, tenant: &TenantId, note: Note) -> Result<(), RowError> {
        let (kind, name) = (note.name.kind.as_str(), note.name.name);
        match note.body {
            Some(body) => self.execute(
                "INSERT INTO note (tenant, kind, name, body) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (tenant, kind, name) DO UPDATE SET body = ?4",
                (tenant.as_str(), kind, name, body),
            ),
            None => self.execute(
                "DELETE FROM note WHERE tenant = ?1 AND kind = ?2 AND name = ?3",
                (tenant.as_str(), kind, name),
            ),
        }
    }

    fn first_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
    ) -> Result<Option<(Ticket, Waiter)>, RowError> {
        if !self.has_waiters()? {
            return Ok(None);
        }
        let mut statement = self.connection.prepare_cached(FIRST_WAITER)?;
        let found = statement.query_row((tenant.as_str(), entity.as_str()), |row| {
            let waiter = Waiter {
                session: SessionId(unsigned(row.get(1)?)),
                asker: row.get(2)?,
            };
            Ok((Ticket(unsigned(row.get(0)?)), waiter))
        });
        Ok(found.optional()?)
    }

    fn add_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        waiter: Waiter,
    ) -> Result<Ticket, RowError> {
        let session = signed(waiter.session.0);
        self.has_waiters.set(Some(true));
        self.execute(
            "INSERT INTO waiter (tenant, entity_key, session_id, asker) VALUES (?1, ?2, ?3, ?4)",
            (tenant.as_str(), entity.as_str(), session, waiter.asker),
        )?;
        Ok(Ticket(unsigned(self.connection.last_insert_rowid())))
    }

    fn place_of(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        asker: &str,
    ) -> Result<Option<Ticket>, RowError> {
        let found = self.value(
            "SELECT ticket FROM waiter WHERE tenant = ?1 AND entity_key = ?2 AND asker = ?3",
            (tenant.as_str(), entity.as_str(), asker),
        )?;
        Ok(found.map(|ticket| Ticket(unsigned(ticket))))
    }

    fn has_waiter(
        &mut self,
        _tenant: &TenantId,
        _entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<bool, RowError> {
        let found =
            self.value::<i64>("SELECT 1 FROM waiter WHERE ticket = ?1", [signed(ticket.0)])?;
        Ok(found.is_some())
    }

    fn remove_waiter(
        &mut self,
        _tenant: &TenantId,
        _entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), RowError> {
        self.execute("DELETE FROM waiter WHERE ticket = ?1", [signed(ticket.0)])
    }

    fn is_buried(&mut self, session: SessionId) -> Result<bool, RowError> {
        if self.known_session.get() == Some(session) {
            return Ok(false);
        }
        let alive = self.value::<i64>(
            "SELECT 1 FROM session WHERE session_id = ?1 AND dead_at IS NULL",
            [signed(session.0)],
        )?;
        if alive.is_some() {
            self.known_session.set(Some(session));
        }
        Ok(alive.is_none())
    }

    fn is_lifeless(&mut self, session: SessionId) -> Result<bool, RowError> {
        self.has_ended(session)
    }

    fn lifeless_sessions(&mut self) -> Result<Vec<SessionId>, RowError> {
        self.all_that_ended()
    }

    fn extend(&mut self, session: SessionId) -> Result<(), RowError> {
        self.execute(
            "UPDATE session SET alive_until = ?2 + lease_us WHERE session_id = ?1",
            (signed(session.0), self.now.0),
        )
    }

    fn bury(&mut self, session: SessionId) -> Result<(), RowError> {
        self.known_session.set(None);
        self.execute(
            "UPDATE session SET dead_at = ?2 WHERE session_id = ?1 AND dead_at IS NULL",
            (signed(session.0), self.now.0),
        )?;
        self.execute(
            "DELETE FROM waiter WHERE session_id = ?1",
            [signed(session.0)],
        )
    }

    fn intents_of(&mut self, session: SessionId) -> Result<Vec<KeyRecord>, RowError> {
        let statement = format!(
            "SELECT {KEY_COLUMNS} FROM key WHERE session_id = ?1 AND phase = 'intent' \
             ORDER BY first_intent_at, rowid"
        );
        let mut statement = self.connection.prepare_cached(&statement)?;
        let mut rows = statement.query([signed(session.0)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(key_from_row(row, self.around.proposals)?);
        }
        Ok(found)
    }
}
