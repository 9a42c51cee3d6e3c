//! A process to kill: an executor on a real store with real connectors, driven by its arguments.
//!
//! Prints a [`Line`] for everything that happens, before the next thing does. Where it dies is said
//! by `--crash POINT:N`, where it freezes by `--freeze POINT:N`; both happen in wrappers around the
//! seams, never inside the product.

#[path = "victim/crashing.rs"]
mod crashing;
#[path = "victim/exec.rs"]
mod exec;
#[path = "victim/options.rs"]
mod options;
#[path = "victim/world.rs"]
mod world;

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use operators_kernel::{
    Clock, DeterministicExecutor, DurableExec, ExecError, PlannedAction, Reason, RunContext, Seams,
    Settings, TenantId,
};
use operators_seams::SystemClock;
use operators_tests::history::{Line, open_store};

use tokio::runtime::Builder;

use crashing::{CrashingPolicy, Point, Wires};
use exec::CrashingExec;
use options::Options;

/// How long it may take until nothing is in flight, a store that came back late included.
const REST_MAX: Duration = Duration::from_secs(20);
const REST_PAUSE: Duration = Duration::from_millis(5);

/// Between two proposals of what is in doubt.
const INSIST_PAUSE: Duration = Duration::from_millis(100);

fn main() {
    let options = Options::parse(std::env::args().skip(1));
    let mut threads = if options.one_thread {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    let runtime = threads.worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(run(options));
}

async fn run(options: Options) {
    let go = watch_the_test();
    let wires = Arc::new(Wires::new(&options));
    let store = open_store(wires.store_url()).await;
    let store = store.expect("the store opens");
    let durable: Arc<dyn DurableExec> = Arc::new(CrashingExec::new(store, Arc::clone(&wires)));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let seams = Seams {
        durable,
        connectors: Arc::new(world::registry(&options, &wires)),
        policy: Arc::new(CrashingPolicy::new(world::Bouncer, Arc::clone(&wires))),
        clock: Arc::clone(&clock),
    };
    let settings = Settings {
        node: options.process.clone(),
        lease: options.lease,
        ..Settings::default()
    };
    let tenant = TenantId::parse(&options.tenant).expect("a valid tenant");
    let run = RunContext::new(&*clock, tenant);
    let actions = options.actions();
    let executor = DeterministicExecutor::start(seams, settings)
        .await
        .expect("starts");
    say(&Line::Ready);
    if options.waits {
        go.recv().expect("the test says go");
    }
    let victim = Arc::new(Victim {
        executor,
        run,
        wires,
        insist: options.insist,
    });
    if let Some(after) = options.leaves_after {
        for action in actions {
            drop(tokio::spawn(propose(Arc::clone(&victim), action)));
        }
        tokio::time::sleep(after).await;
        return;
    }
    if options.at_once {
        let tasks: Vec<_> = actions
            .into_iter()
            .map(|action| tokio::spawn(propose(Arc::clone(&victim), action)))
            .collect();
        for task in tasks {
            task.await.expect("a proposal does not panic");
        }
    } else {
        for action in actions {
            propose(Arc::clone(&victim), action).await;
        }
    }
    let victim = Arc::into_inner(victim).expect("nobody else runs");
    // Whoever was told that its outcome is not recorded yet has left; the outcome is still there.
    let start = Instant::now();
    while victim.executor.entities_in_flight() > 0 {
        assert!(start.elapsed() < REST_MAX, "not at rest");
        tokio::time::sleep(REST_PAUSE).await;
    }
    victim.executor.stop().await.expect("stops");
}

struct Victim {
    executor: DeterministicExecutor,
    run: RunContext,
    wires: Arc<Wires>,
    insist: Duration,
}

async fn propose(victim: Arc<Victim>, action: PlannedAction) {
    let start = Instant::now();
    while propose_once(&victim, action.clone()).await == Some(Reason::InDoubt)
        && start.elapsed() < victim.insist
    {
        tokio::time::sleep(INSIST_PAUSE).await;
    }
}

/// Proposes an action; why it did not happen, if the store said.
async fn propose_once(victim: &Victim, action: PlannedAction) -> Option<Reason> {
    victim.wires.pass(Point::AfterParse);
    match victim.executor.run_action(&victim.run, action).await {
        Ok(result) => {
            victim.wires.pass(Point::BeforeReply);
            let reason = result.reason;
            say(&Line::Result(Box::new(result)));
            reason
        }
        Err(error @ (ExecError::Store(_) | ExecError::NotRecorded { .. })) => {
            say(&Line::Error(error.to_string()));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Prints a line in one write: a line is there as a whole or not at all, whatever dies next.
fn say(line: &Line) {
    let mut text = serde_json::to_string(line).expect("a line is JSON");
    text.push('\n');
    let mut stdout = std::io::stdout().lock();
    // A test that went away is no reason to stop; its end of the input is.
    if stdout.write_all(text.as_bytes()).is_ok() {
        drop(stdout.flush());
    }
}

/// Ends this process with its test; hands on the test's `go`.
fn watch_the_test() -> Receiver<()> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            match line {
                Ok(line) if line == "go" => drop(sender.send(())),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        std::process::exit(3);
    });
    receiver
}
