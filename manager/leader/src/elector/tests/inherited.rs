//! The latch of a predecessor, which another process edits while its successor holds the lease.

use super::*;
use crate::latch::{ANNOTATION, Stored};
use crate::run::inherited_latch;

const LATCH: &str = r#"{"version":1,"uid":"u","generation":3,"phase":"Migrate","basis":"External"}"#;

fn annotate(server: &Server, value: Option<&str>) {
    server.edit(|lease| {
        let value = value.map(|value| (ANNOTATION.to_owned(), value.to_owned()));
        lease.metadata.annotations = Some(value.into_iter().collect());
    });
}

/// The annotation some seconds after `inherited` was edited to `edited`.
async fn edited(inherited: Option<&str>, edited: Option<&str>) -> Option<String> {
    let server = Server::new();
    server.held_by("dead", 0);
    annotate(&server, inherited);
    let (_open, mut gate) = open();
    let mut elector = server.elector("us");
    let mut held = elector.acquire(&mut gate, &never()).await.unwrap();
    let latch = inherited_latch(&mut elector, &held);
    assert_eq!(latch, Stored::read(inherited));

    let (grantor, permit) = Permit::pair();
    tokio::spawn(async move {
        let (_changes, mut changes) = mpsc::channel(1);
        elector.hold(&mut held, &grantor, &mut changes, &never()).await
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    annotate(&server, edited);
    tokio::time::sleep(TIMING.retry_period).await;
    assert_eq!(permit.check(), Ok(()));
    server.lease().metadata.annotations?.remove(ANNOTATION)
}

#[tokio::test(start_paused = true)]
async fn an_inherited_latch_is_restored_at_the_next_renewal() {
    for change in [None, Some(""), Some("{"), Some("{}")] {
        assert_eq!(edited(Some(LATCH), change).await.as_deref(), Some(LATCH), "{change:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_latch_that_cannot_be_read_may_be_removed() {
    let newer = LATCH.replace(r#""version":1"#, r#""version":2"#);
    assert_eq!(edited(Some(&newer), None).await, None);
    assert_eq!(edited(None, Some(LATCH)).await.as_deref(), Some(LATCH));
}
