//! How holding ends, on a paused clock.

use std::sync::Arc;

use futures::FutureExt;
use outrigger_evidence::record::Record;
use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use crate::elector::Gate;
use crate::elector::tests::{Server, TIMING};

/// A tenure whose controllers are `work`.
async fn tenure<F>(
    server: &Server,
    work: impl Fn(Permit, CancellationToken) -> F + Send + Sync + 'static,
) -> Tenure<Server>
where
    F: Future<Output = Result<(), ControllerError>> + Send + 'static,
{
    fenced(server, None, work).await
}

async fn fenced<F>(
    server: &Server,
    fence: Option<watch::Receiver<Fence>>,
    work: impl Fn(Permit, CancellationToken) -> F + Send + Sync + 'static,
) -> Tenure<Server>
where
    F: Future<Output = Result<(), ControllerError>> + Send + 'static,
{
    let (_open, mut gate) = watch::channel(Gate::Open);
    let mut elector = server.elector("us");
    let held = elector.acquire(&mut gate, &CancellationToken::new()).await.unwrap();
    let start: Start = Box::new(move |permit, stop| work(permit, stop).boxed());
    let (_, annotation_changes) = mpsc::channel(1);
    Tenure::begin("lease", elector, held, annotation_changes, fence, &start)
}

fn holder(server: &Server) -> String {
    Record::of(&server.lease()).holder
}

#[tokio::test(start_paused = true)]
async fn idle_controllers_end_at_once_and_the_lease_is_given_back() {
    let server = Server::new();
    let idle = tenure(&server, |_, stop| async move {
        stop.cancelled().await;
        Ok(())
    });
    let idle = idle.await;
    let start = Instant::now();
    idle.end().await.unwrap();
    assert_eq!(holder(&server), "");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_write_under_way_ends_before_the_lease_is_given_back_and_no_other_begins() {
    let server = Server::new();
    let (began, mut has_begun) = watch::channel(false);
    let at_end = server.clone();
    let writing = tenure(&server, move |permit, _stop| {
        let (began, server) = (began.clone(), at_end.clone());
        async move {
            permit
                .guard(async {
                    began.send_replace(true);
                    tokio::time::sleep(Duration::from_secs(5)).await;
                })
                .await?;
            assert_eq!(holder(&server), "us", "still held when the write ends");
            permit.guard(async {}).await?;
            Err("a write began while the lease was given up".into())
        }
    });
    let writing = writing.await;
    has_begun.wait_for(|begun| *begun).await.unwrap();
    let permit = writing.permit.clone();
    writing.end().await.unwrap();
    assert_eq!(holder(&server), "");
    assert!(permit.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn controllers_that_only_read_are_ended_after_the_last_write_and_the_lease_is_released() {
    let server = Server::new();
    let dropped = Arc::new(());
    let alive = Arc::downgrade(&dropped);
    let reading = tenure(&server, move |permit, _stop| {
        let dropped = Arc::clone(&dropped);
        async move {
            let write = permit.guard(tokio::time::sleep(Duration::from_secs(3))).await;
            assert_eq!(write, Ok(()));
            std::future::pending::<()>().await;
            drop(dropped);
            Ok(())
        }
    });
    let reading = reading.await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let start = Instant::now();
    reading.end().await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(2), "the write has ended");
    assert_eq!(holder(&server), "");
    tokio::task::yield_now().await;
    assert_eq!(alive.strong_count(), 0, "the reconciliation has ended");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_does_not_end_leaves_the_lease_to_run_out() {
    let server = Server::new();
    let stuck = tenure(&server, |permit, _| async move {
        permit.guard(std::future::pending::<()>()).await?;
        Ok(())
    });
    let stuck = stuck.await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    assert!(matches!(stuck.end().await, Err(Ended::Stuck { .. })));
    assert_eq!(start.elapsed(), TIMING.renew_deadline);
    assert_eq!(holder(&server), "us");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_leaves_the_lease_to_run_out() {
    let server = Server::new();
    let cut_off = tenure(&server, |permit, stop| async move {
        let call = permit.guard(std::future::pending::<()>());
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            _ = call => Err("it cannot end".into()),
        }
    });
    let cut_off = cut_off.await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    cut_off.end().await.unwrap();
    assert_eq!(holder(&server), "us");
}

/// A process that may act without M acquires K.
#[tokio::test(start_paused = true)]
async fn under_a_closed_fence_no_write_begins_and_the_lease_is_released() {
    let server = Server::new();
    let (fence, fence_rx) = watch::channel(Fence::OPEN);
    let waiting = fenced(&server, Some(fence_rx), |permit, stop| async move {
        stop.cancelled().await;
        let write = permit.guard(async {}).await;
        assert!(write.is_err(), "it waits until the permit is closed");
        Ok(())
    });
    let waiting = waiting.await;
    assert_eq!(waiting.permit.check(), Ok(()));
    fence.send_replace(Fence {
        is_open: false,
        ends: Some(Instant::now()),
    });
    assert!(waiting.permit.check().is_err());

    let start = Instant::now();
    waiting.end().await.unwrap();
    assert_eq!(holder(&server), "");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}
