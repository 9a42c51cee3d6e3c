//! The stubs of a log, held against the receipts of the prunings that left them.
//!
//! A pruning's receipt stands behind what it is about, so ranges of stubs are gone through first and
//! looked for in the receipts after: a range that no receipt tells of was taken away by somebody.

use super::LogEntry;
use super::fault::LogFault;
use super::pruning::{Mark, Pruning, is_kept, stub};
use super::tree::{Frontier, LogHash};
use crate::receipt::ReceiptKind;

/// The stubs of one pruning, as they were found.
#[derive(Debug)]
struct Found {
    mark: Mark,
    /// The first receipt of it.
    receipt_id: String,
    stubs: Frontier,
    /// The audit began behind the range's first place: its root is not known.
    is_partial: bool,
}

/// What an audit knows about stubs so far.
#[derive(Debug, Default)]
pub(super) struct Stubs {
    /// Where the audit began.
    start: u64,
    open: Option<Found>,
    closed: Vec<Found>,
    count: u64,
    /// Texts that a pruning would have kept, right before here: a range may begin with them.
    kept: Vec<LogEntry>,
}

impl Stubs {
    pub(super) fn from(start: u64) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    /// How many stubs there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether there are stubs of which no receipt has told yet.
    pub(super) fn are_untold(&self) -> bool {
        self.open.is_some() || !self.closed.is_empty()
    }

    /// A stub at its place.
    pub(super) fn stub(
        &mut self,
        entry: &LogEntry,
        mark: &Mark,
        text: &str,
    ) -> Result<(), LogFault> {
        let position = entry.position;
        let stubbed = || LogFault::Stubbed {
            number: position.saturating_add(1),
            receipt_id: entry.receipt_id.clone(),
        };
        if self.open.is_none() {
            let kept = self.kept.iter().filter(|kept| kept.position >= mark.from);
            let kept: Vec<LogEntry> = kept.cloned().collect();
            let first = kept.first().unwrap_or(entry);
            let is_partial = mark.from < self.start && first.position == self.start;
            if mark.from != first.position && !is_partial || position >= mark.to {
                return Err(stubbed());
            }
            self.open = Some(Found {
                mark: mark.clone(),
                receipt_id: entry.receipt_id.clone(),
                stubs: Frontier::default(),
                is_partial,
            });
            for kept in kept {
                self.expect(kept.position, kept.body.as_deref().unwrap_or_default());
            }
        }
        if self.open.as_ref().is_none_or(|open| open.mark != *mark) {
            return Err(stubbed());
        }
        self.count = self.count.saturating_add(1);
        self.push(position, text);
        Ok(())
    }

    /// A text at its place, of a receipt of that kind.
    pub(super) fn body(&mut self, entry: &LogEntry, body: &str, kind: ReceiptKind) {
        if self.open.is_some() {
            self.expect(entry.position, body);
        } else if is_kept(kind) {
            self.kept.push(entry.clone());
        } else {
            self.kept.clear();
        }
    }

    /// A text of a range that is being gone through counts as the stub that it would leave.
    fn expect(&mut self, position: u64, body: &str) {
        let Some(open) = &self.open else {
            return;
        };
        // A text that cannot be read was refused before.
        let text = stub(&open.mark, body).unwrap_or_default();
        self.push(position, &text);
    }

    fn push(&mut self, position: u64, text: &str) {
        if let Some(open) = &mut self.open {
            open.stubs.push(LogHash::of_leaf(text.as_bytes()));
            if position.saturating_add(1) >= open.mark.to {
                self.closed.extend(self.open.take());
                self.kept.clear();
            }
        }
    }

    /// The receipt of a pruning: were its stubs these?
    pub(super) fn told(&mut self, pruning: &Pruning) -> Result<(), LogFault> {
        let ours = |found: &Found| found.mark.by == pruning.by;
        let Some(place) = self.closed.iter().position(ours) else {
            // It was not carried out, or before the audit began.
            return Ok(());
        };
        let found = self.closed.swap_remove(place);
        let is_same = found.is_partial || found.stubs.root() == pruning.stubs;
        if found.mark == pruning.mark() && is_same {
            return Ok(());
        }
        Err(LogFault::StubsChanged {
            first: found.mark.from.saturating_add(1),
            last: found.mark.to,
            receipt_id: pruning.by.clone().into(),
        })
    }

