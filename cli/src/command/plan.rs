//! `operators plan`: looks at a plan without a project, a store or an effect.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use operators_kernel::ExecutionPlan;

use crate::args::PlanCommand;
use crate::exit::Exit;
use crate::output::{data, shown};
use crate::planner;

pub(crate) fn run(command: &PlanCommand) -> Result<Exit> {
    match command {
        PlanCommand::Check { file } => {
            let plan = planner::from_file(file)?;
            data(&verdict(file, &plan))?;
            Ok(Exit::Ok)
        }
    }
}

fn verdict(file: &Path, plan: &ExecutionPlan) -> String {
    let actions = &plan.actions;
    let keys: BTreeSet<_> = actions
        .iter()
        .map(|action| &action.idempotency_key)
        .collect();
    let entities: BTreeSet<_> = actions.iter().map(|action| &action.entity_key).collect();
    let name = if file == Path::new(planner::STDIN) {
        "stdin".to_owned()
    } else {
        shown(&file.display())
    };
    format!(
        "{name}: valid, {} on {} with {}",
        counted(actions.len(), "action", "actions"),
        counted(entities.len(), "entity", "entities"),
        counted(keys.len(), "idempotency key", "idempotency keys"),
    )
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
