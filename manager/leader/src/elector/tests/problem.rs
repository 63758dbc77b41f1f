//! The reason for which a lease cannot be acquired, for the status.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_reported_until_one_succeeds() {
    let server = Server::new();
    server.set(|state| state.away = true);
    let mut elector = server.elector("us");
    let mut problem = elector.problem();
    let (_open, mut gate) = watch::channel(Gate::Open);

    let acquiring = tokio::spawn(async move { elector.acquire(&mut gate, &never()).await.is_some() });
    let text = problem.wait_for(Option::is_some).await.unwrap().clone();
    assert_eq!(text.as_deref(), Some("no answer from the API server within 1s"));

    server.set(|state| state.away = false);
    assert!(acquiring.await.unwrap());
    assert_eq!(*problem.borrow(), None);
}
