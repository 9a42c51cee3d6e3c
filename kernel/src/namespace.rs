//! Under which tenant an action's keys live: its own, or the one of its stubs.
//!
//! Owns the wall between a rehearsal and the real thing. Everything a store keeps is kept by
//! tenant, so this is the one place where the two part.

use crate::action::PlannedAction;
use crate::connector::{Tool, ToolMode};
use crate::error::ExecError;
use crate::json::JsonError;
use crate::setup::RunContext;

/// The context that the action really runs in. Trust is still asked about the live tenant.
pub(crate) fn of(
    tool: Option<&Tool>,
    context: &RunContext,
    action: &PlannedAction,
) -> Result<RunContext, ExecError> {
    let is_stub = tool.is_some_and(|tool| tool.contract.mode == ToolMode::Stub);
    let refuse = |problem: String| {
        ExecError::from(JsonError {
            place: "/tenant".to_owned(),
            problem,
        })
    };
    // INVARIANT (stubs-apart): a live tool never meets a key that a stub burned.
    if !is_stub && context.tenant.is_stub() {
        return Err(refuse(format!(
            "only stubbed tools run for `{}`, and `{}:{}` is live; run it for `{}`",
            context.tenant,
            action.connector,
            action.tool,
            context.tenant.live()
        )));
    }
    let mut run = context.clone();
    if is_stub {
        let stub = context.tenant.stub();
        run.tenant = stub.map_err(|error| refuse(format!("no room for its stubs: {error}")))?;
    }
    Ok(run)
}
