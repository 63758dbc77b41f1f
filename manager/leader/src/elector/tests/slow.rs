//! An API server that answers late.

use super::*;

/// Where the three seconds of a write pass: before it is stored, or before its answer.
const DELAYS: [(u64, u64); 2] = [(3, 0), (0, 3)];

fn slow(delays: (u64, u64), stalled: bool) -> Server {
    let server = Server::new();
    server.set(|state| {
        state.delays = (seconds(delays.0), seconds(delays.1));
        state.stalled = stalled;
    });
    server
}

#[tokio::test(start_paused = true)]
async fn of_two_candidates_one_takes_the_lease_and_keeps_it_although_each_write_takes_three_seconds() {
    for (delays, stalled) in DELAYS.into_iter().flat_map(|delays| [(delays, false), (delays, true)]) {
        let server = slow(delays, stalled);
        let tasks = ["a", "b"].map(|identity| {
            let server = server.clone();
            tokio::spawn(async move { Holder::start(&server, identity).await })
        });
        let start = Instant::now();
        let (first, _) = futures::future::select_all(tasks)
            .await
            .0
            .map(|holder| (holder, ()))
            .unwrap();
        assert!(
            start.elapsed() <= seconds(5),
            "{delays:?} {stalled}: {:?}",
            start.elapsed()
        );
        for _ in 0..60 {
            tokio::time::sleep(seconds(1)).await;
            assert_eq!(first.permit.check(), Ok(()), "{delays:?} {stalled}");
        }
        assert_eq!(Record::of(&server.lease()).transitions, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_take_without_an_answer_counts_from_its_start_once_the_watch_or_a_read_shows_it() {
    // While the watch shows nothing, the Lease is read after the time-out and the retry period.
    for (delays, stalled, after) in [((3, 9), false, 3), ((0, 9), false, 0), ((1, 9), true, 4)] {
        let server = slow(delays, stalled);
        let start = Instant::now();
        let (_open, mut gate) = open();
        let held = server.elector("us").acquire(&mut gate, &never()).await.unwrap();
        assert_eq!((held.renewed.at, start.elapsed()), (start, seconds(after)));
        assert_eq!(server.state.lock().unwrap().writes, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_counts_from_its_start() {
    let server = Server::new();
    let holder = Holder::start(&server, "us").await;
    server.set(|state| state.delays = (seconds(1), seconds(60)));
    // The renewal begins at two seconds and is stored one second later.
    tokio::time::sleep(Duration::from_millis(2_998)).await;
    // The time for which the machine was suspended is of a real clock.
    let remaining = || holder.permit.remaining().unwrap().as_secs_f64();
    assert!((remaining() - 7.001).abs() < 0.001, "{}", remaining());
    server.set(|state| state.away = true);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!((remaining() - 8.999).abs() < 0.001, "{}", remaining());
    tokio::time::sleep(Duration::from_millis(8_998)).await;
    assert_eq!(holder.permit.check(), Ok(()));
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(holder.lost().await, Lost::Deadline);
}

#[tokio::test(start_paused = true)]
async fn a_take_that_is_stored_after_its_deadline_gives_no_lease_and_keeps_no_other_away_for_ever() {
    let server = Server::new();
    let far = Server {
        own_delays: Some((seconds(11), seconds(60))),
        ..server.clone()
    };
    let mut elector = far.elector("slow");
    let taking = tokio::spawn(async move {
        let (_open, mut gate) = open();
        elector.acquire(&mut gate, &never()).await
    });
    tokio::time::sleep(seconds(12)).await;
    assert_eq!(server.holder(), "slow");
    assert!(!taking.is_finished(), "its deadline has passed");
    let expiry = Instant::now() + seconds(14);

    // Another candidate has a fast connection.
    let (_open, mut gate) = open();
    let (mut other, stop) = (server.elector("fast"), never());
    let first = tokio::time::timeout_at(expiry + seconds(1), other.acquire(&mut gate, &stop)).await;
    assert!(first.is_ok_and(|held| held.is_some()));
    assert_eq!(server.holder(), "fast");
    assert!(!taking.is_finished());
}

#[tokio::test(start_paused = true)]
async fn another_holder_ends_the_permit_at_once_also_while_a_renewal_is_in_flight() {
    let server = Server::new();
    let holder = Holder::start(&server, "us").await;
    server.set(|state| state.delays = (seconds(60), seconds(0)));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    server.held_by("thief", 5);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(holder.permit.check().is_err());
    assert_eq!(holder.lost().await, Lost::Taken("thief".into()));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_stopped_during_the_take_waits_for_it_and_releases_the_lease() {
    for (delays, stalled) in [((1, 0), false), ((0, 9), true), ((1, 9), true)] {
        let server = slow(delays, stalled);
        let (mut elector, stop, start) = (server.elector("us"), never(), Instant::now());
        let until = stop.clone();
        let taking = tokio::spawn(async move {
            let (_open, mut gate) = open();
            elector.acquire(&mut gate, &until).await
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop.cancel();
        assert!(taking.await.unwrap().is_none());
        assert!(start.elapsed() <= seconds(8), "{:?}", start.elapsed());
        assert!(Record::of(&server.lease()).is_released(), "{delays:?}");
    }
}
