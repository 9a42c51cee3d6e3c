//! What a run says about tools that are answered by stubs.

use std::collections::BTreeSet;

use operators_kernel::{PlannedAction, TenantId, ToolMode, ToolRegistry as _};

use crate::args::Whose;
use crate::command::run::Job;
use crate::compose::Parts;
use crate::output::{next, shown, warn};
use crate::project::Project;

/// Whether nothing outside answers this action.
pub(crate) fn is_stub(parts: &Parts, action: &PlannedAction) -> bool {
    let tool = parts.registry.tool(&action.connector, &action.tool);
    tool.is_some_and(|tool| tool.contract.mode == ToolMode::Stub)
}

/// Says so before anything runs, whatever form the results take.
pub(crate) fn tell(project: &Project, parts: &Parts, tenant: &TenantId, jobs: &[Job]) {
    let actions = jobs.iter().flat_map(|job| &job.plan.actions);
    let stubbed: Vec<&PlannedAction> = actions.filter(|action| is_stub(parts, action)).collect();
    let Ok(stub) = tenant.stub() else { return };
    if stubbed.is_empty() {
        return;
    }
    let names: BTreeSet<&str> = stubbed.iter().map(|one| one.connector.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    warn(&format!(
        "a rehearsal of {} (`{}`): stubs answer, nothing outside changes; keys and receipts are \
         kept apart, under `{}`",
        match stubbed.len() {
            1 => "1 action".to_owned(),
            count => format!("{count} actions"),
        },
        names.join("`, `"),
        shown(&stub)
    ));
    let whose = Whose { tenant: Some(stub) };
    next(
        &project.command("receipts list", &whose),
        "the receipts of stubs",
    );
}
