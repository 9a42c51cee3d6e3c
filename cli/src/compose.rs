//! Puts the parts together: the one place that names a concrete store, connector and policy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use operators_connectors::{
    ConnectorConfig, ConnectorKind, ProjectSecrets, Registry, RegistryError, StoreAddress,
};
use operators_kernel::{Clock, ConnectorName, DurableExec, OperatorName, Seams, Settings};
use operators_policies::{Layers, Policy, PolicyProblems, Reach, RuleSet, loading};
use operators_seams::{DynamoStore, MemoryStore, PgStore, SqliteStore, SystemClock};

use crate::config::{StoreUrl, refusal};
use crate::locate;
use crate::output::{note, shown};
use crate::project::{Project, is_there};

/// What a run needs, with the concrete parts that messages look into.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) trust: Trust,
}

/// The rules, and the files they came from.
#[derive(Debug)]
pub(crate) struct Trust {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) policies: Vec<Policy>,
    pub(crate) own: BTreeMap<OperatorName, Vec<Policy>>,
}

impl Trust {
    /// The policies of the project, then those of its operators.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().chain(self.own.values().flatten())
    }
}

impl Parts {
    /// Loads everything that a run decides by; the store is not touched.
    pub(crate) fn load(project: &Project) -> Result<Self> {
        Ok(Self {
            clock: clock(),
            registry: registry(project)?,
            trust: trust(project)?,
        })
    }

    /// The seams of an executor on that store.
    pub(crate) fn seams(&self, durable: Arc<dyn DurableExec>) -> Seams {
        Seams {
            durable,
            connectors: Arc::<Registry>::clone(&self.registry),
            policy: Arc::<RuleSet>::clone(&self.trust.rules),
            clock: Arc::clone(&self.clock),
        }
    }
}

/// Time and ids of this machine.
pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// The bounds of an executor of this project.
pub(crate) fn settings(project: &Project) -> Settings {
    Settings {
        node: format!("operators:{}", std::process::id()),
        lease: project.config.store.lease.get(),
        ..Settings::default()
    }
}

/// The project's store; a file is made if it is not there, a table never is.
pub(crate) async fn store(
    project: &Project,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn DurableExec>> {
    Ok(match &project.config.store.url {
        StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open(&project.path(path))?),
        StoreUrl::Postgres(address) => Arc::new(PgStore::connect(address.reveal()).await?),
        StoreUrl::DynamoDb(address) => Arc::new(DynamoStore::connect(address.reveal()).await?),
        StoreUrl::Memory => Arc::new(MemoryStore::new(Arc::clone(clock))),
    })
}

/// Makes what a store needs and does not make by itself; whether there was anything to make.
pub(crate) async fn create_store(project: &Project) -> Result<bool> {
    match &project.config.store.url {
        StoreUrl::DynamoDb(address) => {
            DynamoStore::create_table(address.reveal()).await?;
            Ok(true)
        }
        StoreUrl::Sqlite(_) | StoreUrl::Postgres(_) | StoreUrl::Memory => Ok(false),
    }
}

