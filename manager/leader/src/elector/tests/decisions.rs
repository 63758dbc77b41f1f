//! The decisions of the elector about what it read and what its watch shows.

use outrigger_evidence::record::Record;

use super::super::holding::News;
use super::*;
use crate::lease::tests::broken;

/// A Lease of `holder` in this version.
fn lease(version: u64, holder: &str) -> DynamicObject {
    let mut lease = Server::new().new_object();
    Record::created_by(holder, seconds(15), Timestamp::UNIX_EPOCH).write_to(&mut lease);
    lease.metadata.resource_version = Some(version.to_string());
    lease
}

fn showing(lease: DynamicObject, at: Instant) -> View {
    let mut view = View::default();
    view.see(lease, at);
    view
}

fn began_now() -> Began {
    Began {
        at: Instant::now(),
        suspended: Duration::ZERO,
    }
}

#[tokio::test(start_paused = true)]
async fn the_newer_view_has_the_larger_version_or_without_a_lease_the_later_time() {
    let (early, late) = (Instant::now(), Instant::now() + seconds(1));
    let (first, second) = (|at| showing(lease(1, "a"), at), |at| showing(lease(2, "a"), at));
    assert!(newer(&second(early), &first(late)));
    assert!(!newer(&first(late), &second(early)));
    assert!(!newer(&first(late), &first(early)));

    assert!(newer(&absent(late), &first(early)));
    assert!(newer(&first(late), &absent(early)));
    assert!(!newer(&absent(early), &first(late)));
    assert!(!newer(&absent(early), &first(early)));
}

#[tokio::test(start_paused = true)]
async fn what_was_read_counts_while_the_watch_fails_or_is_late() {
    let now = Instant::now();
    let holder = |watched: View, fetched: Option<View>| {
        let server = Server::new();
        server.view.send_replace(watched);
        let newest = server.elector("us").newest(fetched.as_ref());
        newest.named_holder().map(str::to_owned)
    };
    let failing = || {
        let mut view = showing(lease(2, "watched"), now);
        view.failure = Some(broken());
        view
    };
    let (watched, read) = (Some("watched".to_owned()), Some("read".to_owned()));
    let view = |version, holder| showing(lease(version, holder), now);

    assert_eq!(holder(view(2, "watched"), None), watched);
    assert_eq!(holder(view(2, "watched"), Some(view(1, "read"))), watched);
    assert_eq!(holder(view(2, "watched"), Some(view(3, "read"))), read);
    assert_eq!(holder(failing(), Some(view(1, "read"))), read);
    assert_eq!(holder(View::default(), Some(view(1, "read"))), read);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_never_seen_is_read_first() {
    let elector = Server::new().elector("us");
    assert!(matches!(elector.next(&View::default(), Instant::now()), Next::Get));
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_counts_until_its_renew_deadline() {
    let mut elector = Server::new().elector("us");
    elector.attempts.begin(Timestamp::UNIX_EPOCH, began_now());
    let view = showing(lease(1, "us"), Instant::now());
    tokio::time::advance(TIMING.renew_deadline - seconds(1)).await;
    assert!(elector.confirmed(&view).is_some());
    tokio::time::advance(seconds(1)).await;
    assert!(elector.confirmed(&view).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_late_is_no_news_for_the_holder() {
    let elector = Server::new().elector("us");
    let renewed = began_now();
    let held = Held {
        lease: lease(2, "us"),
        renewed,
    };
    let news = |view: View| elector.news(&view, &held);
    assert!(matches!(news(showing(lease(1, "before"), renewed.at)), News::None));
    assert!(matches!(news(showing(lease(3, "thief"), renewed.at)), News::Taken(_)));

    let deleted_before = renewed.at.checked_sub(Duration::from_millis(1)).unwrap();
    assert!(matches!(news(absent(deleted_before)), News::None));
    assert!(matches!(news(absent(renewed.at)), News::Write));
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_with_a_change_that_the_watch_does_not_show_the_write_is_repeated_at_once() {
    let server = Server::new();
    server.held_by("", 0);
    server.set(|state| state.stalled = true);
    server.edit(|lease| lease.metadata.annotations = Some([("theirs".to_owned(), "1".to_owned())].into()));
    let (start, (_open, mut gate)) = (Instant::now(), open());
    server.elector("us").acquire(&mut gate, &never()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(server.state.lock().unwrap().requests, 3, "update, get, update");
}

/// An admission webhook may refuse each write so.
#[tokio::test(start_paused = true)]
async fn a_conflict_without_a_change_is_repeated_after_the_retry_period() {
    let server = Server::new();
    server.held_by("", 0);
    server.set(|state| state.conflicts = true);
    let (_open, mut gate) = open();
    let (mut elector, stop) = (server.elector("us"), never());
    let acquire = elector.acquire(&mut gate, &stop);
    assert!(tokio::time::timeout(seconds(9), acquire).await.is_err());
    assert_eq!(server.state.lock().unwrap().requests, 10, "five times update and get");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_never_took_the_lease_does_not_release_it() {
    let server = Server::new();
    let mut elector = server.elector("us");
    server.held_by("other", 0);
    elector.release_attempts().await.unwrap();
    assert_eq!(server.state.lock().unwrap().requests, 0);

    elector.attempts.begin(Timestamp::from_second(1).unwrap(), began_now());
    elector.release_attempts().await.unwrap();
    assert_eq!(server.holder(), "other");
}

#[tokio::test(start_paused = true)]
async fn an_annotation_is_stored_only_when_a_write_has_it() {
    let server = Server::new();
    let holder = Holder::start(&server, "us").await;
    let before = version(&server.lease());
    server.set(|state| state.away = true);
    let (stored, mut done) = oneshot::channel();
    let change = AnnotationChange {
        values: vec![("own".into(), Some("1".into())), ("other".into(), Some("2".into()))],
        stored,
    };
    holder.annotation_changes.send(change).await.unwrap();
    tokio::time::sleep(seconds(3)).await;
    assert!(done.try_recv().is_err(), "no write was stored");

    server.set(|state| state.away = false);
    tokio::time::sleep(seconds(3)).await;
    let stored = done.try_recv().unwrap();
    assert!(version(&stored) > before, "the Lease as it was stored");
    let annotations = stored.metadata.annotations.unwrap();
    assert_eq!((annotations["own"].as_str(), annotations["other"].as_str()), ("1", "2"));
    assert_eq!(server.lease().metadata.annotations.unwrap(), annotations);
    holder.stop().await;
}
