//! The judgement over a log: every entry in its order, then the head, then the checkpoints.
//!
//! Owns what is checked and which fault comes first. It reads nothing itself: entries are given to
//! it, a page at a time, and of what it was given it keeps what was sent, as hashes.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::LogEntry;
use super::attempts::Attempts;
use super::burns::Burns;
use super::checkpoint::{Checkpoint, origin_of};
use super::fault::LogFault;
use super::pruning::{Pruning, Stub, is_stub};
use super::stubs::Stubs;
use super::tree::{Frontier, LogHash};
use crate::key::TenantId;
use crate::receipt::{Receipt, ReceiptKind, ReceiptOutcome};

/// What an audit looks at in a receipt, and all that a stub keeps of it but the attempt.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Seen<'a> {
    #[serde(default, skip_serializing)]
    pub(super) attempt: Option<u32>,
    pub(super) fence: Option<u64>,
    pub(super) generation: u32,
    #[serde(borrow)]
    pub(super) idempotency_key: Cow<'a, str>,
    pub(super) kind: ReceiptKind,
    pub(super) outcome: Option<ReceiptOutcome>,
    #[serde(borrow)]
    pub(super) receipt_id: Cow<'a, str>,
    #[serde(borrow)]
    tenant_id: Cow<'a, str>,
}

/// Goes through one tenant's log.
#[derive(Debug)]
pub struct Auditor {
    tenant: TenantId,
    frontier: Frontier,
    /// Those that are still ahead, the smallest last.
    checkpoints: Vec<Checkpoint>,
    checked: u64,
    /// How many receipts a checkpoint vouches for, and the id of the first after them.
    vouched: u64,
    first_unvouched: Option<String>,
    last: Option<String>,
    burns: Option<Burns>,
    attempts: Attempts,
    stubs: Stubs,
}

impl Auditor {
    /// Begins with the first receipt. Every checkpoint must agree with the log; their signatures are
    /// the caller's to check. `burns` asks for what the receipts say about keys.
    pub fn new(
        tenant: &TenantId,
        checkpoints: Vec<Checkpoint>,
        burns: Option<Burns>,
    ) -> Result<Self, LogFault> {
        Self::resume(tenant, Frontier::default(), checkpoints, burns)
    }

    /// Goes on behind what was found sound before.
    pub(super) fn resume(
        tenant: &TenantId,
        edge: Frontier,
        mut checkpoints: Vec<Checkpoint>,
        burns: Option<Burns>,
    ) -> Result<Self, LogFault> {
        let expected = origin_of(tenant);
        if let Some(other) = checkpoints.iter().find(|one| one.origin != expected) {
            return Err(LogFault::OtherLog {
                origin: other.origin.clone(),
                expected,
            });
        }
        checkpoints.retain(|one| one.size >= edge.size());
        checkpoints.sort_by_key(|one| std::cmp::Reverse(one.size));
        let mut auditor = Self {
            tenant: tenant.clone(),
            vouched: edge.size(),
            stubs: Stubs::from(edge.size()),
            frontier: edge,
            checkpoints,
            checked: 0,
            first_unvouched: None,
            last: None,
            burns,
            attempts: Attempts::default(),
        };
        auditor.check_checkpoints()?;
        Ok(auditor)
    }

    /// Looks at the next entry.
    pub fn entry(&mut self, entry: &LogEntry) -> Result<(), LogFault> {
        let expected = self.frontier.size();
        let number = expected.saturating_add(1);
        let id = || entry.receipt_id.clone();
        if entry.position > expected {
            return Err(LogFault::Gone {
                number,
                receipt_id: Some(id()),
            });
        }
        if entry.position < expected {
            return Err(LogFault::Moved {
                number,
                belongs: entry.position.saturating_add(1),
                receipt_id: id(),
            });
        }
        let Some(body) = &entry.body else {
            let receipt_id = Some(id());
            return Err(LogFault::Gone { number, receipt_id });
        };
        if is_stub(body) {
            self.stub(entry, body, number)?;
        } else {
            let kind = self.text(entry, body, number)?;
            if LogHash::of_leaf(body.as_bytes()) != entry.leaf {
                let receipt_id = id();
                return Err(LogFault::Changed { number, receipt_id });
            }
            self.stubs.body(entry, body, kind);
        }
        if self.frontier.push(entry.leaf) != entry.link {
            let receipt_id = id();
            return Err(LogFault::Unlinked { number, receipt_id });
        }
        self.first_unvouched.get_or_insert_with(id);
        self.last = Some(id());
        self.check_checkpoints()
    }

    /// Whether the text is this tenant's and of this id, and what it tells of others.
    fn text(&mut self, entry: &LogEntry, body: &str, number: u64) -> Result<ReceiptKind, LogFault> {
        let unreadable = |problem: String| unreadable(entry, number, problem);
        let seen: Seen<'_> =
            serde_json::from_str(body).map_err(|error| unreadable(error.to_string()))?;
        self.seen(entry, &seen, number, false)?;
        if seen.kind == ReceiptKind::Prune {
            let receipt: Receipt =
                serde_json::from_str(body).map_err(|error| unreadable(error.to_string()))?;
            let pruning = Pruning::told_by(&receipt);
            let pruning = pruning.ok_or_else(|| unreadable("it tells of no pruning".to_owned()))?;
            self.stubs.told(&pruning)?;
        }
        Ok(seen.kind)
    }

