//! The outside of the simulation: a vendor that does as its dice say, and knows the truth.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use operators_kernel::{
    Call, Connector, ConnectorError, Effect, EffectClass, InvokeOutcome, ProbeOutcome,
};
use operators_tests::fixtures::TOOLS;
use serde_json::json;

/// How long after its deadline an abandoned request may still land here.
pub const MAX_LAND: Duration = Duration::from_secs(1);

/// A generator whose every number follows from its seed (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub fn millis(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }
}

/// What the vendor knows of one downstream key.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    pub class: EffectClass,
    pub times: usize,
}

#[derive(Debug)]
pub struct Vendor {
    dice: Mutex<Dice>,
    done: Mutex<BTreeMap<String, Done>>,
    inside: Mutex<Vec<Call>>,
    faults: Mutex<Vec<String>>,
}

fn class_of(call: &Call) -> EffectClass {
    let found = TOOLS.iter().find(|(name, _)| *name == call.tool.as_str());
    found.expect("a tool").1
}

/// Counts a call out, however it ends.
struct Inside<'a>(&'a Vendor, &'a Call);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut inside = self.0.inside.lock().expect("inside");
        let is_this = |other: &Call| {
            other.downstream_key == self.1.downstream_key && other.attempt == self.1.attempt
        };
        let place = inside.iter().position(is_this).expect("it came in");
        inside.remove(place);
    }
}

impl Vendor {
    pub fn new(seed: u64) -> Self {
        Self {
            dice: Mutex::new(Dice(seed)),
            done: Mutex::default(),
            inside: Mutex::default(),
            faults: Mutex::default(),
        }
    }

    pub fn done(&self, downstream_key: &str) -> Option<Done> {
        self.done.lock().expect("done").get(downstream_key).cloned()
    }

    /// Every broken promise that could be seen from here.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.faults.lock().expect("faults").clone();
        for (key, done) in self.done.lock().expect("done").iter() {
            let is_once = matches!(done.class, EffectClass::Opaque | EffectClass::Probeable);
            if is_once && done.times > 1 {
                faults.push(format!("{key} took effect {} times", done.times));
            }
        }
        faults
    }

    fn apply(&self, call: &Call) {
        let class = class_of(call);
        let mut done = self.done.lock().expect("done");
        let entry = done.entry(call.downstream_key.clone());
        let entry = entry.or_insert(Done { class, times: 0 });
        // A keyed vendor knows the key and does it once.
        if !matches!(class, EffectClass::Keyed { .. }) || entry.times == 0 {
            entry.times += 1;
        }
    }

    /// Rule 2.1, seen from outside: two requests of one entity overlap only where the later one is
    /// a resend that rule 4.5 allows, or where the other is a resend that the vendor ignores.
    fn enter(&self, call: &Call) {
        let mut inside = self.inside.lock().expect("inside");
        for other in inside.iter() {
            let is_same_entity = other.tenant == call.tenant && other.entity_key == call.entity_key;
            let is_resend = other.downstream_key == call.downstream_key
                && matches!(
                    class_of(call),
                    EffectClass::Keyed { .. } | EffectClass::Idempotent
                );
            let is_ignored = matches!(class_of(other), EffectClass::Keyed { .. })
                && self.done(&other.downstream_key).is_some();
            let is_read = [other, call]
                .iter()
                .any(|call| class_of(call) == EffectClass::Read);
            if is_same_entity && !is_resend && !is_ignored && !is_read {
                let fault = format!(
                    "{} came in while {} was inside",
                    call.idempotency_key, other.idempotency_key
                );
                self.faults.lock().expect("faults").push(fault);
            }
        }
        inside.push(call.clone());
    }
}

/// The vendor, as the registry knows it; a request that lands late needs a handle of its own.
#[derive(Debug)]
pub struct Door(pub Arc<Vendor>);

#[async_trait]
impl Connector for Door {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let vendor = &self.0;
        vendor.enter(call);
        let _inside = Inside(vendor, call);
        let (act, delay, landing) = {
            let mut dice = vendor.dice.lock().expect("dice");
            let latest = call.deadline + MAX_LAND;
            let landing = dice.millis(u64::try_from(latest.as_millis()).expect("short").max(1));
            (dice.below(100), dice.millis(300), landing)
        };
        tokio::time::sleep(delay).await;
        let unknown = || InvokeOutcome::Unknown(ConnectorError::new("the answer was lost"));
        match act {
            0..55 => {
                vendor.apply(call);
                InvokeOutcome::Applied(Effect {
                    result: json!({"attempt": call.attempt}).into(),
                    effect_id: Some(call.downstream_key.clone()),
                })
            }
            55..70 => InvokeOutcome::NotApplied(ConnectorError::new("the vendor said no")),
            70..78 => {
                vendor.apply(call);
                unknown()
            }
            78..84 => unknown(),
            84..88 => {
                vendor.apply(call);
                // A panic that nobody is told of on the terminal.
                std::panic::resume_unwind(Box::new("scripted panic"))
            }
            88..92 => pending().await,
            _ => {
                let (vendor, call) = (Arc::clone(vendor), call.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(landing.saturating_sub(delay)).await;
                    vendor.apply(&call);
                });
                pending().await
            }
        }
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        let roll = self.0.dice.lock().expect("dice").below(100);
        tokio::time::sleep(Duration::from_millis(roll)).await;
        match self.0.done(&call.downstream_key) {
            _ if roll < 20 => ProbeOutcome::Unknown(ConnectorError::new("cannot tell")),
            Some(_) => ProbeOutcome::Applied(Effect::of(json!({"found": true}))),
            None => ProbeOutcome::NotApplied,
        }
    }
}
