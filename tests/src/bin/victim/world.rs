//! What a victim can reach, the sink through the real `http` connector or a file, and what it may.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use operators_connectors::{
    ConnectorConfig, ConnectorKind, EffectWord, EnvSecrets, HeaderText, ProbeConfig, Registry,
    StoreAddress, ToolConfig,
};
use operators_kernel::{
    Call, Connector, ConnectorError, ConnectorName, Effect, EffectClass, InvokeOutcome,
    ProbeOutcome, Ruling, ToolName, TrustDecision, TrustPolicy, TrustQuestion,
};
use operators_tests::fakes::AllowAll;
use operators_tests::sink;
use serde_json::Value;

use crate::crashing::{CrashingConnector, Outside, Wires};
use crate::options::{Options, TOOL};

/// The tools, each behind a connector that dies where it was told to.
pub fn registry(options: &Options, wires: &Arc<Wires>) -> Registry {
    let (config, outside) = if let Some(port) = options.sink {
        let config = match options.effect.as_str() {
            "mcp-web" => mcp_web(options, port),
            _ => http(options, port),
        };
        (config, Outside::Sink(port))
    } else {
        let file = options.file.clone().expect("--sink or --file");
        let config = match options.effect.as_str() {
            "command" => command(options, &file),
            "mcp" => mcp(options, &file),
            "sql" => match &options.database {
                None => sql(options, &format!("sqlite:{file}")),
                Some(url) => probeable(sql(options, url)),
            },
            "transactional" => sql(options, "store"),
            _ => file_config(options, &file),
        };
        (config, Outside::File(file))
    };
    let shop = ConnectorName::parse("shop").expect("a valid name");
    let configs = BTreeMap::from([(shop, config)]);
    // What an MCP server was accepted as is kept beside the effects, or beside the store.
    let beside = options.file.as_deref();
    let beside = beside.or_else(|| options.store.strip_prefix("sqlite:"));
    let folder = beside.and_then(|beside| Path::new(beside).parent());
    let folder = folder.unwrap_or(Path::new("/"));
    let store = match options.store.strip_prefix("sqlite:") {
        Some(path) => StoreAddress::Sqlite(path.into()),
        None if options.store.starts_with("postgres:") => {
            StoreAddress::Postgres(options.store.clone())
        }
        None => StoreAddress::Elsewhere,
    };
    let real = Registry::build_beside(configs, folder, Arc::new(EnvSecrets), &store);
    let real = real.expect("a valid configuration");
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

/// A program that appends a line like those of the `file` connector, in one write.
fn command(options: &Options, path: &str) -> ConnectorConfig {
    const SCRIPT: &str = r#"printf '{"downstream_key":"%s","idempotency_key":"%s","entity_key":"%s","tenant":"acme"}\n' "$2" "$3" "$4" >> "$1"
echo null
"#;
    // In a file: the texts of `argv` are templates, and this one has braces of its own.
    let script = format!("{path}.sh");
    std::fs::write(&script, SCRIPT).expect("the script is written");
    let argv = [
        "sh",
        script.as_str(),
        path,
        "{action.downstream_key}",
        "{action.idempotency_key}",
        "{action.entity_key}",
    ];
    let tool = ToolConfig {
        argv: Some(argv.map(str::to_owned).to_vec()),
        ..ToolConfig::default()
    };
    config(options, ConnectorKind::Command, tool)
}

/// A server that appends such a line. It is told the order's number, from which the test's plan
/// makes key and entity, and the downstream key.
fn mcp(options: &Options, path: &str) -> ConnectorConfig {
    const SERVER: &str = r#"
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
    *'"method":"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"orders.hold","inputSchema":{"type":"object"}}]}}' ;;
    *'"method":"tools/call"'*)
      n=$(printf '%s' "$line" | sed -n 's/.*"order":\([0-9]*\).*/\1/p')
      key=$(printf '%s' "$line" | sed -n 's/.*idempotency-key":"\([^"]*\)".*/\1/p')
      printf '{"downstream_key":"%s","idempotency_key":"key-%s","entity_key":"order-%s","tenant":"acme"}\n' "$key" "$n" "$((n % 2))" >> "$1"
      echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
  esac
done
"#;
    let argv = ["sh", "-c", SERVER, "server", path].map(str::to_owned);
    ConnectorConfig {
        argv: Some(argv.to_vec()),
        ..config(options, ConnectorKind::Mcp, ToolConfig::default())
    }
}

/// The sink as a server behind an address.
fn mcp_web(options: &Options, port: u16) -> ConnectorConfig {
    let headers = [
        (sink::TENANT_HEADER, &options.tenant),
        (sink::PROCESS_HEADER, &options.process),
    ];
    ConnectorConfig {
        url: Some(HeaderText::new(format!("http://127.0.0.1:{port}/mcp"))),
        allow_private_addresses: Some(true),
        headers: headers
            .into_iter()
            .map(|(name, text)| (name.to_owned(), HeaderText::new(text)))
            .collect(),
        ..config(options, ConnectorKind::Mcp, ToolConfig::default())
    }
}

/// One row per effect, which holds such a line.
fn sql(options: &Options, url: &str) -> ConnectorConfig {
    let is_in_server = match url {
        "store" => options.store.starts_with("postgres:"),
        url => url.starts_with("postgres:"),
    };
    let make = if is_in_server {
        "json_build_object"
    } else {
        "json_object"
    };
    let statement = format!(
        "INSERT INTO effects SELECT {make}('downstream_key', {{action.downstream_key}}, \
         'idempotency_key', {{action.idempotency_key}}, 'entity_key', {{action.entity_key}}, \
         'tenant', 'acme')"
    );
    let tool = ToolConfig {
        statement: Some(statement),
        expect_rows: Some(1),
        ..ToolConfig::default()
    };
    let mut config = ConnectorConfig {
        url: Some(HeaderText::new(url)),
        ..config(options, ConnectorKind::Sql, tool)
    };
    if url == "store" {
        // Nothing of it can land later.
        for tool in config.tools.values_mut() {
            tool.max_land = None;
        }
    }
    config
}

/// The same, asked about by its key.
fn probeable(mut config: ConnectorConfig) -> ConnectorConfig {
    for tool in config.tools.values_mut() {
        tool.effect = Some(EffectWord::Probeable);
        tool.probe = Some(ProbeConfig {
            statement: Some(
                "SELECT 1 AS found FROM effects \
                 WHERE line::json->>'idempotency_key' = {action.idempotency_key}"
                    .to_owned(),
            ),
            ..ProbeConfig::default()
        });
    }
    config
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

    fn evaluate_read(&self, _question: &TrustQuestion<'_>) -> Ruling {
        Ruling::of(TrustDecision::Allow)
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
            Ok(Ok(seen)) if seen["applied"] == true => {
                ProbeOutcome::Applied(Effect::of(seen["result"].clone()))
            }
            Ok(Ok(_)) => ProbeOutcome::NotApplied,
            Ok(Err(error)) => ProbeOutcome::Unknown(ConnectorError::new(error.to_string())),
            Err(error) => ProbeOutcome::Unknown(ConnectorError::new(error.to_string())),
        }
    }
}