    /// Whether a stub is this tenant's and of this id; its leaf is held against its link alone.
    fn stub(&mut self, entry: &LogEntry, text: &str, number: u64) -> Result<(), LogFault> {
        let stub: Stub<'_> = serde_json::from_str(text)
            .map_err(|error| unreadable(entry, number, error.to_string()))?;
        self.seen(entry, &stub.receipt, number, true)?;
        self.stubs.stub(entry, &stub.pruned, text)
    }

    fn seen(
        &mut self,
        entry: &LogEntry,
        seen: &Seen<'_>,
        number: u64,
        is_stub: bool,
    ) -> Result<(), LogFault> {
        let receipt_id = || entry.receipt_id.clone();
        if seen.tenant_id != self.tenant.as_str() {
            return Err(LogFault::Foreign {
                number,
                receipt_id: receipt_id(),
                tenant: seen.tenant_id.clone().into_owned(),
            });
        }
        if seen.receipt_id != entry.receipt_id {
            return Err(LogFault::Swapped {
                number,
                receipt_id: receipt_id(),
                says: seen.receipt_id.clone().into_owned(),
            });
        }
        self.attempts.take(seen, number, is_stub);
        if let Some(burns) = &mut self.burns {
            burns.receipt(seen, entry.position);
        }
        Ok(())
    }

    fn check_checkpoints(&mut self) -> Result<(), LogFault> {
        let size = self.frontier.size();
        while let Some(checkpoint) = self.checkpoints.pop_if(|next| next.size == size) {
            if checkpoint.root != self.frontier.root() {
                return Err(LogFault::CheckpointDiffers {
                    size,
                    first: self.vouched.saturating_add(1).min(size),
                    receipt_id: self.first_unvouched.clone().unwrap_or_default(),
                });
            }
            self.checked += 1;
            self.vouched = size;
            self.first_unvouched = None;
        }
        Ok(())
    }

    /// The right edge of what was looked at.
    pub fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// How many checkpoints agree so far.
    pub fn checkpoints(&self) -> u64 {
        self.checked
    }

    /// How many of the receipts were stubs.
    pub fn pruned(&self) -> u64 {
        self.stubs.count()
    }

    /// Whether there are stubs of which no receipt has told yet.
    pub(super) fn has_untold_stubs(&self) -> bool {
        self.stubs.are_untold()
    }

    /// Attempts that two receipts tell of, the first of the log first. The log is what was written
    /// all the same, so an audit goes on.
    pub fn told_twice(&self) -> &[LogFault] {
        self.attempts.faults()
    }

    /// What the receipts say about keys, if that was asked for.
    pub fn burns(&mut self) -> Option<&mut Burns> {
        self.burns.as_mut()
    }

    /// After the last entry: is that all the head is about, and all that was signed?
    pub fn finish(&self, head: &Frontier) -> Result<(), LogFault> {
        let found = self.frontier.size();
        if let Some(checkpoint) = self.checkpoints.last() {
            let size = checkpoint.size;
            return Err(LogFault::RolledBack { found, size });
        }
        if head.size() > found {
            let head = head.size();
            return Err(LogFault::CutOff { found, head });
        }
        let receipt_id = self.last.clone().unwrap_or_default();
        let number = found;
        if head.size() < found {
            return Err(LogFault::BehindHead { number, receipt_id });
        }
        if head.link() != self.frontier.link() {
            return Err(LogFault::Rewritten { number, receipt_id });
        }
        if *head != self.frontier {
            return Err(LogFault::HeadChanged { number });
        }
        self.stubs.finish()
    }
}

