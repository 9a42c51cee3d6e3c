//! How one action ended, or would end: the common face of a result and a forecast.

use operators_kernel::{
    ActionResult, Disposition, Forecast, Original, PlannedAction, Reason, Wait,
};
use serde_json::Value;

/// What the terminal shows of one action.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending<'a> {
    pub(crate) action: &'a PlannedAction,
    pub(crate) decision: Disposition,
    pub(crate) ok: bool,
    pub(crate) reason: Option<Reason>,
    pub(crate) error: Option<&'a str>,
    /// What a person here may do about it.
    pub(crate) hint: Option<&'a str>,
    pub(crate) conflict: &'a [String],
    pub(crate) original: Option<&'a Original>,
    /// Of a forecast only: what it would wait for first.
    pub(crate) waits_for: Option<&'a Wait>,
    /// Of a real run only.
    pub(crate) done: Option<Done<'a>>,
}

/// What only a real run has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done<'a> {
    pub(crate) receipt_id: &'a str,
    pub(crate) result: Option<&'a Value>,
}

impl<'a> From<&'a ActionResult> for Ending<'a> {
    fn from(result: &'a ActionResult) -> Self {
        Self {
            action: &result.action,
            decision: result.decision,
            ok: result.ok,
            reason: result.reason,
            error: result.error.as_deref(),
            hint: result.hint.as_deref(),
            conflict: &result.conflict,
            original: result.original.as_ref(),
            waits_for: None,
            done: Some(Done {
                receipt_id: &result.receipt_id,
                result: result.result.as_deref(),
            }),
        }
    }
}

impl<'a> From<&'a Forecast> for Ending<'a> {
    fn from(forecast: &'a Forecast) -> Self {
        Self {
            action: &forecast.action,
            decision: forecast.decision,
            ok: forecast.ok,
            reason: forecast.reason,
            error: forecast.error.as_deref(),
            hint: forecast.hint.as_deref(),
            conflict: &forecast.conflict,
            original: forecast.original.as_ref(),
            waits_for: forecast.waits_for.as_ref(),
            done: None,
        }
    }
}
