//! Deaths: who is declared dead, and how what they left open becomes doubts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::life::Phase;
use operators_kernel::{SessionId, StoreError};

use super::Shared;
use super::fields::number;
use super::item::Address;
use super::session::{Entry, GONE};
use super::sheet::{Kept, Sheet};
use super::trouble::Pauses;
use crate::book;
use crate::page::{KeyName, SessionRecord};

/// How long a claim that met a dead session makes doubts of what else that left open.
const BESIDE_A_CLAIM: Duration = Duration::from_secs(1);

impl Shared {
    /// Declares a session dead if it shows no life, and makes doubts of what it left open: `held`
    /// first, which is known for certain, then what the index shows.
    pub(super) async fn bury(
        &self,
        session: SessionId,
        held: Option<KeyName>,
    ) -> Result<SessionRecord, StoreError> {
        let now = self.table.observer.now();
        let found = self.table.get(&Address::session(session)).await?;
        let entry = found.as_ref().map(Entry::read).transpose();
        let entry = entry.map_err(|problem| self.table.unusable(problem))?;
        if let Some(entry) = entry
            && !entry.is_dead
        {
            let record = self.seen(&entry);
            if record.alive_until >= now {
                return Ok(record);
            }
            let unchanged = "dead = :no AND beat = :beat";
            let declared = self.declare(session, unchanged, Some(entry.beat)).await?;
            if !declared {
                // It beat at the last moment, or somebody else declared it: look again.
                return self.session(session).await;
            }
            tracing::warn!(%session, "the session showed no life for its lease and was declared dead");
        }
        self.table.observer.buried(session);
        if let Some((tenant, key)) = held {
            let mut sheet = self.sheet_of(&tenant, &key).await?;
            if let Some(sheet) = &mut sheet {
                self.owner_died(session, sheet).await?;
            }
        }
        // The others are nobody's here: they are looked for by heartbeats, too.
        let until = self.table.observer.now().plus(BESIDE_A_CLAIM);
        let swept = self.sweep_intents(session, Some(until)).await;
        if let Err(error) = swept {
            tracing::warn!(%session, %error, "what a dead session left open was not looked for");
        }
        Ok(GONE)
    }

    async fn declare(
        &self,
        session: SessionId,
        condition: &str,
        beat: Option<u64>,
    ) -> Result<bool, StoreError> {
        let date = self.table.observer.date_max();
        let change = match date {
            Some(_) => "SET dead = :yes, dead_date_max = :date",
            None => "SET dead = :yes",
        };
        let declared = self
            .change_session(session, change, condition, |mut request| {
                request = request
                    .expression_attribute_values(":yes", AttributeValue::Bool(true))
                    .expression_attribute_values(":no", AttributeValue::Bool(false));
                if let Some(beat) = beat {
                    request = request.expression_attribute_values(":beat", number(beat));
                }
                if let Some(date) = date {
                    request = request.expression_attribute_values(":date", number(date));
                }
                request
            })
            .await?;
        Ok(declared.is_ok())
    }

    /// Ends a session in good order.
    pub(super) async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.declare(session, "dead = :no", None).await?;
        self.table.observer.buried(session);
        // From here on no claim begins under it. One that is under way may still land, and after
        // the look below nobody would look for it but whoever wants its entity.
        let is_idle = self.claims.load(Ordering::SeqCst) == 0;
        let swept = self.sweep_intents(session, None).await?;
        if let Some(problem) = swept.problem {
            return Err(problem);
        }
        // Whoever closes knows what was left open, unless an answer was lost.
        if swept.found == 0 && is_idle && !self.lost_an_answer() {
            self.enlist(session, "DELETE").await?;
        }
        Ok(())
    }

    /// Makes a doubt of a dead session's intent; `false` if it is none.
    pub(super) async fn owner_died(
        &self,
        session: SessionId,
        sheet: &mut Sheet,
    ) -> Result<bool, StoreError> {
        let asked = self.table.observer.now();
        let mut pauses = Pauses::new(&self.table.observer);
        loop {
            self.follow(sheet).await?;
            let is_open = sheet
                .key
                .as_ref()
                .is_some_and(|key| key.phase() == Phase::Intent && key.session() == session);
            if !is_open {
                return Ok(false);
            }
            sheet.dying = Some(session);
            let decided = self.decide(sheet, |page| book::declare_dead(page, session));
            let (page, ()) = Box::pin(decided).await?;
            if let Kept::Done = self.keep(sheet, page, asked).await? {
                return Ok(true);
            }
            if !pauses.pause(&self.table.observer).await {
                return Err(self.table.unavailable("a doubt could not be recorded"));
            }
        }
    }
}
