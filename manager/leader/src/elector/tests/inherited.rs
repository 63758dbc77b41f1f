//! The latch of a predecessor, which another process edits while its successor holds the lease.

use outrigger_evidence::latch::{ANNOTATION, Stored};
use outrigger_serving::Tasks;

use super::*;
use crate::run::{gate_of_latch, inherited_latch};

const LATCH: &str = r#"{"version":1,"uid":"u","phase":"Migrate","seenUnattested":true}"#;

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
async fn an_annotation_that_is_no_latch_of_this_format_may_be_removed() {
    let newer = LATCH.replace(r#""version":1"#, r#""version":2"#);
    for text in [&newer, "yes"] {
        assert_eq!(edited(Some(text), None).await, None);
    }
    assert_eq!(edited(None, Some(LATCH)).await.as_deref(), Some(LATCH));
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_not_competed_for_while_it_has_a_latch_of_a_newer_program() {
    let server = Server::new();
    server.held_by("newer", 0);
    let newer = LATCH.replace(r#""version":1"#, r#""version":2"#);
    annotate(&server, Some(&newer));
    let (tasks, _ended) = Tasks::new();
    let (mut gate, why) = gate_of_latch(server.view.subscribe(), &tasks);
    let mut elector = server.elector("us");
    let competing = tokio::spawn(async move { elector.acquire(&mut gate, &never()).await.is_some() });
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(server.holder(), "newer", "its record has expired");
    let text = why.borrow().clone().unwrap();
    assert!(text.contains("has format 2"), "{text}");

    annotate(&server, Some(LATCH));
    assert!(competing.await.unwrap());
    assert_eq!((server.holder().as_str(), why.borrow().as_ref()), ("us", None));
}
