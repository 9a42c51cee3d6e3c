//! A call as the store runs it: the statement, and what its answer means.

use std::sync::Arc;

use operators_kernel::{Call, ConnectorError, InvokeOutcome, Rows, Statement, Work};

use crate::hidden::Hidden;
use crate::sql::tool::SqlTool;
use crate::sql::{Job, kept};

/// One call of a transactional tool.
#[derive(Debug)]
pub(crate) struct Prepared {
    job: Job,
    name: String,
    tool: Arc<SqlTool>,
    hidden: Hidden,
}

impl Prepared {
    pub(crate) fn new(job: Job, call: &Call, tool: Arc<SqlTool>, hidden: Hidden) -> Self {
        Self {
            job,
            name: call.tool.to_string(),
            tool,
            hidden,
        }
    }
}

impl Work for Prepared {
    fn statement(&self) -> &Statement {
        &self.job.statement
    }

    fn outcome(&self, ran: Result<Rows, String>) -> InvokeOutcome {
        match ran.and_then(|rows| self.job.expected(rows)) {
            Ok(rows) => InvokeOutcome::Applied(kept(rows, &self.tool, &self.hidden)),
            Err(problem) => InvokeOutcome::NotApplied(ConnectorError::new(format!(
                "`{}` changed nothing: {}",
                self.name,
                self.hidden.quote(&problem)
            ))),
        }
    }
}
