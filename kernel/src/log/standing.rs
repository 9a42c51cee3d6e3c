//! Whether a log still holds what was signed of it, at a cost that does not grow with it.
//!
//! A link is made of every leaf up to its own, so one link stands for all that was signed. What this
//! does not find (a text that was edited, a receipt deleted from the middle) is for an audit.

use super::fault::LogFault;
use super::tree::Frontier;
use super::{Log, LogEntry};
use crate::durable::StoreError;
use crate::key::TenantId;

/// Whether the log has, where `signed` ends, the very leaf that it ended with, and whether it ends
/// itself where its head says. At most two heads and three entries are looked at.
pub async fn still_holds(
    log: &dyn Log,
    tenant: &TenantId,
    signed: &Frontier,
) -> Result<Result<(), LogFault>, StoreError> {
    let head = log.head(tenant).await?;
    if head.size() < signed.size() {
        return Ok(Err(LogFault::RolledBack {
            found: head.size(),
            size: signed.size(),
        }));
    }
    match last_of(log, tenant, signed.size()).await? {
        Ok(Some(last)) if last.link != signed.link() => {
            return Ok(Err(LogFault::NotAsSigned {
                number: signed.size(),
                receipt_id: last.receipt_id,
            }));
        }
        Ok(_) => {}
        Err(fault) => return Ok(Err(fault)),
    }
    if head.size() > signed.size() {
        match last_of(log, tenant, head.size()).await? {
            Ok(Some(last)) if last.link != head.link() => {
                return Ok(Err(LogFault::Rewritten {
                    number: head.size(),
                    receipt_id: last.receipt_id,
                }));
            }
            Ok(_) => {}
            Err(fault) => return Ok(Err(fault)),
        }
    } else if head != *signed {
        let number = head.size();
        return Ok(Err(LogFault::HeadChanged { number }));
    }
    behind(log, tenant, head.size()).await
}

/// The last entry of the first `size`; `None` where that is none.
async fn last_of(
    log: &dyn Log,
    tenant: &TenantId,
    size: u64,
) -> Result<Result<Option<LogEntry>, LogFault>, StoreError> {
    let Some(position) = size.checked_sub(1) else {
        return Ok(Ok(None));
    };
    let found = log.log_entries(tenant, position, 1).await?;
    let found = found.into_iter().next();
    let gone = |entry: Option<LogEntry>| LogFault::Gone {
        number: size,
        receipt_id: entry.map(|entry| entry.receipt_id),
    };
    Ok(match found {
        Some(entry) if entry.position == position && entry.body.is_some() => Ok(Some(entry)),
        other => Err(gone(other)),
    })
}

