//! The outcome table against a vendor in another process: one row per behaviour and effect class
//! (rules 4.1, 4.13), and the contract that a connector of one's own is held to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use operators::{Connector, ConnectorConfig, ConnectorName, EnvSecrets, Registry, ToolName};
use operators_kernel::ToolRegistry as _;
use operators_tests::kit;
use operators_tests::sink::Sink;

#[expect(dead_code, reason = "the example's own `main` is for people")]
#[path = "../../cli/examples/own_connector.rs"]
mod own_connector;

const DEADLINE: Duration = Duration::from_millis(800);

fn sink() -> Sink {
    Sink::start(Path::new(env!("CARGO_BIN_EXE_operators-sink")))
}

/// The http connector's tool of that effect class, configured as a user would.
fn http(port: u16, effect: &str) -> Arc<dyn Connector> {
    let probe = match effect {
        "probeable" => {
            "probe = { path = '/seen?key={action.downstream_key}', \
             applied_if = { pointer = '/applied', equals = true }, \
             not_applied_if = { pointer = '/applied', equals = false }, result = '/result' }\n"
        }
        _ => "",
    };
    let text = format!(
        "[kit]\nkind = 'http'\nbase_url = 'http://127.0.0.1:{port}'\nallow_private_addresses = true\n\
         timeout = '800ms'\n[kit.tools.'orders.hold']\nmethod = 'POST'\npath = '/apply'\n\
         effect = '{effect}'\neffect_id = '/effect'\n\
         headers = {{ x-downstream-key = '{{action.downstream_key}}' }}\n{probe}"
    );
    let configs: BTreeMap<ConnectorName, ConnectorConfig> = toml::from_str(&text).expect("config");
    let registry = Registry::build(configs, Path::new("."), Arc::new(EnvSecrets)).expect("loads");
    let connector = ConnectorName::parse("kit").expect("a name");
    let tool = ToolName::parse("orders.hold").expect("a name");
    registry
        .tool(&connector, &tool)
        .expect("registered")
        .connector
}

#[tokio::test]
async fn every_behaviour_has_one_outcome_whatever_the_effect_class() {
    for effect in ["opaque", "probeable", "keyed", "idempotent", "read"] {
        let sink = sink();
        let connector = http(sink.port(), effect);
        let wrong = kit::contract(&sink, connector.as_ref(), "orders.hold", DEADLINE).await;
        assert!(wrong.is_empty(), "{effect}: {wrong:#?}");
    }
}

#[tokio::test]
async fn a_vendor_that_is_not_there_is_a_definite_failure() {
    let sink = sink();
    let port = sink.port();
    drop(sink);
    let connector = http(port, "opaque");
    let call = kit::call("orders.hold", &kit::TRIALS[0], DEADLINE);
    let outcome = connector.invoke(&call).await;
    assert!(
        matches!(outcome, operators::InvokeOutcome::NotApplied(_)),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_connector_of_ones_own_keeps_the_contract() {
    let sink = sink();
    let connector = own_connector::Warehouse::at(sink.port());
    let wrong = kit::contract(&sink, &connector, "orders.hold", DEADLINE).await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A connector that takes every silence for a failure, as most first drafts do.
#[derive(Debug)]
struct Careless(own_connector::Warehouse);

#[operators::async_trait]
impl Connector for Careless {
    async fn invoke(&self, call: &operators::Call) -> operators::InvokeOutcome {
        match self.0.invoke(call).await {
            operators::InvokeOutcome::Unknown(error) => operators::InvokeOutcome::NotApplied(error),
            known => known,
        }
    }
}

#[tokio::test]
async fn the_contract_finds_a_connector_that_takes_silence_for_failure() {
    let sink = sink();
    let connector = Careless(own_connector::Warehouse::at(sink.port()));
    let wrong = kit::contract(&sink, &connector, "orders.hold", DEADLINE).await;
    assert!(
        wrong
            .iter()
            .any(|line| line.starts_with("resets after applying: said NotApplied")),
        "{wrong:#?}"
    );
}
