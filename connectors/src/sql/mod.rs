//! The `sql` connector: a call becomes one statement in one transaction, its values bound.
//!
//! `statement` compiles the text and never splices a value into it; `sqlite` and `postgres` run it.
//!
//! | what was seen | outcome |
//! |---|---|
//! | the transaction committed | `Applied` |
//! | no connection, any error before the commit, or a number of rows that was not expected (rolled back) | `NotApplied` |
//! | lease or deadline passed before the commit was sent | `NotApplied` |
//! | the database refused the commit, or had ended the transaction before it came | `NotApplied` |
//! | the connection was lost during the commit, or the deadline passed | `Unknown` |
//!
//! Beside the store (`url = "store"`) nothing is run here but reads: `prepared` is what the store
//! runs, in its own transaction.

mod postgres;
mod prepared;
mod sqlite;
mod statement;
mod tool;
mod whose;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use operators_kernel::{
    self as kernel, Call, Connector, ConnectorError, Effect, Health, InvokeOutcome, ProbeOutcome,
    Rows, SecretStore, SendPermit, TenantId, ToolName, Work,
};

use crate::beside::StoreAddress;
use crate::config::ConnectorConfig;
use crate::hidden::Hidden;
use crate::registry::{Place, RegistryError};
use crate::sql::prepared::Prepared;
use crate::sql::statement::Dialect;
use crate::sql::tool::{Address, SqlTool};
use crate::sql::whose::Whose;

/// The largest answer taken in; results are kept with the key for ever.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Runs statements in one database.
#[derive(Debug)]
pub(crate) struct SqlConnector {
    address: Address,
    tools: BTreeMap<ToolName, Arc<SqlTool>>,
    secrets: Arc<dyn SecretStore>,
    whose: Whose,
}

/// What is to be run, apart from where.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) statement: kernel::Statement,
    pub(crate) expect_rows: Option<u64>,
    /// How long after the call's deadline the transaction may still commit.
    pub(crate) max_land: Duration,
    pub(crate) permit: SendPermit,
}

impl Job {
    /// How long is left until the call's deadline.
    fn left(&self) -> Duration {
        self.permit.left().unwrap_or(self.statement.deadline)
    }

    /// Asked right before what the database would keep: before the statement and before the commit.
    pub(crate) fn may_run(&self) -> Result<(), Fault> {
        let permitted = self.permit.check();
        permitted.map_err(|refused| Fault::Nothing(refused.message))
    }

    /// The rows, if they are as many as was expected.
    pub(crate) fn expected(&self, rows: Rows) -> Result<Rows, String> {
        match self.expect_rows {
            Some(expected) if expected != rows.affected => Err(format!(
                "{} rows, but `expect_rows` is {expected}; rolled back",
                rows.affected
            )),
            _ => Ok(rows),
        }
    }
}

/// Why nothing can be said of it, or that nothing happened.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Rolled back, refused, or never begun.
    Nothing(String),
    /// It may have been committed.
    Unsure(String),
}

impl SqlConnector {
    /// Compiles a connector and its tools; nothing is contacted.
    pub(crate) fn compile(
        config: &ConnectorConfig,
        place: &Place,
        base_dir: &Path,
        secrets: Arc<dyn SecretStore>,
        store: &StoreAddress,
    ) -> Result<Self, RegistryError> {
        let address = Address::parse(config.url.as_ref(), base_dir, store)
            .map_err(|problem| place.refuse("url", problem))?;
        let dialect = match &address {
            Address::Sqlite(_) => Dialect::Sqlite,
            Address::Postgres(_) | Address::Store(_) | Address::Secret(_) => Dialect::Postgres,
        };
        let mut tools = BTreeMap::new();
        for (name, tool) in &config.tools {
            let compiled = SqlTool::compile(config, tool, dialect, &place.tool(name))?;
            tools.insert(name.clone(), Arc::new(compiled));
        }
        Ok(Self {
            address,
            tools,
            secrets,
            whose: Whose::new(store),
        })
    }

    async fn run(&self, tenant: &TenantId, job: Job, hidden: &mut Hidden) -> Result<Rows, Fault> {
        let secret;
        let url = match &self.address {
            Address::Sqlite(path) => {
                self.whose.permits_file(path, &job.statement)?;
                return sqlite::run(path.clone(), job).await;
            }
            Address::Store(url) => {
                return postgres::run(postgres::options_of_store(url)?, &job).await;
            }
            Address::Postgres(url) => url,
            Address::Secret(name) => {
                let found = self.secrets.secret(tenant, name).await;
                secret = found.map_err(|error| Fault::Nothing(error.to_string()))?;
                hidden.add(secret.reveal());
                secret.reveal()
            }
        };
        self.whose.permits_server(url, &job.statement).await?;
        postgres::run(postgres::options(url)?, &job).await
    }

    /// Whether a tool has effects that the store does not bring about itself.
    fn has_effects(&self) -> bool {
        let mut tools = self.tools.values();
        tools.any(|tool| !tool.reads && !tool.is_transactional)
    }
}

/// What is kept of an answer whose effect happened, however large it is.
fn kept(rows: Rows, tool: &SqlTool, hidden: &Hidden) -> Effect {
    effect(rows, tool, hidden).unwrap_or_else(|problem| Effect::of(json!({ "left_out": problem })))
}