fn unreadable(entry: &LogEntry, number: u64, problem: String) -> LogFault {
    LogFault::Unreadable {
        number,
        receipt_id: entry.receipt_id.clone(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant() -> TenantId {
        TenantId::parse("acme").expect("a tenant")
    }

    /// A log of five receipts, each of a key of its own.
    fn five() -> Vec<LogEntry> {
        let mut frontier = Frontier::default();
        let entry = |number: u64| {
            let body = format!(
                r#"{{"fence":1,"generation":1,"idempotency_key":"k{number}","kind":"proposal","outcome":"applied","receipt_id":"r{number}","tenant_id":"acme"}}"#
            );
            let leaf = LogHash::of_leaf(body.as_bytes());
            LogEntry {
                position: number,
                receipt_id: format!("r{number}"),
                leaf,
                link: frontier.push(leaf),
                body: Some(body),
            }
        };
        (0..5).map(entry).collect()
    }

    fn head(entries: &[LogEntry]) -> Frontier {
        let mut frontier = Frontier::default();
        for entry in entries {
            frontier.push(entry.leaf);
        }
        frontier
    }

    fn signed(entries: &[LogEntry]) -> Checkpoint {
        Checkpoint {
            origin: origin_of(&tenant()),
            size: head(entries).size(),
            root: head(entries).root(),
        }
    }

    fn audited(
        entries: &[LogEntry],
        head: &Frontier,
        checkpoints: Vec<Checkpoint>,
    ) -> Result<(), LogFault> {
        let mut auditor = Auditor::new(&tenant(), checkpoints, None)?;
        for entry in entries {
            auditor.entry(entry)?;
        }
        auditor.finish(head)
    }

    // Rule 11.5
    #[test]
    fn a_log_as_it_was_written_is_sound() {
        let log = five();
        let checkpoints = vec![signed(&log), signed(&log[..2]), signed(&[])];
        assert_eq!(audited(&log, &head(&log), checkpoints), Ok(()));
    }

    // Rule 11.5: every fault is found, and named for what it is.
    #[test]
    fn what_was_tampered_with_is_named() {
        let log = five();
        let top = head(&log);
        let tampered = |change: &dyn Fn(&mut Vec<LogEntry>)| {
            let mut log = five();
            change(&mut log);
            audited(&log, &top, Vec::new()).expect_err("a fault")
        };
        let edit = |entry: &mut LogEntry, old: &str, new: &str| {
            entry.body = entry.body.as_ref().map(|body| body.replace(old, new));
        };
        let receipt_id = "r2".to_owned();
        let id = || receipt_id.clone();
        let number = 3;
        let changed = tampered(&|log| edit(&mut log[2], "applied", "refused"));
        assert_eq!(
            changed,
            LogFault::Changed {
                number,
                receipt_id: id()
            }
        );
        let gone = tampered(&|log| drop(log.remove(2)));
        assert_eq!(
            gone,
            LogFault::Gone {
                number,
                receipt_id: Some("r3".to_owned())
            }
        );
        let emptied = tampered(&|log| log[2].body = None);
        assert_eq!(
            emptied,
            LogFault::Gone {
                number,
                receipt_id: Some(id())
            }
        );
        let foreign = tampered(&|log| edit(&mut log[2], "acme", "emca"));
        assert!(
            matches!(foreign, LogFault::Foreign { number: 3, .. }),
            "{foreign}"
        );
        let swapped = tampered(&|log| edit(&mut log[2], "r2", "r9"));
        assert!(
            matches!(swapped, LogFault::Swapped { number: 3, .. }),
            "{swapped}"
        );
        let unreadable = tampered(&|log| log[2].body = Some("{".to_owned()));
        assert!(
            matches!(unreadable, LogFault::Unreadable { .. }),
            "{unreadable}"
        );
        let twice = tampered(&|log| log.insert(3, log[2].clone()));
        assert!(
            matches!(
                twice,
                LogFault::Moved {
                    number: 4,
                    belongs: 3,
                    ..
                }
            ),
            "{twice}"
        );
        let cut = tampered(&|log| log.truncate(3));
        assert_eq!(cut, LogFault::CutOff { found: 3, head: 5 });
    }

    fn rewrite(log: &mut [LogEntry], place: usize) {
        let body = log[place].body.as_ref().expect("a text");
        let body = body.replace("applied", "refused");
        log[place].leaf = LogHash::of_leaf(body.as_bytes());
        log[place].link = LogHash::of_link(&log[place - 1].link, &log[place].leaf);
        log[place].body = Some(body);
    }

    // Rule 11.5: who recomputes hashes is found where the recomputing ends.
    #[test]
    fn what_was_rewritten_with_its_hashes_is_found_behind_it() {
        let honest = five();
        let mut log = five();
        rewrite(&mut log, 2);
        let fault = audited(&log, &head(&honest), Vec::new());
        assert!(
            matches!(fault, Err(LogFault::Unlinked { number: 4, .. })),
            "{fault:?}"
        );
        let mut log = five();
        rewrite(&mut log, 4);
        let fault = audited(&log, &head(&honest), Vec::new());
        assert!(
            matches!(fault, Err(LogFault::Rewritten { number: 5, .. })),
            "{fault:?}"
        );
        // The head too: then what was signed tells, as closely as it can.
        let checkpoints = vec![signed(&honest[..3]), signed(&honest)];
        let fault = audited(&log, &head(&log), checkpoints).expect_err("a fault");
        let differs = LogFault::CheckpointDiffers {
            size: 5,
            first: 4,
            receipt_id: "r3".to_owned(),
        };
        assert_eq!(fault, differs);
        let fault = audited(&honest[..3], &head(&honest[..3]), vec![signed(&honest)]);
        assert_eq!(fault, Err(LogFault::RolledBack { found: 3, size: 5 }));
        let fault = audited(&honest, &head(&honest[..4]), Vec::new());
        assert!(
            matches!(fault, Err(LogFault::BehindHead { number: 5, .. })),
            "{fault:?}"
        );
    }
}