/// Whether anything stands behind the head: what was appended since has moved it.
async fn behind(
    log: &dyn Log,
    tenant: &TenantId,
    size: u64,
) -> Result<Result<(), LogFault>, StoreError> {
    let Some(entry) = log.log_entries(tenant, size, 1).await?.into_iter().next() else {
        return Ok(Ok(()));
    };
    if entry.position < log.head(tenant).await?.size() {
        return Ok(Ok(()));
    }
    Ok(Err(LogFault::BehindHead {
        number: entry.position.saturating_add(1),
        receipt_id: entry.receipt_id,
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::*;
    use crate::log::{BurnedPage, LogHash, PlacedStub, Sequenced};

    /// A log that counts how many entries were asked for.
    #[derive(Debug, Default)]
    struct Shown {
        head: Frontier,
        entries: Vec<LogEntry>,
        asked: AtomicUsize,
    }

    impl Shown {
        /// One receipt for each of these texts.
        fn of(texts: &[&str]) -> Self {
            let mut shown = Self::default();
            for text in texts {
                let leaf = LogHash::of_leaf(text.as_bytes());
                shown.entries.push(LogEntry {
                    position: shown.head.size(),
                    receipt_id: (*text).to_owned(),
                    leaf,
                    link: shown.head.push(leaf),
                    body: Some((*text).to_owned()),
                });
            }
            shown
        }
    }

    fn asked_for_more() -> StoreError {
        StoreError::Unusable {
            store: "a log".to_owned(),
            problem: "more was asked than a look".to_owned(),
        }
    }

    #[async_trait]
    impl Log for Shown {
        async fn head(&self, _: &TenantId) -> Result<Frontier, StoreError> {
            Ok(self.head.clone())
        }

        async fn sequence(&self, _: &TenantId) -> Result<Sequenced, StoreError> {
            Err(asked_for_more())
        }

        async fn log_entries(
            &self,
            _: &TenantId,
            from: u64,
            limit: usize,
        ) -> Result<Vec<LogEntry>, StoreError> {
            self.asked.fetch_add(limit, Ordering::Relaxed);
            let found = self.entries.iter().filter(|entry| entry.position >= from);
            Ok(found.take(limit).cloned().collect())
        }

        async fn put_stubs(&self, _: &TenantId, _: Vec<PlacedStub>) -> Result<(), StoreError> {
            Err(asked_for_more())
        }

        async fn stub(&self, _: &TenantId, _: &str) -> Result<Option<String>, StoreError> {
            Err(asked_for_more())
        }

        async fn strays(&self, _: &TenantId) -> Result<Vec<String>, StoreError> {
            Err(asked_for_more())
        }

        async fn burned(&self, _: &TenantId, _: Option<&str>) -> Result<BurnedPage, StoreError> {
            Err(asked_for_more())
        }
    }

    async fn holds(log: &Shown, signed: &[&str]) -> Result<(), LogFault> {
        let tenant = TenantId::parse("acme").expect("a tenant");
        let signed = Shown::of(signed).head;
        still_holds(log, &tenant, &signed).await.expect("it shows")
    }

    // Rule 8.6
    #[tokio::test]
    async fn a_log_that_only_grew_holds_what_was_signed() {
        let log = Shown::of(&["a", "b", "c"]);
        for signed in [&[][..], &["a"], &["a", "b"], &["a", "b", "c"]] {
            assert_eq!(holds(&log, signed).await, Ok(()), "{signed:?}");
        }
        assert_eq!(holds(&Shown::default(), &[]).await, Ok(()));
    }

    // Rule 8.6: at a cost that does not grow with the log.
    #[tokio::test]
    async fn three_entries_are_looked_at_of_however_many() {
        let texts: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let log = Shown::of(&texts);
        assert_eq!(holds(&log, &texts[..1_234]).await, Ok(()));
        assert_eq!(log.asked.load(Ordering::Relaxed), 3);
    }

    // Rule 8.6: fewer, as many and more receipts than were signed.
    #[tokio::test]
    async fn what_was_put_back_and_grew_again_is_found() {
        let signed = ["a", "b", "c"];
        let size = signed.len() as u64;
        for (texts, found) in [(&["a"][..], 1), (&[], 0)] {
            let fault = LogFault::RolledBack { found, size };
            assert_eq!(holds(&Shown::of(texts), &signed).await, Err(fault));
        }
        for texts in [
            &["a", "x", "y"][..],
            &["a", "x", "y", "z"],
            &["x", "b", "c"],
        ] {
            let fault = holds(&Shown::of(texts), &signed).await;
            let receipt_id = texts[2].to_owned();
            let number = size;
            assert_eq!(fault, Err(LogFault::NotAsSigned { number, receipt_id }));
        }
    }

    // Rule 8.6: the end of the log, signed or not.
    #[tokio::test]
    async fn an_end_that_is_not_the_heads_is_found() {
        let texts = ["a", "b", "c"];
        for signed in [&texts[..], &texts[..1]] {
            let mut log = Shown::of(&texts);
            log.entries.pop();
            let gone = LogFault::Gone {
                number: 3,
                receipt_id: None,
            };
            assert_eq!(holds(&log, signed).await, Err(gone));
        }
        let mut log = Shown::of(&texts);
        log.head = Shown::of(&texts[..2]).head;
        let receipt_id = "c".to_owned();
        let behind = LogFault::BehindHead {
            number: 3,
            receipt_id: receipt_id.clone(),
        };
        assert_eq!(holds(&log, &texts[..2]).await, Err(behind));
        let mut log = Shown::of(&texts);
        log.head = Shown::of(&["a", "b", "x"]).head;
        let rewritten = LogFault::Rewritten {
            number: 3,
            receipt_id,
        };
        assert_eq!(holds(&log, &texts[..2]).await, Err(rewritten));
        let changed = LogFault::HeadChanged { number: 3 };
        assert_eq!(holds(&log, &texts).await, Err(changed));
    }
}