fn effect(rows: Rows, tool: &SqlTool, hidden: &Hidden) -> Result<Effect, String> {
    let result = if tool.reads {
        Value::Array(rows.rows)
    } else {
        json!({ "rows_affected": rows.affected, "rows": rows.rows })
    };
    let bytes = serde_json::to_vec(&result).map_err(|error| error.to_string())?;
    if bytes.len() > ANSWER_BYTES_MAX {
        return Err(format!(
            "its answer is larger than {ANSWER_BYTES_MAX} bytes"
        ));
    }
    let result = hidden.blank_value(result);
    let pointer = tool.effect_id.as_deref().unwrap_or("/rows/0/id");
    let effect_id = match result.pointer(pointer) {
        Some(Value::String(id)) => Some(id.clone()),
        Some(Value::Number(id)) => Some(id.to_string()),
        _ => None,
    };
    Ok(Effect {
        result: result.into(),
        effect_id,
    })
}

#[async_trait]
impl Connector for SqlConnector {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let not_applied = |message: String| InvokeOutcome::NotApplied(ConnectorError::new(message));
        let Some(tool) = self.tools.get(&call.tool) else {
            return not_applied(format!("`{}`: the connector has no such tool", call.tool));
        };
        if tool.is_transactional {
            return not_applied(format!(
                "`{}` runs only in the store's transaction",
                call.tool
            ));
        }
        let mut hidden = Hidden::of(call, &tool.secret_args);
        let job = tool
            .statement
            .job(call, tool.reads, tool.expect_rows, tool.max_land);
        let job = match job {
            Ok(job) => job,
            Err(problem) => return not_applied(format!("`{}` was not run: {problem}", call.tool)),
        };
        let ran = self.run(&call.tenant, job, &mut hidden).await;
        let quoted = |problem: &str| hidden.quote(problem);
        match ran {
            Ok(rows) if tool.reads => match effect(rows, tool, &hidden) {
                Ok(effect) => InvokeOutcome::Applied(effect),
                Err(problem) => not_applied(format!("`{}`: {problem}", call.tool)),
            },
            Ok(rows) => InvokeOutcome::Applied(kept(rows, tool, &hidden)),
            Err(Fault::Nothing(problem)) => not_applied(format!(
                "`{}` changed nothing: {}",
                call.tool,
                quoted(&problem)
            )),
            Err(Fault::Unsure(problem)) if tool.reads => {
                not_applied(format!("`{}`: {}", call.tool, quoted(&problem)))
            }
            Err(Fault::Unsure(problem)) => InvokeOutcome::Unknown(ConnectorError::new(format!(
                "`{}` may have been committed: {}",
                call.tool,
                quoted(&problem)
            ))),
        }
    }

    fn prepare(&self, call: &Call) -> Result<Arc<dyn Work>, ConnectorError> {
        let found = self.tools.get(&call.tool);
        let Some(tool) = found.filter(|tool| tool.is_transactional) else {
            let problem = format!("`{}` is no statement of the store's database", call.tool);
            return Err(ConnectorError::new(problem));
        };
        let job = tool
            .statement
            .job(call, false, tool.expect_rows, tool.max_land);
        let not_run = |problem| format!("`{}` was not run: {problem}", call.tool);
        let job = job.map_err(|problem| ConnectorError::new(not_run(problem)))?;
        let hidden = Hidden::of(call, &tool.secret_args);
        Ok(Arc::new(Prepared::new(job, call, Arc::clone(tool), hidden)))
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        let unknown = |message: String| ProbeOutcome::Unknown(ConnectorError::new(message));
        let found = self.tools.get(&call.tool);
        let Some((tool, probe)) = found.and_then(|tool| Some((tool, tool.probe.as_ref()?))) else {
            return unknown(format!("`{}` has no probe", call.tool));
        };
        let mut hidden = Hidden::of(call, &tool.secret_args);
        let job = match probe.job(call, true, None, Duration::ZERO) {
            Ok(job) => job,
            Err(problem) => return unknown(format!("the probe was not run: {problem}")),
        };
        match self.run(&call.tenant, job, &mut hidden).await {
            Ok(done) if done.rows.is_empty() => ProbeOutcome::NotApplied,
            Ok(done) => match effect(done, tool, &hidden) {
                Ok(effect) => ProbeOutcome::Applied(effect),
                Err(problem) => unknown(problem),
            },
            Err(Fault::Nothing(problem) | Fault::Unsure(problem)) => {
                unknown(hidden.quote(&problem))
            }
        }
    }

    /// Opens the database and asks it for the number one, on a server as the effect that the tools are
    /// there for: in the store's own database it is refused, where a read is not.
    async fn check(&self, tenant: &TenantId) -> Health {
        let is_file = matches!(self.address, Address::Sqlite(_));
        let job = Job {
            statement: kernel::Statement {
                text: "SELECT 1 AS one".to_owned(),
                values: Vec::new(),
                reads: is_file || !self.has_effects(),
                returns: true,
                deadline: crate::registry::TIMEOUT_DEFAULT,
            },
            expect_rows: None,
            max_land: Duration::ZERO,
            permit: SendPermit::always(),
        };
        let mut hidden = Hidden::without_call();
        match self.run(tenant, job, &mut hidden).await {
            Ok(_) => Health::Well("the database answers".to_owned()),
            Err(Fault::Nothing(problem) | Fault::Unsure(problem)) => {
                Health::Ill(ConnectorError::new(hidden.quote(&problem)))
            }
        }
    }
}
