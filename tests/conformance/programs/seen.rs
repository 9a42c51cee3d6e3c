//! What programs met, so that a run that met nothing is not taken for proof.

use std::collections::BTreeMap;

/// How often what was answered.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<String, u64>);

impl Seen {
    pub(super) fn note(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what.clone()).or_default() += count;
        }
    }

    pub(super) fn show(&self, store: &str) {
        println!("{store}: {:?}", self.0);
    }

    /// A run in which nothing happened proves nothing.
    pub(super) fn is_not_vacuous(&self) {
        for what in [
            "claimed",
            "wait",
            "probe",
            "duplicate",
            "conflict",
            "stale_revision",
            "in_doubt",
            "entity_in_doubt",
            "policy",
            "fenced",
            "settled",
            "late",
            "double_applied",
            "resolved",
            "may still land",
            "forgotten",
            "passed",
            "queued",
        ] {
            let count = self.0.get(what).copied().unwrap_or_default();
            assert!(count >= 20, "`{what}` was answered {count} times only");
        }
    }
}
