//! A Lease that is deleted or edited by hand while its holder is alive.

use std::collections::BTreeMap;

use super::*;

fn pairs(key: &str) -> Option<BTreeMap<String, String>> {
    Some([(key.to_owned(), "1".to_owned())].into())
}

fn emptied_by_hand(server: &Server) {
    server.edit(|lease| lease.data["spec"]["holderIdentity"] = "".into());
}

/// The lease of another process that renews it under our eyes, with an annotation and a label.
async fn held_by_a_living_process(server: &Server) {
    server.held_by("kcm", 0);
    server.edit(|lease| {
        lease.metadata.annotations = pairs("outrigger.dev/prepared");
        lease.metadata.labels = pairs("theirs");
        lease.data["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z".into();
    });
}

#[tokio::test(start_paused = true)]
async fn a_candidate_waits_until_a_deleted_or_emptied_lease_would_have_expired() {
    for change in [Server::delete, emptied_by_hand] {
        let server = Server::new();
        held_by_a_living_process(&server).await;
        let (start, other) = (Instant::now(), server.clone());
        tokio::spawn(async move {
            tokio::time::sleep(seconds(3)).await;
            change(&other);
        });
        let (_open, mut gate) = open();
        server.elector("us").acquire(&mut gate, &never()).await.unwrap();
        assert_eq!(start.elapsed(), seconds(15));
        assert_eq!(server.holder(), "us");
        let metadata = server.lease().metadata;
        assert_eq!(metadata.annotations, pairs("outrigger.dev/prepared"));
        assert_eq!(metadata.labels, pairs("theirs"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_a_living_holders_lease_is_not_obeyed() {
    type Edit = fn(&mut DynamicObject);
    let edits: [Edit; 5] = [
        |lease| lease.data["spec"]["leaseDurationSeconds"] = 1.into(),
        |lease| lease.data["spec"]["leaseDurationSeconds"] = serde_json::Value::Null,
        |lease| lease.data["spec"]["renewTime"] = serde_json::Value::Null,
        |lease| lease.data["spec"]["holderIdentity"] = "us".into(),
        |lease| {
            lease.data["spec"]["holderIdentity"] = "".into();
            lease.data["spec"]["leaseDurationSeconds"] = 1.into();
        },
    ];
    for (index, edit) in edits.into_iter().enumerate() {
        let server = Server::new();
        held_by_a_living_process(&server).await;
        let (start, other) = (Instant::now(), server.clone());
        tokio::spawn(async move {
            tokio::time::sleep(seconds(3)).await;
            other.edit(edit);
        });
        let (_open, mut gate) = open();
        server.elector("us").acquire(&mut gate, &never()).await.unwrap();
        assert_eq!(start.elapsed(), seconds(15), "edit {index}");
    }
}

/// Its release failed, or a write was not answered.
#[tokio::test(start_paused = true)]
async fn a_process_acquires_at_once_the_lease_that_it_left_to_expire() {
    let server = Server::new();
    let holder = Holder::start(&server, "us").await;
    tokio::time::sleep(seconds(5)).await;
    let (mut elector, start) = (holder.stop().await, Instant::now());
    let (_open, mut gate) = open();
    elector.acquire(&mut gate, &never()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_holder_writes_a_deleted_or_emptied_lease_again_at_once() {
    for change in [Server::delete, emptied_by_hand] {
        let server = Server::new();
        let holder = Holder::start(&server, "us").await;
        holder.annotate("own").await;
        server.edit(|lease| {
            lease
                .metadata
                .annotations
                .get_or_insert_default()
                .extend(pairs("theirs").unwrap());
            lease.metadata.labels = pairs("label");
        });
        tokio::time::sleep(seconds(3)).await;

        change(&server);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(server.holder(), "us", "at once, not at the next renewal");
        let metadata = server.lease().metadata;
        assert_eq!(metadata.annotations.unwrap().len(), 2);
        assert_eq!(metadata.labels, pairs("label"));

        let writes = server.state.lock().unwrap().writes;
        tokio::time::sleep(seconds(20)).await;
        assert_eq!(holder.permit.check(), Ok(()));
        assert_eq!(
            server.state.lock().unwrap().writes,
            writes + 10,
            "one renewal in two seconds"
        );
        holder.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_watch_shows_nothing_finds_the_deletion_at_its_next_renewal() {
    let server = Server::new();
    let holder = Holder::start(&server, "us").await;
    server.set(|state| state.stalled = true);
    server.delete();
    tokio::time::sleep(seconds(3)).await;
    assert_eq!(server.holder(), "us");
    assert_eq!(holder.permit.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_holder_gives_way_at_once_to_the_process_that_created_the_lease_first() {
    let server = Server::new();
    let holder = Holder::start(&server, "us").await;
    server.set(|state| {
        state.stalled = true;
        state.creates_next = Some("kcm".into());
    });
    server.delete();
    let permit = holder.permit.clone();
    assert_eq!(holder.lost().await, Lost::Taken("kcm".into()));
    assert!(permit.check().is_err());
    assert_eq!(server.holder(), "kcm");
    assert_eq!(
        server.state.lock().unwrap().requests,
        5,
        "create, update, get, create, get"
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_record_of_this_process_does_not_keep_itself_away() {
    for change in [Server::delete, emptied_by_hand] {
        let server = Server::new();
        let mut elector = Holder::start(&server, "us").await.stop().await;
        change(&server);
        let start = Instant::now();
        let (_open, mut gate) = open();
        elector.acquire(&mut gate, &never()).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

/// After a conflict the read state decides until the watch shows a newer one.
#[tokio::test(start_paused = true)]
async fn a_watch_that_still_shows_a_deleted_lease_causes_no_requests_without_a_pause() {
    let server = Server::new();
    held_by_a_living_process(&server).await;
    server.set(|state| state.stalled = true);
    server.delete();
    let (_open, mut gate) = open();
    server.elector("us").acquire(&mut gate, &never()).await.unwrap();
    assert_eq!(server.state.lock().unwrap().requests, 3, "update, get, create");
}
