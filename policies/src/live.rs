//! Rules that can be replaced while an executor runs under them.
//!
//! Owns the one pointer that is swapped: a question sees the rules before or after, never a
//! mixture. What does not load changes nothing, and says so.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use operators_kernel::{PolicyRef, Ruling, TrustPolicy, TrustQuestion};

use crate::rule_set::RuleSet;

/// Why rules were not loaded.
pub type LoadError = Box<dyn Error + Send + Sync>;

type Load = dyn Fn() -> Result<RuleSet, LoadError> + Send + Sync;

/// A rule set that is read again on demand. Give it to an executor as its policy, keep another
/// `Arc` of it, and call [`LiveRules::reload`] on a timer, a signal, or a change of the files.
pub struct LiveRules {
    load: Box<Load>,
    // A std lock: it is held for a pointer's copy, never across an await.
    current: RwLock<Arc<RuleSet>>,
    // So that of two reloads the later one's rules stay.
    reloading: Mutex<()>,
}

/// What a reload came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reloaded {
    /// The policies are the same texts as before.
    Same,
    /// These policies are in force now.
    Changed(Vec<PolicyRef>),
}

impl LiveRules {
    /// Loads for the first time; without rules there is nothing to start with.
    pub fn start(
        load: impl Fn() -> Result<RuleSet, LoadError> + Send + Sync + 'static,
    ) -> Result<Self, LoadError> {
        let current = RwLock::new(Arc::new(load()?));
        Ok(Self {
            load: Box::new(load),
            current,
            reloading: Mutex::new(()),
        })
    }

    /// The rules in force.
    pub fn current(&self) -> Arc<RuleSet> {
        // Nobody panics with it held; were that to change, the pointer is whole all the same.
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    /// Reads everything again. What does not load leaves the old rules in force, is logged as an
    /// error, and is returned for the program to show.
    pub fn reload(&self) -> Result<Reloaded, LoadError> {
        let _one_at_a_time = self
            .reloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let rules = (self.load)().inspect_err(|error| {
            tracing::error!(%error, "the policies do not load; the old ones stay in force");
        })?;
        let policies = rules.policies().to_vec();
        let before = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, Arc::new(rules))
        };
        if before.policies() == policies {
            return Ok(Reloaded::Same);
        }
        tracing::info!(policies = policies.len(), "other policies are in force");
        Ok(Reloaded::Changed(policies))
    }
}

impl TrustPolicy for LiveRules {
    fn evaluate(&self, question: &TrustQuestion<'_>) -> Ruling {
        self.current().evaluate(question)
    }

    fn evaluate_read(&self, question: &TrustQuestion<'_>) -> Ruling {
        self.current().evaluate_read(question)
    }
}

impl fmt::Debug for LiveRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRules")
            .field("current", &self.current())
            .finish_non_exhaustive()
    }
}
