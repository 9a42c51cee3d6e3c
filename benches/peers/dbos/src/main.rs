//! The benchmark's load on the crate `dbos`: a workflow whose id is the key.
//!
//! Used in two ways. `step` is what its documentation asks for: the effect is a step of the
//! workflow, so that a recovered workflow does not repeat it. `bare` is the least it can do: the
//! effect is in the workflow's own body, and a crash after it repeats it.

use std::sync::Arc;

use dbos::{Config, DBOS, RunOptions, WorkflowRef};
use load::{Cell, EffectName, Effects, Request, Side};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What was fastest of 10 (the crate's default), 20, 32 and 64 where the benchmark was written.
const CONNECTIONS: u32 = 10;

#[derive(Serialize, Deserialize)]
struct Hold {
    order: String,
    reason: String,
}

struct Peer {
    hold: WorkflowRef<Hold, Value>,
}

impl Side for Peer {
    async fn propose(&self, effect: EffectName) -> Result<(), String> {
        let key = effect.key();
        let options = RunOptions {
            workflow_id: Some(&key),
            ..RunOptions::default()
        };
        let hold = Hold {
            order: effect.order(),
            reason: "ship-risk-review".to_owned(),
        };
        let done = self.hold.run_with(hold, options).await;
        done.map(drop).map_err(|error| error.to_string())
    }
}

async fn measure(request: Request) -> Result<Cell, String> {
    let said = |error: dbos::Error| error.to_string();
    let dbos = DBOS::new(Config {
        app_version: Some("1.0.0".to_owned()),
        max_connections: CONNECTIONS,
        ..Config::new("benchmark", &request.place)
    });
    let effects = Arc::new(Effects::default());
    let hold = register(&dbos, &request.store, &effects)?;
    dbos.launch().await.map_err(said)?;
    let peer = Arc::new(Peer { hold });
    let cell = load::measure(&peer, &effects, request.bounds).await;
    dbos.shutdown().await;
    cell
}

fn register(
    dbos: &DBOS,
    way: &str,
    effects: &Arc<Effects>,
) -> Result<WorkflowRef<Hold, Value>, String> {
    let effects = Arc::clone(effects);
    let registered = match way {
        "step" => dbos.register_workflow("orders.hold", move |_hold: Hold| {
            let effects = Arc::clone(&effects);
            async move {
                dbos::step("hold", || {
                    effects.happen();
                    async { dbos::Result::Ok(json!({"status": "holded"})) }
                })
                .await
            }
        }),
        "bare" => dbos.register_workflow("orders.hold", move |_hold: Hold| {
            effects.happen();
            async { dbos::Result::Ok(json!({"status": "holded"})) }
        }),
        other => return Err(format!("no way of use `{other}`")),
    };
    registered.map_err(|error| error.to_string())
}

fn main() -> std::io::Result<()> {
    load::serve(measure)
}