    /// After the last entry: the first range of which no receipt told.
    pub(super) fn finish(&self) -> Result<(), LogFault> {
        let untold = self.closed.iter().chain(&self.open);
        match untold.min_by_key(|found| found.mark.from) {
            Some(found) => Err(LogFault::Stubbed {
                number: found.mark.from.saturating_add(1),
                receipt_id: found.receipt_id.clone(),
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::directive::{Directive, Order};
    use crate::json;
    use crate::key::TenantId;
    use crate::log::Auditor;

    fn tenant() -> TenantId {
        TenantId::parse("acme").expect("a tenant")
    }

    fn body(number: u64) -> String {
        format!(
            r#"{{"fence":1,"generation":1,"idempotency_key":"k{number}","kind":"proposal","outcome":"applied","receipt_id":"r{number}","tenant_id":"acme"}}"#
        )
    }

    fn append(log: &mut Vec<LogEntry>, edge: &mut Frontier, receipt_id: &str, body: String) {
        let leaf = LogHash::of_leaf(body.as_bytes());
        log.push(LogEntry {
            position: edge.size(),
            receipt_id: receipt_id.to_owned(),
            leaf,
            link: edge.push(leaf),
            body: Some(body),
        });
    }

    fn receipt(pruning: &Pruning) -> String {
        let order = Directive {
            order: Order::Prune(Box::new(pruning.clone())),
            by: "ada".into(),
            note: None,
            receipt_id: pruning.by.clone(),
            at: Timestamp::from_micros(0),
        };
        let receipt = order.receipt(&tenant()).expect("a receipt");
        json::canonical(&receipt).expect("canonical")
    }

    /// Five receipts, the first three pruned, and the receipt of that.
    fn pruned() -> (Vec<LogEntry>, Frontier, Pruning) {
        let (mut log, mut edge) = (Vec::new(), Frontier::default());
        for number in 0..5 {
            append(&mut log, &mut edge, &format!("r{number}"), body(number));
        }
        let mut pruning = Pruning {
            by: "p".into(),
            digest: "sha256:00".to_owned(),
            from: 0,
            root: LogHash::of_nothing(),
            segment: "old.jsonl".to_owned(),
            stubs: LogHash::of_nothing(),
            to: 3,
        };
        let stubs: Vec<String> = (0..3)
            .map(|number| pruning.stub(&body(number)).expect("a receipt"))
            .collect();
        let mut root = Frontier::default();
        for stub in &stubs {
            root.push(LogHash::of_leaf(stub.as_bytes()));
        }
        pruning.stubs = root.root();
        append(&mut log, &mut edge, "p", receipt(&pruning));
        for (entry, stub) in log.iter_mut().zip(stubs) {
            entry.body = Some(stub);
        }
        (log, edge, pruning)
    }

    // Rule 11.6: the receipt of a pruning keeps its text, wherever it stands in the next one.
    #[test]
    fn a_range_may_begin_with_the_receipt_of_the_one_before() {
        let (mut log, mut edge, first) = pruned();
        let told = log[5].body.clone().expect("a receipt");
        append(&mut log, &mut edge, "r6", body(6));
        let second = Pruning {
            by: "q".into(),
            from: 5,
            to: 7,
            ..first
        };
        let mut stubs = Frontier::default();
        for text in [&told, &body(6)] {
            let stub = second.stub(text).expect("a receipt");
            stubs.push(LogHash::of_leaf(stub.as_bytes()));
        }
        let second = Pruning {
            stubs: stubs.root(),
            ..second
        };
        log[6].body = second.stub(&body(6)).ok();
        append(&mut log, &mut edge, "q", receipt(&second));
        assert_eq!(audited(&log, &edge), Ok(4));
    }

    fn audited(log: &[LogEntry], head: &Frontier) -> Result<u64, LogFault> {
        let mut auditor = Auditor::new(&tenant(), Vec::new(), None)?;
        for entry in log {
            auditor.entry(entry)?;
        }
        auditor.finish(head)?;
        Ok(auditor.pruned())
    }

    // Rules 11.6, 11.7
    #[test]
    fn stubs_are_sound_as_they_were_left_and_while_they_are_being_put() {
        let (log, head, _) = pruned();
        assert_eq!(audited(&log, &head), Ok(3));
        let mut half = log;
        half[2].body = Some(body(2));
        assert_eq!(audited(&half, &head), Ok(2));
        half[1].body = Some(body(1));
        half[0].body = Some(body(0));
        assert_eq!(audited(&half, &head), Ok(0));
    }

    // Rule 11.7
    #[test]
    fn stubs_that_no_pruning_left_are_named() {
        let (log, head, pruning) = pruned();
        let tampered = |change: &dyn Fn(&mut Vec<LogEntry>)| {
            let mut log = log.clone();
            change(&mut log);
            audited(&log, &head).expect_err("a fault")
        };
        let stubbed = |number: u64| LogFault::Stubbed {
            number,
            receipt_id: format!("r{}", number - 1),
        };
        let with = |from: u64, to: u64, by: &str| Pruning {
            from,
            to,
            by: by.into(),
            ..pruning.clone()
        };
        let put = |log: &mut Vec<LogEntry>, place: usize, pruning: &Pruning| {
            let stub = pruning.stub(&body(place as u64)).expect("a receipt");
            log[place].body = Some(stub);
        };
        let further = tampered(&|log| put(log, 3, &with(0, 4, "p")));
        assert_eq!(further, stubbed(4));
        let another = tampered(&|log| put(log, 3, &with(3, 4, "q")));
        assert_eq!(another, stubbed(4));
        let endless = tampered(&|log| put(log, 4, &with(4, 9, "q")));
        assert_eq!(endless, stubbed(5));
        let other = tampered(&|log| put(log, 1, &with(0, 3, "q")));
        assert_eq!(other, stubbed(2));
        let late = tampered(&|log| {
            log[0].body = Some(body(0));
            put(log, 1, &with(0, 3, "p"));
        });
        assert_eq!(late, stubbed(2));
        let edited = tampered(&|log| {
            let stub = log[1].body.as_ref().expect("a stub");
            log[1].body = Some(stub.replace("applied", "refused"));
        });
        assert!(
            matches!(
                edited,
                LogFault::StubsChanged {
                    first: 1,
                    last: 3,
                    ..
                }
            ),
            "{edited}"
        );
        let hash = tampered(&|log| log[1].leaf = LogHash::of_leaf(b"another"));
        assert!(
            matches!(hash, LogFault::Unlinked { number: 2, .. }),
            "{hash}"
        );
        let mut short = Frontier::default();
        log[..5].iter().for_each(|entry| {
            short.push(entry.leaf);
        });
        assert_eq!(audited(&log[..5], &short), Err(stubbed(1)));
    }
}
