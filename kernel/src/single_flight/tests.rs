//! Turns inside one process: their order, who is told to go elsewhere, and what is left at rest.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt;

use super::*;

fn lane() -> Lane {
    (
        TenantId::parse("t").expect("tenant"),
        EntityKey::parse("e").expect("entity"),
    )
}

#[expect(clippy::disallowed_methods, reason = "the test plays many callers")]
fn spawned<F>(future: F) -> tokio::task::JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(future)
}

impl AsRef<Flights> for Flights {
    fn as_ref(&self) -> &Self {
        self
    }
}

fn flights(waiters_max: usize) -> Arc<Flights> {
    Arc::new(Flights::new(waiters_max))
}

#[tokio::test]
async fn turns_come_in_arrival_order_and_the_map_is_empty_at_rest() {
    let flights = flights(100);
    let order = Arc::new(Mutex::new(Vec::new()));
    let arrivals: Vec<_> = (0..50)
        .map(|n| (n, Flights::arrive(&flights, lane()).ok()))
        .collect();
    let mut tasks = Vec::new();
    // Polled in the opposite order of arrival: it must not matter.
    for (n, arrival) in arrivals.into_iter().rev() {
        let order = Arc::clone(&order);
        tasks.push(spawned(async move {
            let place = arrival.expect("admitted").turn().await;
            order.lock().expect("order").push(n);
            drop(place);
        }));
    }
    for task in tasks {
        task.await.expect("joins");
    }
    assert_eq!(*order.lock().expect("order"), (0..50).collect::<Vec<_>>());
    assert_eq!(flights.len(), 0);
}

#[tokio::test]
async fn one_who_leaves_lets_nobody_past_the_holder() {
    let flights = flights(100);
    let holder = Flights::arrive(&flights, lane())
        .expect("first")
        .turn()
        .await;
    let leaver = Flights::arrive(&flights, lane()).expect("second");
    let third = Flights::arrive(&flights, lane()).expect("third");
    drop(leaver);
    let mut third = Box::pin(third.turn());
    assert!(
        (&mut third).now_or_never().is_none(),
        "the holder is still there"
    );
    let fourth = Flights::arrive(&flights, lane()).expect("fourth");
    drop(fourth);
    let mut fifth = Box::pin(Flights::arrive(&flights, lane()).expect("fifth").turn());
    drop(holder);
    let third = third.await;
    assert!(
        (&mut fifth).now_or_never().is_none(),
        "the third is still there"
    );
    drop(third);
    drop(fifth.await);
    assert_eq!(flights.len(), 0);
}

#[tokio::test]
async fn the_last_one_to_leave_takes_the_entry_along() {
    let flights = flights(100);
    let holder = Flights::arrive(&flights, lane())
        .expect("first")
        .turn()
        .await;
    let waiter = Flights::arrive(&flights, lane()).expect("second");
    let another = Flights::arrive(&flights, lane()).expect("third");
    drop(waiter);
    drop(holder);
    assert_eq!(flights.len(), 1, "the third still waits");
    drop(another);
    assert_eq!(flights.len(), 0);
}

#[tokio::test]
async fn waiters_are_bounded_and_counted_down() {
    let flights = flights(2);
    let holder = Flights::arrive(&flights, lane())
        .expect("holds")
        .turn()
        .await;
    let one = Flights::arrive(&flights, lane()).expect("waits");
    let two = flights.follow(&lane()).expect("a read waits too");
    assert_eq!(
        Flights::arrive(&flights, lane()).err(),
        Some(Overloaded { waiters_max: 2 })
    );
    assert!(flights.follow(&lane()).is_err());
    drop(two);
    let three = Flights::arrive(&flights, lane()).expect("room again");
    drop(holder);
    drop(one.turn().await);
    drop(three.turn().await);
    assert_eq!(flights.len(), 0);
}

#[tokio::test]
async fn a_read_waits_and_holds_nobody_up() {
    let flights = flights(10);
    let holder = Flights::arrive(&flights, lane())
        .expect("holds")
        .turn()
        .await;
    let mut read = Box::pin(flights.follow(&lane()).expect("follows").pass());
    assert!((&mut read).now_or_never().is_none());
    let next = Flights::arrive(&flights, lane()).expect("next");
    drop(holder);
    let place = next
        .turn()
        .now_or_never()
        .expect("does not wait for the read");
    assert!(
        read.now_or_never().is_some(),
        "waits only for what was before it"
    );
    drop(place);
    flights
        .follow(&lane())
        .expect("free")
        .pass()
        .now_or_never()
        .expect("at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancels_and_panics_at_random_leave_nothing_behind() {
    let seed = 0x5eed_u64;
    println!("seed {seed}");
    let flights = flights(10_000);
    let inside = Arc::new(AtomicUsize::new(0));
    let mut state = seed;
    let mut tasks = Vec::new();
    for _ in 0..2_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (flights, inside) = (Arc::clone(&flights), Arc::clone(&inside));
        let choice = state >> 60;
        tasks.push(spawned(async move {
            let turn = Flights::arrive(&flights, lane()).expect("admitted").turn();
            let Ok(place) = tokio::time::timeout(Duration::from_micros(choice * 300), turn).await
            else {
                return;
            };
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            assert!(choice != 7, "a holder panics");
            drop(place);
        }));
    }
    for task in tasks {
        if let Err(error) = task.await {
            assert!(!format!("{error:?}").contains("two at once"), "{error:?}");
        }
    }
    assert_eq!(flights.len(), 0);
}
