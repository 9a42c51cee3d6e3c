//! The benchmark's load on the crate `agent-effects`, as its README shows it: one runtime, one
//! effect per key with its input, each store opened by its own recommended constructor.

use std::sync::Arc;

use agent_effects::store::EffectStore;
use agent_effects::{EffectKind, EffectOutcome, Runtime};
use agent_effects_memory::MemoryStore;
use agent_effects_postgres::PostgresOptions;
use agent_effects_sqlite::SqliteStore;
use load::{Cell, EffectName, Effects, Request, Side};
use serde_json::{Value, json};

/// What was fastest of 10 (the crate's default), 20, 32 and 64 where the benchmark was written.
const CONNECTIONS: u32 = 10;

struct Peer<S> {
    runtime: Runtime<S>,
    effects: Arc<Effects>,
}

impl<S: EffectStore + 'static> Side for Peer<S> {
    async fn propose(&self, effect: EffectName) -> Result<(), String> {
        let effects = Arc::clone(&self.effects);
        let outcome = self
            .runtime
            .effect("orders.hold", effect.key())
            .kind(EffectKind::IrreversibleWrite)
            .input(&json!({"order": effect.order(), "reason": "ship-risk-review"}))
            .remote_idempotency(true)
            .run(move |_context| {
                effects.happen();
                async { Ok(json!({"status": "holded"})) }
            })
            .await
            .map_err(|error| error.to_string())?;
        match outcome {
            EffectOutcome::Committed(Value::Object(_)) => Ok(()),
            other => Err(format!("not committed: {other:?}")),
        }
    }
}

async fn measure(request: Request) -> Result<Cell, String> {
    match request.store.as_str() {
        "memory" => on(MemoryStore::new(), &request).await,
        "sqlite" => {
            let store = SqliteStore::open(&request.place).await;
            on(store.map_err(|error| error.to_string())?, &request).await
        }
        "postgres" => {
            let options = PostgresOptions::new().max_connections(CONNECTIONS);
            let store = options.connect(&request.place).await;
            on(store.map_err(|error| error.to_string())?, &request).await
        }
        other => Err(format!("no store `{other}`")),
    }
}

async fn on<S: EffectStore + 'static>(store: S, request: &Request) -> Result<Cell, String> {
    let effects = Arc::new(Effects::default());
    let peer = Arc::new(Peer {
        runtime: Runtime::new(store),
        effects: Arc::clone(&effects),
    });
    load::measure(&peer, &effects, request.bounds).await
}

fn main() -> std::io::Result<()> {
    load::serve(measure)
}