/// The project's store for those who only look: one that is not there yet is empty, and stays away.
pub(crate) async fn store_to_read(
    project: &Project,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn DurableExec>> {
    match project.store_file() {
        Some(file) if !is_there(&file)? => {
            note(&format!(
                "the store `{}` is not there yet; the first run makes it",
                shown(&file.display())
            ));
            Ok(empty_store(clock))
        }
        _ => store(project, clock).await,
    }
}

/// What stands for a store that is not there yet.
pub(crate) fn empty_store(clock: &Arc<dyn Clock>) -> Arc<dyn DurableExec> {
    Arc::new(MemoryStore::new(Arc::clone(clock)))
}

/// The tools of the project's connectors.
pub(crate) fn registry(project: &Project) -> Result<Arc<Registry>> {
    let mut configs = project.config.connectors.clone();
    supervise(&mut configs);
    let secrets = Arc::new(secrets(project)?);
    let store = match &project.config.store.url {
        StoreUrl::Sqlite(path) => StoreAddress::Sqlite(project.path(path)),
        StoreUrl::Postgres(address) => StoreAddress::Postgres(address.reveal().to_owned()),
        StoreUrl::DynamoDb(_) | StoreUrl::Memory => StoreAddress::Elsewhere,
    };
    let registry = Registry::build_beside(configs, project.dir(), secrets, &store);
    Ok(Arc::new(
        registry.map_err(|error| misconfigured(project, &error))?,
    ))
}

/// Where programs run, this one is started once more to end them in time, unless the project names
/// another.
pub(crate) fn supervise(configs: &mut BTreeMap<ConnectorName, ConnectorConfig>) {
    let runs_programs = |config: &ConnectorConfig| match config.kind {
        ConnectorKind::Command => true,
        ConnectorKind::Mcp => config.argv.is_some(),
        ConnectorKind::Http | ConnectorKind::File | ConnectorKind::Sql => false,
    };
    // The very program that runs, also if its file was replaced since.
    let this = Path::new("/proc/self/exe");
    let this = if this.exists() {
        Some(this.to_path_buf())
    } else {
        std::env::current_exe().ok()
    };
    let this = this.map(|path| path.to_string_lossy().into_owned());
    for config in configs.values_mut().filter(|config| runs_programs(config)) {
        if config.supervisor.is_none() {
            config.supervisor.clone_from(&this);
        }
    }
}

/// Where the project's credentials come from.
pub(crate) fn secrets(project: &Project) -> Result<ProjectSecrets> {
    ProjectSecrets::build(&project.config.secrets, project.dir())
        .map_err(|error| misconfigured(project, &error))
}

fn misconfigured(project: &Project, error: &RegistryError) -> anyhow::Error {
    let at = locate::in_toml(&project.text, &error.place);
    refusal(
        &project.config_file(),
        &project.text,
        at,
        &error.to_string(),
    )
}

/// The project's policies, those of its operators, and the operators' reach.
pub(crate) fn trust(project: &Project) -> Result<Trust> {
    trust_of(project, &project.policy_files()?)
}

/// The same with other files for the project's own.
pub(crate) fn trust_of(project: &Project, files: &[PathBuf]) -> Result<Trust> {
    let read = |files: &[PathBuf]| -> Result<Vec<Policy>> {
        let read = files.iter().map(|file| policy(project, file));
        read.collect::<Result<Vec<_>, _>>()
            .map_err(|problems| problems.first)
            .context("a policy does not load, so nothing runs")
    };
    let (policies, own) = loading(|| -> Result<_> {
        let policies = read(files)?;
        let mut own = BTreeMap::new();
        for (name, files) in own_files(project)? {
            own.insert(name, read(&files)?);
        }
        Ok((policies, own))
    })?;
    let rules = RuleSet::layered(Layers {
        project: policies.clone(),
        own: own.clone(),
        reaches: reaches(project),
        on_alert: project.config.trust.alert.on_alert(),
    })
    .context("the policies do not go together, so nothing runs")?;
    Ok(Trust {
        rules: Arc::new(rules),
        policies,
        own,
    })
}

/// One policy file, with everything that is wrong with it.
pub(crate) fn policy(project: &Project, file: &Path) -> Result<Policy, PolicyProblems> {
    Policy::read_whole(file, &|connector, tool| {
        let mut connectors = project.config.connectors.iter();
        let (_, connector) = connectors.find(|(name, _)| name.as_str() == connector)?;
        let mut tools = connector.tools.iter();
        let (_, tool) = tools.find(|(name, _)| name.as_str() == tool)?;
        // One in a file of its own is checked when arguments come.
        let schema = tool.args_schema.as_ref();
        schema.filter(|schema| schema.is_object())
    })
}

/// Every policy file of the project and of its operators.
pub(crate) fn policy_files(project: &Project) -> Result<Vec<PathBuf>> {
    let mut files = project.policy_files()?;
    files.extend(own_files(project)?.into_values().flatten());
    Ok(files)
}

fn own_files(project: &Project) -> Result<BTreeMap<OperatorName, Vec<PathBuf>>> {
    let mut own = BTreeMap::new();
    for (name, operator) in &project.config.operators {
        if let Some(patterns) = &operator.policies {
            let place = format!("operators.{name}.policies");
            own.insert(name.clone(), project.files(&place, patterns)?);
        }
    }
    Ok(own)
}

fn reaches(project: &Project) -> BTreeMap<OperatorName, Vec<Reach>> {
    let operators = project.config.operators.iter();
    operators
        .filter_map(|(name, operator)| {
            let requires = operator.requires.as_ref()?;
            let reaches = requires.iter().map(|required| required.reach.clone());
            Some((name.clone(), reaches.collect()))
        })
        .collect()
}
