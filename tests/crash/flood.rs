//! Several processes at once on one store: one effect, one order, no overlap.

use std::collections::BTreeMap;

use operators_kernel::{ActionResult, Disposition, Reason};
use operators_tests::fixtures;
use operators_tests::history::Line;
use serde_json::json;

use crate::arena::{Arena, Plan};
use crate::ground::{Store, on_every_store};
use crate::process::{Ended, Orders, Victim};

on_every_store!(
    a_flood_of_657_from_three_processes_sends_once,
    three_processes_take_turns_on_shared_entities,
    revisions_never_go_back_between_processes,
);

/// Starts victims, lets them go together, and waits for all of them. None of them dies, and in a
/// crowd a claim alone may take longer than an honest call.
fn together(arena: &Arena, orders: Vec<Orders>) -> Vec<Ended> {
    let mut victims: Vec<Victim> = orders
        .into_iter()
        .map(|orders| {
            let patient = orders
                .with("--lease-ms", 5_000)
                .with("--timeout-ms", 10_000);
            Victim::start(&patient.flag("--wait"))
        })
        .collect();
    for victim in &mut victims {
        victim.wait_until_ready();
    }
    for victim in &mut victims {
        victim.go();
    }
    victims
        .into_iter()
        .map(|victim| {
            let ended = arena.keep(victim.finish());
            assert!(ended.status.success(), "{ended:#?}");
            ended
        })
        .collect()
}

/// By rules 3.1, 3.8, 8.5: one effect, one `ALLOW`, 656 `DEDUP`, over all processes.
fn a_flood_of_657_from_three_processes_sends_once(store: Store) {
    let plan = Plan {
        actions: 1,
        entities: 1,
        repeats: 219,
    };
    let arena = Arena::new(store, "opaque", plan);
    let orders = (0..3)
        .map(|_| arena.orders().flag("--at-once"))
        .collect::<Vec<_>>();
    let ended = together(&arena, orders);
    let mut decisions: BTreeMap<&str, usize> = BTreeMap::new();
    for result in ended.iter().flat_map(Ended::results) {
        assert!(result.ok, "{result:?}");
        *decisions.entry(result.decision.as_str()).or_default() += 1;
    }
    println!(
        "{}, 657 proposals of three processes: {decisions:?}",
        store.name()
    );
    assert_eq!(decisions, BTreeMap::from([("ALLOW", 1), ("DEDUP", 656)]));
    let history = arena.history();
    history.assert_sound("flood");
    assert_eq!(history.hits.len(), 1, "the sink counts");
    assert_eq!(history.receipts.len(), 657, "one receipt each");
}

/// By rules 2.1, 2.2, 2.3: on three shared entities, three processes take turns in the order of the
/// store's queue and never touch one at the same time.
fn three_processes_take_turns_on_shared_entities(store: Store) {
    let plan = Plan {
        actions: 0,
        entities: 0,
        repeats: 0,
    };
    let arena = Arena::new(store, "opaque", plan);
    let orders = ["a", "b", "c"].map(|prefix| {
        arena
            .orders_without_plan()
            .with("--generate", format!("40:3:1:{prefix}"))
            .with("--behave", "before=1,after=1")
            .flag("--at-once")
    });
    let ended = together(&arena, orders.to_vec());
    for result in ended.iter().flat_map(Ended::results) {
        assert!(result.ok, "{result:?}");
    }
    let history = arena.history();
    history.assert_sound("turns");
    assert_eq!(history.hits.len(), 120);
    let waited = history
        .lines
        .iter()
        .filter(|line| matches!(line, Line::Ticket(_)))
        .count();
    let mut changes = 0;
    for entity in ["order-0", "order-1", "order-2"] {
        let lane: Vec<&str> = history
            .hits
            .iter()
            .filter(|hit| hit.entity == entity)
            .map(|hit| hit.process.as_str())
            .collect();
        changes += lane.windows(2).filter(|pair| pair[0] != pair[1]).count();
    }
    println!(
        "{}, 120 actions of three processes: {waited} waited, {changes} changes of process",
        store.name()
    );
    assert!(waited >= 20 && changes >= 20, "they hardly met");
}

/// By rule 3.5: revisions of one entity, proposed by three processes at once, never go back.
fn revisions_never_go_back_between_processes(store: Store) {
    let plan = Plan {
        actions: 0,
        entities: 0,
        repeats: 0,
    };
    let arena = Arena::new(store, "keyed", plan);
    let orders: Vec<Orders> = (0..3)
        .map(|process| {
            let actions: Vec<_> = (0..20)
                .map(|n| {
                    let revision = n * 3 + process;
                    let key = format!("revision-{revision}");
                    let args = json!({"to": revision});
                    let mut action = fixtures::action("orders.hold", "order-0", &key, args);
                    action.revision = Some(revision);
                    action
                })
                .collect();
            let path = arena.path(&format!("plan-{process}.json"));
            std::fs::write(&path, serde_json::to_string(&actions).expect("JSON")).expect("a file");
            arena.orders_without_plan().with("--plan", path.display())
        })
        .collect();
    let ended = together(&arena, orders);
    let results: Vec<_> = ended.iter().flat_map(Ended::results).collect();
    let (applied, refused): (Vec<&ActionResult>, Vec<&ActionResult>) =
        results.into_iter().partition(|result| result.ok);
    assert!(
        refused.iter().all(|result| {
            result.reason == Some(Reason::StaleRevision) && result.decision == Disposition::Block
        }),
        "{refused:#?}"
    );
    let history = arena.history();
    history.assert_sound("revisions");
    assert_eq!(history.hits.len(), applied.len());
    let newest = history.entities.values().next().expect("one").revision;
    assert_eq!(newest, Some(59));
    println!(
        "{}, 60 revisions: {} applied, {} stale",
        store.name(),
        applied.len(),
        refused.len()
    );
}
