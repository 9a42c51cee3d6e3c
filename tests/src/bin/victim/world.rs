//! What a victim can reach, the sink through the real `http` connector or a file, and what it may.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use operators_connectors::{
    ConnectorConfig, ConnectorKind, EffectWord, EnvSecrets, HeaderText, Registry, ToolConfig,
};
use operators_kernel::{
    Call, Connector, ConnectorError, ConnectorName, Effect, EffectClass, InvokeOutcome,
    ProbeOutcome, Ruling, ToolName, TrustPolicy, TrustQuestion,
};
use operators_tests::fakes::AllowAll;
use operators_tests::sink;
use serde_json::Value;

use crate::crashing::{CrashingConnector, Outside, Wires};
use crate::options::{Options, TOOL};

/// The tools, each behind a connector that dies where it was told to.
pub fn registry(options: &Options, wires: &Arc<Wires>) -> Registry {
    let (config, outside) = if let Some(port) = options.sink {
        (http(options, port), Outside::Sink(port))
    } else {
        let file = options.file.clone().expect("--sink or --file");
        (file_config(options, &file), Outside::File(file))
    };
    let shop = ConnectorName::parse("shop").expect("a valid name");
    let configs = BTreeMap::from([(shop, config)]);
    let real = Registry::build(configs, Path::new("/"), Arc::new(EnvSecrets))
        .expect("a valid configuration");
    Registry::from_tools(real.tools().map(|(connector, name, tool, _)| {
        let mut tool = tool.clone();
        if let (Some(port), "probeable") = (options.sink, options.effect.as_str()) {
            // The `http` connector cannot probe in this version; the wrapper can.
            tool.contract.effect = EffectClass::Probeable;
            let inner = tool.connector;
            tool.connector = Arc::new(Probing { inner, port });
        }
        let wires = Arc::clone(wires);
        tool.connector = Arc::new(CrashingConnector::new(
            tool.connector,
            wires,
            outside.clone(),
        ));
        (connector.clone(), name.clone(), tool)
    }))
}

fn http(options: &Options, port: u16) -> ConnectorConfig {
    let headers = [
        (sink::TENANT_HEADER, options.tenant.as_str()),
        (sink::ENTITY_HEADER, "{action.entity_key}"),
        (sink::KEY_HEADER, "{action.idempotency_key}"),
        (sink::DOWNSTREAM_HEADER, "{action.downstream_key}"),
        (sink::PROCESS_HEADER, &options.process),
        (sink::BEHAVE_HEADER, &options.behave),
    ];
    ConnectorConfig {
        base_url: Some(format!("http://127.0.0.1:{port}")),
        allow_private_addresses: Some(true),
        headers: headers
            .into_iter()
            .map(|(name, text)| (name.to_owned(), HeaderText::new(text)))
            .collect(),
        ..config(
            options,
            ConnectorKind::Http,
            ToolConfig {
                path: Some("/apply/hold".to_owned()),
                effect: Some(match options.effect.as_str() {
                    "keyed" => EffectWord::Keyed,
                    "opaque" | "probeable" => EffectWord::Opaque,
                    other => panic!("no effect `{other}`"),
                }),
                ..ToolConfig::default()
            },
        )
    }
}

fn file_config(options: &Options, path: &str) -> ConnectorConfig {
    ConnectorConfig {
        path: Some(path.to_owned()),
        ..config(options, ConnectorKind::File, ToolConfig::default())
    }
}

fn config(options: &Options, kind: ConnectorKind, tool: ToolConfig) -> ConnectorConfig {
    let tool = ToolConfig {
        timeout: Some(options.timeout.into()),
        max_land: Some(options.max_land.into()),
        ..tool
    };
    ConnectorConfig {
        tools: BTreeMap::from([(ToolName::parse(TOOL).expect("a valid name"), tool)]),
        ..ConnectorConfig::new(kind)
    }
}

/// Blocks every key that says so, and allows the rest.
#[derive(Debug)]
pub struct Bouncer;

impl TrustPolicy for Bouncer {
    fn evaluate(&self, question: &TrustQuestion<'_>) -> Ruling {
        if question.action.idempotency_key.as_str().contains("blocked") {
            return Ruling::closed("its key says so");
        }
        AllowAll.evaluate(question)
    }
}

/// A connector that can ask the sink whether it happened.
#[derive(Debug)]
struct Probing {
    inner: Arc<dyn Connector>,
    port: u16,
}

#[async_trait]
impl Connector for Probing {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        self.inner.invoke(call).await
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        let (port, key) = (self.port, call.downstream_key.clone());
        let asked = tokio::task::spawn_blocking(move || {
            sink::ask(port, "GET", &format!("/seen?key={key}"))
        });
        let seen = asked.await.expect("a question does not panic");
        match seen.map(|text| serde_json::from_str::<Value>(&text)) {
            Ok(Ok(seen)) if seen["applied"] == true => ProbeOutcome::Applied(Effect {
                result: seen["result"].clone(),
                effect_id: None,
            }),
            Ok(Ok(_)) => ProbeOutcome::NotApplied,
            Ok(Err(error)) => ProbeOutcome::Unknown(ConnectorError::new(error.to_string())),
            Err(error) => ProbeOutcome::Unknown(ConnectorError::new(error.to_string())),
        }
    }
}
